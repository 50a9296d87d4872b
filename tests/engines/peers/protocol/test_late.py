"""What comes too late is not read, and nobody is told more than it needs."""

import pytest
from wire import Setup, Wire

from pdlrecover import Tolerance
from pdlrecover.engines.peers.protocol import codec
from pdlrecover.engines.peers.protocol.effects import Blame, Send

PEERS, ROUNDS = 5, 4
TOLERANCE = Tolerance(colluders=1, dropouts=1)


@pytest.fixture(scope="module")
def trained():
    """A run in which nothing was lost, and all that was said in it to peer 0."""
    setup = Setup(PEERS, TOLERANCE)
    network = setup.train(Wire(), rounds=ROUNDS)
    said = [(sender, kind, data) for sender, to, kind, data in network.wire.sent if to == 0]
    return network, said


def step(data):
    return codec.decode_header(data)[0].step


def spoilt(data):
    return data[:-1] + bytes([data[-1] ^ 1])


def test_the_last_words_of_a_step_are_answered_by_nothing(trained):
    network, _ = trained
    assert "Position" not in {kind for _, _, kind, _ in network.wire.sent}


def test_a_late_message_is_read_no_further_than_its_header(trained):
    network, said = trained
    protocol = network.sessions[0].protocol
    assert protocol.step == ROUNDS
    for sender, _, data in said:
        found = protocol.receive(spoilt(data), sender, network.wire.now)
        if step(data) == ROUNDS - 1:
            assert found == []
        else:
            (answer,) = found
            assert isinstance(answer, Send)
            assert (answer.to, answer.kind) == (sender, "Position")


def test_a_late_message_in_anothers_name_is_still_blamed(trained):
    network, said = trained
    sender, _, data = said[0]
    other = next(peer for peer in range(1, PEERS) if peer != sender)
    (blame,) = network.sessions[0].protocol.receive(data, other, network.wire.now)
    assert isinstance(blame, Blame)
    assert (blame.peer, blame.what) == (other, f"sent a message in the name of peer {sender}")


def test_nobody_is_dealt_to_twice_while_all_wait_for_a_slow_peer():
    setup = Setup(PEERS, TOLERANCE)
    network = setup.train(Wire(), rounds=1, run=False)
    compute, wait = network.compute, 3 * setup.deadlines.resend

    def slowly(peer, session, job):
        delay = wait if peer == 4 else 0.0
        network.wire.later(delay, lambda: compute(peer, session, job))

    network.compute = slowly
    network.run()
    dealings = [(sender, to) for sender, to, kind, _ in network.wire.sent if kind == "Dealing"]
    assert network.wire.now > wait
    assert sorted(dealings) == [(a, b) for a in range(PEERS) for b in range(PEERS) if a != b]


def test_nothing_is_said_twice_in_a_long_step_that_comes_further_in_time():
    setup = Setup(PEERS, TOLERANCE)
    network = setup.train(Wire(delay=0.2), rounds=1)
    assert network.wire.now > setup.deadlines.resend
    assert len(network.wire.sent) == len(set(network.wire.sent))
    assert "Position" not in {kind for _, _, kind, _ in network.wire.sent}
