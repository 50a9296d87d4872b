"""The sums that bring inputs to one scale: near numpy's, within bounds, and void beyond them."""

import math

import numpy as np
import pytest

from pdlrecover.errors import DataError, PlanError, RangeError
from pdlrecover.field import F61
from pdlrecover.recovery.requests import Moments
from pdlrecover.recovery.standardisation import Standardise, standardising

SIZES = (40, 7, 1, 90)
PEERS, MOST = 4, 90
SHAPE = (2, 3, 4)


def terms(shape=SHAPE, peers=PEERS, samples=MOST, **chosen):
    return Standardise(**chosen).terms(shape, peers=peers, samples=samples)


def samples(shape=SHAPE, sizes=SIZES, seed=0):
    """Return each peer's samples; features have means and spreads of many sizes."""
    rng = np.random.default_rng(seed)
    spread, centre = 10.0 ** rng.uniform(-3, 2, shape), rng.normal(0, 100, shape)
    return [(centre + spread * rng.normal(size=(n, *shape))).astype(np.float32) for n in sizes]


def opened(agreed, data, lies=None):
    """Go through the method; `lies` changes what is opened. Return m and s, and the void's why."""
    method, answer, why = standardising(agreed.groups), None, None
    while True:
        try:
            request = method.send(answer)
        except StopIteration as end:
            return *end.value.reshape(2, -1), why
        total = np.sum([agreed.deal(x, request.order, request.at) for x in data], axis=0)
        total = total if lies is None else lies(request, total)
        try:
            answer = agreed.decode(request, total, len(data))
        except RangeError as error:
            answer, why = None, str(error)


def reduced(data, per):
    """Return numpy's mean and deviation in double precision."""
    x = np.concatenate(data).astype(np.float64)
    axes = {"feature": (0,), "channel": (0, 2, 3), "all": (0, 1, 2, 3)}[per]
    return x.mean(axis=axes).ravel(), x.std(axis=axes).ravel()


@pytest.mark.parametrize("per", ["feature", "channel", "all"])
def test_mean_and_deviation_are_numpys_but_for_the_rounding_of_sums(per):
    """Each of p peers rounds its sum by half a step at most: m is off by p·2^−f/(2·k·N).

    So is s², and by the square of that; what double precision adds is far below.
    """
    agreed, data = terms(per=per), samples()
    mean, std, _ = opened(agreed, data)
    true_mean, true_std = reduced(data, per)
    numbers = sum(SIZES) * agreed.elements
    first, second = (len(SIZES) * 2.0 ** -agreed.bits(order) / 2 / numbers for order in (1, 2))
    assert (np.abs(mean - true_mean) <= first + 1e-12 * np.abs(true_mean)).all()
    assert (np.abs(std**2 - true_std**2) <= second + first**2 + 1e-11 * true_mean**2).all()


