"""Dot products of shared vectors, opened without revealing anything else.

Rules:

- A public vector is laid out in blocks like a shared one, and each block becomes the polynomial
  of degree ℓ − 1 through the same ℓ points. Peer j multiplies its values with its shares and adds
  up all blocks: one number, the value at x_j of a polynomial of degree c + 2ℓ − 2 whose values at
  the ℓ points sum to the dot product. For two shared vectors the degree is 2c + 2ℓ − 2.
- That polynomial would reveal more than the dot product. So a *zero mask* is added first: a random
  polynomial of the full degree whose values at the ℓ points sum to zero. It must be the sum of
  masks dealt by every peer, so that nobody knows it; the masked polynomial is then uniform among
  all those with the right sum.
- A mask is used once, and is itself never broadcast. There is no function for a dot product
  without a mask.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdlrecover.errors import ShareError, ToleranceError
from pdlrecover.field import Elements, Source, SystemSource
from pdlrecover.sharing.robust import Opening, check_spare, find_liars
from pdlrecover.sharing.shamir import Scheme
from pdlrecover.sharing.shares import DotShares, Shares


def zero_masks(scheme: Scheme, *shape: int, degree: int, source: Source | None = None) -> DotShares:
    """Deal one dealer's part of masks of this degree, for dot products in an array of `shape`."""
    source = source or SystemSource()
    return zero_masks_with(scheme, source.elements(degree, *shape), degree=degree)


def zero_masks_with(scheme: Scheme, randomness: Elements, *, degree: int) -> DotShares:
    """Deal masks with this randomness, of shape (degree, …): `zero_masks` without its source.

    The polynomial's values at the ℓ − 1 first secrets' points and at degree − ℓ + 1 more points
    are drawn; its value at the last secrets' point is minus the sum of the others there.
    """
    packing, peers = scheme.quorums.packing, scheme.quorums.peers
    randomness = scheme.field.elements(randomness)
    if len(randomness) != degree:
        raise ShareError(f"a mask of degree {degree} draws {degree} values, got {len(randomness)}")
    if degree < packing - 1:
        raise ShareError(f"a mask's degree is at least {packing - 1} here, got {degree}")
    if degree >= peers:
        raise ToleranceError(
            f"opening a polynomial of degree {degree} takes {degree + 1} peers, and there are "
            f"{peers}; for dot products of two shared vectors plan with products=True"
        )
    zero_sum = scheme.field.subtract(
        np.zeros(randomness.shape[1:], dtype=np.int64),
        scheme.field.sum(randomness[: packing - 1], axis=0),
    )
    values = np.concatenate([randomness[: packing - 1], zero_sum[None], randomness[packing - 1 :]])
    dealt = scheme.of_masks(degree).values(values.reshape(degree + 1, -1))
    return DotShares(
        peers=tuple(range(peers)),
        values=dealt.reshape(peers, *randomness.shape[1:]),
        degree=degree,
        field=scheme.field,
    )


def add_masks(parts: Sequence[DotShares]) -> DotShares:
    """Add up the masks that all peers dealt."""
    if not parts:
        raise ShareError("masks are dealt by every peer, got none to add up")
    return reduce(DotShares.__add__, parts)


def dot_public(scheme: Scheme, shares: Shares, public: ArrayLike, mask: DotShares) -> DotShares:
    """Return masked shares of the dot product of a shared vector with a public one (elements).

    For a stack of shared vectors, one dot product each; the mask has the stack's shape.
    """
    scheme.check_fits(shares)
    signed = scheme.field.to_signed(scheme.field.elements(public))
    products = _PublicVector(scheme, signed, shares.length).dots([shares])[0]
    return _masked(scheme, shares.peers, products, mask, scheme.quorums.dot_degree)


def dots_public(
    scheme: Scheme, several: Sequence[Shares], integers: NDArray[np.int64], mask: DotShares
) -> DotShares:
    """Return masked shares of several vectors' dot products with one of signed integers."""
    if not several:
        raise ShareError("dot products need at least one shared vector, got none")
    for shares in several:
        scheme.check_fits(shares)
        _check_alike(several[0], shares)
    vector = _PublicVector(scheme, integers, several[0].length)
    products = np.moveaxis(vector.dots(several), 0, 1)
    return _masked(scheme, several[0].peers, products, mask, scheme.quorums.dot_degree)


