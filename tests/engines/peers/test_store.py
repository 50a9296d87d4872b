import numpy as np
import pytest

from pdlrecover.engines.peers.messages import NOTHING, Entry, Held
from pdlrecover.engines.peers.store import MemoryStore, PlainFolder
from pdlrecover.errors import HistoryError

RUN, OTHER = b"r" * 32, b"o" * 32


def entry(step):
    dealers = tuple(Held(dealer=d, digest=bytes([d]) * 32) for d in (0, 2))
    return Entry(dealers=dealers, values=np.array([step, -step]))


def shares(step):
    return {0: np.array([step, 1]), 2: np.array([10, 20])}


def filled(store, steps=3):
    for step in range(steps):
        store.commit(RUN, entry(step), shares(step))
    return store


@pytest.fixture(params=["memory", "folder"])
def reopen(request, tmp_path):
    """Return a function that gives the store as a new process would find it."""
    kept = MemoryStore()
    return (lambda: kept) if request.param == "memory" else (lambda: PlainFolder(tmp_path))


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
    assert not store.log(OTHER)


def test_shares_that_are_not_here_are_missing_not_zero(reopen):
    store = filled(reopen())
    store.commit(RUN, entry(3), {})
    assert store.shares(RUN, 0, [0, 1]) is None
    assert store.shares(RUN, 3, [0]) is None
    assert store.shares(RUN, 9, [0]) is None
    assert store.shares(RUN, 0, []) is None
    assert len(reopen().log(RUN)) == 4


def test_the_last_memory_under_a_name_counts(reopen):
    store = reopen()
    assert store.recall("a") is None
    store.remember("a", b"1")
    store.remember("a", b"2")
    assert reopen().recall("a") == b"2"


def test_a_changed_entry_is_found_when_the_store_is_opened(tmp_path):
    filled(PlainFolder(tmp_path))
    (path,) = tmp_path.glob("*/1.entry")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(HistoryError, match="does not follow"):
        PlainFolder(tmp_path).log(RUN)
    path.write_bytes(data[:80])
    with pytest.raises(HistoryError, match="is damaged"):
        PlainFolder(tmp_path).log(RUN)


def test_damaged_shares_count_as_missing(tmp_path):
    filled(PlainFolder(tmp_path))
    (path,) = tmp_path.glob("*/1.shares")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    store = PlainFolder(tmp_path)
    assert store.shares(RUN, 1, [0]) is None
    assert store.shares(RUN, 2, [0]) is not None


def test_a_step_that_was_being_written_is_not_there(tmp_path):
    filled(PlainFolder(tmp_path))
    (entry_file,) = tmp_path.glob("*/2.entry")
    entry_file.rename(entry_file.with_suffix(".entry.part"))
    store = PlainFolder(tmp_path)
    assert len(store.log(RUN)) == 2
    store.commit(RUN, entry(2), shares(2))
    assert len(PlainFolder(tmp_path).log(RUN)) == 3
