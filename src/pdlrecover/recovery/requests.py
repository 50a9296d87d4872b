"""The requests that a method makes, and what it is answered.

Rules:

- A method is a generator: it yields requests and is sent the answers, and returns the model. It
  never sees a share, a socket or a clock; whatever engine drives it, its text is the same.
- Each request but `Stepped`, `Continued` and `LastLayer` is one opening, `PastBlocks` one for each
  block. What is opened is always about the *kept* peers, whom the engine knows; only `Removed`,
  `Head` and an `Individual` of everybody are about the others too. So the list of requests is the
  list of what was revealed: the ledger.
- `Individual` and `Loss` are what private methods never ask for. Rivals do, and a private engine
  refuses them. `Head` it refuses too: those are sums, which could be dealt and opened like updates,
  but they are far longer than an update and have another bound, and no engine here encodes them.
- A sum comes with the sum of the peers' weights: Σ gᵢ and Σ αᵢ, opened together. One that honest
  peers cannot have dealt is *void*, and answered by None: the round is passed over, with the model
  and the optimiser's state as they were, and the sum is used for nothing. A stored sum is also
  void if its round was void in the training; then nothing is opened.
- `Weights` and `Sketches` are about single peers, in a void round only: see `naming`.
- A pair is named by its round b: it is the shared difference of the fresh sum of an `Update` in
  round b and the stored sum of that round. It exists once that update has been asked for, of all
  the kept peers and with their own labels.
"""

import hashlib
from collections.abc import Callable, Container, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from pdlrecover.field import FixedPoint
from pdlrecover.layers import Layer

T = TypeVar("T")
SKETCHES = 8
"""How many projections of each dealer's update a `Sketches` opens."""
MOST_NUMBERS = 1 << 19
"""`PastBlocks` asks for at most so many numbers, unless a single block has more. That is 4 MB; what
peers send each other is as much over the packing, and must arrive within a message's deadline."""
Vector = NDArray[np.float64]
"""Public real numbers: a model, a direction."""
Whose = Literal["kept", "removed", "all"]
"""A group of peers."""


@dataclass(frozen=True, kw_only=True)
class LocalSteps:
    """How many steps of SGD a peer takes by itself in a round, and their rate."""

    steps: int
    rate: float


ONE_STEP = LocalSteps(steps=1, rate=1.0)
"""A gradient; its rate has no effect."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Teacher:
    """Public models whose mean prediction takes the place of the peers' labels.

    A sample's target is q, the mean over the models of softmax(z/τ), z being a model's logits; the
    loss at w is −τ²·Σ q·log softmax(z(w)/τ).
    """

    models: tuple[Vector, ...]
    temperature: float = 1.0
    """τ."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Update:
    """The sum of the kept peers' fresh updates at a model, an exact round. Answer: `Sum | None`."""

    round: int
    at: Vector
    stream: int = 0
    """Which sequence of minibatches the round's is taken from: 0 is that of the training."""
    local: LocalSteps | None = None
    """Other local steps than those of the training."""
    teacher: Teacher | None = None
    """Other targets than the peers' labels."""
    of: tuple[int, ...] | None = None
    """Which of the kept peers, by their places among them; all if None."""
    before: bool = False
    """Whether a training of the method's own kind would have opened it already: then it is only
    computed again, and no cost of the recovery."""

    @property
    def question(self) -> tuple[object, ...]:
        """Return what a peer's answer depends on: asked the same again, it deals the same again."""
        hashed = hashlib.sha256(self.at.tobytes())
        for model in self.teacher.models if self.teacher else ():
            hashed.update(model.tobytes())
        temperature = self.teacher and self.teacher.temperature
        return self.round, self.stream, self.local, temperature, hashed.digest()


