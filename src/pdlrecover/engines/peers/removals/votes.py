"""Removals: proposed by one peer, carried out when enough others have approved. No input/output.

Rules:

- A removal names who goes, why, by which method and settings the model is recovered, and the log of
  the training it is about. Its digest names the recovery run, so all that run it mean the same.
- It passes with the signed approvals of more than half of all peers, and of more than may collude
  or lie; those to be removed have no vote. Nobody can expel a peer alone.
- What the rule refuses (see `rule`) does not pass, and a peer that is asked to approve it says why
  it does not. The rule is applied when a removal is learnt, when it is approved here, and again
  when it has enough approvals: always after all removals that have passed, and, for this peer's own
  approval, after those that it has approved. What has passed here stays passed.
- A removal by a method that starts afresh may pass while the training is under way. The training
  goes on, and who was removed deals in it no more; the recovery runs beside it.
- A removal may replace another: when it has passed, the recovery of that one ends, or does not
  begin. One whose recovery has stalled is replaced by a public rule: each peer that sees the stall
  approves, by itself, the one replacement that follows from it, of the same peers and by the
  federation's fallback. It passes as any removal does.
- Every removal starts from the training. It is no expulsion: who was removed before is a peer like
  the others in the next removal, with a vote, and is kept unless it is named again.
- Every peer says the approvals that it has again from time to time, with the proposal, so that who
  was away hears of it; also those of others, signed by them, so that nobody can approve towards
  some peers only. For that an approval is addressed to everybody, or it does not count. Every peer
  also says that it is here, so that silence means something.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pdlrecover.engines.peers.federation.plan import Recovery, Training
from pdlrecover.engines.peers.protocol import codec
from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.engines.peers.protocol.contracts import Store
from pdlrecover.engines.peers.protocol.effects import Blame, Note, Reaction, Send
from pdlrecover.engines.peers.protocol.run_context import RunContext
from pdlrecover.engines.peers.removals import memory
from pdlrecover.engines.peers.removals.rule import UNTRAINED, RemovalRule
from pdlrecover.engines.peers.removals.terms import RemovalTerms
from pdlrecover.errors import CodecError, PlanError

MAX_REMOVALS = 64
"""At most this many different proposals of one peer are looked at."""
WHY_BYTES = 900
"""Why a removal is refused is sent in at most this many bytes: fewer than a message takes."""


@dataclass(kw_only=True, eq=False)
class Removal:
    """A proposed removal, and who wants it."""

    proposal: m.RemovalProposal
    kept: tuple[int, ...]
    approvals: dict[int, bytes] = field(default_factory=dict)
    """Each approving peer's signed message."""

    @property
    def replaces(self) -> bytes:
        """The removal that this one takes the place of; `NOTHING` if there is none."""
        try:
            return RemovalTerms.from_line(self.proposal.settings).replaces
        except PlanError:  # stored by an earlier version
            return m.NOTHING


