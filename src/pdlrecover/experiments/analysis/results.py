"""Results of many experiments, selected by their settings, and averaged over seeds."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from pdlrecover.engines.ledger import ALONE
from pdlrecover.experiments.analysis.document import Series
from pdlrecover.experiments.analysis.format import short
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.forgetting import Estimate, ratio
from pdlrecover.experiments.experiment.result import (
    POISONED,
    MethodResult,
    NumberName,
    RateName,
    Result,
)
from pdlrecover.recovery.methods import METHODS

LOST = 100.0
"""A loss on the test data, in nats, that says a model has diverged: guessing costs about 2."""


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


class Results(tuple[Result, ...]):
    """Results of any experiments."""

    def where(self, **settings: Any) -> "Results":
        """Return those whose config has these values."""
        return Results(
            r for r in self if all(getattr(r.config, key) == v for key, v in settings.items())
        )

    def entries(self, method: str) -> list[MethodResult]:
        """Return a method's part of every result that has it."""
        return [result.methods[method] for result in self if method in result.methods]

    def mean(self, method: str, number: NumberName) -> Mean | None:
        """Return the mean of a method's number, or None where no result has it."""
        return self.mean_of(method, lambda one: getattr(one, number))

    def mean_of(self, method: str, value: Callable[[MethodResult], float | None]) -> Mean | None:
        """Return the mean of what is computed from a method's results, or None of nothing."""
        found = [value(one) for one in self.entries(method)]
        return Mean.of([float(v) for v in found if v is not None and math.isfinite(v)])

    def individual_openings(self, method: str) -> Mean | None:
        """Return how many single peers' updates a method opened, None if it opened none."""
        return self.mean_of(
            method,
            lambda one: sum(e.openings for e in one.opened.values() if e.of == ALONE) or None,
        )

    def accuracy(self, method: str) -> str | None:
        """Return a method's accuracy for a table, which says if it diverged."""
        found = percent(self.mean(method, "accuracy"))
        lost = sum(why is not None for why in self.diverged(method))
        return f"{found} (diverged in {lost} of {len(self)})" if lost else found

    def diverged(self, method: str) -> list[str | None]:
        """Return for each result why a method counts as diverged there, or None."""
        return [diverged(method, r.methods.get(method), r.config) for r in self]

    def remembered(self, method: str) -> Estimate | None:
        """Return the share of the leavers' data that a method remembers: the original 1.

        It is the mean excess over the original's mean excess in these results: a mean of ratios
        would be ruled by those in which the original hardly remembers. None if any result has no
        value, or if the original remembers too little to tell. Errors are those of `averaged`.
        """
        ours, original = self.excess(method), self.excess(POISONED)
        if ours is None or original is None:
            return None
        share = ratio(ours, original)
        return Estimate(value=1.0, error=0.0) if share and method == POISONED else share

    def excess(self, method: str) -> Estimate | None:
        """Return the mean excess of a method; None if any result has none."""
        found = [(one.excess, one.excess_error) for one in self.entries(method)]
        known = [
            (value, error) for value, error in found if value is not None and error is not None
        ]
        if not known or len(known) < len(self):
            return None
        return averaged([Estimate(value=value, error=error) for value, error in known])

    def exact_rounds(self, method: str) -> Mean | None:
        """Return how many rounds' worth of updates were computed: by the kept peers, or by all.

        All of them computed for the original model. A count of the rounds that opened a fresh sum
        would leave out methods whose peers compute without one.
        """
        return Mean.of(
            [work(r.methods[method], _peers(r, method)) for r in self if method in r.methods]
        )

    def gradients(self, method: str) -> Mean | None:
        """Return how many gradients each of the peers that took part computed."""
        return Mean.of(
            [
                r.methods[method].gradient_evaluations / _peers(r, method)
                for r in self
                if method in r.methods
            ]
        )

    def peer_seconds(self, method: str) -> Mean | None:
        """Return the seconds of one peer: in runs on shares that were not resumed."""
        found = [
            r.methods[method].seconds.of_one_peer(_peers(r, method))
            for r in self
            if method in r.methods and not r.config.clear
            if not r.methods[method].rounds_from_history
        ]
        return Mean.of(found)

    def held_out_accuracy(self, method: str) -> Mean | None:
        """Return the mean accuracy of a method's last model as the peers have opened it."""
        return self.mean_of(
            method, lambda one: one.evaluations[-1].accuracy if one.evaluations else None
        )

    def held_out_curve(self, method: str) -> Series | None:
        """Return the curve that the peers have opened of a method; void evaluations are gaps."""
        every = [one.evaluations for one in self.entries(method) if one.evaluations]
        values = [
            {p.round: p.accuracy for p in points if not p.original and p.accuracy is not None}
            for points in every
        ]
        return _averaged(method, values)

    def curve(self, method: str, rate: RateName = "accuracy") -> Series | None:
        """Return a method's curve over the rounds that all these results have, in percent.

        It ends at the last models of all, in the round in which the last of them was reached. None
        if any result has no curve, as recorded runs have none.
        """
        curves = [(one.curve.round, getattr(one.curve, rate)) for one in self.entries(method)]
        values = [dict(zip(*c, strict=True)) for c in curves if None not in c[1]]
        if not all(values) or not values:
            return None
        end = max(max(each) for each in values)
        return _averaged(method, [{**each, end: each[max(each)]} for each in values])


