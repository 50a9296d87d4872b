"""Products with Toeplitz matrices modulo q = 2^61 − 1, by floating-point Fourier transforms.

Rules:

- The matrix T[t, i] = g[t − i + m − 1], with m columns, is given by its kernel g alone, so a
  product takes memory and time of the order N·log N for N = len(g), where the matrix has up to N²/4
  entries.
- Signed elements |x| ≤ 2^60 are cut in L limbs of b = 60/L bits, x = Σ_k 2^(b·k)·x_k, with
  |x_k| ≤ 2^(b−1) below the highest one and |x_(L−1)| ≤ 2^b. A product is the 2L − 1 convolutions
  c_s = Σ_(k+l=s) x_k * g_l of small integers, put together as Σ_s 2^(b·s)·c_s.
- They are exact: rounded to the nearest integer, which floats are nearer to than `WORST`. For
  transforms of N = 2^a numbers, with ε = 2^−53,

      |error| ≤ ‖x‖₂·‖g‖₂·((1+ε)^3a·(1+√5·ε)^(3a+1)·(1+ε)^3a − 1) ≈ ‖x‖₂·‖g‖₂·13·a·ε

  (C. Percival, "Rapid multiplication modulo the sum and difference of highly composite numbers",
  2003, theorem 5.1). L is the least number of limbs for which that is at most `WORST`, an eighth of
  the half that would do: the lengths used here have factors 3 and 5 as well.
"""

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pdlrecover.errors import FieldError
from pdlrecover.field import threads
from pdlrecover.field.mersenne import F61, Elements, Integers
from pdlrecover.field.product import Q, reduce_in_place

WORST = 1 / 16
"""How far from an integer a number may be at most before it is rounded."""
LIMBS = (4, 5, 6, 10)
"""How many limbs there may be: divisors of 60."""


class Toeplitz:
    """A matrix that is constant along its diagonals, for products with many columns."""

    def __init__(self, kernel: Elements, columns: int) -> None:
        """Take the kernel g, of length rows + columns − 1."""
        self.rows, self.columns = len(kernel) - columns + 1, columns
        if not 1 <= columns <= len(kernel):
            raise FieldError(
                f"a Toeplitz matrix of {columns} columns needs a kernel of at least as many "
                f"numbers, got {len(kernel)}"
            )
        self._size = _fast_length(len(kernel))
        self._limbs = limbs_for(columns, self._size)
        self._spectrum = np.fft.rfft(_cut(F61.to_signed(kernel), self._limbs), self._size)

    def product(self, b: Elements) -> Elements:
        """Return the product with a matrix of so many rows as this one has columns."""
        if b.ndim != 2 or len(b) != self.columns:
            raise FieldError(f"the product needs {self.columns} rows, got shape {b.shape}")
        out = np.empty((b.shape[1], self.rows), dtype=np.int64)
        signed = F61.to_signed(np.ascontiguousarray(b.T))
        threads.for_each(partial(self._column, signed, out), range(len(signed)))
        return out.T

    def _column(self, signed: Integers, out: Elements, i: int) -> None:
        """Write the product with the i-th column.

        A circular convolution of N ≥ len(g) numbers is right from the place m − 1 on.
        """
        count, bits = self._limbs, 60 // self._limbs
        ours = np.fft.rfft(_cut(signed[i], count), self._size)
        total, spare = out[i], np.empty(self.rows, dtype=np.int64)
        total[:] = 0
        for s in reversed(range(2 * count - 1)):
            pairs = range(max(0, s - count + 1), min(s, count - 1) + 1)
            spectrum = np.sum([ours[k] * self._spectrum[s - k] for k in pairs], axis=0)
            found = np.fft.irfft(spectrum, self._size)
            found = found[self.columns - 1 : self.columns - 1 + self.rows]
            _shift(total, bits, spare)
            total += np.rint(found).astype(np.int64)
            total += Q
            reduce_in_place(total, spare)


def limbs_for(columns: int, size: int) -> int:
    """Return the fewest limbs by which transforms of this size are exact for so many columns."""
    for limbs in LIMBS:
        if worst_error(columns, size, limbs) <= WORST:
            return limbs
    raise FieldError(f"transforms of {size} numbers are too long to be exact; share among fewer")


def worst_error(columns: int, size: int, limbs: int) -> float:
    """Return the bound on the error of a sum of convolutions, for so many limbs."""
    bits = 60 // limbs
    largest = [2.0 ** (bits - 1)] * (limbs - 1) + [2.0**bits]
    sums = np.convolve(largest, largest).max()
    steps, unit = math.ceil(math.log2(size)), 2.0**-53
    growth = math.expm1(6 * steps * math.log1p(unit) + (3 * steps + 1) * math.log1p(5**0.5 * unit))
    return float(sums * math.sqrt(columns) * math.sqrt(size) * growth)


def _cut(signed: Integers, limbs: int) -> NDArray[np.float64]:
    """Return the limbs of signed elements, one row each."""
    bits, rest = 60 // limbs, signed
    out = np.empty((limbs, len(signed)))
    for k in range(limbs - 1):
        upper = (rest + (1 << (bits - 1))) >> bits
        out[k] = rest - (upper << bits)
        rest = upper
    out[-1] = rest
    return out


def _shift(x: Elements, bits: int, spare: Elements) -> None:
    """Multiply elements by 2^bits modulo q, in place: a rotation of their 61 bits."""
    np.right_shift(x, 61 - bits, out=spare)
    x &= (1 << (61 - bits)) - 1
    x <<= bits
    x += spare


def _fast_length(least: int) -> int:
    """Return the least even 2^a·3^b·5^c from `least` on."""
    best = 1 << max(1, math.ceil(math.log2(least)))
    for odd in (3**b * 5**c for b in range(20) for c in range(14) if 3**b * 5**c < best):
        best = min(best, odd << max(1, math.ceil(math.log2(max(1.0, least / odd)))))
    return best
