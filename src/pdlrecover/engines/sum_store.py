"""What peers hold of a sum, and what they can do with it: for real, or in the clear.

Both kinds give the same numbers to the last bit, because everything that is opened is an exact
integer below q/2 in magnitude. `Clear` is for when privacy is not the question and time is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from pdlrecover.errors import ToleranceError
from pdlrecover.field import F61, Integers, Source, SystemSource
from pdlrecover.sharing import (
    DotShares,
    Scheme,
    Shares,
    dots_public,
    open_dots,
    open_robust,
    zero_masks,
)

MASKS_AHEAD = 64
"""Masks for so many dot products are dealt at once."""


class SumStore(Protocol):
    """Somewhere to put sums, so that combinations of them can be opened.

    What is held is an int64 array, one row for each sum.
    """

    def deal(self, sums: Integers) -> Integers:
        """Put sums (k, length) away; return what is held of each."""

    def read(self, held: Integers) -> Integers:
        """Return what the peers that answer hold, out of what all hold."""

    def total(self, held: Sequence[Integers] | Integers) -> Integers:
        """Return what is held of the sum of the sums."""

    def difference(self, a: Integers, b: Integers) -> Integers:
        """Return what is held of the difference of two sums."""

    def combine(self, held: Sequence[Integers], coefficients: Sequence[int]) -> Integers:
        """Return what is held of Σ coefficient · sum, good for opening only."""

    def open(self, held: Integers) -> Integers:
        """Open what is held of one sum: its signed integers."""

    def ready(self, held: Integers) -> Any:
        """Make a sum ready for many dot products."""

    def dots(self, ready: Sequence[Any], vectors: Integers) -> Integers:
        """Open the dot products of public vectors (r, length) with k sums: (r, k) integers."""


@dataclass(frozen=True, kw_only=True)
class Clear:
    """No shares: sums as they are. Integer arithmetic that cannot overflow stands for opening."""

    length: int

    def deal(self, sums: Integers) -> Integers:
        """Return the sums."""
        return sums

    def read(self, held: Integers) -> Integers:
        """Return the sums."""
        return held

    def total(self, held: Sequence[Integers] | Integers) -> Integers:
        """Return the sum."""
        return self.combine(held, [1] * len(held))

    def difference(self, a: Integers, b: Integers) -> Integers:
        """Return a − b."""
        return a - b

    def combine(self, held: Sequence[Integers] | Integers, coefficients: Sequence[int]) -> Integers:
        """Return Σ coefficient · sum."""
        total: Integers = held[0] * coefficients[0]
        for row, coefficient in zip(held[1:], coefficients[1:], strict=True):
            total += row * coefficient
        return total

    def open(self, held: Integers) -> Integers:
        """Return the sum."""
        return held

    def ready(self, held: Integers) -> Integers:
        """Return the sum."""
        return held

    def dots(self, ready: Sequence[Integers], vectors: Integers) -> Integers:
        """Return the dot products; their true values fit, so wrapping on the way is harmless."""
        return np.array([[np.dot(vector, held) for held in ready] for vector in vectors])


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What goes wrong in the openings of a simulation, within the tolerance."""

    absent: tuple[int, ...] = ()
    """Peers that do not answer."""
    liars: tuple[int, ...] = ()
    """Peers that answer with random numbers."""


@dataclass(kw_only=True, eq=False)
class Shared:
    """Sums really dealt to all peers, and opened robustly by those that answer.

    An opening takes e answers more than it needs, which tells whether any of e liars lied. Where
    liars are simulated it takes all answers, which tells who.
    """

    scheme: Scheme
    length: int
    responders: tuple[int, ...]
    """The peers that take part in openings."""
    faults: Faults = field(default_factory=Faults)
    source: Source = field(default_factory=SystemSource)
    caught: set[int] = field(default_factory=set)
    """The liars that openings have named."""
    _masks: DotShares | None = None

    def __post_init__(self) -> None:
        answering = tuple(p for p in self.responders if p not in self.faults.absent)
        needed = self.scheme.quorums.dot
        if len(answering) < needed:
            raise ToleranceError(
                f"openings need {needed} peers and {len(answering)} are left to answer; remove or "
                f"lose fewer, or set the federation up with more dropouts"
            )
        if self.faults.liars:
            self.responders, self._vector_rows = answering, slice(None)
        else:
            quorums, liars = self.scheme.quorums, self.scheme.quorums.tolerance.liars
            self.responders = answering[: quorums.dot_degree + 1 + liars]
            self._vector_rows = slice(0, quorums.vector_degree + 1 + liars)

    def deal(self, sums: Integers) -> Integers:
        """Deal each sum; every peer gets a row."""
        elements = F61.from_signed(sums)
        return np.stack([self.scheme.share(row, self.source).values for row in elements])

    def read(self, held: Integers) -> Integers:
        """Return the rows of the peers that answer."""
        first, count = self.responders[0], len(self.responders)
        if self.responders == tuple(range(first, first + count)):
            return held[:, first : first + count]
        return held[:, list(self.responders)]

    def total(self, held: Sequence[Integers] | Integers) -> Integers:
        """Add share by share."""
        return held[0] if len(held) == 1 else F61.combine([1] * len(held), list(held))

    def difference(self, a: Integers, b: Integers) -> Integers:
        """Subtract share by share."""
        return F61.subtract(a, b)

    def combine(self, held: Sequence[Integers], coefficients: Sequence[int]) -> Integers:
        """Combine share by share, of the peers that a vector's opening needs."""
        return F61.combine(coefficients, [part[self._vector_rows] for part in held])

    def open(self, held: Integers) -> Integers:
        """Open robustly, from what the peers hold of one sum."""
        held = held[self._vector_rows]
        shares = Shares(
            peers=self.responders[self._vector_rows],
            values=self._lied(held),
            length=self.length,
        )
        opening = open_robust(self.scheme, shares)
        self.caught.update(opening.liars)
        return F61.to_signed(opening.values)

    def ready(self, held: Integers) -> Shares:
        """Return the shares of the peers that answer."""
        return Shares(peers=self.responders, values=held, length=self.length)

    def dots(self, ready: Sequence[Shares], vectors: Integers) -> Integers:
        """Open masked dot products; one mask stands for the sum of all peers' masks."""
        out = np.empty((len(vectors), len(ready)), dtype=np.int64)
        for row, vector in zip(out, vectors, strict=True):
            dots = dots_public(self.scheme, ready, vector, self._mask(len(ready)))
            opening = open_dots(self.scheme, replace(dots, values=self._lied(dots.values)))
            self.caught.update(opening.liars)
            row[:] = F61.to_signed(opening.values)
        return out

    def _mask(self, count: int) -> DotShares:
        """Return masks for so many dot products, out of those dealt ahead; none is used twice."""
        if not self._masks or self._masks.values.shape[1] < count:
            degree = self.scheme.quorums.dot_degree
            size = max(count, MASKS_AHEAD)
            self._masks = zero_masks(self.scheme, size, degree=degree, source=self.source)
        dealt = self._masks
        self._masks = replace(dealt, values=dealt.values[:, count:])
        return replace(dealt, values=dealt.values[:, :count])

    def _lied(self, values: Integers) -> Integers:
        """Return the values with the liars' rows replaced."""
        rows = [i for i, p in enumerate(self.responders[: len(values)]) if p in self.faults.liars]
        if not rows:
            return np.ascontiguousarray(values)
        values = values.copy()
        values[rows] = SystemSource().elements(len(rows), *values.shape[1:])
        return values
