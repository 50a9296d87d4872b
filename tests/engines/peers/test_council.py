import pytest
from memory import MemoryStore
from wire import KEYS, Setup

from pdlrecover import Tolerance
from pdlrecover.engines.peers import codec
from pdlrecover.engines.peers import messages as m
from pdlrecover.engines.peers.council import MAX_REMOVALS, Council
from pdlrecover.engines.peers.effects import Blame, Send
from pdlrecover.engines.peers.plan import Recovery
from pdlrecover.errors import PlanError

LOG = bytes(range(32))
SETUP = Setup(7, Tolerance(colluders=1, dropouts=2, liars=1))


def council(me, store=None, log=LOG):
    made = Council(SETUP.circle(me, m.NOTHING, range(7)), store or MemoryStore())
    if log:
        made.about(log)
    return made


def removal(removed=(5, 6), **arguments):
    defaults = {"reason": "malicious", "method": "pdlrecover", "accept_differencing": False}
    return m.RemovalProposal(removed=tuple(removed), after=LOG, **{**defaults, **arguments})


def deliver(outcomes, councils, sender):
    """Hand messages on; return what the recipients answered."""
    answers = []
    for outcome in outcomes:
        if isinstance(outcome, Send) and outcome.to in councils:
            answers += councils[outcome.to].receive(outcome.data, sender)
    return answers


def test_a_removal_passes_everywhere_with_more_than_half_and_not_before():
    councils = {me: council(me) for me in range(7)}
    proposal = removal()
    deliver(councils[0].propose(proposal), councils, 0)
    for me in (1, 2):
        assert not any(each.passed() for each in councils.values())
        deliver(councils[me].approve(proposal.digest), councils, me)
    assert councils[3].needed == 4
    assert not councils[3].passed()
    deliver(councils[3].approve(proposal.digest), councils, 3)
    for each in councils.values():
        (passed,) = each.passed()
        assert passed.kept == (0, 1, 2, 3, 4)
        assert sorted(passed.approvals) == [0, 1, 2, 3]


def test_those_to_be_removed_have_no_vote_but_may_propose():
    councils = {me: council(me) for me in range(7)}
    proposal = removal()
    deliver(councils[5].propose(proposal), councils, 5)
    assert not councils[0].removals[proposal.digest].approvals
    with pytest.raises(PlanError, match="has no vote"):
        councils[6].approve(proposal.digest)
    circle = SETUP.circle(6, m.NOTHING, range(7))
    place = circle.place(0, LOG, m.NOTHING, 0)
    forged = circle.send(place, m.Approval(removal=proposal.digest), 0)
    (blame,) = councils[0].receive(forged.data, 6)
    assert isinstance(blame, Blame)
    assert not councils[0].removals[proposal.digest].approvals


def test_forged_approvals_do_not_count_and_their_bearer_is_named():
    councils = {me: council(me) for me in range(7)}
    proposal = removal()
    deliver(councils[0].propose(proposal), councils, 0)
    circle = SETUP.circle(1, m.NOTHING, range(7))
    place = circle.place(0, LOG, m.NOTHING, 0)
    good = circle.send(place, m.Approval(removal=proposal.digest), 0).data
    header = codec.decode(good).header
    for pretended in (2, 3, 4):
        for key in (1, pretended):
            changed = m.Header(**{**vars(header), "sender": pretended})
            data = codec.encode(changed, m.Approval(removal=proposal.digest), KEYS[key].sign)
            (blame,) = councils[0].receive(data, 1)
            assert (type(blame), blame.peer) == (Blame, 1)
    elsewhere = m.Header(**{**vars(header), "federation": bytes(32)})
    data = codec.encode(elsewhere, m.Approval(removal=proposal.digest), KEYS[1].sign)
    assert councils[0].receive(data, 1)[0].peer == 1
    assert councils[0].receive(b"garbage", 1)[0].peer == 1
    assert set(councils[0].removals[proposal.digest].approvals) == {0}
    for _ in range(5):
        councils[0].receive(good, 1)
    assert set(councils[0].removals[proposal.digest].approvals) == {0, 1}


@pytest.mark.parametrize(
    ("proposal", "why"),
    [
        (removal((3,), reason="left"), "would reveal its updates"),
        (removal((3, 4, 5)), "survive 2 dropouts"),
        (removal((3, 9)), "no peer 9"),
        (removal(()), "at least one"),
        (removal(reason="boredom"), "the reason is one of left, malicious"),
        (removal(method="magic"), "no method is called"),
    ],
)
def test_what_the_rule_refuses_is_refused_here_and_by_the_others(proposal, why):
    with pytest.raises(PlanError, match=why):
        council(0).propose(proposal)
    circle = SETUP.circle(1, m.NOTHING, range(7))
    data = circle.send(circle.place(0, LOG, m.NOTHING, 0), proposal, 0).data
    asked = council(0)
    (answer,) = asked.receive(data, 1)
    body = codec.decode(answer.data).body
    assert isinstance(body, m.Refusal)
    assert not asked.removals


