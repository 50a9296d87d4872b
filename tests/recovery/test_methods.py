"""Methods are generators: here they are driven by hand, on a problem one can see through."""

from dataclasses import replace

import numpy as np
import pytest
import small
from quadratics import ROUNDS, D, Quadratics, kinds, sgd

from pdlrecover.errors import PlanError
from pdlrecover.field import FixedPoint
from pdlrecover.recovery.auto import AutoOptions, auto
from pdlrecover.recovery.methods import BASELINES, METHODS, Settings, check, start
from pdlrecover.recovery.optimizers import SGD, Adam, Rate
from pdlrecover.recovery.pdlrecover import SGD_BLOCK, HopelessError, Options, pdlrecover
from pdlrecover.recovery.requests import (
    Direction,
    Dots,
    Individual,
    Past,
    Removed,
    Stepped,
    Sum,
    Update,
)
from pdlrecover.recovery.retrain import train
from pdlrecover.recovery.schedule import Schedule

SCHEDULE = Schedule(preparation=4, period=6, final=3, buffer=3)


def test_retraining_with_everybody_is_the_original_run():
    engine = Quadratics(kept=range(4), optimizer=sgd())
    found = engine.drive(start("retrain", engine.run, Settings()))
    np.testing.assert_array_equal(found, engine.run.models[-1])
    assert kinds(engine) == {Update}


@pytest.mark.parametrize("optimizer", [sgd(), SGD(rate=Rate(peak=0.05), momentum=0.8)])
def test_replaying_everybody_is_the_original_run(optimizer):
    engine = Quadratics(kept=range(4), optimizer=optimizer)
    found = engine.drive(start("historical", engine.run, Settings()))
    np.testing.assert_allclose(found, engine.run.models[-1], rtol=1e-12)
    assert kinds(engine) == {Past}


def test_pdlrecover_with_nobody_removed_is_the_original_run():
    engine = Quadratics(kept=range(4), optimizer=sgd())
    found = engine.drive(pdlrecover(engine.run, Options(schedule=SCHEDULE)))
    np.testing.assert_array_equal(found, engine.run.models[-1])
    assert kinds(engine) == {Update}  # no displacement, no pair, no curvature to estimate with


@pytest.mark.parametrize("optimizer", [sgd(), Adam(rate=Rate(peak=0.1))])
def test_pdlrecover_comes_close_to_retraining_and_historical_does_not(optimizer):
    kept = range(1, 4)
    retrained = Quadratics(kept, optimizer)
    target = retrained.drive(start("retrain", retrained.run, Settings()))
    distances = {}
    for name in ("pdlrecover", "historical"):
        engine = Quadratics(kept, optimizer)
        settings = Settings(options=Options(schedule=SCHEDULE))
        found = engine.drive(start(name, engine.run, settings))
        distances[name] = np.linalg.norm(found - target)
    assert distances["pdlrecover"] < 0.2 * distances["historical"]


@pytest.mark.parametrize("optimizer", [sgd(), Adam(rate=Rate(peak=0.1))])
def test_opened_pairs_without_blocks_are_the_same_recovery(optimizer):
    models = []
    for open_pairs in (False, True):
        engine = Quadratics(range(1, 4), optimizer)
        options = Options(schedule=SCHEDULE, open_pairs=open_pairs, block=1)
        models.append(engine.drive(pdlrecover(engine.run, options)))
    np.testing.assert_allclose(models[0], models[1], rtol=1e-9)


def test_blocks_open_stored_sums_together():
    engine = Quadratics(range(1, 4), sgd())
    options = Options(schedule=SCHEDULE, open_pairs=True, block=3)
    engine.drive(pdlrecover(engine.run, options))
    blocks = [r.rounds for r in engine.requests if isinstance(r, Past)]
    opened = [t for block in blocks if len(block) > 1 for t in block]
    assert (4, 5, 6) in blocks
    assert all(not SCHEDULE.is_exact(t, ROUNDS) for t in opened)
    assert kinds(engine) == {Update, Past}


def test_blocks_of_shared_pairs_open_one_direction_for_all_their_rounds():
    engine = Quadratics(range(1, 4), sgd())
    engine.drive(pdlrecover(engine.run, Options(schedule=SCHEDULE, block=3)))
    blocks = [r.rounds for r in engine.requests if isinstance(r, Direction)]
    estimated = [r.round for r in engine.requests if isinstance(r, Stepped) and not r.exact]
    assert (4, 5, 6) in blocks
    assert [t for block in blocks for t in block] == estimated
    assert kinds(engine) == {Update, Dots, Direction}


