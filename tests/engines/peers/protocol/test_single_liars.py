"""What one peer says or votes does not stop the others."""

import pytest
from wire import KEYS, TRAINING, Setup, Wire, same_models

from pdlrecover import Tolerance
from pdlrecover.engines.peers.protocol import codec
from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.engines.peers.protocol.waiting import Missing

ONE_OF_EACH = Tolerance(colluders=1, dropouts=1, liars=1)
CHEAT = 3


@pytest.mark.parametrize(("peers", "removed"), [(5, (4,)), (7, (6,))])
def test_a_peer_that_says_it_holds_another_model_stops_nobody(peers, removed):
    """Here the quorum is all that are kept, so that the recovery cannot do without the liar."""
    setup, told = Setup(peers, ONE_OF_EACH), set()
    trained = setup.train(rounds=4)

    def tamper(sender, recipient, data):
        envelope = codec.decode(data)
        if sender != CHEAT or recipient in told or not isinstance(envelope.body, m.Receipt):
            return [(sender, data)]
        told.add(recipient)
        header = m.Header(**{**vars(envelope.header), "log": b"x" * 32})
        false = codec.encode(header, envelope.body, KEYS[CHEAT].sign)
        return [(sender, false), (sender, data)]

    wire = Wire(tamper=tamper)
    recovered = setup.recover(trained, removed, wire, method="accelerated-retrain")
    assert len(told) == peers - 2
    assert not recovered.halts
    same_models(recovered)


def test_where_all_models_differ_and_no_quorum_is_left_peers_wait_and_say_whose_differ():
    """Two of five hold a model of their own each: they stop. The others cannot go on, or judge."""
    setup = Setup(5, ONE_OF_EACH)
    network = setup.train(Wire(), rounds=6, run=False)
    network.run(done=lambda: all(each.protocol.step == 1 for each in network.sessions.values()))
    for peer in (3, 4):
        network.crash(peer, setup.trainer(peer, 6))
        setup.stores[peer].log(TRAINING)[0].values[0] += peer
        network.start(peer)
    network.run(until=100.0)
    assert set(network.halts) == {3, 4}
    for peer in range(3):
        waiting = network.sessions[peer].protocol.waiting(network.wire.now)
        assert (waiting.what, waiting.differing) == (Missing.AGREEMENT, (3, 4))
        assert network.blamed(peer) == {3, 4}


def test_who_is_removed_by_the_later_of_two_votes_can_be_taken_back():
    """Two removals that together leave too few: once both are known, only one of them counts."""
    setup = Setup(5, ONE_OF_EACH)
    training = setup.train(Wire(), rounds=6, run=False)
    protocols = [training.sessions[peer].protocol for peer in range(5)]
    training.run(done=lambda: protocols[2].step == 2)
    for protocol in protocols:
        protocol.leave_out(frozenset({1}))
        protocol.leave_out(frozenset({0}))
    training.run(until=500.0)
    same_models(training)
    dealt = training.sessions[2].driver.participation.dealt
    assert (dealt[0], dealt[1], dealt[2]) == (2, 6, 6)


def test_a_peer_that_hears_nobody_waits_for_a_quorum_and_not_for_shares():
    setup = Setup(7, Tolerance(colluders=1, dropouts=2, liars=1))
    trained = setup.train(rounds=8)
    wire = Wire()
    recovering = setup.recover(trained, (6,), wire, method="historical", run=False)
    wire.cut = set(range(6))
    recovering.run(until=wire.now + 1000.0, done=lambda: False)
    waiting = recovering.sessions[1].protocol.waiting(wire.now)
    assert (waiting.what, waiting.lacking) == (Missing.QUORUM, ())
    wire.cut = set()
    recovering.run(until=wire.now + 500.0)
    same_models(recovering)


def test_a_peer_that_is_behind_says_whose_answers_do_not_come():
    setup, dropped = Setup(5, ONE_OF_EACH), [True]

    def tamper(sender, recipient, data):
        is_answer = isinstance(codec.decode(data).body, m.Answers)
        return [] if dropped[0] and is_answer else [(sender, data)]

    wire = Wire(tamper=tamper)
    training = setup.train(wire, rounds=6, run=False)
    wire.cut = {4}
    training.run(done=lambda: training.sessions[0].protocol.step == 4)
    wire.cut = set()
    behind = training.sessions[4].protocol
    assert behind.waiting(wire.now) is None
    training.run(until=wire.now + 3 * setup.deadlines.message, done=lambda: False)
    waiting = behind.waiting(wire.now)
    assert (waiting.what, waiting.step) == (Missing.ANSWERS, 0)
    assert set(waiting.lacking) | set(waiting.away) == {0, 1, 2, 3}
    dropped[0] = False
    training.run(until=wire.now + 500.0)
    same_models(training)
    assert behind.waiting(wire.now) is None
