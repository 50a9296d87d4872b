import pytest

from pdlrecover.experiments.analysis.large_plan import NETWORK_BYTES, plan

RECORD = {
    "sizes": [
        {
            "peers": peers,
            "packing": peers // 4,
            "parameters": 999,
            "shards_processor_seconds": peers / 1000,
            "best": {"dealing": 0.2, "opening": 0.1},
            "whole_run": {"bytes": 1_000_000},
        }
        for peers in (100, 1024)
    ]
}


def test_the_measured_size_is_planned_as_it_was_measured():
    found = plan(RECORD, 1024, 1)
    assert (found.gradients, found.dealing, found.opening) == (1.024, 0.2, 0.1)
    assert found.transferred == 8 * (3 * 1000 + 999)
    assert found.history == 8 * 2 * 1024 * 4  # blocks of 256 numbers
    assert found.memory == 1_000_000 + found.history


def test_gradients_grow_with_peers_and_shrink_with_cores_and_dealing_hardly_grows():
    small, large = plan(RECORD, 1024, 4), plan(RECORD, 1024**2, 4)
    assert large.gradients == pytest.approx(1024 * small.gradients)
    assert large.dealing == pytest.approx(2 * small.dealing)
    assert large.opening == pytest.approx(2 * small.opening)
    assert plan(RECORD, 1024, 8).gradients == small.gradients / 2
    assert small.transfers == small.transferred / NETWORK_BYTES
    total = small.gradients + small.dealing + small.opening + small.transfers
    assert small.rounds_per_hour == pytest.approx(3600 / total)


def test_more_nodes_get_the_model():
    assert plan(RECORD, 1024, 32).transferred == 8 * (3 * 32 * 1000 + 2 * 999)
