"""What a peer sent in the previous step, kept to resend to peers that missed it.

A peer that has opened a step answers those that ask in that step with its votes and its sub-secret
of it: they may have been lost, and nobody else can say them. Sub-secrets of sums are computed again
from stored shares; where what was dealt is used once, they are kept (see `step_memory`). To one
peer they are said after pauses that double, as those of whoever asks do.
"""

from collections import Counter
from dataclasses import dataclass

from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.engines.peers.protocol.effects import Send
from pdlrecover.engines.peers.protocol.run_context import RunContext
from pdlrecover.engines.peers.protocol.step_memory import Spoken

DOUBLINGS = 3


class Pauses:
    """When something may be said again to each peer in a step."""

    def __init__(self, first: float) -> None:
        """`first` is how long the first pause is; it doubles `DOUBLINGS` times."""
        self._first, self._said = first, Counter[int]()
        self._over_at: dict[int, float] = {}

    def over(self, peer: int, now: float) -> bool:
        """Say whether it may be said now; then the next pause begins."""
        if now < self._over_at.get(peer, now):
            return False
        self._over_at[peer] = now + self._first * 2 ** min(self._said[peer], DOUBLINGS)
        self._said[peer] += 1
        return True


@dataclass(frozen=True, kw_only=True, eq=False)
class PreviousStep:
    """A peer's own messages of the step before, as it sent them to everybody."""

    place: m.Header
    spoken: Spoken | None
    """None if it is lost: then only the sub-secret is known, and not of dot products."""
    sub_secret: m.SubSecret | None

    @property
    def votes(self) -> tuple[m.Vote, ...]:
        """Return the votes of this peer."""
        return self.spoken.ballot.cast if self.spoken else ()

    @property
    def proposal(self) -> m.Proposal | None:
        """Return the last proposal of this peer."""
        return self.spoken.ballot.proposed if self.spoken else None

    def again(self, context: RunContext, to: int) -> list[Send]:
        """Return the same messages once more, to one peer."""
        bodies = (self.proposal, *self.votes, self.sub_secret)
        sends = [send for body in bodies if body for send in context.broadcast(self.place, body)]
        return [send for send in sends if send.to == to]
