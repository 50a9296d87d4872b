"""Rapid retraining against its formula in plain loops, and in the simulation."""

import numpy as np
import pytest
import small
from quadratics import D, Quadratics, kinds, sgd

from pdlrecover.errors import PlanError
from pdlrecover.recovery.rapid_retrain import RapidOptions, blocked, rapid_retrain
from pdlrecover.recovery.requests import Update

OPTIONS = RapidOptions(rounds=12, rate=0.01, damping=0.05, beta1=0.8, beta2=0.9, block=4)


def by_hand(engine, options):
    """Return the last model: sums over all rounds so far, one coordinate after the other."""
    w, gradients = engine.run.models[0], []
    weight = engine.weights[list(engine.kept)].sum()
    for t in range(1, options.rounds + 1):
        gradients.append(engine.total(engine.kept, w) / weight)
        after = w.copy()
        for j in range(D):
            first = (j // options.block) * options.block
            block = range(first, min(first + options.block, D))
            m = v = 0.0
            for i, g in enumerate(gradients, start=1):
                fisher = sum(g[k] ** 2 for k in block) / len(block)
                m += (1 - options.beta1) * options.beta1 ** (t - i) * g[j]
                v += (1 - options.beta2) * options.beta2 ** (t - i) * fisher**2
            m /= 1 - options.beta1**t
            v /= 1 - options.beta2**t
            after[j] -= options.rate * m / (v**0.5 + options.damping)
        w = after
    return w


def test_it_steps_by_the_fisher_diagonal_of_the_opened_mean():
    engine = Quadratics((1, 2, 3), sgd(), weights=(0.7, 1.0, 0.25, 0.6))
    found = engine.drive(rapid_retrain(engine.run, OPTIONS))
    np.testing.assert_allclose(found, by_hand(engine, OPTIONS), rtol=1e-10)
    assert kinds(engine) == {Update}
    assert [step.exact for step in engine.steps()] == [True] * 12


def test_blocks_are_means_of_neighbours():
    np.testing.assert_array_equal(blocked(np.array([1.0, 2, 3, 4, 6]), 3), [2, 2, 2, 5, 5])
    np.testing.assert_array_equal(blocked(np.array([1.0, 2]), 1), [1, 2])
    np.testing.assert_array_equal(blocked(np.array([1.0, 2]), 5), [1.5, 1.5])


def test_it_comes_to_the_kept_peers_optimum():
    """Steps grow as gradients vanish, up to η/λ times the gradient: here that is contracting."""
    engine = Quadratics((1, 2, 3), sgd())
    options = RapidOptions(rounds=3000, rate=0.02, damping=0.1)
    found = engine.drive(rapid_retrain(engine.run, options))
    optimum = np.linalg.solve(
        engine.hessians[1:].sum(axis=0), (engine.hessians[1:] @ engine.centres[1:, :, None]).sum(0)
    )
    np.testing.assert_allclose(found, optimum[:, 0], atol=1e-3)


def test_it_trains_a_network_in_fewer_rounds_than_the_run():
    federation = small.trained(clear=True)
    name = "rapid-retrain:rounds=20+rate=0.01+damping=0.01"
    state = federation.recover(small.REMOVED, name, reason="malicious")
    assert dict(state.ledger.openings) == {"fresh sums": 20}
    assert state.accuracy(*small.points(seed=99, count=200)) > 0.9


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"block": 0}, {"rate": 0.0}, {"beta2": 1.0}])
def test_constants_that_cannot_be_are_refused(wrong):
    with pytest.raises(PlanError, match="rapid retraining"):
        RapidOptions(**wrong)
