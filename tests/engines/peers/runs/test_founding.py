"""Peers agree on an epoch before they train: what they signed in an earlier life is of another run.

A *life* is a federation from empty histories on; the federation file stays the same.
"""

import logging
from types import SimpleNamespace

import numpy as np
import pytest
import small
import torch
import whole_peers
from memory_store import MemoryStore
from wire import KEYS, Network, Wire, same_models

from pdlrecover import Tolerance
from pdlrecover.engines.peers.federation.membership import Membership
from pdlrecover.engines.peers.federation.plan import Model
from pdlrecover.engines.peers.identity.own_keys import Identity
from pdlrecover.engines.peers.protocol import codec, evidence
from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.engines.peers.protocol.deadlines import Deadlines
from pdlrecover.engines.peers.removals.votes import Removals
from pdlrecover.engines.peers.runs.founding import Lives
from pdlrecover.engines.peers.runs.run_factory import RunFactory, training_run
from pdlrecover.errors import MessageError, PlanError
from pdlrecover.learning import Dataset, FlatModel

PEERS, ROUNDS, CHEAT = 7, 3, 6
NAMES = whole_peers.TREES[:PEERS]
MEMBERSHIP = Membership(
    name="clinics",
    peers=tuple(Identity.generate(name).member(f"{name}:7400") for name in NAMES),
    tolerance=Tolerance(colluders=1, dropouts=2, liars=1),
    model=Model(name="whole_peers:model", shape=(3,), classes=3),
    training=whole_peers.training(PEERS, ROUNDS),
    recovery=whole_peers.RECOVERY.__class__(preparation=2, final=0),
    deadlines=Deadlines(dealing=5.0, view=3.0, receipts=1.0, resend=1.0),
)
MODEL = FlatModel(small.module(hidden=2), (3,))


def factory(peer, store, folder):
    x, y = map(torch.as_tensor, whole_peers.datasets(PEERS)[peer])
    return RunFactory(
        me=peer,
        membership=MEMBERSHIP,
        model=MODEL,
        data=Dataset(
            name="own",
            train_x=x,
            train_y=y,
            test_x=x,
            test_y=y,
            classes=3,
            shape=(3,),
            mean=torch.zeros(3),
        ),
        crypto=KEYS[peer],
        store=store,
        folder=folder,
    )


class Replaying(Wire):
    """Where one peer holds what all dealers signed in an earlier life against them."""

    def __init__(self, sent):
        super().__init__(tamper=self.replay)
        old = (codec.decode(data) for sender, _, kind, data in sent if kind == "Receipt")
        self.old = {each.header.step: each.body for each in old if len(each.body.held) == PEERS}
        self.replayed = 0

    def replay(self, sender, to, data):
        envelope = codec.decode(data)
        body = self.old.get(envelope.header.step)
        if sender != CHEAT or not isinstance(envelope.body, m.Receipt) or body is None:
            return [(sender, data)]
        self.replayed += 1
        return [(sender, codec.encode(envelope.header, body, KEYS[CHEAT].sign))]


def live(folder, before=None):
    """Found and train from empty stores; with a life before, its statements are replayed."""
    factories = [factory(peer, MemoryStore(), folder) for peer in range(PEERS)]
    wires = [Replaying(before.founded.wire.sent if before else ()), None]
    founded = Network(wires[0], {p: each.founder() for p, each in enumerate(factories)}).run()
    for peer, each in enumerate(factories):
        each.settle_epoch(founded.sessions[peer].protocol.log)
    wires[1] = Replaying(before.trained.wire.sent if before else ())
    trained = Network(wires[1], {p: each.trainer() for p, each in enumerate(factories)}).run(500.0)
    return SimpleNamespace(factories=factories, founded=founded, trained=trained, wires=wires)


@pytest.fixture(scope="module")
def lives(tmp_path_factory):
    first = live(tmp_path_factory.mktemp("first"))
    return first, live(tmp_path_factory.mktemp("second"), before=first)


def test_starting_over_with_the_same_file_frames_nobody(lives):
    first, second = lives
    for each in lives:
        assert len({f.training for f in each.factories}) == 1, "one epoch at all peers"
        same_models(each.trained)
    assert first.factories[0].training != second.factories[0].training
    assert all(wire.replayed for wire in second.wires), "the cheat has tried"
    for network in (second.founded, second.trained):
        blamed = [blame for some in network.blames.values() for blame in some if blame.evidence]
        assert not blamed
        assert not network.halts
    np.testing.assert_array_equal(same_models(first.trained), same_models(second.trained))


