"""Honest sums are within the bounds, whatever their rounding; those of liars are not."""

import numpy as np
import pytest

from pdlrecover.engines.bounds import Bounds, checked_sum
from pdlrecover.errors import RangeError
from pdlrecover.field import FixedPoint

LENGTH = 257


def bounds(bound=10.0, samples=100, fraction_bits=20):
    return Bounds(fraction_bits=fraction_bits, bound=bound, length=LENGTH, samples=samples)


def dealt(rng, each, weight, fraction_bits=20):
    """Return what a peer deals whose update is as long as the bound allows."""
    one = 1 << fraction_bits
    update = rng.standard_normal(LENGTH)
    update *= each / np.linalg.norm(update)
    return np.append(np.rint(update * one), np.rint(weight * one)).astype(np.int64)


@pytest.mark.parametrize("bound", [1e-6, 0.03, 1.0, 10.0, 12345.678])
@pytest.mark.parametrize("fraction_bits", [4, 20])
@pytest.mark.parametrize("peers", [1, 3, 10])
def test_no_sum_of_honest_dealings_is_void(bound, fraction_bits, peers):
    """The worst case: all deal the same update, of the largest norm, or the smallest weight."""
    rng = np.random.default_rng(3)
    agreed = bounds(bound, fraction_bits=fraction_bits)
    for weight in (1.0, 1 / 100):
        if round(weight * 2**fraction_bits):
            one = dealt(rng, bound, weight, fraction_bits)
            agreed.check(peers * one, peers)
            code = FixedPoint(
                peers=10,
                bound=float(np.hypot(bound, 1.0)),
                length=LENGTH + 1,
                fraction_bits=fraction_bits,
            )
            Bounds.of(code).check(peers * one, peers)


@pytest.mark.parametrize("bound", [1e-4, 0.03, 1.0, 10.0, 12345.678])
def test_the_bounds_of_an_encoding_are_those_that_it_was_made_for(bound):
    code = FixedPoint(peers=3, bound=float(np.hypot(bound, 1.0)), length=LENGTH + 1)
    found = Bounds.of(code)
    assert bound <= found.bound <= bound * (1 + 1e-6)
    assert (found.length, found.fraction_bits) == (LENGTH, 20)


@pytest.mark.parametrize("weight", [0, -1, 1, 3 * (1 << 20) + 1, 1 << 59, -(1 << 59)])
def test_weights_that_honest_peers_cannot_have_are_void(weight):
    """Three peers with a sample or more of a hundred each have at least 0.03 and at most 3."""
    opened = np.zeros(LENGTH + 1, dtype=np.int64)
    opened[-1] = weight
    with pytest.raises(RangeError, match="the weights add up to"):
        checked_sum(bounds(), opened, 3)


@pytest.mark.parametrize(("size", "within"), [(29.9, True), (30.1, False)])
def test_a_norm_beyond_the_bound_times_the_dealers_is_void(size, within):
    opened = dealt(np.random.default_rng(0), size, 1.0)
    if within:
        assert checked_sum(bounds(), opened, 3).weight == 1.0
    else:
        with pytest.raises(RangeError, match=r"a norm of 30\.1"):
            checked_sum(bounds(), opened, 3)


def test_one_number_at_the_end_of_the_field_is_void():
    opened = np.zeros(LENGTH + 1, dtype=np.int64)
    opened[0], opened[-1] = -(1 << 60) + 1, 1 << 20
    with pytest.raises(RangeError, match="the updates' sum has a norm"):
        checked_sum(bounds(), opened, 3)


def test_a_direction_may_be_as_long_as_its_coefficients_are_large():
    """Two stored sums of three peers, and a pair (two sums) with coefficient −1.5."""
    rng, one = np.random.default_rng(5), 1 << 20
    each = 3 * dealt(rng, 10.0, 1.0)
    pair = 2 * each
    pair[-1] = 0
    opened = 2 * one * each + round(1.5 * one) * pair
    stored, size = 6 * one, 6 * one + 2 * 3 * round(1.5 * one)
    found = checked_sum(bounds(), opened, size, weights=stored, scale=one)
    assert found.weight == 6.0
    with pytest.raises(RangeError, match="norm"):
        checked_sum(bounds(), opened, size - one, weights=stored, scale=one)


def test_a_sum_of_no_dealings_is_zero():
    assert checked_sum(bounds(), np.zeros(LENGTH + 1, dtype=np.int64), 0).weight == 0.0
