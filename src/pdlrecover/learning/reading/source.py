"""What is read: the keys under [data] in peer.toml, or the arguments of `read_data`.

Rule: one place is named (file, folder, dataset or function), and a key that says nothing about it
is refused rather than ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from pdlrecover.errors import DataError

_IMAGES = ("mode", "resize")
_TABLE = ("label", "columns", "drop")
KEYS: dict[str, tuple[str, ...]] = {
    "file": (*_TABLE, "separator"),
    "folder": _IMAGES,
    "dataset": (*_TABLE, "split", "inputs", "image", *_IMAGES),
    "function": (),
}
"""What may be said of each kind of place."""
MODES = ("L", "RGB", "RGBA")


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where samples are, and which part of it they are."""

    file: str | None = None
    """A table, .csv, .tsv or .parquet, or arrays x and y in an .npz file."""
    folder: str | None = None
    """A folder of images, with one sub-folder for each class."""
    dataset: str | None = None
    """A folder that Hugging Face's `save_to_disk` wrote."""
    function: str | None = None
    """package.module:function, which takes nothing and returns samples and labels."""
    label: str | None = None
    """The column with the classes."""
    columns: tuple[str, ...] | None = None
    """The columns to use, in their order; by default all but the label and what is dropped."""
    drop: tuple[str, ...] | None = None
    """Columns to leave out."""
    separator: str | None = None
    """What separates the cells of a CSV file; by default a comma, and in .tsv a tab."""
    split: str | None = None
    """Of a Hugging Face dataset: which split."""
    inputs: str | None = None
    """Of a Hugging Face dataset: the column of arrays that are the samples."""
    image: str | None = None
    """Of a Hugging Face dataset: the column of images that are the samples."""
    mode: str | None = None
    """Convert images to L (grey), RGB or RGBA."""
    resize: bool | None = None
    """Scale images to the agreed size; by default images of another size are refused."""

    def __post_init__(self) -> None:
        keys = self.kinds()
        places = [name for name in keys if getattr(self, name) is not None]
        if len(places) > 1:
            raise DataError(f"{' and '.join(places)} are both there; leave all but one out")
        known = keys[places[0]] if places else self.usual()
        for field in fields(self):
            name = field.name
            if name not in keys and name not in known and getattr(self, name) is not None:
                raise DataError(
                    f"{name} says nothing about {places[0] if places else 'what is read'}; "
                    f"leave it out{_instead(name, keys)}"
                )
        if self.function is not None and not all(self.function.partition(":")):
            raise DataError(f"function must be package.module:function, got {self.function!r}")
        if self.separator is not None and len(self.separator) != 1:
            raise DataError(f"separator must be one character, got {self.separator!r}")
        if self.mode is not None and self.mode not in MODES:
            raise DataError(f"mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        samples = [key for key in ("inputs", "image", "columns") if getattr(self, key) is not None]
        if len(samples) > 1 or (samples and samples[0] != "columns" and self.drop is not None):
            raise DataError(
                f"{' and '.join([*samples, 'drop'][:2])} say different things of the samples: they "
                "are one column of arrays (inputs), one of images (image), or several of numbers "
                "(columns, drop); leave all but one out"
            )
        if self.image is None and self.dataset is not None and (self.mode or self.resize):
            raise DataError("mode and resize are about images; name their column as image")

    @classmethod
    def kinds(cls) -> Mapping[str, tuple[str, ...]]:
        """Return the kinds of places, and what may be said of each."""
        return KEYS

    @classmethod
    def usual(cls) -> tuple[str, ...]:
        """Return what may be said where no place is named."""
        return ()


def kind_of(path: Path) -> str:
    """Return what a path is: file, folder (of images), dataset (of Hugging Face) or arrays."""
    if not path.exists():
        raise DataError(f"there is no file or folder {path}; name one that is there")
    if not path.is_dir():
        return "file"
    if (path / "x.npy").exists():
        return "arrays"
    written = ("dataset_dict.json", "dataset_info.json", "state.json")
    return "dataset" if any((path / name).exists() for name in written) else "folder"


def _instead(name: str, keys: Mapping[str, tuple[str, ...]]) -> str:
    """Return where a key belongs."""
    places = [place for place, known in keys.items() if name in known]
    return f", or name a {' or '.join(places)}" if places else ""
