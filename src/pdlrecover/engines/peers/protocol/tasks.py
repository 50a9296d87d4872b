"""The arithmetic of the three kinds of steps, for one peer and its own shares.

fresh sums       every peer deals its update; sub-secret: the sum of the settled dealers' shares
stored sums      nothing is dealt; sub-secret: a combination of stored shares
dot products     every peer deals zero masks; sub-secret: its masked products
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pdlrecover.engines.peers.protocol.dealing import Dealt, Kind, deal_masks, deal_vector
from pdlrecover.errors import LiarsError, MessageError
from pdlrecover.field import F61, Elements, Integers
from pdlrecover.sharing import DotShares, Opening, Scheme, Shares, dots_public, open_dots
from pdlrecover.sharing import open_robust as open_vector

Opened = tuple[Integers, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True, eq=False)
class FreshSum:
    """Deal this peer's update, and open the sum."""

    scheme: Scheme
    length: int
    round: int
    asked: bytes
    least_dealers: int
    compute: Callable[[], Integers]

    @property
    def kind(self) -> Kind:
        """Blocks of an update."""
        quorums = self.scheme.quorums
        return Kind(scheme=self.scheme, blocks=self.size, degree=quorums.vector_degree, masks=False)

    @property
    def size(self) -> int:
        """One element for each block."""
        return self.scheme.quorums.blocks(self.length)

    def deal(self, binding: bytes, seed: bytes) -> Dealt:
        """Compute the update and deal it."""
        return deal_vector(self.kind, F61.from_signed(self.compute()), binding, seed)

    def sub_secret(self, rows: dict[int, Elements]) -> Elements:
        """Add up the shares."""
        return F61.combine([1] * len(rows), list(rows.values()))

    def stored(self, rows: dict[int, Elements]) -> dict[int, Elements]:
        """Keep every dealer's share: that is what makes a removal possible."""
        return rows

    def open(self, parts: dict[int, Elements]) -> Opened | None:
        """Open the sum."""
        return _opened_vector(self.scheme, self.length, parts)


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredSum:
    """Open a combination of what is stored."""

    scheme: Scheme
    length: int
    round: int
    asked: bytes
    share: Callable[[], Elements | None]
    """This peer's share of the combination; None if it lacks a part."""
    kind: None = None
    least_dealers: int = 0

    @property
    def size(self) -> int:
        """One element for each block."""
        return self.scheme.quorums.blocks(self.length)

    def deal(self, binding: bytes, seed: bytes) -> Dealt:
        """Raise: there is nothing to deal."""
        raise MessageError("nothing is dealt where stored sums are opened")

    def sub_secret(self, rows: dict[int, Elements]) -> Elements | None:
        """Combine the stored shares."""
        return self.share()

    def stored(self, rows: dict[int, Elements]) -> dict[int, Elements]:
        """Keep nothing new."""
        return {}

    def open(self, parts: dict[int, Elements]) -> Opened | None:
        """Open the combination."""
        return _opened_vector(self.scheme, self.length, parts)


@dataclass(frozen=True, kw_only=True, eq=False)
class MaskedDots:
    """Deal zero masks, and open the dot products of public vectors with shared pairs."""

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

    @property
    def kind(self) -> Kind:
        """One mask for each dot product."""
        degree = self.scheme.quorums.dot_degree
        return Kind(scheme=self.scheme, blocks=self.size, degree=degree, masks=True)

    @property
    def size(self) -> int:
        """One element for each dot product."""
        return len(self.vectors) * self.count

    def deal(self, binding: bytes, seed: bytes) -> Dealt:
        """Deal this peer's masks."""
        return deal_masks(self.kind, binding, seed)

    def sub_secret(self, rows: dict[int, Elements]) -> Elements | None:
        """Multiply, and add all dealers' masks."""
        pairs = self.pairs()
        if pairs is None:
            return None
        masks = F61.combine([1] * len(rows), list(rows.values()))
        masks = masks.reshape(len(self.vectors), 1, self.count)
        parts = [
            dots_public(self.scheme, pairs, vector, self._shares((self.me,), mask)).values
            for vector, mask in zip(self.vectors, masks, strict=True)
        ]
        mine: Elements = np.concatenate(parts, axis=1)[0]
        return mine

    def stored(self, rows: dict[int, Elements]) -> dict[int, Elements]:
        """Keep nothing: a mask is used once."""
        return {}

    def open(self, parts: dict[int, Elements]) -> Opened | None:
        """Open the dot products."""
        degree = self.scheme.quorums.dot_degree
        return _opened(
            self.scheme, degree, parts, lambda p, v: open_dots(self.scheme, self._shares(p, v))
        )

    def _shares(self, peers: tuple[int, ...], values: Elements) -> DotShares:
        return DotShares(peers=peers, values=values, degree=self.scheme.quorums.dot_degree)


def _opened_vector(scheme: Scheme, length: int, parts: dict[int, Elements]) -> Opened | None:
    def opened(peers: tuple[int, ...], values: Elements) -> Opening:
        return open_vector(scheme, Shares(peers=peers, values=values, length=length))

    return _opened(scheme, scheme.quorums.vector_degree, parts, opened)


def _opened(
    scheme: Scheme,
    degree: int,
    parts: dict[int, Elements],
    opened: Callable[[tuple[int, ...], Elements], Opening],
) -> Opened | None:
    """Open if there are e more sub-secrets than it takes, and they agree or show who lies."""
    if len(parts) < degree + 1 + scheme.quorums.tolerance.liars:
        return None
    peers = tuple(sorted(parts))
    try:
        opening = opened(peers, np.stack([parts[peer] for peer in peers]))
    except LiarsError:
        return None
    return F61.to_signed(opening.values), opening.liars
