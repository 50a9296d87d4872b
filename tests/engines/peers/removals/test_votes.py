from dataclasses import replace

import pytest
from bodies import BODIES
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_store import MemoryStore
from wire import KEYS, Setup

from pdlrecover import Tolerance
from pdlrecover.engines.peers.federation.plan import Recovery, Training
from pdlrecover.engines.peers.protocol import codec
from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.engines.peers.protocol.effects import Blame, Note, Send
from pdlrecover.engines.peers.removals.votes import MAX_REMOVALS, Removals
from pdlrecover.errors import HistoryError, PlanError

LOG = bytes(range(32))
SETUP = Setup(7, Tolerance(colluders=1, dropouts=2, liars=1))
RECOVERY = Recovery(preparation=3, period=5, final=2, buffer=2)
ROUNDS = 20
TRAINING = Training(rounds=ROUNDS, samples=10)


def removals(me, store=None, log=LOG):
    context = SETUP.context(me, m.NOTHING, range(7))
    made = Removals(context, store or MemoryStore(), TRAINING, RECOVERY)
    if log:
        made.training_ended(log, [range(7)] * ROUNDS)
    return made


def removal(removed=(5, 6), **arguments):
    defaults = {"reason": "malicious", "method": "pdlrecover", "accept_differencing": False}
    defaults["settings"] = RECOVERY.as_line()
    return m.RemovalProposal(removed=tuple(removed), after=LOG, **{**defaults, **arguments})


def deliver(outcomes, peers, sender):
    """Hand messages on; return what the recipients answered."""
    answers = []
    for outcome in outcomes:
        if isinstance(outcome, Send) and outcome.to in peers:
            answers += peers[outcome.to].receive(outcome.data, sender)
    return answers


def test_a_removal_passes_everywhere_with_more_than_half_and_not_before():
    peers = {me: removals(me) for me in range(7)}
    proposal = removal()
    deliver(peers[0].propose(proposal), peers, 0)
    for me in (1, 2):
        assert not any(each.passed() for each in peers.values())
        deliver(peers[me].approve(proposal.digest), peers, me)
    assert peers[3].needed == 4
    assert not peers[3].passed()
    deliver(peers[3].approve(proposal.digest), peers, 3)
    for each in peers.values():
        (passed,) = each.passed()
        assert passed.kept == (0, 1, 2, 3, 4)
        assert sorted(passed.approvals) == [0, 1, 2, 3]


def test_those_to_be_removed_have_no_vote_but_may_propose():
    peers = {me: removals(me) for me in range(7)}
    proposal = removal()
    deliver(peers[5].propose(proposal), peers, 5)
    assert not peers[0].known[proposal.digest].approvals
    with pytest.raises(PlanError, match="has no vote"):
        peers[6].approve(proposal.digest)
    context = SETUP.context(6, m.NOTHING, range(7))
    place = context.place(0, LOG, m.NOTHING, 0)
    forged = context.broadcast(place, m.Approval(removal=proposal.digest))[0]
    (blame,) = peers[0].receive(forged.data, 6)
    assert isinstance(blame, Blame)
    assert not peers[0].known[proposal.digest].approvals


def test_forged_approvals_do_not_count_and_their_bearer_is_named():
    peers = {me: removals(me) for me in range(7)}
    proposal = removal()
    deliver(peers[0].propose(proposal), peers, 0)
    context = SETUP.context(1, m.NOTHING, range(7))
    place = context.place(0, LOG, m.NOTHING, 0)
    good = context.broadcast(place, m.Approval(removal=proposal.digest))[0].data
    header = codec.decode(good).header
    for pretended in (2, 3, 4):
        for key in (1, 5):
            changed = m.Header(**{**vars(header), "sender": pretended})
            data = codec.encode(changed, m.Approval(removal=proposal.digest), KEYS[key].sign)
            (blame,) = peers[0].receive(data, 1)
            assert (type(blame), blame.peer) == (Blame, 1)
    elsewhere = m.Header(**{**vars(header), "federation": bytes(32)})
    data = codec.encode(elsewhere, m.Approval(removal=proposal.digest), KEYS[1].sign)
    assert peers[0].receive(data, 1)[0].peer == 1
    assert peers[0].receive(b"garbage", 1)[0].peer == 1
    assert set(peers[0].known[proposal.digest].approvals) == {0}
    for _ in range(5):
        peers[0].receive(good, 1)
    assert set(peers[0].known[proposal.digest].approvals) == {0, 1}


