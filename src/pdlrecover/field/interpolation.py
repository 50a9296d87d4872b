"""Lagrange interpolation: the value of a polynomial at some points, from its values at others.

Rules:

- p(targets) = R·p(points) for every p of degree < len(points), with

      R[t, i] = ∏_{j≠i} (z_t − x_j) / (x_i − x_j) = P(z_t) · 1/(z_t − x_i) · w_i,

  P(z) = ∏_j (z − x_j) and w_i = 1/∏_{j≠i} (x_i − x_j).
- Where points and targets are whole numbers close together, as peers' and secrets' points are, the
  middle factor depends on z_t − x_i only: a Toeplitz matrix. So a large R is never written down,
  and a product with it takes time of the order n·log n (`field.convolution`).
- Both ways give the same elements, since all arithmetic is exact.
"""

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from pdlrecover.errors import FieldError
from pdlrecover.field.convolution import Toeplitz
from pdlrecover.field.mersenne import Elements, Field, Integers, Mersenne61

WRITTEN = 1 << 20
"""Matrices of at most so many entries are written down."""
SPREAD = 4
"""Points are close together if they span at most so many times the numbers that there are."""
_PIECE = 1 << 20
"""How many gaps between points are looked at at once."""


class Interpolation:
    """The map from a polynomial's values at some points to its values at others."""

    def __init__(self, field: Field, points: ArrayLike, targets: ArrayLike) -> None:
        self.field = field
        self.points = distinct(field, points)
        self.targets = np.atleast_1d(field.elements(targets))
        self.is_written = self.points.size * self.targets.size <= WRITTEN or not self._is_close

    @property
    def _is_close(self) -> bool:
        if not isinstance(self.field, Mersenne61):
            return False
        span = sum(_span(self.field.to_signed(each)) for each in (self.points, self.targets))
        return span <= SPREAD * (self.points.size + self.targets.size)

    @cached_property
    def rows(self) -> Elements:
        """The matrix R."""
        rows = lagrange_rows(self.field, self.points, self.targets)
        rows.flags.writeable = False
        return rows

    @cached_property
    def _close(self) -> "_CloseTogether":
        return _CloseTogether(self.field, self.points, self.targets)

    def values(self, known: Elements, out: Elements | None = None) -> Elements:
        """Return R·known, for a column of known values of each polynomial."""
        if self.is_written:
            return self.field.matmul(self.rows, known, out=out)
        found = self._close.values(known)
        if out is not None:
            out[...] = found
        return found

    def total(self, known: Elements) -> Elements:
        """Return the sum of the values at all targets, of each polynomial."""
        if self.is_written:
            row: Elements = self.field.sum(self.rows, axis=0)
            total: Elements = self.field.matmul(row[None], known)[0]
            return total
        return self.field.sum(self._close.values(known), axis=0)


class _CloseTogether:
    """R as P · Toeplitz · w. A target that is a point gets the value that is known there."""

    def __init__(self, field: Field, points: Elements, targets: Elements) -> None:
        x, z = field.to_signed(points), field.to_signed(targets)
        self._field = field
        self._places, self._wanted = x - x.min(), z - z.min()
        gaps = np.arange(z.min() - x.max(), z.max() - x.min() + 1)
        kernel = field.inverse(field.from_signed(np.where(gaps == 0, 1, gaps)))
        self._toeplitz = Toeplitz(np.where(gaps == 0, 0, kernel), _span(x))
        self._before = field.inverse(_gap_products(field, x, x))[:, None]
        self._after = _gap_products(field, z, x)[:, None]
        order = np.argsort(x)
        found = order[np.minimum(np.searchsorted(x[order], z), len(x) - 1)]
        self._hits = np.flatnonzero(x[found] == z)
        self._hit_points = found[self._hits]

    def values(self, known: Elements) -> Elements:
        spread = np.zeros((self._toeplitz.columns, known.shape[1]), dtype=np.int64)
        spread[self._places] = self._field.multiply(known, self._before)
        found = self._field.multiply(self._toeplitz.product(spread)[self._wanted], self._after)
        found[self._hits] = known[self._hit_points]
        return found


