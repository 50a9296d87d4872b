"""Each cheat is refused and its author named, and the honest peers come to their model."""

from dataclasses import replace

import numpy as np
import pytest
from cheats import (
    CHEAT,
    HONEST,
    PEERS,
    ROUNDS,
    TOLERANCE,
    changed,
    proven,
    rows_of,
    with_dealer,
)
from wire import FEDERATION, KEYS, OPENED_PAIRS, TRAINING, Setup, Wire, same_models

from pdlrecover.engines.peers.identity.keyring import Signers
from pdlrecover.engines.peers.protocol import codec, evidence
from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.engines.peers.protocol.run_protocol import LONGEST
from pdlrecover.field import F61, Seeded


@pytest.fixture(scope="module")
def honest():
    simulation = Setup(PEERS, TOLERANCE).simulation(ROUNDS)
    return np.array(simulation.original.models[ROUNDS])


def resigned(data, signer, body=None, **header):
    """Return a message with another body or header, properly signed by this peer."""
    envelope = codec.decode(data)
    return codec.encode(
        replace(envelope.header, **header), body or envelope.body, KEYS[signer].sign
    )


def cheating(kind, change):
    """Return a wire on which the cheat's messages of this kind are changed before they leave."""

    def tamper(sender, recipient, data):
        if sender == CHEAT and isinstance(codec.decode(data).body, kind):
            return change(recipient, data)
        return [(sender, data)]

    return Wire(tamper=tamper)


def trained(wire, setup=None):
    setup = setup or Setup(PEERS, TOLERANCE)
    network = setup.train(wire, rounds=ROUNDS, run=False)
    network.run(done=lambda: all(network.sessions[p].finished for p in HONEST), until=500)
    return setup, network


def blamed_for(network, word):
    return {
        (by, blame.peer)
        for by, blames in network.blames.items()
        for blame in blames
        if word in blame.what
    }


def proven_by(network, peer):
    """Return against whom a peer's evidence is one to whoever has the public keys only."""
    verify = Signers(KEYS[0]._keys).verify
    scheme = network.sessions[peer].protocol.context.scheme
    kept = [blame for blame in network.blames.get(peer, []) if blame.evidence]
    found = [evidence.proven(scheme, verify, blame.evidence)[0] for blame in kept]
    assert found == [blame.peer for blame in kept]
    return set(found)


def test_a_wrong_sub_secret_is_found_and_its_sender_named(honest):
    def change(recipient, data):
        body = codec.decode(data).body
        values = F61.add(body.values, np.ones_like(body.values))
        return [(CHEAT, resigned(data, CHEAT, replace(body, values=values)))]

    _, network = trained(cheating(m.SubSecret, change))
    np.testing.assert_array_equal(same_models(network, HONEST), honest)
    assert blamed_for(network, "wrong sub-secret")
    assert network.blamed() == {CHEAT}


@pytest.mark.parametrize(("place", "named"), [(0, set()), (-1, {CHEAT})])
def test_a_lie_about_one_of_many_stored_sums_is_found_and_its_sender_named(place, named):
    """The first number says that its sender has the first sum; the last one is of the last sum.

    Who says that it does not have a sum is left out of that opening.
    """
    setup = Setup(PEERS, TOLERANCE)
    network, simulation = setup.train(rounds=14), setup.simulation(14)
    single = setup.scheme.quorums.blocks(setup.contribution(0).code.length)
    lies = []

    def change(recipient, data):
        body = codec.decode(data).body
        if len(body.values) == single:
            return [(CHEAT, data)]
        values = body.values.copy()
        values[place] = (values[place] + 1) % F61.modulus
        lies.append(recipient)
        return [(CHEAT, resigned(data, CHEAT, replace(body, values=values)))]

    lied = setup.recover(
        network, (0,), cheating(m.SubSecret, change), settings=OPENED_PAIRS, until=500
    )
    expected = simulation.recover(
        (0,), "pdlrecover", reason="malicious", settings=OPENED_PAIRS, accept_differencing=True
    )
    np.testing.assert_array_equal(same_models(lied), expected.weights)
    assert lies
    assert lied.blamed() == named