def test_contradictions_in_the_founding_run_prove_nothing_to_others(lives):
    words = [
        next(data for sender, _, kind, data in each.founded.wire.sent if (sender, kind) == vote)
        for each in lives
        for vote in [(0, "Vote")]
    ]
    scheme, verify = MEMBERSHIP.scheme, KEYS[1].verify
    assert evidence.proven(scheme, verify, words)[0] == 0, "elsewhere it would be a proof"
    with pytest.raises(MessageError, match="of the founding run"):
        evidence.proven(scheme, verify, words, founding=MEMBERSHIP.founding_run)


def test_an_epoch_survives_a_restart_and_a_late_peer_learns_it(tmp_path):
    stores = [MemoryStore() for _ in range(PEERS)]
    factories = [factory(peer, store, tmp_path) for peer, store in enumerate(stores)]
    network = Network(Wire(cut={4}), {p: each.founder() for p, each in enumerate(factories)})
    network.run(done=lambda: all(network.sessions[p].finished for p in range(PEERS) if p != 4))
    assert not network.sessions[4].finished
    network.wire.cut = set()
    network.run(until=200.0)
    for peer, each in enumerate(factories):
        each.settle_epoch(network.sessions[peer].protocol.log)
    again = [factory(peer, store, tmp_path) for peer, store in enumerate(stores)]
    assert all(each.founded for each in again)
    assert {each.training for each in again} == {factories[4].training}
    assert all(each.founder() is not None for each in again), "it answers who is later still"


def test_a_history_of_before_there_were_epochs_keeps_its_name(tmp_path):
    store = MemoryStore()
    name = training_run(MEMBERSHIP, MODEL)
    assert not factory(0, store, tmp_path).founded
    store.commit(name, m.LogEntry(dealers=(), values=np.zeros(18, dtype=np.int64)), {}, None)
    old = factory(0, store, tmp_path)
    assert (old.founded, old.training, old.epoch_name) == (True, name, m.NOTHING)
    assert old.founder() is None


def removals(me=0):
    context = factory(me, MemoryStore(), None).context(m.NOTHING, range(PEERS))
    made = Removals(context, MemoryStore(), MEMBERSHIP.training, MEMBERSHIP.recovery)
    return context, made


def announce(to, sender, training):
    _, made = removals(sender)
    made.train(training, training)
    for send in made.again():
        if send.to == 0:
            to.receive(send.data, sender)


def test_a_peer_joins_the_training_that_no_quorum_can_do_without():
    """Of seven a quorum is five. If three say that they are in an old life, and one of them lies
    and founds another with the rest, there is one.
    """
    context, made = removals()
    lives = Lives(context, made, NAMES)
    for sender, training in ((1, b"a" * 32), (2, b"a" * 32), (3, m.NOTHING), (4, m.NOTHING)):
        announce(made, sender, training)
    assert lives.agreed() is None
    announce(made, 3, b"a" * 32)
    assert lives.agreed() is None
    announce(made, 4, b"a" * 32)
    assert lives.agreed() == b"a" * 32


def test_a_peer_that_kept_its_history_is_told_that_the_others_started_over(caplog):
    context, made = removals()
    lives = Lives(context, made, NAMES)
    caplog.set_level(logging.WARNING, "pdlrecover.peer")
    announce(made, 6, b"c" * 32)
    lives.compare(b"a" * 32)
    assert lives.started_over == "", "a single peer may say anything"
    for sender in (1, 2, 3):
        announce(made, sender, b"b" * 32)
        lives.compare(b"a" * 32)
    assert "ash" not in lives.started_over
    assert "birch, cedar, elm train in run 6262626262626262" in lives.started_over
    assert "move its history away and start it again" in lives.started_over
    assert len(caplog.records) == 1
    lives.compare(b"b" * 32)
    assert lives.started_over == ""


def test_those_that_know_no_training_yet_agree_on_none():
    context, made = removals()
    lives = Lives(context, made, NAMES)
    for sender in range(1, 7):
        announce(made, sender, m.NOTHING)
    assert lives.agreed() is None


def test_removals_of_one_life_are_not_those_of_another():
    """Also while the training is under way, when a removal is about no log."""
    names = []
    for training in (b"a" * 32, b"b" * 32):
        _, made = removals()
        made.wait_for_training()
        arguments = {"reason": "malicious", "method": "auto", "accept_differencing": False}
        with pytest.raises(PlanError, match="have not agreed on an epoch yet"):
            made.propose(made.draft([5], **arguments))
        made.train(training, training)
        proposal = made.draft([5], **arguments)
        made.propose(proposal)
        names.append(proposal)
    first, second = names
    assert first.after == second.after == m.NOTHING
    assert first.digest != second.digest
    _, other = removals(1)
    other.train(b"b" * 32, b"b" * 32)
    with pytest.raises(PlanError, match="propose it again"):
        other.propose(first)