class _PublicVector:
    """A public vector of signed integers, laid out in blocks like the shared ones."""

    def __init__(self, scheme: Scheme, signed: NDArray[np.int64], length: int) -> None:
        if signed.shape != (length,):
            raise ShareError(
                f"the public vector must have {length} numbers, got shape {signed.shape}"
            )
        packing, blocks = scheme.quorums.packing, scheme.quorums.blocks(length)
        self.is_small = max(int(signed.max()), -int(signed.min())) < scheme.field.small_limit
        padded: NDArray[Any] = np.zeros(packing * blocks, dtype=float if self.is_small else int)
        padded[:length] = signed
        self._scheme = scheme
        self._rows = padded.reshape(packing, blocks)

    def dots(self, several: Sequence[Shares]) -> Elements:
        """Return what each peer computes, one row for each of several shared vectors or stacks.

        That is Σ_b share_j[b]·V_j[b] with V_j[b] = Σ_i L_i(x_j)·v_i[b]. Where the public numbers v
        are small, it is cheaper to swap the sums, Σ_i L_i(x_j)·(Σ_b share_j[b]·v_i[b]), whose inner
        one is a product with small integers; unless there are too many peers to write L down.
        """
        field, lagrange = self._scheme.field, self._scheme.of_public(several[0].peers)
        shape = several[0].values.shape
        if self.is_small and lagrange.is_written:
            rows = lagrange.rows
            inner = field.small_products([shares.prepared for shares in several], self._rows.T)
            inner = inner.reshape(len(inner), len(several), *shape[:-1])
            weights = rows.T.reshape(len(inner), 1, len(rows), *(1,) * (len(shape) - 2))
            return field.sum(field.multiply(inner, weights), axis=0)
        values = lagrange.values(self._rows.astype(np.int64, copy=False) % field.modulus)
        values = values.reshape(len(values), *(1,) * (len(shape) - 2), -1)
        products = [field.multiply(shares.values, values) for shares in several]
        return np.stack([field.sum(each, axis=-1) for each in products])


def dot_shared(scheme: Scheme, a: Shares, b: Shares, mask: DotShares) -> DotShares:
    """Return masked shares of the dot product of two shared vectors (or of stacks, pairwise)."""
    scheme.check_fits(a)
    scheme.check_fits(b)
    _check_alike(a, b)
    products = scheme.field.sum(scheme.field.multiply(a.values, b.values), axis=-1)
    return _masked(scheme, a.peers, products, mask, scheme.quorums.product_degree)


def _check_alike(a: Shares, b: Shares) -> None:
    if a.peers != b.peers or a.length != b.length or a.values.shape != b.values.shape:
        raise ShareError(
            f"dot products need shares of the same peers, in the same order, and of one length; "
            f"got {a.length} numbers of peers {a.peers[:3]}… and {b.length} of {b.peers[:3]}…"
        )


def open_dots(scheme: Scheme, dots: DotShares, source: Source | None = None) -> Opening:
    """Open dot products robustly: interpolate, and add up the values at the secrets' points."""
    field = scheme.field
    field.elements(dots.values)
    scheme.check_responders(dots.peers, dots.degree)
    check_spare(scheme, dots.peers, dots.degree)
    words = dots.values.reshape(len(dots.peers), -1)
    liars = find_liars(scheme, dots.peers, words, dots.degree, source)
    honest = dots.of([p for p in dots.peers if p not in liars][: dots.degree + 1])
    opening = scheme.interpolation(honest.peers)
    opened = opening.total(honest.values.reshape(dots.degree + 1, -1))
    return Opening(values=opened.reshape(dots.values.shape[1:]), liars=liars)


def _masked(
    scheme: Scheme, peers: tuple[int, ...], products: Elements, mask: DotShares, degree: int
) -> DotShares:
    if mask.degree != degree:
        raise ShareError(f"this dot product needs a mask of degree {degree}, got {mask.degree}")
    dots = DotShares(peers=peers, values=products, degree=degree, field=scheme.field)
    return dots + mask.of(peers)
