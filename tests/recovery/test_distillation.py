"""Distillation against its two formulas, and in the simulation."""

import numpy as np
import pytest
import small
import torch
from quadratics import ROUNDS, Quadratics, kinds, sgd

from pdlrecover.errors import PlanError
from pdlrecover.recovery.distillation import DistillationOptions, distillation, erased
from pdlrecover.recovery.optimizers import SGD, Adam, Rate
from pdlrecover.recovery.requests import Past, Removed, Update

WEIGHTS = (0.7, 1.0, 0.25, 0.6)


def test_erasing_subtracts_the_removed_peers_averaged_updates():
    """Of plain SGD: ŵ = w̄_T + η·Σ_t Σ_P g(w̄_t)/Σ α."""
    engine = Quadratics((1, 3), sgd(), weights=WEIGHTS)
    found = engine.drive(erased(engine.run))
    theirs = sum(engine.stored(t, (0, 2)) for t in range(ROUNDS))
    expected = engine.run.models[-1] + 0.2 * theirs / sum(WEIGHTS)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize(
    "optimizer", [SGD(rate=Rate(peak=0.1), momentum=0.9), Adam(rate=Rate(peak=0.1))]
)
def test_erasing_is_replaying_with_the_removed_peers_at_zero(optimizer):
    engine = Quadratics((1, 3), optimizer, weights=WEIGHTS)
    found = engine.drive(erased(engine.run))
    stepper, w = optimizer.start(), engine.run.models[0].copy()
    for t in range(ROUNDS):
        at = engine.run.models[t]
        w += stepper.step(at, engine.stored(t) / sum(WEIGHTS)) - at
    np.testing.assert_allclose(found, w, rtol=1e-9)


def test_peers_that_dealt_zero_leave_the_model_as_it_is():
    engine = Quadratics((1, 2, 3), sgd())
    stored = engine.stored
    engine.stored = lambda t, peers=None: 0 * stored(t) if peers else stored(t)
    engine.run.models[:] = engine.run.models[:1]
    for t in range(5):
        step = 0.2 * stored(t) / 4
        engine.run.models.append(engine.run.models[t] - step)
    found = engine.drive(erased(engine.run))
    np.testing.assert_allclose(found, engine.run.models[-1], rtol=1e-12)


def test_it_then_learns_from_the_original_model():
    """Here every peer's distillation loss is least at the teacher."""
    engine = Quadratics((1, 2, 3), sgd())
    start = engine.drive(erased(engine.run))
    options = DistillationOptions(rounds=40, temperature=2.0)
    engine.requests.clear()
    found = engine.drive(distillation(engine.run, options))
    before, after = (np.linalg.norm(w - engine.run.models[-1]) for w in (start, found))
    assert after < 0.05 * before
    asked = [r for r in engine.requests if isinstance(r, Update)]
    assert [r.round for r in asked] == list(range(40))
    assert {(r.teacher.temperature, r.of) for r in asked} == {(2.0, None)}
    assert all(r.teacher.models == (engine.run.models[-1],) for r in asked)


def test_it_opens_two_stored_sums_of_every_round_and_fresh_ones():
    engine = Quadratics((1, 2, 3), sgd())
    engine.drive(distillation(engine.run))
    assert kinds(engine) == {Past, Removed, Update}
    assert [r.rounds for r in engine.requests if isinstance(r, Removed)] == [
        (t,) for t in range(ROUNDS)
    ]
    assert len(engine.steps()) == ROUNDS // 10


def test_in_a_federation_the_student_comes_to_predict_what_the_teacher_does():
    federation = small.trained(clear=True)
    x = torch.tensor(small.points(seed=99, count=200)[0])[None]

    def predicted(w):
        return federation.simulated_peers.updates.soft_labels([w], x, 1.0)

    apart = {}
    for rounds in (1, 200):
        name = f"distillation:rounds={rounds}"
        state = federation.recover(small.REMOVED, name, reason="malicious")
        assert state.ledger.openings["fresh sums"] == rounds
        teacher = predicted(federation.original.models[-1])
        apart[rounds] = float((predicted(state.weights) - teacher).abs().mean())
    assert apart[200] < 0.2 * apart[1]


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"temperature": 0.0}])
def test_constants_that_cannot_be_are_refused(wrong):
    with pytest.raises(PlanError, match="distillation needs"):
        DistillationOptions(**wrong)
