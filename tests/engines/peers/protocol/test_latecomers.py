"""Who keeps others waiting is not waited for, for longer and longer, and is forgiven."""

import pytest
from wire import Setup, Wire

from pdlrecover import Tolerance
from pdlrecover.engines.peers.protocol import codec
from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.engines.peers.protocol.latecomers import LONGEST, Latecomers

CHEAT, PEERS, ROUNDS = 6, 7, 40


def pauses(latecomers, first, times):
    """Return how long peer 3 is passed over each time, if it is late whenever it is waited for."""
    found, step = [], first
    for _ in range(times):
        latecomers.note(step, late={3}, in_time={1})
        step += 1
        begin = step
        while 3 in latecomers.passed_over(step):
            step += 1
        found.append(step - begin)
    return found, step


def test_pauses_double_up_to_the_longest():
    found, _ = pauses(Latecomers(), 0, 9)
    assert found == [1, 2, 4, 8, 16, 32, 64, LONGEST, LONGEST]


def test_who_is_in_time_again_is_forgiven_by_half():
    latecomers = Latecomers()
    _, step = pauses(latecomers, 0, 3)
    for _ in range(LONGEST):
        latecomers.note(step, late=(), in_time={3})
        step += 1
    found, step = pauses(latecomers, step, 1)
    assert found == [4]  # 4 was halved to 2, and doubled again
    for _ in range(3 * LONGEST):
        latecomers.note(step, late=(), in_time={3})
        step += 1
    found, _ = pauses(latecomers, step, 1)
    assert found == [1]


@pytest.mark.parametrize("peers", [5, 7, 14, 30])
def test_who_withholds_from_each_in_its_turn_is_not_forgiven_between(peers):
    """So each victim waits in vain a few times, and then once in 65 steps at most."""
    latecomers, steps, in_vain = Latecomers(), 20 * LONGEST, 0
    for step in range(steps):
        awaited = {3} - latecomers.passed_over(step)
        late = awaited if step % peers < 2 else set()
        latecomers.note(step, late=late, in_time=awaited - late)
        in_vain += len(late)
    assert in_vain <= 6 + steps / (LONGEST + 1)


def trained(tamper=None):
    setup = Setup(PEERS, Tolerance(colluders=1, dropouts=2, liars=1))
    network = setup.train(Wire(tamper=tamper), rounds=ROUNDS)
    assert all(session.finished for session in network.sessions.values())
    return network


@pytest.mark.parametrize("victims", [tuple(range(PEERS)), (2, 4)], ids=["all", "two"])
def test_a_dealer_that_withholds_costs_a_few_deadlines_and_not_one_in_every_step(victims):
    deadline = Setup(PEERS).deadlines.dealing

    def withhold(sender, recipient, data):
        is_dealing = sender == CHEAT and isinstance(codec.decode(data).body, m.Dealing)
        return [] if is_dealing and recipient in victims else [(sender, data)]

    honest, cheated = trained().wire.now, trained(withhold).wire.now
    assert (cheated - honest) / deadline < 8  # in steps 0, 2, 5, 10, 19 and 36, of 40


def test_everybody_is_waited_for_while_all_are_in_time():
    network = trained()
    for session in network.sessions.values():
        dealers = [entry.dealers for entry in session._store.log(session._run)]
        assert all(len(each) == PEERS for each in dealers)
