"""Arithmetic on arrays modulo q = 2^61 − 1.

Rules:

- An element is an int64 with 0 ≤ x < q; every operation takes and returns such arrays, in the
  usual shapes of numpy's broadcasting, and never changes its arguments.
- `elements` is the gate: what comes from outside passes through it once and is checked (dtype
  and range). The operations check the dtype only.
- Nothing here runs in constant time.
"""

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdlrecover.errors import FieldError
from pdlrecover.field import product, threads

Elements = NDArray[np.int64]
"""An array of field elements, in the clear."""
Integers = NDArray[np.int64]
"""An array of signed integers."""


class Field(Protocol):
    """What secret sharing needs of a field: `Mersenne61`, or in tests a tiny one."""

    @property
    def modulus(self) -> int:
        """The number of elements, a prime."""

    @property
    def small_limit(self) -> int:
        """Signed integers below this in magnitude are small, for `small_products`."""

    def __hash__(self) -> int:
        """Fields are keys of caches."""

    def elements(self, values: ArrayLike) -> Elements:
        """Check that these are elements of the field, and return them as an array."""

    def from_signed(self, integers: Integers) -> Elements:
        """Return signed integers of magnitude at most (q − 1)/2 as elements."""

    def to_signed(self, elements: Elements) -> Integers:
        """Return elements as the signed integers of magnitude at most (q − 1)/2 they stand for."""

    def add(self, x: Elements, y: Elements) -> Elements:
        """Return x + y."""

    def subtract(self, x: Elements, y: Elements) -> Elements:
        """Return x − y."""

    def multiply(self, x: Elements, y: Elements) -> Elements:
        """Return x·y, element by element."""

    def sum(self, x: Elements, axis: int) -> Elements:
        """Return the sum along one axis."""

    def inverse(self, x: Elements) -> Elements:
        """Return 1/x, element by element; zero raises."""

    def matmul(self, a: Elements, b: Elements, out: Elements | None = None) -> Elements:
        """Return the matrix product a·b, in `out` if given."""

    def prepared(self, a: Elements) -> Any:
        """Make a matrix ready for many products with small integers."""

    def small_products(self, several: Sequence[Any], b: NDArray[Any]) -> Elements:
        """Return a·b for k prepared matrices a and small integers b: (columns, k, rows).

        The integers' type may be int64 or float64.
        """