def test_a_single_honest_leaver_goes_when_differencing_is_accepted():
    proposal = removal((3,), reason="left", accept_differencing=True)
    asked = council(0)
    asked.propose(proposal)
    assert proposal.digest in asked.removals


def test_a_removal_about_another_training_is_refused():
    other = m.RemovalProposal(**{**vars(removal()), "after": bytes(32)})
    circle = SETUP.circle(1, m.NOTHING, range(7))
    data = circle.send(circle.place(0, LOG, m.NOTHING, 0), other, 0).data
    asked = council(0)
    asked.receive(data, 1)
    assert not asked.removals


EIGHT = Setup(8, Tolerance(colluders=1, dropouts=3))


def large(me, store=None, **arguments):
    made = Council(EIGHT.circle(me, m.NOTHING, range(8)), store or MemoryStore(), **arguments)
    made.about(LOG)
    return made


def pass_it(councils, proposal, by=range(5)):
    """Let these peers approve a removal, one after the other; return who says no."""
    refusing = []
    for me in by:
        try:
            if proposal.digest in councils[me].removals:
                said = councils[me].approve(proposal.digest)
            else:
                said = councils[me].propose(proposal)
        except PlanError:
            refusing.append(me)
        else:
            deliver(said, councils, me)
    return refusing


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        (removal((6, 7), reason="left"), removal((5, 6, 7), reason="left"), False),
        (removal((6, 7), reason="left"), removal((7,), reason="malicious"), False),
        (removal((6, 7), reason="left"), removal((5, 7), reason="malicious"), False),
        (removal((6, 7), reason="left"), removal((5, 6, 7), reason="malicious"), True),
        (removal((6, 7), reason="left"), removal((5, 6), reason="left"), True),
        (removal((7,)), removal((5, 6), reason="left"), True),
        (removal((6, 7)), removal((6, 7), method="retrain"), False),
    ],
)
def test_removals_that_together_tell_a_peers_part_do_not_both_pass(first, second, both):
    councils = {me: large(me) for me in range(8)}
    assert not pass_it(councils, first)
    assert pass_it(councils, second) == ([] if both else [0, 1, 2, 3, 4])
    for each in councils.values():
        assert [r.proposal for r in each.passed()] == [first, second][: 1 + both]


def test_of_two_removals_proposed_together_only_the_first_to_be_approved_passes():
    """Both are known before either has passed, and one peer approves both against the rule."""
    councils = {me: large(me) for me in range(8)}
    first, second = removal((6, 7), reason="left"), removal((5, 6, 7), reason="left")
    deliver(councils[0].propose(first), councils, 0)
    deliver(councils[1].propose(second), councils, 1)
    with pytest.raises(PlanError, match="would reveal the updates of peer 5"):
        councils[0].approve(second.digest)
    for proposal in (first, second):
        for voter in range(5):
            circle = EIGHT.circle(voter, m.NOTHING, range(8))
            place = circle.place(0, LOG, m.NOTHING, 0)
            deliver(circle.broadcast(place, m.Approval(removal=proposal.digest)), councils, voter)
    for me in (5, 6, 7):
        assert [r.proposal for r in councils[me].passed()] == [first]
        assert len(councils[me].removals[second.digest].approvals) == 5


def test_a_third_removal_is_held_against_all_before_it():
    councils = {me: large(me) for me in range(8)}
    for pair in ((5, 6), (6, 7)):
        assert not pass_it(councils, removal(pair, reason="left"))
    with pytest.raises(PlanError, match="would reveal the updates of peer 5"):
        councils[0].propose(removal((5, 7), reason="left"))


@pytest.mark.parametrize(
    ("proposal", "absent", "why"),
    [
        (removal((6, 7), reason="left"), (6,), "would reveal the updates of peer 7"),
        (removal((6, 7), reason="left"), (6, 7), None),
        (removal((6, 7), reason="malicious"), (6,), None),
        (removal((6, 7), reason="left", method="accelerated-retrain"), (6,), None),
        (removal((6, 7), reason="left", accept_differencing=True), (6,), None),
        (removal((6, 7), reason="malicious"), (0, 1, 2, 3), "a single other"),
        (removal((6, 7), accept_differencing=True), (0, 1, 2, 3), "a single other"),
        (removal((6, 7), method="retrain"), (0, 1, 2, 3), None),
    ],
)
def test_the_rule_holds_in_every_round_for_those_that_dealt_in_it(proposal, absent, why):
    asked = Council(EIGHT.circle(0, m.NOTHING, range(8)), MemoryStore())
    everybody = set(range(8))
    asked.about(LOG, [everybody, everybody.difference(absent), everybody])
    if why is None:
        asked.propose(proposal)
    else:
        with pytest.raises(PlanError, match=why):
            asked.propose(proposal)
    first = Council(EIGHT.circle(0, m.NOTHING, range(8)), MemoryStore())
    first.about(LOG, [everybody.difference(absent), everybody])
    if proposal.method != "pdlrecover" and proposal.reason == "left":
        with pytest.raises(PlanError, match="would reveal"):
            first.propose(proposal)


