import os

import lmdb
import numpy as np
import pytest
from memory_store import MemoryStore

from pdlrecover.engines.peers.protocol.messages import NOTHING, Held, LogEntry
from pdlrecover.engines.peers.runs.archive import Archive
from pdlrecover.errors import HistoryError
from pdlrecover.history import VaultLayout, verify
from pdlrecover.history.sealed import journal
from pdlrecover.history.sealed.records import Kind, placed, share_key

RUN, OTHER = b"r" * 32, b"o" * 32
KEY = bytes(range(32))


def archive(folder, peers=3, keep=None, limit=None, **sizes):
    layout = {"federation": b"f" * 32, "run": RUN.hex(), "peer": 1, "parameters": 4, "blocks": 2}
    layout = VaultLayout(**{**layout, **sizes})
    return Archive(folder, KEY, layout, peers=peers, keep=keep, limit=limit)


def entry(step):
    dealers = tuple(Held(dealer=d, digest=bytes([d]) * 32) for d in (0, 2))
    return LogEntry(dealers=dealers, values=np.array([step, -step]))


def shares(step):
    return {0: np.array([step, 1]), 2: np.array([10, 20])}


def model(step):
    return np.arange(4.0) + step


def filled(store, steps=3):
    for step in range(steps):
        store.commit(RUN, entry(step), shares(step), model(step))
    return store


@pytest.fixture(params=["memory", "archive"])
def reopen(request, tmp_path):
    """Return a function that gives the store as a new process would find it."""
    kept = MemoryStore()
    opened = []

    def sealed():
        for before in opened:
            before.close()
        opened[:] = [archive(tmp_path)]
        return opened[0]

    yield (lambda: kept) if request.param == "memory" else sealed
    for store in opened:
        store.close()


def test_what_is_committed_is_there_again(reopen):
    filled(reopen())
    store = reopen()
    log = store.log(RUN)
    assert len(log) == 3
    digest = expected = NOTHING
    for step, found in enumerate(log):
        digest, expected = found.after(digest), entry(step).after(expected)
    assert digest == expected
    np.testing.assert_array_equal(store.shares(RUN, 1, [0, 2]), [11, 21])
    np.testing.assert_array_equal(store.shares(RUN, 2, [2]), [10, 20])
    assert store.dealers(RUN, 1) == (0, 2)
    assert not store.log(OTHER)


def test_shares_that_are_not_here_are_missing_not_zero(reopen):
    store = filled(reopen())
    store.commit(RUN, entry(3), {}, model(3))
    assert store.shares(RUN, 0, [0, 1]) is None
    assert store.shares(RUN, 3, [0]) is None
    assert store.shares(RUN, 9, [0]) is None
    assert store.shares(RUN, 0, []) is None
    assert len(reopen().log(RUN)) == 4


def test_the_last_memory_under_a_name_counts(reopen):
    store = reopen()
    assert store.recall("a") is None
    store.remember({"a": b"1", "b": b"3"})
    store.remember({"a": b"2"})
    assert reopen().recall("a") == b"2"
    assert reopen().recall("b") == b"3"


@pytest.mark.parametrize("run", [RUN, OTHER])
def test_shares_that_are_promised_are_there_again_until_their_step_is_committed(reopen, run):
    first, second = entry(0).dealers
    reopen().promise(run, {"step": b"1"}, {first: shares(0)[0]})
    store = reopen()
    assert store.promised(run, "step") == b"1"
    assert store.promised(OTHER if run == RUN else RUN, "step") is None
    assert np.array_equal(store.held(run, first), shares(0)[0])
    assert store.held(run, second) is None
    assert store.held(run, Held(dealer=0, digest=b"x" * 32)) is None, "another dealing"
    store.commit(run, entry(0), shares(0), model(0))
    store = reopen()
    assert store.held(run, first) is None
    assert np.array_equal(store.shares(run, 0, [0, 2]), shares(0)[0] + shares(0)[2])