def lagrange_rows(field: Field, points: ArrayLike, targets: ArrayLike) -> Elements:
    """Return the matrix R with p(targets) = R · p(points) for every p of degree < len(points).

        R[t, i] = ∏_{j≠i} (z_t − x_j) / (x_i − x_j)

    The points x must be distinct; a target z may be one of them.
    """
    x = distinct(field, points)
    z = np.atleast_1d(field.elements(targets))
    weights = barycentric_weights(field, x)
    rows = np.empty((z.size, x.size), dtype=np.int64)
    step = max(1, _PIECE // x.size)
    for start in range(0, z.size, step):
        gaps = field.subtract(z[start : start + step, None], x[None, :])
        at_point = gaps == 0
        gaps[at_point] = 1
        products = _product(field, gaps)
        some = field.multiply(products[:, None], field.inverse(gaps))
        some = field.multiply(some, weights[None, :])
        hits = at_point.any(axis=1)
        some[hits] = at_point[hits]
        rows[start : start + step] = some
    return rows


def barycentric_weights(field: Field, x: Elements) -> Elements:
    """Return w_i = 1 / ∏_{j≠i} (x_i − x_j) for distinct points x."""
    if isinstance(field, Mersenne61):
        signed = field.to_signed(x)
        if _span(signed) <= SPREAD * x.size:
            return field.inverse(_gap_products(field, signed, signed))
    return field.inverse(_products_of(field, x, x))


def distinct(field: Field, points: ArrayLike) -> Elements:
    """Check that there are points, that they are field elements, and that no two are equal."""
    x = field.elements(points)
    if x.ndim != 1 or not x.size:
        raise FieldError(f"interpolation needs a list of points, got shape {x.shape}")
    values, counts = np.unique(x, return_counts=True)
    if (counts > 1).any():
        twice = values[counts > 1][0]
        raise FieldError(f"interpolation needs distinct points, got {twice} more than once")
    return x


def _gap_products(field: Field, z: Integers, x: Integers) -> Elements:
    """Return ∏_{j: x_j ≠ z_t} (z_t − x_j) for whole numbers close together.

    It is the product over all whole numbers from the least point a to the largest b, which is one
    of factorials, over that of the numbers between them that are no points:

        a ≤ z ≤ b:  (z−a)!·(b−z)!·(−1)^(b−z)
        z > b:      (z−a)!/(z−b−1)!
        z < a:      (b−z)!/(a−z−1)!·(−1)^(b−a+1)
    """
    a, b = x.min(), x.max()
    below, above = z - a, b - z
    most = int(max(np.abs(below).max(), np.abs(above).max()))
    factorial = _factorials(field, most)
    inside, beyond = (below >= 0) & (above >= 0), above < 0
    first = factorial[np.where(below >= 0, below, above)]
    second = factorial[np.select([inside, beyond], [above, -above - 1], -below - 1)]
    second = np.where(inside, second, field.inverse(second))
    odd = np.select([inside, beyond], [above % 2, np.zeros_like(above)], (b - a + 1) % 2) == 1
    found = field.multiply(first, second)
    found = np.where(odd, field.subtract(np.zeros_like(found), found), found)
    missing = np.setdiff1d(np.arange(a, b + 1), x)
    if not missing.size:
        return found
    others = _products_of(field, field.from_signed(z), field.from_signed(missing))
    return field.multiply(found, field.inverse(others))


def _factorials(field: Field, most: int) -> Elements:
    found = [1]
    for k in range(1, most + 1):
        found.append(found[-1] * k % field.modulus)
    return np.array(found, dtype=np.int64)


def _products_of(field: Field, z: Elements, x: Elements) -> Elements:
    """Return ∏_{j: x_j ≠ z_t} (z_t − x_j), for a piece of the targets at a time."""
    found, step = np.empty_like(z), max(1, _PIECE // x.size)
    for start in range(0, z.size, step):
        gaps = field.subtract(z[start : start + step, None], x[None, :])
        gaps[gaps == 0] = 1
        found[start : start + step] = _product(field, gaps)
    return found


def _product(field: Field, x: Elements) -> Elements:
    """Return the product along the last axis, by halves."""
    while x.shape[-1] > 1:
        if x.shape[-1] % 2:
            x = np.concatenate([x, np.ones_like(x[..., :1])], axis=-1)
        x = field.multiply(x[..., 0::2], x[..., 1::2])
    return x[..., 0]


def _span(x: Integers) -> int:
    """Return how many whole numbers there are from the least to the largest."""
    return int(x.max()) - int(x.min()) + 1
