"""What the protocol core wants done. It does nothing itself: no socket, clock, disk or thread.

Effects are carried out in the order in which they are given: what must be remembered before
something is sent stands before it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pdlrecover.engines.peers.protocol.dealing import Dealt
from pdlrecover.engines.peers.protocol.messages import LogEntry
from pdlrecover.engines.peers.protocol.step_memory import Promise, Row
from pdlrecover.field import Elements


@dataclass(frozen=True, kw_only=True, eq=False)
class Send:
    """Send these bytes to a peer. They may be lost; the core sends again what matters."""

    to: int
    data: bytes
    kind: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Compute:
    """Deal this step's shares, outside of the core since it may take long: in a thread, say."""

    step: int
    binding: bytes
    """The step's binding: see `dealing`."""
    seed: bytes
    deal: Callable[[bytes, bytes], Dealt]

    def run(self) -> Dealt:
        """Do it; the result goes to `RunProtocol.contribute`."""
        return self.deal(self.binding, self.seed)


@dataclass(frozen=True, kw_only=True, eq=False)
class Remember:
    """Keep what the peer promised in a step, durably, before anything that follows is sent."""

    promise: Promise


@dataclass(frozen=True, kw_only=True, eq=False)
class Keep:
    """Keep these rows of a step, durably, before anything that follows is sent."""

    rows: tuple[Row, ...]
    stored: bool
    """Whether they will be stored with the step's entry."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Commit:
    """The next step's answer is public: append it to the log, with this peer's shares of it."""

    entry: LogEntry
    shares: dict[int, Elements]
    signed: tuple[bytes, ...] = ()
    """The sub-secrets that it was opened from, where they may prove a cheat: see `evidence`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Serve:
    """A peer asks for entries of the log: answer with `RunProtocol.answers`."""

    to: int
    first: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Blame:
    """A peer did what no honest peer does."""

    peer: int
    what: str
    evidence: tuple[bytes, ...] = ()
    """Signed by that peer; empty where nothing proves it to third parties."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Note:
    """Something for the log."""

    text: str
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class Halt:
    """Stop: there is no going on for this peer."""

    why: str


Reaction = Send | Blame | Note
"""What follows from messages outside of runs: on removals, and on federation files."""
Effect = Send | Compute | Remember | Keep | Commit | Serve | Blame | Note | Halt
