"""Results as typed records: what one experiment writes into `result.json`, and how it is read.

Rules:

- A record is read by its fields' types. One that lacks a part, or has one of another type, raises a
  `RecordError` that names the part. Parts that are not known are ignored.
- Fields with a default may be missing: an earlier version did not write them, or they say nothing.
- Rates are fractions of 1. None stands for a number that does not exist: the success of a backdoor
  that nobody planted, or the loss of a model that has diverged.
"""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from pdlrecover.decode import decode
from pdlrecover.engines.evaluations import EvaluationPoint
from pdlrecover.engines.ledger import Openings, Seconds
from pdlrecover.errors import RecordError
from pdlrecover.experiments.experiment.config import Config

POISONED = "poisoned"
"""The name of the original run among the results."""
TRAINED = "trained"
"""How it is called where it is shown, if nobody attacked."""
FORMAT = 1
NEEDED = (
    "dataset",
    "model",
    "peers",
    "malicious",
    "leavers",
    "attack",
    "rounds",
    "methods",
    "clear",
)
"""The settings that every result has; others have been added later."""
LEFT_OUT = (
    *("rounds_from_history", "borrowed_from", "diverged", "clipped_updates", "processor"),
    *("opened", "dataset_note", "excess", "excess_error", "remembered_error"),
    *("evaluations", "continued", "updates", "clipped_inputs"),
)
"""What is not written where it is None."""

RateName = Literal["accuracy", "attack_success"]
NumberName = (
    RateName
    | Literal[
        "attack_success_above_retrain",
        "distance_to_retrain",
        "exact_rounds",
        "fallback_rounds",
        "gradient_evaluations",
        "bytes_per_peer",
    ]
)
"""The names of numbers that are averaged over results."""


def shown_name(method: str, config: Config) -> str:
    """Return how a method is called where it is shown; records have its own name."""
    return TRAINED if method == POISONED and not config.attackers else method


@dataclass(frozen=True, kw_only=True)
class Scores:
    """How good a model is on the test part."""

    accuracy: float
    attack_success: float | None


@dataclass(frozen=True, kw_only=True)
class Losses:
    """A model's mean loss on held-out data, weighted, and on the removed peers' own data."""

    held_out_loss: float | None
    removed_loss: float | None


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A method's rates by round: lists of one length."""

    round: list[int]
    accuracy: list[float]
    attack_success: list[float | None]

    def __post_init__(self) -> None:
        lengths = [len(values) for values in vars(self).values()]
        if len(set(lengths)) > 1:
            raise RecordError(f"a curve's lists must have one length, got {lengths}")


@dataclass(frozen=True, kw_only=True)
class MethodNumbers(Scores):
    """The numbers of one method: what it reached, and what it cost."""

    held_out_loss: float | msgspec.UnsetType | None = msgspec.UNSET
    """Unset if it was not measured; None if it is not finite, or if nobody was removed."""
    removed_loss: float | None = None
    distance_to_retrain: float | None = None
    exact_rounds: int
    fallback_rounds: int
    gradient_evaluations: int
    updates: int | None = None
    """How many updates single peers computed; None in records that say it by the gradients, of
    which each update took one."""
    bytes_per_peer: int
    individual_storage_bytes: int = 0
    seconds: Seconds
    commit: str | None = None
    rounds_from_history: int | None = None
    """Of the original run: how many rounds an earlier, interrupted run had done."""
    excess: float | None = None
    """How much surer it is of the removed peers' data than a model that never saw it; None if that
    was not measured."""
    excess_error: float | None = None
    """Its standard error."""
    remembered: float | None = None
    """The excess as a share of the original's; earlier versions wrote another measure here."""
    remembered_error: float | None = None
    attack_success_above_retrain: float | None = None
    borrowed_from: str | None = None
    """The key of the cached run that this was copied from."""
    diverged: str | None = None
    """Why the method was stopped."""
    opened: dict[str, Openings] | None = None
    """By kind; None in records of versions that did not write it."""

    @property
    def processor_seconds(self) -> float:
        """The processor's seconds; raise RecordError if they were not measured."""
        if self.seconds.processor is None:
            raise RecordError("the processor's seconds are missing; run the experiment again")
        return self.seconds.processor


@dataclass(frozen=True, kw_only=True)
class MethodResult(MethodNumbers):
    """All that a result says of one method."""

    opened: dict[str, Openings]
    """By kind; empty if it is not known, since every method opens something."""
    curve: Curve
    """Without points if it is not known."""
    liars: list[int] = field(default_factory=list)
    evaluations: list[EvaluationPoint] | None = None
    """What the peers opened of their own held-out samples; None if they hold out none."""
    continued: list[str] | None = None
    """Why a method went on for another cycle after each that ended too low."""

    @property
    def sees_single_peers(self) -> bool:
        """Whether it looked at single updates: by its openings, or by what it must store."""
        return "individual" in self.opened or self.individual_storage_bytes > 0


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of one experiment."""

    format: int = FORMAT
    config: Config
    seed: int
    versions: dict[str, str] = field(default_factory=dict)
    commit: str | None = None
    complete: bool = False
    methods: dict[str, MethodResult]
    """The original run, called `poisoned`, and the recovery methods that are done."""
    clipped_updates: int | None = None
    """How many updates were clipped; None if the run was resumed: those before are not known."""
    clipped_inputs: int | None = None
    """How many inputs were beyond the bound on them, where they are standardised."""
    dataset_note: str | None = None


def as_record(part: Any) -> Any:
    """Return a result, or a part of one, as plain values for JSON."""
    record = _without_gaps(msgspec.to_builtins(part))
    return {**record, "config": part.config.record()} if isinstance(part, Result) else record


def _without_gaps(value: Any) -> Any:
    if not isinstance(value, dict):
        return list(value) if isinstance(value, tuple) else value
    kept = {k: v for k, v in value.items() if v is not None or k not in LEFT_OUT}
    return {key: _without_gaps(each) for key, each in kept.items()}


def digest_of(record: dict[str, Any]) -> str:
    """Return the digest of a record, without the one that it may carry."""
    rest = {key: value for key, value in record.items() if key != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def read_result(record: Any) -> Result:
    """Return the result that `as_record` wrote down; raise RecordError if it is another thing."""
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        found = record.get("format") if isinstance(record, dict) else None
        raise RecordError(f"it is of format {found}, and this reads {FORMAT}")
    config = record.get("config")
    missing = [name for name in NEEDED if isinstance(config, dict) and name not in config]
    if missing:
        raise RecordError(f"config.{missing[0]} is missing")
    return decode(Result, record, RecordError, ignore_unknown=True)