@pytest.mark.parametrize(
    ("proposal", "why"),
    [
        (removal((3,), reason="left"), "would reveal the updates of peer"),
        (removal((3, 4), reason="left"), "1 peers may collude.* At least 3 honest peers leave"),
        (removal((3, 4, 5)), "survive 2 dropouts"),
        (removal((3, 9)), "no peer 9"),
        (removal(()), "at least one"),
        (removal(reason="boredom"), "the reason is one of left, malicious"),
        (removal(method="magic"), "no method is called"),
        (removal(method="pdlrecover:preparation=50"), "50 preparation .* do not fit"),
        (removal(method="fine-tune-k:rounds=0"), "rounds must be above 0"),
        (removal(method="accelerated-retrain:rate=0"), "rate must be above 0"),
        (removal(method="accelerated-retrain:rate=" + "9" * 400), "above 0 and finite"),
        (removal(method="auto:rounds=" + "9" * 400), "rounds must be below 2147483648"),
        (removal((4, 5, 6), method="auto"), "survive 2 dropouts"),
    ],
)
def test_what_the_rule_refuses_is_refused_here_and_by_the_others(proposal, why):
    with pytest.raises(PlanError, match=why):
        removals(0).propose(proposal)
    context = SETUP.context(1, m.NOTHING, range(7))
    data = context.send(context.place(0, LOG, m.NOTHING, 0), proposal, 0).data
    asked = removals(0)
    (answer,) = asked.receive(data, 1)
    body = codec.decode(answer.data).body
    assert isinstance(body, m.Refusal)
    assert not asked.known


def test_a_single_honest_leaver_goes_when_differencing_is_accepted():
    proposal = removal((3,), reason="left", accept_differencing=True)
    asked = removals(0)
    asked.propose(proposal)
    assert proposal.digest in asked.known


FRESH = {"method": "accelerated-retrain", "reason": "left"}


@pytest.mark.parametrize("method", ["accelerated-retrain", "auto", "auto:rounds=9"])
@pytest.mark.parametrize("removed", [(3,), (3, 4)])
def test_with_a_fresh_start_one_honest_peer_may_leave_alone(method, removed):
    removals(0).propose(removal(removed, method=method, reason="left"))
    with pytest.raises(
        PlanError, match=r"would reveal.*a fresh start \(auto, accelerated-retrain\)"
    ):
        removals(0).propose(removal(removed, method="retrain", reason="left"))


@pytest.mark.parametrize("method", ["accelerated-retrain:start=first", "auto:start=first"])
def test_what_needs_nothing_of_the_training_does_not_go_near_its_sums(method):
    with pytest.raises(PlanError, match="must start afresh: at the training's first weights"):
        removals(0).propose(removal(method=method))


def test_an_approval_reaches_everybody_though_its_sender_told_only_some():
    peers = {me: removals(me) for me in range(7)}
    proposal = removal()
    deliver(peers[0].propose(proposal), peers, 0)
    told = {0: peers[0]}
    deliver(peers[1].approve(proposal.digest), told, 1)
    assert set(peers[2].known[proposal.digest].approvals) == {0}
    deliver(peers[0].again(), peers, 0)
    assert set(peers[2].known[proposal.digest].approvals) == {0, 1}


@pytest.mark.parametrize(
    "broken",
    [{"kept_from": ROUNDS}, {"absent": {1: (0, 1, 2, 3, 4)}}, {"absent": {0: (6,), 1: (7,)}}],
    ids=["shares are dropped", "few dealt", "one was away"],
)
def test_with_a_fresh_start_the_history_is_not_needed(broken):
    large(0, **broken).propose(removal((6, 7), **FRESH))
    with pytest.raises(PlanError):
        large(0, **broken).propose(removal((6, 7), reason="left", method="delta-grad"))


