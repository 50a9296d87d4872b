"""The evaluations of one run: the curve that operators see.

Rules: a point is what was opened, as rates, or why it is void. What is opened of s peers, each with
at most H held-out samples, is checked against s·H.
"""

from dataclasses import dataclass, field

from pdlrecover.errors import RangeError
from pdlrecover.field import Integers
from pdlrecover.recovery.evaluation import decode_tally
from pdlrecover.recovery.requests import Continued, Evaluation, Tally


@dataclass(frozen=True, kw_only=True)
class EvaluationPoint:
    """One evaluation."""

    round: int
    """After how many rounds; of the original model, 0."""
    original: bool = False
    """Whether it is of the model that a recovery is compared with."""
    peers: int
    """How many took part."""
    samples: int = 0
    """How many samples they hold out."""
    accuracy: float | None = None
    loss: float | None = None
    """The mean over the samples, each of at most 16 nats."""
    void: str | None = None
    """Why it says nothing."""

    def __str__(self) -> str:
        where = "the original model" if self.original else f"round {self.round}"
        if self.accuracy is None:
            return f"{where}: void, {self.void}"
        return f"{where}: accuracy {self.accuracy:.1%}, loss {self.loss:.3f}"


@dataclass(kw_only=True, eq=False)
class Evaluations:
    """What the evaluations of one run came to."""

    most: int
    """H: no peer holds out more samples."""
    points: list[EvaluationPoint] = field(default_factory=list)
    continued: list[str] = field(default_factory=list)
    """Why the method went on after each cycle, where it did."""
    last: Tally | None = None
    """What the last one opened; None if it was void."""

    def enter(self, request: Evaluation, opened: Integers, peers: int) -> Tally | None:
        """Take what was opened of this many peers; return it, or None if it is void."""
        self.last, void = None, None
        try:
            self.last = decode_tally(opened, peers * self.most)
        except RangeError as error:
            void = str(error)
        self.points.append(
            EvaluationPoint(
                round=request.round,
                original=request.original,
                peers=peers,
                samples=self.last.count if self.last else 0,
                accuracy=self.last.accuracy if self.last else None,
                loss=self.last.mean_loss if self.last else None,
                void=void,
            )
        )
        return self.last

    def leave_out(self, request: Evaluation, why: str) -> None:
        """Take note that a model is not evaluated."""
        self.last = None
        self.points.append(
            EvaluationPoint(round=request.round, original=request.original, peers=0, void=why)
        )

    def go_on(self, news: Continued) -> None:
        """Take note that the method goes on."""
        self.continued.append(news.why)
