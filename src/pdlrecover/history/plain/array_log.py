"""Arrays of one shape, one after the other in a file: appended to, and mapped when read.

Rules: a record counts once all its bytes are there; what a failed write has left is overwritten by
the next. Opening a file that ends in the middle of a record raises and says how many records are
whole; `trim` cuts the rest away.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pdlrecover.errors import HistoryError


class ArrayLog:
    """A file of arrays of one shape and dtype."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self.path = path
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self._record_bytes = self.dtype.itemsize * math.prod(shape)
        path.touch()
        self._length, rest = divmod(path.stat().st_size, self._record_bytes)
        if rest:
            raise HistoryError(
                f"{path.name} ends in the middle of record {self._length}: {self._length} records "
                "are whole; resume the run it belongs to, or train in another folder"
            )

    @staticmethod
    def trim(path: Path, shape: tuple[int, ...], dtype: DTypeLike, length: int) -> None:
        """Cut a file down to `length` records."""
        size = length * np.dtype(dtype).itemsize * math.prod(shape)
        with path.open("r+b") as file:
            file.truncate(size)

    def append(self, record: NDArray[Any]) -> None:
        """Write one more record."""
        if record.shape != self.shape or record.dtype != self.dtype:
            raise HistoryError(
                f"{self.path.name} holds {self.dtype} arrays of shape {self.shape}, "
                f"got {record.dtype} of shape {record.shape}"
            )
        try:
            with self.path.open("r+b") as file:
                file.seek(self._length * self._record_bytes)
                file.write(np.ascontiguousarray(record).data)
                file.truncate()
        except OSError as error:
            raise HistoryError(
                f"round {self._length} could not be written to {self.path}: {error.strerror}; "
                f"{self._length} rounds are whole, make room and resume"
            ) from error
        self._length += 1

    def cut(self, length: int) -> None:
        """Forget the records from this one on."""
        self.trim(self.path, self.shape, self.dtype, length)
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> NDArray[Any]:
        """Return a record, mapped read-only: only what is looked at is read."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"{self.path.name} has {len(self)} records, got index {index}")
        offset = (index % len(self)) * self._record_bytes
        return np.memmap(self.path, self.dtype, "r", offset, self.shape)
