"""How tests are shared out among the workers of `make test`."""

from ray_nodes import another_node, two_nodes  # noqa: F401 (fixtures)
from xdist.scheduler import LoadFileScheduling

NETWORK = "tests/engines/peers/network/"
"""Tests that listen on ports and wait for deadlines.

All are for one worker, so that they neither take each other's ports nor load the machine twice;
the other workers compute while they wait.
"""
CLUSTER = "tests/cluster/", "tests/engines/shards/"
"""Tests of one cluster of Ray, which one worker starts and ends."""


class Scheduling(LoadFileScheduling):
    """The tests of a file stay together, so that what they share is made once."""

    def _split_scope(self, nodeid):
        if nodeid.startswith(CLUSTER):
            return CLUSTER[0]
        return NETWORK if nodeid.startswith(NETWORK) else super()._split_scope(nodeid)


def pytest_collection_modifyitems(items):
    """Begin with the longest queues: those that one worker goes through alone."""
    items.sort(key=lambda item: not item.nodeid.startswith((NETWORK, *CLUSTER)))


def pytest_xdist_make_scheduler(config, log):
    return Scheduling(config, log)
