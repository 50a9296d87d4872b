from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import OracleField

from pdlrecover.errors import LiarsError, ShareError, ToleranceError
from pdlrecover.field import F61, FixedPoint, Q, Seeded
from pdlrecover.sharing import (
    Scheme,
    Tolerance,
    add_masks,
    dot_public,
    dot_shared,
    dots_public,
    open_dots,
    zero_masks,
)

TRUTH = OracleField(Q)
SCHEME = Scheme.for_peers(30, Tolerance(colluders=4, dropouts=3, liars=3), products=True)
DOT, PRODUCT = SCHEME.quorums.dot_degree, SCHEME.quorums.product_degree


@given(length=st.integers(1, 40), seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_dot_with_a_public_vector_agrees_with_integers(length, seed):
    source = Seeded(seed)
    secret, public = source.elements(length), source.elements(length)
    mask = zero_masks(SCHEME, degree=DOT)
    opening = open_dots(SCHEME, dot_public(SCHEME, SCHEME.share(secret), public, mask))
    assert int(opening.values) == sum(map(lambda a, b: int(a) * int(b), secret, public)) % Q


@given(length=st.integers(1, 40), seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_dot_of_two_shared_vectors_agrees_with_integers(length, seed):
    source = Seeded(seed)
    a, b = source.elements(length), source.elements(length)
    mask = zero_masks(SCHEME, degree=PRODUCT)
    opening = open_dots(SCHEME, dot_shared(SCHEME, SCHEME.share(a), SCHEME.share(b), mask))
    assert int(opening.values) == sum(map(lambda x, y: int(x) * int(y), a, b)) % Q


def test_a_stack_gives_one_dot_product_each():
    stack, public = Seeded(1).elements(3, 20), Seeded(2).elements(20)
    mask = zero_masks(SCHEME, 3, degree=DOT)
    opening = open_dots(SCHEME, dot_public(SCHEME, SCHEME.share(stack), public, mask))
    np.testing.assert_array_equal(opening.values, TRUTH.matmul(stack, public[:, None])[:, 0])


def test_small_public_numbers_give_the_same_shares_as_large_ones():
    stack, public = Seeded(1).elements(3, 20), np.array([5, Q - 7] * 10)
    mask = zero_masks(SCHEME, 3, degree=DOT)
    shares = SCHEME.share(stack)
    small = dot_public(SCHEME, shares, public, mask)
    large = dot_public(SCHEME, shares, TRUTH.multiply(public, np.array(1 << 40)), mask)
    unmasked = [TRUTH.subtract(dots.values, mask.values) for dots in (small, large)]
    np.testing.assert_array_equal(TRUTH.multiply(unmasked[0], np.array(1 << 40)), unmasked[1])


def test_masks_of_all_peers_add_up_to_a_mask():
    secret, public = Seeded(1).elements(20), Seeded(2).elements(20)
    mask = add_masks([zero_masks(SCHEME, degree=DOT) for _ in range(30)])
    opening = open_dots(SCHEME, dot_public(SCHEME, SCHEME.share(secret), public, mask))
    assert int(opening.values) == F61.matmul(secret[None], public[:, None])[0, 0]


def test_masks_sum_to_zero_at_the_secrets_points_and_are_of_full_degree():
    mask = zero_masks(SCHEME, 2, degree=PRODUCT)
    points = SCHEME.points[: PRODUCT + 1].tolist()
    for k in range(2):
        values = mask.values[: PRODUCT + 1, k].tolist()
        at_secrets = [TRUTH.interpolate(points, values, z) for z in SCHEME.secret_points]
        assert sum(at_secrets) % Q == 0
        assert any(at_secrets)
        rest = [TRUTH.interpolate(points, values, x) for x in SCHEME.points[PRODUCT + 1 :]]
        assert rest == mask.values[PRODUCT + 1 :, k].tolist()
        lower = TRUTH.interpolate(points[:-1], values[:-1], points[-1])
        assert lower != values[-1]


def test_real_numbers_keep_their_precision():
    code = FixedPoint(peers=1, bound=10.0, length=20)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=20), rng.normal(size=20)
    shares = SCHEME.share(code.encode(x))
    mask = zero_masks(SCHEME, degree=DOT)
    public = F61.from_signed(np.rint(y * code.scale).astype(np.int64))
    opening = open_dots(SCHEME, dot_public(SCHEME, shares, public, mask))
    assert code.decode(opening.values, products=True) == pytest.approx(x @ y, abs=1e-4)


def test_liars_and_dropouts_are_survived():
    secret, public = Seeded(1).elements(2, 20), Seeded(2).elements(20)
    mask = zero_masks(SCHEME, 2, degree=DOT)
    dots = dot_public(SCHEME, SCHEME.share(secret), public, mask).of(range(3, 30))
    values = dots.values.copy()
    values[[0, 5]] = 17
    values[26, 1] = (values[26, 1] + 1) % Q
    opening = open_dots(SCHEME, replace(dots, values=values))
    assert opening.liars == (3, 8, 29)
    np.testing.assert_array_equal(opening.values, TRUTH.matmul(secret, public[:, None])[:, 0])


def test_too_many_liars_raise():
    mask = zero_masks(SCHEME, degree=PRODUCT)
    a = SCHEME.share(Seeded(1).elements(20))
    dots = dot_shared(SCHEME, a, a, mask)
    spare = 30 - PRODUCT - 1
    values = dots.values.copy()
    values[: spare // 2 + 1] = Seeded(3).elements(spare // 2 + 1)
    with pytest.raises(LiarsError):
        open_dots(SCHEME, replace(dots, values=values))


def test_too_few_responders_are_refused():
    mask = zero_masks(SCHEME, degree=DOT)
    dots = dot_public(SCHEME, SCHEME.share([1, 2]), [3, 4], mask)
    with pytest.raises(ShareError, match=f"at least {DOT + 1} peers, got {DOT}"):
        open_dots(SCHEME, dots.of(range(DOT)))


def test_a_public_vector_of_another_length_is_refused():
    mask = zero_masks(SCHEME, degree=DOT)
    with pytest.raises(ShareError, match=r"must have 2 numbers, got shape \(3,\)"):
        dot_public(SCHEME, SCHEME.share([1, 2]), [3, 4, 5], mask)


def test_a_mask_of_another_degree_is_refused():
    mask = zero_masks(SCHEME, degree=DOT)
    shares = SCHEME.share([1, 2])
    with pytest.raises(ShareError, match=f"needs a mask of degree {PRODUCT}, got {DOT}"):
        dot_shared(SCHEME, shares, shares, mask)


def test_shares_that_do_not_fit_are_refused():
    mask = zero_masks(SCHEME, degree=PRODUCT)
    with pytest.raises(ShareError, match=r"got 1 numbers of peers \(0, 1, 2\)… and 2 of"):
        dot_shared(SCHEME, SCHEME.share([1]), SCHEME.share([1, 2]), mask)
    a = SCHEME.share([1, 2, 3])
    mask = zero_masks(SCHEME, 2, degree=DOT)
    with pytest.raises(ShareError, match="in the same order"):
        dots_public(SCHEME, [a, a.of(reversed(range(30)))], np.array([1, 2, 3]), mask)
    with pytest.raises(ShareError, match="at least one shared vector, got none"):
        dots_public(SCHEME, [], np.array([1, 2, 3]), mask)


@pytest.mark.parametrize("factor", [1, 1 << 40])
def test_shares_of_another_plan_are_refused(factor):
    other = Scheme(Tolerance(colluders=4).quorums(30, packing=9))
    shares, mask = other.share(np.arange(9)), zero_masks(SCHEME, degree=DOT)
    with pytest.raises(ShareError, match="was it shared with another plan"):
        dot_public(SCHEME, shares, np.arange(9) * factor, mask)
    with pytest.raises(ShareError, match="was it shared with another plan"):
        dot_shared(SCHEME, shares, shares, mask)


@pytest.mark.parametrize("factor", [1, 1 << 40])
def test_several_shares_at_once_are_the_same_as_a_stack(factor):
    stack, public = Seeded(1).elements(3, 20), np.arange(-10, 10) * factor
    shares, mask = SCHEME.share(stack), zero_masks(SCHEME, 3, degree=DOT)
    several = [replace(shares, values=shares.values[:, k]) for k in range(3)]
    at_once = dots_public(SCHEME, several, public, mask)
    np.testing.assert_array_equal(
        at_once.values, dot_public(SCHEME, shares, public % Q, mask).values
    )


def test_masks_that_are_none_are_refused():
    with pytest.raises(ShareError, match="degree is at least"):
        zero_masks(SCHEME, degree=SCHEME.quorums.packing - 2)
    with pytest.raises(ShareError, match="got none to add up"):
        add_masks([])


def test_products_that_the_peers_could_never_open_are_refused():
    scheme = Scheme.for_peers(10, Tolerance(colluders=4))
    with pytest.raises(ToleranceError, match="plan with products=True"):
        zero_masks(scheme, degree=scheme.quorums.product_degree)
