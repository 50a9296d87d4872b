import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import OracleField

from pdlrecover.errors import FieldError, ShareError
from pdlrecover.field import Q, Seeded
from pdlrecover.sharing import Scheme, Shares, Tolerance

TRUTH = OracleField(Q)
SCHEME = Scheme.for_peers(12, Tolerance(colluders=3, dropouts=2, liars=1))


@given(
    colluders=st.integers(0, 4),
    packing=st.integers(1, 4),
    length=st.integers(1, 30),
    stack=st.sampled_from([(), (1,), (3,), (2, 2)]),
    draw=st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_any_large_enough_subset_opens_what_was_dealt(colluders, packing, length, stack, draw):
    scheme = Scheme(Tolerance(colluders=colluders).quorums(12, packing=packing))
    vectors = Seeded(draw.random()).elements(*stack, length)
    shares = scheme.share(vectors)
    assert shares.values.shape == (12, *stack, -(-length // packing))
    responders = draw.sample(range(12), draw.randint(colluders + packing, 12))
    np.testing.assert_array_equal(scheme.open(shares.of(responders)), vectors)


def test_shares_are_the_values_of_one_polynomial_per_block():
    vector = Seeded(1).elements(10)
    randomness = Seeded(2).elements(3, SCHEME.quorums.blocks(10))
    shares = SCHEME.share_with(vector, randomness)
    packing, blocks = SCHEME.quorums.packing, SCHEME.quorums.blocks(10)
    padded = np.concatenate([vector, np.zeros(packing * blocks - 10, dtype=np.int64)])
    for block in range(blocks):
        points = [*SCHEME.secret_points.tolist(), *SCHEME.points[:3].tolist()]
        values = [*padded[block::blocks].tolist(), *randomness[:, block].tolist()]
        for peer in range(12):
            expected = TRUTH.interpolate(points, values, SCHEME.points[peer])
            assert shares.values[peer, block] == expected


def test_sums_of_shares_open_to_sums():
    a, b = Seeded(1).elements(2, 20), Seeded(2).elements(2, 20)
    total = SCHEME.share(a) + SCHEME.share(b)
    np.testing.assert_array_equal(SCHEME.open(total), TRUTH.add(a, b))
    np.testing.assert_array_equal(
        SCHEME.open(SCHEME.share(a) - SCHEME.share(b)), TRUTH.subtract(a, b)
    )
    np.testing.assert_array_equal(
        SCHEME.open(SCHEME.share(a).scaled(Q - 3)), TRUTH.multiply(a, np.array(Q - 3))
    )


def test_one_dealing_of_the_sum_is_the_sum_of_dealings():
    vectors = Seeded(1).elements(5, 20)
    blocks = SCHEME.quorums.blocks(20)
    randomness = Seeded(2).elements(5, 3, blocks)
    separate = [SCHEME.share_with(v, r) for v, r in zip(vectors, randomness, strict=True)]
    total = separate[0] + separate[1] + separate[2] + separate[3] + separate[4]
    at_once = SCHEME.share_with(TRUTH.sum(vectors, 0), TRUTH.sum(randomness, 0))
    np.testing.assert_array_equal(total.values, at_once.values)


def test_peers_may_have_any_distinct_points():
    quorums = Tolerance(colluders=1).quorums(4)
    scheme = Scheme(quorums, points=[17, 5, 1 << 40, Q // 2])
    vector = Seeded(1).elements(9)
    np.testing.assert_array_equal(scheme.open(scheme.share(vector).of([3, 0, 2])), vector)


def test_same_seed_same_shares_and_no_seed_different_shares():
    vector = Seeded(1).elements(9)
    first, again = SCHEME.share(vector, Seeded(5)), SCHEME.share(vector, Seeded(5))
    np.testing.assert_array_equal(first.values, again.values)
    assert not np.array_equal(SCHEME.share(vector).values, SCHEME.share(vector).values)


def test_dealing_touches_no_global_random_state():
    states = random.getstate(), np.random.get_state()[1].copy()
    SCHEME.share([1, 2, 3])
    assert random.getstate() == states[0]
    assert np.array_equal(np.random.get_state()[1], states[1])


def test_too_few_shares_are_refused():
    shares = SCHEME.share([1, 2, 3])
    needed = SCHEME.quorums.vector_degree + 1
    with pytest.raises(ShareError, match=f"at least {needed} peers, got {needed - 1}; wait for 1"):
        SCHEME.open(shares.of(range(needed - 1)))


def test_shares_of_another_length_are_refused():
    shares = SCHEME.share(np.arange(20))
    with pytest.raises(ShareError, match=r"a vector of 21 numbers has .* another plan"):
        SCHEME.open(Shares(peers=shares.peers, values=shares.values[:, :1], length=21))


def test_shares_of_unknown_peers_are_refused():
    shares = SCHEME.share([1])
    strangers = Shares(peers=(*range(11), 99), values=shares.values, length=1)
    with pytest.raises(ShareError, match="numbered 0 to 11, got a share of 99"):
        SCHEME.open(strangers)


def test_shares_out_of_the_field_are_refused():
    shares = SCHEME.share([1])
    bad = shares.values.copy()
    bad[0, 0] = Q
    with pytest.raises(FieldError, match="must lie in"):
        SCHEME.open(Shares(peers=shares.peers, values=bad, length=1))


def test_a_clear_vector_is_not_opened():
    with pytest.raises(ShareError, match="only shares can be opened, got ndarray"):
        SCHEME.open(np.arange(3))


@pytest.mark.parametrize("bad", [[], 3, np.zeros((0, 4), dtype=np.int64)])
def test_an_empty_vector_is_refused(bad):
    with pytest.raises(ShareError, match="only vectors of at least 1 number"):
        SCHEME.share(bad)


def test_real_numbers_are_refused():
    with pytest.raises(FieldError, match="encode real numbers with FixedPoint first"):
        SCHEME.share([0.5])


@pytest.mark.parametrize(
    ("points", "error", "message"),
    [
        ([0, 1, 2, 3], ShareError, "neither 0 nor one of the secrets' points"),
        ([1, 2, 3, Q - 1], ShareError, "neither 0 nor one of the secrets' points"),
        ([1, 2, 2, 3], FieldError, "distinct points, got 2 more than once"),
        ([1, 2, 3], ShareError, "4 peers need as many points, got 3"),
    ],
)
def test_bad_points_are_refused(points, error, message):
    with pytest.raises(error, match=message):
        Scheme(Tolerance(colluders=1).quorums(4), points=points)


def test_randomness_of_a_wrong_shape_is_refused():
    with pytest.raises(ShareError, match=r"randomness must have shape \(3, 1\), got \(2, 1\)"):
        SCHEME.share_with([1], Seeded(1).elements(2, 1))
