"""Unlocking a history: whose it is, whether the key is right, and whether it was rolled back.

Rules:

- The header is in the clear: format, salt, whose history. The check is the header itself, sealed:
  if it does not open, the key is wrong.
- The database must be what the head file remembers, or go on from there (a process was killed
  between the two writes). Else it was put back to an earlier copy, and is refused.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from cryptography.exceptions import InvalidTag

from pdlrecover.descriptors import patiently, remedy
from pdlrecover.errors import HistoryError
from pdlrecover.files import write_whole
from pdlrecover.history.sealed import records
from pdlrecover.history.sealed.chain import ChainState, Head, Manifest
from pdlrecover.history.sealed.database import HEAD_FILE, Database, Reading, said
from pdlrecover.history.sealed.records import FORMAT, Kind, Sealer, VaultLayout, described

SALT_BYTES = 32


def unlock(store: Database, key: bytes, layout: VaultLayout) -> Sealer:
    """Return what opens the records, having checked the key; start the history if it is empty."""
    with store.reading() as transaction:
        header = bytes(transaction.get(records.HEADER, b""))
        check = bytes(transaction.get(records.CHECK, b""))
    if not store.read_only and is_empty(store):
        if (store.folder / HEAD_FILE).exists():
            raise HistoryError(
                f"the database in {store.folder} is empty and its head file is not: the database "
                "was deleted or replaced; restore it from a backup, or move the folder away"
            )
        return _start(store, key, layout)
    salt = _salt(store, header, layout)
    sealer = Sealer(key, salt, layout)
    try:
        same = sealer.open(records.CHECK, check) == header
    except InvalidTag:
        same = False
    if not same:
        raise HistoryError(
            f"the key does not open the history in {store.folder}: it is another history's key, or "
            "the passphrase is wrong, or the first records are damaged; without the right key the "
            "history cannot be read by anyone"
        )
    return sealer


def is_empty(store: Database) -> bool:
    """Say whether the database has no record: its first write was never done."""
    with store.reading() as transaction:
        return transaction.stat()["entries"] == 0


def layout_of(store: Database) -> VaultLayout:
    """Return whose history it says it is; with the right key, `unlock` then checks its word."""
    with store.reading() as transaction:
        header = bytes(transaction.get(records.HEADER, b""))
    with _headed(store):
        values = json.loads(header)
        federation = bytes.fromhex(values["federation"])
        return msgspec.convert({**values, "federation": federation}, VaultLayout)


def trusted_state(
    store: Database, sealer: Sealer, layout: VaultLayout, *, accept_rollback: bool = False
) -> ChainState:
    """Return where the history stands; raise if it was put back to an earlier copy."""
    try:
        remembered = remembered_state(store, sealer)  # first: the database may only be ahead of it
    except HistoryError:
        if not accept_rollback:
            raise
        remembered = None
    with store.reading() as transaction:
        state = state_of(sealer, transaction)
    wrong = rollback(store, sealer, layout, state, remembered)
    if wrong and not accept_rollback:
        raise HistoryError(
            f"the history in {store.folder} is not to be trusted: {wrong}; restore the latest copy "
            "of the whole folder, or move it away: what is public then comes from the other peers, "
            "and this peer counts as absent in its past rounds"
        )
    if not store.read_only and state != remembered:
        remember(store, sealer, state)
    return state


def rollback(
    store: Database,
    sealer: Sealer,
    layout: VaultLayout,
    state: ChainState,
    remembered: ChainState | None,
) -> str | None:
    """Say what is wrong if the database is not what the head file remembers, or return None."""
    if remembered is None:
        return None if state.sequence == 0 else "its head file is missing"
    if remembered.sequence > state.sequence:
        return (
            f"the database was put back to an earlier copy, with {state.head.rounds} rounds after "
            f"{state.sequence} writes where there were {remembered.head.rounds} after "
            f"{remembered.sequence}"
        )
    if not _goes_on(store, sealer, layout, state, remembered):
        return "the database does not go on from what its head file remembers"
    return None


def remembered_state(store: Database, sealer: Sealer) -> ChainState | None:
    """Return what the head file remembers, or None if there is none."""
    path = store.folder / HEAD_FILE
    if not path.exists():
        return None
    try:
        with said(store.folder):
            return ChainState.decoded(sealer.open(records.HEAD, patiently(path.read_bytes)))
    except InvalidTag as error:
        raise HistoryError(
            f"{path} is damaged or of another history; restore the latest copy of the whole folder"
        ) from error


def remember(store: Database, sealer: Sealer, state: ChainState) -> None:
    """Write the head file; the database has been written before."""
    try:
        content = sealer.seal(records.HEAD, state.encoded())
        write_whole(store.folder / HEAD_FILE, content, durable=True)
    except OSError as error:
        raise HistoryError(
            f"the head file in {store.folder} could not be written ({error.strerror}); the write "
            f"before it is safe, and {state.head.rounds} rounds are stored; "
            f"{remedy(error, 'make room')}, and start again"
        ) from error


def state_of(sealer: Sealer, transaction: Reading) -> ChainState:
    """Return where the database stands."""
    return ChainState.decoded(opened(sealer, transaction, records.STATE))


def manifest_of(sealer: Sealer, transaction: Reading, t: int) -> Manifest:
    """Return what round t has."""
    return Manifest.decoded(opened(sealer, transaction, records.round_key(t, Kind.MANIFEST)))


def opened(sealer: Sealer, transaction: Reading, key: bytes, expected: str | None = None) -> bytes:
    """Return what a record holds; raise if it is missing, damaged, or not the one expected."""
    record = transaction.get(key)
    if record is None:
        raise HistoryError(f"{described(key)}: the record is missing; check the history by verify")
    if expected is not None and records.fingerprint(record) != expected:
        raise HistoryError(f"{described(key)}: this is not the record that was stored there")
    try:
        return sealer.open(key, record)
    except InvalidTag as error:
        raise HistoryError(
            f"{described(key)}: the record is damaged; check the history by verify"
        ) from error


def _start(store: Database, key: bytes, layout: VaultLayout) -> Sealer:
    """Write header, check and first state."""
    salt = os.urandom(SALT_BYTES)
    header = json.dumps({"format": FORMAT, "salt": salt.hex(), **layout.record()}).encode()
    sealer, state = Sealer(key, salt, layout), ChainState(head=Head.first(layout))
    store.reserve(0)
    with store.writing() as transaction:
        transaction.put(records.HEADER, header)
        transaction.put(records.CHECK, sealer.seal(records.CHECK, header))
        transaction.put(records.STATE, sealer.seal(records.STATE, state.encoded()))
    return sealer


def _salt(store: Database, header: bytes, layout: VaultLayout) -> bytes:
    """Return the salt, having checked that the header is of this format and this history."""
    with _headed(store):
        values = json.loads(header)
        found, salt = values["format"], bytes.fromhex(values["salt"])
    if found != FORMAT:
        raise HistoryError(
            f"the history in {store.folder} has format {found}, and this version reads {FORMAT}"
        )
    for name, value in layout.record().items():
        if values.get(name) != value:
            raise HistoryError(
                f"the history in {store.folder} is another one: its {name} is "
                f"{values.get(name)!r}, not {value!r}; give another folder"
            )
    return salt


def _goes_on(
    store: Database, sealer: Sealer, layout: VaultLayout, state: ChainState, remembered: ChainState
) -> bool:
    """Say whether the database is, or was at some time, at the remembered head."""
    if state.sequence == remembered.sequence:
        return state == remembered
    if state.head == remembered.head:
        return True
    last = remembered.head.rounds - (not remembered.finished)
    if last < 0:
        return remembered.head == Head.first(layout)
    with store.reading() as transaction:
        return manifest_of(sealer, transaction, last).head == remembered.head


@contextmanager
def _headed(store: Database) -> Iterator[None]:
    """Refuse a header that cannot be read inside."""
    try:
        yield
    except (ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
        raise HistoryError(
            f"the header of the history in {store.folder} is damaged or missing; restore the "
            "folder from a backup, or move it away and fetch the public rounds from other peers"
        ) from error
