import numpy as np

from pdlrecover.engines.peers.protocol.messages import Held
from pdlrecover.engines.peers.protocol.rows import Row, restored

ROW = Row(held=Held(dealer=3, digest=b"d" * 32), statement=b"s" * 64, values=np.arange(5))


def same(found):
    assert (found.held, found.statement) == (ROW.held, ROW.statement)
    np.testing.assert_array_equal(found.values, ROW.values)


def test_a_row_that_is_kept_whole_needs_nothing_else():
    same(restored(ROW.saved(whole=True), kept=lambda held: 1 / 0))


def test_a_row_that_is_kept_elsewhere_is_found_by_its_dealing():
    note = ROW.saved(whole=False)
    assert len(note) < len(ROW.saved(whole=True))
    same(restored(note, kept={ROW.held: ROW.values}.get))


def test_a_row_that_was_lost_elsewhere_is_none():
    other = Held(dealer=3, digest=b"x" * 32)
    assert restored(ROW.saved(whole=False), kept={other: ROW.values}.get) is None
