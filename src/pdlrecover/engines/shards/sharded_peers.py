"""Peers of a simulation whose sums are computed by shards, to the bit as in one process.

Rules:

- What adds up is computed by the shards: sums of updates, evaluations and statistics of inputs.
  What looks at single peers stays here.
- Attackers who act as one are not cut apart: rounds in which they take part are computed here.
- The driver deals, opens and keeps the history: a lost shard takes nothing along. With
  `deal_on_shards` the shards multiply by the dealing matrix, for some of the blocks each; what is
  random is drawn here, and what is dealt comes back here.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from pdlrecover.adversary import Phase
from pdlrecover.cluster import LOCAL, joined, require_likeness
from pdlrecover.engines.shards.crew import Crew
from pdlrecover.engines.shards.cuts import add_up, cut
from pdlrecover.engines.shards.local import started
from pdlrecover.engines.shards.shard import Done
from pdlrecover.engines.shards.sharding import Sharding
from pdlrecover.engines.simulated_peers import SimulatedPeers
from pdlrecover.field import Elements, Integers
from pdlrecover.recovery.requests import LocalSteps, Moments, Teacher, Vector
from pdlrecover.recovery.standardisation import StandardisationTerms
from pdlrecover.sharing import Scheme

FEWEST_COLUMNS = 4
"""Fewer blocks than this are not worth being dealt elsewhere."""


class ShardedPeers:
    """What computes sums for a simulation, in the place of its `SimulatedPeers`."""

    def __init__(self, peers: SimulatedPeers, crew: Crew, *, deals: bool) -> None:
        self._peers, self.crew = peers, crew
        self.deal: Callable[[Elements], Elements] | None = self._deal if deals else None

    @property
    def processor_seconds(self) -> float:
        """The processor time that was used elsewhere."""
        return self.crew.seconds

    def sums(
        self,
        round: int,
        at: Vector,
        groups: Sequence[Sequence[int]],
        phase: Phase = "training",
        *,
        stream: int = 0,
        local: LocalSteps | None = None,
        teacher: Teacher | None = None,
    ) -> Integers:
        """Return each group's sum, as `Dealers.sums` does."""
        asked: dict[str, Any] = {
            "round": round,
            "phase": phase,
            "stream": stream,
            "local": local,
            "teacher": teacher,
        }
        if self._peers.acts_as_one([peer for group in groups for peer in group]):
            return self._peers.sums(at=at, groups=groups, **asked)
        parts = cut(groups, self._peers.piece(taught=teacher is not None), self.crew.parts)
        done = self._compute("sums", at, [{**asked, "groups": part.peers} for part in parts])
        return add_up(list(zip(parts, done, strict=True)), len(groups))

    def tally(self, at: Vector, peers: Sequence[int], phase: Phase = "training") -> Integers:
        """Return the sum of what peers deal in an evaluation."""
        parts = cut([peers], 1, self.crew.parts)
        asked = [{"peers": part.peers[0].tolist(), "phase": phase} for part in parts]
        total: Integers = np.sum(self._compute("tally", at, asked), axis=0)
        return total

    def statistics(
        self, request: Moments, peers: Sequence[int], terms: StandardisationTerms
    ) -> Integers:
        """Return the sum of what peers deal for the scale of inputs."""
        parts = cut([peers], 1, self.crew.parts)
        asked = [
            {"request": request, "peers": part.peers[0].tolist(), "terms": terms} for part in parts
        ]
        total: Integers = np.sum(self._compute("statistics", None, asked), axis=0)
        return total

    def _compute(
        self, work: str, at: Vector | None, asked: Sequence[dict[str, Any]]
    ) -> list[Integers]:
        inputs, model = self._peers.updates.model.inputs, None if at is None else self.crew.put(at)

        def call(arguments: dict[str, Any], actor: Any) -> Any:
            return actor.compute.remote(work, inputs, model, arguments)

        done = self.crew.do([partial(call, arguments) for arguments in asked])
        self._peers.clipped += sum(each.clipped for each in done)
        return [each.value for each in done]

    def _deal(self, known: Elements) -> Elements:
        """Return what follows by the dealing matrix, block by block."""
        count = max(1, min(len(self.crew), known.shape[1] // FEWEST_COLUMNS))
        some = np.array_split(known, count, axis=1)

        def call(columns: Elements, actor: Any) -> Any:
            return actor.deal.remote(columns)

        done: list[Done] = self.crew.do([partial(call, np.ascontiguousarray(c)) for c in some])
        return np.concatenate([each.value for each in done], axis=1)


@contextmanager
def sharded(
    peers: SimulatedPeers,
    scheme: Scheme,
    sharding: Sharding,
    say: Callable[[str], None] = lambda text: None,
) -> Iterator[ShardedPeers]:
    """Have shards compute for these peers; they are ended on leaving.

    `say` is told what there is to know, such as that a shard is lost.
    """
    if peers.acts_as_one(range(peers.peers)):
        say(
            "the attackers act as one, from all of their updates or from everybody's, so rounds in "
            "which they take part are computed in this process"
        )
    here, on = sharding.on == LOCAL, sharding.on
    with started(sharding.shards) if here else joined(on, "a simulation over shards") as cluster:
        if not here:
            mixed = sharding.mixed_processors
            require_likeness(cluster, cluster.nodes(), mixed_processors=mixed)
        crew = Crew(cluster, sharding.shards, _blueprint(peers, scheme), say)
        try:
            yield ShardedPeers(peers, crew, deals=sharding.deal_on_shards)
        finally:
            crew.end()


def _blueprint(peers: SimulatedPeers, scheme: Scheme) -> list[Any]:
    """Return what a shard is made of."""
    rest = {
        "batches": peers.batches,
        "updates": peers.updates,
        "malicious": peers.malicious,
        "attack": peers.attack,
        "federation_size": peers.federation_size,
        "fraction_bits": peers.fraction_bits,
        "held_out": peers.held_out,
    }
    return [peers.x.numpy(), peers.y.numpy(), rest, scheme.quorums, scheme.points]
