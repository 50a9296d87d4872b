"""A peer's history as sealed, chained bytes: rounds that are appended, and checkpoints.

Rules:

- Every change is one write of the store: records, what is dropped, and the new state together. Then
  the head file is written. A process killed between the two finds the database ahead, and goes on.
- A record is read only if it is the one that the round's manifest, or the state, names.
- One lock: any thread may call.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pdlrecover.errors import HistoryError
from pdlrecover.history.sealed import records
from pdlrecover.history.sealed.chain import ChainState, Head, Manifest, Staged
from pdlrecover.history.sealed.database import Database, Reading, Writing
from pdlrecover.history.sealed.records import Kind, Sealer, VaultLayout
from pdlrecover.history.sealed.unlock import manifest_of, opened, remember, trusted_state, unlock

Content = bytes | memoryview


class Journal:
    """The sealed records of one history."""

    def __init__(
        self,
        folder: Path,
        key: bytes,
        layout: VaultLayout,
        *,
        limit: int | None = None,
        read_only: bool = False,
        accept_rollback: bool = False,
    ) -> None:
        self.layout = layout
        self._lock = threading.RLock()
        self._store = Database(folder, read_only=read_only, limit=limit)
        try:
            self.sealer = unlock(self._store, key, layout)
            self.state = trusted_state(
                self._store, self.sealer, layout, accept_rollback=accept_rollback
            )
        except BaseException:
            self._store.close()
            raise

    def close(self) -> None:
        """Let go of the files."""
        with self._lock:
            self._store.close()

    @property
    def size(self) -> int:
        """How many bytes the file has on disk."""
        return self._store.size

    def reserve(self, size: int) -> None:
        """Make room for a write of `size` bytes, or raise."""
        with self._lock:
            self._store.reserve(size)

    @contextmanager
    def reading(self, t: int) -> Iterator[tuple[Reading, Manifest]]:
        """Look at the records of a round, and at what it should have."""
        rounds = self.state.head.rounds
        if not 0 <= t < rounds + self.state.finished:
            raise HistoryError(f"{rounds} rounds are stored, and round {t} is not among them")
        with self._lock, self._store.reading() as transaction:
            yield transaction, manifest_of(self.sealer, transaction, t)

    def read(self, t: int, key: bytes) -> bytes:
        """Return one record of a round."""
        with self.reading(t) as (transaction, manifest):
            if key.hex() not in manifest.records:
                raise HistoryError(f"{records.described(key)}: none was stored")
            return opened(self.sealer, transaction, key, manifest.records[key.hex()])

    def append(
        self,
        contents: Mapping[bytes, Content],
        dealers: tuple[int, ...],
        *,
        size: int,
        keep: int | None,
        adopted: Iterable[bytes] = (),
        final: bool = False,
    ) -> Head:
        """Seal, chain and write the records of the next round, and drop shares that are old.

        Those of round 0 are not dropped: every recovery from the first model needs them. `adopted`
        are the keys of shares that were staged and belong to the round; other staged ones go.
        """
        with self._lock:
            if self.state.finished:
                raise HistoryError("this history is finished; start another run")
            self._store.reserve(size)
            before, t = self.state.head, self.state.head.rounds
            rounds, kept_from = t + (not final), self.state.shares_from
            if keep is not None:
                kept_from = max(kept_from, rounds - keep)
            old = self._shares_of(range(max(1, self.state.shares_from), min(kept_from, t)))

            staged = self.state.staged
            taken = {key.hex(): staged[key.hex()].fingerprint for key in adopted}
            left = [bytes.fromhex(key) for key in staged if key not in taken]

            def change(write: "_Write") -> ChainState:
                write.drop([*old, *left])
                new = {key.hex(): write.put(key, content) for key, content in contents.items()}
                manifest = Manifest(
                    round=t,
                    previous=before.link,
                    dealers=dealers,
                    records={**new, **taken},
                    final=final,
                )
                write.put(records.round_key(t, Kind.MANIFEST), manifest.encoded())
                return replace(
                    self.state, head=manifest.head, finished=final, shares_from=kept_from, staged={}
                )

            self._write(change)
            return self.state.head

    def put_checkpoints(
        self,
        contents: Mapping[str, bytes],
        staged: Mapping[bytes, tuple[str, Content]] | None = None,
        *,
        head: bool = True,
    ) -> None:
        """Store bytes under names, over what was there; see `Vault.put_checkpoints` for `head`.

        `staged` are shares of the next round by their keys, each with its name.
        """
        shares = staged or {}

        def change(write: "_Write") -> ChainState:
            new = {name: write.put(records.checkpoint_key(name), c) for name, c in contents.items()}
            ready = {
                key.hex(): Staged(fingerprint=write.put(key, content), name=name)
                for key, (name, content) in shares.items()
            }
            return replace(
                self.state,
                checkpoints={**self.state.checkpoints, **new},
                staged={**self.state.staged, **ready},
            )

        with self._lock:
            if self.state.finished and shares:
                raise HistoryError("this history is finished; start another run")
            sizes = [*map(len, contents.values()), *(len(c) for _, c in shares.values())]
            self._store.reserve(sum(sizes))
            self._write(change, head=head)

    def get_staged(self, key: bytes, name: str) -> bytes | None:
        """Return a share of the next round that was staged under this name; None if damaged."""
        with self._lock, self._store.reading() as transaction:
            staged = self.state.staged.get(key.hex())
            if staged is None or staged.name != name:
                return None
            try:
                return opened(self.sealer, transaction, key, staged.fingerprint)
            except HistoryError:
                return None

    def get_checkpoint(self, name: str) -> bytes | None:
        """Return what was stored under a name, or None."""
        with self._lock, self._store.reading() as transaction:
            expected = self.state.checkpoints.get(name)
            if expected is None:
                return None
            return opened(self.sealer, transaction, records.checkpoint_key(name), expected)

    def _write(self, change: Callable[["_Write"], ChainState], *, head: bool = True) -> None:
        """Make a change and write the state after it, all at once; then remember the head."""
        with self._store.writing() as transaction:
            write = _Write(transaction, self.sealer)
            state = replace(change(write), sequence=self.state.sequence + 1)
            write.put(records.STATE, state.encoded())
        self.state = state
        if head:
            remember(self._store, self.sealer, state)

    def _shares_of(self, rounds: range) -> list[bytes]:
        keys = []
        for t in rounds:
            with self.reading(t) as (_, manifest):
                stored = map(bytes.fromhex, manifest.records)
                keys += [key for key in stored if records.placed(key) == (t, Kind.SHARE)]
        return keys


class _Write:
    """A write under way. Records are sealed one by one in the same room."""

    def __init__(self, transaction: Writing, sealer: Sealer) -> None:
        self._transaction, self._sealer = transaction, sealer
        self._room = memoryview(bytearray())

    def put(self, key: bytes, content: Content) -> str:
        """Seal and put a record; return its nonce and tag."""
        size = len(content) + records.OVERHEAD
        if len(self._room) < size:
            self._room = memoryview(bytearray(size))
        record = self._room[:size]
        self._sealer.seal_into(key, content, record)
        self._transaction.put(key, record)
        return records.fingerprint(record)

    def drop(self, keys: Iterable[bytes]) -> None:
        """Delete records."""
        for key in keys:
            self._transaction.delete(key)
