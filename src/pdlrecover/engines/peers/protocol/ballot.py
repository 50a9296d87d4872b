"""Agreement on one set of dealers per step, so that no two sets are ever opened.

Opening two sets of the same dealings would reveal their difference: perhaps one peer's update. So
sub-secrets are sent only for a set that a quorum has settled, and at most one can be settled. This
is the one-shot core of Tendermint (Buchman, Kwon, Milosevic 2018), with the set as the value.

- Views follow each other by timeouts; leaders rotate with the steps, those first that dealt in
  the last step where anything was dealt (see `leaders`), which is public and the same for all.
- Nobody leaves a view before a quorum is in it or beyond, and everybody goes to a later one where
  more peers than may lie are: so views neither run on in an outage nor drift apart.
- The leader proposes a set. A peer gives it its *first vote* if it holds all of it and is not
  locked on another set, or if the proposal shows a later quorum than its lock.
- Who sees a quorum of first votes in its view locks on the set and gives its *final vote*.
- A quorum of final votes of one view settles the set.
- A quorum is more than (m + e)/2 peers, and enough to open: two quorums share an honest peer. A
  vote is remembered durably before it is sent, with the set that it is for.
- For a set that a quorum has voted for before, holding it is enough, even if one of its dealers
  was proven to cheat since: others may be locked on it, or have settled it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pdlrecover.engines.peers.protocol import forms as f
from pdlrecover.engines.peers.protocol.messages import Held, Proposal, Vote

MAX_VOTES = 1 << 20
MAX_VIEWS = 256
"""Votes further ahead than this are not kept, nor is anybody followed further at once."""


def leaders(peers: Sequence[int], present: Sequence[int], step: int) -> tuple[int, ...]:
    """Return who leads in the views of a step: those that were there last, then the others."""
    there = [peer for peer in peers if peer in present] or list(peers)
    turn = step % len(there)
    return (*there[turn:], *there[:turn], *(peer for peer in peers if peer not in there))


@dataclass(frozen=True, kw_only=True)
class BallotRecord:
    """What of a ballot must survive a crash."""

    view: f.View
    locked_view: f.View
    locked: f.MaybeDigest
    """The choice that the peer is locked on; empty if it is not."""
    cast: Annotated[tuple[Vote, ...], MAX_VOTES]
    valid: Proposal | None
    """The last set that got a quorum of first votes."""
    proposed: Proposal | None
    voted: Annotated[tuple[Proposal, ...], MAX_VOTES]
    """What the votes are for."""


@dataclass(kw_only=True, eq=False)
class Ballot:
    """One peer's part in one step's agreement."""

    me: int
    order: tuple[int, ...]
    """Who leads, one view after the other."""
    quorum: int
    liars: int
    view: int = 0
    locked_view: int = -1
    locked: bytes = b""
    settled: Proposal | None = None
    cast: list[Vote] = field(default_factory=list)
    """This peer's votes."""
    proposed: Proposal | None = None
    """This peer's last proposal."""
    _proposals: dict[int, Proposal] = field(default_factory=dict)
    _votes: dict[tuple[int, bool], dict[int, bytes]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    _valid: Proposal | None = None
    _views: dict[int, int] = field(default_factory=dict)
    """In which view every other peer is, as far as is known."""

    def leader(self, view: int) -> int:
        """Return who proposes in a view."""
        return self.order[view % len(self.order)]

    @property
    def must_propose(self) -> bool:
        """Whether this peer leads the view and has not proposed in it."""
        return self.leader(self.view) == self.me and self.view not in self._proposals

    @property
    def is_bound(self) -> bool:
        """Whether this peer knows a set that got a quorum, and can propose nothing else."""
        return self._valid is not None

    def propose(self, dealers: Sequence[Held]) -> Proposal:
        """Return this peer's proposal: the set that got a quorum before, if any, or this one."""
        since, chosen = -1, tuple(dealers)
        if self._valid is not None:
            since, chosen = self._valid.view, self._valid.dealers
        self.proposed = Proposal(view=self.view, since=since, dealers=chosen)
        self._proposals[self.view] = self.proposed
        return self.proposed

    def is_near(self, view: int) -> bool:
        """Say whether a view is one that an honest peer may be in."""
        return 0 <= view <= self.view + MAX_VIEWS

    def take_proposal(self, sender: int, proposal: Proposal) -> None:
        """Take a proposal of a view's leader; the first one counts."""
        if self.is_near(proposal.view) and sender == self.leader(proposal.view):
            self._proposals.setdefault(proposal.view, proposal)
            self.take_view(sender, max(proposal.view, self._views.get(sender, 0)))

    def take_vote(self, sender: int, vote: Vote) -> None:
        """Take a vote; the first one for its purpose counts."""
        if self.is_near(vote.view):
            self._votes[vote.view, vote.final].setdefault(sender, vote.choice)
            self.take_view(sender, max(vote.view, self._views.get(sender, 0)))

    def take_view(self, sender: int, view: int) -> None:
        """Take the view that a peer is in; follow once more peers than may lie are ahead."""
        self._views[sender] = min(view, self.view + MAX_VIEWS)
        reached = sorted(self._views.values(), reverse=True)
        if len(reached) > self.liars:
            self.view = max(self.view, reached[self.liars])

    def may_leave(self, here: Iterable[int]) -> bool:
        """Say whether a quorum, of this peer and those that are here, has come to this view."""
        there = sum(self._views.get(peer, -1) >= self.view for peer in here if peer != self.me)
        return 1 + there >= self.quorum

    def next_view(self) -> None:
        """Give up on this view's leader."""
        self.view += 1

    def vote(
        self,
        accepts: Callable[[Proposal], bool],
        holds: Callable[[Proposal], bool] | None = None,
    ) -> list[Vote]:
        """Judge the proposal of this view, and return the votes that this peer gives now.

        `holds` says whether this peer holds a set: enough where an earlier quorum is shown.
        """
        given: list[Vote] = []
        proposal = self._proposals.get(self.view)
        if (
            proposal
            and not self._has_cast(final=False)
            and self._judge(proposal, accepts, holds or accepts)
        ):
            given.append(self._give(False, proposal.choice))
        if proposal and self._count(self.view, False, proposal.choice):
            self._valid = proposal
            if not self._has_cast(final=True):
                self.locked_view, self.locked = self.view, proposal.choice
                given.append(self._give(True, proposal.choice))
        if self.settled is None:
            final = self._settled_choices()
            known = self._proposals.values()
            self.settled = next((each for each in known if each.choice in final), None)
        return given

    def _judge(
        self,
        proposal: Proposal,
        accepts: Callable[[Proposal], bool],
        holds: Callable[[Proposal], bool],
    ) -> bool:
        """Say whether a leader's proposal deserves this peer's first vote."""
        if self.settled is not None and self.settled.choice != proposal.choice:
            return False
        is_free = self.locked_view < 0 or self.locked == proposal.choice
        shows_quorum = self.locked_view <= proposal.since < self.view and self._count(
            proposal.since, False, proposal.choice
        )
        if not is_free and not shows_quorum:
            return False
        is_backed = shows_quorum or self.locked_view >= 0 or self._was_accepted(proposal.choice)
        return holds(proposal) if is_backed else accepts(proposal)

    def _was_accepted(self, choice: bytes) -> bool:
        """Say whether an honest peer has voted for this set in an earlier view.

        It was good enough then, and others may be locked on it: what came to be known since must
        not keep this peer from following them.
        """
        voters = {
            peer
            for (view, final), votes in self._votes.items()
            if view < self.view and not final
            for peer, given in votes.items()
            if given == choice
        }
        return len(voters) > self.liars

    def record(self) -> BallotRecord:
        """Return what must survive a crash."""
        voted = {vote.view for vote in self.cast} & self._proposals.keys()
        return BallotRecord(
            view=self.view,
            locked_view=self.locked_view,
            locked=self.locked,
            cast=tuple(self.cast),
            valid=self._valid,
            proposed=self.proposed,
            voted=tuple(self._proposals[view] for view in sorted(voted)),
        )

    def restore(self, record: BallotRecord) -> None:
        """Go on after a crash: nothing is said twice in different words.

        If something was said in the last view, that is in the next one.
        """
        self.locked_view, self.locked = record.locked_view, record.locked
        self._valid, self.proposed = record.valid, record.proposed
        self.cast = list(record.cast)
        for vote in record.cast:
            self._votes[vote.view, vote.final][self.me] = vote.choice
        for known in (record.proposed, record.valid, *record.voted):
            if known is not None:
                self._proposals[known.view] = known
        spoken = {vote.view for vote in record.cast}
        if record.proposed is not None:
            spoken.add(record.proposed.view)
        self.view = record.view + (record.view in spoken)

    def _give(self, final: bool, choice: bytes) -> Vote:
        vote = Vote(view=self.view, final=final, choice=choice)
        self.cast.append(vote)
        self._votes[self.view, final][self.me] = choice
        return vote

    def _has_cast(self, *, final: bool) -> bool:
        return any(vote.view == self.view and vote.final == final for vote in self.cast)

    def _count(self, view: int, final: bool, choice: bytes) -> bool:
        """Say whether a quorum voted so."""
        votes = self._votes.get((view, final), {})
        return Counter(votes.values())[choice] >= self.quorum

    def _settled_choices(self) -> set[bytes]:
        """Return what a quorum gave its final votes in one view, whoever proposed it in which."""
        counted = (
            Counter(votes.values())
            for (_, final), votes in self._votes.items()
            if final and len(votes) >= self.quorum
        )
        return {choice for each in counted for choice in each if each[choice] >= self.quorum}
