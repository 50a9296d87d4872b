"""Methods are generators: here they are driven by hand, on a problem one can see through."""

from dataclasses import replace

import numpy as np
import pytest
import small
from quadratics import LAYERS, ROUNDS, D, Quadratics, kinds, sgd

from pdlrecover.errors import PlanError
from pdlrecover.field import FixedPoint
from pdlrecover.recovery.accelerated import AcceleratedOptions
from pdlrecover.recovery.certified_removal import RemovalOptions
from pdlrecover.recovery.crab import CrabOptions
from pdlrecover.recovery.delta_grad import DeltaGradOptions
from pdlrecover.recovery.fed_eraser import FedEraserOptions
from pdlrecover.recovery.fedrecover import FedRecoverOptions
from pdlrecover.recovery.fedrecovery import Noise
from pdlrecover.recovery.methods import (
    BASELINES,
    METHODS,
    Settings,
    check,
    check_plan,
    length,
    start,
    starts_afresh,
    varied,
)
from pdlrecover.recovery.optimizers import SGD, Adam, Muon, Rate
from pdlrecover.recovery.pdlrecover import SGD_BLOCK, Options, pdlrecover
from pdlrecover.recovery.requests import (
    Direction,
    Dots,
    FreshStart,
    Individual,
    Past,
    PastBlocks,
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
    blocks = opened_blocks(engine)
    opened = [t for block in blocks if len(block) > 1 for t in block]
    assert (4, 5, 6) in blocks
    assert all(not SCHEDULE.is_exact(t, ROUNDS) for t in opened)
    assert kinds(engine) == {Update, PastBlocks}


def opened_blocks(engine):
    return [block for r in engine.requests if isinstance(r, PastBlocks) for block in r.blocks]


def test_opened_pairs_open_once_what_the_schedule_needs_and_nothing_else():
    engine = Quadratics(range(1, 4), sgd())
    engine.drive(pdlrecover(engine.run, Options(schedule=SCHEDULE, open_pairs=True)))
    pairs = [(1,), (2,), (3,), (9,), (15,), (21,)]  # the last three of the preparation, and others
    blocks = [tuple(range(a, b)) for a, b in ((4, 9), (10, 15), (16, 21), (22, 27))]
    assert sorted(opened_blocks(engine)) == sorted(pairs + blocks)
    assert sum(isinstance(r, PastBlocks) for r in engine.requests) == 1


def test_a_run_that_ends_in_an_exact_round_does_not_open_that_rounds_pair():
    engine, schedule = Quadratics(range(1, 4), sgd(), rounds=10), replace(SCHEDULE, final=0)
    engine.drive(pdlrecover(engine.run, Options(schedule=schedule, open_pairs=True)))
    assert schedule.is_exact(9, 10)
    assert opened_blocks(engine) == [(1,), (2,), (3,), (4, 5, 6, 7, 8)]


@pytest.mark.parametrize("most", [1, 2 * (D + 1), 3 * (D + 1) + 1])
def test_the_model_does_not_depend_on_how_many_sums_are_opened_at_once(most, monkeypatch):
    models, engines = [], []
    for limit in (10**6, most):
        monkeypatch.setattr("pdlrecover.recovery.pdlrecover.MOST_NUMBERS", limit)
        engines.append(Quadratics(range(1, 4), sgd()))
        options = Options(schedule=SCHEDULE, open_pairs=True)
        models.append(engines[-1].drive(pdlrecover(engines[-1].run, options)))
    np.testing.assert_array_equal(*models)
    assert sorted(opened_blocks(engines[1])) == sorted(opened_blocks(engines[0]))
    sizes = [len(r.blocks) for r in engines[1].requests if isinstance(r, PastBlocks)]
    assert max(sizes) == max(1, most // (D + 1))


def test_the_pair_of_a_round_that_the_guard_made_exact_is_used():
    engine = Quadratics(range(1, 4), sgd())
    honest = engine.answer

    def wild_at_first(request):
        reply = honest(request)
        if isinstance(request, PastBlocks):
            reply = [
                Sum(values=reply.values * (1e6 if 4 in block else 1), weight=reply.weight)
                for block, reply in zip(request.blocks, reply, strict=True)
            ]
        return reply

    engine.answer = wild_at_first
    options = Options(schedule=SCHEDULE, open_pairs=True, block=2)
    engine.drive(pdlrecover(engine.run, options))
    assert [step.round for step in engine.steps() if step.fallback] == [4, 5]
    opened = opened_blocks(engine)
    assert {(4,), (5,)} < set(opened)
    assert len(opened) == len(set(opened))


@pytest.mark.parametrize(("away", "estimates"), [(1, False), (9, True), (15, True)])
def test_a_pair_of_sums_of_different_peers_is_left_out_and_never_shared(away, estimates):
    """From this round on one peer is in the stored sums, and not in the fresh ones.

    A shared pair would be of the others only: less what is open, that is the absent one's update.
    """
    engine = Quadratics(range(1, 4), sgd())
    honest = engine.answer

    def answer(request):
        reply = honest(request)
        if isinstance(request, PastBlocks):
            return tuple(
                Sum(values=each.values, weight=each.weight + (block[0] >= away))
                for block, each in zip(request.blocks, reply, strict=True)
            )
        return reply

    engine.answer = answer
    engine.drive(pdlrecover(engine.run, Options(schedule=SCHEDULE, open_pairs=True)))
    assert not kinds(engine) & {Direction, Dots}
    assert any(not step.exact for step in engine.steps()) == estimates


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
        (sgd(), True, Schedule().period),
        (SGD(rate=Rate(peak=0.1), momentum=0.9), False, 1),
        (SGD(rate=Rate(peak=0.1), momentum=0.9), True, 1),
        (Adam(rate=Rate(peak=0.1)), False, 1),
        (Adam(rate=Rate(peak=0.1)), True, 1),
    ],
)
def test_only_plain_sgd_is_replayed_in_blocks_by_default(optimizer, open_pairs, length):
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


