"""Crab: its selections by hand, and the whole against a plain loop."""

import math

import numpy as np
import pytest
import small
from quadratics import Quadratics, kinds, sgd

from pdlrecover.errors import PlanError
from pdlrecover.recovery import crab as module
from pdlrecover.recovery.crab import (
    CrabOptions,
    crab,
    divergence,
    keep,
    select_rounds,
    windows,
)
from pdlrecover.recovery.requests import Individual, Individuals, Loss, Past, Removed

WEIGHTS = (0.7, 1.0, 0.25, 0.6)


def test_a_window_closes_when_the_loss_has_dropped_by_its_share():
    losses = [2.0, 1.9, 1.8, 1.7, 1.7, 1.62, 3.0, 1.5, 1.0, 0.95]
    assert windows(losses, 0.1) == [range(2), range(2, 5), range(5, 8), range(8, 10)]


def test_a_loss_that_does_not_drop_leaves_one_window():
    assert windows([1.0, 1.1, math.nan, 0.95], 0.1) == [range(4)]


def test_in_each_window_the_rounds_of_the_largest_change_are_kept():
    changes = [5, 1, 4, 2, 3, 9, 8, 0, 7]
    parts = [range(5), range(5, 8), range(8, 9)]
    assert select_rounds(parts, changes, 0.6) == {0, 2, 4, 5, 6, 8}  # 3 of 5, 2 of 3, 1 of 1
    assert select_rounds(parts, changes, 0.0) == {0, 5, 8}
    assert select_rounds(parts, changes, 1.0) == set(range(9))


def test_the_change_of_a_model_is_the_divergence_of_softmaxes():
    before, after = [0.0, math.log(3.0)], [math.log(4.0), 0.0]  # ¼, ¾ and ⅘, ⅕
    expected = 0.25 * math.log(0.25 / 0.8) + 0.75 * math.log(0.75 / 0.2)
    assert divergence(np.array(before), np.array(after)) == pytest.approx(expected)
    assert divergence(np.array(before), np.array(before)) == 0


def test_the_peers_closest_in_cosine_are_kept_however_long_their_updates():
    rows = [[0.1, 0.0], [3.0, 4.0], [-5.0, 0.0], [0.0, 0.0], [1.0, 0.2]]
    stored = Individuals(values=np.array(rows, dtype=np.float32), weights=np.ones(5))
    found = keep(7, stored, np.array([20.0, 0.0]), 0.6)  # cosines 1, 0.6, −1, none, 0.98
    assert (found.round, found.peers) == (7, (0, 1, 4))
    np.testing.assert_allclose(found.lengths, [0.1, 5.0, math.hypot(1.0, 0.2)], rtol=1e-6)
    assert keep(7, stored, np.array([20.0, 0.0]), 0.8).peers == (0, 1, 2, 4)
    assert keep(7, stored, np.array([20.0, 0.0]), 0.0).peers == (0,)


def softmax(w):
    return np.exp(w) / np.exp(w).sum()


def oracle(engine, options, change=None):
    """Return the model, where it started, and the kept rounds with their peers; plain SGD only."""
    run, kept, alpha = engine.run, engine.kept, engine.weights
    rounds, everyone = run.rounds, range(4)
    losses = [
        sum(alpha[i] * engine.loss(i, run.models[t]) for i in kept) / sum(alpha[i] for i in kept)
        for t in range(rounds)
    ]
    parts, part = [], [0]
    for t in range(1, rounds):
        if losses[t] <= (1 - options.drop) * losses[part[0]]:
            parts.append(part)
            part = []
        part.append(t)
    parts.append(part)

    def divergence_of_round(t):
        p, q = softmax(run.models[t]), softmax(run.models[t + 1])
        return sum(p * np.log(p / q))

    change = change or divergence_of_round
    chosen = {}
    for part in parts:
        for t in sorted(part, key=change, reverse=True)[: max(1, round(0.6 * len(part)))]:
            total = engine.total(everyone, run.models[t])

            def cosine(i, t=t, total=total):
                g = engine.update(i, run.models[t])
                return g @ total / np.linalg.norm(g) / np.linalg.norm(total)

            best = sorted(kept, key=cosine, reverse=True)[: round(0.7 * len(kept))]
            chosen[t] = sorted(best)

    def moved(t):
        w = run.models[t]
        everybody = engine.total(everyone, w) / sum(alpha)
        ours = engine.total(kept, w) / sum(alpha[i] for i in kept)
        return np.linalg.norm(everybody - ours)

    sensitivity = [sum(moved(s) for s in range(t)) for t in range(rounds + 1)]
    allowed = options.sensitivity * sensitivity[rounds]
    start = max([t for t in chosen if sensitivity[t] <= allowed], default=0)
    after = sorted(t for t in chosen if t >= start)
    model = run.models[start]
    for place, t in enumerate(after):
        end = after[place + 1] if place + 1 < len(after) else rounds
        begin = start if place == 0 else t
        total = 0
        for i in chosen[t]:
            fresh = engine.update(i, model)
            length = np.linalg.norm(engine.update(i, run.models[t]))
            total = total + length * fresh / np.linalg.norm(fresh)
        times = end - begin if options.repeat else 1
        model = model - times * 0.2 * total / sum(alpha[i] for i in chosen[t])
    return model, start, {t: chosen[t] for t in after}, len(parts)


