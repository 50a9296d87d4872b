import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import OracleField

from pdlrecover.errors import FieldError
from pdlrecover.field import (
    F61,
    Interpolation,
    Q,
    Seeded,
    barycentric_weights,
    interpolation,
    lagrange_rows,
)

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


@st.composite
def close_together(draw):
    """Draw points and targets as sharing has them: whole numbers of either sign, in any order."""
    known = draw(st.lists(st.integers(-30, 60), min_size=1, max_size=40, unique=True))
    wanted = draw(st.lists(st.integers(-30, 60), min_size=1, max_size=40))
    return np.array(known) % Q, np.array(wanted) % Q


@given(both=close_together())
@settings(max_examples=100)
def test_a_matrix_that_is_not_written_down_gives_the_same_values(both):
    points, targets = both
    values = Seeded(str(both)).elements(len(points), 3)
    written = Interpolation(F61, points, targets)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpolation, "WRITTEN", 0)
        patch.setattr(interpolation, "SPREAD", 100)
        other = Interpolation(F61, points, targets)
        assert written.is_written
        assert not other.is_written
        np.testing.assert_array_equal(other.values(values), written.values(values))
        np.testing.assert_array_equal(other.total(values), written.total(values))
        room = np.empty((len(targets), 3), dtype=np.int64)
        other.values(values, out=room)
        np.testing.assert_array_equal(room, written.values(values))


def test_a_matrix_between_points_far_apart_is_written_down_however_large(monkeypatch):
    monkeypatch.setattr(interpolation, "WRITTEN", 0)
    assert Interpolation(F61, [1, 10**9, 2], [0]).is_written
    assert Interpolation(OracleField(1009), [1, 2, 3], [0]).is_written
    assert not Interpolation(F61, [1, 2, 3], [0, Q - 1]).is_written


@given(points=st.lists(st.integers(-50, 50), min_size=1, max_size=60, unique=True))
@settings(max_examples=50)
def test_weights_of_points_close_together_agree_with_their_definition(points):
    x = np.array(points) % Q
    expected = []
    for i, one in enumerate(points):
        others = [one - other for j, other in enumerate(points) if j != i]
        expected.append(pow(math.prod(others), -1, Q))
    assert barycentric_weights(F61, x).tolist() == expected


def test_rows_and_weights_are_the_same_piece_by_piece(monkeypatch):
    x, z = Seeded(1).elements(9), Seeded(2).elements(7)
    whole = lagrange_rows(F61, x, z), barycentric_weights(F61, x)
    monkeypatch.setattr(interpolation, "_PIECE", 20)
    np.testing.assert_array_equal(lagrange_rows(F61, x, z), whole[0])
    np.testing.assert_array_equal(barycentric_weights(F61, x), whole[1])
