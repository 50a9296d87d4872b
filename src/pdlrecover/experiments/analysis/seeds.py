"""Result records of one experiment, run once or with several seeds."""

from collections.abc import Iterable
from typing import Any

from pdlrecover.experiments.analysis.results import Mean, Results, kept
from pdlrecover.experiments.experiment.run import POISONED, Record


class SeedRuns(Results):
    """Result records whose configs differ in nothing but the seed."""

    @property
    def config(self) -> Record:
        """What all of them ran."""
        config: Record = self[0]["config"]
        return config

    @property
    def seeds(self) -> list[int]:
        """The seeds, in the order of the records."""
        return [record["seed"] for record in self]

    @property
    def methods(self) -> list[str]:
        """The methods that every record has, the original run first."""
        names = self[0]["methods"]
        return [name for name in names if all(name in r["methods"] for r in self)]

    @property
    def unfinished(self) -> list[str]:
        """The methods that were asked for and are not in every record."""
        return [name for name in (POISONED, *self.config["methods"]) if name not in self.methods]

    @property
    def kept(self) -> int:
        """How many peers were not removed."""
        return kept(self.config)

    @property
    def removed(self) -> int:
        """How many peers were removed."""
        return int(self.config["peers"]) - self.kept

    def values(self, method: str, key: str) -> list[Any]:
        """Return a value of a method in every record; None where it is missing."""
        return [record["methods"][method].get(key) for record in self]

    def value(self, method: str, *path: str) -> float | None:
        """Return a method's number, averaged over the seeds; None if a seed has none."""
        found = self.mean(method, *path)
        return None if found is None or found.count < len(self) else found.value

    def seconds(self, method: str) -> Mean | None:
        """Return how long a method took; None if it was resumed: earlier time is not counted."""
        if any(self.values(method, "rounds_from_history")):
            return None
        return self.mean(method, "seconds", "total")


def by_experiment(records: Iterable[Record]) -> list[SeedRuns]:
    """Put records together that differ only in their seed; a seed twice makes two experiments."""
    groups: list[tuple[Record, list[Record]]] = []
    for record in records:
        key = {name: value for name, value in record["config"].items() if name != "seed"}
        for known, found in groups:
            if known == key and record["seed"] not in [each["seed"] for each in found]:
                found.append(record)
                break
        else:
            groups.append((key, [record]))
    return [SeedRuns(found) for _, found in groups]
