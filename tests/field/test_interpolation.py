import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import OracleField

from pdlrecover.errors import FieldError
from pdlrecover.field import F61, Q, Seeded, barycentric_weights, lagrange_rows

TRUTH = OracleField(Q)
points = st.lists(st.integers(0, Q - 1), min_size=1, max_size=12, unique=True)
targets = st.lists(st.integers(0, Q - 1), min_size=1, max_size=5)


@given(points=points, targets=targets)
@settings(max_examples=50)
def test_rows_agree_with_lagrange_in_integers(points, targets):
    targets = [*targets, points[0]]  # a target may be one of the points
    values = Seeded(str(points)).elements(len(points))
    found = F61.matmul(lagrange_rows(F61, points, targets), values[:, None])[:, 0]
    assert found.tolist() == [TRUTH.interpolate(points, values, z) for z in targets]


def test_a_target_that_is_a_point_gives_a_unit_row():
    assert lagrange_rows(F61, [3, 5, 9], [5]).tolist() == [[0, 1, 0]]


def test_polynomials_are_reproduced_everywhere():
    coefficients = Seeded(3).elements(7)
    x = [1, 2, 3, 4, 5, 6, 7]
    values = np.array([TRUTH.evaluate(coefficients, p) for p in x])
    rows = lagrange_rows(F61, x, [0, Q - 1, 12345])
    assert F61.matmul(rows, values[:, None])[:, 0].tolist() == [
        TRUTH.evaluate(coefficients, z) for z in (0, Q - 1, 12345)
    ]


def test_weights_agree_with_their_definition():
    x = np.array([1, 4, 6])
    expected = [pow((1 - 4) * (1 - 6), -1, Q), pow((4 - 1) * (4 - 6), -1, Q)]
    assert barycentric_weights(F61, x)[:2].tolist() == expected


def test_repeated_points_are_refused():
    with pytest.raises(FieldError, match="distinct points, got 5 more than once"):
        lagrange_rows(F61, [5, 2, 5], [0])


def test_no_points_are_refused():
    with pytest.raises(FieldError, match="needs a list of points"):
        lagrange_rows(F61, np.zeros(0, dtype=np.int64), [0])
