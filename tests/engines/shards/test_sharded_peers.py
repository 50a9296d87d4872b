"""A simulation over shards on a real cluster, against the same one in this process."""

import os
import signal
import warnings
from dataclasses import replace

import numpy as np
import pytest
import small

from pdlrecover import Standardise
from pdlrecover.adversary import Backdoor, NoAttack, PartialTrim, SignFlip
from pdlrecover.cluster import Node
from pdlrecover.engines import dealers
from pdlrecover.engines.shards import crew
from pdlrecover.engines.shards.crew import spread
from pdlrecover.engines.shards.sharded_peers import sharded
from pdlrecover.engines.shards.sharding import Sharding
from pdlrecover.errors import ClusterError, PlanError, RangeError
from pdlrecover.field import Seeded
from pdlrecover.recovery.requests import LocalSteps, Teacher

GROUPS = [[0, 3], [6, 1, 4], [5, 2, 7]]


def federation(**arguments):
    made = small.federation(**arguments)
    peers = made.simulated_peers
    peers.updates = replace(peers.updates, chunk=2)
    return made


def over(nodes, made, shards=2, said=None, **more):
    sharding = Sharding(shards=shards, on=nodes.address, **more)
    say = pytest.fail if said is None else said.append
    return sharded(made.simulated_peers, made.scheme, sharding, say)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(dealers, "_PIECE_NUMBERS", 1)
    monkeypatch.setattr(dealers, "_TAUGHT_PEERS", 2)


def asked(**more):
    return {"phase": "recovery", "stream": 0, "local": None, "teacher": None, **more}


def test_sums_and_what_is_dealt_are_the_same_to_the_bit(two_nodes):
    made = federation(
        malicious=[6, 1], attack=Backdoor(trigger=lambda x: -x, scale=3.0), bound=0.05
    )
    peers, w = made.simulated_peers, made.simulated_peers.updates.model.initial
    with over(two_nodes, made, deal_on_shards=True) as shards:
        for more in (
            {},
            {"stream": 5, "local": LocalSteps(steps=2, rate=0.1)},
            {"teacher": Teacher(models=(w, -w), temperature=2.0)},
        ):
            before = peers.clipped
            here = peers.sums(3, w, GROUPS, **asked(**more))
            clipped = peers.clipped - before
            np.testing.assert_array_equal(shards.sums(3, w, GROUPS, **asked(**more)), here)
            assert peers.clipped - before == 2 * clipped
        assert shards.processor_seconds > 0
        vector = Seeded(1).elements(peers.code.length)
        here = made.scheme.share(vector, Seeded(2)).values
        there = made.scheme.share(vector, Seeded(2), by=shards.deal).values
        np.testing.assert_array_equal(there, here)


def test_a_process_that_ends_is_started_again_and_no_bit_changes(two_nodes):
    made = federation(malicious=[6, 1], attack=SignFlip())
    peers, w = made.simulated_peers, made.simulated_peers.updates.model.initial
    with over(two_nodes, made) as shards:
        os.kill(shards.crew.processes[1], signal.SIGKILL)
        found = shards.sums(0, w, GROUPS, **asked())
        np.testing.assert_array_equal(found, peers.sums(0, w, GROUPS, **asked()))
        assert len(shards.crew) == 2


def test_the_work_of_a_lost_node_is_done_by_the_others_until_none_is_left(
    two_nodes, another_node, monkeypatch
):
    made, said = federation(malicious=[6], attack=NoAttack()), []
    peers, w = made.simulated_peers, made.simulated_peers.updates.model.initial
    here = peers.sums(0, w, GROUPS, **asked())
    node = another_node("third")
    with over(two_nodes, made, shards=3, said=said) as shards:
        assert [member.node.name for member in shards.crew.members] == ["first", "second", "third"]
        two_nodes.remove_node(node, allow_graceful=False)
        np.testing.assert_array_equal(shards.sums(0, w, GROUPS, **asked()), here)
        (lost,) = said
        assert lost.startswith("shard 3 on third is lost: ")
        assert lost.endswith("; 2 left do its work")
        import ray

        monkeypatch.setattr(crew, "RESTARTS", 0)
        for member in shards.crew.members:
            ray.kill(member.actor)
        with pytest.raises(ClusterError, match="no shard is left"):
            shards.sums(0, w, GROUPS, **asked())
    assert said[-1].endswith("; it was the last")


