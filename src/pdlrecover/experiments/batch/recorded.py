"""Finished runs, taken from their recorded numbers (`runs.jsonl`) instead of being run again.

Rules:

- Only what is not recorded is run: the other methods and, if one of them needs it or it is not
  recorded, the original run. What is run anew counts more than what was recorded.
- A record has numbers, no curves and no models. So figures of curves lack what is taken from it,
  and a new method beside a recorded retraining has no distance to it and no score for forgetting.
- Nobody checks whether this version would compute the same: every method says by which commit it
  was computed, and whoever doubts it runs afresh.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from pdlrecover.experiments.batch.run_numbers import NAME, RunNumbers, identity_of, read_runs
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.forgetting import with_success_above
from pdlrecover.experiments.experiment.record import needs_original
from pdlrecover.experiments.experiment.result import (
    POISONED,
    Curve,
    MethodNumbers,
    MethodResult,
    Result,
)
from pdlrecover.recovery.methods import REFERENCE

NAMED = 4
"""How many of the methods that are missing are named."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A run, or what is left of it to do."""

    config: Config
    original: bool = True
    """Whether the original run is asked for; methods that need it have it trained anyway."""

    @property
    def asked(self) -> tuple[str, ...]:
        """The original run, if it is asked for, and the methods."""
        return (*((POISONED,) if self.original else ()), *self.config.methods)


class Recorded:
    """Runs by what they compute."""

    def __init__(self, runs: Sequence[RunNumbers] = ()) -> None:
        self._runs = {run.identity: run for run in runs}

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Return the runs that are recorded in a folder, none if it has no file of them."""
        path = folder / NAME
        return cls(read_runs(path) if path.exists() else ())

    def missing(self, config: Config) -> list[str]:
        """Return what is not recorded of a run: methods, and the original."""
        run = self._runs.get(identity_of(config.record()))
        known = {} if run is None else run.methods
        return [name for name in (POISONED, *config.methods) if name not in known]

    def rest(self, config: Config) -> Cell | None:
        """Return what is left to run, None if everything is recorded."""
        names = self.missing(config)
        methods = tuple(name for name in names if name != POISONED)
        original = POISONED in names or needs_original(config, methods)
        return Cell(config=replace(config, methods=methods), original=original) if names else None

    def known(self, config: Config) -> Result | None:
        """Return what is recorded of a run; None without the original or retraining."""
        gone = set(self.missing(config))
        if gone & {POISONED, REFERENCE}:
            return None
        methods = tuple(name for name in config.methods if name not in gone)
        return self.joined(replace(config, methods=methods))

    def joined(self, config: Config, found: Result | None = None) -> Result | None:
        """Return a run's result of what is recorded and what was found; None if a part lacks."""
        run = self._runs.get(identity_of(config.record()))
        known = {} if run is None else {n: _result(one) for n, one in run.methods.items()}
        known |= {} if found is None else found.methods
        names = (POISONED, *config.methods)
        if any(name not in known for name in names):
            return None
        methods = with_success_above({name: known[name] for name in names})
        if found is not None or run is None:
            return found and replace(found, config=config, methods=methods)
        return Result(
            config=config,
            seed=config.seed,
            versions=run.versions,
            complete=True,
            methods=methods,
            dataset_note=run.dataset_note,
        )


def lacking(configs: Sequence[Config], recorded: Recorded) -> str:
    """Say what is not recorded of these runs, by method; nothing if they are complete."""
    counts = Counter(name for config in configs for name in recorded.missing(config))
    if counts[POISONED] == len(configs):
        return f"all {len(configs)} runs" if configs else ""
    named = [f"{name} of {count} runs" for name, count in counts.most_common(NAMED)]
    rest = len(counts) - NAMED
    more = [f"{rest} more method{'s' if rest > 1 else ''}"] if rest > 0 else []
    return ", ".join([*named, *more])


def _result(one: MethodNumbers) -> MethodResult:
    """Return a method's numbers as a result without a curve."""
    unknown = Curve(round=[], accuracy=[], attack_success=[])
    return MethodResult(**{**vars(one), "opened": one.opened or {}}, curve=unknown)