def _peers(result: Result, method: str) -> int:
    """Return how many peers took part in a method: all of them in the original run."""
    return result.config.peers if method == POISONED else result.config.kept


def averaged(excesses: Sequence[Estimate]) -> Estimate:
    """Return the mean excess over seeds, and the mean of its errors.

    Seeds share the held-out samples, and how those differ from what peers train on. So their errors
    are not independent, and what they have in common is not averaged out. How much that is is not
    known: the mean of the errors is right if it is everything, and too large otherwise.
    """
    return Estimate(
        value=statistics.fmean(each.value for each in excesses),
        error=statistics.fmean(each.error for each in excesses),
    )


def _averaged(method: str, values: Sequence[dict[int, float]]) -> Series | None:
    """Return the mean of curves over the rounds that all of them have, in percent."""
    if not values or not (common := sorted(set.intersection(*map(set, values)))):
        return None
    columns = [[100 * each[t] for each in values] for t in common]
    return Series(
        name=method,
        x=[float(t) for t in common],
        y=[statistics.fmean(column) for column in columns],
        spread=[statistics.stdev(c) if len(c) > 1 else 0.0 for c in columns],
    )


def diverged(method: str, one: MethodResult | None, config: Config) -> str | None:
    """Return why a method counts as diverged in a result, or None if it does not.

    It has left the range of numbers that can be shared, or has ended at a model whose loss on
    the test data is not finite or above `LOST`. A loss that is not finite is written as None, and
    so is that of a run in which nobody was removed: there it says nothing.
    """
    if one is None:
        return None
    if one.diverged is not None:
        return one.diverged
    loss = one.held_out_loss
    known = METHODS.get(method.partition(":")[0])
    if loss is msgspec.UNSET or (known is not None and known.noisy):
        return None
    if loss is None and not config.removed:
        return None
    if loss is None or not math.isfinite(loss):
        return "its loss on the test data is not finite"
    return f"its loss on the test data is {short(loss)} nats" if loss > LOST else None


def work(one: MethodResult, peers: int) -> float:
    """Return the updates that a method's peers computed, as rounds of this many peers."""
    return (one.gradient_evaluations if one.updates is None else one.updates) / peers


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


def origin(results: Sequence[Result]) -> str:
    """Say where results come from: seeds, versions, commits, what they took, notes on the data."""
    if not results:
        return ""
    seeds = sorted({result.seed for result in results})
    versions = sorted({", ".join(f"{name} {v}" for name, v in r.versions.items()) for r in results})
    every = [one for result in results for one in result.methods.values()]
    commits = sorted({one.commit for one in every if one.commit is not None})
    spent = sum(one.processor_seconds for one in every if one.borrowed_from is None)
    notes = {part for r in results for part in (r.dataset_note or "").split("; ")} - {""}
    parts = [
        f"{len(results)} runs, seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}",
        f"{spent / 3600:.1f} hours of one core",
        *versions,
        *([f"source {', '.join(commits)}"] if commits else []),
        *sorted(notes),
    ]
    return "; ".join(parts) + "."