@pytest.mark.parametrize("removed", [(5, 5), (6, 5), (5, 6, 6)])
def test_each_removed_peer_is_named_once(removed):
    with pytest.raises(PlanError, match="once, in order"):
        council(0).propose(removal(removed, reason="left"))


def test_settings_are_part_of_a_removals_name_and_stay_as_they_were_proposed():
    store, told = MemoryStore(), Recovery(period=5, buffer=2).told()
    councils = {me: large(me, store if me == 0 else None, settings=told) for me in range(8)}
    proposal = removal((6, 7), settings=told)
    assert proposal.digest != removal((6, 7)).digest
    assert not pass_it(councils, proposal)
    changed = large(0, store, settings=Recovery(period=4, buffer=2).told())
    (passed,) = changed.passed()
    assert Recovery.heard(passed.proposal.settings) == Recovery(period=5, buffer=2)
    with pytest.raises(PlanError, match="other settings of recovery"):
        changed.propose(removal((5, 6), settings=told))


def test_a_method_whose_noise_every_peer_would_draw_by_itself_is_refused():
    with pytest.raises(PlanError, match="come to another model"):
        council(0).propose(removal(method="fedrecovery-noise"))


def test_what_has_passed_is_recalled_without_judging_it_again():
    """Also where the federation's rule has become stricter since."""
    store = MemoryStore()
    councils = {me: large(me, store if me == 0 else None) for me in range(8)}
    proposal = removal((6, 7), reason="left")
    assert not pass_it(councils, proposal)
    again = large(0, store, min_removed=3)
    assert [r.proposal for r in again.passed()] == [proposal]
    assert again.passed()[0].kept == (0, 1, 2, 3, 4, 5)
    with pytest.raises(PlanError, match="at least 3 leavers"):
        again.propose(removal((4, 5), reason="left"))


def test_approvals_that_come_before_the_proposal_count_once_it_is_there():
    first, late = council(1), council(0)
    proposal = removal()
    outcomes = first.propose(proposal)
    mine = [o for o in outcomes if o.to == 0]
    for outcome in reversed(mine):
        late.receive(outcome.data, 1)
    assert set(late.removals[proposal.digest].approvals) == {1}


def test_what_was_approved_survives_a_restart_and_is_said_again():
    store = MemoryStore()
    before = council(0, store)
    proposal = removal()
    before.propose(proposal)
    again = council(0, store)
    assert set(again.removals[proposal.digest].approvals) == {0}
    late = council(4)
    deliver(again.again(), {4: late}, 0)
    assert set(late.removals[proposal.digest].approvals) == {0}
    untrained = council(2, log=None)
    with pytest.raises(PlanError, match="training has not ended"):
        untrained.propose(proposal)


def test_a_peer_that_trains_longer_learns_of_a_removal_however_often_it_was_said():
    first, late = council(0), council(1, log=None)
    proposal = removal()
    first.propose(proposal)
    for _ in range(3 * MAX_REMOVALS):
        deliver(first.again(), {1: late}, 0)
    assert not late.removals
    late.about(LOG)
    deliver(first.again(), {1: late}, 0)
    assert proposal.digest in late.removals


def test_one_peer_may_propose_many_removals_but_not_any_number_and_is_told_why_not_once():
    asked = council(0)
    circle = SETUP.circle(1, m.NOTHING, range(7))
    place = circle.place(0, LOG, m.NOTHING, 0)
    refusals = 0
    for i in range(3 * MAX_REMOVALS):
        proposal = removal(method=f"magic {i % (2 * MAX_REMOVALS)}")
        refusals += len(asked.receive(circle.send(place, proposal, 0).data, 1))
    assert refusals == MAX_REMOVALS


def test_what_others_write_reaches_the_log_without_line_breaks():
    asked = council(0)
    circle = SETUP.circle(1, m.NOTHING, range(7))
    refusal = m.Refusal(removal=bytes(32), why="no\n12:00:00 elm was caught\x1b[2J")
    data = circle.send(circle.place(0, LOG, m.NOTHING, 0), refusal, 0).data
    (note,) = asked.receive(data, 1)
    assert note.text.isprintable()


def test_peers_without_any_removal_still_hear_from_each_other():
    said = council(0).again()
    assert sorted(send.to for send in said) == [1, 2, 3, 4, 5, 6]
    assert council(1).receive(said[0].data, 0) == []
    assert council(1, log=None).receive(said[0].data, 0) == []
