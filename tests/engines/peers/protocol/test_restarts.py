"""What a peer said before it was killed, it stands by; and an outage is over when peers return."""

import hashlib

import numpy as np
import pytest
from wire import TRAINING, Setup, Wire, same_models

from pdlrecover import Tolerance
from pdlrecover.engines.peers.protocol import codec, dealing
from pdlrecover.engines.peers.protocol.deadlines import Deadlines
from pdlrecover.engines.peers.protocol.effects import Compute
from pdlrecover.engines.peers.protocol.messages import Dealing, Proposal, SubSecret, Vote, choice_of
from pdlrecover.engines.peers.protocol.states import StepState
from pdlrecover.field import F61

TOLERANCE = Tolerance(colluders=1, dropouts=2)
NEEDS_FOUR = Tolerance(colluders=1, dropouts=1)
HOURS = 3600.0


def steps(network, peers):
    return [network.sessions[p].protocol.current for p in peers]


def test_a_federation_file_that_changes_while_peers_vote_changes_nothing_of_the_step():
    """The dealing of peer 3 is not saved at peer 0, and those of the others are, everywhere."""
    setup, before = Setup(5, TOLERANCE), [True]

    def tamper(sender, recipient, data):
        body = codec.decode(data).body
        final = isinstance(body, Vote) and body.final
        hidden = isinstance(body, Dealing) and (sender, recipient) == (3, 0)
        return [] if before and (final or hidden) else [(sender, data)]

    wire = Wire(tamper=tamper)
    network = setup.train(wire, rounds=2, run=False)
    network.run(
        done=lambda: all(current.ballot.cast for current in steps(network, range(5))), until=30
    )
    assert all(current.ballot.cast for current in steps(network, range(5)))
    before.clear()
    wire.queue.clear()
    wire.sent.clear()
    setup.federation = hashlib.sha256(b"other deadlines").digest()
    for peer in range(5):
        network.crash(peer, setup.trainer(peer, 2))
    for peer in range(5):
        network.start(peer)
    network.run(until=300)
    same_models(network)
    assert network.alive == set(range(5))
    assert not network.blames
    assert not [text for _, text in network.notes if "came out otherwise" in text]
    assert {codec.decode(d).header.federation for *_, d in wire.sent} == {setup.federation}


def differing(session):
    """Return a way to deal an update that differs in its last bit."""

    def deal(job):
        task = session.task
        integers = task.compute()
        integers[0] += 1
        return dealing.deal_vector(task.kind, F61.from_signed(integers), job.binding, job.seed)

    return deal


@pytest.mark.parametrize("same", [True, False])
def test_a_peer_whose_update_differs_after_a_crash_does_not_deal_a_second_time(same):
    setup = Setup(5, TOLERANCE)
    wire = Wire()
    network = setup.train(wire, rounds=2, run=False)
    network.run(done=lambda: any(s == 2 and kind == "Dealing" for s, _, kind, _ in wire.sent))
    assert steps(network, [2])[0].state is StepState.GATHERING
    assert not steps(network, [2])[0].ballot.cast
    again = setup.trainer(2, 2)
    if not same:
        again.deal = differing(again)
    network.crash(2, again)
    network.start(2)
    network.run(until=300, done=lambda: again.protocol.step > 0)
    again.deal = Compute.run
    network.run(until=300)
    same_models(network)
    assert not network.blames
    dealings = {
        codec.decode(d).body.commitments
        for s, _, kind, d in wire.sent
        if s == 2 and kind == "Dealing" and codec.decode(d).header.step == 0
    }
    assert len(dealings) == 1
    told = [peer for peer, text in network.notes if "came out otherwise" in text]
    assert told == ([] if same else [2])


def test_which_dealing_it_is_is_kept_before_anybody_gets_it():
    setup = Setup(5, TOLERANCE)
    network = setup.train(Wire(), rounds=1, run=False)
    current, order = steps(network, [1])[0], []
    store = setup.stores[1]
    promise, post = store.promise, network.post
    store.promise = lambda run, values, rows: (order.extend(values), promise(run, values, rows))
    network.post = lambda peer, send: (peer == 1 and order.append(send.kind), post(peer, send))
    network.run(done=lambda: current.state is not StepState.COMPUTING)
    assert order[:2] == ["step", "Dealing"]


