"""FedRecovery against numbers worked out by hand, and in the simulation."""

import math

import numpy as np
import pytest
import small

from pdlrecover.errors import PlanError
from pdlrecover.field import FixedPoint, Seeded
from pdlrecover.recovery.fedrecovery import Noise, fed_recovery
from pdlrecover.recovery.historical import historical
from pdlrecover.recovery.methods import Settings, start
from pdlrecover.recovery.noise import gaussian
from pdlrecover.recovery.optimizers import SGD, Adam, Rate
from pdlrecover.recovery.requests import Original, Past, Removed, Stepped, Sum

UPDATES = np.array(
    [
        [[6.0, 0.0], [0.0, 3.0], [0.0, 3.0]],
        [[0.0, 0.0], [3.0, 0.0], [3.0, 0.0]],
    ]
)
"""Of two rounds: three peers' updates, two numbers each."""


class Stored:
    """A run whose updates are in a table, already multiplied by the peers' weights."""

    def __init__(self, updates, removed, optimizer, weights=None):
        self.updates, self.removed = updates, list(removed)
        peers = updates.shape[1]
        self.weights = np.ones(peers) if weights is None else np.array(weights)
        self.kept = [i for i in range(peers) if i not in removed]
        models, stepper = [np.zeros(updates.shape[2])], optimizer.start()
        for row in updates:
            models.append(stepper.step(models[-1], row.sum(axis=0) / self.weights.sum()))
        code = FixedPoint(peers=peers, bound=100.0, length=updates.shape[2] + 1)
        self.run = Original(models=models, optimizer=optimizer, code=code)
        self.requests = []

    def drive(self, method):
        reply = None
        while True:
            try:
                request = method.send(reply)
            except StopIteration as end:
                return end.value
            self.requests.append(request)
            reply = None
            if not isinstance(request, Stepped):
                who = self.removed if isinstance(request, Removed) else self.kept
                (t,) = request.rounds
                reply = Sum(values=self.updates[t, who].sum(axis=0), weight=self.weights[who].sum())


def random_run(optimizer, rounds=7):
    updates = np.random.default_rng(0).normal(size=(rounds, 5, 4))
    return Stored(updates, (1, 3), optimizer, weights=[1.0, 0.5, 0.25, 1.0, 0.75])


def test_two_rounds_by_hand():
    """One of three peers leaves, with η = 1/2.

    Round 0: the mean is (2, 2), squared norm 8; of the others (0, 3). w̄_1 = (−1, −1), and
             δ_0 = ½·⅓·((0, 3) − (6, 0)) = −½·½·((6, 0) − (2, 2)) = (−1, ½).
    Round 1: the mean is (2, 0), squared norm 4; of the others (3, 0). w̄_2 = (−2, −1), and
             δ_1 = ½·⅓·((3, 0) − (0, 0)) = (½, 0).
    So p = (⅔, ⅓), Σ p_t δ_t = (−½, ⅓), and ŵ = (−3/2, −4/3).
    """
    engine = Stored(UPDATES, (0,), SGD(rate=Rate(peak=0.5)))
    np.testing.assert_array_equal(engine.run.models[-1], [-2, -1])
    found = engine.drive(fed_recovery(engine.run))
    np.testing.assert_allclose(found, [-3 / 2, -4 / 3], rtol=1e-15)


def test_it_opens_both_sums_of_every_round_and_nothing_else():
    engine = Stored(UPDATES, (0,), SGD(rate=Rate(peak=0.5)))
    engine.drive(fed_recovery(engine.run))
    asked = [(type(r), r.rounds) for r in engine.requests if not isinstance(r, Stepped)]
    assert asked == [(Past, (0,)), (Removed, (0,)), (Past, (1,)), (Removed, (1,))]
    assert [r.exact for r in engine.requests if isinstance(r, Stepped)] == [False]


def test_several_peers_with_weights_and_a_changing_rate():
    """δ_t = −η_t·(α_P/α_K)·(mean over P − mean over all), worked out in plain loops."""
    rate = Rate(peak=0.4, warmup=3, hold=0.5, rounds=7)
    engine = random_run(SGD(rate=rate))
    updates, weights = engine.updates, engine.weights
    removed_weight, kept_weight = weights[[1, 3]].sum(), weights[[0, 2, 4]].sum()
    residuals, norms = [], []
    for t in range(7):
        everybody = [sum(updates[t, :, j]) / sum(weights) for j in range(4)]
        theirs = [(updates[t, 1, j] + updates[t, 3, j]) / removed_weight for j in range(4)]
        factor = -rate.at(t) * removed_weight / kept_weight
        residuals.append([factor * (a - b) for a, b in zip(theirs, everybody, strict=True)])
        norms.append(sum(v * v for v in everybody))
    expected = engine.run.models[-1].copy()
    for residual, size in zip(residuals, norms, strict=True):
        for j in range(4):
            expected[j] -= size / sum(norms) * residual[j]
    found = engine.drive(fed_recovery(engine.run))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "optimizer",
    [SGD(rate=Rate(peak=0.3)), SGD(rate=Rate(peak=0.1), momentum=0.9), Adam(rate=Rate(peak=0.1))],
)
def test_the_residuals_of_the_actual_steps_add_up_to_the_replay(optimizer):
    """With p_t = 1/T for all t, T times what is taken out is the way from w̄_T to the replay."""
    engine = random_run(optimizer)
    for t in range(7):  # every round's mean gets the length 1
        engine.updates[t] /= np.linalg.norm(engine.updates[t].sum(axis=0)) / engine.weights.sum()
    engine = Stored(engine.updates, (1, 3), optimizer, weights=engine.weights)
    last = engine.run.models[-1]
    taken_out = last - engine.drive(fed_recovery(engine.run))
    replayed = engine.drive(historical(engine.run))
    np.testing.assert_allclose(7 * taken_out, last - replayed, rtol=1e-9)
    assert np.linalg.norm(taken_out) > 0


