"""A Hugging Face dataset on disk, as `save_to_disk` writes it: Arrow files, and JSON about them.

Rules:

- Read is what is in that folder, and nothing else: no network, no code of others, no pickle. What
  its JSON names elsewhere is refused, and so is an image that is stored as a path.
- Samples are columns of numbers, or one column of arrays (`inputs`), or one of images (`image`).
- Labels that have names (`ClassLabel`) are read as these names.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pdlrecover.errors import DataError
from pdlrecover.extras import extra
from pdlrecover.learning.classes import labels_of
from pdlrecover.learning.reading.agreed import Agreed
from pdlrecover.learning.reading.arrow import (
    PIECE,
    LabelColumn,
    check_label_type,
    read_pieces,
)
from pdlrecover.learning.reading.images import Frame, frame_of, opened
from pdlrecover.learning.reading.reading import Reading, Watch, row
from pdlrecover.learning.reading.source import Source
from pdlrecover.learning.reading.table import (
    Floats,
    Rows,
    features_of,
    known_column,
    listed,
    spelled,
)

IMAGES = 64
"""Images that are read at once."""


def read_dataset(folder: Path, source: Source, agreed: Agreed) -> Reading:
    """Read a dataset that `save_to_disk` wrote."""
    with extra("data", "reading Hugging Face datasets"):
        import datasets
        import PIL.Image  # noqa: F401 (so that a missing package is said here)
        import pyarrow as pa
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}; name the one that save_to_disk wrote")
    try:
        _check_inside(folder)
        loaded = datasets.load_from_disk(str(folder.resolve()))
    except DataError:
        raise
    except (
        OSError, ValueError, LookupError, TypeError, AttributeError, pa.ArrowException
    ) as error:  # fmt: skip
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"{folder} is no Hugging Face dataset as save_to_disk writes it, or it is empty or "
            f"damaged: {reason}"
        ) from error
    found = _split(loaded, source, folder)
    label_names = _label_names(found, source)
    one = source.inputs or source.image
    if one is None:

        def pieces(names: Sequence[str]) -> Iterator[Any]:
            yield from found.select_columns(list(names)).with_format("arrow").iter(PIECE)

        schema = found.features.arrow_schema
        return read_pieces(folder.name, schema, pieces, source, agreed, label_names)
    column, labelled = _pair(found, source, one, folder.name)
    watch, place = Watch(folder.name), folder.name
    labels = LabelColumn(place, spelled(labelled), label_names)
    chosen = found.select_columns([column, labelled])
    if source.image is not None:
        samples = _images(chosen, column, labelled, labels, source, agreed, place, watch)
    else:
        samples = _arrays(chosen, column, labelled, labels, place, watch)
    watch.end(len(samples))
    return Reading(
        place=place,
        samples=samples,
        labels=labels_of(labels.values, f"the labels of {place}"),
    )


def _check_inside(folder: Path) -> None:
    """Refuse a dataset that is made up of files elsewhere."""
    splits: list[Any] = []
    if (listing := folder / "dataset_dict.json").is_file():
        splits = json.loads(listing.read_bytes())["splits"]
    names = [*splits]
    for place in (folder, *(folder / str(name) for name in splits if _is_plain(name))):
        if (state := place / "state.json").is_file():
            names += [each["filename"] for each in json.loads(state.read_bytes())["_data_files"]]
    for name in names:
        if not _is_plain(name):
            raise DataError(
                f"{folder} takes what is at {name!r} for a part of itself, and only what is in the "
                "folder is read; write the dataset again by save_to_disk"
            )


def _is_plain(name: Any) -> bool:
    """Say whether this is the name of something in a folder, and no way out of it."""
    return isinstance(name, str) and name not in ("", ".", "..") and Path(name).name == name


def _split(loaded: Any, source: Source, folder: Path) -> Any:
    """Return the split that is asked for, or the only one."""
    import datasets

    if not isinstance(loaded, datasets.DatasetDict):
        if source.split is not None:
            raise DataError(f"{folder.name} has no splits; leave split out")
        found = loaded
    elif source.split is None and len(loaded) == 1:
        (found,) = loaded.values()
    elif source.split in loaded:
        found = loaded[source.split]
    else:
        raise DataError(
            f"{folder.name} has the splits {listed(list(loaded))}, got split = {source.split!r}; "
            "name one of them"
        )
    if not len(found):
        raise DataError(f"{folder.name} has columns and no row; it needs samples")
    return found.with_format(None)  # whatever it was saved with


def _label_names(found: Any, source: Source) -> list[str] | None:
    import datasets

    named = {spelled(name): feature for name, feature in found.features.items()}
    feature = None if source.label is None else named.get(spelled(source.label))
    return list(feature.names) if isinstance(feature, datasets.ClassLabel) else None


def _pair(found: Any, source: Source, one: str, place: str) -> tuple[str, str]:
    """Return the names of the column with the samples and of that with the labels."""
    names = list(found.features)
    key = "image" if source.inputs is None else "inputs"
    column = known_column(one, [spelled(name) for name in names], place, key)
    only = Source(dataset=place, label=source.label, columns=(column,))
    (at,), label = features_of(names, only, Agreed(), place)
    check_label_type(found.features.arrow_schema.field(label).type, spelled(names[label]), place)
    return names[at], names[label]


def _images(
    found: Any,
    column: str,
    labelled: str,
    labels: LabelColumn,
    source: Source,
    agreed: Agreed,
    place: str,
    watch: Watch,
) -> Floats:
    import datasets

    if not isinstance(found.features[column], datasets.Image):
        raise DataError(
            f"the column {column!r} of {place} has no images, but {found.features[column]}; name "
            "a column of arrays as inputs, or columns of numbers as columns"
        )
    stored = found.cast_column(column, datasets.Image(decode=False))
    frame: Frame | None = None
    samples, count = np.zeros(0, np.float32), 0
    for batch in stored.iter(IMAGES):
        for each in batch[column]:
            name = f"{place}, {row(count)}"
            if each is None or each.get("bytes") is None:
                raise DataError(
                    f"{name}: the column {column!r} has no image, or only a path to one; store the "
                    "images themselves in the dataset"
                )
            image = opened(each["bytes"], name)
            if frame is None:
                frame = frame_of(source, agreed, image)
                samples = np.empty((len(found), *frame.shape), np.float32)
            samples[count] = frame.pixels(image, name)
            count += 1
        labels.add(batch[labelled])
        watch.step(count)
    return samples


def _arrays(
    found: Any, column: str, labelled: str, labels: LabelColumn, place: str, watch: Watch
) -> Any:
    import datasets

    if isinstance(found.features[column], datasets.Image):
        raise DataError(
            f'the column {column!r} of {place} has images; name it as image = "{column}"'
        )
    if not _are_numbers(kind := found.features.arrow_schema.field(column).type):
        raise DataError(
            f"the arrays of the column {column!r} must be numbers, and those of {place} have the "
            f"type {kind}; name another column as inputs"
        )
    rows: Rows | None = None
    shape: tuple[int, ...] | None = None
    count = 0
    for values, labelled_as in _pieces_of_arrays(found, column, labelled):
        if not isinstance(values, np.ndarray) or values.dtype.kind not in "biuf":
            raise DataError(
                f"{place}, {row(count)} or one of the next {len(labelled_as) - 1}: the arrays "
                f"of the column {column!r} must be numbers, all of one shape and without gaps"
            )
        shape = values.shape[1:] if shape is None else shape
        if values.shape[1:] != shape:
            raise DataError(
                f"{place}, {row(count)}: the column {column!r} has an array of shape "
                f"{values.shape[1:]}, and those before have {shape}; give all the same shape"
            )
        if not shape:
            raise DataError(
                f"the column {column!r} of {place} has single numbers; name them by columns = "
                f'["{column}"] instead of inputs'
            )
        if 0 in shape:
            raise DataError(
                f"the arrays of the column {column!r} of {place} have no numbers; name another "
                "column as inputs"
            )
        rows = rows or Rows(int(np.prod(shape)))
        rows.add(values.reshape(len(values), -1).astype(np.float32))
        labels.add(labelled_as)
        count += len(values)
        watch.step(count)
    return (rows or Rows(1)).matrix().reshape(-1, *(shape or (1,)))


def _pieces_of_arrays(found: Any, column: str, labelled: str) -> Iterator[tuple[Any, list[Any]]]:
    """Yield arrays, None if they cannot be put together as one, and their labels, some at once."""
    numbers, plain = found.with_format("numpy"), found.with_format("arrow")
    for start in range(0, len(found), IMAGES):
        piece = slice(start, start + IMAGES)
        try:
            with np.errstate(over="ignore"):  # what is not finite is refused with all samples
                arrays = numbers[piece][column]
        except (AttributeError, TypeError, ValueError):  # a row has none, or another shape
            arrays = None
        yield arrays, plain[piece].column(labelled).to_pylist()


def _are_numbers(kind: Any) -> bool:
    """Say whether values of this type are numbers, or arrays of them: nothing has to be opened."""
    import pyarrow as pa

    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    while True:
        if isinstance(kind, pa.ExtensionType):
            kind = kind.storage_type
        elif any(fits(kind) for fits in lists):
            kind = kind.value_type
        else:
            return any(fits(kind) for fits in numbers)
