"""Private evaluation: how good a model is on what peers hold out, opened as sums only.

Every peer keeps a share of its own data apart and never trains on it. An evaluation opens three
sums over those who take part, and nothing of anybody's own:

    Σ correct,    Σ min(loss, 16 nats) in steps of 2^−16,    Σ count

Rules:

- Any method is evaluated by `evaluated`, after every k rounds and at its end; no method does so by
  itself, but for what its own decisions need.
- An honest peer deals 0 ≤ correct ≤ count ≤ H and 0 ≤ loss ≤ 16·count, where H is public. What is
  opened of s peers must then satisfy the same with s·H, or it is void: somebody lied. Within those
  bounds m liars among peers whose honest samples are C move the accuracy by at most
  m·H/(C + m·H). `docs/limitations.md` says what a liar can do who leaves its own bounds.
- Decisions compare opened integers, exactly, so all peers come to the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from pdlrecover.errors import PlanError, RangeError
from pdlrecover.field import F61, Integers
from pdlrecover.recovery.requests import (
    Asking,
    Continued,
    Evaluation,
    Method,
    Stepped,
    Tally,
    Vector,
)

NUMBERS = 3
"""What an evaluation opens."""
LOSS_BOUND = 16.0
"""No sample's loss counts for more, in nats."""
LOSS_STEPS = 1 << 16
"""A loss is dealt in steps of 1/LOSS_STEPS nats."""
MARGIN = Fraction(1, 200)
"""A recovery whose accuracy ends by more below the original's goes on for another cycle."""
FAR = Fraction(1, 20)
"""One that ends by more below it is probably worked against: see `Cycle.is_hard`."""


@dataclass(frozen=True, kw_only=True)
class EvaluationTerms:
    """What peers have agreed on for evaluations."""

    every: int
    """k: an evaluation comes after this many rounds, and at the end."""
    most: int
    """H: no peer holds out more samples."""
    peers: int
    """How many peers take part at most."""

    def __post_init__(self) -> None:
        if self.every < 1:
            raise PlanError(f"evaluations come after at least 1 round, got {self.every}")
        largest = self.peers * self.most * LOSS_BOUND * LOSS_STEPS
        if largest > (F61.modulus - 1) // 2:
            raise RangeError(
                f"evaluations on {self.most} samples of each of {self.peers} peers do not fit the "
                "field; hold out fewer"
            )

    def step_of(self, t: int) -> int:
        """Return which step of its run round t of a training is, where evaluations are steps."""
        return t + t // self.every


def encode_tally(correct: int, loss: float, count: int) -> Integers:
    """Return what a peer deals."""
    return np.array([correct, round(loss * LOSS_STEPS), count], dtype=np.int64)


def decode_tally(opened: Integers, most: int) -> Tally:
    """Return what was opened of peers that hold out at most `most` samples in all.

    Raises a `RangeError` if honest peers cannot have dealt that, or have no sample.
    """
    correct, loss, count = map(int, opened)
    if not (0 <= correct <= count <= most and 0 <= loss <= LOSS_BOUND * LOSS_STEPS * count):
        raise RangeError(
            f"somebody lied: {correct} of {count} held-out samples right with a loss of "
            f"{loss / LOSS_STEPS:.6g} was opened, and honest peers hold out at most {most}, with "
            f"at most {LOSS_BOUND:g} for each"
        )
    if not count:
        raise RangeError("nobody who took part holds out any sample")
    return Tally(correct=correct, loss=loss / LOSS_STEPS, count=count)


def is_below(tally: Tally, goal: Tally, margin: Fraction = MARGIN) -> bool:
    """Say whether an accuracy is lower than another by more than the margin, exactly."""
    return Fraction(goal.correct, goal.count) - Fraction(tally.correct, tally.count) > margin


def evaluated(method: Method, every: int) -> Method:
    """Go through a method, and evaluate its model after every k rounds and at its end.

    A method's own request for what was just evaluated is answered with that.
    """
    answer: Any = None
    done, at, found = 0, None, None
    while True:
        try:
            request = method.send(answer)
        except StopIteration as end:
            model: Vector = end.value
            if at is None or not np.array_equal(at, model):
                yield Evaluation(round=done, at=model)
            return model
        if isinstance(request, Evaluation) and not request.original:
            if at is None or not np.array_equal(at, request.at):
                at, found = request.at, (yield request)
            answer = found
            continue
        answer = yield request
        if isinstance(request, Stepped):
            done += 1
            if done % every == 0:
                at, found = request.model, (yield Evaluation(round=done, at=request.model))


@dataclass(frozen=True, kw_only=True)
class Cycle:
    """Which cycle of a recovery this is."""

    number: int
    """From 0 on."""
    is_hard: bool = False
    """Whether somebody probably worked against the one before."""


@dataclass(frozen=True, kw_only=True)
class CycleEnd:
    """What came of a cycle."""

    model: Vector
    pulled: str = ""
    """What the opened sums tell of somebody who works against the recovery, if they do."""


def in_cycles(
    cycle: Callable[[Cycle, Vector], Asking[CycleEnd]],
    first: Vector,
    *,
    rounds: int,
    most: int,
    goal: Vector | Tally | None,
) -> Method:
    """Go through cycles of `rounds` rounds each until one ends at the goal's accuracy.

    There are `most` at most. A goal that is a model is evaluated first. If an evaluation is void
    there is no further cycle. Without a goal nobody evaluates, and another cycle follows only on
    one that somebody worked against, as far as the opened sums tell.
    """
    wanted = goal if isinstance(goal, Tally) else None
    if most > 1 and isinstance(goal, np.ndarray):
        wanted = yield from _evaluation(0, goal, original=True)
    model, is_hard = first, False
    for number in range(most):
        end = yield from cycle(Cycle(number=number, is_hard=is_hard), model)
        model, done = end.model, (number + 1) * rounds
        if number + 1 == most:
            break
        if wanted is None:
            is_hard, why = bool(end.pulled), end.pulled
        else:
            found = yield from _evaluation(done, model)
            if found is None or not is_below(found, wanted):
                break
            is_hard, why = is_below(found, wanted, FAR), _shortfall(found, wanted)
        if not why:
            break
        against = "; some kept peer may be working against the recovery" if is_hard else ""
        text = f"after {done} rounds {why}: cycle {number + 2} of at most {most} begins{against}"
        yield Continued(rounds=done + rounds, why=text)
    return model


def _shortfall(found: Tally, wanted: Tally) -> str:
    return (
        f"the accuracy on held-out data is {found.accuracy:.2%} and that of the original "
        f"{wanted.accuracy:.2%}"
    )


def _evaluation(round: int, at: Vector, *, original: bool = False) -> Asking[Tally | None]:
    answer: Tally | None = yield Evaluation(round=round, at=at, original=original)
    return answer
