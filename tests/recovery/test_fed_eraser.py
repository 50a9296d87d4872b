"""FedEraser, by hand."""

import numpy as np
import pytest
import small
from quadratics import ROUNDS, Quadratics, kinds, sgd

from pdlrecover.errors import PlanError
from pdlrecover.recovery.fed_eraser import FedEraserOptions, calibrated, fed_eraser
from pdlrecover.recovery.optimizers import Adam, Rate
from pdlrecover.recovery.requests import Individual, Individuals

WEIGHTS = (0.7, 1.0, 0.25, 0.6)


def test_calibration_takes_the_stored_length_and_the_fresh_direction():
    fresh = Individuals(
        values=np.array([[3, 4, 0], [0, 0, -2], [0, 0, 0]], dtype=np.float32),
        weights=np.array([1.0, 0.5, 0.25]),
    )
    found = calibrated(np.array([10.0, 3.0, 7.0]), fresh)
    np.testing.assert_allclose(found.values, [6, 8, -3], rtol=1e-6)  # (6, 8, 0) + (0, 0, −3) + 0
    assert found.weight == 1.75
    np.testing.assert_allclose(found.mean, np.array([6, 8, -3]) / 1.75, rtol=1e-6)


@pytest.mark.parametrize("interval", [1, 2, 4])
@pytest.mark.parametrize("repeat", [True, False])
def test_plain_sgd_steps_by_the_rate_times_the_rounds_that_a_kept_one_stands_for(interval, repeat):
    engine = Quadratics((1, 2, 3), sgd(), weights=WEIGHTS)
    options = FedEraserOptions(interval=interval, repeat=repeat)
    found = engine.drive(fed_eraser(engine.run, options))
    model, weight = np.zeros(6), WEIGHTS[1] + WEIGHTS[2] + WEIGHTS[3]
    for t in range(0, ROUNDS, interval):
        total = np.zeros(6)
        for peer in (1, 2, 3):
            stored = engine.update(peer, engine.run.models[t])
            fresh = engine.update(peer, model)
            total += np.linalg.norm(stored) * fresh / np.linalg.norm(fresh)
        times = min(interval, ROUNDS - t) if repeat else 1
        model = model - times * 0.2 * total / weight
    np.testing.assert_allclose(found, model, atol=1e-4)


def test_an_adaptive_optimizer_steps_once_for_every_round():
    adam = Adam(rate=Rate(peak=0.1))
    engine = Quadratics((1, 2, 3), adam)
    engine.drive(fed_eraser(engine.run, FedEraserOptions(interval=4)))
    assert [step.round for step in engine.steps()] == list(range(ROUNDS))
    stepper = adam.start()
    model = np.zeros(6)
    for _ in range(4):  # the first kept round: its stored updates
        model = stepper.step(model, engine.stored(0) / 3)
    np.testing.assert_allclose(engine.steps()[3].model, model, atol=1e-5)


def test_updates_are_asked_for_in_the_kept_rounds_only_and_not_freshly_in_the_first():
    engine = Quadratics((1, 2, 3), sgd())
    engine.drive(fed_eraser(engine.run))
    asked = [(r.round, r.at is None) for r in engine.requests if isinstance(r, Individual)]
    assert asked[:4] == [(0, True), (2, True), (2, False), (4, True)]
    assert {t for t, _ in asked} == set(range(0, ROUNDS, 2))
    assert kinds(engine) == {Individual}


def test_with_nobody_removed_and_nothing_left_out_it_is_the_original_run():
    engine = Quadratics(range(4), sgd())
    found = engine.drive(fed_eraser(engine.run, FedEraserOptions(interval=1)))
    np.testing.assert_allclose(found, engine.run.models[-1], atol=1e-5)


def test_an_interval_of_nothing_is_refused():
    with pytest.raises(PlanError, match="interval must be at least 1, got 0"):
        FedEraserOptions(interval=0)


def test_in_a_federation_half_of_the_rounds_are_opened_peer_by_peer():
    federation = small.trained(clear=True)
    state = federation.recover(small.REMOVED, "fed-eraser", reason="malicious")
    assert np.isfinite(state.weights).all()
    ledger = state.ledger
    assert dict(ledger.openings) == {"individual": 20 * 6 + 19 * 6}
    assert (ledger.exact_rounds, ledger.gradient_evaluations) == (19, 19 * 6)
    assert ledger.stored_bytes == 4 * 20 * 6 * 38
