"""Sealed records: what each is called, and what it is bound to.

Rules:

- Every record is AES-256-GCM under a key derived (HKDF-SHA-256) from the peer's storage key and a
  random salt of this history: nonce (12 bytes), ciphertext, tag (16 bytes). Nonces are random.
- The associated data are the history's context (format, federation, run, peer) and the record's
  whole key (round, kind, dealer or name). A record that is moved, or comes from another run, peer
  or federation, does not open.
- Keys, in the order of the file: the header, its check and the state; then checkpoints by name;
  then the records of every round together, so that a round is written in one place.
"""

import hashlib
import json
import mmap
import os
import struct
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from pdlrecover.errors import HistoryError

FORMAT = 3
KEY_BYTES = 32
NONCE, TAG = 12, 16
OVERHEAD = NONCE + TAG
NAME_LENGTH = 64

HEADER, CHECK, STATE, HEAD = b"\x00header", b"\x01check", b"\x01state", b"\x01head"
_CHECKPOINT, _ROUND = b"\x02", b"\x03"
_PLACE, _DEALER = struct.Struct(">QB"), struct.Struct(">I")


class Kind(IntEnum):
    """What a record of a round is."""

    MANIFEST = 0
    """What the round has, and the digest of the round before."""
    MODEL = 1
    """w̄_t, which the round started from."""
    TOTAL = 2
    """The opened sum."""
    EVIDENCE = 3
    """Receipts and the like, by name; opaque."""
    SHARE = 4
    """What one dealer dealt to this peer."""


