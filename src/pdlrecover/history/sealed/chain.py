"""The chain over rounds, its head, and the small file that remembers the head.

Rules:

- A round's manifest names every record of the round by its nonce and tag, and holds the digest of
  the manifest before it. Its own digest is the *link* of the round; the last link is the head. So
  a record or a round that is taken out, put back from elsewhere or replaced does not fit.
- The state (rounds, head, which shares are kept or staged, checkpoints) is rewritten by every
  write, and counts them. It also stands in a file of its own, sealed, written after every round,
  and after checkpoints that ask for it.

What this shows: a record or round that is damaged, missing, moved or replaced by whoever has not
the key; a database that was put back to an earlier copy while the head file was not. What it cannot
show by itself: that the whole folder was put back to an earlier copy, or emptied. That would show
only if the head were compared with one that somebody else remembers; no engine does that yet.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Self

import msgspec

from pdlrecover.errors import HistoryError
from pdlrecover.history.sealed.records import FORMAT, VaultLayout


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """A record whose bytes are its fields and the format as JSON, without spaces and sorted."""

    def encoded(self) -> bytes:
        """Return its bytes."""
        values = {"format": FORMAT, **asdict(self)}
        return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def decoded(cls, content: bytes) -> Self:
        """Return what `encoded` wrote down."""
        values = json.loads(content)
        if (found := values["format"]) != FORMAT:
            raise HistoryError(f"the history has format {found}, and this version reads {FORMAT}")
        return msgspec.convert(values, cls)


@dataclass(frozen=True, kw_only=True)
class Head:
    """Where a history stands: what could be compared with what somebody else remembers."""

    rounds: int
    """Rounds stored."""
    link: str
    """Digest over all of this peer's history, in hexadecimal."""

    @classmethod
    def first(cls, layout: VaultLayout) -> Self:
        """Return the head of an empty history."""
        return cls(rounds=0, link=layout.context.hex())


@dataclass(frozen=True, kw_only=True)
class Manifest(Encoded):
    """What a round has."""

    round: int
    previous: str
    """The link of the round before."""
    dealers: tuple[int, ...]
    """Whose updates the round's opened sum is of."""
    records: dict[str, str]
    """Nonce and tag of every record, by its key; both in hexadecimal."""
    final: bool = False
    """Whether it only holds the model that the last round led to."""

    @property
    def link(self) -> str:
        """The digest that the next manifest has to hold."""
        return hashlib.sha256(b"pdlrecover history link: " + self.encoded()).hexdigest()

    @property
    def head(self) -> Head:
        """Where the history stands after it."""
        return Head(rounds=self.round + (not self.final), link=self.link)


@dataclass(frozen=True, kw_only=True)
class Staged:
    """A share that was written before its round was committed."""

    fingerprint: str
    """Its nonce and tag."""
    name: str
    """Whoever commits the round must mean the share of this name: which dealing it is of, say."""


@dataclass(frozen=True, kw_only=True)
class ChainState(Encoded):
    """Where the history stands after a write."""

    sequence: int = 0
    """How many writes there have been."""
    head: Head
    shares_from: int = 0
    """The first round from which on shares are kept; those of round 0 are, too."""
    finished: bool = False
    """Whether the run's last model is there."""
    checkpoints: dict[str, str] = field(default_factory=dict)
    """Nonce and tag of every checkpoint, by its name."""
    staged: dict[str, Staged] = field(default_factory=dict)
    """Shares of the next round that are there already, by their keys in hexadecimal."""