def test_a_whole_training_and_recovery_come_to_the_same_models(two_nodes):
    given = {
        "held_out": 0.2,
        "evaluate_every": 4,
        "standardise": Standardise(bound=20.0),
        "malicious": small.REMOVED,
        "attack": SignFlip(),
    }
    here, there = federation(**given), federation(**given)
    with there.sharded(2, on=two_nodes.address, deal_on_shards=True, say=pytest.fail):
        models = [
            (
                made.train(12, 0.3, progress=False),
                made.recover(small.REMOVED, "retrain", reason="malicious", progress=False),
            )
            for made in (here, there)
        ]
    for mine, theirs in zip(*models, strict=True):
        np.testing.assert_array_equal(mine.weights, theirs.weights)
        assert mine.evaluations == theirs.evaluations
    assert models[1][0].ledger.totals() is not None
    again = there.recover(small.REMOVED, "retrain", reason="malicious", progress=False)
    np.testing.assert_array_equal(again.weights, models[1][1].weights)


def test_attackers_who_act_as_one_are_computed_here_and_that_is_said(two_nodes):
    made, said = federation(malicious=[6, 1], attack=PartialTrim()), []
    peers, w = made.simulated_peers, made.simulated_peers.updates.model.initial
    with over(two_nodes, made, said=said) as shards:
        found = shards.sums(0, w, GROUPS, **asked())
        assert shards.processor_seconds == 0
        np.testing.assert_array_equal(found, peers.sums(0, w, GROUPS, **asked()))
        shards.sums(0, w, [[0, 3], [5, 2, 7]], **asked())
        assert shards.processor_seconds > 0
    assert said == [
        "the attackers act as one, from all of their updates or from everybody's, so rounds in "
        "which they take part are computed in this process"
    ]


def test_a_mistake_in_a_shard_arrives_as_it_would_from_here(two_nodes):
    made = federation()
    w = np.full_like(made.simulated_peers.updates.model.initial, np.inf)
    said = "the training has diverged; lower the learning rate"
    with over(two_nodes, made) as shards, pytest.raises(RangeError, match=said):
        shards.sums(0, w, GROUPS, **asked())


def test_without_a_cluster_processes_are_started_here_and_ended():
    import ray

    made = federation()
    peers, w = made.simulated_peers, made.simulated_peers.updates.model.initial
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # Ray's own, of processes it has ended
        sharding = Sharding(shards=1)
        with sharded(peers, made.scheme, sharding, pytest.fail) as shards:
            process = shards.crew.processes[0]
            found = shards.sums(0, w, GROUPS, **asked())
            again = sharded(peers, made.scheme, sharding, pytest.fail)
            with pytest.raises(ClusterError, match="connected to a Ray cluster already"), again:
                pass
    np.testing.assert_array_equal(found, peers.sums(0, w, GROUPS, **asked()))
    assert not ray.is_initialized()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_shards_are_spread_over_nodes_and_no_more_than_there_are_cores():
    nodes = [
        Node(id=str(i), name=str(i), address="10.0.0.1", port=1, cores=cores)
        for i, cores in enumerate([1, 3])
    ]
    assert [node.name for node in spread(nodes, 3)] == ["0", "1", "1"]
    with pytest.raises(ClusterError, match="the cluster has 4"):
        spread(nodes, 5)


@pytest.mark.parametrize("shards", [0, -1, True, 1.5])
def test_numbers_of_shards_that_are_none_are_refused(shards):
    with pytest.raises(PlanError, match="must be a whole number from 1 on"):
        Sharding(shards=shards)
