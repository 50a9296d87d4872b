from collections import Counter

import pytest

from pdlrecover import descriptors
from pdlrecover.engines.peers.transport import door
from pdlrecover.engines.peers.transport.door import Door
from pdlrecover.errors import PlanError

A, B, C = ("10.0.0.1", 5), ("10.0.0.1", 6), ("fe80::1", 7)


def test_who_is_gone_without_a_call_is_counted_and_who_called_is_not():
    there = Door(7400, 5, counts := Counter())
    there.look({A, B, C}, 0.0)
    there.knows("ipv4:10.0.0.1:5")
    there.knows("ipv6:%5Bfe80::1%5D:7")
    assert counts["unfinished"] == 0
    there.look({C}, 1.0)
    assert counts["unfinished"] == 1
    there.look(set(), 2.0)
    assert counts["unfinished"] == 1


def test_a_port_that_is_used_again_after_a_call_counts_anew():
    there = Door(7400, 5, counts := Counter())
    there.knows("ipv4:10.0.0.1:5")
    there.look({A}, 0.0)
    there.look(set(), 1.0)
    there.look({A}, 2.0)
    there.look(set(), 3.0)
    assert counts["unfinished"] == 1


def test_many_strangers_are_one_line_a_minute(caplog):
    there = Door(7400, 5, Counter())
    for second in range(59):
        there.look({("10.0.0.9", 100 * second + i) for i in range(100)}, float(second))
    assert [record.getMessage()[:15] for record in caplog.records] == ["100 connections"]
    assert "firewall" in caplog.text
    there.look(set(), 70.0)
    assert [record.getMessage()[:16] for record in caplog.records][1:] == ["5800 connections"]


def test_connections_leave_descriptors_for_the_peers_own_files_and_calls(monkeypatch):
    monkeypatch.setattr(descriptors, "limit", lambda: 256)
    monkeypatch.setattr(descriptors, "in_use", lambda: 40)
    there = Door(7400, 5, Counter())
    assert there.connections(512) == 256 - 40 - door.RESERVE - 10
    assert there.connections(100) == 100
    monkeypatch.setattr(descriptors, "limit", lambda: 100)
    with pytest.raises(PlanError, match=r"may open 100 files .* needs 129; raise the limit"):
        there.connections(512)
