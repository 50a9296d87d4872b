"""Run one experiment: train, poison, recover by every method, measure, write the record.

Rules:

- A method's result is written as soon as it is there, so an interrupted experiment goes on where
  it was when the same command is given again; the training history stays beside it until the end.
- A method that diverges gets the accuracy of the last model it came to, and the entry says so.
- Noise that a method adds is a function of the seed, so that a result can be repeated.
- Rates are fractions of 1. Seconds are the engine's: evaluation and progress are not in them.
"""

import json
import math
import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pdlrecover.adversary import Attack, attack_success
from pdlrecover.adversary import build as build_attack
from pdlrecover.engines.population import populate
from pdlrecover.engines.state import State
from pdlrecover.errors import HistoryError, RangeError
from pdlrecover.experiments.config import Config
from pdlrecover.experiments.forgetting import add_forgetting, losses
from pdlrecover.federation import Federation
from pdlrecover.learning import Dataset, accuracy, load, partition
from pdlrecover.learning.models import build as build_model
from pdlrecover.recovery.agreement import norm
from pdlrecover.recovery.methods import Settings, parse
from pdlrecover.recovery.requests import Stepped, Vector
from pdlrecover.sharing import Scheme

POISONED = "poisoned"
"""The name of the original run among the results."""
BUDGETED = ("retrain-k", "fine-tune-k", "replay-then-tune")
"""Methods that get as many exact rounds as PDLRecover has used, so they run after it."""
VALIDATION_SHARE = 0.2
FORMAT = 1

Record = dict[str, Any]


class Progress(Protocol):
    """Something that shows how far a run is; the command line has one, tests need none."""

    def start(self, name: str, rounds: int) -> None:
        """Show that a method has begun."""

    def step(self, name: str, round: int, accuracy: float | None) -> None:  # noqa: A002
        """Show that a round is done; the accuracy is the latest measured."""

    def end(self, name: str) -> None:
        """Show that a method is done."""


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """What a config describes: data, attack, and the federation, not yet trained."""

    config: Config
    dataset: Dataset
    attack: Attack
    federation: Federation
    removed: tuple[int, ...]


def build(
    config: Config,
    *,
    data_dir: Path | None = None,
    history: Path | None = None,
    resume: bool = False,
) -> World:
    """Make the world of a config. The first peers are removed; undetected attackers come next.

    Peers are dealt their data at random, so that which of them attack makes no difference.
    """
    dataset = load(config.dataset, data_dir, split=config.split)  # type: ignore[arg-type] # checked there
    if config.validation:
        dataset = dataset.validation(VALIDATION_SHARE, config.seed)
    parts = partition.by_name(
        config.partition,
        labels=dataset.train_y.numpy(),
        subjects=None if dataset.train_subjects is None else dataset.train_subjects.numpy(),
        peers=config.peers,
        degree=config.degree,
        alpha=config.degree,
        seed=config.seed,
    )
    attack = build_attack(
        config.attack if config.attackers else "none", dataset, **config.attack_strength
    )
    removed = tuple(config.removed)
    population = populate(
        build_model(config.model, dataset.shape, dataset.classes, config.seed),
        dataset.train_x,
        dataset.train_y,
        parts,
        batch_size=config.batch_size,
        seed=config.seed,
        bound=config.bound,
        l2=config.l2,
        malicious=config.attackers,
        attack=attack,
    )
    cohorts = [removed, [p for p in range(config.peers) if p not in removed]]
    federation = Federation(
        population,
        Scheme.for_peers(config.peers, config.tolerance),
        cohorts=[cohort for cohort in cohorts if cohort],
        clear=config.clear,
        folder=history,
        resume=resume,
        budget=int(1e9 * config.budget_gb),
    )
    return World(
        config=config, dataset=dataset, attack=attack, federation=federation, removed=removed
    )


