"""Run one experiment: train, poison, recover by every method, measure, write the record.

Rules:

- A method's result is written as soon as it is there, so an interrupted experiment goes on where
  it was when the same command is given again; the training history stays beside it until the end.
- A record carries a digest of itself. What is stored and cannot be read, or is not what was
  written, raises a `HistoryError`; nothing else that goes wrong does.
- The -k methods get as many exact rounds as PDLRecover has used. So it is run with them, asked for
  or not, unless they are given `rounds=`: their results do not depend on what was run before.
- A method that diverges gets the accuracy of the last model it came to, and the entry says so.
- Noise that a method adds is a function of the seed, so that a result can be repeated.
- Rates are fractions of 1. Seconds are the engine's: evaluation and progress are not in them.
"""

import hashlib
import json
import math
import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from pdlrecover.engines.trained_model import TrainedModel
from pdlrecover.errors import HistoryError, PlanError, RangeError
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.curve import Curve, Progress
from pdlrecover.experiments.experiment.forgetting import add_forgetting, losses
from pdlrecover.experiments.experiment.world import World, build, measure
from pdlrecover.files import read_json, write_json
from pdlrecover.recovery.agreement import norm
from pdlrecover.recovery.methods import OURS, REFERENCE, Settings, entry_of, parse
from pdlrecover.recovery.requests import Vector

POISONED = "poisoned"
"""The name of the original run among the results."""
FORMAT = 1

Record = dict[str, Any]


def run(
    config: Config,
    out: Path,
    *,
    data_dir: Path | None = None,
    progress: Progress | None = None,
) -> Record:
    """Run an experiment and write `out/result.json`; what is there already is not run again."""
    out.mkdir(parents=True, exist_ok=True)
    result = stored(config, out) or _fresh_record(config)
    if is_done(result, config):
        return result
    result["config"] = config.record()
    world = build(config, data_dir=data_dir, history=out / "history", resume=True)
    try:
        world.federation.check_removal(
            world.removed,
            config.reason,
            accept_differencing=config.accept_differencing,
        )
    except PlanError:
        world.federation.history.discard()
        raise
    result["complete"] = False
    _write(out, result)
    _keep(out, POISONED, _train(world, progress, result))
    result["dataset_note"] = world.dataset.note
    _write(out, result)
    for name in _ordered(config.methods):
        if name not in result["methods"]:
            _keep(out, name, _recover(world, name, result, progress))
            _write(out, result)
    if REFERENCE in result["methods"]:
        retrained = _kept(out, REFERENCE)
        for name, entry in result["methods"].items():
            distance = norm(_kept(out, name) - retrained)
            entry["distance_to_retrain"] = distance if math.isfinite(distance) else None
    add_forgetting(result["methods"], POISONED)
    world.federation.history.discard()
    result["complete"] = True
    _write(out, result)
    return result


def begin(config: Config, out: Path, methods: Record) -> None:
    """Write a record that `run` goes on from: these methods are there already."""
    out.mkdir(parents=True, exist_ok=True)
    _write(out, {**_fresh_record(config), "methods": methods})


def is_done(result: Record, config: Config) -> bool:
    """Say whether a record has all that is asked for."""
    return result["complete"] and all(name in result["methods"] for name in config.methods)


def _ordered(methods: Sequence[str]) -> list[str]:
    """Return the methods to run: those that need PDLRecover's number of exact rounds after it."""
    after = [m for m in methods if entry_of(m).rounds == "budgeted" and not parse(m)[1]]
    before = [name for name in methods if name not in after]
    needed = [OURS] if after and OURS not in before else []
    return [*before, *needed, *after]


def _keep(out: Path, name: str, state: TrainedModel) -> None:
    """Write a method's model beside the record."""
    (out / "models").mkdir(exist_ok=True)
    np.save(out / "models" / f"{name}.npy", state.weights, allow_pickle=False)


