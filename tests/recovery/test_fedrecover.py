"""FedRecover against a loop over peers with dense BFGS matrices, in plain float64."""

import numpy as np
import pytest
import small
from quadratics import ROUNDS, D, Quadratics, dense_bfgs, kinds, sgd

from pdlrecover.errors import PlanError
from pdlrecover.recovery.fedrecover import (
    FedRecoverOptions,
    PeerCurvature,
    abnormal_from,
    fedrecover,
)
from pdlrecover.recovery.methods import Settings, start
from pdlrecover.recovery.optimizers import SGD, Adam, Rate
from pdlrecover.recovery.requests import Individual, Individuals

WEIGHTS = (0.7, 1.0, 0.25, 0.6)
OPTIONS = FedRecoverOptions(warmup=5, period=6, final=3, exceeding=0.0)


def oracle(engine, options, optimizer):
    """Return the model after each round, and who computed exactly in it: peer by peer."""
    run, kept = engine.run, engine.kept
    rounds = run.rounds
    limits = []
    for t in range(rounds):
        sizes = []
        for i in kept:
            sizes += [abs(x) / engine.weights[i] for x in engine.update(i, run.models[t])]
        limits.append(sorted(sizes)[len(sizes) - 1 - int(options.exceeding * len(sizes))])
    limit = max(limits)
    pairs = {i: [] for i in kept}
    stepper, w, models, who = optimizer.start(), run.models[0], [], []
    for t in range(rounds):
        planned = (
            t < options.warmup
            or t >= rounds - options.final
            or (t - options.warmup + 1) % options.period == 0
        )
        updates, exact = [], []
        for place, i in enumerate(kept):
            stored = engine.update(i, run.models[t])
            if not planned:
                hessian = dense_bfgs(pairs[i][-options.buffer :])
                update = stored + hessian @ (w - run.models[t])
            if planned or max(abs(update)) / engine.weights[i] > limit:
                update = engine.update(i, w)
                exact.append(place)
            updates.append(update)
        if len(exact) == len(kept) and t < rounds - options.final and t > 0:
            for i, update in zip(kept, updates, strict=True):
                stored = engine.update(i, run.models[t])
                pairs[i].append((w - run.models[t], update - stored))
        w = stepper.step(w, sum(updates) / sum(engine.weights[i] for i in kept))
        models.append(w)
        who.append(tuple(exact))
    return models, who


def computed(engine):
    """Return who computed exactly in each round."""
    everybody = tuple(range(len(engine.kept)))
    who = [()] * engine.run.rounds
    for r in engine.requests:
        if isinstance(r, Individual) and r.at is not None:
            who[r.round] = everybody if r.of is None else r.of
    return who


@pytest.mark.parametrize("optimizer", [sgd(), Adam(rate=Rate(peak=0.1))])
@pytest.mark.parametrize(("buffer", "exceeding"), [(1, 0.0), (2, 0.0), (3, 0.0), (2, 0.7)])
def test_it_is_the_papers_recursion_peer_by_peer(optimizer, buffer, exceeding):
    options = FedRecoverOptions(warmup=5, period=6, final=3, buffer=buffer, exceeding=exceeding)
    engine = Quadratics((1, 2, 3), optimizer, weights=WEIGHTS)
    engine.drive(fedrecover(engine.run, options))
    models, who = oracle(engine, options, optimizer)
    assert computed(engine) == who
    for step, expected in zip(engine.steps(), models, strict=True):
        np.testing.assert_allclose(step.model, expected, atol=1e-4)
    assert [s.exact for s in engine.steps()] == [len(exact) == 3 for exact in who]


def test_the_comparison_sees_rounds_that_are_abnormal_for_none_for_some_and_for_all():
    adam = Adam(rate=Rate(peak=0.1))
    counts = {}
    for exceeding in (0.0, 0.7):
        options = FedRecoverOptions(warmup=5, period=6, final=3, exceeding=exceeding)
        _, who = oracle(Quadratics((1, 2, 3), adam, weights=WEIGHTS), options, adam)
        counts[exceeding] = [len(who[t]) for t in range(5, 10)]
    assert counts == {0.0: [0, 0, 0, 0, 0], 0.7: [3, 3, 3, 3, 2]}


def test_it_comes_close_to_retraining():
    engine = Quadratics((1, 2, 3), sgd(), rounds=40)
    target = engine.drive(start("retrain", engine.run, Settings()))
    found = engine.drive(fedrecover(engine.run))
    poisoned = engine.run.models[-1]
    assert np.linalg.norm(found - target) < 0.05 * np.linalg.norm(poisoned - target)