def test_fresh_starts_do_not_exclude_other_removals():
    peers = {me: large(me, setup=COLLUDING) for me in range(8)}
    leavers = removal((5, 6, 7), reason="left")
    passed = [removal((7,), **FRESH), removal((6,), **FRESH), removal((6, 7), **FRESH), leavers]
    for proposal in passed:
        assert not pass_it(peers, proposal)
    assert [r.proposal for r in peers[7].passed()] == passed


def test_a_fresh_start_still_keeps_enough_peers_to_hide_each_other():
    setup = Setup(8, Tolerance(colluders=3, dropouts=2))
    asked = large(0, setup=setup)
    asked.propose(removal((5, 6), **FRESH))
    few = replace(asked._rule, quorums=Setup(8, Tolerance(colluders=3, dropouts=4)).scheme.quorums)
    with pytest.raises(PlanError, match="a single other"):
        few.judge(removal((4, 5, 6, 7), **FRESH), [])


def test_with_a_fresh_start_a_removal_passes_while_the_training_is_under_way():
    store = MemoryStore()
    peers = {me: removals(me, store if me == 0 else None, log=None) for me in range(7)}
    peers[4].training_ended(LOG, [range(7)] * ROUNDS)
    proposal = peers[0].draft((3,), reason="left", method="auto", accept_differencing=False)
    assert proposal.after == m.NOTHING
    assert not pass_it(peers, proposal, by=(0, 1, 2, 4))
    for each in peers.values():
        assert [r.proposal for r in each.passed()] == [proposal]
    with pytest.raises(
        PlanError, match=r"has not ended here; .* starts afresh \(auto, accelerated"
    ):
        peers[0].propose(replace(proposal, method="retrain"))
    again = removals(0, store, log=None)
    assert [r.proposal for r in again.passed()] == [proposal]


def test_removals_do_not_leave_too_few_to_go_on_training():
    peers = {me: removals(me, log=None) for me in range(7)}
    first, second = (replace(removal(gone, **FRESH), after=m.NOTHING) for gone in ((5, 6), (4,)))
    deliver(peers[0].propose(first), peers, 0)
    with pytest.raises(PlanError, match="3 of 7 peers would be removed from it"):
        peers[0].propose(second)
    for me in (1, 2, 3):
        deliver(peers[me].approve(first.digest), peers, me)
    assert all(each.removed_in_training() == {5, 6} for each in peers.values())


def test_of_removals_that_would_leave_too_few_all_peers_leave_out_the_same():
    both = [replace(removal(gone, **FRESH), after=m.NOTHING) for gone in ((5, 6), (4,))]
    votes = dict(zip(both, ((1, 2, 3, 4), (1, 2, 3, 5)), strict=True))
    found = []
    for order in (both, both[::-1]):
        made = removals(0, log=None)
        for proposal in order:
            for voter in votes[proposal]:
                context = SETUP.context(voter, m.NOTHING, range(7))
                place = context.place(0, LOG, m.NOTHING, 0)
                sends = context.broadcast(place, proposal)
                sends += context.broadcast(place, m.Approval(removal=proposal.digest))
                deliver(sends, {0: made}, voter)
        assert len(made.passed()) == 2
        found.append(made.removed_in_training())
    assert found[0] == found[1]
    assert found[0] in ({5, 6}, {4})


def test_what_was_decided_after_the_training_is_kept_while_it_is_gone_through_again():
    store = MemoryStore()
    peers = {me: removals(me, store if me == 0 else None) for me in range(7)}
    assert not pass_it(peers, removal())
    again = removals(0, store, log=None)
    assert not again.passed()
    again.propose(replace(removal((3,), **FRESH), after=m.NOTHING))
    again.training_ended(LOG, [range(7)] * ROUNDS)
    assert [r.proposal for r in again.passed()] == [removal()]
    assert len(removals(0, store).known) == 2


def test_a_removal_about_another_training_is_refused():
    other = m.RemovalProposal(**{**vars(removal()), "after": bytes([1] * 32)})
    context = SETUP.context(1, m.NOTHING, range(7))
    data = context.send(context.place(0, LOG, m.NOTHING, 0), other, 0).data
    asked = removals(0)
    asked.receive(data, 1)
    assert not asked.known


