"""Images: a folder with one sub-folder for each class, and what a picture becomes as a sample.

Rules:

- A sample is (channels, height, width), or (height, width) where the federation says so; a pixel is
  its value over 255, and nothing is subtracted. Samples stand in the order of their paths.
- PNG, JPEG, BMP, TIFF and WebP, of 8 bits for each channel and one picture in each file. What EXIF
  says of the orientation is applied.
- All images have the agreed size, or that of the first; others are scaled only if that is asked for
  (bilinear, whatever their proportions). Colours are converted where nothing is lost by it (grey to
  RGB, a palette), else only if `mode` says so.
- A picture of more than `LIMIT` pixels is refused before it is decoded.
"""

import io
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pdlrecover.errors import DataError
from pdlrecover.extras import extra
from pdlrecover.learning.reading.agreed import Agreed
from pdlrecover.learning.reading.reading import Reading, Watch
from pdlrecover.learning.reading.source import Source
from pdlrecover.learning.reading.table import Floats, spelled

if TYPE_CHECKING:
    from PIL.Image import Image

LIMIT = 1 << 26
"""Pixels of one picture, at most."""
FORMATS = ("PNG", "JPEG", "BMP", "TIFF", "WEBP")
WHOLE = re.compile(r"0|[1-9][0-9]{0,17}")
CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4}
_SAME = {"L": ("RGB",)}
"""Into what a mode is converted without a loss, besides what is its usual one."""
_EIGHT_BITS = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV")
DAMAGED = (OSError, EOFError, ValueError, SyntaxError, TypeError, LookupError, ArithmeticError)
"""What Pillow raises for damaged files."""
_IGNORED = ("thumbs.db", "desktop.ini")


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What every image is brought to."""

    mode: str
    height: int
    width: int
    shape: tuple[int, ...]
    """The shape of a sample."""
    convert: bool = False
    """Convert any mode to this one."""
    resize: bool = False
    """Scale any size to this one."""

    def pixels(self, image: "Image", name: str) -> Floats:
        """Return an image as a sample."""
        from PIL.Image import Resampling

        found = _usual(image)
        if found != self.mode:
            if not self.convert and self.mode not in _SAME.get(found, ()):
                raise DataError(
                    f"{name} has the colour mode {found}, and samples are {self.mode} "
                    f'({CHANNELS[self.mode]} channels); convert it, or write mode = "{self.mode}" '
                    "to have all images converted"
                )
            image = image.convert(self.mode)
        elif image.mode != found:
            image = image.convert(found)
        if image.size != (self.width, self.height):
            if not self.resize:
                raise DataError(
                    f"{name} has {_size(image.width, image.height)} pixels (width × height), and "
                    f"samples have {_size(self.width, self.height)}; scale it, or write resize = "
                    "true to have all images scaled"
                )
            image = image.resize((self.width, self.height), Resampling.BILINEAR)
        values: NDArray[np.uint8] = np.asarray(image)
        if values.ndim == 3:
            values = values.transpose(2, 0, 1)
        return np.divide(values, 255, dtype=np.float32).reshape(self.shape)


def frame_of(source: Source, agreed: Agreed, first: "Image") -> Frame:
    """Return what images are brought to: what is agreed, else what the first image is."""
    if agreed.shape is None:
        mode = source.mode or _usual(first)
        height, width = first.height, first.width
        shape: tuple[int, ...] = (CHANNELS[mode], height, width)
    else:
        shape = agreed.shape
        channels = 1 if len(shape) == 2 else shape[0]
        modes = {count: mode for mode, count in CHANNELS.items()}
        if len(shape) not in (2, 3) or channels not in modes:
            raise DataError(
                f"the federation's samples have the shape {list(shape)}, and images have "
                "(channels, height, width) with 1, 3 or 4 channels, or (height, width); read "
                "something else, or agree on another model.shape"
            )
        mode, (height, width) = modes[channels], shape[-2:]
        if source.mode not in (None, mode):
            raise DataError(
                f"mode = {source.mode!r} has {CHANNELS[str(source.mode)]} channels, and the "
                f"federation's samples have {channels}; leave it out, or write {mode!r}"
            )
    return Frame(
        mode=mode,
        height=height,
        width=width,
        shape=shape,
        convert=source.mode is not None,
        resize=bool(source.resize),
    )


def read_images(folder: Path, source: Source, agreed: Agreed) -> Reading:
    """Read a folder with one sub-folder for each class."""
    with extra("data", "reading images"):
        import PIL.Image  # noqa: F401 (so that a missing package is said here)
    paths = list(_paths(folder))
    if not paths:
        raise DataError(f"no sub-folder of {folder} has an image; give it one for each class")
    names = [f"{path.parent.name}/{path.name}" for path in paths]
    watch, frame, samples = Watch(folder.name, "images"), None, np.zeros(0, np.float32)
    for at, path in enumerate(paths):
        image = opened(path, f"{folder.name}/{names[at]}")
        if frame is None:
            frame = frame_of(source, agreed, image)
            samples = np.empty((len(paths), *frame.shape), np.float32)
        samples[at] = frame.pixels(image, f"{folder.name}/{names[at]}")
        watch.step(at + 1)
    watch.end(len(paths))
    return Reading(
        place=folder.name,
        samples=samples,
        labels=labels_as_read([spelled(path.parent.name) for path in paths]),
        where=lambda at: f"image {names[at]}",
    )


def labels_as_read(names: list[str]) -> Any:
    """Return the names of folders as labels: whole numbers if all of them are."""
    if all(map(WHOLE.fullmatch, set(names))):
        return np.array([int(name) for name in names], np.int64)
    return names


def opened(content: Path | bytes, name: str) -> "Image":
    """Return a picture, decoded and the right way up."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    file = io.BytesIO(content) if isinstance(content, bytes) else content
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file, formats=FORMATS) as image:
                if image.width * image.height > LIMIT:
                    raise Image.DecompressionBombError
                if getattr(image, "n_frames", 1) > 1:
                    raise DataError(f"{name} has several pictures; keep one in each file")
                if image.mode not in _EIGHT_BITS:
                    raise DataError(
                        f"{name} has the colour mode {image.mode}, which is not 8 bits for each "
                        "channel; convert it first"
                    )
                return ImageOps.exif_transpose(image).copy()
    except DataError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(
            f"{name} has more than {LIMIT:,} pixels and is not decoded; scale it down first"
        ) from error
    except UnidentifiedImageError as error:
        raise DataError(
            f"{name} is no image in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}; convert it, or "
            "move it away"
        ) from error
    except DAMAGED as error:
        raise DataError(f"{name} is damaged: {error}; replace it, or move it away") from error


