"""The rule by which a peer judges a proposed removal. No input/output.

Rules:

- A removal that the rule refuses (see `recovery.removal`) does not count, whoever approves it. It
  is judged together with others: those that have passed, and, before this peer approves it, those
  that this peer has approved.
- The guard (`recovery.privacy`) is asked for every training round that the recovery may open a
  stored sum of, for those that dealt in it, together with the other removals that may open one of
  it. Methods that do not replay the history open those of the first rounds, up to the one in which
  a removed peer first dealt.
- A method that can go on without some stored sums is not refused for a few rounds in which too few
  dealt: they stay closed (`closed_rounds`). That depends on the training and this removal alone, so
  that all peers leave the same ones closed, whichever other removals they have heard of first.
- Two recoveries that would ask for fresh updates at the same model are refused: who is away in one
  of them, which nobody knows beforehand, would be exposed.
- A method that starts afresh opens none, and asks for nothing at a model of the training. So any
  number of peers may go, whoever dealt in which round, and also while the training is under way;
  such a removal is about no log (`NOTHING`).
- What uses nothing of the training starts afresh: there is no reason to go near its sums.
- A removal that cannot run is refused: by a method whose plan does not fit the training, or, where
  it is proposed and approved, by one that needs shares that this peer has dropped.
- A removal may say which other one it replaces: one that is known here, and of the same peers or
  some of them. It is judged like any other.
- A kept set is recovered once, unless differencing is accepted: a second recovery would ask the
  same peers for the same updates, and perhaps open them in another sum.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pdlrecover.engines.peers.federation.plan import Recovery, Training
from pdlrecover.engines.peers.protocol.messages import NOTHING, RemovalProposal
from pdlrecover.engines.peers.removals.terms import RemovalTerms
from pdlrecover.errors import PlanError
from pdlrecover.recovery import methods
from pdlrecover.recovery.privacy import FRESH, PrivacyGuard
from pdlrecover.recovery.removal import check_removal, unprotected
from pdlrecover.sharing import Quorums

NEEDLESS = "so the trained model is the one without them already"
"""Said of a removal of peers that were away in the whole training."""

UNTRAINED = "there is nothing to recover yet: the training has not ended here"


@dataclass(frozen=True, kw_only=True)
class RemovalRule:
    """What this peer allows, given the training that removals are about."""

    quorums: Quorums
    recovery: Recovery
    """The federation's settings of recoveries. Fewer honest leavers than its `min_removed` are
    refused, unless differencing is accepted."""
    needed: int
    """How many approvals a removal takes."""
    dealers: int
    """How many must deal in a round of the training."""
    training: Training
    """What was agreed on it."""
    run: bytes = NOTHING
    """The name of the training run; `NOTHING` if that is one of before there were epochs."""
    log: bytes = NOTHING
    """The digest of the finished training log; `NOTHING` while the training is under way."""
    rounds: Sequence[frozenset[int]] = ()
    """Who dealt in each of its rounds, once it has ended; nobody, where it was void."""
    kept_from: int = 0
    """This peer has its shares of round 0, and from this round on; it has dropped the others."""

    def kept(self, proposal: RemovalProposal) -> tuple[int, ...]:
        """Return who is left after a removal."""
        return tuple(p for p in range(self.quorums.peers) if p not in proposal.removed)

    def terms(self, replaces: bytes = NOTHING) -> RemovalTerms:
        """Return what removals are proposed with here."""
        return RemovalTerms(recovery=self.recovery, training=self.run, replaces=replaces)

    def judge(self, proposal: RemovalProposal, others: Sequence[RemovalProposal]) -> None:
        """Raise if the rule refuses this removal, after these others."""
        try:
            self._judge(proposal, others)
        except PlanError as error:  # between peers it is the method that says how it starts
            raise PlanError(
                *(self._fresh() if part == FRESH else part for part in error.parts)
            ) from error

    def _judge(self, proposal: RemovalProposal, others: Sequence[RemovalProposal]) -> None:
        methods.check_between_peers(proposal.method)
        if proposal.after == NOTHING and not self.starts_afresh(proposal):
            raise PlanError(
                f"{UNTRAINED}; wait, or recover by a method that starts afresh ({self._fresh()})"
            )
        if methods.entry_of(proposal.method).sees == "nothing" and not self.starts_afresh(proposal):
            raise PlanError(
                f"between peers {proposal.method} must start afresh: at the training's first "
                "weights it would ask for updates that are in opened sums; leave start=first out"
            )
        if proposal.after not in (NOTHING, self.log):
            if self.log == NOTHING:
                raise PlanError(UNTRAINED)
            raise PlanError("this removal is about another training than this peer's")
        replaces = RemovalTerms.from_line(proposal.settings).replaces
        if proposal.settings != self.terms(replaces).as_line():
            raise PlanError(
                "this removal was proposed with other settings of recovery than this peer's "
                "federation file has; propose it again"
            )
        removed = proposal.removed
        if list(removed) != sorted(set(removed)):
            raise PlanError(f"a removal names each peer once, in order, got {list(removed)[:20]}")
        rounds, settings = self.training.rounds, self.recovery.settings(self.training)
        methods.check_plan(proposal.method, settings, rounds=rounds, removed=len(removed))
        kept = check_removal(
            removed,
            peers=self.quorums.peers,
            tolerance=self.quorums.tolerance,
            reason=proposal.reason,
        )
        guard = self._guard(proposal)
        guard.check("recovery", frozenset(kept))
        if not self.starts_afresh(proposal):
            everybody = frozenset(range(self.quorums.peers))
            guard.note("training", everybody)
            guard.check("training", frozenset(kept))
            self._check_rounds(proposal)
        if not removed or len(kept) < self.needed:
            raise PlanError(
                f"a removal names at least one peer and leaves {self.needed} to approve it, got "
                f"{len(removed)} to remove and {len(kept)} to keep"
            )
        ended = proposal.after != NOTHING
        if ended and not any(dealers.intersection(removed) for dealers in self.rounds):
            raise PlanError(
                f"none of these peers dealt in any round of the training, {NEEDLESS}; there is "
                "nothing to recover"
            )
        if not self.starts_afresh(proposal):
            self._check_differencing(proposal, others)

    def left_out(self, passed: Iterable[RemovalProposal]) -> frozenset[int]:
        """Return who deals no more in the training, given the removals that have passed.

        One that would leave too few to go on is passed over, in the order of their digests: all
        peers that know the same removals leave out the same.
        """
        gone: frozenset[int] = frozenset()
        for proposal in sorted(passed, key=lambda proposal: proposal.digest):
            if proposal.after == NOTHING and self._can_train(gone.union(proposal.removed)):
                gone = gone.union(proposal.removed)
        return gone

    def check_training(self, proposal: RemovalProposal, others: Iterable[RemovalProposal]) -> None:
        """Raise if the training could not go on after this removal and these others."""
        if self.log != NOTHING or proposal.after != NOTHING:
            return
        early = [each.removed for each in others if each.after == NOTHING]
        gone = frozenset(proposal.removed).union(*early)
        if not self._can_train(gone):
            raise PlanError(
                f"the training is under way, and {len(gone)} of {self.quorums.peers} peers would "
                "be removed from it, with those of other removals: too few would be left to go on; "
                "wait until it has ended"
            )

    def _can_train(self, gone: Collection[int]) -> bool:
        """Say whether rounds can still be opened without these peers."""
        return self.quorums.peers - len(gone) >= self.dealers

    def check_replaced(
        self, proposal: RemovalProposal, known: Mapping[bytes, RemovalProposal]
    ) -> None:
        """Raise if this removal says that it replaces one that it cannot."""
        replaces = RemovalTerms.from_line(proposal.settings).replaces
        if replaces == NOTHING:
            return
        if replaces not in known:
            raise PlanError(
                f"this removal replaces {replaces.hex()[:16]}, which is not known here (yet)"
            )
        if not set(known[replaces].removed) <= set(proposal.removed):
            raise PlanError(
                "a removal that replaces another removes the same peers, or more; got "
                f"{list(proposal.removed)} instead of {list(known[replaces].removed)}"
            )

    def _fresh(self) -> str:
        """Return the names of the methods that start afresh here."""
        settings, names = self.recovery.settings(self.training), methods.METHODS
        return ", ".join(name for name in names if methods.starts_afresh(name, settings))

    def starts_afresh(self, proposal: RemovalProposal) -> bool:
        """Say whether the recovery that a removal asks for starts afresh."""
        return methods.starts_afresh(proposal.method, self.recovery.settings(self.training))

    def _check_differencing(
        self, proposal: RemovalProposal, others: Sequence[RemovalProposal]
    ) -> None:
        """Raise if the sums of this recovery and of others would tell a single peer's part.

        Whoever accepts differencing accepts it for the peers that are removed, and nobody else.
        """
        least, accepted = self.recovery.min_removed, proposal.accept_differencing
        if not accepted and proposal.reason == "left" and len(proposal.removed) < least:
            raise PlanError(
                f"the federation removes at least {least} leavers at once "
                f"(recovery.min_removed), got {len(proposal.removed)}; wait for others, or accept "
                "that their sum is revealed (--accept-differencing)"
            )
        kept = frozenset(self.kept(proposal))
        closed = self.closed_rounds(proposal)
        old = [other for other in others if not self.starts_afresh(other)]
        for other in old:
            self._check_meeting(proposal, other)
        opened = [(frozenset(self.kept(o)), self._opened(o), self.closed_rounds(o)) for o in old]
        guard = self._guard(proposal, malicious=_unprotected(others))
        asked = {
            (present, frozenset(of for of, end, shut in opened if t < end and t not in shut))
            for t, present in enumerate(self.rounds[: self._opened(proposal)])
            if t not in closed
        }
        for present, also in asked:
            guard.note((present, also), present, *(present & of for of in also))
            guard.check((present, also), present & kept, also=_unprotected([proposal]))

    def _guard(
        self, proposal: RemovalProposal, malicious: frozenset[int] | None = None
    ) -> PrivacyGuard:
        """Return a guard; whom this removal does not protect is unprotected, or `malicious` are."""
        if malicious is None:
            malicious = _unprotected([proposal])
        return PrivacyGuard(colluders=self.quorums.tolerance.colluders, unprotected=malicious)

    def closed_rounds(self, proposal: RemovalProposal) -> frozenset[int]:
        """Return the rounds of the training whose sums over the kept peers must stay closed."""
        guard, kept = self._guard(proposal), frozenset(self.kept(proposal))
        found = []
        for t, present in enumerate(self.rounds[: self._opened(proposal)]):
            guard.note(present, present)
            if not guard.allows(present, present & kept):
                found.append(t)
        return frozenset(found)

    def _check_rounds(self, proposal: RemovalProposal) -> None:
        """Raise if more stored sums must stay closed than the method can go on without."""
        closed, rounds = self.closed_rounds(proposal), self._opened(proposal)
        passes_over = methods.entry_of(proposal.method).passes_over
        if not closed or (passes_over and len(closed) <= rounds // 2):
            return
        guard, present = self._guard(proposal), self.rounds[min(closed)]
        guard.note(present, present)
        guard.check(present, present & frozenset(self.kept(proposal)))

    def _check_meeting(self, proposal: RemovalProposal, other: RemovalProposal) -> None:
        """Raise if both recoveries come to the same model, and ask for fresh updates there.

        Up to the first round in which one of its removed peers dealt, a recovery is at the models
        of the training. If that is the same round for both, and the same kept peers dealt in it,
        they are at the same model after it. Those that start at the trained model always are.
        """
        kept, its = frozenset(self.kept(proposal)), frozenset(self.kept(other))
        if kept == its:
            if proposal.accept_differencing:
                return
            raise PlanError(
                "the same peers have been removed before; to recover again by another method, "
                "accept that the two recoveries can be compared, and who is away in only one of "
                "them exposed (--accept-differencing)"
            )
        sees = {methods.entry_of(each.method).sees for each in (proposal, other)}
        if sees == {"last model"}:
            raise PlanError(
                f"this recovery and that of removal {other.digest.hex()[:16]} would both ask for "
                "updates at the trained model; whoever is away in one of the two would be "
                f"exposed. Recover from a fresh start ({self._fresh()})"
            )
        mine, others = (self._first_dealt(each) for each in (proposal, other))
        if mine is not None and mine == others and not self.rounds[mine] & (kept ^ its):
            raise PlanError(
                f"this recovery and that of removal {other.digest.hex()[:16]} would ask for "
                f"updates at the same model after round {mine}, where the peers that only one of "
                "them keeps did not deal; whoever is away in one of the two would be exposed. "
                f"Recover from a fresh start ({self._fresh()})"
            )

    def _first_dealt(self, proposal: RemovalProposal) -> int | None:
        """Return the first round in which a removed peer dealt."""
        removed = frozenset(proposal.removed)
        return next((t for t, dealers in enumerate(self.rounds) if dealers & removed), None)

    def _opened(self, proposal: RemovalProposal) -> int:
        """Return of how many rounds of the training, from the first, sums may be opened again.

        Until a removed peer has dealt, the recovery is at the models of the training, and is
        answered from stored sums whatever the method (see `driver`).
        """
        if self.starts_afresh(proposal):
            return 0
        first = self._first_dealt(proposal)
        if first is None or methods.entry_of(proposal.method).sees == "history":
            return len(self.rounds)
        return first + 1

    def check_shares(self, proposal: RemovalProposal) -> None:
        """Raise if this peer has dropped shares that the recovery needs of it."""
        dropped = range(1, min(self.kept_from, self._opened(proposal)))
        if dropped:
            raise PlanError(
                f"{proposal.method} needs stored shares of rounds {dropped[0]} to {dropped[-1]}, "
                "which this peer has dropped (history.keep); choose a method that starts afresh "
                f"({self._fresh()}), or let those decide that have them"
            )


def _unprotected(proposals: Iterable[RemovalProposal]) -> frozenset[int]:
    """Return whose updates need not be hidden, for what these removals say."""
    return frozenset[int]().union(
        *(unprotected(p.removed, p.reason, accepted=p.accept_differencing) for p in proposals)
    )