@pytest.mark.parametrize("name", small.PRIVATE)
def test_no_private_method_asks_for_an_individual_update(name):
    for optimizer in (sgd(), Adam(rate=Rate(peak=0.1))):
        engine = Quadratics(range(1, 4), optimizer)
        settings = Settings(options=Options(schedule=SCHEDULE))
        assert np.isfinite(engine.drive(start(name, engine.run, settings))).all()
        assert kinds(engine) <= {Update, Past, Dots, Direction, Removed}


@pytest.mark.parametrize("name", ["fedrecover", "fed-eraser", "crab", "knot"])
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
    engine.drive(
        start(name, engine.run, Settings(budget=7, accelerated=AcceleratedOptions(rounds=9)))
    )
    assert sum(isinstance(r, Update) for r in engine.requests) == exact


def test_fine_tuning_starts_at_the_poisoned_model():
    engine = Quadratics(range(1, 4), sgd())
    engine.drive(start("fine-tune-k", engine.run, Settings(budget=2)))
    np.testing.assert_array_equal(engine.requests[0].at, engine.run.models[-1])


def updates(engine):
    return [r for r in engine.requests if isinstance(r, Update)]


@pytest.mark.parametrize(
    ("optimizer", "batch_size", "rounds", "steps"),
    [
        (sgd(), 32, 25, None),
        (Adam(rate=Rate(peak=0.1)), 16, 25, None),
        (sgd(), 2, 25, 8),
        (sgd(), 5, 25, 4),
        (Muon(rate=Rate(peak=0.04), layers=LAYERS), 32, 40, None),
    ],
)
def test_auto_knows_how_many_rounds_and_local_steps_a_run_needs(
    optimizer, batch_size, rounds, steps
):
    engine = Quadratics(range(1, 4), optimizer)
    settings = Settings(batch_size=batch_size)
    engine.drive(start("auto", engine.run, settings))
    assert kinds(engine) == {Update}
    assert len(updates(engine)) == length("auto", engine.run, settings) == rounds
    assert {r.local.steps if r.local else None for r in updates(engine)} == {steps}


def test_auto_has_variants():
    engine = Quadratics(range(1, 4), sgd())
    engine.drive(start("auto:rounds=7+samples=64", engine.run, Settings(batch_size=32)))
    assert len(updates(engine)) == 7
    assert {r.local.steps for r in updates(engine)} == {2}


def test_accelerated_retraining_steps_as_muon_does():
    engine = Quadratics(range(1, 4), sgd())
    found = engine.drive(start("accelerated-retrain:rounds=12", engine.run, Settings()))
    stepper = Muon(rate=Rate(peak=0.05, hold=0.0, rounds=12), layers=LAYERS, gain=60.0).start()
    model = engine.run.models[0]
    for _ in range(12):
        model = stepper.step(model, engine.total(engine.kept, model) / 3)
    np.testing.assert_array_equal(found, model)


def test_accelerated_retraining_by_adam_is_a_variant():
    engine = Quadratics(range(1, 4), sgd())
    name = "accelerated-retrain:optimizer=adam+rounds=12"
    found = engine.drive(start(name, engine.run, Settings()))
    rate = Rate(peak=0.03, warmup=5, hold=0.6, rounds=12)
    stepper = Adam(rate=rate, beta1=0.8, beta2=0.99, epsilon=1e-4).start()
    model = engine.run.models[0]
    for _ in range(12):
        model = stepper.step(model, engine.total(engine.kept, model) / 3)
    np.testing.assert_array_equal(found, model)