def test_what_was_promised_is_not_written_again(tmp_path, monkeypatch):
    store, written = archive(tmp_path), []
    put = journal._Write.put
    monkeypatch.setattr(
        journal._Write, "put", lambda self, key, c: (written.append(key), put(self, key, c))[1]
    )
    store.promise(RUN, {}, {held: shares(0)[held.dealer] for held in entry(0).dealers})
    store.commit(RUN, entry(0), shares(0), model(0))
    store.close()
    assert sorted(key for key in written if placed(key) == (0, Kind.SHARE)) == [
        share_key(0, 0),
        share_key(0, 2),
    ]


def test_models_are_kept_with_their_steps_and_the_last_one_at_the_end(reopen):
    store = filled(reopen())
    store.finish(RUN, model(3))
    store = reopen()
    store.finish(RUN, model(3))
    models = store.models(RUN)
    assert len(models) == 4
    for step in range(4):
        np.testing.assert_array_equal(models[step], model(step))


def test_steps_of_a_recovery_need_no_model_and_no_dealers(reopen):
    store = filled(reopen())
    store.commit(OTHER, LogEntry(dealers=(), values=np.array([5])), {}, None)
    store.commit(OTHER, entry(1), shares(1), model(1))
    store = reopen()
    assert [len(each.dealers) for each in store.log(OTHER)] == [0, 2]
    np.testing.assert_array_equal(store.shares(OTHER, 1, [0]), [1, 1])
    assert len(store.log(RUN)) == 3


def test_a_damaged_share_counts_as_missing_and_is_found(tmp_path):
    filled(archive(tmp_path)).close()
    with (
        lmdb.open(str(tmp_path / "training"), map_size=1 << 26) as env,
        env.begin(write=True) as transaction,
    ):
        record = bytearray(transaction.get(share_key(1, 0)))
        record[20] ^= 1
        transaction.put(share_key(1, 0), bytes(record))
    found = verify(tmp_path / "training", KEY)
    assert [damage.where for damage in found.damage] == ["round 1, share of dealer 0"]
    assert found.whole == (0, 2)
    store = archive(tmp_path)
    assert store.shares(RUN, 1, [0]) is None
    assert store.shares(RUN, 1, [2]) is not None
    store.close()


def test_room_is_made_before_a_step_or_the_step_is_refused(tmp_path):
    store = filled(archive(tmp_path, limit=2 << 20))
    store.reserve(RUN)
    store.close()
    store = archive(tmp_path, limit=1 << 10)
    with pytest.raises(HistoryError, match="are allowed"):
        store.reserve(RUN)
    assert len(store.log(RUN)) == 3
    store.close()


def test_old_shares_are_dropped_and_round_0_the_log_and_models_stay(tmp_path):
    store = filled(archive(tmp_path, keep=1))
    assert store.shares_from(RUN) == 2
    assert store.shares(RUN, 0, [0]) is not None
    assert store.shares(RUN, 1, [0]) is None
    assert store.shares(RUN, 2, [0]) is not None
    assert len(store.log(RUN)) == len(store.models(RUN)) == 3
    store.close()


def test_another_runs_history_is_refused(tmp_path):
    filled(archive(tmp_path)).close()
    with pytest.raises(HistoryError, match="is another one: its peer"):
        archive(tmp_path, peer=2)


@pytest.mark.parametrize("run", [RUN, OTHER])
def test_a_step_that_was_reserved_finds_room_for_what_it_remembers_too(tmp_path, run, monkeypatch):
    size = {"parameters": 100_000, "blocks": 100_000}
    store = archive(tmp_path, **size)
    store.log(run)
    store.reserve(run)

    class Full:
        f_bavail, f_frsize = 0, 4096

    monkeypatch.setattr(os, "statvfs", lambda path: Full)
    kept = {0: np.arange(100_000), 2: np.arange(100_000)}
    rows = {held: kept[held.dealer] for held in entry(0).dealers}
    store.promise(run, {"step": bytes(8 * 100_000)}, rows)
    store.commit(run, entry(0), kept, np.zeros(100_000))
    with pytest.raises(HistoryError, match="no room"):
        store.reserve(run)
    store.close()
