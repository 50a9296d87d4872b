"""One member cannot fill another's memory, nor make the others talk about it without end."""

import os
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from wire import KEYS, Setup, Wire, same_models

from pdlrecover import Tolerance
from pdlrecover.engines.peers.protocol import codec
from pdlrecover.engines.peers.protocol import messages as m

CHEAT, PEERS = 3, 7
TOLERANCE = Tolerance(colluders=1, dropouts=2, liars=1)
LARGE = 1 << 16
"""So many numbers, of eight bytes, are in each message of a flood."""


@pytest.fixture
def network():
    """Peers that have just begun a run of one round."""
    return Setup(PEERS, TOLERANCE).train(Wire(), rounds=1, run=False)


def said(network, body, sender=CHEAT, **header):
    """Return a message about the step that peer 0 is in."""
    current = network.sessions[0].protocol.current
    place = replace(current.place, sender=sender, recipient=m.EVERYBODY, **header)
    return codec.encode(place, body, KEYS[sender].sign)


def kept(network, messages, sender=CHEAT):
    """Return how many more bytes peer 0 holds after these messages, which are not held here."""
    tracemalloc.start()
    try:
        for data in messages:
            network.deliver(0, sender, data)
            del data
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_sub_secrets_of_the_wrong_size_are_not_kept(network):
    values = np.zeros(LARGE, dtype=np.int64)
    flood = (said(network, m.SubSecret(choice=os.urandom(32), values=values)) for _ in range(20))
    assert kept(network, flood) < 8 * LARGE
    assert {blame.what for blame in network.blames[0]} == {"sent a sub-secret of the wrong size"}
    network.run()
    same_models(network)


def test_one_sender_names_a_few_sets_in_its_sub_secrets_and_no_more(network):
    current = network.sessions[0].protocol.current
    values = np.zeros(current.task.size, dtype=np.int64)
    for _ in range(20):
        body = m.SubSecret(choice=os.urandom(32), values=values)
        network.deliver(0, CHEAT, said(network, body))
    assert len(current.sub_secrets) == 4


@pytest.mark.parametrize("leads", [False, True])
@pytest.mark.slow
def test_proposals_out_of_turn_or_of_too_many_are_not_kept(network, leads):
    ballot = network.sessions[0].protocol.current.ballot
    views = [view for view in range(250) if (ballot.leader(view) == CHEAT) == leads][:30]
    many = tuple(m.Held(dealer=i, digest=bytes(32)) for i in range(4000))
    flood = (
        said(network, m.Proposal(view=view, since=-1, dealers=many[: None if leads else 3000]))
        for view in views
    )
    assert kept(network, flood) < 1 << 20
    assert not ballot._proposals
    network.run()
    same_models(network)


def test_a_run_that_is_over_keeps_no_messages_of_further_steps(network):
    values = np.zeros(LARGE, dtype=np.int64)
    body = m.SubSecret(choice=bytes(32), values=values)
    protocol = network.sessions[0].protocol
    ahead = said(network, body, step=1)
    after = [said(network, body, step=step) for step in (1, 1, 2, 3)]
    network.deliver(0, CHEAT, ahead)
    assert protocol._later
    network.run()
    assert network.sessions[0].finished
    assert not protocol._later
    assert kept(network, (bytes(bytearray(data)) for data in after)) < 8 * LARGE
    assert not protocol._later


def alarms(network):
    return [(a, b) for a, b, kind, _ in network.wire.sent if kind == "Equivocation" and a == 0]


def test_a_peer_that_contradicts_itself_without_end_is_told_of_once(network):
    for view in range(4):
        for _ in range(10):
            vote = m.Vote(view=view, final=False, choice=os.urandom(32))
            network.deliver(0, CHEAT, said(network, vote))
    assert alarms(network) == [(0, peer) for peer in range(1, PEERS)]
    assert [b.what for b in network.blames[0]] == ["signed two different Votes for one purpose"]


def test_a_proof_that_is_passed_on_again_and_again_is_looked_at_once(network):
    votes = [m.Vote(view=0, final=False, choice=bytes([i]) * 32) for i in range(2)]
    first, second = (said(network, vote) for vote in votes)
    proof = said(network, m.Equivocation(accused=CHEAT, first=first, second=second), sender=1)
    for _ in range(10):
        network.deliver(0, 1, proof)
    network.deliver(0, CHEAT, first)
    network.deliver(0, CHEAT, second)
    assert [b.peer for b in network.blames[0]] == [CHEAT]
    assert not alarms(network)


def test_what_a_dealer_did_that_is_left_out_already_is_not_judged_again(network):
    empty = m.Misdealt(
        dealer=CHEAT,
        commitments=b"",
        proof=np.zeros(0, dtype=np.int64),
        statement=bytes(64),
        private=b"",
    )
    network.sessions[0].protocol.current.holdings.distrust(CHEAT)
    network.deliver(0, 1, said(network, empty, sender=1))
    assert not network.blames
    other = replace(empty, dealer=2)
    network.deliver(0, 1, said(network, other, sender=1))
    assert [b.what for b in network.blames[0]] == ["accused a dealer without proof"]


def test_who_claims_to_be_far_ahead_and_falls_silent_is_not_waited_for_in_every_step():
    rounds = 5
    network = Setup(PEERS, TOLERANCE).train(Wire(), rounds=rounds, run=False)
    far = said(network, m.Position(reply=False), step=1 << 39)
    honest = [peer for peer in range(PEERS) if peer != CHEAT]
    for peer in honest:
        network.deliver(peer, CHEAT, far)
    network.wire.cut.add(CHEAT)
    network.run(done=lambda: all(network.sessions[p].finished for p in honest), until=1000)
    same_models(network, honest)
    waited = network.sessions[0].driver.context.deadlines.dealing
    assert network.wire.now < 2 * waited, "the first step waits for it, and no other"