class Mersenne61:
    """The field of integers modulo q = 2^61 − 1. It has no state: use the one instance, `F61`."""

    modulus = product.Q
    small_limit = product.SMALL

    def __repr__(self) -> str:
        return "F61"

    def elements(self, values: ArrayLike) -> Elements:
        """Check that `values` are integers in 0 ≤ x < q and return them as an int64 array."""
        x = np.asarray(values)
        if x.dtype.kind not in "iu":
            raise FieldError(
                f"field elements must be integers, got dtype {x.dtype}; "
                "encode real numbers with FixedPoint first"
            )
        if x.size and _as_unsigned(x).max() >= self.modulus:  # negative ones are large
            raise FieldError(
                f"field elements must lie in 0 ≤ x < 2^61 − 1, got values from {x.min()} "
                f"to {x.max()}; reduce them modulo q first"
            )
        return x.astype(np.int64, copy=False)

    def from_signed(self, integers: Integers) -> Elements:
        """Return signed integers of magnitude at most (q − 1)/2 as elements: −x as q − x."""
        _check(integers)
        elements = np.asarray(integers >> 63)  # −1 where negative, else 0
        elements &= self.modulus
        elements += integers
        return elements

    def to_signed(self, elements: Elements) -> Integers:
        """Return the signed integers that elements stand for: `from_signed`, undone.

        Elements above (q − 1)/2 = 2^60 − 1 are the negative ones, and have bit 60 set.
        """
        _check(elements)
        integers = np.asarray(elements >> 60)
        integers *= -self.modulus
        integers += elements
        return integers

    def add(self, x: Elements, y: Elements) -> Elements:
        """Return x + y."""
        _check(x, y)
        return _reduced(np.asarray(np.add(x, y)))

    def subtract(self, x: Elements, y: Elements) -> Elements:
        """Return x − y."""
        _check(x, y)
        total = np.asarray(np.subtract(x, y))
        total += self.modulus
        return _reduced(total)

    def multiply(self, x: Elements, y: Elements) -> Elements:
        """Return x·y, element by element.

        With x = x₀ + 2^31·x₁ and y likewise (x₁ < 2^30), 2^61 ≡ 1 and m = x₁y₀ + x₀y₁:

            xy ≡ x₀y₀ + 2·x₁y₁ + 2^31·(m mod 2^30) + (m div 2^30)

        which is at most 2^63 − 2^32 − 2^31 + 3: it just fits an int64.
        """
        _check(x, y)
        if max(x.size, y.size) <= product.CACHED_ELEMENTS:
            return _multiplied(x, y)
        x, y = np.broadcast_arrays(x, y)
        out = np.empty(x.shape, dtype=np.int64)

        def some(part: slice) -> None:
            out[part] = _multiplied(x[part], y[part])

        threads.for_each_part(some, len(out), out[0].size)
        return out

    def prepared(self, a: Elements) -> product.Prepared:
        """Make a matrix ready for many products with small integers."""
        _check(a)
        return product.Prepared(a)

    def small_products(self, several: Sequence[product.Prepared], b: NDArray[Any]) -> Elements:
        """Return a·b for k prepared matrices a and small integers b: (columns, k, rows)."""
        return product.small_products(several, b)

    def combine(self, coefficients: Sequence[int], arrays: Sequence[Elements]) -> Elements:
        """Return Σ_k c_k·x_k for arrays of one shape and signed integers c with Σ|c| < 2^31.

        With x = x₀ + 2^31·x₁, both Σ c·x₀ and Σ c·x₁ stay below 2^62 in magnitude, so the sums
        are reduced once, not every product. Larger coefficients go through a matrix product.
        """
        _check(*arrays)
        shapes = {x.shape for x in arrays}
        if len(shapes) != 1 or len(arrays) != len(coefficients):
            raise FieldError(
                f"a combination needs one coefficient for each array, and arrays of one shape; got "
                f"{len(coefficients)} coefficients and shapes {sorted(shapes)}"
            )
        rows = [x.reshape(-1) for x in arrays]
        if sum(map(abs, coefficients)) >= 1 << 31:
            left = np.array([[c % self.modulus for c in coefficients]], dtype=np.int64)
            return self.matmul(left, np.stack(rows)).reshape(arrays[0].shape)
        out = np.empty(arrays[0].shape, dtype=np.int64)
        flat = out.reshape(-1)

        def some(part: slice) -> None:
            low, high, spare = threads.room.take("combine", np.int64, 3, part.stop - part.start)
            low[:] = high[:] = 0
            for c, row in zip(coefficients, rows, strict=True):
                np.bitwise_and(row[part], _LOW31, out=spare)
                spare *= c
                low += spare
                np.right_shift(row[part], 31, out=spare)
                spare *= c
                high += spare
            np.right_shift(high, 63, out=spare)
            spare &= self.modulus
            high += spare
            np.right_shift(low, 63, out=spare)
            spare &= 2 * self.modulus
            low += spare
            np.right_shift(high, 30, out=spare)
            low += spare
            high &= _LOW30
            high <<= 31
            low += high
            product.reduce_in_place(low, spare)
            flat[part] = low

        threads.for_each_part(some, flat.size, 1)
        return out

    def sum(self, x: Elements, axis: int) -> Elements:
        """Return the sum along one axis, of fewer than 2^31 terms.

        The low 31 and the high 30 bits are summed apart, so that neither sum overflows.
        """
        _check(x)
        low = np.asarray(np.sum(x & _LOW31, axis=axis))
        high = np.asarray(np.sum(x >> 31, axis=axis))
        return self.add(_reduced(low), self.multiply(_reduced(high), np.asarray(1 << 31)))

    def matmul(self, a: Elements, b: Elements, out: Elements | None = None) -> Elements:
        """Return the matrix product a·b, in `out` if given (see `field.product`)."""
        _check(a, b)
        if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
            raise FieldError(
                f"a matrix product needs shapes (m, k) and (k, n), got {a.shape} and {b.shape}"
            )
        if out is None:
            out = np.empty((a.shape[0], b.shape[1]), dtype=np.int64)
        _check(out)
        if out.shape != (a.shape[0], b.shape[1]):
            raise FieldError(
                f"the product has shape {(a.shape[0], b.shape[1])}, got room for {out.shape}"
            )
        product.matmul(a, b, out)
        return out

    def inverse(self, x: Elements) -> Elements:
        """Return 1/x, element by element; zero raises.

        Montgomery's trick as a tree: multiply pairs up to one product, invert that, and walk
        back down, where the inverse of each half is the inverse of the whole times the other.
        """
        _check(x)
        if not x.all():
            raise FieldError(f"zero has no inverse: it stands at index {_first_zero(x)}")
        if not x.size:
            return x.copy()
        levels = [np.ones(1 << math.ceil(math.log2(x.size)), dtype=np.int64)]
        levels[0][: x.size] = x.ravel()
        while len(levels[-1]) > 1:
            levels.append(self.multiply(levels[-1][0::2], levels[-1][1::2]))
        inverse = np.array([pow(int(levels[-1][0]), -1, self.modulus)])
        for level in reversed(levels[:-1]):
            halves = np.empty_like(level)
            halves[0::2] = self.multiply(inverse, level[1::2])
            halves[1::2] = self.multiply(inverse, level[0::2])
            inverse = halves
        return inverse[: x.size].reshape(x.shape)


F61 = Mersenne61()

_LOW30 = (1 << 30) - 1
_LOW31 = (1 << 31) - 1


def _multiplied(x: Elements, y: Elements) -> Elements:
    x0, x1 = x & _LOW31, x >> 31
    y0, y1 = y & _LOW31, y >> 31
    middle = np.asarray(x1 * y0)
    middle += x0 * y1
    total = np.asarray(x1 * y1)
    total <<= 1
    total += x0 * y0
    total += middle >> 30
    middle &= _LOW30
    middle <<= 31
    total += middle
    return _reduced(total)


def _reduced(x: Elements) -> Elements:
    product.reduce_in_place(x, np.empty_like(x))
    return x


def _check(*arrays: Elements) -> None:
    for x in arrays:
        if not isinstance(x, np.ndarray) or x.dtype != np.int64:
            got = f"an array of {x.dtype}" if isinstance(x, np.ndarray) else type(x).__name__
            raise FieldError(f"the field computes on int64 arrays, got {got}; see F61.elements")


def _as_unsigned(x: NDArray[Any]) -> NDArray[Any]:
    """Return integers with negative ones seen as large ones, without a copy."""
    return x.view(x.dtype.str.replace("i", "u"))


def _first_zero(x: Elements) -> int | tuple[int, ...]:
    index = tuple(int(i) for i in np.argwhere(x == 0)[0])
    return index[0] if len(index) == 1 else index
