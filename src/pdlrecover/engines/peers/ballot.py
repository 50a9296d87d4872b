"""Agreement on one set of dealers per step, so that no two sets are ever opened.

Opening two sets of the same dealings would reveal their difference: perhaps one peer's update. So
sub-secrets are sent only for a set that a quorum has settled, and at most one can be settled. This
is the one-shot core of Tendermint (Buchman, Kwon, Milosevic 2018), with the set as the value.

- Views follow each other by timeouts; leaders rotate with the steps, those first that dealt in
  the last step where anything was dealt (see `leaders`), which is public and the same for all.
- The leader proposes a set. A peer gives it its *first vote* if it holds all of it and is not
  locked on another set, or if the proposal shows a later quorum than its lock.
- Who sees a quorum of first votes in its view locks on the set and gives its *final vote*.
- A quorum of final votes of one view settles the set.
- A quorum is more than (m + e)/2 peers, and enough to open: two quorums share an honest peer. A
  vote is remembered durably before it is sent, and a lock with the set that it is on.
- For a set that a quorum has voted for before, holding it is enough, even if one of its dealers
  was proven to cheat since: others may be locked on it, or have settled it.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pdlrecover.engines.peers.messages import Held, Proposal, Vote

MAX_VIEWS = 256
"""Votes further ahead than this are not kept: nobody honest is there alone."""


def leaders(peers: Sequence[int], present: Sequence[int], step: int) -> tuple[int, ...]:
    """Return who leads in the views of a step: those that were there last, then the others."""
    there = [peer for peer in peers if peer in present] or list(peers)
    turn = step % len(there)
    return (*there[turn:], *there[:turn], *(peer for peer in peers if peer not in there))


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

    def hear_proposal(self, sender: int, proposal: Proposal) -> None:
        """Take a proposal of a view's leader; the first one counts."""
        if self.is_near(proposal.view) and sender == self.leader(proposal.view):
            self._proposals.setdefault(proposal.view, proposal)
            self._follow()

    def hear_vote(self, sender: int, vote: Vote) -> None:
        """Take a vote; the first one for its purpose counts."""
        if self.is_near(vote.view):
            self._votes[vote.view, vote.final].setdefault(sender, vote.choice)
            self._follow()

    def next_view(self) -> None:
        """Give up on this view's leader."""
        self.view += 1

    def act(
        self,
        acceptable: Callable[[Proposal], bool],
        held: Callable[[Proposal], bool] | None = None,
    ) -> list[Vote]:
        """Apply the rules; return the votes that this peer gives now.

        `held` says whether this peer holds a set: enough where an earlier quorum is shown.
        """
        given: list[Vote] = []
        proposal = self._proposals.get(self.view)
        if proposal and not self._has_cast(final=False):
            free = self.locked_view < 0 or self.locked == proposal.choice
            shown = self.locked_view <= proposal.since < self.view and self._count(
                proposal.since, False, proposal.choice
            )
            backed = shown or (self.locked_view >= 0 and free)
            fits = held if held and backed else acceptable
            if (free or shown) and fits(proposal):
                given.append(self._give(False, proposal.choice))
        if proposal and self._count(self.view, False, proposal.choice):
            self._valid = proposal
            if not self._has_cast(final=True):
                self.locked_view, self.locked = self.view, proposal.choice
                given.append(self._give(True, proposal.choice))
        for view, known in self._proposals.items():
            if self.settled is None and self._count(view, True, known.choice):
                self.settled = known
        return given

    def saved(self) -> bytes:
        """Return what must survive a crash."""
        lock = [self.locked_view, self.locked.hex()]
        cast = [[vote.view, vote.final, vote.choice.hex()] for vote in self.cast]
        told: dict[str, Any] = {"view": self.view, "lock": lock, "cast": cast, "valid": None}
        if self._valid is not None:
            dealers = [[held.dealer, held.digest.hex()] for held in self._valid.dealers]
            told["valid"] = [self._valid.view, self._valid.since, dealers]
        return json.dumps(told).encode()

    def restore(self, saved: bytes) -> None:
        """Go on after a crash, in the next view: nothing is said twice in different words."""
        told = json.loads(saved)
        self.view = told["view"] + 1
        self.locked_view, self.locked = told["lock"][0], bytes.fromhex(told["lock"][1])
        for view, final, choice in told["cast"]:
            vote = Vote(view=view, final=final, choice=bytes.fromhex(choice))
            self.cast.append(vote)
            self._votes[view, final][self.me] = vote.choice
        if told["valid"]:
            view, since, dealers = told["valid"]
            chosen = tuple(Held(dealer=d, digest=bytes.fromhex(digest)) for d, digest in dealers)
            self._valid = Proposal(view=view, since=since, dealers=chosen)
            self._proposals[view] = self._valid

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

    def _follow(self) -> None:
        """Go to a later view once more peers than may lie are there."""
        ahead: dict[int, int] = {}
        for (view, _), votes in self._votes.items():
            for peer in votes:
                ahead[peer] = max(view, ahead.get(peer, -1))
        for view in self._proposals:
            ahead[self.leader(view)] = max(view, ahead.get(self.leader(view), -1))
        reached = sorted(ahead.values(), reverse=True)
        if len(reached) > self.liars:
            self.view = max(self.view, reached[self.liars])