def test_a_shared_block_is_the_mean_of_its_stored_updates_and_one_correction():
    engine = Quadratics(range(1, 4), sgd())
    engine.drive(pdlrecover(engine.run, Options(schedule=SCHEDULE, block=3)))
    steps = [r.model for r in engine.requests if isinstance(r, Stepped)]
    moves = np.diff(steps, axis=0)
    np.testing.assert_allclose(moves[3], moves[4], rtol=1e-9)  # rounds 4, 5 and 6
    np.testing.assert_allclose(moves[4], moves[5], rtol=1e-9)
    assert not np.allclose(moves[5], moves[6], rtol=1e-3)


@pytest.mark.parametrize(
    ("optimizer", "open_pairs", "length"),
    [
        (sgd(), False, SGD_BLOCK),
        (sgd(), True, 1),
        (SGD(rate=Rate(peak=0.1), momentum=0.9), False, 1),
        (Adam(rate=Rate(peak=0.1)), False, 1),
    ],
)
def test_only_plain_sgd_is_replayed_in_shared_blocks_by_default(optimizer, open_pairs, length):
    run = Quadratics(range(1, 4), optimizer).run
    assert Options(open_pairs=open_pairs).block_for(run) == length
    assert Options(open_pairs=open_pairs, block=3).block_for(run) == 3


def test_the_guard_turns_a_wild_estimate_into_an_exact_round():
    engine = Quadratics(range(1, 4), sgd())
    honest = engine.answer

    def wild(request):
        reply = honest(request)
        if isinstance(request, Direction):
            reply = Sum(values=reply.values * 1e6, weight=reply.weight)
        return reply

    engine.answer = wild
    found = engine.drive(pdlrecover(engine.run, Options(schedule=SCHEDULE)))
    steps = [r for r in engine.requests if isinstance(r, Stepped)]
    assert all(step.exact for step in steps)
    assert sum(step.fallback for step in steps) == ROUNDS - SCHEDULE.exact_rounds(ROUNDS)
    retrained = Quadratics(range(1, 4), sgd())
    target = retrained.drive(start("retrain", retrained.run, Settings()))
    np.testing.assert_allclose(found, target, rtol=1e-12)


def test_a_hopeless_replay_is_given_up():
    engine = Quadratics(range(1, 4), sgd())
    honest = engine.answer
    engine.answer = lambda r: (
        Sum(values=np.full(D, np.nan), weight=3.0) if isinstance(r, Direction) else honest(r)
    )
    with pytest.raises(HopelessError, match="the guard asked for 4 exact rounds"):
        engine.drive(pdlrecover(engine.run, Options(schedule=SCHEDULE, guard_limit=3)))


@pytest.mark.parametrize("name", small.PRIVATE)
def test_no_private_method_asks_for_an_individual_update(name):
    for optimizer in (sgd(), Adam(rate=Rate(peak=0.1))):
        engine = Quadratics(range(1, 4), optimizer)
        settings = Settings(options=Options(schedule=SCHEDULE))
        assert np.isfinite(engine.drive(start(name, engine.run, settings))).all()
        assert kinds(engine) <= {Update, Past, Dots, Direction, Removed}


@pytest.mark.parametrize("name", ["fedrecover", "fed-eraser", "crab"])
def test_the_others_do(name):
    for optimizer in (sgd(), Adam(rate=Rate(peak=0.1))):
        engine = Quadratics(range(1, 4), optimizer)
        assert np.isfinite(engine.drive(start(name, engine.run, Settings()))).all()
        assert Individual in kinds(engine)


def test_rivals_are_no_baselines():
    assert BASELINES == (
        "retrain",
        "historical",
        "pdlrecover",
        "auto",
        "retrain-k",
        "fine-tune-k",
        "replay-then-tune",
        "accelerated-retrain",
    )


@pytest.mark.parametrize(
    ("name", "exact"),
    [("retrain-k", 7), ("fine-tune-k", 7), ("replay-then-tune", 7), ("accelerated-retrain", 9)],
)
def test_methods_with_a_budget_keep_to_it(name, exact):
    engine = Quadratics(range(1, 4), sgd())
    engine.drive(start(name, engine.run, Settings(budget=7, accelerated_rounds=9)))
    assert sum(isinstance(r, Update) for r in engine.requests) == exact


