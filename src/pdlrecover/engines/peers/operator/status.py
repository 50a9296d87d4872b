"""The types of a running peer's answers to its operator; `control` fills them in.

The fields are the keys of `status.json`, and of the answers on the local socket.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pdlrecover.engines.bounds import Void
from pdlrecover.engines.evaluations import EvaluationPoint
from pdlrecover.engines.peers.greeting import Greeting

PRESENT_SECONDS = 30.0
"""Who was heard within this many seconds counts as present."""
DONE, RUNNING = "done", "running"
"""Outcomes of a run; others say why it stopped."""


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """How far a run is."""

    kind: str
    """`founding`, `standardisation`, `training`, `recovery`, or `naming`: the search for who made a
    round void."""
    outcome: str
    step: int
    round: int
    rounds: int
    state: str | None
    exact_rounds: int = 0
    dealt: Mapping[str, int] = field(default_factory=dict)
    """In how many exact rounds each of its peers dealt."""
    withheld: Mapping[str, int] = field(default_factory=dict)
    """How many dealings of a peer did not come here, though others' of the same step did."""
    log: str = ""
    evaluations: tuple[EvaluationPoint, ...] = ()
    """How good the peers found its models, on what they hold out."""
    void: tuple[Void, ...] = ()
    """Which of its rounds changed nothing, and why."""
    named: tuple[str, ...] = ()
    """Of a naming: who made the round void."""
    waits: str = ""
    """What it waits for if it does not go on, who could bring it, and what to do."""


@dataclass(frozen=True, kw_only=True)
class RemovalStatus:
    """A removal that was proposed."""

    removal: str
    removed: tuple[str, ...]
    reason: str
    method: str
    approvals: tuple[str, ...]
    needed: int
    replaces: str | None = None
    """The removal whose recovery this one takes the place of."""
    replaced_by: str | None = None
    """The removal that has passed and takes its place."""


@dataclass(frozen=True, kw_only=True)
class MisdeedStatus:
    """What a peer did that no honest peer does; when first."""

    peer: str
    what: str
    time: float


@dataclass(frozen=True, kw_only=True)
class BlameStatus:
    """One of the last occasions on which a peer was blamed."""

    peer: int
    what: str
    proven: bool
    time: float
    name: str


@dataclass(frozen=True, kw_only=True)
class PeerStatus:
    """Where a peer is, for people and for scripts."""

    federation: str
    peer: str
    time: float
    runs: Mapping[str, RunStatus]
    removals: tuple[RemovalStatus, ...]
    last_heard_seconds: Mapping[str, float | None]
    other_files: Mapping[str, tuple[str, ...]]
    """Whose federation file differs, and where."""
    started_over: str = ""
    """What happened, if others take part in another training than this peer."""
    caught: tuple[MisdeedStatus, ...] = ()
    """What is proven to others."""
    named: tuple[MisdeedStatus, ...] = ()
    """What is not."""
    blames: tuple[BlameStatus, ...] = ()
    history_bytes: int
    network: Mapping[str, int] = field(default_factory=dict)
    inputs: str = ""
    """The scale that inputs were brought to, or why there is none; nothing if that is not known."""


@dataclass(frozen=True, kw_only=True)
class Proposed:
    """A removal was proposed; its outcome, if it has passed before."""

    removal: str
    outcome: str | None


@dataclass(frozen=True, kw_only=True)
class Approved:
    """A removal was approved here."""

    approved: str


@dataclass(frozen=True, kw_only=True)
class PeerFacts:
    """What `peer doctor` asks a running peer, instead of looking for itself."""

    greeting: Greeting
    """What others get from it, too."""
    parameters: int
    """Numbers in the model."""
    listens_on: str
    descriptors: int
    """So many files and connections it may have,"""
    descriptors_in_use: int
    """and so many it has."""
    history_bytes: int


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """The peer stops."""

    done: str = "stopping"


Answer = PeerStatus | PeerFacts | Proposed | Approved | Stopping
