"""Dataset files: finds them, checks their digests, and reads them.

Rules:

- The data folder is the argument, else the environment variable PDLRECOVER_DATA, else ./data;
  in it each dataset has a folder of its own: mnist, fashion-mnist, har.
- A file with a known SHA-256 is read only if it has that digest.
- A file that is missing or damaged raises `DataError`, in one sentence with what to do.
- Nothing is unpickled.
"""

import gzip
import hashlib
import io
import math
import os
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pdlrecover.errors import DataError

NAMES = ("digits", "mnist", "fashion-mnist", "har", "har-inertial")
"""The datasets that are known."""
DATA_VARIABLE = "PDLRECOVER_DATA"

IDX_PARTS = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
"""The four files of MNIST, and of those datasets that took its form."""
_IDX_DIGESTS = {
    "mnist": (
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
    "fashion-mnist": (
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
}
DIGESTS = {
    f"{name}/{part}-ubyte.gz": digest
    for name, digests in _IDX_DIGESTS.items()
    for part, digest in zip(IDX_PARTS, digests, strict=True)
} | {
    "har/har_inertial.npz": "337bf403d57e6ba497c0fb160ae66e81bf79308e28e37148f32753230a7138d3",
    "har/har561_recomputed.npz": "899cfadf206c8fa53504307ca65241a4ae02062eaf4f1dd17f331a87f308d918",
}
"""SHA-256 by the path of a file in the data folder."""
DIGITS_DIGEST = "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8"
"""Of the table, unpacked."""
DIGITS = Path(__file__).with_name("digits.csv.gz")
"""Test part of the UCI set of handwritten digits (E. Alpaydin, C. Kaynak 1998; CC BY 4.0)."""


def data_folder(data_dir: Path | str | None = None) -> Path:
    """Return the data folder: the argument, else what PDLRECOVER_DATA says, else ./data."""
    return Path(data_dir or os.environ.get(DATA_VARIABLE) or "data")


def is_absent(name: str, data_dir: Path | str | None) -> bool:
    """Say whether nothing of a dataset is there, which is known by its name."""
    return (
        name != "digits" and not (data_folder(data_dir) / name.removesuffix("-inertial")).exists()
    )


def idx_paths(name: str) -> list[str]:
    """Return the paths in the data folder of a dataset that comes as MNIST does."""
    return [f"{name}/{part}-ubyte.gz" for part in IDX_PARTS]


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checked(path: str, folder: Path) -> Path:
    """Return where a file of the data folder is, having found it there and undamaged."""
    place = folder / path
    if not place.is_file():
        raise missing(path, folder)
    if (expected := DIGESTS.get(path)) and (got := digest(place)) != expected:
        raise DataError(
            f"{place} is damaged: its SHA-256 is {got[:16]}…, not {expected[:16]}…; "
            f"delete it and get it again with {_command(path, folder)}"
        )
    return place


def missing(path: str, folder: Path) -> DataError:
    """Return the error for a file that is not in the data folder."""
    return DataError(
        f"{path} is not in the data folder {folder.absolute()}; get it with "
        f"{_command(path, folder)}, or name the folder that has it by --data-dir or "
        f"{DATA_VARIABLE}"
    )


def read_idx(place: Path) -> NDArray[np.uint8]:
    """Read a gzipped idx file of bytes: 0, 0, 8, the number of axes, their lengths, the values."""
    try:
        content = gzip.decompress(place.read_bytes())
        kind, axes = content[:3], content[3]
        lengths = np.frombuffer(content, ">u4", count=axes, offset=4).tolist()
        values = np.frombuffer(content, np.uint8, offset=4 + 4 * axes)
    except (OSError, EOFError, zlib.error, ValueError, IndexError) as error:
        raise DataError(
            f"{place} is no gzipped idx file ({error}); delete it and get it again"
        ) from error
    if kind != b"\x00\x00\x08" or values.size != math.prod(lengths):
        raise DataError(
            f"{place} is no idx file of bytes: its head says {kind.hex()} and lengths {lengths}, "
            f"and {values.size} values follow; delete it and get it again"
        )
    return values.reshape(lengths)


def read_digits() -> NDArray[np.float64]:
    """Read the digits that come with this package: 64 pixels and the label in each row."""
    try:
        text = gzip.decompress(DIGITS.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{DIGITS} cannot be read ({error}); install pdlrecover again") from error
    if hashlib.sha256(text).hexdigest() != DIGITS_DIGEST:
        raise DataError(f"{DIGITS} is damaged; install pdlrecover again")
    return np.loadtxt(io.BytesIO(text), delimiter=",")


def read_text(place: Path) -> NDArray[np.float32]:
    """Read a text file of numbers, one row a line, as a matrix."""
    try:
        return np.loadtxt(place, dtype=np.float32, ndmin=2)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{place} is no table of numbers ({error}); delete it and get it again"
        ) from error


def _command(path: str, folder: Path) -> str:
    return f"`pdlrecover download {path.split('/')[0]} --data-dir {folder}`"
