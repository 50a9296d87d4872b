"""Whether the errors of what is remembered are right: models that never saw the data must be at 0.

Methods that use nothing of the original run but first weights cannot know the removed peers' data.
If the errors are right, about one value in twenty (4.6%) is further than two of them from 0. Every
recorded run is looked at whose original remembers enough to tell, by itself and averaged over its
seeds. A model that two methods share, as `auto` and accelerated retraining often do, counts once.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pdlrecover.experiments.analysis.results import averaged
from pdlrecover.experiments.batch.run_numbers import RunNumbers, identity_of
from pdlrecover.experiments.experiment.forgetting import SURE, Estimate, ratio
from pdlrecover.experiments.experiment.result import POISONED, MethodNumbers
from pdlrecover.recovery.methods import entry_of

UNSEEING = ("first model", "nothing")
"""What methods see of the original run that cannot know its data."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """How many values are further than two errors from 0, of how many."""

    beyond: int
    among: int

    @property
    def share(self) -> float:
        """The share of them."""
        return self.beyond / self.among

    def __str__(self) -> str:
        return f"{self.beyond} of {self.among} ({100 * self.share:.0f}%)"


def calibration(values: Iterable[Estimate]) -> Calibration:
    """Count those that are further than two errors from 0."""
    ratios = [abs(each.value) / each.error for each in values]
    return Calibration(beyond=sum(each > SURE for each in ratios), among=len(ratios))


def unseeing(runs: Sequence[RunNumbers], *, over_seeds: bool) -> list[Estimate]:
    """Return what models that never saw the data remember: of each run, or over their seeds."""
    groups: dict[str, list[RunNumbers]] = defaultdict(list)
    for run in runs:
        same = {key: value for key, value in run.config.items() if key != "seed"}
        groups[identity_of(same if over_seeds else run.config)].append(run)
    return [share for group in groups.values() for share in _shares(group)]


def _shares(group: Sequence[RunNumbers]) -> list[Estimate]:
    """Return what is remembered in runs that differ in their seed only, each model once."""
    original = _mean(group, POISONED)
    names = dict.fromkeys(name for run in group for name in run.methods if _unseeing(name))
    found = {_key(group, name): _mean(group, name) for name in names}
    if original is None:
        return []
    shares = [ratio(mine, original) for mine in found.values() if mine is not None]
    return [share for share in shares if share is not None]


def _mean(group: Sequence[RunNumbers], name: str) -> Estimate | None:
    """Return a method's mean excess over these runs; None if one has none."""
    values = [_excess(run.methods.get(name)) for run in group]
    known = [each for each in values if each is not None]
    return averaged(known) if len(known) == len(values) else None


def _excess(one: MethodNumbers | None) -> Estimate | None:
    if one is None or one.excess is None or one.excess_error is None:
        return None
    return Estimate(value=one.excess, error=one.excess_error)


def _key(group: Sequence[RunNumbers], name: str) -> str:
    """Return what tells a method's models in these runs from others."""
    return json.dumps([str(_excess_of(run, name)) for run in group])


def _excess_of(run: RunNumbers, name: str) -> float | None:
    one = run.methods.get(name)
    return None if one is None else one.excess


def _unseeing(name: str) -> bool:
    return name != POISONED and entry_of(name).sees in UNSEEING