@pytest.mark.slow
def test_after_an_outage_of_hours_peers_go_on_within_a_minute():
    """Two of five stay and cannot go on; two come back, restarted."""
    deadlines = Deadlines(dealing=5.0, view=3.0, receipts=1.0, resend=2.0)
    setup = Setup(5, NEEDS_FOUR, deadlines)
    assert setup.context(0, TRAINING, range(5)).quorum == 4
    network = setup.train(Wire(), rounds=2, run=False)
    for peer in (2, 3, 4):
        network.crash(peer, setup.trainer(peer, 2))
    network.run(until=2 * HOURS)
    assert {current.state for current in steps(network, (0, 1))} == {StepState.AGREEING}
    assert {current.ballot.view for current in steps(network, (0, 1))} == {0}
    for peer in (2, 3):
        network.start(peer)
    network.run(until=2 * HOURS + 60)
    same_models(network, range(4))
    assert not network.blames


def test_a_view_lasts_eight_times_as_long_as_the_first_at_most():
    setup = Setup(5, TOLERANCE)
    network = setup.train(Wire(), rounds=1, run=False)
    (current,) = steps(network, [0])
    lasts = []
    for view in (0, 1, 7, 8, 500):
        current.ballot.view = view
        current._start_view(100.0)
        lasts.append(current._view_at - 100.0)
    assert lasts == [3.0, 6.0, 24.0, 24.0, 24.0]


@pytest.mark.slow
def test_however_far_apart_their_views_are_peers_come_together():
    """All five that are there are needed; one may lie, so that nobody follows a single one."""
    setup = Setup(7, Tolerance(colluders=1, dropouts=2, liars=1))
    assert setup.context(0, TRAINING, range(7)).quorum == 5
    apart = [True]

    def tamper(sender, recipient, data):
        body = codec.decode(data).body
        return [] if apart and isinstance(body, Proposal) else [(sender, data)]

    wire = Wire(tamper=tamper, cut={5, 6})
    network = setup.train(wire, rounds=1, run=False)
    five = steps(network, range(5))
    network.run(done=lambda: all(current.state is StepState.AGREEING for current in five), until=30)
    for current, view in zip(five, (20, 0, 9, 3, 1), strict=True):
        current.ballot.view = view
    apart.clear()
    network.run(until=800, done=lambda: all(network.sessions[p].finished for p in range(5)))
    same_models(network, range(5))


def test_a_leader_that_has_settled_a_set_says_its_proposal_again():
    """The proposal to peer 1 is lost; nothing is opened before that peer has settled, too."""
    setup = Setup(5, TOLERANCE)
    lost = []

    def tamper(sender, recipient, data):
        body = codec.decode(data).body
        if isinstance(body, Proposal) and recipient == 1 and not lost:
            lost.append(sender)
            return []
        early = isinstance(body, SubSecret) and not current.ballot.settled
        return [] if early else [(sender, data)]

    wire = Wire(tamper=tamper)
    network = setup.train(wire, rounds=1, run=False)
    (current,) = steps(network, [1])
    network.run(until=60)
    assert lost == [0]
    assert current.ballot.settled
    assert current.ballot.view == 0  # the leader was in time
    same_models(network)


def test_a_peer_that_is_a_step_ahead_says_its_proposal_again_after_a_crash():
    setup = Setup(5, TOLERANCE)
    network = setup.train(Wire(), rounds=2, run=False)
    leader = network.sessions[0]
    network.run(done=lambda: leader.protocol.step == 1)
    proposal = leader.protocol.said.proposal
    assert proposal is not None
    again = setup.trainer(0, 2)
    again.start(network.wire.now)
    assert again.protocol.said.proposal == proposal
    assert again.protocol.said.votes == leader.protocol.said.votes
    np.testing.assert_array_equal(again.protocol.said.part.values, leader.protocol.said.part.values)


def test_peers_that_have_not_settled_a_set_do_so_with_one_that_has():
    """Peers 2 and 3 hear nothing of the set; its leader and the next one are killed then."""
    setup, alone = Setup(5, TOLERANCE), [True]

    def tamper(sender, recipient, data):
        word = isinstance(codec.decode(data).body, Proposal | Vote)
        return [] if alone and word and recipient in (2, 3) else [(sender, data)]

    network = setup.train(Wire(tamper=tamper), rounds=2, run=False)
    one = steps(network, [4])[0]
    network.run(done=lambda: one.state is StepState.OPENING, until=30)
    assert one.state is StepState.OPENING
    assert one.ballot.order == (0, 1, 2, 3, 4)
    settled = one.ballot.settled.choice
    for peer in (0, 1):
        network.crash(peer, setup.trainer(peer, 2))
    network.wire.queue.clear()
    alone.clear()
    network.run(until=200)
    same_models(network, [2, 3, 4])
    assert choice_of(setup.stores[3].log(TRAINING)[0].dealers) == settled
    assert not network.blames
