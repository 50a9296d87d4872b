"""Secrecy is a statement about distributions, so here all random choices are enumerated."""

import itertools
from collections import Counter

import numpy as np
import pytest
from oracle import OracleField, determinant

from pdlrecover.field import Q
from pdlrecover.sharing import Scheme, Tolerance, dot_public, dot_shared, zero_masks_with


def tiny(modulus, peers, colluders, packing):
    quorums = Tolerance(colluders=colluders).quorums(peers, packing=packing)
    return Scheme(quorums, field=OracleField(modulus))


@pytest.mark.parametrize(
    ("modulus", "peers", "colluders", "packing"),
    [(5, 4, 1, 1), (7, 5, 1, 2), (5, 4, 2, 1), (7, 5, 2, 2), (11, 7, 2, 3), (7, 6, 3, 1)],
)
def test_any_c_shares_of_any_secret_are_uniform(modulus, peers, colluders, packing):
    scheme = tiny(modulus, peers, colluders, packing)
    zero, full = np.zeros(packing, dtype=np.int64), np.full(packing, modulus - 1)
    for secret in (zero, full, np.arange(packing) % modulus):
        views = {group: Counter() for group in itertools.combinations(range(peers), colluders)}
        for randomness in scheme.field.everything(colluders, 1):
            shares = scheme.share_with(secret, randomness)
            for group, view in views.items():
                view[tuple(shares.of(group).values[:, 0].tolist())] += 1
        for view in views.values():  # every combination of shares, each exactly once
            assert len(view) == modulus**colluders
            assert set(view.values()) == {1}


def test_one_share_more_than_c_does_tell_something():
    scheme = tiny(7, 5, 1, 2)
    views = []
    for secret in ([0, 0], [0, 1]):
        view = Counter()
        for randomness in scheme.field.everything(1, 1):
            shares = scheme.share_with(np.array(secret), randomness)
            view[tuple(shares.of([0, 1]).values[:, 0].tolist())] += 1
        views.append(view)
    assert views[0] != views[1]


@pytest.mark.parametrize(("peers", "colluders", "packing"), [(200, 66, 32), (20, 6, 1), (20, 5, 4)])
def test_in_the_real_field_the_randomness_of_any_c_shares_is_invertible(peers, colluders, packing):
    """Shares of c peers are M·randomness + something of the secrets: M must be invertible."""
    scheme = Scheme(Tolerance(colluders=colluders).quorums(peers, packing=packing))
    first = np.eye(colluders, packing + colluders, packing, dtype=np.int64)
    matrix = np.concatenate([first, scheme.dealing.rows])[:, packing:]
    rng = np.random.default_rng(0)
    groups = [range(peers - colluders, peers), range(0, 2 * colluders, 2)]
    groups += [rng.choice(peers, colluders, replace=False) for _ in range(3)]
    for group in groups:
        assert determinant(matrix[list(group)], Q) != 0


def views_of_a_dot_product(scheme, degree, secrets, dots):
    """Return, for one secret, how often colluder 0 sees what: its own shares of everything, and
    all that is broadcast."""
    view = Counter()
    colluders = scheme.quorums.tolerance.colluders
    masks = [zero_masks_with(scheme, r, degree=degree) for r in scheme.field.everything(degree)]
    for randomness in scheme.field.everything(len(secrets), colluders, 1):
        shares = [scheme.share_with(s, r) for s, r in zip(secrets, randomness, strict=True)]
        own = tuple(int(x.values[0, 0]) for x in shares)
        for mask in masks:
            broadcast = dots(shares, mask)
            view[own, int(mask.values[0]), tuple(broadcast.values.tolist())] += 1
    return view


@pytest.mark.slow
def test_opening_a_dot_product_with_a_public_vector_tells_only_the_dot_product():
    scheme = tiny(7, 4, 1, 2)
    public = np.array([1, 2])

    def view(secret):
        return views_of_a_dot_product(
            scheme,
            scheme.quorums.dot_degree,
            [np.array(secret)],
            lambda shares, mask: dot_public(scheme, shares[0], public, mask),
        )

    assert view([3, 0]) == view([1, 1]) == view([0, 5])  # all have the dot product 3
    assert view([3, 0]) != view([3, 1])


def test_opening_a_dot_product_of_two_shared_vectors_tells_only_the_dot_product():
    scheme = tiny(5, 3, 1, 1)

    def view(a, b):
        return views_of_a_dot_product(
            scheme,
            scheme.quorums.product_degree,
            [np.array([a]), np.array([b])],
            lambda shares, mask: dot_shared(scheme, *shares, mask),
        )

    assert view(1, 4) == view(2, 2) == view(4, 1) == view(3, 3)  # all are 4 modulo 5
    assert view(1, 4) != view(1, 3)


def test_without_the_mask_more_than_the_dot_product_would_be_told():
    """The check above can fail: with a mask of zeros, equal dot products look different."""
    scheme = tiny(7, 4, 1, 2)
    degree = scheme.quorums.dot_degree
    no_mask = zero_masks_with(scheme, np.zeros(degree, dtype=np.int64), degree=degree)
    seen = []
    for secret in ([3, 0], [1, 1]):
        view = Counter()
        for randomness in scheme.field.everything(1, 1):
            shares = scheme.share_with(np.array(secret), randomness)
            view[tuple(dot_public(scheme, shares, np.array([1, 2]), no_mask).values.tolist())] += 1
        seen.append(view)
    assert seen[0] != seen[1]


def test_every_mask_of_sum_zero_is_equally_likely():
    scheme = tiny(7, 4, 1, 2)
    degree = scheme.quorums.dot_degree
    dealt = Counter(
        tuple(zero_masks_with(scheme, r, degree=degree).values.tolist())
        for r in scheme.field.everything(degree)
    )
    assert len(dealt) == 7**degree
