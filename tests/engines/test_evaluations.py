"""Evaluations in a simulation: the same on shares and in the clear, and true to the data."""

import numpy as np
import pytest
import small
import torch

from pdlrecover import Federation
from pdlrecover.adversary import LabelFlip
from pdlrecover.engines.sum_store import Faults
from pdlrecover.errors import PlanError
from pdlrecover.learning import accuracy
from pdlrecover.recovery.requests import Evaluation

ROUNDS = 24


def trained(**arguments):
    federation = small.federation(**{"held_out": 0.3, "evaluate_every": 10, **arguments})
    return federation, federation.train(ROUNDS, 0.3)


CLEAR, CLEAR_MODEL = trained(clear=True)
SHARED, SHARED_MODEL = trained()


def test_evaluations_on_shares_and_in_the_clear_are_the_same():
    assert [point.round for point in SHARED_MODEL.evaluations] == [10, 20, 24]
    assert SHARED_MODEL.evaluations == CLEAR_MODEL.evaluations
    for reason in ("malicious", "left"):
        one, two = (
            each.recover(small.REMOVED, reason=reason, settings=small.SETTINGS)
            for each in (SHARED, CLEAR)
        )
        assert one.evaluations == two.evaluations
        assert one.continued == two.continued
        np.testing.assert_array_equal(one.weights, two.weights)


def test_the_last_evaluation_is_the_accuracy_on_all_held_out_samples():
    peers, point = CLEAR.simulated_peers, CLEAR_MODEL.evaluations[-1]
    rows = torch.from_numpy(np.concatenate(peers.held_out))
    expected = accuracy(peers.updates.model, CLEAR_MODEL.weights, peers.x[rows], peers.y[rows])
    assert point.samples == len(rows)
    assert point.accuracy == pytest.approx(expected)


def test_no_held_out_sample_is_ever_in_a_minibatch():
    peers = CLEAR.simulated_peers
    for peer, held in enumerate(peers.held_out):
        drawn = {
            int(i)
            for t in range(300)
            for stream in (0, 5)
            for i in peers.batches.indices([peer], t, stream=stream)[0]
        }
        assert drawn == set(peers.batches.samples_of([peer]).tolist())
        assert not drawn.intersection(held.tolist())


def test_nothing_is_evaluated_or_changed_where_nobody_holds_samples_out():
    federation = small.federation()
    assert not federation.train(10, 0.3).evaluations
    assert not federation.recover(small.REMOVED, settings=small.SETTINGS).evaluations
    with pytest.raises(PlanError, match="held_out"):
        federation._simulation.drive(asking(federation), kept=range(small.PEERS))


def asking(federation):
    yield Evaluation(round=0, at=federation.original.models[-1])


def test_after_malicious_peers_the_kept_ones_evaluate_the_original_and_after_leavers_nobody_does():
    bad = CLEAR.recover(small.REMOVED, reason="malicious", settings=small.SETTINGS)
    assert [point.original for point in bad.evaluations][:2] == [True, False]
    assert bad.evaluations[0].peers == small.PEERS - 2
    left = CLEAR.recover(small.REMOVED, reason="left", settings=small.SETTINGS)
    assert not any(point.original for point in left.evaluations)
    opened = left.ledger.totals().opened["evaluations"]
    assert (opened.openings, opened.numbers) == (len(left.evaluations), 3 * len(left.evaluations))


def test_every_method_is_evaluated_by_the_same_wrapper():
    for method in ("retrain", "historical", "pdlrecover", "fine-tune-k"):
        found = CLEAR.recover(small.REMOVED, method, settings=small.SETTINGS)
        last = found.evaluations[-1]
        rows = np.concatenate([CLEAR.simulated_peers.held_out[p] for p in range(2, small.PEERS)])
        assert last.samples == len(rows)
        assert last.round == (ROUNDS if method != "fine-tune-k" else last.round)


def test_liars_and_absent_peers_in_openings_change_no_evaluation():
    faults = Faults(absent=(6,), liars=(7,))
    bad = SHARED.recover(small.REMOVED, reason="malicious", settings=small.SETTINGS, faults=faults)
    good = CLEAR.recover(small.REMOVED, reason="malicious", settings=small.SETTINGS)
    assert bad.evaluations == good.evaluations
    assert bad.ledger.liars == {7}


def test_a_peer_that_deals_more_than_can_be_true_makes_the_evaluation_void(monkeypatch):
    federation = small.federation(held_out=0.3, clear=True)
    honest = federation.simulated_peers._tally

    def lied(at, peer, phase):
        return honest(at, peer, phase) + (np.array([10**6, 0, 0]) if peer == 3 else 0)

    monkeypatch.setattr(federation.simulated_peers, "_tally", lied)
    point = federation.train(5, 0.3).evaluations[-1]
    assert point.accuracy is None
    assert "somebody lied" in point.void
    assert "void" in str(point)
    assert not federation.recover(small.REMOVED, settings=small.SETTINGS).continued


def test_attackers_evaluate_on_what_they_poison():
    federation = small.federation(
        held_out=0.3, clear=True, malicious=(0, 1), attack=LabelFlip(classes=3)
    )
    honest = small.federation(held_out=0.3, clear=True)
    at = CLEAR_MODEL.weights
    ours, theirs = (each.simulated_peers for each in (federation, honest))
    assert ours.tally(at, [0, 1])[0] < theirs.tally(at, [0, 1])[0]
    np.testing.assert_array_equal(ours.tally(at, range(2, 8)), theirs.tally(at, range(2, 8)))


def test_a_saved_federation_knows_what_it_held_out_and_what_it_was_worth(tmp_path):
    federation, _ = trained(clear=True, folder=tmp_path)
    federation.save(tmp_path)
    datasets = [small.points(seed=peer, count=20 + peer) for peer in range(small.PEERS)]
    again = Federation.load(tmp_path, small.module(), datasets)
    one, two = (
        each.recover(small.REMOVED, settings=small.SETTINGS) for each in (federation, again)
    )
    assert one.evaluations == two.evaluations
    assert one.continued == two.continued


def test_an_interrupted_training_goes_on_to_the_same_evaluations(tmp_path):
    def interrupt(step):
        if step.round == 13:
            raise KeyboardInterrupt

    first = small.federation(held_out=0.3, clear=True, folder=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        first.train(ROUNDS, 0.3, observer=interrupt)
    resumed = small.federation(held_out=0.3, clear=True, folder=tmp_path, resume=True)
    assert resumed.train(ROUNDS, 0.3).evaluations == CLEAR_MODEL.evaluations