EIGHT = Setup(8, Tolerance(colluders=0, dropouts=3))
COLLUDING = Setup(8, Tolerance(colluders=1, dropouts=3))


def large(me, store=None, *, recovery=RECOVERY, setup=EIGHT, absent=None, kept_from=0):
    """Return a peer's removals among eight; `absent` has who was away in some rounds."""
    context = setup.context(me, m.NOTHING, range(8))
    made = Removals(context, store or MemoryStore(), TRAINING, recovery)
    dealt = [set(range(8)).difference((absent or {}).get(t, ())) for t in range(ROUNDS)]
    made.training_ended(LOG, dealt, kept_from)
    return made


def pass_it(peers, proposal, by=range(5)):
    """Let these peers approve a removal, one after the other; return who says no."""
    refusing = []
    for me in by:
        try:
            if proposal.digest in peers[me].known:
                said = peers[me].approve(proposal.digest)
            else:
                said = peers[me].propose(proposal)
        except PlanError:
            refusing.append(me)
        else:
            deliver(said, peers, me)
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
    peers = {me: large(me) for me in range(8)}
    assert not pass_it(peers, first)
    assert pass_it(peers, second) == ([] if both else [0, 1, 2, 3, 4])
    for each in peers.values():
        assert [r.proposal for r in each.passed()] == [first, second][: 1 + both]


def test_a_known_removal_is_judged_when_it_is_proposed_here_too():
    """What others propose is learnt without this peer's own approvals; its own word is not."""
    first, second = removal((6, 7), reason="left"), removal((7,))
    peers = {me: large(me) for me in (0, 1)}
    peers[0].propose(first)
    deliver(peers[1].propose(second), peers, 1)
    assert second.digest in peers[0].known
    with pytest.raises(PlanError, match="would reveal the updates of peer 6"):
        peers[0].propose(second)
    assert 0 not in peers[0].known[second.digest].approvals
    peers[0].propose(first)


def test_of_two_removals_proposed_together_only_the_first_to_be_approved_passes():
    """Both are known before either has passed, and one peer approves both against the rule."""
    peers = {me: large(me) for me in range(8)}
    first, second = removal((6, 7), reason="left"), removal((5, 6, 7), reason="left")
    deliver(peers[0].propose(first), peers, 0)
    deliver(peers[1].propose(second), peers, 1)
    with pytest.raises(PlanError, match="would reveal the updates of peer 5"):
        peers[0].approve(second.digest)
    for proposal in (first, second):
        for voter in range(5):
            context = EIGHT.context(voter, m.NOTHING, range(8))
            place = context.place(0, LOG, m.NOTHING, 0)
            deliver(context.broadcast(place, m.Approval(removal=proposal.digest)), peers, voter)
    for me in (5, 6, 7):
        assert [r.proposal for r in peers[me].passed()] == [first]
        assert len(peers[me].known[second.digest].approvals) == 5


def test_a_third_removal_is_held_against_all_before_it():
    peers = {me: large(me) for me in range(8)}
    for pair in ((5, 6), (6, 7)):
        assert not pass_it(peers, removal(pair, reason="left"))
    with pytest.raises(PlanError, match="would reveal the updates of peer 5"):
        peers[0].propose(removal((5, 7), reason="left"))


LEFT = removal((6, 7), reason="left", method="delta-grad")
ROUND_BY_ROUND = {"method": "delta-grad", "reason": "left"}
"""This method cannot go on without some of the stored sums."""
RETRAIN, SHORT = replace(LEFT, method="retrain"), replace(LEFT, method="accelerated-retrain")


