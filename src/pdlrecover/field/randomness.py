"""Uniform random field elements.

Rules:

- The default, `SystemSource`, keys AES-256-CTR afresh from the operating system for every call.
  It has no state, so threads and forked processes cannot draw the same numbers.
- `Seeded` is for tests and repeatable simulations only: whoever knows the seed knows the shares.
  It is used only where the caller passes one in.
- A 64-bit word is masked to its low 61 bits; the one value that is no element, 2^61 − 1, is
  rejected and drawn again, so the rest are exactly uniform.
- No global random state is read or written.
"""

import hashlib
import math
import os
import sys
from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

from pdlrecover.field.mersenne import Elements
from pdlrecover.field.product import Q

_WORDS = 1 << 14
_ZEROS = memoryview(bytes(8 * _WORDS))


class Source(Protocol):
    """Something that draws uniform elements of the field modulo 2^61 − 1."""

    def elements(self, *shape: int) -> Elements:
        """Return an array of independent uniform elements."""


class SystemSource:
    """Randomness from the operating system, stretched by AES-256-CTR."""

    def elements(self, *shape: int) -> Elements:
        """Return an array of independent uniform elements."""
        return _draw(_stream(os.urandom(32)), shape)


class Seeded:
    """A repeatable source: the same seed gives the same elements. Not for secrets."""

    def __init__(self, seed: int | str) -> None:
        named = repr(seed if isinstance(seed, str) else int(seed))
        key = hashlib.sha256(f"pdlrecover seeded source: {named}".encode()).digest()
        self._stream = _stream(key)

    def elements(self, *shape: int) -> Elements:
        """Return the next elements of this seed's sequence."""
        return _draw(self._stream, shape)


def _stream(key: bytes) -> CipherContext:
    return Cipher(AES256(key), CTR(bytes(16))).encryptor()


def _draw(stream: CipherContext, shape: tuple[int, ...]) -> Elements:
    """Fill an array from the stream, and replace rejected words until there are none."""
    out = np.empty(math.prod(shape), dtype=np.int64)
    for start in range(0, out.size, _WORDS):
        part = out[start : start + _WORDS]
        _fill(stream, part)
        while (rejected := np.flatnonzero(part == Q)).size:
            again = np.empty(rejected.size, dtype=np.int64)
            _fill(stream, again)
            part[rejected] = again
    return out.reshape(shape)


def _fill(stream: CipherContext, out: Elements) -> None:
    """Overwrite `out` with the low 61 bits of the stream's next little-endian 64-bit words."""
    room = out.view(np.uint8).data
    stream.update_into(_ZEROS[: len(room)], room)
    if sys.byteorder == "big":
        out.byteswap(inplace=True)
    out &= Q
