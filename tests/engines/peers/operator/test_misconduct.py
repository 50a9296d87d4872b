import pytest
from memory_store import MemoryStore

from pdlrecover.engines.peers.operator.misconduct import MISDEEDS, Misconduct, Misdeed
from pdlrecover.errors import HistoryError

NAMES = ["ash", "birch", "cedar", "elm"]


def test_who_was_caught_and_named_is_known_after_a_restart(tmp_path):
    store = MemoryStore()
    before = Misconduct(store, tmp_path, NAMES)
    before.blame(3, "sent a wrong sub-secret")
    before.blame(2, "signed two different Votes for one purpose", (b"one", b"other"))
    again = Misconduct(store, tmp_path, NAMES)
    assert (again.named, again.caught) == (before.named, before.caught)
    assert store.recall("named").startswith(b"PDLS\1")


def test_misdeeds_of_version_0_are_read(tmp_path):
    store = MemoryStore()
    store.remember({"named": b'[[3, "sent a wrong sub-secret", 1763410857.25]]'})
    found = Misconduct(store, tmp_path, NAMES)
    assert found.named == {(3, "sent a wrong sub-secret"): 1763410857.25}
    found.blame(1, "holds another model")
    assert MISDEEDS.decode(store.recall("named"))[0] == Misdeed(
        peer=3, what="sent a wrong sub-secret", time=1763410857.25
    )


def test_misdeeds_that_cannot_be_read_are_refused_and_not_forgotten(tmp_path):
    store = MemoryStore()
    store.remember({"caught": b"PDLS\2\4"})
    with pytest.raises(HistoryError, match="version 2 and kind 4"):
        Misconduct(store, tmp_path, NAMES)
