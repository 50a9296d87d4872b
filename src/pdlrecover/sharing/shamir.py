"""Packed Shamir secret sharing of vectors.

Rules:

- The field is F_q, q = 2^61 − 1. Peer j has the point x_j ≠ 0 (by default j + 1). The secrets of
  a block sit at the ℓ points 0, −1, …, −(ℓ−1), disjoint from the peers' points. With ℓ = 1 this
  is Shamir's original scheme.
- A vector of d numbers makes B = ⌈d/ℓ⌉ blocks, padded with zeros; block b holds the numbers
  b, b + B, b + 2B, … (so that no data is moved). Each block is one polynomial of degree
  c + ℓ − 1: it takes the secrets at the secrets' points, and values drawn uniformly at the
  points of the first c peers. Those values are the first c shares; the others follow by
  interpolation. Every polynomial through the secrets is equally likely, so any c shares are
  uniform and independent of the secrets (Shamir 1979; Franklin & Yung 1992).
- Opening takes any c + ℓ shares. It trusts them: `robust.open_robust` does not.
- Dealers are semi-honest here: nothing proves that a dealt polynomial has the right degree.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike

from pdlrecover.errors import ShareError
from pdlrecover.field import F61, Elements, Field, Interpolation, Source, SystemSource, distinct
from pdlrecover.sharing.shares import Shares
from pdlrecover.sharing.tolerance import Quorums, Tolerance


class Scheme:
    """How one federation shares: who has which point, and what every opening needs."""

    def __init__(
        self, quorums: Quorums, *, points: Sequence[int] | None = None, field: Field = F61
    ) -> None:
        self.quorums = quorums
        self.field = field
        if points is None:
            points = range(1, quorums.peers + 1)
        self.points = distinct(field, list(points))
        self.secret_points = np.array([-i % field.modulus for i in range(quorums.packing)])
        if len(self.points) != quorums.peers:
            raise ShareError(f"{quorums.peers} peers need as many points, got {len(self.points)}")
        taken = np.intersect1d(self.points, self.secret_points)
        if taken.size:
            raise ShareError(
                f"a peer's point must be neither 0 nor one of the secrets' points "
                f"0, −1, …, −{quorums.packing - 1} (mod q), got {taken[0]}; use 1, 2, 3, …"
            )

    @classmethod
    def for_peers(cls, peers: int, tolerance: Tolerance, *, products: bool = False) -> "Scheme":
        """Return the scheme with the largest packing that this tolerance allows."""
        return cls(tolerance.quorums(peers, products=products))

    def __repr__(self) -> str:
        q = self.quorums
        return f"Scheme({q.peers} peers, packing {q.packing}, {q.tolerance})"

    def share(
        self,
        vectors: ArrayLike,
        source: Source | None = None,
        *,
        by: Callable[[Elements], Elements] | None = None,
    ) -> Shares:
        """Deal a vector of field elements (d) or a stack (…, d): every peer gets one row.

        `by` does what `dealing.values` does, elsewhere; a block of ℓ numbers is a column for it.
        """
        secrets = self.lay_out(vectors)
        source = source or SystemSource()
        randomness = source.elements(self.quorums.tolerance.colluders, *secrets.shape[1:])
        return self._deal(secrets, randomness, np.shape(vectors)[-1], by)

    def share_with(self, vectors: ArrayLike, randomness: Elements) -> Shares:
        """Deal with this randomness, of shape (c, …, B): `share` without its source."""
        secrets = self.lay_out(vectors)
        expected = (self.quorums.tolerance.colluders, *secrets.shape[1:])
        if randomness.shape != expected:
            raise ShareError(f"randomness must have shape {expected}, got {randomness.shape}")
        return self._deal(secrets, self.field.elements(randomness), np.shape(vectors)[-1])

    def open(self, shares: Shares) -> Elements:
        """Open shares of enough peers, all trusted: the vector (d) or stack (…, d) dealt."""
        self.check_openable(shares)
        return self.open_trusted(shares)

    def open_trusted(self, shares: Shares) -> Elements:
        """Open from the first c + ℓ shares, which are known to be enough and to be well formed."""
        needed = self.quorums.vector_degree + 1
        opening = self.interpolation(shares.peers[:needed])
        opened = opening.values(shares.values[:needed].reshape(needed, -1))
        return self.in_order(opened, shares)

    def in_order(self, opened: Elements, shares: Shares) -> Elements:
        """Return opened secrets (ℓ, all blocks of all vectors) as the vectors they were."""
        stack, blocks = shares.values.shape[1:-1], shares.values.shape[-1]
        opened = np.moveaxis(opened.reshape(-1, *stack, blocks), 0, -2)
        return opened.reshape(*stack, -1)[..., : shares.length]

    def check_openable(self, shares: Shares) -> None:
        """Check that these are shares of this federation, and enough to open."""
        self.check_fits(shares)
        self.check_responders(shares.peers, self.quorums.vector_degree)

    def check_fits(self, shares: Shares) -> None:
        """Check that these are shares of this federation's peers, laid out as they are here."""
        if not isinstance(shares, Shares):
            raise ShareError(f"only shares can be opened, got {type(shares).__name__}")
        _ = shares.elements
        blocks = self.quorums.blocks(shares.length)
        if shares.values.shape[-1] != blocks:
            raise ShareError(
                f"a vector of {shares.length} numbers has {blocks} blocks of {self.quorums.packing}"
                f" here, got shares of {shares.values.shape[-1]}; was it shared with another plan?"
            )
        self._check_known(shares.peers)

    def check_responders(self, peers: tuple[int, ...], degree: int) -> None:
        """Check that these peers exist, and suffice to open a polynomial of this degree."""
        self._check_known(peers)
        if len(peers) <= degree:
            raise ShareError(
                f"opening takes at least {degree + 1} peers, got {len(peers)}; "
                f"wait for {degree + 1 - len(peers)} more"
            )

    def _check_known(self, peers: tuple[int, ...]) -> None:
        if unknown := [peer for peer in peers if not 0 <= peer < self.quorums.peers]:
            raise ShareError(
                f"peers are numbered 0 to {self.quorums.peers - 1}, got a share of {unknown[0]}"
            )

    @cached_property
    def dealing(self) -> Interpolation:
        """From (secrets, randomness) to the shares of the peers from c on."""
        colluders = self.quorums.tolerance.colluders
        known = np.concatenate([self.secret_points, self.points[:colluders]])
        return Interpolation(self.field, known, self.points[colluders:])

    def interpolation(self, peers: tuple[int, ...]) -> Interpolation:
        """From these peers' values to the values at the secrets' points."""
        return _cached(
            self.field, tuple(self.points[list(peers)].tolist()), tuple(self.secret_points.tolist())
        )

    def of_public(self, peers: tuple[int, ...]) -> Interpolation:
        """From a public block's ℓ numbers to its values at these peers' points."""
        return _cached(
            self.field, tuple(self.secret_points.tolist()), tuple(self.points[list(peers)].tolist())
        )

    def of_masks(self, degree: int) -> Interpolation:
        """From a mask's degree + 1 drawn values to its values at all points."""
        known = np.concatenate([self.secret_points, self.points])[: degree + 1]
        return _cached(self.field, tuple(known.tolist()), tuple(self.points.tolist()))

    def lay_out(self, vectors: ArrayLike) -> Elements:
        """Lay vectors (…, d) out as (ℓ, …, B): row i holds the i-th secret of every block."""
        if np.ndim(vectors) == 0 or 0 in np.shape(vectors):
            raise ShareError(
                f"only vectors of at least 1 number can be shared, got shape {np.shape(vectors)}"
            )
        x = self.field.elements(vectors)
        blocks = self.quorums.blocks(x.shape[-1])
        padding = blocks * self.quorums.packing - x.shape[-1]
        if padding:
            x = np.concatenate([x, np.zeros((*x.shape[:-1], padding), dtype=np.int64)], axis=-1)
        return np.moveaxis(x.reshape(*x.shape[:-1], self.quorums.packing, blocks), -2, 0)

    def _deal(
        self,
        secrets: Elements,
        randomness: Elements,
        length: int,
        by: Callable[[Elements], Elements] | None = None,
    ) -> Shares:
        drawn, shape = len(randomness), (self.quorums.peers, *secrets.shape[1:])
        known = np.concatenate([secrets, randomness]).reshape(len(secrets) + drawn, -1)
        values = np.empty((self.quorums.peers, known.shape[1]), dtype=np.int64)
        values[:drawn] = known[len(secrets) :]
        if by is None:
            self.dealing.values(known, out=values[drawn:])
        else:
            values[drawn:] = by(known)
        everyone = tuple(range(self.quorums.peers))
        return Shares(peers=everyone, values=values.reshape(shape), length=length, field=self.field)


@lru_cache(maxsize=256)
def _cached(field: Field, points: tuple[int, ...], targets: tuple[int, ...]) -> Interpolation:
    return Interpolation(field, points, targets)