class Removals:
    """What one peer knows of removals, and its own voice."""

    def __init__(
        self, context: RunContext, store: Store, training: Training, recovery: Recovery
    ) -> None:
        """Recall what was decided before. `context` is everybody, with the run `NOTHING`.

        `recovery` has the settings of recoveries that are proposed from now on.
        """
        self._context, self._store, self._recovery = context, store, recovery
        self._rule = RemovalRule(
            quorums=context.scheme.quorums,
            recovery=recovery,
            needed=self.needed,
            dealers=max(context.quorum, context.scheme.quorums.tolerance.colluders + 2),
            training=training,
        )
        self._training, self.founded = m.NOTHING, True
        self.trainings: dict[int, bytes] = {}
        """By peer: the training that it says it takes part in, once it knows."""
        self._saved = memory.recall(store)
        self.known: dict[bytes, Removal] = {}
        """Every removal that was proposed and not refused, by its digest."""
        self._passed: list[bytes] = []
        """The removals that have passed, in that order."""
        self._early: dict[bytes, dict[int, bytes]] = {}
        """Approvals that came before their removal was proposed here."""
        self._proposed: dict[int, set[bytes]] = {}
        """What every peer has proposed."""
        self._recall(m.NOTHING)

    def training_ended(
        self, log: bytes, rounds: Iterable[Iterable[int]], kept_from: int = 0
    ) -> None:
        """Take removals after this training from now on, and recall what was decided on them.

        `log` is the digest of its log; `rounds` says who dealt in each of its rounds, nobody if it
        was void; this peer has its shares of round 0 and from round `kept_from` on, and has dropped
        the others.
        """
        self._rule = replace(
            self._rule,
            log=log,
            rounds=[frozenset(dealers) for dealers in rounds],
            kept_from=kept_from,
        )
        self._recall(log)

    def wait_for_training(self) -> None:
        """Take no removals, until there is a training."""
        self.founded = False

    def train(self, training: bytes, epoch_name: bytes) -> None:
        """Take removals from this training from now on; its name, and again if it has an epoch."""
        self._training, self.founded = training, True
        self._rule = replace(self._rule, run=epoch_name)

    def _recall(self, after: bytes) -> None:
        """Take up what was decided on removals after this log."""
        for stored in self._saved.removals:
            if stored.proposal.after == after:
                self.known[stored.proposal.digest] = Removal(
                    proposal=stored.proposal,
                    kept=self._rule.kept(stored.proposal),
                    approvals={each.peer: each.message for each in stored.approvals},
                )
        self._passed = [digest for digest in self._saved.passed if digest in self.known]

    @property
    def me(self) -> int:
        """The number of this peer."""
        return self._context.me

    @property
    def needed(self) -> int:
        """How many approvals a removal takes."""
        return max(len(self._context.peers) // 2 + 1, self._context.trusted)

    def passed(self) -> list[Removal]:
        """Return the removals that have enough approvals, and that no earlier one excludes."""
        return [self.known[digest] for digest in self._passed]

    def removed_in_training(self) -> frozenset[int]:
        """Return who was removed while the training was under way."""
        return self._rule.left_out([each.proposal for each in self.passed()])

    def removals_in_training(self) -> list[frozenset[int]]:
        """Return whom each removal is of that has passed while the training was under way."""
        early = (each.proposal for each in self.passed() if each.proposal.after == m.NOTHING)
        return [frozenset(proposal.removed) for proposal in early]

    def closed_rounds(self, proposal: m.RemovalProposal) -> frozenset[int]:
        """Return the rounds of the training whose stored sums this recovery leaves closed."""
        return self._rule.closed_rounds(proposal)

    def replaced(self) -> dict[bytes, bytes]:
        """Return which removals are replaced by one that has passed, and by which."""
        named = {each.replaces: each.proposal.digest for each in self.passed()}
        named.pop(m.NOTHING, None)
        return named

    def draft(
        self,
        removed: Iterable[int],
        *,
        reason: str,
        method: str,
        accept_differencing: bool,
        replaces: bytes = m.NOTHING,
    ) -> m.RemovalProposal:
        """Return a removal after the training here, with the settings of this federation."""
        return m.RemovalProposal(
            removed=tuple(sorted(set(removed))),
            reason=reason,
            method=method,
            accept_differencing=accept_differencing,
            after=self._log,
            settings=self._rule.terms(replaces).as_line(),
        )

    def starts_afresh(self, digest: bytes) -> bool:
        """Say whether the recovery of a known removal needs nothing of the training."""
        return self._rule.starts_afresh(self.known[digest].proposal)

    def replacement(self, digest: bytes) -> m.RemovalProposal:
        """Return what replaces a stalled removal: the same at every peer."""
        stalled = self.known[digest].proposal
        return replace(
            stalled,
            method=self._recovery.fallback,
            accept_differencing=False,
            settings=self._rule.terms(digest).as_line(),
        )

    def propose(self, proposal: m.RemovalProposal) -> list[Reaction]:
        """Propose a removal, and approve it; raise if the rule refuses it."""
        me, known = self._context.me, self.known.get(proposal.digest)
        if known is None or not (me in proposal.removed or me in known.approvals):
            self._judge(proposal, mine=True)
        removal, effects = self._learn(proposal)
        if me in proposal.removed:
            return [*effects, *self._context.broadcast(self._place(), proposal)]
        return [*effects, *self._approve(removal)]

    def approve(self, digest: bytes) -> list[Reaction]:
        """Approve a removal that was proposed."""
        if digest not in self.known:
            raise PlanError(f"no removal {digest.hex()[:16]} is known here; see the status")
        removal = self.known[digest]
        if self._context.me not in removal.kept:
            raise PlanError("a peer that is to be removed has no vote on it")
        if self._context.me not in removal.approvals:
            self._judge(removal.proposal, mine=True)
        return self._approve(removal)

    def receive(self, data: bytes, source: int) -> list[Reaction]:
        """Take a message about removals."""
        try:
            envelope = codec.decode(data)
        except CodecError as error:
            return [Blame(peer=source, what=str(error))]
        header, context = envelope.header, self._context
        approves = isinstance(envelope.body, m.Approval)
        passed_on = approves and header.sender in context.others
        good = (
            (header.sender == source or passed_on)
            and source in context.others
            and header.recipient in ((m.EVERYBODY,) if approves else (context.me, m.EVERYBODY))
            and (header.federation, header.run) == (context.federation, m.NOTHING)
            and context.crypto.verify(header.sender, envelope.signed, envelope.signature)
        )
        if not good:
            return [Blame(peer=source, what="sent a forged or misdirected message on removals")]
        return self._take(envelope)

    def again(self) -> list[Send]:
        """Say that this peer is here, and its approvals again."""
        sends = self._context.broadcast(self._place(), m.Position(reply=False))
        for removal in self.known.values():
            if self._context.me in removal.approvals:
                sends += self._context.broadcast(self._place(), removal.proposal)
                approval = m.Approval(removal=removal.proposal.digest)
                sends += self._context.broadcast(self._place(), approval)
                sends += self._passed_on(removal)
        return sends

    def _passed_on(self, removal: Removal) -> list[Send]:
        """Return the others' approvals for those that may not have them; only what they take."""
        context = self._context
        return [
            Send(to=to, data=message, kind=m.Approval.__name__)
            for peer, message in removal.approvals.items()
            if peer != context.me and codec.decode(message).header.federation == context.federation
            for to in context.others
            if to != peer
        ]

    def _take(self, envelope: m.Envelope) -> list[Reaction]:
        sender, body = envelope.header.sender, envelope.body
        match body:
            case m.RemovalProposal():
                return self._take_proposal(sender, body)
            case m.Approval(removal=digest) if digest in self.known:
                return self._count(self.known[digest], sender, envelope.data)
            case m.Approval(removal=digest):
                if len(self._early) < MAX_REMOVALS:
                    self._early.setdefault(digest, {})[sender] = envelope.data
                return []
            case m.Refusal(removal=digest, why=why):
                name, who = digest.hex()[:16], self._context.name(sender)
                text = f"{who} refuses removal {name}: {why[:500]!r}"
                facts = {"event": "removal-refused", "peer": sender, "removal": name}
                return [Note(text=text, facts=facts)]
            case m.Position():
                self.trainings[sender] = envelope.header.asked
                return []
            case _:
                return [Blame(peer=sender, what="sent what is no word on removals")]

    def _take_proposal(self, sender: int, body: m.RemovalProposal) -> list[Reaction]:
        early = self._log == m.NOTHING and body.after != m.NOTHING
        if body.digest in self.known or early or not self.founded:
            return []  # while the training it is about goes on: it will be said again
        proposed = self._proposed.setdefault(sender, set())
        again = body.digest in proposed
        if not again and len(proposed) >= MAX_REMOVALS:
            return []
        proposed.add(body.digest)
        try:
            _, effects = self._learn(body)
        except PlanError as error:
            if again:
                return []  # it was sent why
            why = str(error).encode()[:WHY_BYTES].decode("utf-8", "ignore")
            refusal = m.Refusal(removal=body.digest, why=why)
            return [self._context.send(self._place(), refusal, sender)]
        name, who = body.digest.hex()[:16], ", ".join(map(self._context.name, body.removed))
        text = f"{self._context.name(sender)} proposes removal {name} of {who}"
        facts = {"event": "removal-proposed", "removal": name, "peer": sender}
        return [Note(text=text, facts=facts), *effects]

    def _learn(self, proposal: m.RemovalProposal) -> tuple[Removal, list[Reaction]]:
        """Take a removal into account, and the approvals that came first; raise if refused."""
        if proposal.digest in self.known:
            return self.known[proposal.digest], []
        removal = Removal(proposal=proposal, kept=self._judge(proposal))
        self.known[proposal.digest] = removal
        effects: list[Reaction] = []
        for peer, data in self._early.pop(proposal.digest, {}).items():
            effects += self._count(removal, peer, data)
        return removal, effects

    def _judge(self, proposal: m.RemovalProposal, *, mine: bool = False) -> tuple[int, ...]:
        """Return who is kept; raise if the rule refuses this removal after those that have passed.

        With `mine`, after those as well that this peer has approved, and if it can take part.
        """
        if not self.founded:
            raise PlanError(f"{UNTRAINED}: the peers have not agreed on an epoch yet; wait")
        others = [
            other.proposal
            for digest, other in self.known.items()
            if digest != proposal.digest
            and (digest in self._passed or (mine and self._context.me in other.approvals))
        ]
        self._rule.judge(proposal, others)
        known = {digest: removal.proposal for digest, removal in self.known.items()}
        self._rule.check_replaced(proposal, known)
        if mine:
            self._rule.check_shares(proposal)
            self._rule.check_training(proposal, others)
        return self._rule.kept(proposal)

    def _pass(self, removal: Removal) -> list[Note]:
        """Let a removal pass that has enough approvals, if the rule still allows it."""
        digest = removal.proposal.digest
        if digest in self._passed or len(removal.approvals) < self.needed:
            return []
        try:
            self._judge(removal.proposal)
        except PlanError as error:
            name = digest.hex()[:16]
            text = f"removal {name} is approved, and refused here: {error}"
            return [Note(text=text, facts={"event": "removal-refused", "removal": name})]
        self._passed.append(digest)
        return []

    def _approve(self, removal: Removal) -> list[Reaction]:
        body = m.Approval(removal=removal.proposal.digest)
        proposed = self._context.broadcast(self._place(), removal.proposal)
        approved = self._context.broadcast(self._place(), body)
        removal.approvals[self._context.me] = approved[0].data
        notes = self._pass(removal)
        self._save()
        return [*proposed, *approved, *notes]

    def _count(self, removal: Removal, peer: int, data: bytes) -> list[Reaction]:
        if peer not in removal.kept:
            return [Blame(peer=peer, what="voted on its own removal")]
        if peer in removal.approvals:
            return []
        removal.approvals[peer] = data
        notes = self._pass(removal)
        self._save()
        name, got = removal.proposal.digest.hex()[:16], len(removal.approvals)
        who, needed = self._context.name(peer), self.needed
        facts = {"event": "removal-approved", "peer": peer, "removal": name}
        facts |= {"approvals": got, "needed": needed}
        text = f"{who} approves removal {name}: {got} of {needed} approvals"
        return [Note(text=text, facts=facts), *notes]

    def _save(self) -> None:
        removals = tuple(
            memory.StoredRemoval(
                proposal=each.proposal,
                approvals=tuple(
                    memory.StoredApproval(peer=peer, message=message)
                    for peer, message in each.approvals.items()
                ),
            )
            for each in self.known.values()
        )
        later = () if self._rule.log != m.NOTHING else self._saved.removals
        waiting = tuple(each for each in later if each.proposal.digest not in self.known)
        held = tuple(each for each in self._saved.passed if each not in self.known and waiting)
        self._saved = memory.StoredRemovals(
            removals=(*removals, *waiting), passed=(*self._passed, *held)
        )
        memory.remember(self._store, self._saved)

    @property
    def _log(self) -> bytes:
        """The digest of the log that removals are about; `NOTHING` while the training goes on."""
        return self._rule.log

    def _place(self) -> m.Header:
        return self._context.place(0, self._log, self._training, 0)
