import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pdlrecover.errors import RangeError
from pdlrecover.field import F61, FixedPoint, Q

CODE = FixedPoint(peers=10, bound=5.0, length=3)
floats = st.floats(-2.5, 2.5)


def public_column(y):
    return F61.from_signed(np.rint(y * 2**20).astype(np.int64))[:, None]


@given(x=arrays(np.float64, 3, elements=floats))
def test_decoding_gives_the_nearest_step(x):
    assert np.abs(CODE.decode(CODE.encode(x)) - x).max() <= 2.0**-21


@given(stack=arrays(np.float64, (10, 3), elements=floats))
def test_sums_in_the_field_are_sums_of_the_rounded_numbers(stack):
    total = F61.sum(CODE.encode(stack), axis=0)
    np.testing.assert_array_equal(CODE.decode(total), np.rint(stack * 2**20).sum(axis=0) / 2**20)


@given(x=arrays(np.float64, 3, elements=floats), y=arrays(np.float64, 3, elements=floats))
def test_dot_products_have_twice_the_fraction_bits(x, y):
    dot = F61.matmul(CODE.encode(x)[None], public_column(y))[0, 0]
    rounded = np.rint(x * 2**20).astype(object) @ np.rint(y * 2**20).astype(object)
    assert CODE.decode(np.asarray(dot), products=True) == int(rounded) / 2.0**40


def test_the_largest_sums_and_dot_products_do_not_wrap():
    code = FixedPoint(peers=200, bound=10.0, length=80_000)
    worst = np.zeros(80_000)
    worst[0] = -10.0
    total = F61.multiply(code.encode(worst), np.asarray(200))
    assert code.decode(total)[0] == -2000.0
    public = np.zeros(80_000)
    public[0] = code.public_bound
    dot = F61.matmul(total[None], public_column(public))[0, 0]
    assert code.decode(np.asarray(dot), products=True) == pytest.approx(-2000 * code.public_bound)


def test_headroom_is_what_cauchy_schwarz_allows():
    code = FixedPoint(peers=200, bound=10.0, length=80_000)
    norm = 200 * (2**20 * 10.0 + math.sqrt(80_000) / 2)
    allowed = ((Q - 1) / 2 / norm - math.sqrt(80_000) / 2) / 2**20
    assert code.public_bound == pytest.approx(allowed, rel=1e-6)


@pytest.mark.parametrize(("peers", "bound"), [(1000, 1e12), (7, 3e13), (200, 1e17), (3, 1e30)])
def test_a_federation_that_cannot_fit_is_refused_and_every_advice_works(peers, bound):
    with pytest.raises(RangeError, match="does not fit the field") as refusal:
        FixedPoint(peers=peers, bound=bound, length=10)
    advice = str(refusal.value).split("; ")[1].split(" or ")
    lower = float(advice[0].removeprefix("lower the bound to "))
    FixedPoint(peers=peers, bound=lower, length=10)
    for way in advice[1:]:
        bits = int(way.split()[1])
        FixedPoint(peers=peers, bound=bound, length=10, fraction_bits=bits)
        with pytest.raises(RangeError):
            FixedPoint(peers=peers, bound=bound, length=10, fraction_bits=bits + 1)


def test_combinations_up_to_the_bound_do_not_wrap():
    code = FixedPoint(peers=3, bound=1e9, length=2, fraction_bits=10)
    largest = code.coefficient_bound(2)
    coefficient = round(largest * 2**10 / 2)
    total = F61.multiply(code.encode([1e9, 0.0]), np.asarray(3))
    combined = F61.combine([coefficient, coefficient], [total, total])
    assert int(combined[0]) == 2 * coefficient * 3 * 10**9 * 2**10 < Q // 2


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused(bad):
    with pytest.raises(RangeError, match=r"cannot encode (nan|inf|-inf) at index \[1\]"):
        CODE.encode([0.0, bad, 0.0])


def test_a_vector_beyond_the_bound_is_refused():
    with pytest.raises(RangeError, match=r"norm 5.19615 exceeds the bound of 5"):
        CODE.encode([3.0, 3.0, 3.0])


def test_a_vector_just_clipped_to_the_bound_is_taken():
    x = np.random.default_rng(0).normal(size=80_000)
    code = FixedPoint(peers=2, bound=1.0, length=80_000)
    assert code.encode(x / np.linalg.norm(x)).shape == (80_000,)


@pytest.mark.parametrize("bad", [[1j, 0, 0], ["1", "2", "3"], [True, False, True]])
def test_what_is_no_real_number_is_refused(bad):
    with pytest.raises(RangeError, match="only real numbers"):
        CODE.encode(bad)


@pytest.mark.parametrize("bad", [[], [1.0], 1.0, [[1.0, 2.0]]])
def test_a_vector_of_another_length_is_refused(bad):
    with pytest.raises(RangeError, match="must have 3 numbers, got shape"):
        CODE.encode(np.array(bad))


@pytest.mark.parametrize(
    "bad",
    [{"peers": 0}, {"bound": 0.0}, {"bound": math.nan}, {"length": 0}, {"fraction_bits": 61}],
)
def test_a_senseless_encoding_is_refused(bad):
    with pytest.raises(RangeError, match="got"):
        FixedPoint(**{"peers": 2, "bound": 1.0, "length": 1} | bad)
