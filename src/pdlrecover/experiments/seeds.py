"""Result records of one experiment, run once or with several seeds: means and spreads."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pdlrecover.experiments.collection import kept
from pdlrecover.experiments.run import POISONED, Record

Number = float | int | None


@dataclass(frozen=True)
class Runs:
    """Result records whose configs differ in nothing but the seed."""

    records: list[Record]

    @property
    def config(self) -> Record:
        """What all of them ran."""
        config: Record = self.records[0]["config"]
        return config

    @property
    def seeds(self) -> list[int]:
        """The seeds, in the order of the records."""
        return [record["seed"] for record in self.records]

    @property
    def methods(self) -> list[str]:
        """The methods that every record has, the original run first."""
        names = self.records[0]["methods"]
        return [name for name in names if all(name in r["methods"] for r in self.records)]

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

    def values(self, method: str, *path: str) -> list[Any]:
        """Return a value of a method in every record; None where it is missing."""
        return [_at(record["methods"][method], path) for record in self.records]

    def mean(self, method: str, *path: str) -> Number:
        """Return a method's value, averaged over the seeds; None if a seed has none."""
        return mean(self.values(method, *path))

    def spread(self, method: str, *path: str) -> Number:
        """Return the standard deviation over the seeds; None with one seed."""
        return spread(self.values(method, *path))


def by_experiment(records: Iterable[Record]) -> list[Runs]:
    """Put records together that differ only in their seed; a seed twice makes two experiments."""
    groups: list[tuple[Record, Runs]] = []
    for record in records:
        key = {name: value for name, value in record["config"].items() if name != "seed"}
        for known, runs in groups:
            if known == key and record["seed"] not in runs.seeds:
                runs.records.append(record)
                break
        else:
            groups.append((key, Runs([record])))
    return [runs for _, runs in groups]


def mean(values: list[Any]) -> Number:
    """Return the mean; one value stays as it is, and a missing one makes it None."""
    if len(values) == 1 or None in values:
        return values[0] if len(values) == 1 else None
    return values[0] if len(set(values)) == 1 else statistics.fmean(values)


def spread(values: list[Any]) -> Number:
    """Return the standard deviation, of a sample; None for one value, or where one is missing."""
    return None if len(values) == 1 or None in values else statistics.stdev(values)


def _at(entry: Record, path: tuple[str, ...]) -> Any:
    value: Any = entry
    for key in path:
        value = None if value is None else value.get(key)
    return value
