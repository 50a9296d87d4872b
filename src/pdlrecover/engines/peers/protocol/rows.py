"""A dealing that a peer holds, as it is kept on disk until its step is over.

A row that will be stored with the step's entry is kept where it will be stored (see `contracts`),
and only its note is kept with the peer's promises; a row that will not, whole.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pdlrecover.engines.peers.protocol.messages import Held
from pdlrecover.field import Elements

_NOTE = struct.Struct("<H32s64s?")


def row_part(dealer: int) -> str:
    """Return under which name what is kept of a dealer's row is remembered."""
    return f"row-{dealer}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Row:
    """One dealing, as this peer holds it."""

    held: Held
    statement: bytes
    """The dealer's signature on the dealing."""
    values: Elements

    def saved(self, *, whole: bool) -> bytes:
        """Return the note, and the shares after it if they are not kept elsewhere."""
        note = _NOTE.pack(self.held.dealer, self.held.digest, self.statement, whole)
        return note + self.values.astype("<i8").tobytes() if whole else note


def restored(saved: bytes, kept: Callable[[Held], Elements | None]) -> Row | None:
    """Return what was saved, or None if it is lost; shares that are not there come from `kept`."""
    dealer, digest, statement, whole = _NOTE.unpack_from(saved)
    held = Held(dealer=dealer, digest=digest)
    values = _numbers(saved[_NOTE.size :]) if whole else kept(held)
    return None if values is None else Row(held=held, statement=statement, values=values)


def _numbers(saved: bytes) -> Elements:
    return np.frombuffer(saved, dtype="<i8").astype(np.int64)
