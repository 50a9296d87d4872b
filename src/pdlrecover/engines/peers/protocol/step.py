"""One step at one peer: deal, receipts, agreement, sub-secrets, opening. Without any input/output.

1. Every peer deals, sealed and proven (see `dealing`), and waits for all others or the deadline.
2. It sends a receipt: whose dealings it holds.
3. The leader proposes those dealers whose dealings a quorum holds, and the peers settle the set by
   two rounds of votes (see `ballot`). A peer votes only for what it holds whole.
4. Who holds all of the set sends its sub-secret; who does not only listens.
5. As soon as the sub-secrets at hand lie on one polynomial, with enough to spare for the liars
   that may be among them, the answer is public.

Steps that open stored shares only start with 4. What may have been lost is sent again.
"""

from collections.abc import Iterable

from pdlrecover.engines.peers.protocol import dealing
from pdlrecover.engines.peers.protocol import effects as e
from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.engines.peers.protocol.ballot import Ballot, leaders
from pdlrecover.engines.peers.protocol.dealing import Dealt
from pdlrecover.engines.peers.protocol.evidence import EquivocationWatch
from pdlrecover.engines.peers.protocol.holdings import Holdings
from pdlrecover.engines.peers.protocol.previous_step import PreviousStep
from pdlrecover.engines.peers.protocol.run_context import RunContext
from pdlrecover.engines.peers.protocol.single_dealings import SingleDealings
from pdlrecover.engines.peers.protocol.states import HELPS, TAKES, UNSETTLED, Move, StepState, moved
from pdlrecover.engines.peers.protocol.step_memory import Promise, Row, Spoken
from pdlrecover.engines.peers.protocol.sub_secrets import SubSecrets
from pdlrecover.engines.peers.protocol.tasks import Task
from pdlrecover.engines.peers.protocol.waiting import Missing, Waiting

DEALING_PATIENCE = 4
"""A dealing is sent again to a silent peer after this many times the usual wait."""
PATIENCE = 7
"""Sub-secrets that have not come after this many times the usual wait are missing."""
LONGEST_PAUSE = 8
"""What may have been lost is sent again after this many times the usual wait at most."""
LONGEST_VIEW = 8
"""A view lasts up to this many times as long as the first."""


