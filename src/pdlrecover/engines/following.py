"""Tells observers of runs: makes events of what an engine goes through, and survives observers.

Rules:

- No observer ends or changes a run. One that raises is told nothing more; why is said once, and
  the run goes on. Nothing is caught but `Exception`: ctrl-C remains ctrl-C.
- Without observers nothing here runs but one comparison with None a round.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np

from pdlrecover.engines.evaluations import EvaluationPoint
from pdlrecover.engines.events import (
    Ended,
    Event,
    Follow,
    Measured,
    Observer,
    Outcome,
    RoundDone,
    Run,
)
from pdlrecover.engines.ledger import Ledger, LedgerRecord
from pdlrecover.recovery.requests import Stepped, Sum

Say = Callable[[str], None]
COUNTS = ("exact_rounds", "fallback_rounds", "gradient_evaluations", "updates", "bytes_per_peer")
"""What of a ledger is a number of its own."""


def warn(text: str) -> None:
    """Say in Python's own way what is wrong with an observer."""
    warnings.warn(text, RuntimeWarning, stacklevel=2)


class Guarded:
    """An observer whose trouble stays its own; once it has failed, it is told nothing more."""

    def __init__(self, observer: Observer, say: Say = warn) -> None:
        self._observer, self._say = observer, say
        self._is_lost = False

    def begin(self, run: Run) -> Follow:
        """Begin to follow a run, unless the observer cannot."""
        follow: Follow | None = None
        if not self._is_lost:
            try:
                follow = self._observer.begin(run)
            except Exception as error:
                self._lose(run, error)

        def guarded(event: Event) -> None:
            nonlocal follow
            if follow is not None and not self._is_lost:
                try:
                    follow(event)
                except Exception as error:
                    follow = None
                    self._lose(run, error)

        return guarded

    def _lose(self, run: Run, error: Exception) -> None:
        self._is_lost = True
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        self._say(
            f"{type(self._observer).__name__} follows {run.name} no further, and nothing else "
            f"changes by that ({text})"
        )


def begin(observers: Sequence[Observer], run: Run, say: Say = warn) -> Follow | None:
    """Tell observers that a run begins; return what tells them the rest, None if there are none."""
    follows = [Guarded(each, say).begin(run) for each in observers]
    if not follows:
        return None

    def follow(event: Event) -> None:
        for each in follows:
            each(event)

    return follow


@contextmanager
def following(observers: Sequence[Observer], run: Run, say: Say = warn) -> Iterator[Follow | None]:
    """Tell observers of a run within this, from its first event on: one that is refused is none.

    Who raises has them told how it ended; who knows what it came to tells that it has finished.
    """
    begun: Follow | None = None

    def follow(event: Event) -> None:
        nonlocal begun
        if begun is None:
            begun = begin(observers, run, say)
        if begun is not None:
            begun(event)

    try:
        yield follow if observers else None
    except BaseException as error:
        if begun is not None:
            begun(stopped(error))
        raise


def stopped(error: BaseException) -> Ended:
    """Return what observers are told of a run that ended by an error, or by its user."""
    outcome: Outcome = "failed" if isinstance(error, Exception) else "stopped"
    return Ended(outcome=outcome, why=str(error) or type(error).__name__)


class Meter:
    """Makes events of what an engine goes through in one run."""

    def __init__(self, ledger: Ledger, follow: Follow, clock: Callable[[], float]) -> None:
        """`clock` is what the seconds of a round are read from."""
        self._ledger, self._follow, self._clock = ledger, follow, clock
        self._rounds = self._points = 0
        self._opened: Counter[str] = Counter(ledger.openings)
        self._bytes, self._since = ledger.bytes_per_peer, clock()
        self._norm: float | None = None
        self.replays = False
        """Whether the round under way is answered from what is stored: it has no seconds."""

    def go_live(self) -> None:
        """Take note that what was stored is gone through."""
        self.replays, self._since = False, self._clock()

    def take(self, answer: Any) -> None:
        """Take note of what a request was answered."""
        if isinstance(answer, Sum) and answer.weight:
            self._norm = float(np.linalg.norm(answer.mean))

    def step(self, step: Stepped) -> None:
        """Tell that a round is done."""
        ledger, now = self._ledger, self._clock()
        self._rounds += 1
        self._follow(
            RoundDone(
                round=self._rounds,
                exact=step.exact,
                fallback=step.fallback,
                void=step.void,
                update_norm=self._norm,
                seconds=None if self.replays else now - self._since,
                bytes_per_peer=ledger.bytes_per_peer - self._bytes,
                opened=dict(ledger.openings - self._opened),
            )
        )
        self._opened, self._bytes = Counter(ledger.openings), ledger.bytes_per_peer
        self._since, self._norm = now, None

    def evaluate(self, points: Sequence[EvaluationPoint]) -> None:
        """Tell what is new of a run's evaluations, but for those that are void."""
        for point in points[self._points :]:
            if point.accuracy is not None:
                self._follow(
                    Measured(
                        round=point.round,
                        on="original" if point.original else "held_out",
                        accuracy=point.accuracy,
                        loss=point.loss,
                    )
                )
        self._points = len(points)


def numbers_of(totals: LedgerRecord, seconds: float | None = None) -> dict[str, float]:
    """Return what a ledger's totals have to compare runs by."""
    found = {name: float(getattr(totals, name)) for name in COUNTS}
    return found if seconds is None else {**found, "seconds": seconds}


def record_of(totals: LedgerRecord) -> Mapping[str, Any]:
    """Return a ledger's totals as a file of a run."""
    return {"ledger.json": asdict(totals)}
