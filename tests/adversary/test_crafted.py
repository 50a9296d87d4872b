import math
from statistics import NormalDist

import numpy as np
import pytest
import torch

from pdlrecover.adversary import Context, LittleIsEnough, MinMax, PartialTrim, Trim, largest_z
from pdlrecover.errors import AttackError

MALICIOUS, HONEST, D = 4, 9, 2500


def context(seed: int = 0) -> Context:
    return Context.of(seed=seed, round=3, w=np.zeros(1), places=range(MALICIOUS))


def drawn(rows: int, seed: int = 0) -> torch.Tensor:
    """Values whose mean and spread differ by coordinate; some coordinates have one sign only."""
    rng = np.random.default_rng(seed)
    mean, spread = rng.normal(size=D), rng.exponential(size=D)
    return torch.from_numpy((mean + spread * rng.normal(size=(rows, D))).astype(np.float32))


UPDATES, BENIGN = drawn(MALICIOUS, seed=1), drawn(HONEST)


def test_trim_lies_outside_of_the_honest_range_on_the_wrong_side() -> None:
    found = Trim(factor=2.0).corrupt(UPDATES, BENIGN, context())
    low, high, rising = BENIGN.amin(0), BENIGN.amax(0), BENIGN.sum(0) > 0
    signs = torch.stack([rising & (low > 0), rising & (low < 0), ~rising & (high > 0)])
    assert torch.cat([signs, (~rising & (high < 0))[None]]).any(1).all()
    assert (found[:, rising] < low[rising]).all()
    assert (found[:, ~rising] > high[~rising]).all()


def test_trim_goes_beyond_by_a_factor_between_one_and_its_own() -> None:
    found = Trim(factor=3.0).corrupt(UPDATES, BENIGN, context()).double()
    extreme = torch.where(BENIGN.sum(0) > 0, BENIGN.amin(0), BENIGN.amax(0)).double()
    ratio = found / extreme
    factor = torch.where(ratio > 1, ratio, 1 / ratio)
    assert float(factor.min()) > 1
    assert float(factor.max()) <= 3 + 1e-6
    # 10^4 draws: their mean is 5 standard deviations, 0.029, off for 1 seed in 10^6.
    assert float(factor.mean()) == pytest.approx(2.0, abs=0.029)


def test_trim_by_hand() -> None:
    benign = torch.tensor([[1.0, -2.0, 3.0, -1.0, 0.0, -1.0], [2.0, 5.0, -7.0, -4.0, 0.0, 1.0]])
    found = Trim(factor=2.0).corrupt(torch.zeros(500, 6), benign, context())
    for column, (low, high) in enumerate([(0.5, 1), (-4, -2), (3, 6), (-1, -0.5), (0, 0), (0, 0)]):
        values = found[:, column]
        assert low <= float(values.min()) <= float(values.max()) <= high
        assert float(values.max() - values.min()) == pytest.approx(high - low, rel=0.05)


def test_trim_draws_for_every_attacker_from_the_rounds_randomness() -> None:
    found = Trim().corrupt(UPDATES, BENIGN, context())
    assert not torch.equal(found[0], found[1])
    assert torch.equal(found, Trim().corrupt(UPDATES, BENIGN, context()))
    assert not torch.equal(found, Trim().corrupt(UPDATES, BENIGN, context(seed=1)))


def test_partial_trim_is_three_to_four_deviations_off_on_the_wrong_side() -> None:
    found = PartialTrim().corrupt(UPDATES, BENIGN, context()).double()
    own = UPDATES.double()
    mean, std = own.mean(0), own.std(0, correction=0)
    against = -(found - mean) * mean.sign() / std
    assert float(against.min()) >= 3 - 1e-4
    assert float(against.max()) <= 4 + 1e-4
    # 10^4 draws: their mean is 5 standard deviations, 0.015, off for 1 seed in 10^6.
    assert float(against.mean()) == pytest.approx(3.5, abs=0.015)


def test_partial_trim_does_not_look_at_the_honest() -> None:
    found = PartialTrim(deviations=1.5).corrupt(UPDATES, BENIGN, context())
    assert torch.equal(found, PartialTrim(deviations=1.5).corrupt(UPDATES, BENIGN[:0], context()))
    alone = UPDATES[:1]
    torch.testing.assert_close(PartialTrim().corrupt(alone, BENIGN, context()), alone)


def test_lie_by_hand() -> None:
    benign = torch.tensor([[1.0, 0.0, 5.0], [3.0, 0.0, -5.0], [5.0, 0.0, 0.0], [7.0, 0.0, 0.0]])
    found = LittleIsEnough(z=2.0).corrupt(torch.zeros(2, 3), benign, context())
    expected = [4 - 2 * math.sqrt(5), 0.0, -2 * math.sqrt(12.5)]
    torch.testing.assert_close(found, torch.tensor([expected, expected]))


