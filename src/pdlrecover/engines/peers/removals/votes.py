"""Removals: proposed by one peer, carried out when enough others have approved. No input/output.

Rules:

- A removal names who goes, why, by which method and settings the model is recovered, and the log of
  the training it is about. Its digest names the recovery run, so all that run it mean the same.
- It passes with the signed approvals of more than half of all peers, and of more than may collude
  or lie; those to be removed have no vote. Nobody can expel a peer alone.
- A removal that the rule refuses (see `recovery.removal`) does not count, whoever approves it, and
  a peer that is asked to approve it says why it does not. The rule is applied when a removal is
  learnt, when it is approved here, and again when it has enough approvals: always to all removals
  that have passed, and to those that this peer has approved. What has passed here stays passed.
- The rule holds in every training round that the recovery may open a stored sum of, for those that
  dealt in it, together with the other removals that may open one of it. Methods that do not replay
  the history open those of the first rounds, up to the one in which a removed peer first dealt.
- A removal that cannot run is refused: by a method whose plan does not fit the training, or, where
  it is proposed and approved, by one that needs shares that this peer has dropped.
- Every removal starts from the training. It is no expulsion: who was removed before is a peer like
  the others in the next removal, with a vote, and is kept unless it is named again.
- A kept set is recovered once, unless differencing is accepted: a second recovery would ask the
  same peers for the same updates, and perhaps open them in another sum.
- Every peer says its own approvals again from time to time, with the proposal, so that who was
  away hears of it. It also says that it is here, so that silence means something.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from pdlrecover.engines.peers.federation.plan import Recovery
from pdlrecover.engines.peers.protocol import codec
from pdlrecover.engines.peers.protocol.contracts import Store
from pdlrecover.engines.peers.protocol.effects import Blame, Note, Send
from pdlrecover.engines.peers.protocol.messages import (
    EVERYBODY,
    NOTHING,
    Approval,
    Envelope,
    Header,
    Position,
    Refusal,
    RemovalProposal,
)
from pdlrecover.engines.peers.protocol.run_context import RunContext
from pdlrecover.errors import CodecError, PlanError
from pdlrecover.recovery import methods
from pdlrecover.recovery.removal import check_differences, check_peers_in_sum, check_removal

MAX_REMOVALS = 64
"""So many different proposals of one peer are looked at."""
WHY_BYTES = 900
"""So many bytes of why a removal is refused are told: fewer than a message takes."""
_MEMORY = "removals"


@dataclass(kw_only=True, eq=False)
class Removal:
    """A proposed removal, and who wants it."""

    proposal: RemovalProposal
    kept: tuple[int, ...]
    approvals: dict[int, bytes] = field(default_factory=dict)
    """Each approving peer's signed message."""


