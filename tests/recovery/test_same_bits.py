import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pdlrecover.recovery import same_bits

vectors = st.integers(1, 70).flatmap(lambda n: arrays(np.float64, n, elements=st.floats(-1e3, 1e3)))


@given(x=vectors)
def test_folding_adds_everything_up(x):
    assert float(same_bits.fold(x.copy())) == pytest.approx(math.fsum(x), abs=1e-9)


def test_the_order_of_a_fold_is_what_it_says():
    x = np.array([1e16, 1.0, -1e16, 1.0, 3.0])
    # halves of 5: (x0+x3, x1+x4, x2), then (x0+x3+x2, x1+x4), then their sum
    assert float(same_bits.fold(x)) == ((1e16 + 1.0) + -1e16) + (1.0 + 3.0)


def test_rows_are_folded_each_by_itself():
    rows, x = np.arange(12.0).reshape(3, 4), np.array([1.0, -1.0, 2.0, 0.5])
    np.testing.assert_allclose(same_bits.dots(rows, x), rows @ x, rtol=1e-15)


@given(seed=st.integers(0, 1000), size=st.integers(1, 8))
def test_small_systems_are_solved(seed, size):
    rng = np.random.default_rng(seed)
    matrix, right = rng.normal(size=(size, size)), rng.normal(size=size)
    found = same_bits.solve(matrix.tolist(), right.tolist())
    np.testing.assert_allclose(matrix @ found, right, atol=1e-8)


@pytest.mark.parametrize(
    "matrix", [[[1.0, 2.0], [2.0, 4.0]], [[0.0, 0.0], [1.0, 1.0]], [[math.nan, 1.0], [1.0, 1.0]]]
)
def test_systems_without_one_solution_have_none(matrix):
    assert same_bits.solve(matrix, [1.0, 1.0]) is None


def test_powers_of_two():
    assert [same_bits.power_of_two_below(x) for x in (1.0, 1.9, 2.0, 0.3, 1000)] == [
        1.0,
        1.0,
        2.0,
        0.25,
        512.0,
    ]
