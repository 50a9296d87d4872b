"""Real numbers as field elements: x ↦ round(2^f·x), negative ones as q − |·|.

Rules:

- What is encoded are vectors with an L2 norm of at most `bound`; that is checked, never clipped.
- `peers` such vectors are added up, and the sum may be multiplied (dot product) with a public
  vector encoded in the same way. Nothing may wrap around: results stay within ±(q − 1)/2.
- Rounding moves each number by at most half a step, so an encoded vector of d numbers has an
  integer norm of at most 2^f·bound + √d/2, and by Cauchy-Schwarz

      one number of the sum      peers·(2^f·bound + √d/2)                        ≤ (q − 1)/2
      its dot product with y     peers·(2^f·bound + √d/2)·(2^f·‖y‖ + √d/2)       ≤ (q − 1)/2

  The first is required when a `FixedPoint` is made; the second gives `public_bound`, the largest
  ‖y‖ for which it holds.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdlrecover.errors import RangeError
from pdlrecover.field.mersenne import F61, Elements

_HALF = (F61.modulus - 1) // 2
_ROUNDING = 1 + 1e-9
"""A norm computed in floats may exceed the bound it was clipped to by this factor."""


@dataclass(frozen=True, kw_only=True)
class FixedPoint:
    """The encoding for sums of `peers` vectors of `length` numbers, each of norm ≤ `bound`."""

    peers: int
    """How many vectors are added up at most."""
    bound: float
    """The largest L2 norm of one vector."""
    length: int
    """How many numbers a vector has."""
    fraction_bits: int = 20
    """f: a step is 2^−f."""

    def __post_init__(self) -> None:
        if self.peers < 1 or self.length < 1 or not 0 <= self.fraction_bits <= 60:
            raise RangeError(
                "fixed point needs at least 1 peer, 1 number and 0 to 60 fraction bits, "
                f"got peers={self.peers}, length={self.length}, fraction_bits={self.fraction_bits}"
            )
        if not (math.isfinite(self.bound) and self.bound > 0):
            raise RangeError(f"the L2 bound must be positive and finite, got {self.bound}")
        if self.peers * self._integer_norm(self.bound) > _HALF:
            raise RangeError(self._refusal())

    @property
    def scale(self) -> float:
        """2^f: the integer that stands for 1."""
        return float(1 << self.fraction_bits)

    @property
    def public_bound(self) -> float:
        """The largest norm of a public vector whose dot product with a sum cannot wrap around."""
        room = _HALF / (self.peers * self._integer_norm(self.bound)) - math.sqrt(self.length) / 2
        return max(0.0, room / self.scale / _ROUNDING)

    def coefficient_bound(self, count: int) -> float:
        """Return the largest Σ|c| for which a combination Σ c·sum of `count` sums cannot wrap.

        Coefficients are encoded with f fraction bits, each moved by at most half a step.
        """
        room = _HALF / (self.peers * self._integer_norm(self.bound))
        return max(0.0, (room - count / 2) / self.scale)

    def encode(self, values: ArrayLike) -> Elements:
        """Encode a vector of `length` numbers, or a stack of them, each of norm ≤ `bound`."""
        x = np.asarray(values)
        if x.dtype.kind not in "fiu":
            raise RangeError(f"only real numbers can be encoded, got dtype {x.dtype}")
        x = x.astype(np.float64, copy=False)
        if x.ndim == 0 or x.shape[-1] != self.length:
            raise RangeError(f"vectors must have {self.length} numbers, got shape {x.shape}")
        norms = np.sqrt(np.einsum("...i,...i->...", x, x))
        if not (norms <= self.bound * _ROUNDING).all():
            raise RangeError(_why_not(x, norms, self.bound))
        return F61.from_signed(np.rint(x * self.scale).astype(np.int64))

    def decode(self, elements: Elements, *, products: bool = False) -> NDArray[np.float64]:
        """Return the real numbers that elements stand for; `products` have 2f fraction bits."""
        signed = F61.to_signed(F61.elements(elements))
        return signed / (self.scale**2 if products else self.scale)

    def _integer_norm(self, norm: float) -> float:
        return self.scale * norm * _ROUNDING + math.sqrt(self.length) / 2

    def _refusal(self) -> str:
        """Say which bound, and how many fraction bits, would fit."""
        room = _HALF / self.peers - math.sqrt(self.length) / 2
        digits = room / self.scale / _ROUNDING
        power = 10.0 ** (math.floor(math.log10(digits)) - 3)
        ways = [f"lower the bound to {math.floor(digits / power) * power:.4g}"]
        fits = room / self.bound / _ROUNDING
        if fits >= 1:
            ways.append(f"use {math.floor(math.log2(fits))} fraction bits")
        return (
            f"the sum of {self.peers} vectors of norm up to {self.bound:g} does not fit the field "
            f"with {self.fraction_bits} fraction bits; {' or '.join(ways)}"
        )


def _why_not(x: NDArray[np.float64], norms: NDArray[np.float64], bound: float) -> str:
    bad = np.argwhere(~np.isfinite(x))
    if bad.size:
        index = [int(i) for i in bad[0]]
        return f"cannot encode {x[tuple(bad[0])]} at index {index}: every number must be finite"
    return (
        f"a vector of norm {norms.max():.6g} exceeds the bound of {bound:.6g}; clip it, or set up "
        "the encoding with a larger bound"
    )