@pytest.mark.parametrize(
    ("proposal", "absent", "why"),
    [
        (LEFT, {1: (6,)}, "would reveal the updates of peer 7"),
        (LEFT, {1: (6, 7)}, None),
        (removal((6, 7), reason="malicious"), {1: (6,)}, None),
        (SHORT, {1: (6,)}, None),
        (SHORT, {0: (6,)}, None),
        (RETRAIN, {1: (6,)}, None),
        (RETRAIN, {0: (6,)}, "would reveal the updates of peer 7"),
        (RETRAIN, {0: (6, 7), 1: (6,)}, "would reveal the updates of peer 7"),
        (RETRAIN, {0: (6, 7), 1: (6, 7), 2: (7,)}, "would reveal the updates of peer 6"),
        (RETRAIN, {0: (6, 7), 2: (6,)}, None),
        (replace(LEFT, accept_differencing=True), {1: (6,)}, None),
        (removal((6, 7), method="delta-grad"), {1: (0, 1, 2, 3, 4)}, "a single other"),
        (replace(LEFT, accept_differencing=True), {1: (0, 1, 2, 3, 4)}, "a single other"),
        (removal((6, 7), method="retrain"), {1: (0, 1, 2, 3, 4)}, None),
        (
            removal((6, 7), method="retrain"),
            {**dict.fromkeys(range(ROUNDS), (6, 7)), 9: (0, 1, 2, 3, 4, 6, 7)},
            "a single other",
        ),
    ],
)
def test_the_rule_holds_in_every_round_for_those_that_dealt_in_it(proposal, absent, why):
    asked = large(0, absent=absent)
    if why is None:
        asked.propose(proposal)
    else:
        with pytest.raises(PlanError, match=why):
            asked.propose(proposal)


def test_a_recovery_that_opened_nothing_of_a_round_excuses_no_other_in_it():
    """Of round 3, retraining opens no sum; both removals would leave the same peers in it."""
    peers = {me: large(me, absent={3: (5, 7)}) for me in range(8)}
    assert not pass_it(peers, RETRAIN)
    with pytest.raises(PlanError, match="would reveal the updates of peer 6"):
        peers[0].propose(removal((5, 6), **ROUND_BY_ROUND))


@pytest.mark.parametrize(
    ("first", "second", "absent", "why"),
    [
        (None, (5, 6, 7), {}, None),
        (None, (6, 7), {}, "1 peers may collude"),
        (None, (5, 6, 7), {4: (5,)}, r"one of peers \[6, 7\]"),
        (None, (5, 6, 7), {4: (5, 6)}, "of peer 7"),
        (None, (5, 6, 7), {4: (5, 6, 7)}, None),
        ((5, 6, 7), (4, 5, 6), {}, r"one of peers \[4, 7\]"),
        ((5, 6, 7), (3, 4, 5), {}, None),
        ((5, 6, 7), (3, 4, 5), {4: (3,)}, r"one of peers \[4, 5\]"),
    ],
)
def test_two_are_hidden_also_from_a_leaver_who_colludes(first, second, absent, why):
    peers = {me: large(me, setup=COLLUDING, absent=absent) for me in range(8)}
    if first:
        assert not pass_it(peers, removal(first, **ROUND_BY_ROUND))
    refusing = pass_it(peers, removal(second, **ROUND_BY_ROUND), by=[0])
    assert refusing == ([] if why is None else [0])
    if why:
        with pytest.raises(PlanError, match=why):
            peers[0].propose(removal(second, **ROUND_BY_ROUND))


@pytest.mark.parametrize("method", ["pdlrecover", "historical", "replay-then-tune"])
def test_methods_that_replay_leave_rounds_closed_that_would_tell_too_much(method):
    """In round 1 only one leaver dealt, in round 4 too few of the kept, in round 7 no leaver."""
    asked = large(0, absent={1: (6,), 4: (0, 1, 2, 3, 4), 7: (6, 7)})
    proposal = removal((6, 7), method=method, reason="left")
    asked.propose(proposal)
    assert asked.closed_rounds(proposal) == {1, 4}


