"""Removals: proposed by one peer, carried out when enough others have approved. No input/output.

Rules:

- A removal names who goes, why, by which method the model is recovered, and the log of the training
  it is about. Its digest names the recovery run, so all that run it mean the same.
- It passes with the signed approvals of more than half of all peers, and of more than may collude
  or lie; those to be removed have no vote. Nobody can expel a peer alone.
- A removal that the rule refuses (see `recovery.removal`) does not count, whoever approves it, and
  a peer that is asked to approve it says why it does not.
- Every peer says its own approvals again from time to time, with the proposal, so that who was
  away hears of it. It also says that it is here, so that silence means something.
"""

import json
from dataclasses import dataclass, field

from pdlrecover.engines.peers import codec
from pdlrecover.engines.peers.circle import Circle
from pdlrecover.engines.peers.contracts import Store
from pdlrecover.engines.peers.effects import Blame, Note, Send
from pdlrecover.engines.peers.messages import (
    EVERYBODY,
    NOTHING,
    Approval,
    Envelope,
    Header,
    Position,
    Refusal,
    RemovalProposal,
)
from pdlrecover.errors import CodecError, PlanError
from pdlrecover.recovery import methods
from pdlrecover.recovery.removal import check_company, check_removal

MAX_REMOVALS = 64
"""So many different proposals of one peer are looked at."""
_MEMORY = "removals"


@dataclass(kw_only=True, eq=False)
class Removal:
    """A proposed removal, and who wants it."""

    proposal: RemovalProposal
    kept: tuple[int, ...]
    approvals: dict[int, bytes] = field(default_factory=dict)
    """Each approving peer's signed message."""


