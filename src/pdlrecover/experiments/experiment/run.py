"""Run one experiment: train, poison, recover by every method, measure, write the record.

Rules:

- One process at a time is at work in a folder: a second one is refused.
- A method's result is written as soon as it is there, so an interrupted experiment continues where
  it was when the same command is given again; the training history stays beside it until the end.
- The -k methods get as many exact rounds as PDLRecover has used. So it is run with them, asked for
  or not, unless they are given `rounds=`: their results do not depend on what was run before.
- A method that diverges gets the accuracy of the last model it reached, and the entry says so.
- Methods that see nothing of the original run need none: with `original=False` it is not trained
  unless another method is asked for, and the result is without it.
- Noise that a method adds is a function of the seed, so that a result can be repeated.
- Rates are fractions of 1. Seconds are the engine's: evaluation and progress are not in them.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np

from pdlrecover.engines.shards.sharding import Sharding
from pdlrecover.engines.trained_model import TrainedModel
from pdlrecover.errors import HistoryError, PlanError, RangeError, Setting
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.curve import CurveObserver, Progress
from pdlrecover.experiments.experiment.followed import Followed, method_ended
from pdlrecover.experiments.experiment.forgetting import (
    Estimate,
    Sureness,
    excess,
    held_out_weights,
    losses,
    sureness,
    with_forgetting,
)
from pdlrecover.experiments.experiment.record import (
    commit,
    fresh,
    is_done,
    model_file,
    needs_original,
    stored,
    write,
)
from pdlrecover.experiments.experiment.result import POISONED, MethodResult, Result
from pdlrecover.experiments.experiment.world import World, build, measure
from pdlrecover.files import held, make_folder, read_bytes, write_whole
from pdlrecover.learning.model_files import from_safetensors, to_safetensors
from pdlrecover.recovery.methods import OURS, REFERENCE, entry_of, parse, starts_afresh
from pdlrecover.recovery.requests import Vector
from pdlrecover.recovery.same_bits import norm

AT_WORK = "wait until it is done, or give another --out"


def run(
    config: Config,
    out: Path,
    *,
    original: bool = True,
    data_dir: Path | None = None,
    progress: Progress | None = None,
    followed: Followed | None = None,
    sharding: Sharding | None = None,
    say: Callable[[str], None] = warnings.warn,
) -> Result:
    """Run an experiment and write `out/result.json`; what is there already is not run again.

    `followed` is told of it, all but its end. With `sharding` others compute for the peers, which
    changes no result; `say` is told of those that are lost.
    """
    make_folder(out, HistoryError)
    followed = followed or Followed()
    with held(out, HistoryError, AT_WORK):
        followed.begin(config, out)
        try:
            return _run(config, out, original, data_dir, progress, followed, sharding, say)
        except BaseException as error:
            followed.stop(error)
            raise


def _run(
    config: Config,
    out: Path,
    original: bool,
    data_dir: Path | None,
    progress: Progress | None,
    followed: Followed,
    sharding: Sharding | None,
    say: Callable[[str], None],
) -> Result:
    result = stored(config, out) or fresh(config)
    if is_done(result, config, original=original):
        return result
    world = build(config, data_dir=data_dir, history=out / "history", resume=True)
    try:
        world.federation.check_removal(
            world.removed,
            config.reason,
            accept_differencing=config.accepts_differencing,
        )
    except PlanError as error:
        world.federation.history.discard()
        old = [name for name in config.methods if not starts_afresh(name, config.settings)]
        if config.fresh_start:
            raise PlanError(
                f"{', '.join(old)} cannot start afresh: leave it out; ", error
            ) from None
        raise
    federation = world.federation
    with nullcontext() if sharding is None else federation.sharded(**vars(sharding), say=say):
        return _computed(world, out, result, original, progress, followed)


def _computed(
    world: World,
    out: Path,
    result: Result,
    original: bool,
    progress: Progress | None,
    followed: Followed,
) -> Result:
    """Train, recover by every method that is missing, and measure; return the whole result."""
    config = world.config
    with warnings.catch_warnings():  # how many inputs are beyond their bound is in the record
        warnings.simplefilter("ignore", UserWarning)
        world.federation.agree_on_inputs()
    if config.standardise:
        result = replace(result, clipped_inputs=sum(world.federation.clipped_inputs))
    missing = [name for name in _ordered(config.methods) if name not in result.methods]
    if trains := original or needs_original(config, missing):
        _check_budget(world)
    result = write(out, replace(result, config=config, complete=False))
    if trains:
        result = write(out, _train(world, out, result, progress, followed))
    else:
        world.federation.plan(config.rounds, config.learning_rate, optimizer=config.optimizer)
        result = replace(result, dataset_note=world.dataset.note)
    for name in missing:
        found = _recover(world, name, out, result, progress, followed)
        result = write(out, replace(result, methods={**result.methods, name: found}))
    methods = dict(result.methods)
    surer = _forgetting(world, out, methods, progress)
    if REFERENCE in methods:
        retrained = _kept(world, out, REFERENCE)
        for name, one in methods.items():
            distance = norm(_kept(world, out, name) - retrained)
            finite = distance if math.isfinite(distance) else None
            methods[name] = replace(one, distance_to_retrain=finite)
    world.federation.history.discard()
    return write(out, replace(result, methods=with_forgetting(methods, surer), complete=True))


def _ordered(methods: Sequence[str]) -> list[str]:
    """Return the methods to run: those that need PDLRecover's number of exact rounds after it."""
    after = [m for m in methods if entry_of(m).rounds == "budgeted" and not parse(m)[1]]
    before = [name for name in methods if name not in after]
    needed = [OURS] if after and OURS not in before else []
    return [*before, *needed, *after]


