"""Results of one experiment, run once or with several seeds."""

from collections.abc import Iterable
from dataclasses import replace

from pdlrecover.experiments.analysis.results import Mean, Results
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.result import POISONED, NumberName, Result


class SeedResults(Results):
    """Results whose configs differ in nothing but the seed; there is at least one."""

    @property
    def config(self) -> Config:
        """What all of them ran."""
        return self[0].config

    @property
    def seeds(self) -> list[int]:
        """The seeds, in the order of the results."""
        return [result.seed for result in self]

    @property
    def methods(self) -> list[str]:
        """The methods that every result has, the original run first."""
        return [name for name in self[0].methods if len(self.entries(name)) == len(self)]

    @property
    def unfinished(self) -> list[str]:
        """The methods that were asked for and are not in every result."""
        return [name for name in (POISONED, *self.config.methods) if name not in self.methods]

    def value(self, method: str, number: NumberName) -> float | None:
        """Return a method's number, averaged over the seeds; None if a seed has none."""
        found = self.mean(method, number)
        return None if found is None or found.count < len(self) else found.value

    def seconds(self, method: str) -> Mean | None:
        """Return how long a method took; None if it was resumed: earlier time is not counted."""
        if any(one.rounds_from_history for one in self.entries(method)):
            return None
        return self.mean_of(method, lambda one: one.seconds.total)


def by_experiment(results: Iterable[Result]) -> list[SeedResults]:
    """Group results that differ only in their seed; a seed twice makes two experiments."""
    groups: list[tuple[Config, list[Result]]] = []
    for result in results:
        key = replace(result.config, seed=0)
        for known, found in groups:
            if known == key and result.seed not in [each.seed for each in found]:
                found.append(result)
                break
        else:
            groups.append((key, [result]))
    return [SeedResults(found) for _, found in groups]