class Council:
    """What one peer knows of removals, and its own voice."""

    def __init__(self, circle: Circle, store: Store, min_removed: int = 1) -> None:
        """`circle` is everybody, with the run `NOTHING`.

        Fewer honest leavers than `min_removed` are refused, unless differencing is accepted.
        """
        self._circle, self._store, self._min_removed = circle, store, min_removed
        self._after = NOTHING
        self.removals: dict[bytes, Removal] = {}
        self._early: dict[bytes, dict[int, bytes]] = {}
        self._by: dict[int, set[bytes]] = {}

    def about(self, log: bytes) -> None:
        """Set the finished training log that removals are about, and recall what was decided."""
        self._after = log
        saved = self._store.recall(_MEMORY)
        for item in json.loads(saved) if saved else []:
            proposal = RemovalProposal(
                removed=tuple(item["removed"]),
                reason=item["reason"],
                method=item["method"],
                accept_differencing=item["accept_differencing"],
                after=bytes.fromhex(item["after"]),
            )
            removal = self._learn(proposal)
            for peer, data in item["approvals"].items():
                removal.approvals[int(peer)] = bytes.fromhex(data)

    @property
    def needed(self) -> int:
        """How many approvals a removal takes."""
        return max(len(self._circle.peers) // 2 + 1, self._circle.trusted)

    def passed(self) -> list[Removal]:
        """Return the removals that have enough approvals."""
        return [r for r in self.removals.values() if len(r.approvals) >= self.needed]

    def propose(self, proposal: RemovalProposal) -> list[Send | Blame | Note]:
        """Propose a removal, and approve it; raise if the rule refuses it."""
        if proposal.after != self._after or self._after == NOTHING:
            raise PlanError("there is nothing to recover yet: the training has not ended here")
        removal = self._learn(proposal)
        if self._circle.me in proposal.removed:
            return [*self._circle.broadcast(self._place(), proposal)]
        return self._approve(removal)

    def approve(self, digest: bytes) -> list[Send | Blame | Note]:
        """Approve a removal that was proposed."""
        if digest not in self.removals:
            raise PlanError(f"no removal {digest.hex()[:16]} is known here; see the status")
        removal = self.removals[digest]
        if self._circle.me not in removal.kept:
            raise PlanError("a peer that is to be removed has no vote on it")
        return self._approve(removal)

    def receive(self, data: bytes, source: int) -> list[Send | Blame | Note]:
        """Take a message about removals."""
        try:
            envelope = codec.decode(data)
        except CodecError as error:
            return [Blame(peer=source, what=str(error))]
        header, circle = envelope.header, self._circle
        good = (
            header.sender == source
            and source in circle.others
            and header.recipient in (circle.me, EVERYBODY)
            and (header.federation, header.run) == (circle.federation, NOTHING)
            and circle.crypto.verify(source, envelope.signed, envelope.signature)
        )
        if not good:
            return [Blame(peer=source, what="sent a forged or misdirected message on removals")]
        return self._take(envelope)

    def again(self) -> list[Send]:
        """Say that this peer is here, and its approvals again."""
        sends = self._circle.broadcast(self._place(), Position(reply=False))
        for removal in self.removals.values():
            if self._circle.me in removal.approvals:
                sends += self._circle.broadcast(self._place(), removal.proposal)
                approval = Approval(removal=removal.proposal.digest)
                sends += self._circle.broadcast(self._place(), approval)
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
                return [Note(text=f"a peer refuses a removal: {why[:500]!r}", facts=facts)]
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
            self._learn(body)
        except PlanError as error:
            if again:
                return []  # it was told why
            refusal = Refusal(removal=body.digest, why=str(error)[:300])
            return [self._circle.send(self._place(), refusal, sender)]
        facts: dict[str, object] = {"removal": body.digest.hex()[:16], "by": sender}
        return [Note(text=f"removal of peers {list(body.removed)} proposed", facts=facts)]

    def _learn(self, proposal: RemovalProposal) -> Removal:
        """Take a removal into account; raise if the rule refuses it."""
        if proposal.digest in self.removals:
            return self.removals[proposal.digest]
        if proposal.after != self._after:
            raise PlanError("this removal is about another training than this peer's")
        methods.check(proposal.method, clear=False)
        quorums = self._circle.scheme.quorums
        kept = check_removal(
            proposal.removed,
            peers=quorums.peers,
            tolerance=quorums.tolerance,
            reason=proposal.reason,
            accept_differencing=proposal.accept_differencing,
            earlier=[
                frozenset(other.kept)
                for other in self.removals.values()
                if len(other.approvals) >= self.needed
            ],
        )
        check_company(len(kept), quorums.tolerance)
        leaves = proposal.reason == "left" and not proposal.accept_differencing
        if leaves and len(proposal.removed) < self._min_removed:
            raise PlanError(
                f"the federation removes at least {self._min_removed} leavers at once "
                f"(recovery.min_removed), got {len(proposal.removed)}; wait for others, or accept "
                "that their sum is revealed (--accept-differencing)"
            )
        if not proposal.removed or len(kept) < self.needed:
            raise PlanError(
                f"a removal names at least one peer and leaves {self.needed} to approve it, got "
                f"{len(proposal.removed)} to remove and {len(kept)} to keep"
            )
        removal = Removal(proposal=proposal, kept=tuple(kept))
        self.removals[proposal.digest] = removal
        for peer, data in self._early.pop(proposal.digest, {}).items():
            self._count(removal, peer, data)
        return removal

    def _approve(self, removal: Removal) -> list[Send | Blame | Note]:
        body = Approval(removal=removal.proposal.digest)
        proposed = self._circle.broadcast(self._place(), removal.proposal)
        approved = self._circle.broadcast(self._place(), body)
        removal.approvals[self._circle.me] = approved[0].data
        self._save()
        return [*proposed, *approved]

    def _count(self, removal: Removal, peer: int, data: bytes) -> list[Send | Blame | Note]:
        if peer not in removal.kept:
            return [Blame(peer=peer, what="voted on its own removal")]
        if peer in removal.approvals:
            return []
        removal.approvals[peer] = data
        self._save()
        facts: dict[str, object] = {"approvals": len(removal.approvals), "needed": self.needed}
        return [Note(text=f"peer {peer} approves a removal", facts=facts)]

    def _save(self) -> None:
        told = [
            {
                "removed": list(removal.proposal.removed),
                "reason": removal.proposal.reason,
                "method": removal.proposal.method,
                "accept_differencing": removal.proposal.accept_differencing,
                "after": removal.proposal.after.hex(),
                "approvals": {p: data.hex() for p, data in removal.approvals.items()},
            }
            for removal in self.removals.values()
        ]
        self._store.remember(_MEMORY, json.dumps(told).encode())

    def _place(self) -> Header:
        return self._circle.place(0, self._after, NOTHING, 0)
