"""Reads what a `Source` says; `read_data` does so for users of the library."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pdlrecover.errors import DataError
from pdlrecover.learning.classes import Labels
from pdlrecover.learning.reading.agreed import Agreed
from pdlrecover.learning.reading.arrays import read_arrays
from pdlrecover.learning.reading.arrow import read_parquet
from pdlrecover.learning.reading.csv_file import read_csv
from pdlrecover.learning.reading.function import read_function
from pdlrecover.learning.reading.hugging_face import read_dataset
from pdlrecover.learning.reading.images import read_images
from pdlrecover.learning.reading.reading import Reading
from pdlrecover.learning.reading.source import KEYS, Source, kind_of

SUFFIXES = (".csv", ".tsv", ".parquet", ".npz")


def read(source: Source, folder: Path, agreed: Agreed) -> Reading:
    """Read what a source says; its paths are meant from this folder."""
    if source.function is not None:
        return read_function(source.function, agreed)
    if source.folder is not None:
        return read_images(folder / source.folder, source, agreed)
    if source.dataset is not None:
        return read_dataset(folder / source.dataset, source, agreed)
    if source.file is not None:
        return _read_file(folder / source.file, source, agreed)
    raise DataError(f"it is not said what to read; name one of {', '.join(KEYS)}")


def read_data(
    path: Path | str,
    *,
    label: str | None = None,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    separator: str | None = None,
    split: str | None = None,
    inputs: str | None = None,
    image: str | None = None,
    mode: str | None = None,
    shape: tuple[int, ...] | None = None,
    resize: bool = False,
) -> tuple[Any, Labels]:
    """Return the samples and labels in a file or folder, as `Federation.simulate` takes them.

        how = {"label": "diagnosis", "columns": ["age", "bmi"]}
        data = {"ada": read_data("ada.csv", **how), "ben": read_data("ben.parquet", **how)}
        federation = Federation.simulate(model, data)

    `path` is a table (.csv, .tsv, .parquet) or arrays (.npz, or a folder with x.npy and y.npy), a
    folder of images with one sub-folder for each class, or one that Hugging Face's `save_to_disk`
    wrote. `docs/data.md` says what is read of each, and what is refused.

    - Of a table, `label` is the column with the classes; samples are all others, or `columns` in
      their order, without what `drop` names. The samples are a `Table`, which knows its columns: so
      peers with other columns, or another order, are refused as with tables of pandas.
    - Of a Hugging Face dataset, `split` may be needed; samples are columns of numbers, or one
      column of arrays (`inputs`), or one of images (`image`).
    - Images are (channels, height, width), from 0 to 1, as the first one is, or of this `shape`;
      with `mode` (L, RGB, RGBA) they are converted, with `resize` scaled.

    Labels are whole numbers, texts or truth values.
    """
    path = Path(path)
    kind = kind_of(path)
    said = {
        "label": label,
        "columns": None if columns is None else tuple(columns),
        "drop": None if drop is None else tuple(drop),
        "separator": separator,
        "split": split,
        "inputs": inputs,
        "image": image,
        "mode": mode,
        "resize": resize or None,
    }
    given: dict[str, Any] = {key: value for key, value in said.items() if value is not None}
    if kind != "arrays":
        source = Source(**{kind: path.name, **given})
        reading = read(source, path.parent, Agreed(shape=shape))
    elif given:
        raise DataError(f"{next(iter(given))} says nothing about arrays; leave it out")
    else:
        reading = read_arrays(path)
    return reading.samples, reading.labels


def _read_file(path: Path, source: Source, agreed: Agreed) -> Reading:
    kind = path.suffix.lower()
    if kind not in SUFFIXES:
        raise DataError(
            f"{path.name} is none of {', '.join(SUFFIXES)}; convert it, or write a function that "
            "reads it"
        )
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "is not there"
        raise DataError(f"{path} {what}; name the file with the samples")
    if kind == ".npz":
        for key in KEYS["file"]:
            if getattr(source, key) is not None:
                raise DataError(f"{key} is about tables, and {path.name} has arrays; leave it out")
        return read_arrays(path)
    return (read_parquet if kind == ".parquet" else read_csv)(path, source, agreed)
