"""An experiment as observers follow it: one run with its settings and files, and one per method.

Rules:

- `tracking.json` in the experiment's folder has a random name, made when it is first followed. By
  that an experiment that was interrupted goes on with its curves, and one that is run again in a
  new folder has curves of its own.
- An observer that fails is told nothing more of the experiment, and why is said once.
"""

import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pdlrecover.engines.events import Ended, Follow, Observer, Plain, Run
from pdlrecover.engines.following import Guarded, Say, begin, following, stopped, warn
from pdlrecover.errors import HistoryError
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.result import (
    POISONED,
    MethodResult,
    Result,
    as_record,
    shown_name,
)
from pdlrecover.files import read_json, write_json

NAME = "tracking.json"
NUMBERS = (
    *("accuracy", "attack_success", "held_out_loss", "removed_loss", "distance_to_retrain"),
    *("remembered", "attack_success_above_retrain", "exact_rounds", "fallback_rounds"),
    *("gradient_evaluations", "updates", "bytes_per_peer"),
)
"""What of a method's result is a number to compare by."""


class Followed:
    """One experiment, and who follows it; by default nobody does."""

    def __init__(self, observers: Sequence[Observer] = (), say: Say = warn) -> None:
        self._observers = [Guarded(each, say) for each in observers]
        self._run: Run | None = None
        self._follow: Follow | None = None
        self._config = Config()

    def begin(self, config: Config, out: Path) -> None:
        """Tell that the experiment begins, or goes on."""
        if self._observers:
            self._config, self._run = (
                config,
                Run(
                    name=out.resolve().name,
                    kind="experiment",
                    identity=_name_of(out),
                    continues=True,
                    settings=_plain(config),
                ),
            )
            self._follow = begin(self._observers, self._run)

    @contextmanager
    def method(self, name: str) -> Iterator[Follow | None]:
        """Tell within this what happens in the training or in one recovery."""
        if self._run is None:
            yield None
            return
        run = Run(
            name=shown_name(name, self._config),
            kind="training" if name == POISONED else "recovery",
            identity=f"{self._run.identity}/{name}",
            continues=True,
            settings={"method": name, **self._run.settings},
            parent=self._run,
        )
        with following(self._observers, run) as follow:
            yield follow

    def end(self, result: Result, files: Sequence[Path]) -> None:
        """Tell what everything came to."""
        if self._follow is not None:
            numbers = {
                f"{shown_name(name, result.config)}/{number}": value
                for name, one in result.methods.items()
                for number, value in numbers_of(one).items()
            }
            self._follow(Ended(numbers=numbers, files=tuple(files)))

    def stop(self, error: BaseException) -> None:
        """Tell that the experiment has stopped."""
        if self._follow is not None:
            self._follow(stopped(error))
            self._follow = None


def method_ended(one: MethodResult, follow: Follow | None) -> None:
    """Tell what a method came to."""
    if follow is not None:
        record = {"opened": as_record(one)["opened"], "seconds": as_record(one)["seconds"]}
        follow(Ended(numbers=numbers_of(one), records={"ledger.json": record}))


def numbers_of(one: MethodResult) -> Mapping[str, float]:
    """Return those numbers of a result that it has, and its seconds."""
    values = {name: getattr(one, name) for name in NUMBERS}
    found = {name: float(x) for name, x in values.items() if isinstance(x, int | float)}
    finite = {name: value for name, value in found.items() if math.isfinite(value)}
    return {**finite, "seconds": one.seconds.total}


def _plain(config: Config) -> dict[str, Plain]:
    """Return the settings of an experiment, lists as texts, without those that are not set."""
    return {
        name: value if isinstance(value, Plain) else ", ".join(map(str, value))
        for name, value in config.record().items()
        if value is not None
    }


def _name_of(out: Path) -> str:
    """Return the name by which an experiment is known again, which is in its folder."""
    path = out / NAME
    if path.exists():
        record = read_json(path, HistoryError, damaged="delete it for new curves")
        if isinstance(record, dict) and isinstance(name := record.get("run"), str):
            return name
        raise HistoryError(
            f"{path} does not say whose curves to go on with; delete it for new ones"
        )
    name = secrets.token_hex(16)
    write_json(path, {"run": name}, HistoryError)
    return name