@dataclass(frozen=True, kw_only=True)
class VaultLayout:
    """Whose history it is, and how long its vectors are."""

    federation: bytes
    """The digest of what the federation agreed on, 32 bytes."""
    run: str
    """Which run of it."""
    peer: int
    """Whose history: this peer's number."""
    parameters: int
    """d: numbers in a model."""
    blocks: int
    """B: field elements in a share."""

    def __post_init__(self) -> None:
        if len(self.federation) != 32:
            raise HistoryError(f"a federation's digest has 32 bytes, got {len(self.federation)}")
        if min(self.parameters, self.blocks) < 1 or self.peer < 0:
            raise HistoryError(
                "a history needs a peer's number and lengths of at least 1, got "
                f"peer={self.peer}, parameters={self.parameters}, blocks={self.blocks}"
            )

    @property
    def public(self) -> bytes:
        """What all peers of this run have in common, as a digest."""
        facts = [FORMAT, self.federation.hex(), self.run]
        return hashlib.sha256(b"pdlrecover history: " + json.dumps(facts).encode()).digest()

    @property
    def context(self) -> bytes:
        """The digest that every record of this peer is bound to."""
        return hashlib.sha256(self.public + b" of peer %d" % self.peer).digest()

    def record(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {**asdict(self), "federation": self.federation.hex()}

    def round_bytes(self, dealers: int, *, evidence: Sequence[int] = ()) -> int:
        """Return what a round takes on disk at most: model, opened sum, the dealers' shares.

        `evidence` is the length of each of its pieces.
        """
        model, share = self.parameters * 8, self.blocks * 8
        names = 256 * (dealers + len(evidence) + 4)
        lengths = [model, model + 8, names, *evidence, *[share] * dealers]
        return sum(_pages(length + OVERHEAD) for length in lengths)


def round_key(round: int, kind: Kind, part: bytes = b"") -> bytes:
    """Return the key of a round's record."""
    return _ROUND + _PLACE.pack(round, kind) + part


def round_prefix(round: int) -> bytes:
    """Return how the keys of a round's records begin."""
    return round_key(round, Kind(0))[:-1]


def share_key(round: int, dealer: int) -> bytes:
    """Return the key of a share."""
    return round_key(round, Kind.SHARE, _DEALER.pack(dealer))


def evidence_key(round: int, name: str) -> bytes:
    """Return the key of a piece of evidence."""
    return round_key(round, Kind.EVIDENCE, _name(name))


def checkpoint_key(name: str) -> bytes:
    """Return the key of a checkpoint."""
    return _CHECKPOINT + _name(name)


def described(key: bytes) -> str:
    """Say in words what a record's key stands for."""
    if key.startswith(_CHECKPOINT):
        return f"checkpoint {key[1:].decode(errors='replace')}"
    if not key.startswith(_ROUND) or len(key) < 1 + _PLACE.size:
        return {HEADER: "the header", CHECK: "the key check", STATE: "the state"}.get(
            key, f"the unknown record {key.hex()}"
        )
    round_, kind = _PLACE.unpack_from(key, 1)
    part = key[1 + _PLACE.size :]
    if kind == Kind.SHARE and len(part) == _DEALER.size:
        return f"round {round_}, share of dealer {_DEALER.unpack(part)[0]}"
    if kind == Kind.EVIDENCE:
        return f"round {round_}, evidence {part.decode(errors='replace')}"
    names = {Kind.MANIFEST: "manifest", Kind.MODEL: "model", Kind.TOTAL: "opened sum"}
    return f"round {round_}, {names.get(kind, f'unknown record of kind {kind}')}"


def placed(key: bytes) -> tuple[int, int] | None:
    """Return the round and the kind of a round's record, or None for another one."""
    if not key.startswith(_ROUND) or len(key) < 1 + _PLACE.size:
        return None
    round_, kind = _PLACE.unpack_from(key, 1)
    return round_, kind


class Sealer:
    """Seals and opens the records of one history."""

    def __init__(self, key: bytes, salt: bytes, layout: VaultLayout) -> None:
        if len(key) != KEY_BYTES:
            raise HistoryError(f"a history's key has {KEY_BYTES} bytes, got {len(key)}")
        derived = HKDF(SHA256(), KEY_BYTES, salt, b"pdlrecover history records").derive(key)
        self._cipher = AESGCM(derived)
        self._context = layout.context

    def __repr__(self) -> str:
        return "<Sealer>"

    def seal(self, key: bytes, plaintext: bytes | memoryview) -> bytearray:
        """Return the sealed record."""
        record = bytearray(len(plaintext) + OVERHEAD)
        self.seal_into(key, plaintext, memoryview(record))
        return record

    def seal_into(self, key: bytes, plaintext: bytes | memoryview, record: memoryview) -> None:
        """Write the sealed record to room of its length."""
        record[:NONCE] = nonce = os.urandom(NONCE)
        self._cipher.encrypt_into(nonce, plaintext, self._context + key, record[NONCE:])

    def open(self, key: bytes, record: bytes | memoryview) -> bytes:
        """Return what was sealed; raise `InvalidTag` if the record is not the one of this key."""
        if len(record) < OVERHEAD:
            raise InvalidTag
        return self._cipher.decrypt(record[:NONCE], record[NONCE:], self._context + key)

    def open_into(self, key: bytes, record: memoryview, out: NDArray[np.int64]) -> None:
        """Write what was sealed to an array; raise `InvalidTag` if it is not this key's."""
        if len(record) != OVERHEAD + out.nbytes:
            raise InvalidTag
        room = out.view(np.uint8).data
        self._cipher.decrypt_into(record[:NONCE], record[NONCE:], self._context + key, room)
        if sys.byteorder == "big":
            out.byteswap(inplace=True)


def fingerprint(record: bytes | bytearray | memoryview) -> str:
    """Return a record's nonce and tag: who has not the key cannot make another that fits."""
    return (bytes(record[:NONCE]) + bytes(record[-TAG:])).hex()


def _name(name: str) -> bytes:
    encoded = name.encode()
    if not 0 < len(encoded) <= NAME_LENGTH:
        raise HistoryError(f"a name has 1 to {NAME_LENGTH} bytes, got {name!r}")
    return encoded


def _pages(length: int) -> int:
    return -(-(length + 64) // mmap.PAGESIZE) * mmap.PAGESIZE
