"""The arithmetic of a step at one peer: what it deals, its sub-secret, and how these open.

There are five kinds of steps, each a `Task`:

fresh sums       every peer deals its update; sub-secret: the sum of the settled dealers' shares
evaluations      the same with three numbers, whose shares are not kept
stored sum       nothing is dealt; sub-secret: a combination of stored shares
stored sums      the same of several sums at once; sub-secret: which of them it has, and these
dot products     sub-secret: its masked products. Every peer deals zero masks, as many as an update
                 has blocks, and later dot products take theirs from what is left of these
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pdlrecover.engines.peers.protocol.dealing import Dealt, Kind, deal_masks, deal_vector
from pdlrecover.errors import LiarsError, MessageError
from pdlrecover.field import F61, Elements, Integers
from pdlrecover.sharing import DotShares, Opening, Scheme, Shares, dots_public, open_dots
from pdlrecover.sharing import open_robust as open_vector

Opened = tuple[Integers, tuple[int, ...]]
"""The opened signed integers, and who lied."""


class Task(Protocol):
    """The arithmetic of one step: what is dealt, what this peer says, and how it opens."""

    @property
    def round(self) -> int:
        """The training round it is about."""

    @property
    def asked(self) -> bytes:
        """The digest of the request, which must be the same at all peers."""

    @property
    def kind(self) -> Kind | None:
        """What every peer deals; None if only stored shares are opened."""

    @property
    def least_dealers(self) -> int:
        """How many dealers a set must have."""

    @property
    def size(self) -> int:
        """How many elements a sub-secret has."""

    @property
    def needed(self) -> int:
        """How many sub-secrets open it, liars' among them."""

    def deal(self, binding: bytes, seed: bytes) -> Dealt:
        """Compute what this peer contributes, and deal it."""

    def sub_secret(self, rows: dict[int, Elements]) -> Elements | None:
        """Return this peer's sub-secret, given its rows of the settled dealings; None: has none."""

    def open(self, parts: dict[int, Elements]) -> Opened | None:
        """Return the opened integers and who lied; None if that takes more sub-secrets."""

    def lacking(self, parts: dict[int, Elements]) -> frozenset[int]:
        """Return whose sub-secrets lack a part of which there are too few."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SumTask:
    """What opens a vector of this length, fresh or stored."""

    scheme: Scheme
    length: int
    round: int
    asked: bytes

    @property
    def size(self) -> int:
        """One element for each block."""
        return self.scheme.quorums.blocks(self.length)

    @property
    def needed(self) -> int:
        """One more than the degree of a sum, and one for each liar."""
        return _needed(self.scheme, self.scheme.quorums.vector_degree)

    def lacking(self, parts: dict[int, Elements]) -> frozenset[int]:
        """Return nobody: a sub-secret is whole."""
        return frozenset()

    def open(self, parts: dict[int, Elements]) -> Opened | None:
        """Open the sum."""

        def opened(peers: tuple[int, ...], values: Elements) -> Opening:
            shares = Shares(peers=peers, values=values, length=self.length)
            return open_vector(self.scheme, shares)

        return _opened(self.scheme, self.scheme.quorums.vector_degree, parts, opened)


@dataclass(frozen=True, kw_only=True, eq=False)
class FreshSum(SumTask):
    """Deal this peer's update, and open the sum."""

    least_dealers: int
    compute: Callable[[], Integers]
    used_once: bool = False
    """Whether shares are not kept after the step."""

    @property
    def kind(self) -> Kind:
        """Blocks of an update, or of a few numbers that are used once."""
        return Kind(
            scheme=self.scheme,
            blocks=self.size,
            degree=self.scheme.quorums.vector_degree,
            masks=False,
            used_once=self.used_once,
        )

    def deal(self, binding: bytes, seed: bytes) -> Dealt:
        """Compute the update and deal it."""
        return deal_vector(self.kind, F61.from_signed(self.compute()), binding, seed)

    def sub_secret(self, rows: dict[int, Elements]) -> Elements:
        """Add up the shares."""
        return F61.combine([1] * len(rows), list(rows.values()))


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredSum(SumTask):
    """Open a combination of what is stored."""

    share: Callable[[], Elements | None]
    """This peer's share of the combination; None if it lacks a part."""
    kind: None = None
    least_dealers: int = 0

    def deal(self, binding: bytes, seed: bytes) -> Dealt:
        """Raise: there is nothing to deal."""
        raise MessageError("nothing is dealt where stored sums are opened")

    def sub_secret(self, rows: dict[int, Elements]) -> Elements | None:
        """Combine the stored shares."""
        return self.share()


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredSums:
    """Open several sums of what is stored, each from those peers that have all of its shares.

    A sub-secret begins with a 1 for each sum that its sender has the share of, and a 0 for each
    other; then come the shares of all sums, zeros for those that it lacks.
    """

    scheme: Scheme
    length: int
    round: int
    asked: bytes
    count: int
    """How many sums there are."""
    shares: Callable[[], Sequence[Elements | None]]
    """This peer's share of each sum; None if it lacks a part of it."""
    kind: None = None
    least_dealers: int = 0

    @property
    def size(self) -> int:
        """For each sum a flag, and one element for each block."""
        return self.count * (1 + self.scheme.quorums.blocks(self.length))

    @property
    def needed(self) -> int:
        """Of every sum, as many as one takes."""
        return _needed(self.scheme, self.scheme.quorums.vector_degree)

    def lacking(self, parts: dict[int, Elements]) -> frozenset[int]:
        """Return who lacks the share of a sum that too few have."""
        has = {peer: self._parts(values)[0] == 1 for peer, values in parts.items()}
        scarce = sum(has.values(), np.zeros(self.count, dtype=np.int64)) < self.needed
        return frozenset(peer for peer, flags in has.items() if (scarce & ~flags).any())

    def deal(self, binding: bytes, seed: bytes) -> Dealt:
        """Raise: there is nothing to deal."""
        raise MessageError("nothing is dealt where stored sums are opened")

    def sub_secret(self, rows: dict[int, Elements]) -> Elements | None:
        """Put together what this peer has."""
        values = np.zeros(self.size, dtype=np.int64)
        has, parts = self._parts(values)
        for i, share in enumerate(self.shares()):
            if share is not None:
                has[i], parts[i] = 1, share
        return values if has.any() else None

    def open(self, parts: dict[int, Elements]) -> Opened | None:
        """Open all sums, those that the same peers have together."""
        split = {peer: self._parts(values) for peer, values in parts.items()}
        groups: dict[tuple[int, ...], list[int]] = {}
        for i in range(self.count):
            having = tuple(sorted(peer for peer, (has, _) in split.items() if has[i] == 1))
            groups.setdefault(having, []).append(i)
        opened = np.empty((self.count, self.length), dtype=np.int64)
        liars: set[int] = set()
        degree = self.scheme.quorums.vector_degree
        for having, places in sorted(groups.items(), key=lambda group: len(group[0])):
            stacks = {peer: split[peer][1][places] for peer in having}
            found = _opened(self.scheme, degree, stacks, self._open_stack)
            if found is None:
                return None
            opened[places] = found[0]
            liars.update(found[1])
        return opened.reshape(-1), tuple(sorted(liars))

    def _parts(self, values: Elements) -> tuple[Elements, Elements]:
        """Return the flags in a sub-secret, and the shares, one a row."""
        return values[: self.count], values[self.count :].reshape(self.count, -1)

    def _open_stack(self, peers: tuple[int, ...], values: Elements) -> Opening:
        return open_vector(self.scheme, Shares(peers=peers, values=values, length=self.length))