def test_a_sub_secret_of_the_wrong_size_is_refused(honest):
    def change(recipient, data):
        body = codec.decode(data).body
        return [(CHEAT, resigned(data, CHEAT, replace(body, values=body.values[:-1])))]

    _, network = trained(cheating(m.SubSecret, change))
    np.testing.assert_array_equal(same_models(network, HONEST), honest)
    assert blamed_for(network, "wrong size")  # by those whom it reached before they had opened
    assert network.blamed() == {CHEAT}


def left_out(setup):
    """Return in which steps the cheat was left out, by an honest peer's log."""
    log = setup.stores[0].log(TRAINING)
    return [CHEAT not in {held.dealer for held in entry.dealers} for entry in log]


@pytest.mark.parametrize("victims", [(5,), (1, 5), (0, 1, 2, 4, 5, 6)])
def test_a_dealer_whose_shares_are_not_on_its_polynomial_is_named_and_left_out(victims):
    """The proof is made for honest rows; the victims' rows are others, properly committed to."""

    def change(kind, binding, dealt):
        private = list(dealt.private)
        for victim in victims:
            private[victim] = changed(private[victim], np.array(1))
        return proven(kind, binding, private, rows_of(dealt.private))

    setup, network = with_dealer(change)
    assert left_out(setup) == [True] * ROUNDS
    assert network.blamed() == {CHEAT}
    for by in HONEST:
        assert proven_by(network, by) == {CHEAT}


def test_a_dealer_that_proves_its_wrong_shares_with_its_own_combination_is_found_out():
    """It recomputes the challenge and publishes what its rows give at the first peers' points."""

    def change(kind, binding, dealt):
        private = [changed(p, Seeded(i).elements(1)) for i, p in enumerate(dealt.private)]
        return proven(kind, binding, private, rows_of(private))

    setup, network = with_dealer(change)
    assert left_out(setup) == [True] * ROUNDS
    assert network.blamed() == {CHEAT}


@pytest.mark.slow
def test_masks_that_do_not_sum_to_zero_are_left_out_and_change_nothing():
    setup = Setup(PEERS, TOLERANCE)
    before = setup.train(rounds=8)
    straight = same_models(setup.recover(before, (0,)))
    again = Setup(PEERS, TOLERANCE)
    network = again.recover(again.train(rounds=8), (0,), run=False)
    cheat = network.sessions[CHEAT]
    cheated = []

    def deal(job):
        dealt, kind = job.run(), cheat.task.kind
        if not kind.masks:
            return dealt
        cheated.append(job.step)
        private = [changed(p, np.array(1)) for p in dealt.private]  # all polynomials plus 1
        return proven(kind, job.binding, private, rows_of(private))

    cheat.deal = deal
    honest = [p for p in network.sessions if p != CHEAT]
    network.run(done=lambda: all(network.sessions[p].finished for p in honest), until=500)
    np.testing.assert_array_equal(same_models(network, honest), straight)
    assert cheated
    assert network.blamed() == {CHEAT}
    assert all(proven_by(network, by) == {CHEAT} for by in honest)
    log = again.stores[1].log(cheat.protocol.context.run)
    assert all(CHEAT not in {h.dealer for h in log[step].dealers} for step in cheated)


def test_a_dealer_that_deals_in_two_ways_is_found_by_the_receipts():
    def change(recipient, data):
        if recipient >= 4:
            return [(CHEAT, data)]
        other = others[recipient]
        return [(CHEAT, other)] if other else []

    setup = Setup(PEERS, TOLERANCE)
    twin = Setup(PEERS, TOLERANCE)
    other_wire = Wire()
    twin.train(other_wire, rounds=1)
    others = {
        to: data
        for sender, to, kind, data in other_wire.sent
        if sender == CHEAT and kind == "Dealing"
    }
    wire = cheating(m.Dealing, change)
    network = setup.train(wire, rounds=1, run=False)
    network.run(done=lambda: all(network.sessions[p].finished for p in HONEST), until=500)
    same_models(network, HONEST)
    assert left_out(setup) == [True]
    assert network.blamed() == {CHEAT}
    assert blamed_for(network, "two different") >= {(p, CHEAT) for p in HONEST}
    assert all(proven_by(network, by) == {CHEAT} for by in HONEST)


