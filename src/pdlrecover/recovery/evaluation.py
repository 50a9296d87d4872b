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
"""One that ends by more below it is probably worked against: see `Cycle.far_below`."""


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
    far_below: bool = False
    """Whether the one before ended far below the original."""


def in_cycles(
    cycle: Callable[[Cycle, Vector], Method],
    first: Vector,
    *,
    rounds: int,
    most: int,
    goal: Vector | Tally | None,
) -> Method:
    """Go through cycles of `rounds` rounds each until one ends at the goal's accuracy.

    Without a goal there is one cycle, as if nobody evaluated; with one, `most` at most. A goal that
    is a model is evaluated first. If an evaluation is void there is no further cycle.
    """
    wanted = goal if isinstance(goal, Tally) else None
    if most > 1 and isinstance(goal, np.ndarray):
        wanted = yield from _evaluation(0, goal, original=True)
    model, far_below = first, False
    for number in range(most):
        model = yield from cycle(Cycle(number=number, far_below=far_below), model)
        done = (number + 1) * rounds
        if wanted is None or number + 1 == most:
            break
        found = yield from _evaluation(done, model)
        if found is None or not is_below(found, wanted):
            break
        far_below = is_below(found, wanted, FAR)
        why = (
            f"after {done} rounds the accuracy on held-out data is {found.accuracy:.2%} and that "
            f"of the original {wanted.accuracy:.2%}: cycle {number + 2} of at most {most} begins"
        )
        if far_below:
            why += (
                f"; more than {float(100 * FAR):g} points below it, some kept peer may be working "
                "against the recovery"
            )
        yield Continued(rounds=done + rounds, why=why)
    return model


def _evaluation(round: int, at: Vector, *, original: bool = False) -> Asking[Tally | None]:
    answer: Tally | None = yield Evaluation(round=round, at=at, original=original)
    return answer
