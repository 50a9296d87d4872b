"""What a peer keeps on disk of the step under way, until the step is over.

- Its *promise*: the seed of its dealing and its digest, its votes and its lock, and of the step
  before what `previous_step` needs.
- The *rows* that it holds: one of each dealing. A row that will be stored with the step's entry is
  kept where it will be stored (see `contracts`), and only a note of it here; others are kept whole.

Both are written in the wire's own forms, with a version: see `stored`.
"""

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from pdlrecover.engines.peers.protocol import forms as f
from pdlrecover.engines.peers.protocol.ballot import BallotRecord
from pdlrecover.engines.peers.protocol.messages import Held, Proposal, Vote
from pdlrecover.engines.peers.protocol.stored import StoredForm
from pdlrecover.field import Elements

SEED_BYTES = 32
PROMISE_NAME = "step"
"""Under which name a promise is kept."""


def row_name(dealer: int) -> str:
    """Return under which name what is kept of a dealer's row is found."""
    return f"row-{dealer}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Spoken:
    """What a peer has said in a step, and cannot find out again from its shares."""

    ballot: BallotRecord
    sub_secret: f.SharedValues | None
    """Its sub-secret of dealings that are stored nowhere: masks, and those of evaluations."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Promise:
    """What a peer stands by in a step, whatever happens to it."""

    step: f.StepNumber
    seed: Annotated[bytes, f.Fixed(SEED_BYTES)]
    dealt: f.MaybeDigest
    """The digest of what this peer has dealt in the step; empty if it has not."""
    now: Spoken
    before: Spoken | None
    """The same of the step before."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Row:
    """One dealing of a step, as this peer holds it."""

    step: f.StepNumber
    held: Held
    statement: f.Signature
    """The dealer's signature on the dealing."""
    values: f.SharedValues | None
    """None if they are kept elsewhere, or lost."""

    def restored(self, staged: Callable[[Held], Elements | None]) -> "Row":
        """Return the row with its shares, from `staged` if they are not here."""
        return self if self.values is not None else replace(self, values=staged(self.held))


def _promise_version_0(data: bytes) -> Promise:
    """Read step, seed and JSON, with a ballot as JSON in a text of it."""
    step, seed = int.from_bytes(data[:8], "little"), data[8 : 8 + SEED_BYTES]
    saved = json.loads(data[8 + SEED_BYTES :])
    return Promise(
        step=step,
        seed=seed,
        dealt=bytes.fromhex(saved["dealt"]),
        now=_spoken_version_0(saved["now"]),
        before=None if saved["before"] is None else _spoken_version_0(saved["before"]),
    )


def _spoken_version_0(saved: dict[str, Any]) -> Spoken:
    def proposal(written: list[Any] | None) -> Proposal | None:
        return None if written is None else certain(written)

    def certain(written: list[Any]) -> Proposal:
        dealers = tuple(Held(dealer=d, digest=bytes.fromhex(digest)) for d, digest in written[2])
        return Proposal(view=written[0], since=written[1], dealers=dealers)

    ballot, values = json.loads(saved["ballot"]), saved["values"]
    cast = (
        Vote(view=view, final=final, choice=bytes.fromhex(choice))
        for view, final, choice in ballot["cast"]
    )
    record = BallotRecord(
        view=ballot["view"],
        locked_view=ballot["lock"][0],
        locked=bytes.fromhex(ballot["lock"][1]),
        cast=tuple(cast),
        valid=proposal(ballot["valid"]),
        proposed=proposal(ballot["proposed"]),
        voted=tuple(map(certain, ballot["voted"])),
    )
    return Spoken(ballot=record, sub_secret=_numbers(bytes.fromhex(values)) if values else None)


def _row_version_0(data: bytes) -> Row:
    """Read step, dealer, digest and statement, and the shares after a flag that they follow."""
    note = struct.Struct("<QH32s64s?")
    step, dealer, digest, statement, whole = note.unpack_from(data)
    if len(data) > note.size and not whole:
        raise ValueError("bytes are left over at the end of it")
    values = _numbers(data[note.size :]) if whole else None
    held = Held(dealer=dealer, digest=digest)
    return Row(step=step, held=held, statement=statement, values=values)


def _numbers(data: bytes) -> Elements:
    return np.frombuffer(data, dtype="<i8").astype(np.int64)


PROMISE = StoredForm(kind=1, form=f.form_of(Promise), read_version_0=_promise_version_0)
KEPT_ROW = StoredForm(kind=2, form=f.form_of(Row), read_version_0=_row_version_0)
