"""What a peer is sent when it fetches, and what it costs the others."""

import numpy as np
import pytest
from memory_store import MemoryStore
from wire import KEYS, Setup, Wire, same_models

from pdlrecover import Tolerance
from pdlrecover.engines.peers.protocol import codec
from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.engines.peers.protocol.deadlines import Deadlines
from pdlrecover.engines.peers.protocol.effects import Blame, Serve
from pdlrecover.engines.peers.protocol.fetches import AGAIN, REFILL, SMALL, WHAT, Fetches
from pdlrecover.engines.peers.runs import run_session

PEERS, ROUNDS, CHEAT = 5, 6, 3
TOLERANCE = Tolerance(colluders=1, dropouts=1)
NUMBERS = SMALL // 8
DEADLINES = Deadlines()


class Log:
    """A log of large entries, and one peer that fetches from it: what it is sent, and named for."""

    def __init__(self, entries, in_one=16):
        self.fetches, self.in_one = Fetches(DEADLINES), in_one
        self.entries = [entry()] * entries
        self.sent, self.named = 0, []

    @property
    def size(self):
        return sum(entry.values.nbytes for entry in self.entries)

    def ask(self, first, now):
        """Return how many entries come back."""
        (effect,) = self.fetches.ask(CHEAT, first, now) or [None]
        if isinstance(effect, Blame):
            self.named.append((effect.peer, effect.what))
        if not isinstance(effect, Serve):
            return 0
        assert (effect.to, effect.first) == (CHEAT, first)
        entries = self.entries[first : first + self.in_one]
        self.fetches.sent(CHEAT, first, entries)
        self.sent += sum(each.values.nbytes for each in entries)
        return len(entries)

    def fetch_all(self, now):
        """Fetch from the beginning to the end, as a peer does that has lost all."""
        first = 0
        while first < len(self.entries):
            found = self.ask(first, now)
            assert found, "it is not answered"
            first += found


def entry():
    return m.LogEntry(dealers=(), values=np.zeros(NUMBERS, dtype=np.int64))


def test_whoever_asks_for_the_same_is_answered_once_and_named_when_it_goes_on():
    log = Log(entries=4)
    for i in range(1000):
        log.ask(0, now=0.001 * i)
    assert log.sent == log.size
    assert log.named == [(CHEAT, WHAT)]


@pytest.mark.parametrize("asked", ["the beginning", "one later each time", "the last"])
def test_what_a_patient_asker_gets_in_an_hour_is_bounded(asked):
    log, now = Log(entries=40), 0.0
    for i in range(3600):
        first = {"the beginning": 0, "the last": 39}.get(asked, i % 40)
        now += 1.0
        log.ask(first, now)
    one = log.in_one * log.entries[0].values.nbytes
    assert log.sent <= (1 + AGAIN + now / REFILL) * log.size + one
    assert (CHEAT, WHAT) in log.named


def test_a_peer_that_loses_everything_fetches_everything_again_and_is_not_named():
    log = Log(entries=40)
    for lost in range(1 + AGAIN):
        log.fetch_all(now=lost * (1.0 + DEADLINES.message))
    assert log.sent == (1 + AGAIN) * log.size
    log.fetch_all(now=10 * REFILL)
    assert log.named == []


def test_a_peer_that_is_behind_all_the_time_is_answered_at_once_and_is_not_named():
    """It can use an answer up to what enough others have signed, and then asks for the rest."""
    log = Log(entries=1)
    mine, now = 0, 0.0
    while len(log.entries) < 300:
        found = log.ask(mine, now)
        assert found
        mine += max(1, found - 2)
        log.entries += [entry()] * 3
        now += DEADLINES.behind
    assert log.named == []


def test_who_lost_an_answer_gets_it_again_after_a_messages_deadline():
    log = Log(entries=4)
    assert log.ask(0, now=0.0) == 4
    for now in (1.0, 3.0, 7.0, 15.0):
        assert log.ask(0, now) == 0
    assert log.ask(0, now=DEADLINES.message) == 4
    assert log.named == []


def fetch(network, first, sender=CHEAT, to=0):
    """Return a request as this peer signs it."""
    protocol = network.sessions[sender].protocol
    place = protocol.context.place(protocol.step, protocol.log, m.NOTHING, 0)
    return protocol.context.send(place, m.Fetch(first=first), to).data


def test_a_member_cannot_make_a_peer_send_more_than_it_sends_itself():
    network = Setup(PEERS, TOLERANCE).train(Wire(), rounds=ROUNDS)
    network.wire.sent.clear()
    asked = [fetch(network, 0) for _ in range(500)]
    for data in asked:
        network.deliver(0, CHEAT, data)
    answers = [data for _, to, _, data in network.wire.sent if to == CHEAT]
    assert len(answers) == 1
    assert sum(map(len, answers)) < sum(map(len, asked))
    assert {(blame.peer, blame.what) for blame in network.blames[0]} == {(CHEAT, WHAT)}


def test_a_member_that_claims_to_lack_the_last_words_gets_them_a_few_times_a_minute():
    setup = Setup(PEERS, TOLERANCE)
    network = setup.train(Wire(), rounds=ROUNDS)
    place = network.sessions[0].protocol.previous.place
    header = m.Header(**{**vars(place), "sender": CHEAT, "asked": m.NOTHING})
    data = codec.encode(header, m.Position(reply=True), KEYS[CHEAT].sign)
    before = network.wire.now
    network.wire.sent.clear()
    while network.wire.now < before + 60.0:
        network.wire.now += 0.1
        network.deliver(0, CHEAT, data)
    again = [kind for _, to, kind, _ in network.wire.sent if to == CHEAT and kind == "SubSecret"]
    assert 3 < len(again) < 60 / setup.deadlines.resend / 2


@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_a_peer_whose_history_is_lost_again_and_again_comes_to_the_model_and_is_not_named(loss):
    setup = Setup(PEERS, TOLERANCE)
    network = setup.train(Wire(), rounds=ROUNDS)
    network.wire.loss = loss
    for _ in range(4):
        setup.stores[4] = MemoryStore()
        network.crash(4, setup.trainer(4, ROUNDS))
        network.start(4)
        network.run(until=network.wire.now + 500.0)
        same_models(network)
    assert network.blames == {}


@pytest.mark.parametrize("delay", [0.5, 2.5, 12.0])
def test_answers_that_take_longer_than_the_first_wait_are_used_when_they_come(monkeypatch, delay):
    """The log comes in many messages, each of one entry, from peers that are slow to send them."""
    monkeypatch.setattr(run_session, "ANSWER_BYTES", 1)
    setup = Setup(PEERS, TOLERANCE)
    network = setup.train(Wire(), rounds=ROUNDS)
    setup.stores[4] = MemoryStore()
    network.crash(4, setup.trainer(4, ROUNDS))
    post, sent = network.post, []

    def slowly(peer, send):
        if send.kind == "Answers":
            sent.append(peer)
            network.wire.later(delay * setup.deadlines.behind, lambda: post(peer, send))
        else:
            post(peer, send)

    network.post = slowly
    network.start(4)
    network.run(until=network.wire.now + 300.0)
    same_models(network)
    assert len(sent) < 2 * ROUNDS + PEERS
    assert network.blames == {}
