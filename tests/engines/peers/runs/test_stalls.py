"""A recovery that does not go on: what is said, and how it is replaced."""

import logging
from dataclasses import replace

import pytest
from memory_store import MemoryStore
from wire import Setup, Wire, same_models

from pdlrecover import Tolerance
from pdlrecover.engines.peers.federation.plan import Recovery, Training
from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.engines.peers.protocol.effects import Note, Send
from pdlrecover.engines.peers.protocol.waiting import Missing, Waiting
from pdlrecover.engines.peers.removals.votes import Removals
from pdlrecover.engines.peers.runs.stalls import Stalls
from pdlrecover.errors import PlanError

LOG, ROUNDS, PEERS = bytes(range(32)), 20, 7
SETUP = Setup(PEERS, Tolerance(colluders=1, dropouts=2, liars=1))
RECOVERY = Recovery(preparation=3, period=5, final=2, buffer=2, stalled_after=60.0)
TRAINING = Training(rounds=ROUNDS, samples=10)
NAMES = [f"hospital-{letter}" for letter in "abcdefg"]
WAITING = Waiting(
    what=Missing.SHARES, step=4, round=3, since=100.0, needed=5, away=(1,), lacking=(2, 4)
)


class Voters:
    """Peers that vote on removals, and look at how their recoveries go."""

    def __init__(self, recovery=RECOVERY, left_to_operators=()):
        self.removals = {
            me: Removals(
                SETUP.context(me, m.NOTHING, range(PEERS)), MemoryStore(), TRAINING, recovery
            )
            for me in range(PEERS)
        }
        self.stalls = {
            me: Stalls(each, NAMES, recovery, by_itself=me not in left_to_operators)
            for me, each in self.removals.items()
        }
        self.notes = []
        for each in self.removals.values():
            each.training_ended(LOG, [range(PEERS)] * ROUNDS)

    def carry(self, me, reactions):
        for each in reactions:
            if isinstance(each, Send):
                self.carry(each.to, self.removals[each.to].receive(each.data, me))
            elif isinstance(each, Note):
                self.notes.append((me, each.text))

    def pass_removal(self, removed=(5, 6), method="pdlrecover", by=(0, 1, 2, 3)):
        arguments = {"reason": "malicious", "method": method, "accept_differencing": False}
        proposal = self.removals[0].draft(removed, **arguments)
        for me in by:
            self.carry(me, self.removals[me].propose(proposal))
        return proposal

    def look(self, me, run, waiting, now):
        self.carry(me, self.stalls[me].look(run, "recovery", waiting, now))

    def passed(self, me):
        return [each.proposal for each in self.removals[me].passed()]


def test_a_stalled_recovery_is_replaced_at_every_peer_by_the_same_fresh_start():
    voters = Voters()
    stalled = voters.pass_removal()
    for me in (0, 1, 2):
        voters.look(me, stalled.digest, WAITING, 160.0)
        assert voters.passed(me) == [stalled], "three of seven are not enough"
    voters.look(3, stalled.digest, replace(WAITING, since=101.0), 161.0)
    replacement = voters.removals[0].replacement(stalled.digest)
    assert (replacement.removed, replacement.reason) == (stalled.removed, stalled.reason)
    assert replacement.method == "auto"
    for me in range(PEERS):
        assert voters.passed(me) == [stalled, replacement]
        assert voters.removals[me].replaced() == {stalled.digest: replacement.digest}
    told = [me for me, text in voters.notes if "this peer approves, by itself" in text]
    assert told == [0, 1, 2, 3], "who approved by itself says so"


def test_nothing_is_replaced_before_the_deadline_or_where_no_shares_are_missing():
    voters = Voters()
    stalled = voters.pass_removal()
    fresh = voters.pass_removal((6,), method="auto")
    for me in range(5):
        voters.look(me, stalled.digest, WAITING, 159.0)
        voters.look(me, stalled.digest, replace(WAITING, what=Missing.QUORUM), 1e6)
        voters.look(me, stalled.digest, None, 1e6)
        voters.look(me, fresh.digest, WAITING, 1e6)
        voters.look(me, bytes(32), WAITING, 1e6)
    assert voters.passed(0) == [stalled, fresh]
    assert not voters.removals[0].replaced()


@pytest.mark.parametrize("where", ["federation", "peer"])
def test_without_a_fallback_the_operators_decide(where):
    recovery = replace(RECOVERY, fallback="none" if where == "federation" else "auto")
    voters = Voters(recovery, left_to_operators=range(PEERS) if where == "peer" else ())
    stalled = voters.pass_removal((5,))
    for me in range(5):
        voters.look(me, stalled.digest, WAITING, 1e6)
        assert "propose-removal FOLDER --replace" in voters.stalls[me].waits[stalled.digest]
    assert voters.passed(0) == [stalled]
    arguments = {"reason": "malicious", "method": "auto", "accept_differencing": False}
    by_hand = voters.removals[0].draft((5, 6), replaces=stalled.digest, **arguments)
    for me in (0, 1, 2, 3):
        voters.carry(me, voters.removals[me].propose(by_hand))
    for me in range(PEERS):
        assert voters.removals[me].replaced() == {stalled.digest: by_hand.digest}


