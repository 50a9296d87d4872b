import math

import numpy as np

from pdlrecover.field import Q, Seeded, SystemSource
from pdlrecover.recovery.noise import gaussian


def test_noise_is_standard_normal():
    """Kolmogorov's distance of 20,000 numbers of seed 0; a false alarm has a chance of 1e-6."""
    x = np.sort(gaussian(Seeded(0), 20_000))
    expected = np.array([(1 + math.erf(v / math.sqrt(2))) / 2 for v in x])
    steps = np.arange(20_001) / 20_000
    distance = max(np.abs(expected - steps[1:]).max(), np.abs(expected - steps[:-1]).max())
    assert distance * math.sqrt(20_000) < math.sqrt(math.log(2e6) / 2)


def test_neighbours_and_the_two_halves_are_not_correlated():
    """Correlations of 10,000 numbers of seed 1; a false alarm has a chance of 1e-6."""
    x = gaussian(Seeded(1), 20_000)
    for a, b in ((x[:10_000], x[10_000:]), (x[:-1:2], x[1::2])):
        assert abs(np.corrcoef(a, b)[0, 1]) < 4.9 / 100


def test_noise_has_the_shape_that_is_asked_for():
    assert gaussian(SystemSource(), 3, 5).shape == (3, 5)
    assert gaussian(SystemSource(), 1).shape == (1,)


def test_the_systems_noise_never_comes_twice_and_a_seeds_does():
    assert not np.array_equal(gaussian(SystemSource(), 9), gaussian(SystemSource(), 9))
    np.testing.assert_array_equal(gaussian(Seeded(5), 9), gaussian(Seeded(5), 9))


class Extremes:
    def elements(self, *shape):
        out = np.zeros(shape, dtype=np.int64)
        out[:, 1] = Q - 1
        return out


def test_the_extreme_elements_give_finite_numbers():
    x = gaussian(Extremes(), 4)
    assert np.isfinite(x).all()
    assert np.abs(x).max() == math.sqrt(2 * math.log(Q))
