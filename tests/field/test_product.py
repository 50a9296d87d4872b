import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import OracleField

from pdlrecover.errors import FieldError
from pdlrecover.field import EXACT_INNER, F61, Q, Seeded, product

TRUTH = OracleField(Q)
WORST_LIMBS = Q - (1 << 21)  # x₀ and x₂ at their largest, and sums that are odd


@given(
    rows=st.integers(1, 6),
    inner=st.integers(1, 40),
    columns=st.integers(1, 6),
    seed=st.integers(0, 1 << 32),
)
@settings(max_examples=50)
def test_products_agree_with_integers(rows, inner, columns, seed):
    source = Seeded(seed)
    a, b = source.elements(rows, inner), source.elements(inner, columns)
    np.testing.assert_array_equal(F61.matmul(a, b), TRUTH.matmul(a, b))


@pytest.mark.parametrize("inner", [EXACT_INNER - 1, EXACT_INNER, EXACT_INNER + 1, 2 * EXACT_INNER])
@pytest.mark.parametrize("value", [0, Q - 1, WORST_LIMBS, (1 << 42) - 1])
def test_the_largest_elements_are_exact_at_the_bound(inner, value):
    a, b = np.full((2, inner), value), np.full((inner, 3), value)
    assert (F61.matmul(a, b) == inner * value * value % Q).all()


def test_the_bound_is_where_float64_stops_being_exact():
    assert EXACT_INNER == 682
    assert EXACT_INNER * 3 * 2**42 <= 2**53 < (EXACT_INNER + 1) * 3 * 2**42


def test_one_term_more_than_the_bound_would_round(monkeypatch):
    """The test above can fail: with a longer piece the worst elements come out wrong."""
    monkeypatch.setattr(product, "EXACT_INNER", 2 * EXACT_INNER)
    inner = 2 * EXACT_INNER - 1
    a, b = np.full((1, inner), WORST_LIMBS), np.full((inner, 1), WORST_LIMBS)
    assert F61.matmul(a, b)[0, 0] != inner * WORST_LIMBS * WORST_LIMBS % Q


def test_a_longer_inner_dimension_never_reaches_blas():
    with pytest.raises(AssertionError, match="would round"):
        product._blocks(np.zeros((1, EXACT_INNER + 1), dtype=np.int64))


@pytest.mark.parametrize(
    "shape", [(3, 1500, 2), (2000, 5, 1500), (1, 700, 2100), (2100, 3, 1), (1025, 683, 1025)]
)
def test_tiles_and_pieces_fit_together(shape):
    rows, inner, columns = shape
    source = Seeded(7)
    a, b = source.elements(rows, inner), source.elements(inner, columns)
    whole = F61.matmul(a, b)
    for i, j in [(0, 0), (rows - 1, columns - 1), (rows // 2, columns // 3), (0, columns - 1)]:
        assert whole[i, j] == sum(int(x) * int(y) for x, y in zip(a[i], b[:, j], strict=True)) % Q
    assert whole.min() >= 0
    assert whole.max() < Q


def test_views_with_strides_are_taken_as_they_are():
    big = Seeded(1).elements(40, 60)
    a, b = big[::2, 1:31], big.T[5:35, ::3]
    np.testing.assert_array_equal(F61.matmul(a, b), TRUTH.matmul(a, b))


def test_result_can_be_written_in_place():
    source = Seeded(2)
    a, b, out = source.elements(4, 9), source.elements(9, 3), np.zeros((6, 3), dtype=np.int64)
    F61.matmul(a, b, out=out[1:5])
    np.testing.assert_array_equal(out[1:5], TRUTH.matmul(a, b))
    assert not out[[0, 5]].any()


def test_empty_products_are_zero():
    nothing = np.zeros((3, 0), dtype=np.int64)
    assert not F61.matmul(nothing, nothing.T).any()
    assert F61.matmul(nothing.T, nothing).shape == (0, 0)
    assert F61.matmul(nothing[:0], np.zeros((0, 5), dtype=np.int64)).shape == (0, 5)


@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 30, 4), (3, 4097, 2), (2, 9000, 1)])
def test_small_products_agree_with_integers(shape):
    rows, inner, columns = shape
    a = Seeded("small").elements(rows, inner)
    a[0], a[-1, -1] = Q - 1, 0
    limit = product.SMALL
    b = np.random.default_rng(0).integers(-limit + 1, limit, (inner, columns))
    b[:2] = limit - 1
    b[-1] = 1 - limit
    expected = TRUTH.matmul(a, b % Q).T
    for numbers in (b, b.astype(np.float64)):
        found = F61.small_products([F61.prepared(a), F61.prepared(a[::-1])], numbers)
        np.testing.assert_array_equal(found[:, 0], expected)
        np.testing.assert_array_equal(found[:, 1], expected[:, ::-1])


@pytest.mark.parametrize("sign", [1, -1])
def test_small_products_of_the_largest_elements_are_exact(sign):
    limit, exact = product.SMALL, product.EXACT_SMALL
    for value in (Q - 1, WORST_LIMBS):
        a, b = np.full((2, exact), value), np.full((exact, 1), sign * (limit - 1))
        expected = sign * exact * value * (limit - 1) % Q
        assert (F61.small_products([F61.prepared(a)], b) == expected).all()


def test_longer_small_products_would_round(monkeypatch):
    monkeypatch.setattr(product, "EXACT_SMALL", 1 << 14)
    with pytest.raises(AssertionError):
        F61.prepared(np.ones((1, 3), dtype=np.int64))


@pytest.mark.parametrize("b", [np.ones((4, 1), dtype=np.int64), np.full((3, 1), 1 << 20)])
def test_integers_that_are_not_small_or_do_not_fit_are_refused(b):
    with pytest.raises(FieldError, match="small products need 3 rows of integers below 1048576"):
        F61.small_products([F61.prepared(np.ones((1, 3), dtype=np.int64))], b)


def test_room_of_another_shape_or_dtype_is_refused():
    a = np.ones((3, 2), dtype=np.int64)
    with pytest.raises(FieldError, match=r"has shape \(3, 3\), got room for \(2, 3\)"):
        F61.matmul(a, a.T, out=np.zeros((2, 3), dtype=np.int64))
    with pytest.raises(FieldError, match="got an array of float64"):
        F61.matmul(a, a.T, out=np.zeros((3, 3)))
