"""Results of many cells, picked by their settings, and averaged over seeds."""

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pdlrecover.experiments.experiment.forgetting import TELLING, gap, is_scored
from pdlrecover.experiments.experiment.run import POISONED, Record
from pdlrecover.experiments.report.document import Series
from pdlrecover.recovery.methods import METHODS, REFERENCE

LOST = 100.0
"""A loss on held-out data, in nats, that says a model has diverged: guessing costs about 2."""


@dataclass(frozen=True)
class Mean:
    """A mean over seeds, and its spread: the standard deviation, 0 for one seed."""

    value: float
    spread: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Mean | None":
        """Return the mean of some numbers, None of none."""
        if not values:
            return None
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        return cls(value=statistics.fmean(values), spread=spread, count=len(values))

    def percent(self) -> str:
        """Return it in percent for a table."""
        if self.count == 1:
            return f"{100 * self.value:.1f}"
        return f"{100 * self.value:.1f} ± {100 * self.spread:.1f}"


class Results(Sequence[Record]):
    """Result records."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._records = list(records)

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: Any) -> Any:
        """Return a record, or a list of them."""
        return self._records[index]

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records)

    def where(self, **settings: Any) -> "Results":
        """Return those whose config has these values."""
        return Results(
            r for r in self if all(r["config"][key] == value for key, value in settings.items())
        )

    def mean(self, method: str, *path: str) -> Mean | None:
        """Return the mean of a method's number over these records, or None where none has it."""
        values = []
        for record in self:
            found: Any = record["methods"].get(method)
            for key in path:
                found = None if found is None else found.get(key)
            if found is not None and math.isfinite(found):
                values.append(float(found))
        return Mean.of(values)

    def accuracy(self, method: str) -> str | None:
        """Return a method's accuracy for a table, which says if it diverged."""
        found = percent(self.mean(method, "accuracy"))
        lost = sum(why is not None for why in self.diverged(method))
        return f"{found} (diverged in {lost} of {len(self)})" if lost else found

    def diverged(self, method: str) -> list[str | None]:
        """Return for each record why a method counts as diverged there, or None."""
        return [diverged(method, r["methods"].get(method), r["config"]) for r in self]

    def remembered(self, method: str) -> Mean | None:
        """Return the share of the removed data that a method remembers: the original 1, retrain 0.

        It is mean(gap − gap of retrain) / mean(gap of the original − gap of retrain) over these
        records: a mean of ratios would be ruled by those in which the original hardly remembers.
        None if any record has no value, or if the original remembers too little.
        """
        if not is_scored(method):
            return None
        names = (method, POISONED, REFERENCE)
        found = [[gap(record["methods"].get(name)) for name in names] for record in self]
        gaps = [[value for value in each if value is not None] for each in found]
        if not gaps or any(len(each) < len(names) for each in gaps):
            return None
        scale = statistics.fmean(original - retrain for _, original, retrain in gaps)
        if scale < TELLING:
            return None
        return Mean.of([(ours - retrain) / scale for ours, _, retrain in gaps])

    def exact_rounds(self, method: str) -> Mean | None:
        """Return how many rounds' worth of gradients were computed: by the kept peers, or by all.

        All of them computed for the original model. A count of the rounds that opened a fresh sum
        would leave out methods whose peers compute without one.
        """
        entries = [(r["methods"].get(method), r["config"]) for r in self]
        return Mean.of(
            [
                work(entry, config["peers"] if method == POISONED else kept(config))
                for entry, config in entries
                if entry is not None
            ]
        )

    def curve(self, method: str, key: str = "accuracy") -> Series | None:
        """Return a method's curve over the rounds that all these records have, in percent."""
        curves = [r["methods"][method]["curve"] for r in self if method in r["methods"]]
        curves = [c for c in curves if c[key] and None not in c[key]]
        if not curves:
            return None
        values = [dict(zip(c["round"], c[key], strict=True)) for c in curves]
        common = sorted(set.intersection(*(set(each) for each in values)))
        columns = [[100 * each[t] for each in values] for t in common]
        return Series(
            name=method,
            x=[float(t) for t in common],
            y=[statistics.fmean(column) for column in columns],
            spread=[statistics.stdev(c) if len(c) > 1 else 0.0 for c in columns],
        )


def diverged(method: str, entry: Record | None, config: Record) -> str | None:
    """Return why a method counts as diverged in a record, or None if it does not.

    It has left the range of numbers that can be shared, or has ended at a model whose loss on
    held-out data is not finite or above `LOST`. A loss that is not finite is written as None, and
    so is that of a run in which nobody was removed: there it says nothing.
    """
    if entry is None:
        return None
    if "diverged" in entry:
        return str(entry["diverged"])
    known = METHODS.get(method.partition(":")[0])
    if "held_out_loss" not in entry or (known is not None and known.noisy):
        return None
    loss = entry["held_out_loss"]
    if loss is None and kept(config) == config["peers"]:
        return None
    if loss is None or not math.isfinite(loss):
        return "its loss on held-out data is not finite"
    return f"its loss on held-out data is {loss:,.0f} nats" if loss > LOST else None


def work(entry: Record, peers: int) -> float:
    """Return a method's gradient evaluations as rounds of so many kept peers."""
    return float(entry["gradient_evaluations"]) / peers


def kept(config: Record) -> int:
    """Return how many peers were not removed."""
    removed = sum(config.get(who, 0) for who in ("malicious", "accused", "leavers"))
    return int(config["peers"] - removed)


def line(name: str, xs: Sequence[float], means: Sequence[Mean | None]) -> Series:
    """Return means of rates as a line, in percent."""
    return Series(
        name=name,
        x=list(xs),
        y=[None if m is None else 100 * m.value for m in means],
        spread=[None if m is None else 100 * m.spread for m in means],
    )


def percent(mean: Mean | None) -> str | None:
    """Return a mean in percent, or None."""
    return None if mean is None else mean.percent()


def number(mean: Mean | None, digits: int = 2) -> float | None:
    """Return a mean rounded, or None."""
    return None if mean is None else round(mean.value, digits) + 0.0  # no minus zero


def origin(records: Sequence[Record]) -> str:
    """Say where records come from: seeds, versions, commits, what they took, notes on the data."""
    if not records:
        return ""
    seeds = sorted({record["seed"] for record in records})
    versions = sorted(
        {", ".join(f"{name} {v}" for name, v in r["versions"].items()) for r in records}
    )
    commits = sorted({entry["commit"] for r in records for entry in r["methods"].values()} - {None})
    spent = sum(
        entry["seconds"]["processor"]
        for record in records
        for entry in record["methods"].values()
        if "borrowed_from" not in entry
    )
    told = (part for r in records for part in (r.get("dataset_note") or "").split("; "))
    notes = sorted(set(told) - {""})
    parts = [
        f"{len(records)} runs, seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}",
        f"{spent / 3600:.1f} hours of one core",
        *versions,
        *([f"source {', '.join(commits)}"] if commits else []),
        *notes,
    ]
    return "; ".join(parts) + "."