def test_fine_tuning_starts_at_the_poisoned_model():
    engine = Quadratics(range(1, 4), sgd())
    engine.drive(start("fine-tune-k", engine.run, Settings(budget=2)))
    np.testing.assert_array_equal(engine.requests[0].at, engine.run.models[-1])


@pytest.mark.parametrize(("gate", "replays"), [(1e9, True), (0.0, False)])
def test_auto_asks_the_gate_whether_to_replay_an_adam_run(gate, replays):
    engine = Quadratics(range(1, 4), Adam(rate=Rate(peak=0.1)), rounds=60)
    engine.drive(auto(engine.run, 32, AutoOptions(gate=gate)))
    assert [r.rounds for r in engine.requests[:2]] == [tuple(range(54, 60)), tuple(range(5))]
    assert (Direction in kinds(engine)) == replays


def drifting(limit):
    """Replay an Adam run with this limit; return the engine."""
    engine = Quadratics(range(1, 4), Adam(rate=Rate(peak=0.1)), rounds=60)
    options = AutoOptions(gate=1e9, drift_limit=limit, guard_limit=60, polish=7)
    engine.drive(auto(engine.run, 32, options))
    return engine


def test_auto_gives_a_replay_up_that_has_drifted_and_goes_on_from_there():
    steady, drifted = drifting(1e9), drifting(0.0)
    fresh = [r for r in drifted.requests if isinstance(r, Update)]
    k = round(AutoOptions().rescue * 60)
    assert [r.round for r in fresh[-k:]] == list(range(60 - k, 60))
    assert {r.round for r in fresh[:-k]} >= set(range(AutoOptions().schedule.preparation))
    assert max(r.round for r in fresh[:-k]) < 15  # looked at from a fifth of the rounds on
    assert np.abs(fresh[-k].at - drifted.run.models[0]).max() > 0.1  # not from the start
    last = [r.round for r in steady.requests if isinstance(r, Update)][-7:]
    assert last == list(range(53, 60))


def test_a_replay_is_given_up_where_its_distance_passes_the_limit():
    engine = Quadratics(range(1, 4), Adam(rate=Rate(peak=0.1)), rounds=60)
    method = pdlrecover(engine.run, Options(schedule=SCHEDULE, drift_limit=0.3))
    with pytest.raises(HopelessError, match="off the run") as given_up:
        engine.drive(method)
    seen = engine.steps()
    models = engine.run.models

    def drift(step):
        t = step.round + 1
        gone = np.linalg.norm(models[t] - models[0])
        return np.linalg.norm(step.model - models[t]) / gone

    np.testing.assert_array_equal(given_up.value.model, seen[-1].model)
    assert drift(seen[-1]) > 0.3
    assert all(drift(step) <= 0.3 for step in seen[:-1] if step.round + 1 >= 12)


def test_auto_has_variants():
    engine = Quadratics(range(1, 4), Adam(rate=Rate(peak=0.1)), rounds=60)
    settings = Settings(own=(AutoOptions(gate=1e9, drift_limit=1e9, guard_limit=60),))
    engine.drive(start("auto:preparation=4+period=10+polish=3", engine.run, settings))
    fresh = [r.round for r in engine.requests if isinstance(r, Update)]
    assert fresh[:4] == [0, 1, 2, 3]
    assert fresh[-4] < 57
    assert fresh[-3:] == [57, 58, 59]


def test_a_variant_of_auto_replays_with_another_damping():
    ends = {}
    for damping in ("0.1", "1"):
        engine = Quadratics(range(1, 4), Adam(rate=Rate(peak=0.1)), rounds=60)
        settings = Settings(own=(AutoOptions(gate=1e9, drift_limit=1e9, guard_limit=60),))
        engine.drive(start(f"auto:damping={damping}", engine.run, settings))
        ends[damping] = next(s.model for s in reversed(engine.steps()) if not s.exact)
    assert np.abs(ends["0.1"] - ends["1"]).max() > 1e-3