def test_with_nobody_removed_it_is_the_original_run():
    engine = Quadratics(range(4), sgd())
    found = engine.drive(fedrecover(engine.run, OPTIONS))
    np.testing.assert_allclose(found, engine.run.models[-1], atol=1e-5)
    assert kinds(engine) == {Individual}


def individuals(values, weights):
    return Individuals(values=np.array(values, dtype=np.float32), weights=np.array(weights))


def answered(asking, answers):
    """Return what is returned after these answers to requests for stored updates."""
    assert next(asking).at is None
    try:
        for answer in answers:
            assert asking.send(answer).at is None
    except StopIteration as end:
        return end.value


def test_tau_is_the_largest_over_rounds_of_what_few_coordinates_exceed():
    rounds = [
        individuals([[1, -9, 2, 3], [4, 5, -6, 0]], [1.0, 1.0]),
        individuals([[1, 1, 1, 1], [-4, 1, 1, 1]], [1.0, 0.5]),
        individuals([[7, 7, 0, 0], [0, 0, 0, 0]], [1.0, 1.0]),
    ]
    # By round: 9, 8, 7 for none of eight; 6, 2, 7 for one; 5, 2, 0 for two; 0, 1, 0 for seven.
    for exceeding, expected in ((0.0, 9.0), (1 / 8, 7.0), (2 / 8, 5.0), (7 / 8, 1.0)):
        assert answered(abnormal_from(3, exceeding), rounds) == pytest.approx(expected)


def test_a_pair_without_curvature_gives_no_estimate_for_its_peer():
    rng = np.random.default_rng(0)
    curvature = PeerCurvature(size=1)
    w = rng.normal(size=D)
    curvature.add(w, np.stack([2 * w, 0 * w]).astype(np.float32))
    found = curvature.corrected(np.zeros((2, D), dtype=np.float32), w)
    np.testing.assert_allclose(found[0], 2 * w, rtol=1e-5)
    assert np.isnan(found[1]).all()


def test_an_estimate_that_is_not_finite_is_abnormal(monkeypatch):
    monkeypatch.setattr(
        PeerCurvature, "corrected", lambda self, stored, v: np.full_like(stored, np.nan)
    )
    engine = Quadratics((1, 2, 3), sgd())
    found = engine.drive(fedrecover(engine.run, OPTIONS))
    assert all(step.exact for step in engine.steps())
    planned = OPTIONS.schedule(ROUNDS).exact_rounds(ROUNDS)
    assert sum(step.fallback for step in engine.steps()) == ROUNDS - planned
    retrained = Quadratics((1, 2, 3), sgd())
    target = retrained.drive(start("retrain", retrained.run, Settings()))
    np.testing.assert_allclose(found, target, atol=1e-5)


@pytest.mark.parametrize("values", [{"warmup": 2}, {"exceeding": 1.0}, {"exceeding": -0.1}])
def test_constants_that_make_no_sense_are_refused(values):
    with pytest.raises(PlanError):
        FedRecoverOptions(**values)


@pytest.mark.parametrize(("rounds", "warmup", "final"), [(8, 3, 2), (40, 10, 5), (1000, 20, 5)])
def test_short_runs_get_a_short_schedule(rounds, warmup, final):
    schedule = FedRecoverOptions().schedule(rounds)
    assert (schedule.preparation, schedule.final) == (warmup, final)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_in_a_federation_it_opens_every_peers_update_in_every_round(optimizer):
    rate = 0.3 if optimizer == "sgd" else 0.03
    federation = small.trained(clear=True, optimizer=optimizer, rate=rate)
    state = federation.recover(small.REMOVED, "fedrecover", reason="malicious")
    assert np.isfinite(state.weights).all()
    ledger = state.ledger
    assert set(ledger.openings) == {"individual"}
    assert ledger.openings["individual"] == 40 * 6 + ledger.gradient_evaluations
    assert ledger.exact_rounds >= FedRecoverOptions().schedule(40).exact_rounds(40)
    assert 6 * ledger.exact_rounds <= ledger.gradient_evaluations < 6 * 40
    assert ledger.record()["opened"]["individual"]["of"] == "one peer"


def test_a_momentum_run_is_replayed_with_momentum():
    optimizer = SGD(rate=Rate(peak=0.05), momentum=0.8)
    engine = Quadratics(range(4), optimizer)
    found = engine.drive(fedrecover(engine.run, OPTIONS))
    np.testing.assert_allclose(found, engine.run.models[-1], atol=1e-5)
