"""What the protocol needs from outside: keys, and a place for what must survive a crash."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from pdlrecover.engines.peers.protocol.messages import Held, LogEntry
from pdlrecover.field import Elements
from pdlrecover.recovery.requests import Vector


class Crypto(Protocol):
    """One peer's keys, and the public keys of the others."""

    def sign(self, data: bytes) -> bytes:
        """Return this peer's signature, of 64 bytes."""

    def verify(self, peer: int, data: bytes, signature: bytes) -> bool:
        """Say whether a peer signed this; never raises."""

    def seal(self, peer: int, data: bytes, context: bytes) -> bytes:
        """Return what only this peer can open, and only in this context."""

    def unseal(self, data: bytes | memoryview, context: bytes) -> bytes | None:
        """Return what was sealed to this peer, or None if it was not, or is damaged."""


class Store(Protocol):
    """What one peer keeps. A write that has returned survives a crash.

    A run is named by its digest. The entries of its log are public, the shares are this peer's.
    """

    @property
    def size(self) -> int:
        """How many bytes it takes on disk."""

    def name_training(self, run: bytes) -> None:
        """Take this as a name of the training, besides the one of before there were epochs."""

    def log(self, run: bytes) -> Sequence[LogEntry]:
        """Return the entries of a run's log, one for each step."""

    def reserve(self, run: bytes) -> None:
        """Make sure that the next step finds room, or raise: before it begins, not in its midst."""

    def commit(
        self, run: bytes, entry: LogEntry, shares: dict[int, Elements], model: Vector | None
    ) -> None:
        """Append an entry, this peer's shares of it by dealer, and the model that was asked at.

        All of it or nothing. Steps that ask for no update have no model.
        """

    def asked_at(self, run: bytes, step: int) -> Vector:
        """Return the model that a step asked for updates at."""

    def finish(self, run: bytes, model: Vector) -> Vector:
        """Keep the model that a run came to, unless it has come to one; return what is kept."""

    def finished(self, run: bytes) -> bool:
        """Say whether a run has come to its model."""

    def models(self, run: bytes) -> Sequence[Vector]:
        """Return the models that a run's steps asked at, and what it came to, once it has."""

    def dealers(self, run: bytes, step: int) -> tuple[int, ...]:
        """Return whose dealings a step added up."""

    def shares_from(self, run: bytes) -> int:
        """Return from which step on shares are kept: those between it and step 0 were dropped."""

    def shares(self, run: bytes, step: int, dealers: Sequence[int]) -> Elements | None:
        """Return the sum of this peer's shares of these dealers; None if it lacks one."""

    def remember(self, values: Mapping[str, bytes]) -> None:
        """Keep values under names, instead of those before: all of them or none."""

    def recall(self, name: str) -> bytes | None:
        """Return what is remembered under a name."""

    def promise(
        self, run: bytes, values: Mapping[str, bytes], shares: Mapping[Held, Elements]
    ) -> None:
        """Keep values of a run under names, and shares of its next step: all of them or none.

        The shares are stored for good when the step is committed with the same dealings.
        """

    def promised(self, run: bytes, name: str) -> bytes | None:
        """Return what is kept of a run under a name."""

    def held(self, run: bytes, dealing: Held) -> Elements | None:
        """Return the shares of a dealing that were kept of a run's next step."""
