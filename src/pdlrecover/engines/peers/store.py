"""Two plain stores: in memory, and in a folder of files that are not sealed. For trials.

The folder has, for every run, `<step>.entry` and `<step>.shares`, and `<name>.memory`. Each file is
written beside and renamed, an entry after its shares, so that a crash leaves whole steps only.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pdlrecover.engines.peers.codec import decode_entry, encode_entry
from pdlrecover.engines.peers.messages import NOTHING, Entry
from pdlrecover.errors import CodecError, HistoryError
from pdlrecover.field import F61, Elements


class MemoryStore:
    """Everything in memory: it survives the peer that uses it, not the process."""

    def __init__(self) -> None:
        self._logs: dict[bytes, list[Entry]] = {}
        self._shares: dict[tuple[bytes, int], dict[int, Elements]] = {}
        self._memory: dict[str, bytes] = {}

    def log(self, run: bytes) -> Sequence[Entry]:
        """Return the entries of a run's log."""
        return self._logs.setdefault(run, [])

    def commit(self, run: bytes, entry: Entry, shares: dict[int, Elements]) -> None:
        """Append an entry and this peer's shares of it."""
        log = self._logs.setdefault(run, [])
        self._shares[run, len(log)] = dict(shares)
        log.append(entry)

    def shares(self, run: bytes, step: int, dealers: Sequence[int]) -> Elements | None:
        """Return the sum of this peer's shares of these dealers; None if it lacks one."""
        return _total(self._shares.get((run, step), {}), dealers)

    def remember(self, name: str, value: bytes) -> None:
        """Keep a small value under a name."""
        self._memory[name] = value

    def recall(self, name: str) -> bytes | None:
        """Return what is remembered under a name."""
        return self._memory.get(name)


class PlainFolder:
    """Files in a folder, readable by whoever reads the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._logs: dict[bytes, list[Entry]] = {}
        self._digests: dict[bytes, bytes] = {}

    def log(self, run: bytes) -> Sequence[Entry]:
        """Return the entries of a run's log; they are read and checked once."""
        if run not in self._logs:
            self._logs[run] = self._read(run)
        return self._logs[run]

    def commit(self, run: bytes, entry: Entry, shares: dict[int, Elements]) -> None:
        """Write the shares, then the entry that makes them count."""
        log = self.log(run)
        step, place = len(log), self._place(run)
        content = b""
        if shares:
            dealers = sorted(shares)
            rows = [np.array([len(dealers), *dealers]), *(shares[d] for d in dealers)]
            content = np.concatenate(rows).astype("<i8").tobytes()
            self._write(place / f"{step}.shares", content)
        before = self._digests[run]
        digests = entry.after(before) + hashlib.sha256(content).digest()
        self._write(place / f"{step}.entry", digests + encode_entry(entry))
        self._logs[run].append(entry)
        self._digests[run] = entry.after(before)

    def shares(self, run: bytes, step: int, dealers: Sequence[int]) -> Elements | None:
        """Return the sum of this peer's shares of these dealers; None if it lacks one.

        Damaged shares count as missing: this peer then does not answer, instead of answering wrong.
        """
        place = self._place(run)
        path, entry = place / f"{step}.shares", place / f"{step}.entry"
        if not path.exists() or not entry.exists():
            return None
        data = path.read_bytes()
        if hashlib.sha256(data).digest() != entry.read_bytes()[32:64]:
            return None
        content = np.frombuffer(data, dtype="<i8").astype(np.int64)
        count = int(content[0])
        rows = content[1 + count :].reshape(count, -1)
        held = dict(zip(content[1 : 1 + count].tolist(), rows, strict=True))
        return _total(held, dealers)

    def remember(self, name: str, value: bytes) -> None:
        """Keep a small value under a name."""
        self._write(self._folder / f"{name}.memory", value)

    def recall(self, name: str) -> bytes | None:
        """Return what is remembered under a name."""
        path = self._folder / f"{name}.memory"
        return path.read_bytes() if path.exists() else None

    def _place(self, run: bytes) -> Path:
        place = self._folder / run.hex()[:32]
        place.mkdir(exist_ok=True)
        return place

    def _read(self, run: bytes) -> list[Entry]:
        entries: list[Entry] = []
        digest, place = NOTHING, self._place(run)
        while (path := place / f"{len(entries)}.entry").exists():
            content = path.read_bytes()
            try:
                entry = decode_entry(content[64:])
            except CodecError as error:
                raise HistoryError(f"{path} is damaged: {error}") from error
            digest = entry.after(digest)
            if digest != content[:32]:
                raise HistoryError(
                    f"{path} does not follow from the steps before it: the store is damaged; "
                    "delete it, and this peer will fetch what is public from the others"
                )
            entries.append(entry)
        self._digests[run] = digest
        return entries

    def _write(self, path: Path, content: bytes) -> None:
        part = path.with_suffix(path.suffix + ".part")
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)


def _total(held: dict[int, Elements], dealers: Sequence[int]) -> Elements | None:
    if not dealers or any(dealer not in held for dealer in dealers):
        return None
    return F61.combine([1] * len(dealers), [held[dealer] for dealer in dealers])