@dataclass(frozen=True, kw_only=True, eq=False)
class MaskedDots:
    """Open the dot products of public vectors with shared pairs, hidden by zero masks.

    The masks are dealt in this step, `dealt` of them, of which the first are used; or, if that is
    0, taken from what an earlier step dealt. No mask is used twice.
    """

    scheme: Scheme
    me: int
    round: int
    asked: bytes
    least_dealers: int
    vectors: Integers
    pairs: Callable[[], Sequence[Shares] | None]
    """This peer's shares of the pairs; None if it lacks one."""
    count: int
    """How many pairs there are."""
    dealt: int
    """How many masks every peer deals."""
    masks: Callable[[], Elements | None] = lambda: None
    """This peer's shares of the masks that were dealt before; None if it lacks them."""

    @property
    def kind(self) -> Kind | None:
        """The masks; they are kept if some are left for later."""
        if not self.dealt:
            return None
        degree, once = self.scheme.quorums.dot_degree, self.dealt == self.size
        return Kind(
            scheme=self.scheme, blocks=self.dealt, degree=degree, masks=True, used_once=once
        )

    @property
    def size(self) -> int:
        """One element for each dot product."""
        return len(self.vectors) * self.count

    @property
    def needed(self) -> int:
        """One more than the degree of a product, and one for each liar."""
        return _needed(self.scheme, self.scheme.quorums.dot_degree)

    def lacking(self, parts: dict[int, Elements]) -> frozenset[int]:
        """Return nobody: a sub-secret is whole."""
        return frozenset()

    def deal(self, binding: bytes, seed: bytes) -> Dealt:
        """Deal this peer's masks."""
        if self.kind is None:
            raise MessageError("no masks are dealt where there are some left")
        return deal_masks(self.kind, binding, seed)

    def sub_secret(self, rows: dict[int, Elements]) -> Elements | None:
        """Multiply, and add all dealers' masks."""
        pairs = self.pairs()
        masks = F61.combine([1] * len(rows), list(rows.values())) if self.dealt else self.masks()
        if pairs is None or masks is None:
            return None
        masks = masks[: self.size].reshape(len(self.vectors), 1, self.count)
        parts = [
            dots_public(self.scheme, pairs, vector, self._shares((self.me,), mask)).values
            for vector, mask in zip(self.vectors, masks, strict=True)
        ]
        mine: Elements = np.concatenate(parts, axis=1)[0]
        return mine

    def open(self, parts: dict[int, Elements]) -> Opened | None:
        """Open the dot products."""
        degree = self.scheme.quorums.dot_degree
        return _opened(
            self.scheme, degree, parts, lambda p, v: open_dots(self.scheme, self._shares(p, v))
        )

    def _shares(self, peers: tuple[int, ...], values: Elements) -> DotShares:
        return DotShares(peers=peers, values=values, degree=self.scheme.quorums.dot_degree)


def _needed(scheme: Scheme, degree: int) -> int:
    return degree + 1 + scheme.quorums.tolerance.liars


def _opened(
    scheme: Scheme,
    degree: int,
    parts: dict[int, Elements],
    opened: Callable[[tuple[int, ...], Elements], Opening],
) -> Opened | None:
    """Open if there are e more sub-secrets than it takes, and they agree or show who lies."""
    if len(parts) < _needed(scheme, degree):
        return None
    peers = tuple(sorted(parts))
    try:
        opening = opened(peers, np.stack([parts[peer] for peer in peers]))
    except LiarsError:
        return None
    return F61.to_signed(opening.values), opening.liars
