"""Whatever the wire does, peers never hold different models for one round."""

import copy
import functools
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from wire import KEYS, OPENED_PAIRS, SETTINGS, TRAINING, Setup, Wire, same_models

from pdlrecover import Tolerance
from pdlrecover.engines.peers.protocol import codec
from pdlrecover.engines.peers.protocol.deadlines import Deadlines
from pdlrecover.engines.peers.protocol.holdings import Holdings
from pdlrecover.engines.peers.protocol.messages import NOTHING, Proposal, SubSecret, Vote
from pdlrecover.engines.peers.protocol.step_memory import PROMISE, PROMISE_NAME

FEW = settings(
    max_examples=int(os.environ.get("PEER_EXAMPLES", "12")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
TOLERANCE = Tolerance(colluders=1, dropouts=2)


def logs_agree(setup, run=TRAINING, peers=None):
    """Check that all stored logs are beginnings of the longest."""
    logs = [setup.stores[p].log(run) for p in peers or range(setup.peers)]
    longest = max(logs, key=len)
    for log in logs:
        digest = expected = NOTHING
        for mine, theirs in zip(log, longest, strict=False):
            digest, expected = mine.after(digest), theirs.after(expected)
            assert digest == expected


@pytest.mark.slow
@FEW
@given(
    seed=st.integers(0, 10**6),
    loss=st.sampled_from([0.0, 0.05, 0.25]),
    double=st.sampled_from([0.0, 0.3]),
    spread=st.sampled_from([0.0, 0.2, 4.0]),
)
def test_losses_delays_doubles_and_reorderings_never_split_the_peers(seed, loss, double, spread):
    setup = Setup(5, TOLERANCE)
    wire = Wire(seed=seed, loss=loss, double=double, spread=spread)
    network = setup.train(wire, rounds=3)
    same_models(network)
    logs_agree(setup)
    assert not network.blames
    assert not network.halts


@pytest.mark.slow
@FEW
@given(
    seed=st.integers(0, 10**6),
    victims=st.lists(st.integers(0, 4), min_size=1, max_size=5, unique=True),
    times=st.lists(st.floats(0.0, 1.2), min_size=5, max_size=5),
    away=st.floats(0.1, 30.0),
)
def test_peers_that_crash_at_any_moment_come_back_to_the_same_model(seed, victims, times, away):
    setup = Setup(5, TOLERANCE)
    wire = Wire(seed=seed, spread=0.05)
    network = setup.train(wire, rounds=4, run=False)
    for victim, moment in zip(victims, times, strict=False):
        wire.later(moment, lambda v=victim: network.crash(v, setup.trainer(v, 4)))
        wire.later(moment + away, lambda v=victim: network.start(v))
    network.run(done=lambda: len(network.alive) == 5 and finished(network) and wire.now > 1.3)
    same_models(network)
    logs_agree(setup)
    assert not network.blames


SPARE = Tolerance(colluders=1, dropouts=3)


@functools.cache
def trained_once():
    """Six peers that have trained, and could lose half of them."""
    setup = Setup(6, SPARE)
    return setup, setup.train(rounds=8)


@pytest.mark.slow
@settings(FEW, max_examples=FEW.max_examples // 3 + 1)
@given(
    seed=st.integers(0, 10**6),
    loss=st.sampled_from([0.05, 0.2]),
    double=st.sampled_from([0.0, 0.3]),
    victims=st.lists(st.integers(0, 4), min_size=1, max_size=2, unique=True),
    times=st.lists(st.floats(0.0, 8.0), min_size=2, max_size=2),
    away=st.floats(0.1, 30.0),
    how=st.sampled_from([SETTINGS, OPENED_PAIRS]),
)
def test_a_recovery_with_losses_and_crashes_comes_to_one_model(
    seed, loss, double, victims, times, away, how
):
    """Peer 5 is removed: stored sums, dot products, directions and fresh sums, and catching up.

    The others wait for what was lost, so that only those that crash miss shares: two may.
    """
    before, trained = trained_once()
    patient = Deadlines(dealing=60.0, receipts=60.0, view=90.0, resend=1.0)
    setup = Setup(6, SPARE, patient)
    setup.stores = copy.deepcopy(before.stores)
    wire = Wire(seed=seed, loss=loss, double=double, spread=0.05)
    network = setup.recover(trained, (5,), wire, run=False, settings=how)
    for victim, moment in zip(victims, times, strict=False):
        known = trained.sessions[victim]
        again = functools.partial(setup.recoverer, victim, known, (5,), settings=how)
        wire.later(moment, lambda v=victim, a=again: network.crash(v, a()))
        wire.later(moment + away, lambda v=victim: network.start(v))
    network.run(
        until=1000,
        done=lambda: wire.now > max(times) and len(network.alive) == 5 and finished(network),
    )
    same_models(network)
    run = network.sessions[0].protocol.context.run
    logs_agree(setup, run, range(5))
    kinds = {len(entry.dealers) > 0 for entry in setup.stores[0].log(run)}
    assert kinds == {True, False}
    assert not network.blames
    assert not network.halts


def finished(network):
    return all(network.sessions[p].finished for p in network.alive)


def test_a_peer_that_is_away_is_left_out_and_catches_up():
    setup = Setup(5, TOLERANCE)
    wire = Wire(cut={2})
    network = setup.train(wire, rounds=3, run=False)
    network.run(done=lambda: all(network.sessions[p].finished for p in (0, 1, 3, 4)))
    assert wire.now < 5.0 + 1.0 + 3.0 + 2.0  # only the first step waits for the one that is away
    assert all(len(e.dealers) == 4 for e in setup.stores[0].log(TRAINING))
    wire.cut.clear()
    network.run()
    same_models(network)
    assert setup.stores[2].shares(TRAINING, 0, [0]) is None
    assert setup.stores[1].shares(TRAINING, 0, [0, 1, 3, 4]) is not None


def test_what_a_peer_missed_counts_as_a_dropout_when_it_is_replayed():
    setup = Setup(5, TOLERANCE)
    wire = Wire(cut={2})
    network = setup.train(wire, rounds=10, run=False)
    network.run(done=lambda: network.sessions[0].protocol.step >= 4)
    wire.cut.clear()
    network.run()
    same_models(network)
    whole = [len(e.dealers) for e in setup.stores[0].log(TRAINING)]
    assert whole[:4] == [4] * 4
    assert whole[-1] == 5
    recovered = setup.recover(network, (4,))
    model = same_models(recovered)
    assert np.isfinite(model).all()
    assert not recovered.blames


def test_what_is_remembered_of_a_step_is_kept_under_that_step():
    """First votes come last, so that a peer's own final vote and the opening are one batch."""
    setup = Setup(5, TOLERANCE)
    assert setup.context(4, TRAINING, range(5)).quorum == 3

    def tamper(sender, recipient, data):
        body = codec.decode(data).body
        if recipient == 4 and isinstance(body, Vote) and not body.final:
            wire.later(0.5, lambda: network.deliver(4, sender, data))
            return []
        spare = recipient == 4 and isinstance(body, Vote) and sender > 1
        return [] if spare else [(sender, data)]

    wire = Wire(tamper=tamper)
    network = setup.train(wire, rounds=2, run=False)
    kept, promise = [], setup.stores[4].promise

    def noting(run, values, shares):
        if value := values.get(PROMISE_NAME):
            found = PROMISE.decode(value)
            kept.append((found.step, found.seed))
        promise(run, values, shares)

    setup.stores[4].promise = noting
    network.run()
    same_models(network)
    seeds = {}
    for step, seed in kept:
        seeds.setdefault(step, set()).add(seed)
    assert all(len(found) == 1 for found in seeds.values())
    assert [step for step, _ in kept].count(0) == 3  # the dealing, both votes


NEEDS_ALL = Tolerance(colluders=1, dropouts=1)


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.slow
def test_a_peer_that_has_opened_a_step_says_its_words_in_it_again(killed):
    """All of four kept peers are needed; what one sends the others in a step of dots is lost."""
    setup = Setup(5, NEEDS_ALL)
    assert setup.context(0, TRAINING, range(4)).quorum == 4

    def tamper(sender, recipient, data):
        envelope = codec.decode(data)
        if sender == 0 and isinstance(envelope.body, SubSecret) and envelope.header.step == lost[0]:
            return []
        return [(sender, data)]

    trained = setup.train(rounds=8)
    lost = [None]
    wire = Wire(tamper=tamper)
    network = setup.recover(trained, (4,), wire, run=False)
    protocol = network.sessions[0].protocol
    network.run(
        done=lambda: (
            protocol.current and protocol.current.task.kind and protocol.current.task.kind.masks
        )
    )
    lost[0] = protocol.step
    network.run(done=lambda: protocol.step > lost[0], until=50)
    assert protocol.step == lost[0] + 1
    assert all(network.sessions[p].protocol.step == lost[0] for p in (1, 2, 3))
    if killed:
        network.crash(0, setup.recoverer(0, trained.sessions[0], (4,)))
        network.start(0)
    lost[0] = None
    network.run(until=300)
    same_models(network)
    assert not network.blames


def test_a_lock_comes_back_with_its_set_and_its_rows():
    """Four lock on a set of four; all are killed; four come back, without one of its dealers."""
    setup = Setup(5, TOLERANCE)

    def tamper(sender, recipient, data):
        body = codec.decode(data).body
        final = isinstance(body, Vote) and body.final
        return [] if final and not restarted else [(sender, data)]

    restarted = []
    wire = Wire(tamper=tamper, cut={4})
    network = setup.train(wire, rounds=2, run=False)
    four = [network.sessions[p] for p in range(4)]
    network.run(
        done=lambda: all(p.protocol.current.ballot.locked_view >= 0 for p in four), until=30
    )
    locked = {p.protocol.current.ballot.locked for p in four}
    assert len(locked) == 1
    for peer in range(5):
        network.crash(peer, setup.trainer(peer, 2))
    restarted.append(True)
    wire.queue.clear()
    wire.cut = {3}
    for peer in range(5):
        network.start(peer)
    network.run(done=lambda: all(network.sessions[p].finished for p in (0, 1, 2)), until=500)
    same_models(network, [0, 1, 2])
    assert [held.dealer for held in setup.stores[0].log(TRAINING)[0].dealers] == [0, 1, 2, 3]
    assert not network.blames


def test_without_a_quorum_nothing_is_opened_and_it_goes_on_when_peers_return():
    setup = Setup(5, TOLERANCE)
    wire = Wire(cut={1, 2, 3})
    network = setup.train(wire, rounds=2, run=False)
    network.run(until=100.0)
    assert all(not setup.stores[p].log(TRAINING) for p in range(5))
    wire.cut.clear()
    network.run()
    same_models(network)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "step"), [(SETTINGS, 7), (OPENED_PAIRS, 3), (OPENED_PAIRS, 4)])
def test_a_recovery_that_is_killed_half_way_goes_on_where_it_was(how, step):
    """With opened pairs step 3 is the one that opens many sums."""
    setup = Setup(5, TOLERANCE)
    trained = setup.train(rounds=10)
    alone = same_models(setup.recover(trained, (0, 4), method="retrain"))
    network = setup.recover(trained, (0, 4), run=False, settings=how)
    network.run(done=lambda: network.sessions[1].protocol.step >= step)
    for peer in (1, 2, 3):
        again = setup.recoverer(peer, trained.sessions[peer], (0, 4), settings=how)
        network.crash(peer, again)
    for peer in (1, 2, 3):
        network.start(peer)
    network.run()
    interrupted = same_models(network)
    fresh = Setup(5, TOLERANCE)
    straight = same_models(fresh.recover(fresh.train(rounds=10), (0, 4), settings=how))
    np.testing.assert_array_equal(interrupted, straight)
    assert not np.array_equal(interrupted, alone)


def test_only_its_recipient_can_read_a_share():
    setup = Setup(5, TOLERANCE)
    wire = Wire()
    setup.train(wire, rounds=1)
    dealings = [(a, b, d) for a, b, kind, d in wire.sent if kind == "Dealing"]
    assert len(dealings) == 20
    for sender, recipient, data in dealings:
        envelope = codec.decode(data)
        context = setup.context(recipient, TRAINING, range(5))
        bound_to = Holdings(context, None, envelope.header).seal_context(sender, recipient)
        readable = [
            p for p in range(5) if KEYS[p].unseal(envelope.body.sealed, bound_to) is not None
        ]
        assert readable == [recipient]
        other = Holdings(context, None, envelope.header).seal_context(sender, (recipient + 1) % 5)
        assert KEYS[recipient].unseal(envelope.body.sealed, other) is None


def test_at_most_one_set_is_ever_voted_through_in_a_step():
    setup = Setup(5, TOLERANCE)

    def tamper(sender, recipient, data):
        body = codec.decode(data).body
        hidden = isinstance(body, Proposal) and body.view < 2 and recipient in (0, 1, 2)
        return [] if hidden else [(sender, data)]

    wire = Wire(tamper=tamper)
    network = setup.train(wire, rounds=2)
    same_models(network)
    choices = {}
    for _, _, kind, data in wire.sent:
        if kind == "SubSecret":
            envelope = codec.decode(data)
            choices.setdefault(envelope.header.step, set()).add(envelope.body.choice)
    assert len(choices) == 2
    assert all(len(found) == 1 for found in choices.values())
