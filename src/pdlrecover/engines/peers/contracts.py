"""What the protocol needs from outside: keys, and a place for what must survive a crash."""

from collections.abc import Sequence
from typing import Protocol

from pdlrecover.engines.peers.messages import Entry
from pdlrecover.field import Elements


class Crypto(Protocol):
    """One peer's keys, and the public keys of the others."""

    def sign(self, data: bytes) -> bytes:
        """Return this peer's signature, of 64 bytes."""

    def verify(self, peer: int, data: bytes, signature: bytes) -> bool:
        """Say whether a peer signed this; never raises."""

    def seal(self, peer: int, data: bytes, context: bytes) -> bytes:
        """Return what only this peer can open, and only in this context."""

    def unseal(self, data: bytes, context: bytes) -> bytes | None:
        """Return what was sealed to this peer, or None if it was not, or is damaged."""


class Store(Protocol):
    """What one peer keeps. A write that has returned survives a crash.

    A run is named by its digest. The entries of its log are public, the shares are this peer's.
    """

    def log(self, run: bytes) -> Sequence[Entry]:
        """Return the entries of a run's log, one for each step."""

    def commit(self, run: bytes, entry: Entry, shares: dict[int, Elements]) -> None:
        """Append an entry, and this peer's shares of it by dealer; all of it or nothing."""

    def shares(self, run: bytes, step: int, dealers: Sequence[int]) -> Elements | None:
        """Return the sum of this peer's shares of these dealers; None if it lacks one."""

    def remember(self, name: str, value: bytes) -> None:
        """Keep a small value under a name, instead of the one before."""

    def recall(self, name: str) -> bytes | None:
        """Return what is remembered under a name."""