def test_a_leader_that_proposes_two_sets_is_named_and_one_set_is_opened():
    def change(recipient, data):
        body = codec.decode(data).body
        smaller = replace(body, dealers=body.dealers[:-1])
        twin = resigned(data, CHEAT, smaller)
        return [(CHEAT, data), (CHEAT, twin)] if recipient % 2 else [(CHEAT, twin)]

    setup = Setup(PEERS, TOLERANCE)
    wire = cheating(m.Proposal, change)
    network = setup.train(wire, rounds=5, run=False)
    network.run(done=lambda: all(network.sessions[p].finished for p in HONEST), until=500)
    same_models(network, HONEST)
    assert network.blamed() == {CHEAT}
    for by in HONEST:
        assert proven_by(network, by) == {CHEAT}


def test_a_peer_that_votes_twice_is_named(honest):
    def change(recipient, data):
        body = codec.decode(data).body
        return [(CHEAT, data), (CHEAT, resigned(data, CHEAT, replace(body, choice=bytes(32))))]

    _, network = trained(cheating(m.Vote, change))
    np.testing.assert_array_equal(same_models(network, HONEST), honest)
    assert network.blamed() == {CHEAT}


def test_old_messages_that_are_sent_again_change_nothing(honest):
    setup = Setup(PEERS, TOLERANCE)
    network = setup.train(Wire(), rounds=ROUNDS, run=False)
    network.run(done=lambda: network.sessions[0].protocol.step == 1)
    old = list(network.wire.sent)
    for sender, to, _, data in old:
        network.deliver(to, sender, data)
    network.run()
    np.testing.assert_array_equal(same_models(network), honest)
    assert not network.blames


def test_a_message_in_another_peers_name_is_refused_and_its_bearer_named(honest):
    def change(recipient, data):
        return [
            (CHEAT, resigned(data, CHEAT, sender=(CHEAT + 1) % PEERS)),
            (CHEAT, resigned(data, (CHEAT + 1) % PEERS)),
            (CHEAT, resigned(data, CHEAT, federation=bytes(32))),
            (CHEAT, data),
        ]

    _, network = trained(cheating(m.Vote, change))
    np.testing.assert_array_equal(same_models(network, HONEST), honest)
    assert network.blamed() == {CHEAT}
    assert blamed_for(network, "in the name of peer 4")
    assert blamed_for(network, "wrong signature")
    assert blamed_for(network, "another federation")


def test_a_share_for_one_peer_is_not_taken_by_another(honest):
    setup = Setup(PEERS, TOLERANCE)
    network = setup.train(Wire(), rounds=ROUNDS, run=False)
    sent = network.wire.sent
    network.run(done=lambda: any(s == CHEAT and k == "Dealing" for s, _, k, _ in sent))
    data = next(d for s, to, k, d in sent if k == "Dealing" and to != 5 and s == CHEAT)
    network.deliver(5, CHEAT, data)
    network.run()
    np.testing.assert_array_equal(same_models(network), honest)
    assert blamed_for(network, "passed on a message") == {(5, CHEAT)}


@pytest.mark.parametrize(
    "spoil", [lambda d: d[:-7], lambda d: d + b"x" * 100, lambda d: b"", bytes]
)
def test_truncated_and_oversize_messages_are_refused(honest, spoil):
    def change(recipient, data):
        return [(CHEAT, spoil(data) if spoil is not bytes else bytes(len(data))), (CHEAT, data)]

    _, network = trained(cheating(m.Receipt, change))
    np.testing.assert_array_equal(same_models(network, HONEST), honest)
    assert network.blamed() == {CHEAT}


def test_false_accusations_fall_back_on_the_accuser(honest):
    def change(recipient, data):
        body = codec.decode(data).body
        accusation = m.Misdealt(
            dealer=0,
            commitments=b"",
            proof=np.zeros(0, dtype=np.int64),
            statement=body.statements[0],
            private=b"",
        )
        twice = m.Equivocation(accused=0, first=data, second=data)
        return [
            (CHEAT, data),
            (CHEAT, resigned(data, CHEAT, accusation)),
            (CHEAT, resigned(data, CHEAT, twice)),
        ]

    _, network = trained(cheating(m.Receipt, change))
    np.testing.assert_array_equal(same_models(network, HONEST), honest)
    assert network.blamed() == {CHEAT}