class Removals:
    """What one peer knows of removals, and its own voice."""

    def __init__(self, context: RunContext, store: Store, recovery: Recovery) -> None:
        """`run_context` is everybody, with the run `NOTHING`.

        `recovery` has the settings of recoveries that are proposed from now on. Fewer honest
        leavers than its `min_removed` are refused, unless differencing is accepted.
        """
        self.settings = recovery.told()
        self._context, self._store, self._recovery = context, store, recovery
        self._after: bytes = NOTHING
        self._rounds: list[frozenset[int]] = []
        self._kept_from = 0
        self.removals: dict[bytes, Removal] = {}
        self._passed: list[bytes] = []
        """The removals that have passed, in that order."""
        self._early: dict[bytes, dict[int, bytes]] = {}
        self._by: dict[int, set[bytes]] = {}

    def about(self, log: bytes, rounds: Iterable[Iterable[int]], kept_from: int = 0) -> None:
        """Set the finished training log that removals are about, and recall what was decided.

        `rounds` says who dealt in each of its rounds; this peer has its shares of round 0 and from
        round `kept_from` on, and has dropped the others.
        """
        self._after, self._kept_from = log, kept_from
        self._rounds = [frozenset(dealers) for dealers in rounds]
        saved = self._store.recall(_MEMORY)
        told = json.loads(saved) if saved else {"removals": [], "passed": []}
        for item in told["removals"]:
            proposal = RemovalProposal(
                removed=tuple(item["removed"]),
                reason=item["reason"],
                method=item["method"],
                accept_differencing=item["accept_differencing"],
                after=bytes.fromhex(item["after"]),
                settings=item["settings"],
            )
            if proposal.after != log:
                continue
            everybody = range(self._context.scheme.quorums.peers)
            self.removals[proposal.digest] = Removal(
                proposal=proposal,
                kept=tuple(peer for peer in everybody if peer not in proposal.removed),
                approvals={int(p): bytes.fromhex(data) for p, data in item["approvals"].items()},
            )
        passed = [bytes.fromhex(digest) for digest in told["passed"]]
        self._passed = [digest for digest in passed if digest in self.removals]

    @property
    def needed(self) -> int:
        """How many approvals a removal takes."""
        return max(len(self._context.peers) // 2 + 1, self._context.trusted)

    def passed(self) -> list[Removal]:
        """Return the removals that have enough approvals, and that no earlier one excludes."""
        return [self.removals[digest] for digest in self._passed]

    def propose(self, proposal: RemovalProposal) -> list[Send | Blame | Note]:
        """Propose a removal, and approve it; raise if the rule refuses it."""
        if proposal.after != self._after or self._after == NOTHING:
            raise PlanError("there is nothing to recover yet: the training has not ended here")
        if proposal.digest not in self.removals:
            self._judge(proposal, mine=True)
        removal, heard = self._learn(proposal)
        if self._context.me in proposal.removed:
            return [*heard, *self._context.broadcast(self._place(), proposal)]
        return [*heard, *self._approve(removal)]

    def approve(self, digest: bytes) -> list[Send | Blame | Note]:
        """Approve a removal that was proposed."""
        if digest not in self.removals:
            raise PlanError(f"no removal {digest.hex()[:16]} is known here; see the status")
        removal = self.removals[digest]
        if self._context.me not in removal.kept:
            raise PlanError("a peer that is to be removed has no vote on it")
        if self._context.me not in removal.approvals:
            self._judge(removal.proposal, mine=True)
        return self._approve(removal)

    def receive(self, data: bytes, source: int) -> list[Send | Blame | Note]:
        """Take a message about removals."""
        try:
            envelope = codec.decode(data)
        except CodecError as error:
            return [Blame(peer=source, what=str(error))]
        header, context = envelope.header, self._context
        good = (
            header.sender == source
            and source in context.others
            and header.recipient in (context.me, EVERYBODY)
            and (header.federation, header.run) == (context.federation, NOTHING)
            and context.crypto.verify(source, envelope.signed, envelope.signature)
        )
        if not good:
            return [Blame(peer=source, what="sent a forged or misdirected message on removals")]
        return self._take(envelope)

    def again(self) -> list[Send]:
        """Say that this peer is here, and its approvals again."""
        sends = self._context.broadcast(self._place(), Position(reply=False))
        for removal in self.removals.values():
            if self._context.me in removal.approvals:
                sends += self._context.broadcast(self._place(), removal.proposal)
                approval = Approval(removal=removal.proposal.digest)
                sends += self._context.broadcast(self._place(), approval)
        return sends

    def _take(self, envelope: Envelope) -> list[Send | Blame | Note]:
        sender, body = envelope.header.sender, envelope.body
        match body:
            case RemovalProposal():
                return self._hear_proposal(sender, body)
            case Approval(removal=digest) if digest in self.removals:
                return self._count(self.removals[digest], sender, envelope.data)
            case Approval(removal=digest):
                if len(self._early) < MAX_REMOVALS:
                    self._early.setdefault(digest, {})[sender] = envelope.data
                return []
            case Refusal(removal=digest, why=why):
                facts: dict[str, object] = {"peer": sender, "removal": digest.hex()[:16]}
                text = f"{self._context.name(sender)} refuses removal {digest.hex()[:16]}: "
                return [Note(text=f"{text}{why[:500]!r}", facts=facts)]
            case Position():
                return []
            case _:
                return [Blame(peer=sender, what="sent what is no word on removals")]

    def _hear_proposal(self, sender: int, body: RemovalProposal) -> list[Send | Blame | Note]:
        if body.digest in self.removals:
            return []
        if self._after == NOTHING:
            return []  # still training: it will be said again
        proposed = self._by.setdefault(sender, set())
        again = body.digest in proposed
        if not again and len(proposed) >= MAX_REMOVALS:
            return []
        proposed.add(body.digest)
        try:
            _, heard = self._learn(body)
        except PlanError as error:
            if again:
                return []  # it was told why
            why = str(error).encode()[:WHY_BYTES].decode("utf-8", "ignore")
            return [
                self._context.send(self._place(), Refusal(removal=body.digest, why=why), sender)
            ]
        facts: dict[str, object] = {"removal": body.digest.hex()[:16], "peer": sender}
        who = ", ".join(map(self._context.name, body.removed))
        text = f"{self._context.name(sender)} proposes removal {facts['removal']} of {who}"
        return [Note(text=text, facts=facts), *heard]

    def _learn(self, proposal: RemovalProposal) -> tuple[Removal, list[Send | Blame | Note]]:
        """Take a removal into account, and the approvals that came first; raise if refused."""
        if proposal.digest in self.removals:
            return self.removals[proposal.digest], []
        removal = Removal(proposal=proposal, kept=self._judge(proposal))
        self.removals[proposal.digest] = removal
        heard: list[Send | Blame | Note] = []
        for peer, data in self._early.pop(proposal.digest, {}).items():
            heard += self._count(removal, peer, data)
        return removal, heard

    def _judge(self, proposal: RemovalProposal, *, mine: bool = False) -> tuple[int, ...]:
        """Return who is kept; raise if the rule refuses this removal after those that have passed.

        With `mine`, after those as well that this peer has approved, and if it can take part.
        """
        if proposal.after != self._after:
            raise PlanError("this removal is about another training than this peer's")
        if proposal.settings != self.settings:
            raise PlanError(
                "this removal was proposed with other settings of recovery than this peer's "
                "federation file has; propose it again"
            )
        removed = proposal.removed
        if list(removed) != sorted(set(removed)):
            raise PlanError(f"a removal names each peer once, in order, got {list(removed)[:20]}")
        methods.check_between_peers(proposal.method)
        rounds = len(self._rounds)
        settings = methods.Settings(options=self._recovery.options(rounds))
        methods.check_plan(proposal.method, settings, rounds=rounds, removed=len(removed))
        quorums = self._context.scheme.quorums
        kept = check_removal(
            removed,
            peers=quorums.peers,
            tolerance=quorums.tolerance,
            reason=proposal.reason,
            accept_differencing=proposal.accept_differencing,
            colluders=quorums.tolerance.colluders,
        )
        for present in set(self._rounds[: self._opened(proposal)]):
            check_peers_in_sum(len(present.intersection(kept)), quorums.tolerance)
        if not removed or len(kept) < self.needed:
            raise PlanError(
                f"a removal names at least one peer and leaves {self.needed} to approve it, got "
                f"{len(removed)} to remove and {len(kept)} to keep"
            )
        if not any(dealers.intersection(removed) for dealers in self._rounds):
            raise PlanError(
                "none of these peers dealt in any round of the training, so the trained model is "
                "the one without them already; there is nothing to recover"
            )
        if not proposal.accept_differencing:
            self._check_differencing(proposal, frozenset(kept), mine)
        if mine:
            self._check_shares(proposal)
        return tuple(kept)

    def _check_differencing(
        self, proposal: RemovalProposal, kept: frozenset[int], mine: bool
    ) -> None:
        """Raise if the sums of this recovery and of others would tell a single peer's part."""
        least = self._recovery.min_removed
        if proposal.reason == "left" and len(proposal.removed) < least:
            raise PlanError(
                f"the federation removes at least {least} leavers at once "
                f"(recovery.min_removed), got {len(proposal.removed)}; wait for others, or accept "
                "that their sum is revealed (--accept-differencing)"
            )
        others = [
            other
            for digest, other in self.removals.items()
            if digest != proposal.digest
            and (digest in self._passed or (mine and self._context.me in other.approvals))
        ]
        if any(frozenset(other.kept) == kept for other in others):
            raise PlanError(
                "the same peers have been removed before; to recover again by another method, "
                "accept that the two recoveries can be compared (--accept-differencing)"
            )
        opened = [(frozenset(other.kept), self._opened(other.proposal)) for other in others]
        check_differences(
            kept,
            rounds=[
                (present, frozenset(other for other, end in opened if t < end))
                for t, present in enumerate(self._rounds[: self._opened(proposal)])
            ],
            colluders=self._context.scheme.quorums.tolerance.colluders,
            malicious=_malicious(other.proposal for other in others),
            now_malicious=_malicious([proposal]),
        )

    def _opened(self, proposal: RemovalProposal) -> int:
        """Return of how many rounds of the training, from the first, sums may be opened again.

        Until a removed peer has dealt, the recovery is at the models of the training, and is
        answered from stored sums whatever the method (see `driver`).
        """
        rounds, removed = self._rounds, frozenset(proposal.removed)
        if methods.entry_of(proposal.method).sees == "history":
            return len(rounds)
        dealt = (t + 1 for t, dealers in enumerate(rounds) if dealers & removed)
        return next(dealt, len(rounds))

    def _check_shares(self, proposal: RemovalProposal) -> None:
        """Raise if this peer has dropped shares that the recovery needs of it."""
        dropped = range(1, min(self._kept_from, self._opened(proposal)))
        if dropped:
            entries = methods.METHODS.items()
            fresh = [m for m, e in entries if e.on == "peers" and e.sees != "history"]
            raise PlanError(
                f"{proposal.method} needs stored shares of rounds {dropped[0]} to {dropped[-1]}, "
                "which this peer has dropped (history.keep); choose a method that asks for fresh "
                f"updates only ({', '.join(fresh)}), or let those decide that have them"
            )

    def _pass(self, removal: Removal) -> list[Note]:
        """Let a removal pass that has enough approvals, if the rule still allows it."""
        digest = removal.proposal.digest
        if digest in self._passed or len(removal.approvals) < self.needed:
            return []
        try:
            self._judge(removal.proposal)
        except PlanError as error:
            facts: dict[str, object] = {"removal": digest.hex()[:16]}
            text = f"removal {facts['removal']} is approved, and refused here: {error}"
            return [Note(text=text, facts=facts)]
        self._passed.append(digest)
        return []

    def _approve(self, removal: Removal) -> list[Send | Blame | Note]:
        body = Approval(removal=removal.proposal.digest)
        proposed = self._context.broadcast(self._place(), removal.proposal)
        approved = self._context.broadcast(self._place(), body)
        removal.approvals[self._context.me] = approved[0].data
        notes = self._pass(removal)
        self._save()
        return [*proposed, *approved, *notes]

    def _count(self, removal: Removal, peer: int, data: bytes) -> list[Send | Blame | Note]:
        if peer not in removal.kept:
            return [Blame(peer=peer, what="voted on its own removal")]
        if peer in removal.approvals:
            return []
        removal.approvals[peer] = data
        notes = self._pass(removal)
        self._save()
        name, got = removal.proposal.digest.hex()[:16], len(removal.approvals)
        text = (
            f"{self._context.name(peer)} approves removal {name}: {got} of {self.needed} approvals"
        )
        facts: dict[str, object] = {
            "peer": peer,
            "removal": name,
            "approvals": got,
            "needed": self.needed,
        }
        return [Note(text=text, facts=facts), *notes]

    def _save(self) -> None:
        told = [
            {
                "removed": list(removal.proposal.removed),
                "reason": removal.proposal.reason,
                "method": removal.proposal.method,
                "accept_differencing": removal.proposal.accept_differencing,
                "after": removal.proposal.after.hex(),
                "settings": removal.proposal.settings,
                "approvals": {p: data.hex() for p, data in removal.approvals.items()},
            }
            for removal in self.removals.values()
        ]
        passed = [digest.hex() for digest in self._passed]
        saved = json.dumps({"removals": told, "passed": passed})
        self._store.remember({_MEMORY: saved.encode()})

    def _place(self) -> Header:
        return self._context.place(0, self._after, NOTHING, 0)


def _malicious(proposals: Iterable[RemovalProposal]) -> frozenset[int]:
    """Return whom these removals declare malicious."""
    return frozenset(p for each in proposals if each.reason == "malicious" for p in each.removed)
