"""Sums in a simulation: dealt, combined and opened, on shares or in the clear.

Rules:

- Both kinds give the same numbers to the last bit, because everything that is opened is an exact
  integer below q/2 in magnitude. `ClearSums` is for when privacy is not the question and time is.
- What is held has a type of its own, `Shares` or integers, so that one is not taken for the other.
  `deal` is the only way from clear sums to what a history keeps, `read` the only way back from
  there to what is held, and `open` the only way from that to clear integers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import numpy as np

from pdlrecover.errors import ToleranceError
from pdlrecover.field import F61, Elements, Integers, Source, SystemSource
from pdlrecover.history import DealtSums
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
"""How many masks for dot products are dealt at once."""

HeldSum = TypeVar("HeldSum")
"""What is held of one sum."""


class SumStore(Protocol[HeldSum]):
    """Somewhere to put sums, so that combinations of them can be opened."""

    def deal(self, sums: Integers) -> DealtSums:
        """Put sums (k, length) away; return what all peers hold of them."""

    def read(self, dealt: DealtSums, which: Sequence[int]) -> list[HeldSum]:
        """Return what the peers that answer hold of each of these sums."""

    def total(self, held: Sequence[HeldSum]) -> HeldSum:
        """Return what is held of the sum of the sums."""

    def difference(self, a: HeldSum, b: HeldSum) -> HeldSum:
        """Return what is held of the difference of two sums."""

    def combine(self, held: Sequence[HeldSum], coefficients: Sequence[int]) -> HeldSum:
        """Return what is held of Σ coefficient · sum, good for opening only."""

    def open(self, held: HeldSum) -> Integers:
        """Open a sum: its signed integers."""

    def dots(self, held: Sequence[HeldSum], vectors: Integers) -> Integers:
        """Open the dot products of public vectors (r, length) with k sums: (r, k) integers."""


@dataclass(frozen=True, kw_only=True)
class ClearSums:
    """No shares: sums as they are. Integer arithmetic that cannot overflow stands for opening."""

    def deal(self, sums: Integers) -> DealtSums:
        """Return the sums, as a history keeps them."""
        return DealtSums(values=sums)

    def read(self, dealt: DealtSums, which: Sequence[int]) -> list[Integers]:
        """Return these sums."""
        values = np.asarray(dealt.values)
        return [values[i] for i in which]

    def total(self, held: Sequence[Integers]) -> Integers:
        """Return the sum."""
        return self.combine(held, [1] * len(held))

    def difference(self, a: Integers, b: Integers) -> Integers:
        """Return a − b."""
        return a - b

    def combine(self, held: Sequence[Integers], coefficients: Sequence[int]) -> Integers:
        """Return Σ coefficient · sum."""
        total: Integers = held[0] * coefficients[0]
        for row, coefficient in zip(held[1:], coefficients[1:], strict=True):
            total += row * coefficient
        return total

    def open(self, held: Integers) -> Integers:
        """Return the sum."""
        return held

    def dots(self, held: Sequence[Integers], vectors: Integers) -> Integers:
        """Return the dot products; their true values fit, so wrapping on the way is harmless."""
        return np.array([[np.dot(vector, each) for each in held] for vector in vectors])


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What goes wrong in the openings of a simulation, within the tolerance."""

    absent: tuple[int, ...] = ()
    """Peers that do not answer."""
    liars: tuple[int, ...] = ()
    """Peers that answer with random numbers."""


@dataclass(kw_only=True, eq=False)
class SharedSums:
    """Sums really dealt to all peers, and opened robustly by those that answer.

    An opening takes e answers more than it needs, which shows whether any of e liars lied. Where
    liars are simulated it takes all answers, which shows who.
    """

    scheme: Scheme
    length: int
    responders: tuple[int, ...]
    """The peers that take part in openings."""
    faults: Faults = field(default_factory=Faults)
    source: Source = field(default_factory=SystemSource)
    caught: set[int] = field(default_factory=set)
    """The liars that openings have named."""
    by: Callable[[Elements], Elements] | None = None
    """What multiplies by the dealing matrix, if not this process."""
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
        first, end = self.responders[0], self.responders[0] + len(self.responders)
        in_a_row = self.responders == tuple(range(first, end))  # then reading copies nothing
        self._rows = slice(first, end) if in_a_row else list(self.responders)

    def deal(self, sums: Integers) -> DealtSums:
        """Deal each sum; every peer gets a row."""
        elements = F61.from_signed(sums)
        shares = [self.scheme.share(row, self.source, by=self.by).values for row in elements]
        return DealtSums(values=np.stack(shares))

    def read(self, dealt: DealtSums, which: Sequence[int]) -> list[Shares]:
        """Return the shares of the peers that answer."""
        values = np.asarray(dealt.values)
        return [
            Shares(peers=self.responders, values=values[i][self._rows], length=self.length)
            for i in which
        ]

    def total(self, held: Sequence[Shares]) -> Shares:
        """Add share by share."""
        return held[0] if len(held) == 1 else _combined(held, [1] * len(held))

    def difference(self, a: Shares, b: Shares) -> Shares:
        """Subtract share by share."""
        return a - b

    def combine(self, held: Sequence[Shares], coefficients: Sequence[int]) -> Shares:
        """Combine share by share, of the peers that a vector's opening needs."""
        return _combined([self._for_opening(shares) for shares in held], coefficients)

    def open(self, held: Shares) -> Integers:
        """Open robustly, by the peers that a vector's opening needs."""
        shares = self._for_opening(held)
        shares = replace(shares, values=self._lied(shares.peers, shares.values))
        opening = open_robust(self.scheme, shares)
        self.caught.update(opening.liars)
        return F61.to_signed(opening.values)

    def dots(self, held: Sequence[Shares], vectors: Integers) -> Integers:
        """Open masked dot products; one mask stands for the sum of all peers' masks."""
        out = np.empty((len(vectors), len(held)), dtype=np.int64)
        for row, vector in zip(out, vectors, strict=True):
            dots = dots_public(self.scheme, held, vector, self._mask(len(held)))
            dots = replace(dots, values=self._lied(dots.peers, dots.values))
            opening = open_dots(self.scheme, dots)
            self.caught.update(opening.liars)
            row[:] = F61.to_signed(opening.values)
        return out

    def _for_opening(self, held: Shares) -> Shares:
        rows = self._vector_rows
        return replace(held, peers=held.peers[rows], values=held.values[rows])

    def _mask(self, count: int) -> DotShares:
        """Return masks for `count` dot products, out of those dealt ahead; none is used twice."""
        if not self._masks or self._masks.values.shape[1] < count:
            degree = self.scheme.quorums.dot_degree
            size = max(count, MASKS_AHEAD)
            self._masks = zero_masks(self.scheme, size, degree=degree, source=self.source)
        dealt = self._masks
        self._masks = replace(dealt, values=dealt.values[:, count:])
        return replace(dealt, values=dealt.values[:, :count])

    def _lied(self, peers: tuple[int, ...], values: Elements) -> Elements:
        """Return these peers' values with the liars' rows replaced."""
        rows = [i for i, peer in enumerate(peers) if peer in self.faults.liars]
        if not rows:
            return np.ascontiguousarray(values)
        values = values.copy()
        values[rows] = SystemSource().elements(len(rows), *values.shape[1:])
        return values


def _combined(held: Sequence[Shares], coefficients: Sequence[int]) -> Shares:
    values = F61.combine(coefficients, [shares.values for shares in held])
    return replace(held[0], values=values)
