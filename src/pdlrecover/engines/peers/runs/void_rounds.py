"""A void round at one peer, and the step that finds who made it void.

A naming is a run of its own, so that the run that had the void round goes on at once, whoever
answers here. Its peers are those of that run, and its name follows from that run and the step.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pdlrecover.engines.bounds import Bounds
from pdlrecover.engines.peers.protocol.contracts import Store
from pdlrecover.engines.peers.protocol.run_context import RunContext
from pdlrecover.engines.peers.protocol.single_dealings import (
    Opens,
    SingleDealings,
    asked_of,
    vectors_of,
)
from pdlrecover.recovery.naming import NAMINGS
from pdlrecover.sharing import Shares


@dataclass(frozen=True, kw_only=True)
class VoidRound:
    """Where the dealings are that made a round void."""

    run: bytes
    step: int
    round: int
    dealers: frozenset[int]
    seed: bytes
    """The digest of what was opened, and from whose dealings."""

    @property
    def naming(self) -> bytes:
        """The name of the run that finds who it was."""
        place = self.run + self.step.to_bytes(8, "little")
        return hashlib.sha256(b"pdlrecover naming" + place).digest()

    def task(
        self, opens: Opens, *, context: RunContext, store: Store, bounds: Bounds
    ) -> SingleDealings:
        """Return the step that opens this of every peer's dealing."""
        scheme, length = context.scheme, bounds.length + 1
        vectors = vectors_of(opens, length, self.seed)
        peers = range(scheme.quorums.peers)

        def shares() -> list[Shares] | None:
            found = []
            for dealer in peers:
                row = np.zeros(scheme.quorums.blocks(length), dtype=np.int64)
                if dealer in self.dealers:
                    stored = store.shares(self.run, self.step, [dealer])
                    if stored is None:
                        return None
                    row = stored
                found.append(Shares(peers=(context.me,), values=row[None], length=length))
            return found

        return SingleDealings(
            scheme=scheme,
            me=context.me,
            round=self.round,
            asked=asked_of(opens, self.round),
            least_dealers=scheme.quorums.tolerance.colluders + 1,
            vectors=vectors,
            pairs=shares,
            count=len(peers),
            dealt=len(vectors) * len(peers),
            opens=opens,
            bounds=bounds,
        )


def looked_into(
    voids: Sequence[VoidRound], removals: Iterable[frozenset[int]]
) -> tuple[VoidRound, ...]:
    """Return those of a run's void rounds whose maker is looked for.

    They are the first few, and for each removal that has passed meanwhile the first few in which
    none of its peers dealt: one cheat may have been all that these first few told of, and have
    hidden another, who goes on.
    """
    found = dict.fromkeys(voids[:NAMINGS])
    for removed in removals:
        found |= dict.fromkeys([v for v in voids if not v.dealers & removed][:NAMINGS])
    return tuple(found)