def test_a_true_row_of_an_honest_dealer_accuses_nobody(honest):
    """A peer shows the good row it got as if it were bad."""
    setup = Setup(PEERS, TOLERANCE)
    network = setup.train(Wire(), rounds=ROUNDS, run=False)
    network.run(done=lambda: network.sessions[CHEAT].protocol.current.state.name == "AGREEING")
    step = network.sessions[CHEAT].protocol.current
    data = next(d for s, to, k, d in network.wire.sent if k == "Dealing" and s == 0 and to == CHEAT)
    body = codec.decode(data).body
    private = KEYS[CHEAT].unseal(body.sealed, step.holdings.seal_context(0, CHEAT))
    accusation = m.Misdealt(
        dealer=0,
        commitments=body.commitments,
        proof=body.proof,
        statement=body.statement,
        private=private,
    )
    network.carry(CHEAT, None, step.context.broadcast(step.place, accusation))
    network.run()
    np.testing.assert_array_equal(same_models(network), honest)
    assert blamed_for(network, "accused an honest dealer") == {(p, CHEAT) for p in HONEST}


@pytest.mark.parametrize("moved", [-32, 32])
def test_bytes_moved_between_the_public_parts_accuse_nobody(honest, moved):
    """A peer shows its good row with the proof's first elements as a commitment, or vice versa."""
    setup = Setup(PEERS, TOLERANCE)
    network = setup.train(Wire(), rounds=ROUNDS, run=False)
    network.run(done=lambda: network.sessions[CHEAT].protocol.current.state.name == "AGREEING")
    step = network.sessions[CHEAT].protocol.current
    data = next(d for s, to, k, d in network.wire.sent if k == "Dealing" and s == 0 and to == CHEAT)
    body = codec.decode(data).body
    told = body.commitments + body.proof.astype("<i8").tobytes()
    border = len(body.commitments) + moved
    accusation = m.Misdealt(
        dealer=0,
        commitments=told[:border],
        proof=F61.elements(np.frombuffer(told[border:], dtype="<i8") % F61.modulus),
        statement=body.statement,
        private=KEYS[CHEAT].unseal(body.sealed, step.holdings.seal_context(0, CHEAT)),
    )
    network.carry(CHEAT, None, step.context.broadcast(step.place, accusation))
    network.run()
    np.testing.assert_array_equal(same_models(network), honest)
    assert network.blamed() == {CHEAT}
    assert left_out(setup) == [False] * ROUNDS


def test_a_dealer_that_signs_a_public_part_of_the_wrong_size_is_named_and_accuses_nobody():
    def change(kind, binding, dealt):
        longer = replace(dealt.public, commitments=dealt.public.commitments + bytes(32))
        return replace(dealt, public=longer)

    setup, network = with_dealer(change)
    assert left_out(setup) == [True] * ROUNDS
    assert network.blamed() == {CHEAT}
    assert blamed_for(network, "wrong size") == {(p, CHEAT) for p in HONEST}


def test_a_peer_with_another_model_is_named_and_stops_and_the_others_go_on():
    setup = Setup(PEERS, TOLERANCE)
    network = setup.train(Wire(), rounds=ROUNDS, run=False)
    network.run(done=lambda: network.sessions[CHEAT].protocol.step == 1)
    cheat = network.sessions[CHEAT]
    network.crash(CHEAT, setup.trainer(CHEAT, ROUNDS))
    entry = setup.stores[CHEAT].log(TRAINING)[0]
    entry.values[0] += 1
    network.start(CHEAT)
    network.run(done=lambda: all(network.sessions[p].finished for p in HONEST), until=100)
    same_models(network, HONEST)
    assert cheat is not network.sessions[CHEAT]
    assert CHEAT in network.halts
    assert "hold another model than this peer" in network.halts[CHEAT]
    assert not set(network.halts) & set(HONEST)
    assert blamed_for(network, "another model") & {(p, CHEAT) for p in HONEST}


