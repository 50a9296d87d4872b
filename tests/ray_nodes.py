"""A real cluster on this machine: two nodes with one core each, and more where a test adds some."""

import os
from pathlib import Path

import pytest

from pdlrecover import cluster as own

SMALL = {
    "num_cpus": 1,
    "object_store_memory": 100 << 20,
    "include_dashboard": False,
}
SOURCE = Path(own.__file__).parents[1]


@pytest.fixture(scope="session")
def two_nodes():
    """Start `first`, on which this process is, and `second`; end them with the tests."""
    os.environ.update(own.QUIET, RAY_worker_niceness="0")  # so that no other test outruns them
    os.environ["PYTHONPATH"] = str(SOURCE)  # as this process has it, however it was started
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={**SMALL, "node_name": "first"})
    made.add_node(**SMALL, node_name="second")
    yield made
    made.shutdown()


@pytest.fixture
def another_node(two_nodes):
    """Return what adds a node for one test, by its name and environment."""
    added = []

    def add(name, **environment):
        node = two_nodes.add_node(**SMALL, node_name=name, env_vars=environment)
        added.append(node)
        return node

    yield add
    for node in added:
        if node in two_nodes.worker_nodes:
            two_nodes.remove_node(node, allow_graceful=False)
