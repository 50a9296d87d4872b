"""What honest peers can have dealt, by public bounds; a sum beyond them is void.

Legend: f fraction bits, B the L2 bound of an update, d its length, S the most samples of a peer.

An honest peer deals the whole numbers round(2^f·g) and round(2^f·α), with ‖g‖ ≤ B, 1/S ≤ α ≤ 1.
Rounding moves a number by at most ½, so its dealing has

    norm(update) ≤ L = ⌈2^f·B·(1 + 10⁻⁹) + √d/2⌉,    A = round(2^f/S) ≤ weight ≤ 2^f

and, by the triangle inequality, a combination of dealings with coefficients of k in magnitude has

    norm(updates) ≤ k·L,    max(1, k·A) ≤ weights ≤ k·2^f.

Rules:

- The weights of a sum are compared as whole numbers, its norm by operations that round the same on
  every machine: all peers come to the same verdict.
- No sum of honest dealings is void. Who stays within the bounds of the sum, and not within its own,
  is not found by this: `docs/limitations.md` says what that is worth.
"""

import math
from dataclasses import dataclass

from pdlrecover.errors import RangeError
from pdlrecover.field import FixedPoint, Integers
from pdlrecover.recovery import same_bits
from pdlrecover.recovery.requests import Sum

_ROUNDING = 1 + 1e-9
"""A norm computed in floats may exceed the bound it was clipped to by this factor."""


@dataclass(frozen=True, kw_only=True)
class Void:
    """A round whose sum was void: it left the model, and the optimiser's state, as they were."""

    round: int
    why: str

    def __str__(self) -> str:
        return f"round {self.round} is void: {self.why}"


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The bounds that a federation has agreed on."""

    fraction_bits: int
    """f."""
    bound: float
    """B."""
    length: int
    """d."""
    samples: int | None = None
    """S; None: it is not known, and a weight may be as small as a step."""

    @classmethod
    def of(cls, code: FixedPoint) -> "Bounds":
        """Return the bounds that an encoding was made for: it has room for (g, α)."""
        squared = code.bound**2 * (1 + 2e-15) - 1  # never less than B², however that was rounded
        return cls(
            fraction_bits=code.fraction_bits, bound=math.sqrt(squared), length=code.length - 1
        )

    @property
    def one(self) -> int:
        """2^f: the weight 1."""
        return 1 << self.fraction_bits

    @property
    def least_weight(self) -> int:
        """A: the weight of a peer with a single sample."""
        return 0 if self.samples is None else round(self.one * (1.0 / self.samples))

    @property
    def norm(self) -> int:
        """L."""
        return math.ceil(self.one * self.bound * _ROUNDING + math.sqrt(self.length) / 2)

    def check(self, opened: Integers, updates: int, weights: int | None = None) -> None:
        """Raise a `RangeError` if honest peers cannot have dealt what was opened.

        `updates` and `weights` are what the coefficients' magnitudes add up to: in a sum, of both,
        how many dealings it has. What no dealing is in is zero.
        """
        count = updates if weights is None else weights
        least, most, weight = max(1, count * self.least_weight), count * self.one, int(opened[-1])
        if count and not least <= weight <= most:
            raise RangeError(
                f"somebody lied: the weights add up to {weight / self.one:.6g}, and those of "
                f"honest peers to {least / self.one:.6g} at least and {most / self.one:.6g} at most"
            )
        size = same_bits.norm(opened[:-1].astype(float))
        if not size <= updates * self.norm:
            raise RangeError(
                f"somebody lied: the updates' sum has a norm of {size / self.one:.6g}, and that of "
                f"honest peers {updates * self.norm / self.one:.6g} at most"
            )


def checked_sum(
    bounds: Bounds, opened: Integers, updates: int, *, weights: int | None = None, scale: int = 1
) -> Sum:
    """Return an opened sum as real numbers; raise a `RangeError` if it is void.

    A direction's coefficients are whole numbers, `scale` times what they stand for.
    """
    bounds.check(opened, updates, weights)
    real = opened / float(bounds.one * scale)
    return Sum(values=real[:-1], weight=float(real[-1]))