def test_a_fresh_start_asks_for_nothing_of_the_training():
    engine = Quadratics(range(1, 4), sgd())
    run = replace(engine.run, fresh=FreshStart.drawn(b"some removal", lambda seed: np.ones(D)))
    engine.drive(start("accelerated-retrain:start=fresh", run, Settings()))
    np.testing.assert_array_equal(updates(engine)[0].at, np.ones(D))
    assert {r.stream for r in updates(engine)} == {run.fresh.stream} != {0}
    engine = Quadratics(range(1, 4), sgd())
    engine.drive(start("accelerated-retrain", run, Settings()))
    np.testing.assert_array_equal(updates(engine)[0].at, run.models[0])
    assert {r.stream for r in updates(engine)} == {0}
    with pytest.raises(PlanError, match="no way to draw new first weights"):
        start("accelerated-retrain:start=fresh", engine.run, Settings())


def test_every_removal_draws_another_fresh_start():
    seeds = []

    def first(seed):
        seeds.append(seed)
        return np.ones(D)

    streams = {FreshStart.drawn(bytes([i]), first).stream for i in range(9)}
    assert len(streams) == len(set(seeds)) == 9
    assert all(0 < stream < 1 << 63 for stream in streams)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("accelerated-retrain", False),
        ("accelerated-retrain:start=fresh", True),
        ("auto", False),
        ("auto:start=fresh", True),
        ("retrain", False),
        ("pdlrecover", False),
    ],
)
def test_a_method_says_whether_it_starts_afresh(name, expected):
    assert starts_afresh(name, Settings()) == expected
    given = Settings(accelerated=AcceleratedOptions(start="fresh"))
    assert starts_afresh(name, given) == ("accelerated" in name or name.startswith("auto"))


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ("optimizer=lion", "optimizer must be one of muon, adam, got 'lion'"),
        ("start=late", "start must be first or fresh, got 'late'"),
        ("local_steps=0", "local_steps must be at least 1, got 0"),
        ("rounds=many", r"with KEY of rounds \(a whole number\), optimizer \(a word\)"),
        ("rate=0", "rate must be above 0"),
    ],
)
def test_a_wrong_variant_of_accelerated_retraining_is_refused(variant, message):
    with pytest.raises(PlanError, match=message):
        check_plan(f"accelerated-retrain:{variant}", Settings(), rounds=30, removed=1)


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


VARIANTS = {
    "fedrecover:warmup=7+period=4+final=2+exceeding=0.001": FedRecoverOptions(
        warmup=7, period=4, final=2, exceeding=0.001
    ),
    "fed-eraser:interval=3+repeat=no": FedEraserOptions(interval=3, repeat=False),
    "crab:drop=0.2+rounds=0.5+peers=1+repeat=yes": CrabOptions(drop=0.2, rounds=0.5, peers=1.0),
    "delta-grad:burn_in=4+smoothness=2.5": DeltaGradOptions(burn_in=4, smoothness=2.5),
    "delta-grad:safeguard=no": DeltaGradOptions(safeguard=False),
    "fedrecovery-noise:epsilon=8+distance=0.5": Noise(epsilon=8.0, distance=0.5),
    "certified-removal:l2=0.01+budget=3": RemovalOptions(l2=0.01, budget=3.0),
}


@pytest.mark.parametrize(("name", "expected"), VARIANTS.items())
def test_a_rivals_own_constants_are_its_variants(name, expected):
    settings = varied(name, Settings())
    assert settings.of(type(expected)) == expected
    check_plan(name, Settings(), rounds=100, removed=1)


def test_a_rivals_variant_keeps_what_else_was_set():
    settings = varied("crab:drop=0.3", Settings(own=(CrabOptions(peers=0.5),)))
    assert settings.of(CrabOptions) == CrabOptions(drop=0.3, peers=0.5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fedrecover:warmup=2", "more rounds of warm-up than pairs, got 2 and 2"),
        ("crab:peers=1.5", "Crab's peers is a share from 0 to 1, got 1.5"),
        (
            "fed-eraser:repeat=maybe",
            r"with KEY of interval \(a whole number\), repeat \(yes or no\)",
        ),
        ("delta-grad:smoothness=0", "smoothness must be above 0"),
        ("certified-removal:delta=2", "0 < delta < 1"),
    ],
)
def test_wrong_constants_of_a_rival_are_refused_before_anything_runs(name, message):
    with pytest.raises(PlanError, match=message):
        check_plan(name, Settings(), rounds=100, removed=1)


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
