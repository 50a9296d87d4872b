"""Verifies a whole history: what is damaged, missing, moved or rolled back, and what is intact.

Steps:

1. The pages of the file, without handing it to the database, which a damaged structure could crash.
   If they are damaged, nothing else is looked at.
2. The database against the head file: put back to an earlier copy, or not.
3. The chain, from the head backwards: every manifest opens and is the one that the next one names.
4. Every record that a manifest names is there, is the one that was stored, and opens. A record that
   none names is a stranger. The checkpoints and staged shares that the state names are looked at
   in the same way.

A round is *whole* if its manifest and all its records are as they were stored, with its shares; the
shares of old rounds that were dropped on purpose are not missed.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from cryptography.exceptions import InvalidTag

from pdlrecover.errors import HistoryError
from pdlrecover.history.sealed import database, records, unlock
from pdlrecover.history.sealed.chain import ChainState
from pdlrecover.history.sealed.database import Database, Reading
from pdlrecover.history.sealed.records import Kind, Sealer, VaultLayout, described
from pdlrecover.history.sealed.unlock import manifest_of

_UNSHARED = "rounds without all of this peer's shares (it was away, or late): {}"


@dataclass(frozen=True, kw_only=True)
class Damage:
    """One thing that is not as it was stored."""

    where: str
    """Which record, or which part of the history."""
    what: str
    """What is wrong with it."""
    round: int | None = None
    kind: Kind | None = None
    fingerprint: str = ""
    """Nonce and tag of what was found there."""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What a look through a history found."""

    damage: tuple[Damage, ...]
    rounds: int = 0
    """How many rounds the history should have."""
    whole: tuple[int, ...] = ()
    """Rounds whose records are all as they were stored, with the shares there were."""
    unshared: tuple[int, ...] = ()
    """Of those, rounds in which peers dealt, and this one has not all of its shares."""
    models: tuple[int, ...] = ()
    """Rounds whose model is as it was stored."""

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.damage

    def __str__(self) -> str:
        return "\n".join(
            [
                *map(str, self.damage),
                f"{len(self.damage) or 'nothing'} damaged, of {self.rounds} rounds",
                f"rounds that are whole: {_ranges(self.whole)}",
                f"rounds whose model is whole: {_ranges(self.models)}",
                *([_UNSHARED.format(_ranges(self.unshared))] if self.unshared else []),
            ]
        )


def verify(folder: Path, key: bytes, layout: VaultLayout | None = None) -> Verification:
    """Look through the history in a folder, while nobody writes to it; change nothing.

    Without a layout, it is taken for the history that its header says. A wrong key, and a header
    that is damaged or another history's, raise `HistoryError`. A history whose process was killed
    before its first write has nothing in it, and nothing is wrong with it.
    """
    if not (folder / database.DATA).exists():
        raise HistoryError(f"there is no history in {folder}")
    writer = database.only_writer(folder)
    try:
        if database.is_blank(folder):
            return Verification(damage=())
        if found := database.damaged_pages(folder):
            where = "the structure of the database"
            return Verification(damage=tuple(Damage(where=where, what=what) for what in found))
        store = Database(folder, read_only=True)
        if unlock.is_empty(store) and not (folder / database.HEAD_FILE).exists():
            store.close()
            return Verification(damage=())
        return _verified(store, key, layout)
    finally:
        os.close(writer)


def check_key(folder: Path, key: bytes) -> None:
    """Raise unless the key opens the history in a folder, while nobody writes to it.

    Nothing else is looked at than the structure of the file and its header; nothing is changed.
    """
    writer = database.only_writer(folder)
    try:
        if database.is_blank(folder):
            return
        if found := database.damaged_pages(folder):
            raise HistoryError(
                f"the structure of the database in {folder} is damaged ({found[0]}); restore the "
                "whole folder from a backup, or move it away"
            )
        store = Database(folder, read_only=True)
        try:
            if not unlock.is_empty(store):
                unlock.unlock(store, key, unlock.layout_of(store))
        finally:
            store.close()
    finally:
        os.close(writer)


def _verified(store: Database, key: bytes, layout: VaultLayout | None) -> Verification:
    try:
        layout = layout or unlock.layout_of(store)
        sealer = unlock.unlock(store, key, layout)
        state, damage = _standing(store, sealer, layout)
        if state is None:
            return Verification(damage=tuple(damage))
        with store.reading() as transaction:
            look = _Look(sealer, transaction, state)
            damage += look.damage()
            unshared = look.unshared({d.round for d in damage})
    finally:
        store.close()
    rounds = state.head.rounds
    spoilt = {d.round for d in damage}
    lost = {d.round for d in damage if d.kind not in (Kind.SHARE, Kind.EVIDENCE, Kind.TOTAL)}
    return Verification(
        damage=tuple(damage),
        rounds=rounds,
        whole=tuple(t for t in range(rounds) if not _dropped(state, t) and t not in spoilt),
        unshared=tuple(t for t in unshared if not _dropped(state, t)),
        models=tuple(t for t in range(rounds + state.finished) if t not in lost),
    )