@pytest.mark.parametrize(
    ("peers", "malicious", "nearer"),
    [(50, 24, 24 / 26), (51, 12, 25 / 39), (20, 5, 9 / 15), (200, 40, 99 / 160)],
)
def test_lie_takes_the_largest_z_that_keeps_enough_supporters(
    peers: int, malicious: int, nearer: float
) -> None:
    z = largest_z(peers, malicious)
    assert NormalDist().cdf(z) == pytest.approx(nearer)
    honest = peers - malicious
    beyond = honest - round(honest * NormalDist().cdf(z))
    assert malicious + beyond == peers // 2 + 1


def test_lie_finds_its_z_from_the_peers_of_the_round() -> None:
    benign = drawn(15)
    found = LittleIsEnough().corrupt(torch.zeros(5, D), benign, context())
    wanted = benign.double().mean(0) - 0.2533471 * benign.double().std(0, correction=0)
    torch.testing.assert_close(found[0].double(), wanted, atol=1e-5, rtol=1e-5)
    assert torch.equal(found, found[:1].expand(5, -1))


def test_lie_with_too_few_attackers_has_no_room_and_a_majority_must_say_z() -> None:
    assert largest_z(20, 1) == largest_z(2, 1) == largest_z(3, 1) == 0
    with pytest.raises(AttackError, match=r"11 of 20 peers are a majority.* give z"):
        largest_z(20, 11)
    few = LittleIsEnough(z=1.0).corrupt(torch.zeros(30, D), BENIGN, context())
    assert torch.isfinite(few).all()


def farthest(update: torch.Tensor, benign: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(benign.double() - update.double(), dim=1).max())


def apart(benign: torch.Tensor) -> float:
    return float(torch.pdist(benign.double()).max())


@pytest.mark.parametrize("direction", ["std", "unit", "sign"])
@pytest.mark.parametrize("offset", [0.0, 30.0])
def test_min_max_goes_as_far_as_the_honest_are_apart_and_no_further(
    direction: str, offset: float
) -> None:
    benign = BENIGN + offset
    found = MinMax(direction=direction).corrupt(UPDATES, benign, context())  # type: ignore[arg-type]
    assert torch.equal(found, found[:1].expand_as(UPDATES))
    mean = benign.double().mean(0)
    step = found[0].double() - mean
    assert farthest(found[0], benign) <= apart(benign) * (1 + 1e-6)
    assert farthest(mean + 1.01 * step, benign) > apart(benign)
    towards = {"std": -benign.double().std(0), "unit": -mean, "sign": -mean.sign()}[direction]
    assert float(torch.cosine_similarity(step, towards, dim=0)) > 1 - 1e-6


def test_min_max_finds_what_bisection_finds() -> None:
    found = MinMax().corrupt(UPDATES, BENIGN, context())[0]
    mean, towards = BENIGN.double().mean(0), -BENIGN.double().std(0, correction=0)
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        near = farthest(mean + middle * towards, BENIGN) <= apart(BENIGN)
        low, high = (middle, high) if near else (low, middle)
    torch.testing.assert_close(found.double(), mean + low * towards, atol=1e-5, rtol=1e-5)


def test_min_max_measures_whole_updates_and_not_coordinates() -> None:
    benign = torch.zeros(4, D)
    benign[0, 0], benign[1, 0] = -6.0, 6.0
    found = MinMax().corrupt(UPDATES, benign, context())[0]
    # μ = 0, and the only spread is along the first coordinate, where −6 … 6 are 12 apart; the
    # farthest honest update is the one at 6.
    torch.testing.assert_close(found[0], torch.tensor(-6.0))
    assert not found[1:].any()


@pytest.mark.parametrize("honest", [1, 3])
def test_min_max_has_no_room_where_the_honest_agree(honest: int) -> None:
    benign = BENIGN[:1].expand(honest, -1)
    for direction in ("std", "unit", "sign"):
        found = MinMax(direction=direction).corrupt(UPDATES, benign, context())  # type: ignore[arg-type]
        torch.testing.assert_close(found, benign[:1].expand_as(UPDATES), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("attack", [Trim(), LittleIsEnough(), MinMax()])
def test_attacks_with_full_knowledge_need_somebody_honest(
    attack: Trim | LittleIsEnough | MinMax,
) -> None:
    with pytest.raises(AttackError, match="every peer is malicious; leave one honest"):
        attack.corrupt(UPDATES, BENIGN[:0], context())
    one = attack.corrupt(UPDATES[:1], BENIGN[:1], context())
    assert torch.isfinite(one).all()