@pytest.mark.parametrize("repeat", [True, False])
@pytest.mark.parametrize("drop", [0.01, 0.1])
@pytest.mark.parametrize("sensitivity", [0.0, 0.3, 0.6])
def test_the_whole_is_what_a_plain_loop_does(sensitivity, drop, repeat):
    options = CrabOptions(sensitivity=sensitivity, drop=drop, repeat=repeat)
    engine = Quadratics((0, 2, 3), sgd(), weights=WEIGHTS)
    found = engine.drive(crab(engine.run, options))
    model, start, chosen, parts = oracle(engine, options)
    assert parts > 1
    assert (start > 0) == (sensitivity > 0)
    np.testing.assert_allclose(found, model, atol=1e-4)
    calibrating = [r for r in engine.requests if isinstance(r, Individual) and r.of is not None]
    assert {r.round: [engine.kept[i] for i in r.of] for r in calibrating} == chosen
    assert [r.round for r in calibrating if r.at is None] == [start]
    if repeat:
        assert [s.round for s in engine.steps()] == list(range(start, 30))
    else:
        assert [s.round for s in engine.steps()] == sorted(chosen)


def test_where_no_kept_model_is_clean_enough_it_starts_at_the_first(monkeypatch):
    """Here late rounds count as large changes, so that round 0 is not among the kept ones."""
    engine = Quadratics((0, 2, 3), sgd(), weights=WEIGHTS)
    models = engine.run.models
    monkeypatch.setattr(
        module, "divergence", lambda a, b: next(t for t in range(30) if models[t] is a)
    )
    options = CrabOptions(sensitivity=0.0)
    found = engine.drive(crab(engine.run, options))
    model, start, chosen, _ = oracle(engine, options, change=lambda t: t)
    assert start == 0 < min(chosen)
    np.testing.assert_allclose(found, model, atol=1e-4)
    assert [s.round for s in engine.steps()] == list(range(30))


def test_it_asks_for_losses_for_what_the_removed_did_and_for_single_updates_of_kept_rounds():
    engine = Quadratics((1, 2, 3), sgd())
    engine.drive(crab(engine.run))
    assert kinds(engine) == {Loss, Past, Removed, Individual}
    stored = {r.round for r in engine.requests if isinstance(r, Individual) and r.at is None}
    assert 0 < len(stored) < 30


def test_a_share_beyond_one_is_refused():
    with pytest.raises(PlanError, match=r"Crab's peers is a share from 0 to 1, got 1\.5"):
        CrabOptions(peers=1.5)


def test_with_nobody_removed_there_is_nothing_to_roll_back():
    federation = small.trained(clear=True)
    with pytest.raises(PlanError, match="takes away what removed peers have done"):
        federation.run_method([], "crab", settings=small.SETTINGS)


def test_in_a_federation_fewer_updates_are_opened_than_there_are():
    federation = small.trained(clear=True)
    state = federation.recover(small.REMOVED, "crab", reason="malicious")
    assert np.isfinite(state.weights).all()
    opened = state.ledger.openings
    assert opened["losses"] == opened["removed sums"] == opened["stored sums"] == 40
    stored = opened["individual"] - state.ledger.gradient_evaluations
    assert 0 < stored < 40 * 6
    assert 0 < state.ledger.gradient_evaluations < 40 * 4