def test_a_variant_of_auto_retrains_for_a_share_of_the_rounds():
    engine = Quadratics(range(1, 4), Adam(rate=Rate(peak=0.1)), rounds=60)
    settings = Settings(own=(AutoOptions(gate=0.0),))
    engine.drive(start("auto:retrain=0.25", engine.run, settings))
    assert sum(isinstance(r, Update) for r in engine.requests) == 15


def test_auto_retrains_an_sgd_run_with_adam():
    engine = Quadratics(range(1, 4), sgd(), rounds=60)
    engine.drive(start("auto", engine.run, Settings(batch_size=32)))
    assert kinds(engine) == {Update}
    assert sum(isinstance(r, Update) for r in engine.requests) == 50


def test_auto_replays_an_sgd_run_of_tiny_batches():
    engine = Quadratics(range(1, 4), sgd(), rounds=200)
    engine.drive(start("auto", engine.run, Settings(batch_size=2)))
    assert Direction in kinds(engine)


def test_unknown_methods_are_refused_with_the_known_ones():
    engine = Quadratics(range(1, 4), sgd())
    with pytest.raises(
        PlanError, match="no method is called 'magic'; there are retrain, historical"
    ):
        start("magic", engine.run, Settings())


def test_a_block_has_at_least_one_round():
    with pytest.raises(PlanError, match="block must be at least 1, got 0"):
        Options(block=0)


def test_training_is_a_method_too():
    engine = Quadratics(kept=range(4), optimizer=sgd())
    found = engine.drive(train(np.zeros(D), sgd(), range(ROUNDS)))
    np.testing.assert_array_equal(found, engine.run.models[-1])


def test_estimates_that_cannot_be_had_count_for_giving_up():
    engine = Quadratics(range(1, 4), sgd())
    honest = engine.answer
    engine.answer = lambda r: (
        np.zeros((len(r.vectors), len(r.pairs))) if isinstance(r, Dots) else (honest(r))
    )
    with pytest.raises(HopelessError, match="the guard asked for 4 exact rounds"):
        engine.drive(pdlrecover(engine.run, Options(schedule=SCHEDULE, guard_limit=3)))


def test_blocks_shrink_to_what_the_encoding_has_room_for():
    run = Quadratics(range(1, 4), sgd()).run
    room = FixedPoint(peers=200, bound=1e2, length=D + 1)
    assert Options().block_for(replace(run, code=room)) == 2
    with pytest.raises(PlanError, match="leave no room for curvature"):
        Options().block_for(replace(run, code=FixedPoint(peers=200, bound=1e5, length=D + 1)))


def test_a_buffer_beyond_what_engines_keep_is_refused():
    with pytest.raises(PlanError, match="buffer must be at most 16, got 17"):
        Schedule(buffer=17)


def test_a_variant_changes_the_settings_it_names():
    engine = Quadratics(range(1, 4), sgd())
    settings = Settings(options=Options(schedule=SCHEDULE))
    engine.drive(start("pdlrecover:preparation=6+final=0+block=2", engine.run, settings))
    exact = [r.round for r in engine.requests if isinstance(r, Stepped) and r.exact]
    assert exact == [*range(6), *range(5 + SCHEDULE.period, ROUNDS, SCHEDULE.period)]
    blocks = [len(r.rounds) for r in engine.requests if isinstance(r, Direction)]
    assert max(blocks) == 2
    again = Quadratics(range(1, 4), sgd())
    again.drive(start("retrain-k:rounds=3", again.run, settings))
    assert sum(isinstance(r, Update) for r in again.requests) == 3


@pytest.mark.parametrize(
    "name",
    [
        "pdlrecover:speed=3",
        "pdlrecover:final",
        "retrain-k:rounds=-1",
        "auto:polish=2.5",
        "auto:rescue=.",
    ],
)
def test_variants_that_cannot_be_are_refused(name):
    with pytest.raises(PlanError, match="is no variant of"):
        start(name, Quadratics(range(1, 4), sgd()).run, Settings())


def test_rivals_are_asked_for_by_name():
    assert len(BASELINES) == 8
    rivals = {"fedrecovery", "fedrecovery-noise", "certified-removal"}
    assert rivals <= set(METHODS) - set(BASELINES)


def test_what_cannot_run_on_shares_is_refused_there():
    check("certified-removal", clear=True)
    check("fedrecovery", clear=False)
    message = "certified-removal needs Hessians over peers' whole data, which are never opened on"
    with pytest.raises(PlanError, match=message):
        check("certified-removal", clear=False)
