"""Records on disk: encoded as on the wire, with a version number.

    "PDLS" · version · kind · content

Rules:

- As on the wire, a record has exactly one form, and every length is checked (see `forms`).
- Version 0 had no such beginning: JSON with hexadecimal digits, and packed numbers. It is read, by
  a function of its own for each kind, and never written.
- What cannot be read raises `HistoryError`, which says what to do. It is never passed over: a peer
  that forgot what it has signed could sign something else.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pdlrecover.engines.peers.protocol.forms import Form, Piece, Reader
from pdlrecover.errors import CodecError, HistoryError

MAGIC, VERSION = b"PDLS", 1
_PREFIX = struct.Struct("<4sBB")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class StoredForm(Generic[T]):
    """How one kind of record is kept on disk."""

    kind: int
    form: Form
    read_version_0: Callable[[bytes], T]
    """Reads what was stored before records had a version."""

    def encode(self, record: T) -> bytes:
        """Return a record as bytes."""
        pieces: list[Piece] = [_PREFIX.pack(MAGIC, VERSION, self.kind)]
        self.form.write(record, pieces)
        return b"".join(pieces)

    def decode(self, data: bytes) -> T:
        """Return the record that was stored as these bytes."""
        try:
            if not data.startswith(MAGIC):
                data = self.encode(self.read_version_0(data))  # to check it as strictly
            return self._read(data)
        except Exception as error:  # whatever is wrong with it, the peer must not go on
            raise HistoryError(
                f"what this peer remembers of its votes and dealings cannot be read: {error}; go "
                "on with the version of the software that wrote it, or put back the latest backup "
                "of the folder"
            ) from error

    def _read(self, data: bytes) -> T:
        reader = Reader(data)
        _, version, kind = _PREFIX.unpack(reader.take(_PREFIX.size))
        if (version, kind) != (VERSION, self.kind):
            raise CodecError(
                f"it is of version {version} and kind {kind}, and version {VERSION} and kind "
                f"{self.kind} are expected"
            )
        record: T = self.form.read(reader)
        if reader.left:
            raise CodecError(f"{reader.left} bytes are left over at the end of it")
        return record
