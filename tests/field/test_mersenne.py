import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from oracle import OracleField

from pdlrecover.errors import FieldError
from pdlrecover.field import F61, Q, Seeded

TRUTH = OracleField(Q)
EXTREMES = [0, 1, 2, (1 << 30) - 1, 1 << 30, (1 << 31) - 1, 1 << 31, (1 << 60), Q - 2, Q - 1]

numbers = st.one_of(st.sampled_from(EXTREMES), st.integers(0, Q - 1))
vectors = st.integers(1, 20).flatmap(lambda n: arrays(np.int64, n, elements=numbers))
pairs = st.integers(1, 20).flatmap(
    lambda n: st.tuples(
        arrays(np.int64, n, elements=numbers), arrays(np.int64, n, elements=numbers)
    )
)


LARGEST = (Q - 1) // 2
signed = st.one_of(st.sampled_from([-LARGEST, -1, 0, 1, LARGEST]), st.integers(-LARGEST, LARGEST))


@given(integers=st.integers(0, 20).flatmap(lambda n: arrays(np.int64, n, elements=signed)))
def test_signed_integers_come_back_from_the_field(integers):
    elements = F61.from_signed(integers)
    np.testing.assert_array_equal(F61.elements(elements), TRUTH.from_signed(integers))
    np.testing.assert_array_equal(F61.to_signed(elements), integers)


@given(elements=vectors)
def test_elements_come_back_from_signed_integers_of_at_most_half_the_modulus(elements):
    integers = F61.to_signed(elements)
    assert np.abs(integers).max() <= LARGEST
    np.testing.assert_array_equal(integers, TRUTH.to_signed(elements))
    np.testing.assert_array_equal(F61.from_signed(integers), elements)


@pytest.mark.parametrize("operation", ["add", "subtract", "multiply"])
@given(pair=pairs)
def test_elementwise_operations_agree_with_integers(operation, pair):
    x, y = pair
    np.testing.assert_array_equal(getattr(F61, operation)(x, y), getattr(TRUTH, operation)(x, y))


@pytest.mark.parametrize("operation", ["add", "subtract", "multiply"])
def test_extremes_agree_with_integers_in_every_combination(operation):
    x, y = np.array(EXTREMES)[:, None], np.array(EXTREMES)[None, :]
    np.testing.assert_array_equal(getattr(F61, operation)(x, y), getattr(TRUTH, operation)(x, y))


@given(x=vectors)
def test_sum_agrees_with_integers(x):
    assert int(F61.sum(x, axis=0)) == sum(map(int, x)) % Q


def test_sum_of_many_largest_elements_does_not_overflow():
    x = np.full((3, 100_000), Q - 1)
    np.testing.assert_array_equal(F61.sum(x, axis=1), [-100_000 % Q] * 3)
    np.testing.assert_array_equal(F61.sum(x, axis=0), [-3 % Q] * 100_000)


@given(x=vectors)
def test_inverse_times_element_is_one(x):
    x = np.where(x == 0, 1, x)
    np.testing.assert_array_equal(F61.inverse(x), TRUTH.inverse(x))
    assert (F61.multiply(x, F61.inverse(x)) == 1).all()


def test_inverse_keeps_shape_and_takes_nothing():
    assert F61.inverse(np.full((2, 3), 5)).shape == (2, 3)
    assert F61.inverse(np.zeros(0, dtype=np.int64)).shape == (0,)


def test_operations_leave_their_arguments_alone():
    x, y = np.array([Q - 1, 5]), np.array([Q - 1, 7])
    for operation in (F61.add, F61.subtract, F61.multiply):
        operation(x, y)
    F61.inverse(x), F61.sum(x, axis=0), F61.matmul(x[None], y[:, None])
    F61.to_signed(x), F61.from_signed(y)
    assert x.tolist() == [Q - 1, 5]
    assert y.tolist() == [Q - 1, 7]


def test_single_numbers_are_arrays_without_dimensions():
    three = F61.elements(3)
    assert int(F61.add(three, three)) == 6
    assert F61.to_signed(F61.from_signed(three)).shape == ()
    assert int(F61.multiply(F61.sum(np.array([1, 2]), axis=0), three)) == 9


def test_inverse_of_zero_raises_and_says_where():
    with pytest.raises(FieldError, match="zero has no inverse: it stands at index 1"):
        F61.inverse(np.array([4, 0]))
    with pytest.raises(FieldError, match=r"index \(1, 0\)"):
        F61.inverse(np.array([[4, 1], [0, 1]]))


@pytest.mark.parametrize("bad", [[1.5], [True], ["1"], [float("nan")]])
def test_elements_refuses_what_is_not_an_integer(bad):
    with pytest.raises(FieldError, match="must be integers, got dtype"):
        F61.elements(bad)


@pytest.mark.parametrize("bad", [[-1], [Q], np.array([1 << 63], dtype=np.uint64)])
def test_elements_refuses_what_is_out_of_range(bad):
    with pytest.raises(FieldError, match="must lie in 0 ≤ x < 2"):
        F61.elements(bad)


def test_elements_takes_any_integer_dtype():
    for dtype in (np.int32, np.uint8, np.uint64, np.int64):
        assert F61.elements(np.array([7], dtype=dtype)).dtype == np.int64


@pytest.mark.parametrize("bad", [np.array([1.0]), np.array([1], dtype=np.int32), 1])
def test_operations_refuse_a_wrong_dtype(bad):
    with pytest.raises(FieldError, match=r"int64 arrays, got (an array of|int)"):
        F61.add(bad, np.array([1]))


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(FieldError, match=r"needs shapes \(m, k\) and \(k, n\), got \(2, 2\)"):
        F61.matmul(np.ones((2, 2), dtype=np.int64), np.ones((3, 2), dtype=np.int64))


def test_large_products_are_the_same_in_parts():
    x, y = Seeded(1).elements(70, 3, 1000), Seeded(2).elements(3, 1000)
    whole = F61.multiply(x, y)
    for row, part in zip(whole, x, strict=True):
        np.testing.assert_array_equal(
            row, np.stack([F61.multiply(a, b) for a, b in zip(part, y, strict=True)])
        )
    np.testing.assert_array_equal(F61.multiply(x, np.asarray(3)), F61.add(F61.add(x, x), x))


@pytest.mark.parametrize(
    "coefficients", [[3, -5, 0], [2**31 - 3, 1, -1], [-(2**31) + 1, 0, 0], [2**40, -1, 7]]
)
def test_combinations_agree_with_integers(coefficients):
    arrays = [np.concatenate([Seeded(k).elements(50_000), EXTREMES]) for k in range(3)]
    expected = TRUTH.matmul(np.array([[c % Q for c in coefficients]]), np.stack(arrays)[:, -60:])
    np.testing.assert_array_equal(F61.combine(coefficients, arrays)[-60:], expected[0])


def test_combinations_of_arrays_that_do_not_fit_are_refused():
    three, five = np.ones(3, dtype=np.int64), np.ones(5, dtype=np.int64)
    with pytest.raises(FieldError, match="arrays of one shape"):
        F61.combine([1, 1], [three, five])
    with pytest.raises(FieldError, match="got 1 coefficients"):
        F61.combine([1], [three, three])