def _paths(folder: Path) -> Iterator[Path]:
    """Yield all images, in the order of their paths."""
    if (folder / "x.npy").exists():
        raise DataError(
            f"{folder} has arrays (x.npy) and no images; name it as source under [data] in "
            "peer.toml, or to read_data as it is"
        )
    try:
        for each in _visible(folder):
            if not each.is_dir():
                raise DataError(
                    f"{each.name} stands in {folder} itself, and an image's class is the name of "
                    "its sub-folder; move it into one, or away"
                )
            for path in _visible(each):
                if path.is_dir():
                    raise DataError(
                        f"{path} is a folder within that of a class; move its images up into "
                        f"{each.name}"
                    )
                yield path
    except FileNotFoundError as error:
        raise DataError(f"there is no folder {folder}; name the one with the images") from error
    except NotADirectoryError as error:
        raise DataError(f"{folder} is a file; name a folder with one sub-folder a class") from error


def _visible(folder: Path) -> list[Path]:
    """Return what is in a folder and not hidden, in the order of its names."""
    found = sorted(folder.iterdir(), key=lambda path: spelled(path.name))
    return [p for p in found if not p.name.startswith(".") and p.name.lower() not in _IGNORED]


def _usual(image: "Image") -> str:
    """Return the mode that an image has once palettes are resolved."""
    if image.mode in ("P", "PA"):
        return "RGBA" if image.mode == "PA" or "transparency" in image.info else "RGB"
    return "L" if image.mode == "1" else image.mode


def _size(width: int, height: int) -> str:
    return f"{width} × {height}"
