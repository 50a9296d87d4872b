"""Matrix products modulo q = 2^61 − 1, each as one float64 BLAS product.

Rules:

- An element x < 2^61 is cut in three limbs, x = x₀ + 2^21·x₁ + 2^42·x₂, with x₀, x₁ < 2^21 and
  x₂ < 2^19.
- Since 2^63 ≡ 4 (mod q), the product of x and y is c₀ + 2^21·c₁ + 2^42·c₂ with

      c₀ = x₀y₀ + 4x₂y₁ + 4x₁y₂      [c₀]   [x₀ 4x₂ 4x₁] [y₀]
      c₁ = x₁y₀ +  x₀y₁ + 4x₂y₂  or  [c₁] = [x₁  x₀ 4x₂]·[y₁]
      c₂ = x₂y₀ +  x₁y₁ +  x₀y₂      [c₂]   [x₂  x₁  x₀] [y₂]

  so a product of matrices is one product of 3×3 blocks of floats.
- Each of the K terms of c₀ is below 3·2^42. A float64 sum is exact, in any order of summation,
  while it stays below 2^53: hence K ≤ 682 (`EXACT_INNER`). Longer inner dimensions are cut in
  pieces of at most that length, and the pieces added modulo q.
- The work is done in tiles that stay in the processor's cache; memory beyond the result is one
  tile's, whatever the size of the product.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdlrecover.errors import FieldError
from pdlrecover.field import threads

Q = (1 << 61) - 1
"""The modulus, a Mersenne prime."""

LIMB_BITS = 21
EXACT_INNER = (1 << 53) // (3 << 42)
"""The longest inner dimension whose float64 sums are exact: 682."""

TILE_ROWS = 1024
TILE_COLUMNS = 1 << 14
TILE_NUMBERS = 1 << 21
CACHED_ELEMENTS = 1 << 15
"""Elementwise passes run over this many elements at a time, to stay in the cache."""

SERIAL_PRODUCTS = 1 << 22
"""A product of fewer multiplications is not worth threads of its own."""
FEWEST_COLUMNS = 256
"""Narrower tiles are not worth a thread of their own."""


Floats = NDArray[np.float64]

_LIMB = (1 << LIMB_BITS) - 1
_LOW19 = (1 << 19) - 1
_LOW40 = (1 << 40) - 1


def matmul(a: NDArray[np.int64], b: NDArray[np.int64], out: NDArray[np.int64]) -> None:
    """Write a·b modulo q to `out`, for matrices of elements 0 ≤ x < q.

    The side with fewer rows or columns is the one whose limbs are repeated.
    """
    if a.shape[0] > b.shape[1]:
        a, b, out = b.T, a.T, out.T
    if 0 in a.shape or 0 in b.shape:
        out[...] = 0
        return
    columns = b.shape[1]
    small = a.size * columns < SERIAL_PRODUCTS
    width = _tile_width(min(a.shape[0], TILE_ROWS) + min(a.shape[1], EXACT_INNER), columns)
    for k in range(0, a.shape[1], EXACT_INNER):
        for i in range(0, a.shape[0], TILE_ROWS):
            blocks = _blocks(a[i : i + TILE_ROWS, k : k + EXACT_INNER])

            def tile(j: int, i: int = i, k: int = k, blocks: Floats = blocks) -> None:
                limbs = _limbs(b[k : k + EXACT_INNER, j : j + width])
                sums = threads.room.take("sums", float, len(blocks), limbs.shape[1])
                np.matmul(blocks, limbs, out=sums)
                _fold(sums, out[i : i + TILE_ROWS, j : j + width], add=k > 0)

            for_each = threads.one_by_one if small else threads.for_each
            for_each(tile, range(0, columns, width))


def _tile_width(height: int, columns: int) -> int:
    """Return how many columns a tile has, so that it fits the cache and all threads have one."""
    widest = min(TILE_COLUMNS, max(FEWEST_COLUMNS, TILE_NUMBERS // (3 * height)))
    tiles = max(-(-columns // widest), min(threads.count(), columns // FEWEST_COLUMNS), 1)
    return max(1, -(-columns // tiles))


SMALL = 1 << 20
"""Integers below this in magnitude are small."""
EXACT_SMALL = 1 << 12
"""The longest inner dimension of exact sums of limbs times small integers."""


class Prepared:
    """The limbs of a matrix a, kept for many products with small integers.

    With |b| < 2^20 one limb holds b, so a·b is a product of 3×1 blocks. A sum of K terms below 2^41
    is exact up to K = 2^12.
    """

    def __init__(self, a: NDArray[np.int64]) -> None:
        assert EXACT_SMALL * SMALL << LIMB_BITS <= 1 << 53  # noqa: S101 (an invariant)
        self.shape = a.shape
        self._pieces = []
        for k in range(0, a.shape[1], EXACT_SMALL):
            part = a[:, k : k + EXACT_SMALL]
            limbs = np.empty((3, *part.shape))
            threads.for_each_slice(partial(_split, part, limbs), len(part))
            self._pieces.append(limbs.reshape(3 * len(a), -1))

    def sums(self, k: int, b: Floats) -> Floats:
        """Return the three sums of limbs times b, of the k-th piece: (columns, 3, rows)."""
        part = b[k * EXACT_SMALL : (k + 1) * EXACT_SMALL]
        sums: Floats = part.T @ self._pieces[k].T  # the order that BLAS is fastest with
        return sums.reshape(-1, 3, self.shape[0])


def small_products(several: Sequence[Prepared], b: NDArray[Any]) -> NDArray[np.int64]:
    """Return a·b modulo q for k matrices a of one shape: (columns, k, rows).

    b has signed integers below `SMALL`, and is fastest given as float64.
    """
    rows, inner = several[0].shape
    if len(b) != inner or (b.size and not -SMALL < b.min() <= b.max() < SMALL):
        raise FieldError(
            f"small products need {inner} rows of integers below {SMALL} in magnitude, "
            f"got shape {b.shape}, from {b.min()} to {b.max()}"
        )
    b = b.astype(np.float64, copy=False)
    out = np.zeros((b.shape[1], len(several), rows), dtype=np.int64)
    for k in range(-(-inner // EXACT_SMALL)):
        sums = threads.in_parallel([partial(a.sums, k, b) for a in several])
        for limb in range(3):
            c = np.stack([s[:, limb] for s in sums], axis=1).astype(np.int64)
            shift = limb * LIMB_BITS
            c += (c >> 63) & Q
            low = (c & ((1 << (61 - shift)) - 1)) << shift
            c >>= 61 - shift
            out += low
            out += c
            reduce_in_place(out, low)
    return out


def _split(x: NDArray[np.int64], limbs: Floats, rows: slice) -> None:
    """Write the three limbs of some rows of x as floats."""
    for row in range(rows.start, min(rows.stop, len(x))):
        high = x[row] >> LIMB_BITS
        limbs[0, row] = x[row] & _LIMB
        limbs[2, row] = high >> LIMB_BITS
        high &= _LIMB
        limbs[1, row] = high


def _blocks(x: NDArray[np.int64]) -> Floats:
    """Return the 3×3 blocks of limbs of the left matrix."""
    assert x.shape[1] <= EXACT_INNER, "a longer inner dimension would round"  # noqa: S101 (an invariant of this file, not a check of input)
    x0, x1, x2 = np.split(_limbs(x), 3)
    return np.block([[x0, 4 * x2, 4 * x1], [x1, x0, 4 * x2], [x2, x1, x0]])


def _limbs(y: NDArray[np.int64]) -> Floats:
    """Return the limbs y₀, y₁, y₂ as floats, one matrix under the other, in scratch memory."""
    rows, columns = y.shape
    out = threads.room.take("limbs", float, 3 * rows, columns)
    step = max(1, CACHED_ELEMENTS // columns)
    for i in range(0, rows, step):
        part = y[i : i + step]
        end = i + len(part)
        out[i:end] = part & _LIMB
        high = part >> LIMB_BITS
        out[2 * rows + i : 2 * rows + end] = high >> LIMB_BITS
        high &= _LIMB
        out[rows + i : rows + end] = high
    return out


def _fold(c: Floats, out: NDArray[np.int64], *, add: bool) -> None:
    """Write c₀ + 2^21·c₁ + 2^42·c₂ modulo q to `out`, or add it to what is there.

    With 2^61 ≡ 1: 2^42·c = 2^42·(c mod 2^19) + 2^61·(c div 2^19), and likewise for 2^21. The sum
    of the five terms is below 2^53 + 2·2^61 + 2^34 + 2^13, which an int64 holds.
    """
    rows, columns = out.shape
    step = max(1, CACHED_ELEMENTS // columns)
    room = threads.room.take("fold", np.int64, 4, step, columns)
    for i in range(0, rows, step):
        end = min(rows, i + step)
        total, c1, c2, spare = room[:, : end - i]
        total[...] = c[i:end]
        c1[...] = c[rows + i : rows + end]
        c2[...] = c[2 * rows + i : 2 * rows + end]
        np.right_shift(c2, 19, out=spare)
        total += spare
        c2 &= _LOW19
        c2 <<= 42
        total += c2
        np.right_shift(c1, 40, out=spare)
        total += spare
        c1 &= _LOW40
        c1 <<= LIMB_BITS
        total += c1
        if add:
            reduce_in_place(total, spare)
            total += out[i:end]
        reduce_in_place(total, spare)
        out[i:end] = total


def reduce_in_place(x: NDArray[np.int64], spare: NDArray[np.int64]) -> None:
    """Bring 0 ≤ x < 2^63 to 0 ≤ x < q. `spare` is room of the same shape.

    1. x ← (x mod 2^61) + (x div 2^61), which is at most q + 3.
    2. x ← x − q if x ≥ q: then x + 1 reaches 2^61, and the mask takes the carry away.
    """
    np.right_shift(x, 61, out=spare)
    x &= Q
    x += spare
    np.add(x, 1, out=spare)
    spare >>= 61
    x += spare
    x &= Q
