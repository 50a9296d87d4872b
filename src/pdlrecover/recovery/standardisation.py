"""Standardisation: mean and standard deviation of each feature over all peers, opened as sums only.

Before the training two sums over the peers are opened, each with the number of samples in it:

    Σ x_j and N,    then, at the public mean m,    Σ (x_j − m_j)² and N,

and every peer maps its inputs by (x − m)/s from then on. Who takes part may differ in the two.

Legend: P peers, S the most samples of a peer, B the bound on |x|, k how many numbers of a sample
belong to one mean (1, a channel's, or all), f the fraction bits of a sum.

Rules:

- In the sums, numbers beyond ±B count as ±B; an honest peer deals 1 ≤ N ≤ S. So it deals at most
  2^f·S·k·B and 2^f·S·k·(2B)² in magnitude, plus ½ by rounding, once for each sum. f is the most,
  up to 40, for which P such numbers stay within ±(q − 1)/2; where even f = 0 does not, the plan is
  refused.
- What is opened of p peers must have p ≤ N ≤ p·S, |Σ x_j| ≤ k·N·B and 0 ≤ Σ (x_j − m_j)² ≤
  k·N·(B + |m_j|)², but for rounding, or it is void: somebody lied.
- A liar that deals what some S samples could give, N being the others', moves m_j by at most
  S·(B + |m_j|)/(N + S). The mean square about m_j it lowers to N/(N + S) of the others' at most,
  and raises by at most S·(B + |m_j|)²/(N + S). `docs/standardisation.md` has what goes beyond that.
- s_j = 1 where the spread cannot be told from rounding: a feature that is the same everywhere
  becomes zero everywhere.
- Each peer adds up in a fixed order, and m and s follow from the opened integers by elementwise
  IEEE operations: the same bits everywhere.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pdlrecover.errors import DataError, PlanError, RangeError
from pdlrecover.field import F61, Integers
from pdlrecover.recovery import same_bits
from pdlrecover.recovery.requests import Method, Moment, Moments, Vector

STEPS = 2
"""How many sums are opened, one after the other."""
Per = Literal["feature", "channel", "all"]
"""What has a mean of its own."""
MOST_BITS = 40
_ROOM = (F61.modulus - 1) // 2
_SLACK = 1 + 1e-9
"""Sums in floats may exceed what they are bounded by, by this factor."""
_DOUBT = 2.0**-40
"""A mean may be off by this share of itself: ample for how peers add up in double precision."""
_PIECE_NUMBERS = 1 << 22
"""How many numbers are added up at once, about."""


@dataclass(frozen=True, kw_only=True)
class Standardise:
    """How inputs are brought to one scale before the training, by private sums."""

    bound: float = 1000.0
    """B: in the sums, inputs beyond ±B count as ±B; each peer is told how many of its own do."""
    per: Per = "feature"
    """What has a mean and deviation of its own: each feature (of an image, each place), each
    channel (the first axis of a sample), or all numbers together."""

    def __post_init__(self) -> None:
        real = isinstance(self.bound, int | float) and not isinstance(self.bound, bool)
        if not (real and 0 < self.bound < math.inf):
            raise PlanError(f"the bound of inputs must be above 0 and finite, got {self.bound!r}")
        object.__setattr__(self, "bound", float(self.bound))
        if self.per not in ("feature", "channel", "all"):
            raise PlanError(
                f"inputs are standardised per feature, channel or all, got {self.per!r:.60}"
            )

    def terms(self, shape: tuple[int, ...], *, peers: int, samples: int) -> "StandardisationTerms":
        """Return what follows from it for samples of this shape, `samples` at most of a peer."""
        return StandardisationTerms(
            shape=shape, peers=peers, samples=samples, bound=self.bound, per=self.per
        )


@dataclass(frozen=True, kw_only=True)
class StandardisationTerms:
    """What peers have agreed on, and what follows: how they deal, and what may be opened."""

    shape: tuple[int, ...]
    """Of one sample."""
    peers: int
    """P: how many take part at most."""
    samples: int
    """S."""
    bound: float
    """B."""
    per: Per

    def __post_init__(self) -> None:
        if self.per == "channel" and len(self.shape) < 2:
            raise PlanError(
                f"samples of shape {list(self.shape)} have no channels; standardise per feature, "
                "or all together"
            )
        for order in (1, 2):
            self.bits(order)

    @property
    def groups(self) -> int:
        """How many means there are."""
        return {"feature": math.prod(self.shape), "channel": self.shape[0], "all": 1}[self.per]

    @property
    def scale_shape(self) -> tuple[int, ...]:
        """The shape in which means fit a sample."""
        if self.per == "feature":
            return self.shape
        first = self.shape[0] if self.per == "channel" else 1
        return (first, *(1 for _ in self.shape[1:]))

    @property
    def elements(self) -> int:
        """k: how many numbers of a sample belong to one mean."""
        return math.prod(self.shape) // self.groups

    def bits(self, order: int) -> int:
        """Return f for the sums of the first or second order."""
        count, largest = self.samples * self.elements, (self.bound * order) ** order
        for found in range(MOST_BITS, -1, -1):
            if self.peers * (2.0**found * count * largest * _SLACK + 1) <= _ROOM:
                return found
        most = _ROOM / (self.peers * count)
        raise RangeError(
            f"the sums for standardising do not fit the field: {self.peers} peers with "
            f"{self.samples} samples each, {self.elements} numbers of a sample to a mean, all "
            f"within ±{self.bound:g}, come to {self.peers * count * largest:.3g}"
            f"{' in squares' if order == 2 else ''}, and there is room for {_ROOM:.3g}; lower "
            f"the bound of inputs to {0.99 * min(most, math.sqrt(most) / 2):.3g}, or the most "
            "samples of a peer"
        )

    def deal(self, x: NDArray[np.float32], order: int, at: Vector) -> Integers:
        """Return what a peer with these samples deals: a sum for each mean, and how many samples.

        With the first order, `at` is zero.
        """
        total = np.zeros(self.groups)
        for piece in self._pieces(x):
            beside = np.clip(piece, -self.bound, self.bound) - at[:, None]
            total += same_bits.fold(beside if order == 1 else beside * beside)
        whole = np.rint(total * 2.0 ** self.bits(order)).astype(np.int64)
        return np.append(whole, len(x))

    def clipped(self, x: NDArray[np.float32]) -> int:
        """Return how many of these numbers are beyond the bound."""
        return sum(int((np.abs(piece) > self.bound).sum()) for piece in self._pieces(x))

    def _pieces(self, x: NDArray[np.float32]) -> Iterator[Vector]:
        """Yield samples, some at a time: the numbers of each mean in a row, (groups, …)."""
        step = max(1, _PIECE_NUMBERS // math.prod(self.shape))
        for start in range(0, len(x), step):
            some = x[start : start + step].astype(np.float64)
            if not np.isfinite(some).all():
                raise DataError(
                    "samples must be finite to be standardised, and some are not; repair or drop "
                    "those with numbers that are missing or infinite"
                )
            grouped = some.reshape(len(some), self.groups, -1)
            yield np.ascontiguousarray(grouped.transpose(1, 0, 2)).reshape(self.groups, -1)

    def decode(self, request: Moments, opened: Integers, dealers: int) -> Moment:
        """Return what was opened of these many peers as means over all their numbers.

        Raises a `RangeError` if honest peers cannot have dealt that.
        """
        count, f = int(opened[-1]), self.bits(request.order)
        if not dealers <= count <= dealers * self.samples:
            raise RangeError(
                f"somebody lied: {count} samples were counted, and {dealers} honest peers have "
                f"{dealers} to {dealers * self.samples}"
            )
        denominator = float(count * self.elements) * 2.0**f
        mean, rounding = opened[:-1].astype(np.float64) / denominator, dealers / denominator
        largest = (self.bound + np.abs(request.at)) ** request.order
        least = -largest if request.order == 1 else np.zeros(self.groups)
        bad = (mean < least * _SLACK - rounding) | (mean > largest * _SLACK + rounding)
        if bad.any():
            j = int(np.flatnonzero(bad)[0])
            what = "a mean" if request.order == 1 else "a mean square"
            raise RangeError(
                f"somebody lied: {what} of {mean[j]:.6g} was opened (number {j}), and that of "
                f"honest peers is from {least[j]:.6g} to {largest[j]:.6g}"
            )
        return Moment(mean=mean, rounding=rounding)


def standardising(groups: int) -> Method:
    """Ask for both sums; return the means and then the deviations, or zeros if one was void."""
    void: Vector = np.zeros(2 * groups)
    first: Moment | None = yield Moments(order=1, at=np.zeros(groups))
    if first is None:
        return void
    second: Moment | None = yield Moments(order=2, at=first.mean)
    if second is None:
        return void
    doubt = first.rounding + _DOUBT * np.abs(first.mean)
    seen = second.mean > second.rounding + doubt * doubt
    return np.concatenate([first.mean, np.sqrt(np.where(seen, second.mean, 1.0))])