def test_a_replacement_removes_no_fewer_peers_and_replaces_what_is_known():
    voters = Voters()
    stalled = voters.pass_removal((5, 6))
    arguments = {"reason": "malicious", "method": "auto", "accept_differencing": False}
    fewer = voters.removals[0].draft((5,), replaces=stalled.digest, **arguments)
    with pytest.raises(PlanError, match="removes the same peers, or more"):
        voters.removals[0].propose(fewer)
    unknown = voters.removals[0].draft((5,), replaces=bytes([7] * 32), **arguments)
    with pytest.raises(PlanError, match="not known here"):
        voters.removals[0].propose(unknown)


def test_what_is_replaced_is_known_after_a_restart():
    voters = Voters()
    stalled = voters.pass_removal()
    for me in range(4):
        voters.look(me, stalled.digest, WAITING, 160.0)
    store = voters.removals[6]._store
    context = SETUP.context(6, m.NOTHING, range(PEERS))
    again = Removals(context, store, TRAINING, RECOVERY)
    again.training_ended(LOG, [range(PEERS)] * ROUNDS)
    assert again.replaced() == voters.removals[0].replaced()
    assert again.replaced()


def test_a_stall_is_a_warning_once_until_the_run_goes_on(caplog):
    caplog.set_level(logging.INFO, "pdlrecover.peer")
    voters = Voters()
    stalled, stalls = voters.pass_removal().digest, voters.stalls[0]
    for now in (110.0, 112.0, 114.0):
        voters.look(0, stalled, WAITING, now)
    (line,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    for word in (
        "round 3 (step 4) waits for the shares of 5 peers",
        "hospital-b (not heard from) and hospital-c, hospital-e (here, without the shares)",
        "start hospital-b",
        "put back a backup of the history of hospital-c, hospital-e",
        "after 60 s the peers replace this recovery by one that starts afresh (auto)",
        f"--replace {stalled.hex()[:16]}",
    ):
        assert word in line.getMessage()
    assert line.facts["away"] == ["hospital-b"]
    assert line.facts["without"] == ["hospital-c", "hospital-e"]
    assert stalls.waits[stalled] in line.getMessage()
    voters.look(0, stalled, None, 116.0)
    assert stalls.waits == {}
    assert caplog.records[-1].getMessage() == "recovery: goes on"


def test_whose_models_differ_is_said_where_a_run_waits(caplog):
    stalls, run = Voters().stalls[0], bytes(32)
    waiting = replace(WAITING, what=Missing.QUORUM, lacking=())
    for each in (waiting, replace(waiting, differing=(3, 5))):
        stalls.look(run, "training", each, 110.0)
    first, second = (each.getMessage() for each in caplog.records)
    assert "another model" not in first
    assert "since they say that they hold another model, are hospital-d, hospital-f" in second


def test_whose_answers_a_peer_that_is_behind_waits_for_is_said(caplog):
    stalls, waiting = Voters().stalls[0], replace(WAITING, what=Missing.ANSWERS)
    stalls.look(bytes(32), "training", waiting, 110.0)
    (line,) = [each.getMessage() for each in caplog.records]
    for words in (
        "for what the others have opened meanwhile; asked in vain are hospital-c, hospital-e",
        "not heard from are hospital-b; start hospital-b",
    ):
        assert words in line


def test_on_the_wire_a_recovery_without_shares_ends_by_its_replacement():
    """Peers 2 and 3 have no stored shares, and four that keep on cannot do without both."""
    setup = Setup(6, Tolerance(colluders=1, dropouts=2))
    trained = setup.train(rounds=14)
    recovering = setup.recover(trained, (0, 5), Wire(), "historical", run=False)
    for peer in (2, 3):
        recovering.sessions[peer].driver._dealt.stored_share = lambda *_: None
    voters = Voters()
    stalled = voters.pass_removal().digest

    def replaced():
        for me in recovering.alive:
            protocol, now = recovering.sessions[me].protocol, recovering.wire.now
            voters.look(me, stalled, protocol.waiting(now), now)
        return bool(voters.removals[0].replaced())

    recovering.run(until=500.0, done=replaced)
    assert replaced()
    assert 60.0 <= recovering.wire.now < 120.0
    (_, instead) = voters.passed(1)
    afresh = setup.recover(trained, (0, 5), method=instead.method)
    same_models(afresh)
