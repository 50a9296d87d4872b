"""What leaders, dealers and the removed could do to those they want to expose or to outlast."""

from dataclasses import replace

import numpy as np
import pytest
from wire import KEYS, TRAINING, Setup, Wire, same_models

from pdlrecover import Tolerance
from pdlrecover.engines.peers.protocol import codec
from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.engines.peers.runs.dealt_sums import DealtSums
from pdlrecover.recovery.privacy import exposed

TOLERANCE = Tolerance(colluders=1, dropouts=2)
PEERS, ROUNDS = 6, 14


@pytest.mark.parametrize("liars", [0, 1])
def test_a_leader_that_leaves_dealings_out_which_others_hold_is_not_followed(liars):
    """Peer 0 proposes itself and as few others as a set may have, whenever it leads."""
    setup = Setup(7, Tolerance(colluders=1, dropouts=2, liars=liars))
    least = setup.context(0, TRAINING, range(7)).quorum

    def tamper(sender, recipient, data):
        envelope = codec.decode(data)
        if sender != 0 or not isinstance(envelope.body, m.Proposal):
            return [(sender, data)]
        few = replace(envelope.body, dealers=envelope.body.dealers[:least])
        return [(sender, codec.encode(envelope.header, few, KEYS[0].sign))]

    network = setup.train(Wire(tamper=tamper), rounds=9, run=False)
    network.run(done=lambda: all(network.sessions[p].finished for p in range(1, 7)), until=500)
    same_models(network, range(1, 7))
    for entry in setup.stores[1].log(TRAINING):
        assert len(entry.dealers) == 7


def test_a_poisoner_that_withholds_its_dealing_from_a_few_can_still_be_removed():
    """In every round another peer does not get it, and opens nothing in that round."""
    setup = Setup(7, Tolerance(colluders=1, dropouts=2))

    def tamper(sender, recipient, data):
        envelope = codec.decode(data)
        withheld = isinstance(envelope.body, m.Dealing) and envelope.header.step % 6 == recipient
        return [] if sender == 6 and withheld else [(sender, data)]

    trained = setup.train(Wire(tamper=tamper), rounds=ROUNDS, until=2000)
    same_models(trained)
    for peer in range(6):
        assert set(trained.sessions[peer].driver.participation.withheld) == {6}
    recovered = setup.recover(trained, (6,), until=500)
    same_models(recovered)


def used_pairs(monkeypatch):
    """Note of which peers the pairs are that something is opened of."""
    found, read = {}, DealtSums._read_pair

    def noting(self, b):
        found[b] = frozenset(self.both(b))
        return read(self, b)

    monkeypatch.setattr(DealtSums, "_read_pair", noting)
    return found


@pytest.mark.parametrize("away", [2, 3])
def test_who_is_left_out_of_an_exact_round_of_a_recovery_is_not_exposed_by_its_pair(
    away, monkeypatch
):
    """The pair of the others, less the sum over all of the training, would be its own update.

    The removed peer knows its own, and is told what is opened.
    """
    pairs, setup, wire = used_pairs(monkeypatch), Setup(PEERS, TOLERANCE), Wire()
    trained = setup.train(rounds=ROUNDS)
    network = setup.recover(trained, (5,), wire, run=False)
    protocol = network.sessions[0].protocol
    network.run(done=lambda: protocol.step == 2)
    wire.cut = {away}
    network.run(done=lambda: protocol.step == 3)
    wire.cut.clear()
    network.run(until=500)
    same_models(network)
    driver = network.sessions[0].driver
    missed = [t for t, (_, dealers) in driver._dealt._fresh.items() if away not in dealers]
    assert missed
    assert pairs
    everybody = frozenset(range(PEERS))
    for t, both in pairs.items():
        known = [everybody - {5}, both]
        assert not exposed(known, TOLERANCE.colluders), (t, both)


def test_rounds_in_which_too_few_dealt_are_passed_over_or_exact_and_never_opened(monkeypatch):
    """Round 0, where the recovery is at the training's model, and round 7 of a block."""
    setup = Setup(PEERS, TOLERANCE)
    trained = setup.train(rounds=ROUNDS)
    opened, stored = set(), DealtSums.stored_share

    def noting(self, t, of):
        opened.add(t)
        return stored(self, t, of)

    monkeypatch.setattr(DealtSums, "stored_share", noting)
    setup.closed = frozenset({0, 7})
    for method in ("pdlrecover", "historical"):
        opened.clear()
        recovered = setup.recover(trained, (5,), method=method)
        assert np.isfinite(same_models(recovered)).all()
        assert opened
        assert not opened & {0, 7}
