"""What a peer sent in the previous step, kept to resend to peers that missed it.

A peer that has opened a step answers those that ask in that step with its votes and its sub-secret
of it: they may have been lost, and nobody else can say them. Sub-secrets of sums are computed again
from stored shares; where what was dealt is used once, they are kept (see `step_memory`).
"""

from dataclasses import dataclass

from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.engines.peers.protocol.effects import Send
from pdlrecover.engines.peers.protocol.run_context import RunContext
from pdlrecover.engines.peers.protocol.step_memory import Spoken


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
