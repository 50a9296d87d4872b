"""What peers say to each other: frozen values, checked when they are read from the wire.

Rules:

- A *run* is one training or one recovery; a *step* is one opening in it. What was opened in all
  steps so far is the run's *log*, the same at every peer.
- Every message carries a header with the federation, the run, the step, its sender, the digest of
  the sender's log and the digest of what it believes is asked in this step, model included. So two
  peers that differ in a single bit find out with the next message.
- The sender signs header and content. A message for one peer names it, and nobody else takes it.
- Only `Dealing` holds a secret, and it is sealed to its recipient. Of the share, the commitment is
  signed.

    a step     Dealing, Receipt, Proposal, Vote, SubSecret
    catching up     Position, Fetch, Answers
    cheats     Misdealt, Equivocation
    removals     RemovalProposal, Approval, Refusal
    federation files that differ     Terms
"""

import hashlib
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from pdlrecover.engines.peers.protocol import forms as f

MAX_ENTRIES, MAX_FACTS, MAX_EVIDENCE = 4096, 1 << 22, 1 << 20
EVERYBODY = 0xFFFF
"""The recipient of a message that is for all."""
NOTHING = bytes(32)
"""The digest of nothing: no choice, no run."""
Commitments = Annotated[bytes, f.Bytes(32 * f.MAX_PEERS, unit=32)]
"""One commitment of 32 bytes to each peer's share, in the order of the peers."""
Evidence = Annotated[bytes, f.Bytes(MAX_EVIDENCE)]


@dataclass(frozen=True, kw_only=True)
class Header:
    """Whose word this is, and about what."""

    federation: bytes
    run: bytes
    step: int
    round: int
    """The training round that the step is about, for people who read logs."""
    sender: int
    recipient: int
    log: bytes
    """The digest of everything opened in this run before the step."""
    asked: bytes
    """The digest of what is to be opened in this step: the request, with its model."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Dealing:
    """One dealer's shares: a public part, the same for everybody, and a share for one peer."""

    commitments: Commitments
    proof: f.SharedValues
    """Random combinations of the blocks, as values at the first peers' points: see `dealing`."""
    statement: f.Signature
    """The dealer's signature on the digest of this public part, which receipts pass on."""
    sealed: Annotated[bytes | memoryview, f.Bytes(8 * f.MAX_ELEMENTS, stays=True)]
    """The share, readable by the recipient only: the last field, which a signature leaves out."""


@dataclass(frozen=True, kw_only=True)
class Held:
    """A dealing that a peer holds: whose, and which public part."""

    dealer: f.Peer
    digest: f.Digest


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """Which dealings the sender holds, with their dealers' statements; and the view it is in."""

    view: f.View
    held: tuple[Held, ...]
    statements: tuple[f.Signature, ...]


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """The leader of a view proposes whose dealings are added up."""

    view: f.View
    since: f.View
    """The earlier view in which this set got a quorum of first votes; −1 if there is none."""
    dealers: tuple[Held, ...]

    @property
    def choice(self) -> bytes:
        """The digest of the set, which votes name."""
        return choice_of(self.dealers)


@dataclass(frozen=True, kw_only=True)
class Vote:
    """A first vote ("I hold all of it"), or a final one ("a quorum holds all of it")."""

    view: f.View
    final: bool
    choice: f.Digest


@dataclass(frozen=True, kw_only=True, eq=False)
class SubSecret:
    """The sender's share of what is opened, for the set of dealers that was agreed."""

    choice: f.Digest
    values: f.SharedValues


@dataclass(frozen=True, kw_only=True)
class Position:
    """Says where the sender is: its header's step and log. Also the application's ping."""

    reply: bool
    """Whether the others are asked to say where they are."""


@dataclass(frozen=True, kw_only=True)
class Fetch:
    """Asks for the public answers of steps from `first` on."""

    first: f.StepNumber


@dataclass(frozen=True, kw_only=True, eq=False)
class LogEntry:
    """What a step left in the public log: whose dealings were added up, and what was opened."""

    dealers: tuple[Held, ...]
    values: f.OpenedValues
    """The opened signed integers."""

    def after(self, log: bytes) -> bytes:
        """Return the digest of the log with this entry appended."""
        hashed = hashlib.sha256(b"pdlrecover log" + log + choice_of(self.dealers))
        hashed.update(np.ascontiguousarray(self.values, dtype="<i8").data)
        return hashed.digest()


@dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """Entries of the log, from step `first` on."""

    first: f.StepNumber
    entries: Annotated[tuple[LogEntry, ...], MAX_ENTRIES]


@dataclass(frozen=True, kw_only=True, eq=False)
class Misdealt:
    """Proof that a dealer's share is not on the polynomial that it published."""

    dealer: f.Peer
    commitments: Commitments
    proof: f.SharedValues
    statement: f.Signature
    private: Annotated[bytes, f.Bytes(8 * f.MAX_ELEMENTS)]
    """The share as it was unsealed; its commitment is among those that the dealer signed."""


@dataclass(frozen=True, kw_only=True)
class Equivocation:
    """Proof that one peer signed two different things for one purpose: both, whole."""

    accused: f.Peer
    first: Evidence
    second: Evidence


@dataclass(frozen=True, kw_only=True)
class RemovalProposal:
    """One peer proposes to recover the model without some others."""

    removed: tuple[f.Peer, ...]
    reason: str
    """`left` or `malicious`."""
    method: str
    accept_differencing: bool
    after: f.Digest
    """The digest of the finished log that is to be recovered."""
    settings: str = ""
    """How the method is to run: the federation file's, when the removal was proposed."""

    @property
    def digest(self) -> bytes:
        """The name of the removal, and of the run that carries it out."""
        hashed = hashlib.sha256(b"pdlrecover removal" + self.after)
        hashed.update(np.array(sorted(self.removed), dtype="<u2").tobytes())
        for text in (self.reason, self.method, str(self.accept_differencing), self.settings):
            hashed.update(len(text.encode()).to_bytes(4, "little") + text.encode())
        return hashed.digest()


@dataclass(frozen=True, kw_only=True)
class Approval:
    """The sender wants this removal, too."""

    removal: f.Digest


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """The sender does not take part in this removal, and says why."""

    removal: f.Digest
    why: str


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What the sender's federation file says, for a peer whose own has another digest."""

    facts: Annotated[bytes, f.Bytes(MAX_FACTS)]
    """Every value by its path, as JSON."""


_OfStep = Dealing | Receipt | Proposal | Vote | SubSecret
_OfCatchingUp = Position | Fetch | Answers
_OfRemoval = RemovalProposal | Approval | Refusal
Body = _OfStep | _OfCatchingUp | Misdealt | Equivocation | _OfRemoval | Terms


@dataclass(frozen=True, kw_only=True, eq=False)
class Envelope:
    """A message as it came: header, content, signature, and the bytes that were signed."""

    header: Header
    body: Body
    signature: bytes
    signed: bytes
    data: bytes
    """The whole message, to pass on as evidence."""


def choice_of(dealers: tuple[Held, ...]) -> bytes:
    """Return the digest of a set of dealings; of the empty one, `NOTHING`."""
    if not dealers:
        return NOTHING
    hashed = hashlib.sha256(b"pdlrecover dealers")
    for held in dealers:
        hashed.update(held.dealer.to_bytes(2, "little") + held.digest)
    return hashed.digest()
