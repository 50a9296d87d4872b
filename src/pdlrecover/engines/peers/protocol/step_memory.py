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
from dataclasses import dataclass
from typing import Any

import numpy as np

from pdlrecover.engines.peers.protocol import forms as f
from pdlrecover.engines.peers.protocol.ballot import BallotRecord
from pdlrecover.engines.peers.protocol.codec import HELD, PROPOSAL, VOTE
from pdlrecover.engines.peers.protocol.messages import Held, Proposal, Vote
from pdlrecover.engines.peers.protocol.stored import StoredForm
from pdlrecover.field import Elements

SEED_BYTES = 32
MAX_VOTES = 1 << 20
PROMISE_NAME = "step"
"""Under which name a promise is kept."""


def row_name(dealer: int) -> str:
    """Return under which name what is kept of a dealer's row is found."""
    return f"row-{dealer}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Spoken:
    """What a peer has said in a step, and cannot find out again from its shares."""

    ballot: BallotRecord
    sub_secret: Elements | None
    """Its sub-secret of masked dot products, whose masks are stored nowhere."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Promise:
    """What a peer stands by in a step, whatever happens to it."""

    step: int
    seed: bytes
    dealt: bytes
    """The digest of what this peer has dealt in the step; empty if it has not."""
    now: Spoken
    before: Spoken | None
    """The same of the step before."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Row:
    """One dealing, as this peer holds it."""

    held: Held
    statement: bytes
    """The dealer's signature on the dealing."""
    values: Elements


@dataclass(frozen=True, kw_only=True, eq=False)
class KeptRow:
    """A row as it is kept on disk: of which step, and without its shares if those are elsewhere."""

    step: int
    held: Held
    statement: bytes
    values: Elements | None

    @classmethod
    def of(cls, row: Row, step: int, *, whole: bool) -> "KeptRow":
        """Return what is kept of a row."""
        values = row.values if whole else None
        return cls(step=step, held=row.held, statement=row.statement, values=values)

    def restored(self, staged: Callable[[Held], Elements | None]) -> Row | None:
        """Return the row, its shares from `staged` if they are not here; None if they are lost."""
        values = staged(self.held) if self.values is None else self.values
        if values is None:
            return None
        return Row(held=self.held, statement=self.statement, values=values)


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


def _row_version_0(data: bytes) -> KeptRow:
    """Read step, dealer, digest and statement, and the shares after a flag that they follow."""
    note = struct.Struct("<QH32s64s?")
    step, dealer, digest, statement, whole = note.unpack_from(data)
    values = _numbers(data[note.size :]) if whole else None
    held = Held(dealer=dealer, digest=digest)
    return KeptRow(step=step, held=held, statement=statement, values=values)


def _numbers(data: bytes) -> Elements:
    return np.frombuffer(data, dtype="<i8").astype(np.int64)


_MAYBE_DIGEST = f.Bytes(32, unit=32)
_BALLOT = f.Record(
    BallotRecord,
    {
        "view": f.I32,
        "locked_view": f.I32,
        "locked": _MAYBE_DIGEST,
        "cast": f.Many(VOTE, MAX_VOTES),
        "valid": f.Maybe(PROPOSAL),
        "proposed": f.Maybe(PROPOSAL),
        "voted": f.Many(PROPOSAL, MAX_VOTES),
    },
)
_SPOKEN = f.Record(Spoken, {"ballot": _BALLOT, "sub_secret": f.Maybe(f.ELEMENTS)})
PROMISE: StoredForm[Promise] = StoredForm(
    kind=1,
    form=f.Record(
        Promise,
        {
            "step": f.STEP,
            "seed": f.Fixed(SEED_BYTES),
            "dealt": _MAYBE_DIGEST,
            "now": _SPOKEN,
            "before": f.Maybe(_SPOKEN),
        },
    ),
    read_version_0=_promise_version_0,
)
KEPT_ROW: StoredForm[KeptRow] = StoredForm(
    kind=2,
    form=f.Record(
        KeptRow,
        {"step": f.STEP, "held": HELD, "statement": f.SIGNED, "values": f.Maybe(f.ELEMENTS)},
    ),
    read_version_0=_row_version_0,
)