class _Look:
    """One look at all records of an open history."""

    def __init__(self, sealer: Sealer, transaction: Reading, state: ChainState) -> None:
        self._sealer, self._transaction, self._state = sealer, transaction, state
        self._last = state.head.rounds + state.finished

    def damage(self) -> list[Damage]:
        broken = dict(self._broken_manifests())
        found = [*self._outside_rounds()]
        for t in range(self._last):
            found += [broken[t]] if t in broken else self._in_round(t)
        strays = {d.fingerprint for d in found if d.fingerprint}
        homes = dict(self._homes(strays, broken)) if strays else {}
        return [
            replace(d, what=f"holds another record, that of {homes[d.fingerprint]}")
            if homes.get(d.fingerprint, d.where) != d.where
            else d
            for d in found
        ]

    def unshared(self, spoilt: set[int | None]) -> list[int]:
        """Return the rounds that have fewer shares than dealers: this peer was away, or late.

        Steps that ask for no update have no model, and store no shares.
        """
        found = []
        for t in set(range(self._state.head.rounds)) - spoilt:
            manifest = manifest_of(self._sealer, self._transaction, t)
            kinds = [records.placed(bytes.fromhex(key)) for key in manifest.records]
            shares = kinds.count((t, Kind.SHARE))
            if (t, Kind.MODEL) in kinds and shares < len(manifest.dealers):
                found.append(t)
        return sorted(found)

    def _broken_manifests(self) -> Iterator[tuple[int, Damage]]:
        """Go back from the head; past a manifest that is lost, the one before is taken as it is."""
        expected: str | None = self._state.head.link
        for t in reversed(range(self._last)):
            key = records.round_key(t, Kind.MANIFEST)
            try:
                manifest = manifest_of(self._sealer, self._transaction, t)
            except HistoryError as error:
                what = str(error).partition(": ")[2]
                if next(self._keys(records.round_prefix(t)), None) is None:
                    what = "the whole round is missing"
                yield t, _damage(key, what)
                expected = None
                continue
            if expected is not None and manifest.link != expected:
                yield t, _damage(key, "the round is not the one that was stored: the chain breaks")
            expected = manifest.previous

    def _in_round(self, t: int) -> Iterator[Damage]:
        known = manifest_of(self._sealer, self._transaction, t).records
        named = {bytes.fromhex(key): expected for key, expected in known.items()}
        dropped = _dropped(self._state, t)
        for key, expected in named.items():
            if not (dropped and records.placed(key) == (t, Kind.SHARE)):
                yield from self._as_stored(key, expected)
        for key in self._keys(records.round_prefix(t)):
            if key not in named and key != records.round_key(t, Kind.MANIFEST):
                yield _damage(key, "nothing was stored there")

    def _outside_rounds(self) -> Iterator[Damage]:
        named = {records.checkpoint_key(n): tag for n, tag in self._state.checkpoints.items()}
        named |= {bytes.fromhex(k): s.fingerprint for k, s in self._state.staged.items()}
        for key, expected in named.items():
            yield from self._as_stored(key, expected)
        for key in self._keys():
            place = records.placed(key)
            outside = place is None or place[0] >= self._last
            if outside and key not in (records.HEADER, records.CHECK, records.STATE, *named):
                yield _damage(key, "nothing was stored there")

    def _as_stored(self, key: bytes, expected: str) -> Iterator[Damage]:
        record = self._transaction.get(key)
        if record is None:
            yield _damage(key, "the record is missing")
            return
        found = records.fingerprint(record)
        try:
            self._sealer.open(key, record)
        except InvalidTag:
            yield replace(_damage(key, "the record is damaged"), fingerprint=found)
            return
        if found != expected:
            yield _damage(key, "an earlier record was put back there")

    def _homes(self, strays: set[str], broken: dict[int, Damage]) -> Iterator[tuple[str, str]]:
        """Find where records belong that do not open where they are."""
        for t in range(self._last):
            if t not in broken:
                known = manifest_of(self._sealer, self._transaction, t).records
                for key, tag in known.items():
                    if tag in strays:
                        yield tag, described(bytes.fromhex(key))

    def _keys(self, prefix: bytes = b"") -> Iterator[bytes]:
        cursor = self._transaction.cursor()
        if cursor.set_range(prefix) if prefix else cursor.first():
            for key in cursor.iternext(keys=True, values=False):
                if not bytes(key).startswith(prefix):
                    return
                yield bytes(key)


def _standing(
    store: Database, sealer: Sealer, layout: VaultLayout
) -> tuple[ChainState | None, list[Damage]]:
    """Return where the history stands, by the database or else by the head file."""
    damage, remembered, state = [], None, None
    try:
        remembered = unlock.remembered_state(store, sealer)
    except HistoryError as error:
        damage.append(Damage(where="the head file", what=str(error)))
    try:
        with store.reading() as transaction:
            state = unlock.state_of(sealer, transaction)
    except HistoryError as error:
        damage.append(_damage(records.STATE, str(error).partition(": ")[2]))
    if state is None or damage:
        return state or remembered, damage
    if wrong := unlock.rollback(store, sealer, layout, state, remembered):
        damage.append(Damage(where="the history", what=wrong))
    return state, damage


def _damage(key: bytes, what: str) -> Damage:
    place = records.placed(key)
    if place is None:
        return Damage(where=described(key), what=what)
    known = place[1] in list(Kind)
    return Damage(
        where=described(key), what=what, round=place[0], kind=Kind(place[1]) if known else None
    )


def _dropped(state: ChainState, t: int) -> bool:
    """Say whether the shares of a round were dropped on purpose: never those of round 0."""
    return 1 <= t < state.shares_from


def _ranges(numbers: tuple[int, ...]) -> str:
    """Say 0–3, 5 for 0, 1, 2, 3, 5."""
    runs = [
        [n for _, n in run]
        for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    ]
    return ", ".join(f"{r[0]}–{r[-1]}" if len(r) > 1 else f"{r[0]}" for r in runs) or "none"