def test_a_removal_is_refused_if_more_than_half_of_the_rounds_would_stay_closed():
    proposal = removal((6, 7), reason="left")
    large(0, absent=dict.fromkeys(range(ROUNDS // 2), (6,))).propose(proposal)
    with pytest.raises(PlanError, match="would reveal the updates of peer 7"):
        large(0, absent=dict.fromkeys(range(ROUNDS // 2 + 1), (6,))).propose(proposal)


@pytest.mark.parametrize(("absent", "meet"), [({0: (6,)}, True), ({}, False), ({1: (6,)}, False)])
def test_two_recoveries_that_would_ask_for_updates_at_the_same_model_do_not_both_pass(absent, meet):
    """Removing {5}, then {5, 6}: if 6 was away in round 0, both are at one model in round 1."""
    peers = {me: large(me, absent=absent) for me in range(8)}
    assert not pass_it(peers, removal((5,)))
    second = removal((5, 6))
    if meet:
        with pytest.raises(PlanError, match="at the same model after round 0"):
            peers[0].propose(second)
        with pytest.raises(PlanError, match="at the same model after round 0"):
            peers[0].propose(replace(second, accept_differencing=True))  # others did not accept it
    else:
        peers[0].propose(second)


def test_two_recoveries_do_not_both_start_at_the_trained_model():
    """Both would ask for the same updates there, whoever is removed."""
    peers = {me: large(me) for me in range(8)}
    assert not pass_it(peers, removal((5,), method="fine-tune-k"))
    for accepted in (False, True):
        with pytest.raises(PlanError, match="at the trained model"):
            peers[0].propose(removal((5, 6), method="fine-tune-k", accept_differencing=accepted))
    peers[0].propose(removal((5, 6)))


def test_a_void_round_does_not_part_two_recoveries():
    """Round 0 was void, and 6 away in round 1: without {5} and {5, 6} are at one model after it."""
    peers = {me: large(me, absent={0: range(8), 1: (6,)}) for me in range(8)}
    assert not pass_it(peers, removal((5,)))
    with pytest.raises(PlanError, match="at the same model after round 1"):
        peers[0].propose(removal((5, 6)))


def test_who_accepts_differencing_does_so_for_nobody_else():
    """After {5, 6, 7} the sum without {5, 6} would tell what 7 dealt, and 7 did not accept it."""
    peers = {me: large(me) for me in range(8)}
    terms = {"reason": "left", "method": "historical"}
    assert not pass_it(peers, removal((5, 6, 7), **terms))
    with pytest.raises(PlanError, match="reveal"):
        peers[0].propose(removal((5, 6), accept_differencing=True, **terms))


def test_a_method_that_needs_shares_that_this_peer_has_dropped_is_not_approved():
    asked, other = large(0, kept_from=15), large(1)
    with pytest.raises(PlanError, match="rounds 1 to 14, which this peer has dropped"):
        asked.propose(removal((6, 7)))
    proposal = removal((6, 7), method="historical")
    deliver(other.propose(proposal), {0: asked}, 1)
    with pytest.raises(PlanError, match="historical needs stored shares"):
        asked.approve(proposal.digest)
    assert set(asked.known[proposal.digest].approvals) == {1}
    asked.propose(removal((5, 6), method="retrain"))
    large(0, kept_from=1).propose(removal((6, 7)))
    late = large(0, kept_from=15, absent={0: (6, 7), 1: (6, 7)})
    with pytest.raises(PlanError, match="retrain needs stored shares of rounds 1 to 2"):
        late.propose(removal((6, 7), method="retrain"))


def test_who_never_dealt_need_not_be_removed():
    asked = large(0, absent=dict.fromkeys(range(ROUNDS), (6, 7)))
    with pytest.raises(PlanError, match="the trained model is the one without them already"):
        asked.propose(removal((6, 7)))
    asked.propose(removal((5, 6)))


@pytest.mark.parametrize("removed", [(5, 5), (6, 5), (5, 6, 6)])
def test_each_removed_peer_is_named_once(removed):
    with pytest.raises(PlanError, match="once, in order"):
        removals(0).propose(removal(removed, reason="left"))


def test_settings_are_part_of_a_removals_name_and_stay_as_they_were_proposed():
    store, told = MemoryStore(), Recovery(period=5, buffer=2).as_line()
    recovery = Recovery(period=5, buffer=2)
    peers = {me: large(me, store if me == 0 else None, recovery=recovery) for me in range(8)}
    proposal = removal((6, 7), settings=told)
    assert proposal.digest != removal((6, 7)).digest
    assert not pass_it(peers, proposal)
    changed = large(0, store, recovery=Recovery(period=4, buffer=2))
    (passed,) = changed.passed()
    assert Recovery.from_line(passed.proposal.settings) == Recovery(period=5, buffer=2)
    with pytest.raises(PlanError, match="other settings of recovery"):
        changed.propose(removal((5, 6), settings=told))


def test_a_method_whose_noise_every_peer_would_draw_by_itself_is_refused():
    with pytest.raises(PlanError, match="come to another model"):
        removals(0).propose(removal(method="fedrecovery-noise"))


def test_what_has_passed_is_recalled_without_judging_it_again():
    """Also where the federation's rule has become stricter since."""
    store = MemoryStore()
    peers = {me: large(me, store if me == 0 else None) for me in range(8)}
    proposal = removal((6, 7), reason="left")
    assert not pass_it(peers, proposal)
    again = large(0, store, recovery=replace(RECOVERY, min_removed=3))
    assert [r.proposal for r in again.passed()] == [proposal]
    assert again.passed()[0].kept == (0, 1, 2, 3, 4, 5)
    with pytest.raises(PlanError, match="at least 3 leavers"):
        again.propose(removal((4, 5), reason="left"))


def test_approvals_that_come_before_the_proposal_count_once_it_is_there():
    first, late = removals(1), removals(0)
    proposal = removal()
    outcomes = first.propose(proposal)
    mine = [o for o in outcomes if o.to == 0]
    context = SETUP.context(6, m.NOTHING, range(7))
    place = context.place(0, LOG, m.NOTHING, 0)
    late.receive(context.broadcast(place, m.Approval(removal=proposal.digest))[0].data, 6)
    said = [each for outcome in reversed(mine) for each in late.receive(outcome.data, 1)]
    assert set(late.known[proposal.digest].approvals) == {1}
    assert [type(each) for each in said] == [Note, Blame, Note]
    assert (said[1].peer, said[1].what) == (6, "voted on its own removal")
    name = proposal.digest.hex()[:16]
    assert said[0].text == f"peer 1 proposes removal {name} of peer 5, peer 6"
    assert said[2].text == f"peer 1 approves removal {name}: 1 of 4 approvals"
    assert (said[2].facts["peer"], said[2].facts["removal"]) == (1, name)


def test_what_was_approved_survives_a_restart_and_is_said_again():
    store = MemoryStore()
    before = removals(0, store)
    proposal = removal()
    before.propose(proposal)
    again = removals(0, store)
    assert set(again.known[proposal.digest].approvals) == {0}
    late = removals(4)
    deliver(again.again(), {4: late}, 0)
    assert set(late.known[proposal.digest].approvals) == {0}
    untrained = removals(2, log=None)
    with pytest.raises(PlanError, match="training has not ended"):
        untrained.propose(proposal)


def test_a_peer_that_trains_longer_learns_of_a_removal_however_often_it_was_said():
    first, late = removals(0), removals(1, log=None)
    proposal = removal()
    first.propose(proposal)
    for _ in range(3 * MAX_REMOVALS):
        deliver(first.again(), {1: late}, 0)
    assert not late.known
    late.training_ended(LOG, [range(7)] * ROUNDS)
    deliver(first.again(), {1: late}, 0)
    assert proposal.digest in late.known


def test_one_peer_may_propose_many_removals_but_not_any_number_and_is_told_why_not_once():
    asked = removals(0)
    context = SETUP.context(1, m.NOTHING, range(7))
    place = context.place(0, LOG, m.NOTHING, 0)
    refusals = 0
    for i in range(3 * MAX_REMOVALS):
        proposal = removal(method=f"magic {i % (2 * MAX_REMOVALS)}")
        refusals += len(asked.receive(context.send(place, proposal, 0).data, 1))
    assert refusals == MAX_REMOVALS


def test_what_others_write_reaches_the_log_without_line_breaks():
    asked = removals(0)
    context = SETUP.context(1, m.NOTHING, range(7))
    refusal = m.Refusal(removal=bytes(32), why="no\n12:00:00 elm was caught\x1b[2J")
    data = context.send(context.place(0, LOG, m.NOTHING, 0), refusal, 0).data
    (note,) = asked.receive(data, 1)
    assert note.text.isprintable()


def test_peers_without_any_removal_still_hear_from_each_other():
    said = removals(0).again()
    assert sorted(send.to for send in said) == [1, 2, 3, 4, 5, 6]
    assert removals(1).receive(said[0].data, 0) == []
    assert removals(1, log=None).receive(said[0].data, 0) == []


TEXT = st.text(st.sampled_from("a\n\x1b\0é€😀=+:.9"), max_size=250)
LONG = st.integers(200, 250).map(lambda n: "😀" * n)
METHOD = st.one_of(
    TEXT,
    LONG,
    st.builds(
        "{}:{}={}".format,
        st.sampled_from(
            ["pdlrecover", "auto", "retrain-k", "accelerated-retrain", "crab", "fedrecovery"]
        ),
        st.sampled_from(["preparation", "buffer", "rounds", "block", "rate", "😀"]),
        st.sampled_from(["0", "1", "17", "9" * 400, "0.5", "٣", "😀" * 200]),
    ),
)
PROPOSALS = st.builds(
    m.RemovalProposal,
    removed=st.lists(st.integers(0, 9), max_size=4).map(sorted).map(tuple),
    reason=st.one_of(st.sampled_from(["left", "malicious"]), LONG, TEXT),
    method=st.one_of(st.sampled_from(["pdlrecover", "retrain"]), METHOD),
    accept_differencing=st.booleans(),
    after=st.sampled_from([LOG, LOG, LOG, bytes(32)]),
    settings=st.sampled_from([RECOVERY.as_line(), RECOVERY.as_line(), "😀" * 250]),
)


@settings(deadline=None)
@given(body=BODIES, proposal=PROPOSALS)
def test_whatever_a_peer_signs_is_answered_and_raises_nothing(body, proposal):
    context = SETUP.context(1, m.NOTHING, range(7))
    asked, training = removals(0), removals(0, log=None)
    for each in (body, proposal, proposal):
        data = context.send(context.place(0, LOG, m.NOTHING, 0), each, 0).data
        assert isinstance(asked.receive(data, 1), list)
        assert isinstance(training.receive(data, 1), list)


@pytest.mark.parametrize(
    "changes",
    [{"reason": "😀" * 250}, {"method": "😀" * 250}, {"method": "pdlrecover:" + "é" * 400}],
)
def test_a_long_reason_is_refused_in_a_message_that_can_be_sent(changes):
    context = SETUP.context(1, m.NOTHING, range(7))
    data = context.send(context.place(0, LOG, m.NOTHING, 0), removal(**changes), 0).data
    (answer,) = removals(0).receive(data, 1)
    why = codec.decode(answer.data).body.why
    assert 500 < len(why.encode()) <= 900


def test_who_cannot_read_its_votes_judges_nothing_and_keeps_them():
    store = MemoryStore()
    removals(0, store).propose(removal((5, 6)))
    saved = store.recall("removals")
    store.remember({"removals": saved[:-1]})
    with pytest.raises(HistoryError, match="cannot be read"):
        removals(0, store, log=None)
    assert store.recall("removals") == saved[:-1]


def test_votes_are_recalled_whatever_version_their_messages_have(monkeypatch):
    store = MemoryStore()
    removals(0, store).propose(removal((5, 6)))
    monkeypatch.setattr(codec, "VERSION", codec.VERSION + 1)
    assert list(removals(0, store).known) == [removal((5, 6)).digest]


def test_an_approval_that_is_not_for_everybody_does_not_count_and_is_not_passed_on():
    peers = {me: removals(me) for me in range(7)}
    proposal = removal()
    deliver(peers[0].propose(proposal), peers, 0)
    context = SETUP.context(1, m.NOTHING, range(7))
    place = context.place(0, LOG, m.NOTHING, 0)
    (blame,) = peers[0].receive(context.send(place, m.Approval(removal=proposal.digest), 0).data, 1)
    assert (type(blame), blame.peer) == (Blame, 1)
    deliver(peers[0].again(), peers, 0)
    assert all(set(peers[me].known[proposal.digest].approvals) == {0} for me in range(7))


def test_passing_approvals_on_makes_nobody_a_forger():
    peers = {me: removals(me) for me in range(7)}
    proposal = removal()
    deliver(peers[0].propose(proposal), peers, 0)
    for voter in (1, 2):
        deliver(peers[voter].approve(proposal.digest), peers, voter)
    for me, one in peers.items():
        for send in one.again():
            reactions = peers[send.to].receive(send.data, me)
            assert not any(isinstance(each, Blame) for each in reactions)
