"""Toeplitz products by Fourier transforms, against the matrix written down."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdlrecover.errors import FieldError
from pdlrecover.field import F61, Q, Seeded
from pdlrecover.field.convolution import LIMBS, WORST, Toeplitz, limbs_for, worst_error

HALF = (Q - 1) // 2


def written(kernel, columns):
    """Return T[t, i] = g[t − i + m − 1]."""
    rows = len(kernel) - columns + 1
    return kernel[np.arange(rows)[:, None] - np.arange(columns) + columns - 1]


@given(rows=st.integers(1, 70), columns=st.integers(1, 70), width=st.integers(1, 4))
@settings(max_examples=60)
def test_products_are_those_of_the_matrix_written_down(rows, columns, width):
    source = Seeded(f"{rows} {columns} {width}")
    kernel, b = source.elements(rows + columns - 1), source.elements(columns, width)
    found = Toeplitz(kernel, columns).product(b)
    np.testing.assert_array_equal(found, F61.matmul(written(kernel, columns), b))


@pytest.mark.parametrize("extreme", [HALF, HALF + 1, Q - 1, 0, (1 << 44) + (1 << 14)])
@pytest.mark.parametrize("size", [5, 3000])
def test_products_of_extreme_elements_are_exact(extreme, size):
    """All limbs as large as they get, and all of one sign, so that sums are, too."""
    kernel = np.full(2 * size - 1, extreme)
    found = Toeplitz(kernel, size).product(np.full((size, 1), extreme))
    assert found[:, 0].tolist() == [size * extreme * extreme % Q] * size


def test_more_limbs_are_taken_where_sums_are_longer():
    assert [limbs_for(n // 2, n) for n in (1000, 10_000, 1_000_000)] == [4, 5, 6]
    for n in (1000, 10_000, 1_000_000):
        limbs = limbs_for(n // 2, n)
        assert worst_error(n // 2, n, limbs) <= WORST
        assert limbs == LIMBS[0] or worst_error(n // 2, n, LIMBS[LIMBS.index(limbs) - 1]) > WORST


def test_errors_stay_far_below_their_bound(monkeypatch):
    """What is rounded away in a product of random elements, beside what the bound allows for."""
    source, seen, rint = Seeded(1), [], np.rint
    toeplitz = Toeplitz(source.elements(5000), 2000)
    monkeypatch.setattr(np, "rint", lambda x: seen.append(np.abs(x - rint(x)).max()) or rint(x))
    toeplitz.product(source.elements(2000, 2))
    assert 0 < max(seen) < worst_error(2000, 5000, limbs_for(2000, 5000)) / 4


def test_what_does_not_fit_together_is_refused():
    with pytest.raises(FieldError, match=r"3 columns needs a kernel .* got 2"):
        Toeplitz(Seeded(0).elements(2), 3)
    with pytest.raises(FieldError, match=r"needs 3 rows, got shape \(2, 4\)"):
        Toeplitz(Seeded(0).elements(5), 3).product(Seeded(0).elements(2, 4))
    with pytest.raises(FieldError, match="too long to be exact"):
        limbs_for(1 << 50, 1 << 51)