class Step:
    """The state machine of one step; see `states` for its table."""

    def __init__(
        self,
        context: RunContext,
        task: Task,
        place: m.Header,
        present: tuple[int, ...],
        now: float,
        memory: Promise | None,
        rows: Iterable[Row] = (),
        before: Spoken | None = None,
    ) -> None:
        """`present` are those that are waited for, and lead first.

        `memory` and `rows` were kept of this step before a crash, `before` is of the step before.
        """
        self.context, self.task, self.place = context, task, place
        self.state = StepState.COMPUTING if task.kind else StepState.OPENING
        self.holdings = Holdings(context, task, place, present)
        self.ballot = Ballot(
            me=context.me,
            order=leaders(context.peers, present, place.step),
            quorum=context.quorum,
            liars=context.scheme.quorums.tolerance.liars,
        )
        self.seed, self._own_digest = dealing.new_seed(), b""
        if memory:
            self.seed, self._own_digest = memory.seed, memory.dealt
            self.ballot.restore(memory.now.ballot)
            self.holdings.restore(rows)
        self.wake_at = now + context.deadlines.resend
        self.late: set[int] = set()
        """Whose dealings were waited for until the deadline, or until others had decided,"""
        self.in_time: set[int] = set()
        """and whose came before."""
        self._before = before
        self._dealt: Dealt | None = None
        self._sub_secret: m.SubSecret | None = None
        """What this peer says, once it can."""
        self._choice = m.NOTHING
        self._dealers: tuple[m.Held, ...] = ()
        self.sub_secrets = SubSecrets(task)
        self._watch = EquivocationWatch(context, place)
        self._heard_at: dict[int, float] = {}
        self._resend_at, self._pause = self.wake_at, context.deadlines.resend
        self._timed_view, self._resent, self._since = -1, 0, now
        self._deadline = self._propose_at = self._view_at = float("inf")
        self._deal_again_at = float("inf")

    def is_here(self, peer: int, now: float) -> None:
        """Wait for this peer, too: it is there."""
        self.holdings.expected.add(peer)
        self._heard_at[peer] = now

    def leave_out(self, peers: Iterable[int]) -> None:
        """Take no dealings of just these peers, unless a quorum has voted for them already."""
        self.holdings.leave_out(peers)

    def begin(self, now: float) -> list[e.Effect]:
        """Start: compute what is to be dealt, or open what is stored.

        Who is left out deals nothing: it holds what the others deal, and votes.
        """
        if self.task.kind is None:
            return [*self._send_sub_secret(), *self._open_if_possible()]
        if self.holdings.leaves_out(self.context.me):
            return self.contribute(None, now)
        binding = dealing.binding_of(self.place, self.context.me)
        return [
            e.Compute(step=self.place.step, binding=binding, seed=self.seed, deal=self.task.deal)
        ]

    def contribute(self, dealt: Dealt | None, now: float) -> list[e.Effect]:
        """Send what this peer has dealt, unless it has dealt something else before a crash."""
        if self.state is not StepState.COMPUTING:
            return []
        self._move(Move.DEALT)
        if self.holdings.leaves_out(self.context.me):
            dealt = None
        self._since = now
        self._rest(now)
        self._deadline = now + self.context.deadlines.dealing
        self._deal_again_at = now + DEALING_PATIENCE * self.context.deadlines.resend
        return [*(self._deal(dealt) if dealt else ()), *self._progress(now)]

    def takes(self, kind: type) -> bool:
        """Say whether messages of this kind are looked at."""
        return kind in TAKES[self.state] or (self._helps and kind in HELPS)

    def take(self, envelope: m.Envelope, now: float) -> list[e.Effect]:
        """Take a message of this step, whose signature and header are checked."""
        body, sender = envelope.body, envelope.header.sender
        if not self.takes(type(body)):
            return []
        effects: list[e.Effect] = []
        match body:
            case m.Dealing():
                effects = self.holdings.take_dealing(sender, body)
            case m.Receipt():
                effects = self.holdings.take_receipt(sender, body)
                self.ballot.take_view(sender, body.view)
            case m.Proposal() if self._is_leaders(sender, body):
                effects = self._watch.compare(envelope, body.view)
                self.ballot.take_proposal(sender, body)
            case m.Vote() if self.ballot.is_near(body.view):
                effects = self._watch.compare(envelope, body.view, body.final)
                self.ballot.take_vote(sender, body)
            case m.SubSecret() if len(body.values) != self.task.size:
                effects = [e.Blame(peer=sender, what="sent a sub-secret of the wrong size")]
            case m.SubSecret() if self.sub_secrets.may_take(sender, body.choice):
                effects = self._watch.compare(envelope, body.choice)
                self.sub_secrets.take(sender, body.choice, body.values)
                effects += self._open_if_possible()
            case m.Misdealt():
                effects = self.holdings.judge_accusation(envelope, body)
            case m.Equivocation():
                effects = self._watch.judge(envelope, body)
                if (body.accused, m.Dealing) in self._watch.caught:
                    self.holdings.distrust(body.accused)
        return [*effects, *self._progress(now)]

    def tick(self, now: float) -> list[e.Effect]:
        """Do what is due by the clock."""
        effects: list[e.Effect] = []
        if now >= self._view_at and self.state is StepState.AGREEING:
            effects += self._leave_view(now)
        effects += self._progress(now)
        if now >= self._resend_at:
            self._pause = min(2 * self._pause, LONGEST_PAUSE * self.context.deadlines.resend)
            self._resend_at = now + self._pause
            effects += self._again(now)
            self._resent += 1
        self._set_alarm(now)
        return effects

    def waiting(self, now: float) -> Waiting | None:
        """Return what is missing, if the step has waited for it for long."""
        context, waited, missing = self.context, now - self._since, self.context.peers
        deadlines, here = context.deadlines, {*self.heard_lately(now), context.me}
        few, needed = len(here) < context.quorum, context.quorum
        what = Missing.QUORUM if few else Missing.AGREEMENT
        if self.state is StepState.OPENING:
            if waited < PATIENCE * deadlines.resend:
                return None
            without = tuple(self.sub_secrets.missing(self._choice, context.peers))
            if not few or here.intersection(without):
                what, needed, missing = Missing.SHARES, self.task.needed, without
        elif self.state not in (StepState.GATHERING, StepState.AGREEING):
            return None
        else:
            if waited < deadlines.dealing + deadlines.view * (1 if few else LONGEST_VIEW):
                return None
        return Waiting(
            what=what,
            step=self.place.step,
            round=self.place.round,
            since=self._since,
            needed=needed,
            away=tuple(peer for peer in missing if peer not in here),
            lacking=tuple(p for p in missing if p in here) if what is Missing.SHARES else (),
        )

    def overtaken(self) -> None:
        """Stop taking part: the others have this step behind them."""
        self._move(Move.OVERTAKEN)

    def caught_up(self, entry: m.LogEntry) -> e.Commit:
        """Finish with what the others have opened; keep those of the rows that are here."""
        self._move(Move.CAUGHT_UP)
        return self._result(entry)

    def diverged(self) -> None:
        """Stop for good."""
        self._move(Move.DIVERGED)

    def _move(self, move: Move) -> None:
        self.state = moved(self.state, move)

    def _rest(self, now: float) -> None:
        """Say nothing again for a while: the step has come further."""
        self._pause = self.context.deadlines.resend
        self._resend_at = now + self._pause

    @property
    def _helps(self) -> bool:
        """Whether this peer has settled the set, and others perhaps not: it has waited for them."""
        waits = self.state is StepState.OPENING and self._resent > 0
        return waits and self.task.kind is not None

    def _set_alarm(self, now: float) -> None:
        agreeing = self.state is StepState.AGREEING
        alarms = [self._resend_at]
        if self.state is StepState.GATHERING:
            alarms.append(self._deadline)
        if agreeing:
            alarms.append(self._view_at)
        if agreeing and self.ballot.must_propose and now < self._propose_at:
            alarms.append(self._propose_at)
        self.wake_at = min(alarms)

    def _progress(self, now: float) -> list[e.Effect]:
        """Go as far as what is here allows."""
        effects: list[e.Effect] = []
        gathering = self.state is StepState.GATHERING
        complete = gathering and self.holdings.complete
        if complete or (gathering and now >= self._deadline):
            self._move(Move.ALL_HERE if complete else Move.DEADLINE)
            self._note_late()
            self._rest(now)
            self._start_view(now)
            effects += self._receipt()
        if self._helps or self.state in UNSETTLED:
            effects += self._agree(now)
        if self.ballot.settled and self.state in UNSETTLED:
            if self.state is StepState.GATHERING:
                self._note_late()
            self._move(Move.DECIDED)
            self._since = now
            self._rest(now)
            self._choice = self.ballot.settled.choice
            self._dealers = self.ballot.settled.dealers
            sends = self._send_sub_secret()
            if self.task.kind and not self.task.kind.stored:
                effects.append(self._promise())
            effects += [*sends, *self._open_if_possible()]
        self._set_alarm(now)
        return effects

    def _note_late(self) -> None:
        """Note who was waited for; without a quorum, it may be this peer that was cut off."""
        awaited = self.holdings.expected - self.holdings.passed_over - {self.context.me}
        here = self.holdings.here
        self.in_time = awaited & here
        self.late = awaited - here if self.holdings.has_quorum else set()

    def _receipt(self) -> list[e.Effect]:
        body = self.holdings.receipt(self.ballot.view)
        return [*self.context.broadcast(self.place, body)]

    def _start_view(self, now: float) -> None:
        self._timed_view = self.ballot.view
        self._propose_at = now + self.context.deadlines.receipts
        self._view_at = now + self.context.deadlines.view * min(1 + self.ballot.view, LONGEST_VIEW)

    def heard_lately(self, now: float) -> list[int]:
        """Return who was heard from in this step or a later one, not long ago."""
        lately = now - 2 * LONGEST_PAUSE * self.context.deadlines.resend
        return [peer for peer, at in self._heard_at.items() if at >= lately]

    def _leave_view(self, now: float) -> list[e.Effect]:
        """Go to the next view, if a quorum of those heard from lately is in this one or beyond."""
        if not self.ballot.may_leave(self.heard_lately(now)):
            self._view_at = now + self.context.deadlines.view
            return []
        self.ballot.next_view()
        self._start_view(now)
        text = "no set was settled in time, the next leads"
        note = e.Note(text=text, facts={"view": self.ballot.view})
        return [note, self._promise(), *self._receipt()]

    def _agree(self, now: float) -> list[e.Effect]:
        """Propose if it is this peer's turn, and vote; say so where others came to a later view."""
        sends: list[e.Effect] = []
        agreeing = self.state is StepState.AGREEING
        if self.ballot.view != self._timed_view and (agreeing or self._helps):
            self._start_view(now)
            sends += self._receipt() if self._helps else []
        if self.ballot.must_propose and (agreeing or self._helps):
            in_time = now < self._propose_at
            view = self.ballot.view
            found = (
                self.holdings.proposable(in_time=in_time, view=view) if agreeing else self._dealers
            )
            if found or self.ballot.is_bound:
                proposal = self.ballot.propose(found or ())
                sends += self.context.broadcast(self.place, proposal)
        given = self.ballot.vote(self.holdings.accepts, self.holdings.holds)
        for vote in given:
            sends += self.context.broadcast(self.place, vote)
        if not sends:
            return []
        saved: list[e.Effect] = [self._promise()]
        if any(not vote.final for vote in given):
            saved += self._keep_rows()
        return [*saved, *sends]

    def _keep_rows(self) -> list[e.Effect]:
        """Keep what this peer has come to hold; what is used once is stored nowhere else."""
        rows = self.holdings.unsaved()
        stored = self.task.kind is not None and self.task.kind.stored
        return [e.Keep(rows=rows, stored=stored)] if rows else []

    def _promise(self) -> e.Remember:
        """Keep the seed and the votes under this step's number, however far the run has come."""
        promise = Promise(
            step=self.place.step,
            seed=self.seed,
            dealt=self._own_digest,
            now=self._spoken(),
            before=self._before,
        )
        return e.Remember(promise=promise)

    def _spoken(self) -> Spoken:
        used_once = self.task.kind is not None and not self.task.kind.stored
        values = self._sub_secret.values if used_once and self._sub_secret else None
        return Spoken(ballot=self.ballot.record(), sub_secret=values)

    def as_previous(self) -> PreviousStep:
        """Return what this peer said in this step, for those that still need it."""
        return PreviousStep(place=self.place, spoken=self._spoken(), sub_secret=self._sub_secret)

    def _send_sub_secret(self) -> list[e.Effect]:
        rows = self.holdings.rows(self._dealers)
        values = None if rows is None else self.task.sub_secret(rows)
        if values is None:
            text = "shares are missing here, this peer only listens"
            return [e.Note(text=text, facts={"step": self.place.step})]
        self.sub_secrets.take(self.context.me, self._choice, values)
        self._sub_secret = m.SubSecret(choice=self._choice, values=values)
        return [*self.context.broadcast(self.place, self._sub_secret)]

    def _is_leaders(self, sender: int, body: m.Proposal) -> bool:
        """Say whether to look at a proposal: its view's leader sent it, of everybody at most."""
        is_leader = self.ballot.leader(body.view) == sender and self.ballot.is_near(body.view)
        return is_leader and len(body.dealers) <= len(self.context.peers)

    def _open_if_possible(self) -> list[e.Effect]:
        if self.state is not StepState.OPENING:
            return []
        found = self.sub_secrets.open(self._choice)
        if found is None:
            return []
        values, liars = found
        self._move(Move.OPENS)
        blames = [e.Blame(peer=peer, what="sent a wrong sub-secret") for peer in liars]
        entry = m.LogEntry(dealers=self._dealers, values=values)
        return [*blames, self._result(entry, self._signed(liars))]

    def _signed(self, liars: tuple[int, ...]) -> tuple[bytes, ...]:
        """Return the sub-secrets that this was opened from, if they may prove a dealer's cheat."""
        if not isinstance(self.task, SingleDealings):
            return ()
        said = self._watch.sub_secrets(self._choice)
        if self._sub_secret is not None:
            said[self.context.me] = self.context.broadcast(self.place, self._sub_secret)[0].data
        return tuple(data for peer, data in sorted(said.items()) if peer not in liars)

    def _result(self, entry: m.LogEntry, signed: tuple[bytes, ...] = ()) -> e.Commit:
        stored = self.task.kind is not None and self.task.kind.stored
        shares = self.holdings.held_of(entry.dealers) if stored else {}
        return e.Commit(entry=entry, shares=shares, signed=signed)

    def _deal(self, dealt: Dealt) -> list[e.Effect]:
        """Deal to all others; which dealing it is, is kept before anybody sees it."""
        digest = self.holdings.digest_of(self.context.me, dealt.public)
        if self._own_digest not in (b"", digest):
            self.holdings.expected.discard(self.context.me)
            text = (
                "what this peer deals came out otherwise than before it was restarted: it deals "
                "nothing in this step, and the others go on without it"
            )
            return [e.Note(text=text, facts={"step": self.place.step})]
        self._own_digest, self._dealt = digest, dealt
        self.holdings.hold_own(dealt)
        return [self._promise(), *self._deal_to(self.context.others)]

    def _deal_to(self, peers: tuple[int, ...]) -> list[e.Effect]:
        if self._dealt is None:
            return []
        public, own = vars(self._dealt.public), self.holdings.own_statement
        sends: list[e.Effect] = []
        for peer in peers:
            bound_to = self.holdings.seal_context(self.context.me, peer)
            sealed = self.context.crypto.seal(peer, self._dealt.private[peer], bound_to)
            body = m.Dealing(**public, statement=own, sealed=sealed)
            sends.append(self.context.send(self.place, body, peer))
        return sends

    def _again(self, now: float) -> list[e.Effect]:
        """Say again what may have been lost.

        Dealings are large, and peers that are silent are likely to be waiting for others' or to be
        slow: those get them again later than the rest.
        """
        sends: list[e.Effect] = []
        if self.state in (StepState.GATHERING, StepState.AGREEING):
            sends += self._deal_to(self.holdings.lacking_mine(silent=now >= self._deal_again_at))
        if self.state is StepState.AGREEING or self._helps:
            sends += self._receipt()
        if self.state in (StepState.AGREEING, StepState.OPENING):
            if self.ballot.proposed:
                sends += self.context.broadcast(self.place, self.ballot.proposed)
            for vote in self.ballot.cast:
                sends += self.context.broadcast(self.place, vote)
        if self.state is StepState.OPENING and self._sub_secret is not None:
            sends += self.context.broadcast(self.place, self._sub_secret)
        return sends
