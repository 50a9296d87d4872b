"""DeltaGrad against its Algorithm 1, with dense BFGS matrices."""

from dataclasses import replace

import numpy as np
import pytest
import small
from quadratics import ROUNDS, D, Quadratics, dense_bfgs, kinds, sgd

from pdlrecover.errors import PlanError
from pdlrecover.recovery.curvature import OpenedCurvature
from pdlrecover.recovery.delta_grad import DeltaGradOptions, delta_grad
from pdlrecover.recovery.methods import Settings, start
from pdlrecover.recovery.optimizers import SGD, Adam, Rate
from pdlrecover.recovery.requests import Past, Update

WEIGHTS = (0.7, 1.0, 0.25, 0.6)
OPTIONS = DeltaGradOptions(burn_in=4, period=3)
PLAIN = replace(OPTIONS, safeguard=False)


def is_explicit(t, options):
    return t <= options.burn_in or (t - options.burn_in) % options.period == 0


def oracle(engine, options, optimizer):
    """Return the model after each round, and which rounds were exact."""
    pairs, models, exact = [], [], []
    weight = engine.weights[list(engine.kept)].sum()
    stepper, w = optimizer.start(), engine.run.models[0]
    for t in range(engine.run.rounds):
        v = w - engine.run.models[t]
        explicit = is_explicit(t, options)
        if not explicit:
            change = dense_bfgs(pairs[-options.buffer :]) @ v
            gradient = engine.stored(t) + change
            if options.safeguard:
                explicit = np.linalg.norm(change / weight) > np.linalg.norm(options.smoothness * v)
        if explicit:
            gradient = engine.total(engine.kept, w)
            if t > 0:
                pairs.append((v, gradient - engine.stored(t)))
        w = stepper.step(w, gradient / weight)
        models.append(w)
        exact.append(explicit)
    return models, exact


@pytest.mark.parametrize("buffer", [1, 2, 4])
@pytest.mark.parametrize(
    "optimizer", [sgd(), SGD(rate=Rate(peak=0.05), momentum=0.8), Adam(rate=Rate(peak=0.1))]
)
def test_it_is_algorithm_1_on_the_kept_peers_pooled_gradient(optimizer, buffer):
    engine = Quadratics((1, 2, 3), optimizer, weights=WEIGHTS)
    for options in (replace(PLAIN, buffer=buffer), replace(OPTIONS, buffer=buffer, smoothness=1.3)):
        engine.requests.clear()
        engine.drive(delta_grad(engine.run, options))
        expected, exact = oracle(engine, options, optimizer)
        for step, model in zip(engine.steps(), expected, strict=True):
            np.testing.assert_allclose(step.model, model, rtol=1e-7, atol=1e-9)
        assert [s.exact for s in engine.steps()] == exact
    extra = [e and not is_explicit(t, options) for t, e in enumerate(exact)]
    assert [s.fallback for s in engine.steps()] == extra


def test_it_opens_stored_sums_for_estimates_and_for_pairs():
    engine = Quadratics((1, 2, 3), sgd())
    engine.drive(delta_grad(engine.run, OPTIONS))
    assert kinds(engine) == {Update, Past}
    opened = [r.rounds for r in engine.requests if isinstance(r, Past)]
    assert opened == [(t,) for t in range(1, ROUNDS)]


def test_with_nobody_removed_it_is_the_original_run():
    engine = Quadratics(range(4), sgd())
    found = engine.drive(delta_grad(engine.run, OPTIONS))
    np.testing.assert_array_equal(found, engine.run.models[-1])


@pytest.mark.parametrize("product", [None, np.full(D, np.inf)])
def test_an_estimate_that_cannot_be_had_is_an_exact_round(monkeypatch, product):
    monkeypatch.setattr(OpenedCurvature, "product", lambda *_: product)
    engine = Quadratics((1, 2, 3), sgd())
    found = engine.drive(delta_grad(engine.run, OPTIONS))
    steps = engine.steps()
    assert all(step.exact for step in steps)
    assert [s.fallback for s in steps] == [not is_explicit(t, OPTIONS) for t in range(ROUNDS)]
    retrained = Quadratics((1, 2, 3), sgd())
    target = retrained.drive(start("retrain", retrained.run, Settings()))
    np.testing.assert_allclose(found, target, rtol=1e-12)


@pytest.mark.parametrize(("growth", "exact"), [(0.99, False), (1.01, True)])
def test_an_estimate_that_is_not_smooth_is_an_exact_round_unless_switched_off(
    growth, exact, monkeypatch
):
    """Three kept peers of weight 1: the mean gradient changes by a third of the product."""
    monkeypatch.setattr(OpenedCurvature, "product", lambda self, v, *_: 3 * growth * v)
    engine = Quadratics((1, 2, 3), sgd())
    engine.drive(delta_grad(engine.run, OPTIONS))
    assert any(step.fallback for step in engine.steps()) == exact
    engine.requests.clear()
    engine.drive(delta_grad(engine.run, PLAIN))
    assert not any(step.fallback for step in engine.steps())


def test_a_pair_of_negative_curvature_is_left_out_unless_switched_off():
    """With concave losses no pair is convex, so nothing is ever estimated."""
    engine = Quadratics((1, 2, 3), SGD(rate=Rate(peak=0.01)))
    engine.hessians = -engine.hessians
    found = engine.drive(delta_grad(engine.run, OPTIONS))
    assert all(step.exact for step in engine.steps())
    target = engine.drive(start("retrain", engine.run, Settings()))
    np.testing.assert_allclose(found, target, rtol=1e-12)
    engine.requests.clear()
    engine.drive(delta_grad(engine.run, PLAIN))
    assert not all(step.exact for step in engine.steps())


def test_short_runs_get_a_short_burn_in():
    assert DeltaGradOptions().schedule(1000).preparation == 21
    assert DeltaGradOptions().schedule(40).preparation == 11
    assert DeltaGradOptions().schedule(2).preparation == 2
    with pytest.raises(PlanError, match="period must be at least 1"):
        DeltaGradOptions(period=0).schedule(40)


def test_in_a_federation_it_opens_sums_only():
    federation = small.trained(clear=True)
    state = federation.recover(small.REMOVED, "delta-grad", reason="malicious")
    assert np.isfinite(state.weights).all()
    planned = DeltaGradOptions().schedule(40).exact_rounds(40)
    exact = planned + state.ledger.fallback_rounds
    assert dict(state.ledger.openings) == {"fresh sums": exact, "stored sums": 39}
