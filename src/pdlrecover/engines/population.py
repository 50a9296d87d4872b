"""All peers of a simulation: their data, their batches, their attack, and the sums they deal.

Rules:

- What a peer deals is its clipped update and its weight, (gᵢ, αᵢ): d + 1 numbers, each rounded to
  the fixed-point step. Only integers are added up, so the sums are exact, in any order.
- Sums are returned as signed integers per group of peers: what FixedPoint.encode makes of every
  peer's update, added modulo q, is the same number (a test holds that).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from pdlrecover.adversary import Attack, Context, NoAttack, Phase
from pdlrecover.errors import PlanError
from pdlrecover.field import FixedPoint
from pdlrecover.learning import (
    Batches,
    FlatModel,
    LocalTraining,
    Updates,
    clip,
    data_weights,
)
from pdlrecover.learning.partition import Partition
from pdlrecover.recovery.requests import Individuals, Vector

Integers = NDArray[np.int64]


@dataclass(kw_only=True, eq=False)
class Population:
    """The peers that a simulation computes for."""

    x: torch.Tensor
    """All samples, (N, *shape)."""
    y: torch.Tensor
    batches: Batches
    updates: Updates
    malicious: tuple[int, ...] = ()
    attack: Attack = field(default_factory=NoAttack)
    seed: int = 0
    fraction_bits: int = 20
    clipped: int = 0
    """How many updates the L2 bound has shortened so far."""

    def __post_init__(self) -> None:
        self.code = FixedPoint(
            peers=self.peers,
            bound=float(np.hypot(self.updates.bound, 1.0)),
            length=self.updates.model.size + 1,
            fraction_bits=self.fraction_bits,
        )
        self._malicious = np.zeros(self.peers, dtype=bool)
        self._malicious[list(self.malicious)] = True
        self._weights = np.rint(self.updates.weights * self.code.scale).astype(np.int64)
        self._room = torch.empty(0, self.updates.model.size)

    @property
    def peers(self) -> int:
        """How many peers there are."""
        return len(self.updates.weights)

    def dealt(
        self,
        round: int,  # noqa: A002
        at: Vector,
        peers: Sequence[int],
        phase: Phase,
    ) -> torch.Tensor:
        """Return what these peers deal at a model: clipped updates, before rounding.

        The result lives in a buffer that the next call overwrites.
        """
        who = np.asarray(peers, dtype=np.int64)
        x, y = self.batches.take(self.x, self.y, who, round)
        bad = torch.from_numpy(self._malicious[who])
        attacked = bool(bad.any())
        if attacked:
            x[bad], y[bad] = self.attack.poison(x[bad], y[bad])
        if len(self._room) != len(who):
            self._room = torch.empty(len(who), self.updates.model.size)
        updates = self.updates.weighted(at, who, x, y, out=self._room)
        if attacked:
            context = Context.of(seed=self.seed, round=round, w=at, phase=phase)
            updates[bad] = self.attack.corrupt(updates[bad], updates[~bad], context)
        updates, clipped = clip(updates, self.updates.bound)
        self.clipped += clipped
        return updates

    def sums(
        self,
        round: int,  # noqa: A002
        at: Vector,
        groups: Sequence[Sequence[int]],
        phase: Phase = "training",
    ) -> Integers:
        """Return each group's sum of rounded updates and weights, as (groups, d + 1) integers."""
        updates = self.dealt(round, at, [peer for group in groups for peer in group], phase)
        updates.mul_(self.code.scale).round_()
        out = np.empty((len(groups), self.code.length), dtype=np.int64)
        start = 0
        for row, group in zip(out, groups, strict=True):
            total = torch.zeros(updates.shape[1], dtype=torch.float64)
            for update in updates[start : start + len(group)]:
                total += update
            row[:-1] = total.numpy()
            row[-1] = self._weights[list(group)].sum()
            start += len(group)
        return out

    def individuals(
        self,
        round: int,  # noqa: A002
        at: Vector,
        peers: Sequence[int],
        phase: Phase,
    ) -> Individuals:
        """Return what these peers deal at a model, each for itself.

        An attacker among them looks at the honest updates of everybody, so then all are computed.
        """
        attacked = bool(self._malicious[list(peers)].any())
        rows = list(peers) if attacked else slice(None)
        updates = self.dealt(round, at, range(self.peers) if attacked else peers, phase)
        return Individuals(
            values=updates.numpy()[rows].copy(), weights=self.updates.weights[list(peers)]
        )


def populate(
    model: torch.nn.Module,
    x: torch.Tensor,
    y: torch.Tensor,
    partition: Partition,
    *,
    batch_size: int,
    seed: int = 0,
    bound: float = 10.0,
    l2: float = 0.0,
    malicious: Sequence[int] = (),
    attack: Attack | None = None,
    peer_by_peer: bool = False,
) -> Population:
    """Return the peers that hold these parts of the data.

    With `peer_by_peer` every peer's gradient is computed by itself, to the bit as a real peer
    would; else many at once, which is faster and differs in the last bits.
    """
    if unknown := [p for p in malicious if not 0 <= p < len(partition)]:
        raise PlanError(f"peers are numbered 0 to {len(partition) - 1}; no peer {unknown[0]}")
    return Population(
        x=x,
        y=y,
        batches=Batches(partition, seed, batch_size),
        updates=Updates(
            model=FlatModel(model, tuple(x.shape[1:])),
            weights=data_weights(partition),
            bound=bound,
            local=LocalTraining(l2=l2),
            chunk=1 if peer_by_peer else None,
        ),
        malicious=tuple(malicious),
        attack=attack or NoAttack(),
        seed=seed,
    )