@dataclass(frozen=True, kw_only=True, eq=False)
class Past:
    """The sum of the kept peers' stored updates over a block of rounds. Answer: `Sum | None`."""

    rounds: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class PastBlocks:
    """The same of several blocks, each by itself, all at once. Answer: a tuple of `Sum | None`."""

    blocks: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Dots:
    """Dot products of public vectors with shared pairs. Answer: array (vectors, pairs)."""

    pairs: tuple[int, ...]
    vectors: Vector
    """One public vector a row."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Direction:
    """Stored sums of a block of rounds plus Σ_b coefficient_b · pair_b. Answer: `Sum | None`."""

    rounds: tuple[int, ...]
    pairs: tuple[int, ...]
    coefficients: tuple[float, ...]

    def fits(self, code: FixedPoint) -> bool:
        """Say whether this cannot wrap around; a pair is the difference of two sums."""
        sums = len(self.rounds) + 2 * len(self.coefficients)
        size = len(self.rounds) + 2 * sum(abs(p) for p in self.coefficients)
        return size <= code.coefficient_bound(sums)


@dataclass(frozen=True, kw_only=True, eq=False)
class Removed:
    """The sum of the *removed* peers' stored updates over rounds. Answer: `Sum | None`."""

    rounds: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Individual:
    """Each kept peer's own update; a private engine refuses. Answer: `Individuals`."""

    round: int
    at: Vector | None = None
    """Fresh updates at this model; None asks for the stored ones of the round."""
    of: tuple[int, ...] | None = None
    """Which of the kept peers, by their places among them; all if None."""
    everybody: bool = False
    """Of all peers instead, the removed ones included: of stored updates only."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Loss:
    """The kept peers' mean training loss in a round of the run; a private engine refuses.

    It is what a server would have received with the updates: at w̄_t, on the round's minibatches,
    weighted by α. Answer: a float.
    """

    round: int


@dataclass(frozen=True, kw_only=True, eq=False)
class LastLayer:
    """Where the weights of the model's last linear layer stand in the flat vector.

    Answer: integers (classes, features), the bias being the last feature. Everybody knows the
    model's layers, so nothing is opened.
    """


@dataclass(frozen=True, kw_only=True, eq=False)
class Head:
    """Sums of one-vs-rest logistic losses over whole datasets, not minibatches. Answer: `HeadSums`.

    They are those of a linear head in place of the last layer, on the features that the model
    `at` computes, each of length 1: see `learning.heads`. Malicious peers poison their data.
    """

    at: Vector
    head: Vector
    """(classes, features): where the sums are taken."""
    of: Whose
    """Over whose data."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """How good a model is on what the kept peers hold out. Answer: `Tally`, None if it is void."""

    round: int
    """After how many rounds of the method."""
    at: Vector
    original: bool = False
    """Whether it is of the trained model, for a recovery to be compared with."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Moments:
    """Sums of the inputs of all who take part, or of squares about a mean. Answer: `Moment | None`.

    It is asked before a training only: see `standardisation`.
    """

    order: int
    """1: of x itself; 2: of (x − at)²."""
    at: Vector
    """A number for each mean: zeros, then the means."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Weights:
    """Each dealer's own weight in a void round. Answer: whose was outside of the bounds."""

    round: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Sketches:
    """SKETCHES random projections of each dealer's update in a void round. Answer: as `Weights`."""

    round: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Stepped:
    """No request but news: the model after a round, for curves and progress. No answer."""

    round: int
    model: Vector
    exact: bool
    """Whether the round was an exact one."""
    fallback: bool = False
    """Whether it was exact because the guard asked for it."""
    void: bool = False
    """Whether it changed nothing, because its sum was void now or in the training."""


@dataclass(frozen=True, kw_only=True)
class Continued:
    """No request but news: a method goes on for longer than was planned. No answer."""

    rounds: int
    """How many rounds it goes through now."""
    why: str


_OfSums = Update | Past | PastBlocks | Dots | Direction | Removed | Evaluation | Moments
_OfSingles = Individual | Weights | Sketches
Request = _OfSums | _OfSingles | Loss | LastLayer | Head | Stepped | Continued
Asking = Generator[Request, Any, T]
"""What makes requests, is sent the answers, and returns a T."""
Method = Asking[Vector]
"""A recovery under way; it returns the recovered model."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sum:
    """An opened sum of updates, and of their weights."""

    values: Vector
    weight: float

    @property
    def mean(self) -> Vector:
        """The weighted mean update: what an optimiser steps along."""
        return self.values / self.weight


@dataclass(frozen=True, kw_only=True, eq=False)
class Individuals:
    """Updates of single peers, one a row, already multiplied by the peers' weights."""

    values: NDArray[np.float32]
    weights: Vector

    @property
    def total(self) -> Sum:
        """Their sum."""
        return Sum(values=self.values.sum(axis=0, dtype=float), weight=float(self.weights.sum()))


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadSums:
    """Sums over samples of the logistic losses of every class against the rest."""

    losses: Vector
    """(classes,)."""
    gradient: Vector
    """(classes, features)."""
    hessian: Vector
    """(classes, features, features): of each class by itself; those across classes are zero."""
    samples: int


