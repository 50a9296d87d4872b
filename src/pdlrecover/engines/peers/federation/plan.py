"""What a federation agrees to do: the model, training and recovery.

Each class is one table of the federation file; a docstring under a field is its explanation there.
"""

import json
import math
import re
from dataclasses import asdict, dataclass

from pdlrecover.decode import decode
from pdlrecover.engines.bounds import Bounds
from pdlrecover.engines.peers.settings import NO_FALLBACK
from pdlrecover.errors import MembershipError, PDLRecoverError
from pdlrecover.layers import Layer
from pdlrecover.learning.reading.table import spelled
from pdlrecover.recovery import methods, optimizers
from pdlrecover.recovery.accelerated import FRESH, AcceleratedOptions
from pdlrecover.recovery.methods import DEFAULT, Settings
from pdlrecover.recovery.pdlrecover import Options
from pdlrecover.recovery.requests import Optimizer
from pdlrecover.recovery.schedule import Schedule, usual_phase

_NO_PART = ("min_removed", "fallback", "stalled_after")
"""Settings that decide whether a recovery comes about, not how it goes."""
_MODEL = re.compile(r"logistic|cnn|mlp(-[1-9][0-9]*)?|[A-Za-z_][\w.]*:[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Model:
    """What is trained. The data stay where they are, and are not named here."""

    name: str
    """logistic, mlp, mlp-HIDDEN, cnn, or package.module:factory, installed at every peer."""
    shape: tuple[int, ...]
    """The shape of one sample."""
    classes: int
    """How many classes there are."""

    def __post_init__(self) -> None:
        if not _MODEL.fullmatch(self.name):
            from pdlrecover.learning.models import KNOWN  # it imports torch

            raise MembershipError(f"model.name must be {KNOWN}; got {self.name[:60]!r}")
        if not self.shape or min(self.shape) < 1:
            raise MembershipError(f"model.shape needs numbers from 1 on, got {list(self.shape)}")
        _at_least("model.classes", self.classes, 2)


@dataclass(frozen=True, kw_only=True)
class Training:
    """How it is trained."""

    rounds: int
    """T: rounds of training."""
    samples: int
    """No peer holds more samples than this; a peer's weight is its samples over this bound."""
    batch_size: int = 32
    """Samples of every peer in every round."""
    learning_rate: float = 0.1
    """γ: how far a round steps."""
    optimizer: str = "sgd"
    """sgd, momentum, adam or muon: it turns mean updates into steps."""
    bound: float = 10.0
    """The public L2 bound of an update."""
    l2: float = 0.0
    """λ of L2 regularisation."""
    local_steps: int = 1
    """E: steps of SGD that a peer takes by itself in a round, each on a minibatch of its own."""
    local_rate: float = 0.1
    """Their learning rate; without effect if there is one step."""
    seed: int = 0
    """It decides on the first weights and on the minibatches."""
    fraction_bits: int = 20
    """Bits behind the point, in the fixed-point numbers that are shared."""

    def __post_init__(self) -> None:
        for name in ("rounds", "samples", "batch_size", "local_steps"):
            _at_least(f"training.{name}", getattr(self, name), 1)
        _at_least("training.seed", self.seed, 0)
        if self.seed >= 1 << 63:
            raise MembershipError(f"training.seed must be below 2^63, got {self.seed}")
        if not 1 <= self.fraction_bits <= 40:
            raise MembershipError(
                f"training.fraction_bits must be from 1 to 40, got {self.fraction_bits}"
            )
        if not (0 < self.bound < math.inf and 0 <= self.l2 < math.inf):
            raise MembershipError(
                "training.bound must be above 0, training.l2 at least 0, and both finite; got "
                f"bound = {self.bound} and l2 = {self.l2}"
            )
        if not 0 < self.local_rate < math.inf:
            raise MembershipError(
                f"training.local_rate must be above 0 and finite, got {self.local_rate}"
            )
        self.steps()

    def bounds(self, length: int) -> Bounds:
        """Return the bounds of what honest peers deal, for updates of this length."""
        return Bounds(
            fraction_bits=self.fraction_bits,
            bound=self.bound,
            length=length,
            samples=self.samples,
        )

    def steps(self, layers: tuple[Layer, ...] = ()) -> Optimizer:
        """Return the optimiser that every peer steps with, for a model of these layers."""
        try:
            return optimizers.build(
                self.optimizer, self.learning_rate, rounds=self.rounds, layers=layers
            )
        except PDLRecoverError as error:
            raise MembershipError(f"training: {error}") from error


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """How it is recovered when peers are removed."""

    preparation: int | None = None
    """T_p: exact rounds at the start; 25 of 1000, 16 of a few hundred, an eighth of fewer."""
    period: int = 30
    """T_r: of the rounds between preparation and end, one in this many is exact."""
    final: int | None = None
    """T_f: exact rounds at the end; as the preparation."""
    buffer: int = 4
    """s: how many pairs of curvature are kept."""
    block: int | None = None
    """k: how many estimated rounds are opened as one; by default 1, and after SGD 5, or all between
    two exact rounds where pairs are opened."""
    open_pairs: bool | None = None
    """Open the curvature pairs, which is faster; by default unless differencing was accepted."""
    min_removed: int = 2
    """Fewer honest leavers than this are not removed; nor are fewer than c + 2, in any case."""
    fallback: str = DEFAULT
    """By which method, one that starts afresh, a stalled recovery is replaced; none: by no one."""
    stalled_after: float = 900.0
    """A recovery has stalled when it has waited for shares for so many seconds."""

    def __post_init__(self) -> None:
        _at_least("recovery.min_removed", self.min_removed, 1)
        if not 0 < self.stalled_after < math.inf:
            raise MembershipError(
                f"recovery.stalled_after must be above 0 and finite, got {self.stalled_after}"
            )

    def as_line(self) -> str:
        """Return what a recovery depends on, as one line: it is part of the recovery's name."""
        facts = {name: value for name, value in asdict(self).items() if name not in _NO_PART}
        return json.dumps(facts, sort_keys=True)

    @classmethod
    def from_line(cls, line: str) -> "Recovery":
        """Return the settings in a line."""
        return decode(cls, json.loads(line), MembershipError, where="recovery")

    def settings(self, training: Training, *, accept_differencing: bool = False) -> Settings:
        """Return what recovery methods are given after this training; they start afresh.

        A removal that was proposed without accepting differencing is judged as if every stored sum
        of the kept peers were open, so their pairs may be. Where it was accepted, they stay shared.
        """
        return Settings(
            options=self.options(training.rounds, accept_differencing=accept_differencing),
            accelerated=AcceleratedOptions(start=FRESH),
            batch_size=training.batch_size,
            local_steps=training.local_steps,
        )

    def options(self, rounds: int, *, accept_differencing: bool = False) -> Options:
        """Return how PDLRecover runs after this number of training rounds."""
        short = usual_phase(rounds)
        try:
            schedule = Schedule(
                preparation=short if self.preparation is None else self.preparation,
                period=self.period,
                final=short if self.final is None else self.final,
                buffer=self.buffer,
            )
            schedule.check(rounds)
            opens = not accept_differencing if self.open_pairs is None else self.open_pairs
            return Options(schedule=schedule, open_pairs=opens, block=self.block)
        except PDLRecoverError as error:
            raise MembershipError(f"recovery: {error}") from error

    def check_fallback(self, training: Training) -> None:
        """Raise unless what replaces a stalled recovery needs nothing of the training."""
        if self.fallback == NO_FALLBACK:
            return
        try:
            methods.check_between_peers(self.fallback)
            afresh = methods.starts_afresh(self.fallback, self.settings(training))
        except PDLRecoverError as error:
            raise MembershipError(f"recovery.fallback: {error}") from error
        if not afresh:
            raise MembershipError(
                f"recovery.fallback must be a method that starts afresh, such as {DEFAULT}, or "
                f"{NO_FALLBACK}, got {self.fallback!r}: another may lack the same shares"
            )


@dataclass(frozen=True, kw_only=True)
class EvaluationPlan:
    """How models are evaluated, on samples that are never trained on."""

    held_out: float = 0.0
    """The share of its samples that every peer keeps apart to evaluate on; 0: no evaluations."""
    every: int = 10
    """Models are evaluated after this many rounds, and at the end."""

    def __post_init__(self) -> None:
        if not 0 <= self.held_out <= 0.5:
            raise MembershipError(f"evaluation.held_out must be from 0 to 0.5, got {self.held_out}")
        _at_least("evaluation.every", self.every, 1)


@dataclass(frozen=True, kw_only=True)
class DataPlan:
    """What samples and labels are called. The data stay where they are, and are not named here."""

    classes: tuple[str, ...] | None = None
    """The names of the classes, in the order of the model's outputs; else labels are 0, 1, …"""
    features: tuple[str, ...] | None = None
    """The columns of tables, in the order in which the model takes them."""

    def __post_init__(self) -> None:
        for key in ("classes", "features"):
            if (names := getattr(self, key)) is not None:
                _check_names(f"data.{key}", names)

    def check(self, model: Model) -> None:
        """Raise unless there is a name for each class, and for each number of a sample."""
        if self.classes is not None and len(self.classes) != model.classes:
            raise MembershipError(
                f"data.classes has {len(self.classes)} names, and model.classes is "
                f"{model.classes}; name every class once"
            )
        if self.features is not None and model.shape != (len(self.features),):
            raise MembershipError(
                f"data.features has {len(self.features)} names, and model.shape is "
                f"{list(model.shape)}; with named columns it is [{len(self.features)}]"
            )


def _check_names(key: str, names: tuple[str, ...]) -> None:
    """Raise unless these names differ, and are written as names are compared."""
    for name in names:
        if not name or not name.isprintable() or name != spelled(name):
            raise MembershipError(
                f"{key} must be printable names without blanks around them, in Unicode's composed "
                f"form (NFC), got {name[:60]!r}"
            )
        if names.count(name) > 1:
            raise MembershipError(f"{key} names {name[:60]!r} twice; names must differ")


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise MembershipError(f"{name} must be at least {least}, got {value}")