def _kept(out: Path, name: str) -> Vector:
    path = out / "models" / f"{name}.npy"
    if not path.exists():
        raise HistoryError(f"{path} is missing; delete {out} to run again")
    try:
        weights: Vector = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise HistoryError(f"{path} is damaged: {error}; delete {out} to run again") from error
    return weights


def _train(world: World, progress: Progress | None, result: Record) -> TrainedModel:
    config = world.config
    curve = Curve(world, POISONED, progress)
    if progress:
        progress.start(POISONED, config.rounds)
    found = len(world.federation.history.sums)
    state = world.federation.train(
        config.rounds, config.learning_rate, optimizer=config.optimizer, observer=curve
    )
    entry = {**_entry(world, state, curve), "rounds_from_history": found}
    result["methods"].setdefault(POISONED, entry)
    if not found:  # the updates of earlier rounds are not seen again
        result["clipped_updates"] = world.federation.simulated_peers.clipped
    if progress:
        progress.end(POISONED)
    return state


def _recover(world: World, name: str, result: Record, progress: Progress | None) -> TrainedModel:
    config = world.config
    curve = Curve(world, name, progress)
    used = result["methods"].get(OURS, {}).get("exact_rounds")
    settings = Settings(
        options=config.options,
        budget=used,
        accelerated_rounds=config.accelerated_rounds,
        batch_size=config.batch_size,
        noise_seed=config.seed,
    )
    if progress:
        progress.start(name, config.rounds)
    try:
        state = world.federation.recover(
            world.removed,
            name,
            reason=config.reason,
            faults=config.faults,
            settings=settings,
            accept_differencing=config.accept_differencing,
            observer=curve,
        )
    except RangeError as error:
        state = world.federation.unfinished(curve.model)
        result["methods"][name] = {**_entry(world, state, curve), "diverged": str(error)}
    else:
        result["methods"][name] = _entry(world, state, curve)
    if progress:
        progress.end(name)
    return state


def _entry(world: World, state: TrainedModel, curve: Curve) -> Record:
    """Return what the record says of one method."""
    curve.finish(state.weights)
    return {
        **measure(world, state.weights),
        **losses(world.federation.simulated_peers, world.dataset, world.removed, state.weights),
        "distance_to_retrain": None,
        **state.ledger.record(),
        "commit": _commit(),
        "curve": curve.record(),
    }


def _fresh_record(config: Config) -> Record:
    return {
        "format": FORMAT,
        "config": config.record(),
        "seed": config.seed,
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("pdlrecover", "torch", "numpy", "cryptography")},
        },
        "commit": _commit(),
        "complete": False,
        "methods": {},
    }


def stored(config: Config, out: Path) -> Record | None:
    """Return the record of an earlier run of the same config, or None if there is none."""
    path = out / "result.json"
    if not path.exists():
        return None
    found: Record = read_json(path, HistoryError, damaged="delete it to run again")
    if not isinstance(found, dict):
        raise HistoryError(f"{path} is no result; delete it to run again")
    if found.get("format") != FORMAT:
        raise HistoryError(
            f"{path} has format {found.get('format')}, and this version writes {FORMAT}; give "
            "another --out, or delete it"
        )
    if found.get("digest") != _digest(found):
        raise HistoryError(
            f"{path} is damaged, or of an earlier version: its digest is not of what it says; give "
            "another --out, or delete it"
        )
    mine, theirs = config.record(), dict(found["config"])
    mine.pop("methods"), theirs.pop("methods")
    if mine != theirs:
        differing = sorted(key for key in mine if mine[key] != theirs.get(key))
        raise HistoryError(
            f"{path} is the result of another config, which differs in "
            f"{', '.join(differing) or 'format'}; give another --out, or delete it"
        )
    return found


def _digest(result: Record) -> str:
    """Return the digest of a record, without the one it may have."""
    rest = {key: value for key, value in result.items() if key != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _write(out: Path, result: Record) -> None:
    result["digest"] = _digest(result)
    write_json(out / "result.json", result, HistoryError, indent=1)


def _commit() -> str | None:
    """Return the commit of the source this runs from, or None where it is not a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
