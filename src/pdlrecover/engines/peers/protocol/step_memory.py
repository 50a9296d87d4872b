"""What a peer has said in a step, and must be able to say again: after a crash, or when ahead.

A step's *promise* is kept on disk: the seed of the peer's dealing and its digest, its votes and its
lock, and of the step before what `PreviousStep` needs. A peer that has opened a step answers those
that ask in that step with its votes and its sub-secret of it: they may have been lost, and nobody
else can say them. Sub-secrets of sums are computed again from stored shares; of masked dot products
they are kept.
"""

import json
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from pdlrecover.engines.peers.protocol.ballot import words
from pdlrecover.engines.peers.protocol.contracts import Store
from pdlrecover.engines.peers.protocol.effects import Send
from pdlrecover.engines.peers.protocol.messages import (
    Header,
    LogEntry,
    Proposal,
    SubSecret,
    Vote,
    choice_of,
)
from pdlrecover.engines.peers.protocol.run_context import RunContext, Task
from pdlrecover.field import Elements

SEED_BYTES = 32


class Kept(TypedDict):
    """What is kept of a step: a ballot as it is saved, and a sub-secret that is not stored."""

    ballot: str
    values: str | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Promise:
    """What is kept on disk of the step under way."""

    seed: bytes
    dealt: bytes
    """The digest of what this peer has dealt in the step; empty if it has not."""
    now: Kept
    before: Kept | None

    def saved(self) -> bytes:
        """Return it as bytes."""
        told = {"dealt": self.dealt.hex(), "now": self.now, "before": self.before}
        return self.seed + json.dumps(told).encode()

    @classmethod
    def restored(cls, saved: bytes) -> "Promise":
        """Return what was saved."""
        told = json.loads(saved[SEED_BYTES:])
        dealt = bytes.fromhex(told["dealt"])
        return cls(seed=saved[:SEED_BYTES], dealt=dealt, now=told["now"], before=told["before"])


@dataclass(frozen=True, kw_only=True, eq=False)
class PreviousStep:
    """A peer's own words in the step before, as it said them to everybody."""

    place: Header
    votes: tuple[Vote, ...]
    part: SubSecret | None
    kept: Kept | None
    proposal: Proposal | None = None

    def again(self, context: RunContext, to: int) -> list[Send]:
        """Return the same messages once more, to one peer."""
        bodies = [body for body in (self.proposal, *self.votes, self.part) if body is not None]
        sends = [send for body in bodies for send in context.broadcast(self.place, body)]
        return [send for send in sends if send.to == to]


def recall_previous(
    store: Store, context: RunContext, task: Task, place: Header, entry: LogEntry, kept: Kept | None
) -> PreviousStep:
    """Return what this peer said in the last step of the store, as far as it can be had."""
    votes, proposal = words(kept["ballot"].encode()) if kept else ((), None)
    values: Elements | None = None
    if task.kind is None:
        values = task.sub_secret({})
    elif task.kind.masks:
        if kept and kept["values"]:
            values = np.frombuffer(bytes.fromhex(kept["values"]), dtype="<i8").astype(np.int64)
    else:
        dealers = [held.dealer for held in entry.dealers]
        values = store.shares(context.run, place.step, dealers)
    part = None if values is None else SubSecret(choice=choice_of(entry.dealers), values=values)
    return PreviousStep(place=place, votes=votes, part=part, kept=kept, proposal=proposal)