def test_false_answers_to_a_peer_that_was_away_are_not_taken(honest):
    def tamper(sender, recipient, data):
        body = codec.decode(data).body
        if isinstance(body, m.Answers) and not lies:  # whoever is asked first
            entries = tuple(replace(e, values=e.values + 1) for e in body.entries)
            lies.append(recipient)
            return [(sender, resigned(data, sender, replace(body, entries=entries)))]
        return [(sender, data)]

    lies = []
    setup = Setup(PEERS, TOLERANCE)
    wire = Wire(tamper=tamper, cut={0})
    network = setup.train(wire, rounds=ROUNDS, run=False)
    network.run(done=lambda: all(network.sessions[p].finished for p in range(1, PEERS)))
    wire.cut.clear()
    network.run()
    same_models(network)
    assert lies == [0]


@pytest.mark.slow
def test_a_receipt_that_repeats_dealers_is_not_looked_at(honest):
    def change(recipient, data):
        body = codec.decode(data).body
        many = replace(body, held=body.held * 500, statements=body.statements * 500)
        return [(CHEAT, resigned(data, CHEAT, many))]

    _, network = trained(cheating(m.Receipt, change))
    same_models(network, HONEST)
    assert blamed_for(network, "malformed receipt") == {(p, CHEAT) for p in HONEST}


def behind(tamper=None):
    """Return a federation in which peer 0 was cut off from the start, and comes back now."""
    setup = Setup(PEERS, TOLERANCE)
    wire = Wire(cut={0})
    network = setup.train(wire, rounds=ROUNDS, run=False)
    network.run(done=lambda: all(network.sessions[p].finished for p in range(1, PEERS)))
    wire.cut.clear()
    wire.tamper = tamper
    return setup, network


def test_answers_that_nobody_asked_for_do_no_harm(honest):
    def tamper(sender, recipient, data):
        body = codec.decode(data).body
        arriving = [(sender, data)]
        if isinstance(body, m.Answers):  # the cheat is quicker than whoever was asked
            entry = m.LogEntry(dealers=(), values=np.arange(3))
            for first in range(ROUNDS):
                lie = replace(body, first=first, entries=(entry,))
                header = {"sender": CHEAT, "recipient": recipient}
                arriving.insert(0, (CHEAT, resigned(data, CHEAT, lie, **header)))
        return arriving

    _, network = behind(tamper)
    asked = network.wire.sent
    network.run()
    same_models(network)
    assert sum(kind == "Fetch" for _, _, kind, _ in asked) <= 2


def test_endless_or_huge_answers_are_not_kept():
    def tamper(sender, recipient, data):
        body = codec.decode(data).body
        if isinstance(body, m.Answers) and not lied:
            lied.append(sender)
            huge = m.LogEntry(dealers=(), values=np.zeros(LONGEST + 1, dtype=np.int64))
            return [(sender, resigned(data, sender, replace(body, entries=(huge,) * 4)))]
        return [(sender, data)]

    lied = []
    _, network = behind(tamper)
    network.run()
    same_models(network)
    assert lied
    assert not network.sessions[0].protocol._fetched


def test_a_peer_whose_own_log_is_another_stops_and_says_so_instead_of_fetching_for_ever():
    setup = Setup(PEERS, TOLERANCE)
    network = setup.train(Wire(), rounds=ROUNDS, run=False)
    network.run(done=lambda: network.sessions[0].protocol.step == 1)
    network.crash(0, setup.trainer(0, ROUNDS))
    network.run(done=lambda: all(network.sessions[p].finished for p in range(1, PEERS)))
    setup.stores[0].log(TRAINING)[0].values[0] += 1
    network.start(0)
    network.run(until=network.wire.now + 100, done=lambda: 0 in network.halts)
    assert "does not follow from this peer's log" in network.halts[0]
    assert set(network.halts) == {0}


def test_the_federation_digest_is_in_every_message():
    wire = Wire()
    Setup(PEERS, TOLERANCE).train(wire, rounds=1)
    assert all(codec.decode(d).header.federation == FEDERATION for _, _, _, d in wire.sent)
