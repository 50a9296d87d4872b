"""Arrays of numpy: an .npz file with x and y, or a folder with x.npy and y.npy. Never unpickled."""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdlrecover.errors import DataError
from pdlrecover.learning.classes import labels_of
from pdlrecover.learning.reading.reading import Reading

DAMAGED = (
    OSError, EOFError, KeyError, ValueError, TypeError, AttributeError, RuntimeError, zlib.error,
    zipfile.BadZipFile,
)  # fmt: skip
"""What numpy raises for files that are damaged, or not its own."""


def read_arrays(path: Path) -> Reading:
    """Read x, one row for each sample, and y, one label for each."""
    x, y = _arrays(path)
    if not np.issubdtype(x.dtype, np.number) or x.ndim < 2 or len(x) != len(y) or not len(y):
        raise DataError(
            f"{path} must have x, numbers of shape (samples, …), and y, one label for each sample; "
            f"got x {x.dtype} {x.shape} and y {y.dtype} {y.shape}"
        )
    return Reading(
        place=path.name,
        samples=x,
        labels=labels_of(y, f"the labels in {path}"),
        where=lambda at: f"sample {at}",
        by_number=True,
    )


def _arrays(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    try:
        if path.is_dir():
            return (
                np.load(path / "x.npy", allow_pickle=False),
                np.load(path / "y.npy", allow_pickle=False),
            )
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return arrays["x"], np.atleast_1d(arrays["y"])
    except FileNotFoundError as error:
        raise DataError(
            f"{error.filename} is not there; name an .npz file with arrays x and y, or a folder "
            "with x.npy and y.npy"
        ) from error
    except MemoryError as error:
        raise DataError(
            f"{path} says that it has more numbers than there is memory for ({error}); if that is "
            "right, give this peer fewer samples, and if not, write the file again"
        ) from error
    except DAMAGED as error:
        raise DataError(
            f"{path} is no .npz file with arrays x and y of numbers, nor a folder with x.npy and "
            "y.npy; write one by `numpy.savez`"
        ) from error