def test_a_map_by_them_gives_mean_0_and_deviation_1():
    mean, std, _ = opened(terms(), data := samples())
    mapped = (np.concatenate(data).reshape(-1, 24) - mean) / std
    np.testing.assert_allclose(mapped.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(mapped.std(axis=0), 1, atol=1e-3)


@pytest.mark.parametrize("value", [0.0, 0.1, -999.9, 1 / 3])
def test_a_feature_without_spread_gets_the_deviation_1(value):
    data = [np.full((n, 3), value, dtype=np.float32) for n in SIZES]
    data[0][0, 1] += 0.5
    mean, std, _ = opened(terms(shape=(3,)), data)
    assert std[[0, 2]].tolist() == [1, 1]
    assert 0 < std[1] < 1
    np.testing.assert_allclose(mean[[0, 2]], np.float32(value), rtol=1e-12)


def test_numbers_beyond_the_bound_count_as_the_bound_and_are_counted():
    agreed, data = terms(shape=(2,), bound=5.0), samples(shape=(2,))
    data[0][:3, 0] = [1e30, -7, 5]
    mean, *_ = opened(agreed, data)
    clipped = [np.clip(x, -5, 5) for x in data]
    np.testing.assert_allclose(mean, np.concatenate(clipped).mean(axis=0, dtype=float), rtol=1e-9)
    assert [agreed.clipped(x) for x in data] == [int((np.abs(x) > 5).sum()) for x in data]
    assert agreed.clipped(data[0]) >= 2


def test_a_peer_deals_the_same_whatever_the_order_of_its_memory():
    agreed, (x, *_) = terms(), samples()
    request = Moments(order=2, at=np.arange(24.0))
    other = np.asfortranarray(x)
    np.testing.assert_array_equal(agreed.deal(x, 2, request.at), agreed.deal(other, 2, request.at))


def test_what_a_whole_federation_deals_at_most_just_fits_the_field():
    for peers, most, bound in ((3, 50, 1000.0), (200, 10_000, 1000.0), (7, 999, 31.7)):
        agreed = terms(shape=(1,), peers=peers, samples=most, bound=bound)
        for order in (1, 2):
            largest = math.ceil(most * (order * bound) ** order * 2 ** agreed.bits(order)) + 1
            assert peers * largest <= (F61.modulus - 1) // 2
            if agreed.bits(order) < 40:
                assert 2 * peers * largest * 1.001 > (F61.modulus - 1) // 2


def test_a_plan_that_does_not_fit_is_refused_with_a_bound_that_does():
    with pytest.raises(RangeError, match="200 peers with 1000000 samples each, 784 numbers") as no:
        terms(shape=(28, 28), peers=200, samples=10**6, bound=1e4, per="all")
    fits = float(str(no.value).split("lower the bound of inputs to ")[1].split(",")[0])
    terms(shape=(28, 28), peers=200, samples=10**6, bound=fits, per="all")
    with pytest.raises(RangeError):
        terms(shape=(28, 28), peers=200, samples=10**6, bound=1.1 * fits, per="all")


def test_a_tiny_bound_makes_sums_of_nothing():
    for bound in (1e-300, 5e-324):
        agreed = terms(shape=(1,), bound=bound)
        assert agreed.bits(1) == agreed.bits(2) == 40
        assert agreed.deal(np.ones((2, 1), np.float32), 1, np.zeros(1)).tolist() == [0, 2]


def test_what_makes_no_sense_is_refused():
    for bound in (0.0, -1.0, math.inf, math.nan, "10", True):
        with pytest.raises(PlanError, match="must be above 0"):
            Standardise(bound=bound)
    with pytest.raises(PlanError, match="per feature, channel or all, got 'row'"):
        Standardise(per="row")
    with pytest.raises(PlanError, match=r"shape \[5\] have no channels"):
        terms(shape=(5,), per="channel")
    with pytest.raises(DataError, match="must be finite"):
        terms(shape=(2,)).deal(np.array([[1, np.nan]], dtype=np.float32), 1, np.zeros(2))


LIAR = MOST
"""How many samples the liar claims."""


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("claim", [-1, 0, 1])
def test_a_liar_that_claims_possible_data_moves_mean_and_deviation_by_at_most_its_share(
    order, claim
):
    """Beside N others it is S/(N + S) of all, and its numbers are within the bound."""
    agreed, honest = terms(shape=(4,), peers=4, samples=LIAR), samples(shape=(4,), sizes=SIZES[:3])
    bound, count = agreed.bound, sum(SIZES[:3])
    true_mean, _, _ = opened(agreed, honest)

    def lies(request, total):
        if request.order != order:
            return total
        if order == 1:
            own = claim * LIAR * bound * np.ones(4)
        else:
            own = max(0, claim) * LIAR * (bound + np.abs(request.at)) ** 2
        scaled = np.rint(own * 2.0 ** agreed.bits(order)).astype(np.int64)
        return total + np.append(scaled, LIAR)

    mean, std, why = opened(agreed, honest, lies)
    assert why is None
    share, slack = LIAR / (count + LIAR), 1e-6
    assert (np.abs(mean - true_mean) <= share * (bound + np.abs(true_mean)) + slack).all()
    x = np.concatenate(honest).astype(np.float64)
    square = ((x - mean) ** 2).mean(axis=0)
    rounding = 4 * 2.0 ** -agreed.bits(2) / count
    assert (std**2 >= (1 - share) * square - rounding).all()
    assert (std**2 <= square + share * (bound + np.abs(mean)) ** 2 * (1 + slack)).all()
    if order == 1 and claim:
        reached = np.abs(mean - true_mean) / (share * (bound + np.abs(true_mean)))
        assert reached.max() > 0.9, "the bound is about what a liar can do"


@pytest.mark.parametrize(
    ("order", "place", "more", "said"),
    [
        (1, 3, 10**6, "samples were counted"),
        (1, 3, -sum(SIZES), "samples were counted"),
        (2, 3, -sum(SIZES), "samples were counted"),
        (1, 0, 1 << 59, "a mean of"),
        (1, 1, -(1 << 59), "a mean of"),
        (2, 0, 1 << 59, "a mean square of"),
        (2, 2, -(1 << 59), "a mean square of"),
    ],
)
def test_what_honest_peers_cannot_have_dealt_is_void(order, place, more, said):
    def lies(request, total):
        lied = total.copy()
        lied[place] += more if request.order == order else 0
        return lied

    mean, std, why = opened(terms(shape=(3,)), samples(shape=(3,)), lies)
    assert said in why
    assert "somebody lied" in why
    assert not mean.any()
    assert not std.any()