@dataclass(frozen=True, kw_only=True)
class Tally:
    """An opened evaluation: sums over all held-out samples of those who took part."""

    correct: int
    """How many were classified right,"""
    count: int
    """of how many."""
    loss: float
    """Σ min(loss, 16), in nats."""

    @property
    def accuracy(self) -> float:
        """The share that was classified right."""
        return self.correct / self.count

    @property
    def mean_loss(self) -> float:
        """The mean loss."""
        return self.loss / self.count


@dataclass(frozen=True, kw_only=True, eq=False)
class Moment:
    """Opened sums of inputs, as means over all numbers that were added up."""

    mean: Vector
    rounding: float
    """What these means may be off by, since peers round their sums: no more than half of this."""


class Stepper(Protocol):
    """A server optimiser under way: the public state that turns mean updates into steps."""

    def step(self, model: Vector, mean: Vector) -> Vector:
        """Return the next model."""

    def metric(self, epsilon: float) -> Vector | None:
        """Return the diagonal that the optimiser divides by, or None if it does not."""


class Optimizer(Protocol):
    """How training turns mean updates into steps."""

    def start(self) -> Stepper:
        """Return the optimiser in its first state."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FreshStart:
    """Where a recovery begins that shares nothing with the training."""

    first: Vector
    """New first weights."""
    stream: int
    """A sequence of minibatches of its own."""

    @classmethod
    def drawn(cls, digest: bytes, first: Callable[[int], Vector]) -> "FreshStart":
        """Return the start that follows from a digest; `first` draws first weights from a seed."""
        mixed = hashlib.sha256(b"pdlrecover fresh start" + digest).digest()
        seed, stream = (int.from_bytes(mixed[i : i + 8]) >> 1 for i in (0, 8))
        return cls(first=first(seed), stream=stream or 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Original:
    """What everybody knows of the run that is to be recovered."""

    models: Sequence[Vector]
    """w̄_0 … w̄_T; w̄_0 alone while the training has not ended."""
    optimizer: Optimizer
    code: FixedPoint
    """The encoding, whose headroom bounds public vectors and coefficients."""
    layers: tuple[Layer, ...] = ()
    """Of the model, for optimisers that step layer by layer."""
    fresh: FreshStart | None = None
    """Another start than w̄_0, drawn for this recovery."""
    goal: Vector | Tally | None = None
    """Where peers evaluate models, what a recovery is to come up to: the trained model, which the
    kept peers are to evaluate, or what all peers' evaluation of it was; None if it is not known."""
    closed: frozenset[int] = frozenset()
    """Rounds whose stored sums must not be opened: they would tell too much of somebody."""
    peers: int = 0
    """How many peers trained."""
    kept: tuple[int, ...] = ()
    """Which of them are kept, in ascending order."""
    void: Container[int] = ()
    """Which of its rounds were void: there w̄_{t+1} = w̄_t, and the stored sums are not replayed."""

    @property
    def rounds(self) -> int:
        """T: how many rounds the run had."""
        return len(self.models) - 1


def update(
    round: int, at: Vector, *, stream: int = 0, local: LocalSteps | None = None
) -> Asking[Sum | None]:
    """Ask for one exact round; None if it is void."""
    answer: Sum | None = yield Update(round=round, at=at, stream=stream, local=local)
    return answer


def past(*rounds: int) -> Asking[Sum | None]:
    """Ask for stored sums, added up over the rounds; None if that is void."""
    answer: Sum | None = yield Past(rounds=rounds)
    return answer


def past_blocks(*blocks: tuple[int, ...]) -> Asking[tuple[Sum | None, ...]]:
    """Ask for the stored sums of several blocks of rounds at once."""
    answer: tuple[Sum | None, ...] = yield PastBlocks(blocks=blocks)
    return answer


def individual(
    round: int, at: Vector | None = None, of: tuple[int, ...] | None = None
) -> Asking[Individuals]:
    """Ask for single peers' updates: fresh ones at a model, or the stored ones."""
    answer: Individuals = yield Individual(round=round, at=at, of=of)
    return answer