@pytest.mark.parametrize("optimizer", [SGD(rate=Rate(peak=0.3)), Adam(rate=Rate(peak=0.1))])
def test_the_noise_is_scaled_to_the_estimated_distance(optimizer):
    engine = random_run(optimizer)
    plain = engine.drive(fed_recovery(engine.run))
    noisy = engine.drive(fed_recovery(engine.run, Noise(epsilon=2.0), Seeded(1)))
    estimate = np.linalg.norm(plain - engine.drive(historical(engine.run)))
    sigma = Noise(epsilon=2.0).deviation(estimate)
    np.testing.assert_allclose(noisy - plain, sigma * gaussian(Seeded(1), 4), rtol=1e-9)


def test_a_stated_distance_takes_the_place_of_the_estimate():
    engine = random_run(SGD(rate=Rate(peak=0.3)))
    plain = engine.drive(fed_recovery(engine.run))
    noise = Noise(distance=0.25)
    noisy = engine.drive(fed_recovery(engine.run, noise, Seeded(1)))
    sigma = noise.deviation(math.nan)
    np.testing.assert_allclose(noisy - plain, sigma * gaussian(Seeded(1), 4), rtol=1e-9)
    without = engine.drive(fed_recovery(engine.run, Noise(distance=0.0), Seeded(1)))
    np.testing.assert_array_equal(without, plain)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 20.0])
@pytest.mark.parametrize("beta", [1e-9, 1e-5, 0.4])
def test_sigma_is_the_published_one_and_solves_its_equation(epsilon, beta):
    dist, log = 3.0, math.log(1 / beta)
    sigma = Noise(epsilon=epsilon, beta=beta).deviation(dist)
    published = (dist / math.sqrt(2)) / (math.sqrt(log + epsilon) - math.sqrt(log))
    assert sigma == pytest.approx(published, rel=1e-7)
    solved = dist**2 / (2 * sigma**2) + dist / sigma * math.sqrt(2 * log)
    assert solved == pytest.approx(epsilon, rel=1e-12)


def test_noise_is_the_systems_unless_a_seed_is_set():
    engine = random_run(SGD(rate=Rate(peak=0.3)))

    def twice(settings):
        return [engine.drive(start("fedrecovery-noise", engine.run, settings)) for _ in range(2)]

    first, second = twice(Settings())
    assert not np.array_equal(first, second)
    first, second = twice(Settings(noise_seed=3))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, twice(Settings(noise_seed=4))[0])


def test_a_run_that_never_moved_is_left_alone():
    engine = Stored(np.zeros((2, 3, 2)), (0,), Adam(rate=Rate(peak=0.1)))
    assert engine.drive(fed_recovery(engine.run)).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epsilon": 0.0}, "noise needs 0 < epsilon"),
        ({"beta": 1.0}, "0 < beta < 1, got 1.0 and 1.0"),
        ({"distance": math.inf}, "a distance must be finite and not negative, got inf"),
    ],
)
def test_noise_that_makes_no_sense_is_refused(values, message):
    with pytest.raises(PlanError, match=message):
        Noise(**values)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("method", ["fedrecovery", "fedrecovery-noise"])
def test_the_simulation_answers_it_from_the_history_alone(method, optimizer):
    federation = small.trained(clear=True, optimizer=optimizer, rate=0.1, rounds=20)
    seen = []
    state = federation.recover(
        small.REMOVED, method, reason="malicious", settings=small.SETTINGS, observer=seen.append
    )
    assert np.isfinite(state.weights).all()
    assert not np.array_equal(state.weights, federation.original.models[-1])
    assert [step.round for step in seen] == [19]
    ledger = state.ledger
    assert ledger.gradient_evaluations == ledger.exact_rounds == 0
    assert ledger.openings == {"stored sums": 20, "removed sums": 20}
    assert ledger.record()["opened"]["removed sums"]["of"] == "the removed peers together"
    assert ledger.in_words().endswith("; no update of a single peer")


def test_of_a_single_removed_peer_its_own_updates_are_opened_and_said_to_be():
    ledger = small.trained(rounds=3).recover([1], "fedrecovery", reason="malicious").ledger
    assert ledger.record()["opened"]["removed sums"]["of"] == "one peer"
    assert "3 sums of stored updates, each of one peer" in ledger.in_words()
    assert "no update of a single peer" not in ledger.in_words()


def test_with_nobody_removed_it_says_so():
    federation = small.trained(clear=True, rounds=5)
    with pytest.raises(PlanError, match="takes away what removed peers have done"):
        federation.run_method([], "fedrecovery", settings=small.SETTINGS)
