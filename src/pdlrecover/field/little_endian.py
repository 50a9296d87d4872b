"""Arrays of numbers as bytes, for hashing, sending and storing: little-endian on every machine."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def as_bytes(array: NDArray[Any]) -> memoryview:
    """Return the little-endian bytes of an array of 8-byte numbers."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).view(np.uint8).data