def _check_budget(world: World) -> None:
    """Raise before the training if its history would not fit what is allowed."""
    config, layout = world.config, world.federation.history.layout
    needed = config.rounds * layout.bytes_per_round() / 1e9
    if needed > config.budget_gb:
        world.federation.history.discard()
        raise PlanError(
            f"the history of {config.rounds} rounds takes {needed:.3g} GB, and "
            f"{config.budget_gb:.3g} GB are allowed; give ",
            Setting("budget_gb", f"{1.01 * needed:.3g}"),
            ", or fewer ",
            Setting("rounds"),
            ", or a smaller ",
            Setting("model"),
        )


def _keep(world: World, out: Path, name: str, weights: Vector) -> None:
    """Write a method's model beside the record."""
    (out / "models").mkdir(exist_ok=True)
    content = to_safetensors(world.federation.simulated_peers.updates.model, weights)
    write_whole(model_file(out, name), content)


def _kept(world: World, out: Path, name: str) -> Vector:
    """Return a model that was kept, by this version or an earlier one."""
    path, earlier = model_file(out, name), model_file(out, name).with_suffix(".npy")
    try:
        if earlier.exists() and not path.exists():
            weights: Vector = np.load(earlier, allow_pickle=False)
            return weights
        model = world.federation.simulated_peers.updates.model
        return from_safetensors(model, read_bytes(path, HistoryError))
    except (ValueError, EOFError) as error:
        raise HistoryError(f"{path} cannot be used: {error}; delete {out} to run again") from error


def _train(
    world: World, out: Path, result: Result, progress: Progress | None, followed: Followed
) -> Result:
    """Train the original model, and keep it; return the result with it."""
    config = world.config
    found = len(world.federation.history.sums)
    optimizer = world.federation.plan(
        config.rounds, config.learning_rate, optimizer=config.optimizer
    )
    with followed.method(POISONED) as follow:
        observer = CurveObserver(world, POISONED, progress, follow)
        state = world.federation.run_training(
            config.rounds, optimizer, observer=observer, follow=follow
        )
        trained = replace(_measured(world, state, observer), rounds_from_history=found)
        method_ended(trained, follow)
    clipped = world.federation.simulated_peers.clipped
    _keep(world, out, POISONED, state.weights)
    return replace(
        result,
        methods={**result.methods, POISONED: result.methods.get(POISONED, trained)},
        # the updates of earlier rounds are not seen again
        clipped_updates=result.clipped_updates if found else clipped,
        dataset_note=world.dataset.note,
    )


def _recover(
    world: World,
    name: str,
    out: Path,
    result: Result,
    progress: Progress | None,
    followed: Followed,
) -> MethodResult:
    """Recover by a method, and keep its model; return its result."""
    with followed.method(name) as follow:
        found = _recovered(world, name, out, result, CurveObserver(world, name, progress, follow))
        method_ended(found, follow)
    return found


def _recovered(
    world: World, name: str, out: Path, result: Result, observer: CurveObserver
) -> MethodResult:
    config = world.config
    ours = result.methods.get(OURS)
    budget = None if ours is None else ours.exact_rounds
    diverged = None
    try:
        state = world.federation.run_method(
            world.removed,
            name,
            reason=config.reason,
            faults=config.faults,
            settings=replace(config.settings, budget=budget),
            accept_differencing=config.accept_differencing,
            observer=observer,
            follow=observer.follow,
        )
    except RangeError as error:
        state, diverged = world.federation.unfinished(observer.model), str(error)
    _keep(world, out, name, state.weights)
    return replace(_measured(world, state, observer), diverged=diverged)


def _measured(world: World, state: TrainedModel, observer: CurveObserver) -> MethodResult:
    observer.finish(state.weights)
    peers = world.federation.simulated_peers
    return MethodResult(
        **vars(measure(world, state.weights)),
        **vars(losses(peers, world.dataset, world.removed, state.weights)),
        **vars(state.ledger.totals()),
        seconds=state.ledger.split_seconds(),
        curve=observer.curve,
        evaluations=[*state.evaluations] or None,
        continued=[*state.continued] or None,
        commit=commit(),
    )


def _forgetting(
    world: World, out: Path, methods: Mapping[str, MethodResult], progress: Progress | None
) -> dict[str, Estimate | None]:
    """Return how much surer each model is of the leavers' data than one that never saw it."""
    config = world.config
    asked = config.leavers and config.references and {POISONED, REFERENCE} <= methods.keys()
    if not asked:
        return {}
    parts = world.federation.simulated_peers, world.dataset, world.removed
    names = [f"reference-{number}" for number in range(1, config.references + 1)]
    for number, name in enumerate(names, start=1):
        kept = model_file(out, name)
        if not (kept.exists() or kept.with_suffix(".npy").exists()):
            observer = CurveObserver(world, name, progress, measured=False)
            _keep(world, out, name, world.federation.reference(world.removed, number, observer))
    known = Sureness.mean([sureness(*parts, _kept(world, out, name)) for name in names])
    weights = held_out_weights(*parts)
    return {n: excess(sureness(*parts, _kept(world, out, n)), known, weights) for n in methods}