class Curve:
    """Watches a method: measures the model now and then, and tells the progress.

    It counts the method's own steps: one that starts over goes on counting.
    """

    def __init__(self, world: World, name: str, progress: Progress | None) -> None:
        self._world, self._name, self._progress = world, name, progress
        self._last = 0
        self.model: Vector = world.federation.population.updates.model.initial
        """The latest."""
        self.rounds: list[int] = []
        self.accuracy: list[float] = []
        self.attack_success: list[float | None] = []

    def __call__(self, step: Stepped) -> None:
        """Take note of a round."""
        self._last += 1
        self.model = step.model
        if (self._last - 1) % self._world.config.evaluate_every == 0:
            self.measure(self._last, step.model)
        if self._progress:
            latest = self.accuracy[-1] if self.accuracy else None
            self._progress.step(self._name, self._last, latest)

    def finish(self, model: Vector) -> None:
        """Take note of the last model."""
        if not self.rounds or self.rounds[-1] != self._last:
            self.measure(self._last, model)
        if self._progress:
            self._progress.step(self._name, self._last, self.accuracy[-1])

    def measure(self, round: int, model: Vector) -> None:  # noqa: A002
        """Measure a model on the test part, without and with the trigger."""
        found = measure(self._world, model)
        self.rounds.append(round)
        self.accuracy.append(found["accuracy"])
        self.attack_success.append(found["attack_success"])

    def record(self) -> Record:
        """Return the curve for a result record."""
        return {
            "round": self.rounds,
            "accuracy": self.accuracy,
            "attack_success": self.attack_success,
        }


def measure(world: World, weights: Vector) -> Record:
    """Return accuracy and backdoor success of a model on the test part."""
    model = world.federation.population.updates.model
    test = world.dataset.test_x, world.dataset.test_y
    return {
        "accuracy": accuracy(model, weights, *test),
        "attack_success": attack_success(model, weights, *test, world.attack),
    }


def run(
    config: Config,
    out: Path,
    *,
    data_dir: Path | None = None,
    progress: Progress | None = None,
) -> Record:
    """Run an experiment and write `out/result.json`; what is there already is not run again."""
    out.mkdir(parents=True, exist_ok=True)
    result = _resumed(config, out) or _fresh_record(config)
    if result.get("complete") and all(name in result["methods"] for name in config.methods):
        return result
    world = build(config, data_dir=data_dir, history=out / "history", resume=True)
    world.federation.check_removal(
        world.removed,
        config.reason,
        accept_differencing=config.accept_differencing,
    )
    result["complete"] = False
    _write(out, result)
    _keep(out, POISONED, _train(world, progress, result))
    result["dataset_note"] = world.dataset.note
    _write(out, result)
    for name in sorted(config.methods, key=lambda name: parse(name)[0] in BUDGETED):
        if name not in result["methods"]:
            _keep(out, name, _recover(world, name, result, progress))
            _write(out, result)
    if "retrain" in result["methods"]:
        retrained = _kept(out, "retrain")
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


def _keep(out: Path, name: str, state: State) -> None:
    """Write a method's model beside the record."""
    (out / "models").mkdir(exist_ok=True)
    np.save(out / "models" / f"{name}.npy", state.weights, allow_pickle=False)


def _kept(out: Path, name: str) -> Vector:
    weights: Vector = np.load(out / "models" / f"{name}.npy", allow_pickle=False)
    return weights


def _train(world: World, progress: Progress | None, result: Record) -> State:
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
        result["clipped_updates"] = world.federation.population.clipped
    if progress:
        progress.end(POISONED)
    return state


def _recover(world: World, name: str, result: Record, progress: Progress | None) -> State:
    config = world.config
    curve = Curve(world, name, progress)
    used = result["methods"].get("pdlrecover", {}).get("exact_rounds")
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


def _entry(world: World, state: State, curve: Curve) -> Record:
    """Return what the record says of one method."""
    curve.finish(state.weights)
    return {
        **measure(world, state.weights),
        **losses(world.federation.population, world.dataset, world.removed, state.weights),
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
        "methods": {},
    }


def _resumed(config: Config, out: Path) -> Record | None:
    """Return the record of an earlier run of the same config, or None."""
    path = out / "result.json"
    if not path.exists():
        return None
    try:
        found: Record = json.loads(path.read_text())
    except ValueError as error:
        raise HistoryError(f"{path} is damaged: {error}; delete it to run again") from error
    if not isinstance(found, dict):
        raise HistoryError(f"{path} is no result; delete it to run again")
    if found.get("format") != FORMAT:
        raise HistoryError(
            f"{path} has format {found.get('format')}, and this version writes {FORMAT}; give "
            "another --out, or delete it"
        )
    mine, theirs = config.record(), dict(found.get("config", {}))
    mine.pop("methods"), theirs.pop("methods", None)
    if mine != theirs:
        differing = sorted(key for key in mine if mine[key] != theirs.get(key))
        raise HistoryError(
            f"{path} is the result of another config, which differs in "
            f"{', '.join(differing) or 'format'}; give another --out, or delete it"
        )
    found["config"] = config.record()
    return found


def _write(out: Path, result: Record) -> None:
    part = out / "result.json.part"
    part.write_text(json.dumps(result, indent=1))
    part.replace(out / "result.json")


def _commit() -> str | None:
    """Return the commit of the source this runs from, or None where it is not a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
