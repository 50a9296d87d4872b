"""All peers of a simulation: their data, their batches, their attack, and the sums they deal.

Rules:

- What a peer deals is its clipped update and its weight, (gᵢ, αᵢ): d + 1 numbers, each rounded to
  the fixed-point step. Only integers are added up, so the sums are exact, in any order.
- Sums are returned as signed integers per group of peers: what FixedPoint.encode makes of every
  peer's update, added modulo q, is the same number (a test holds that).
- Attackers come to their attack in ascending order, with their places among all malicious peers,
  whatever the order and the number of those asked.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from pdlrecover.adversary import Attack, Context, NoAttack, Phase
from pdlrecover.errors import DataError, PlanError
from pdlrecover.field import FixedPoint, Integers
from pdlrecover.learning import (
    Batches,
    FlatModel,
    LinearHead,
    LocalTraining,
    Updates,
    clip,
    data_weights,
    one_vs_rest,
)
from pdlrecover.learning.flat_model import as_tensor
from pdlrecover.learning.partition import Partition
from pdlrecover.recovery.requests import HeadSums, Individuals, Vector

Peers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class _Sides:
    """Which rows of a round's minibatches are malicious peers', and which are not."""

    bad: slice | Peers
    good: slice | Peers
    context: Context


_PIECE = 4096
"""So many samples go through the model at once."""


@dataclass(kw_only=True, eq=False)
class SimulatedPeers:
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
        classes = self.updates.model.classes
        if len(self.y) and not 0 <= int(self.y.min()) <= int(self.y.max()) < classes:
            raise DataError(
                f"labels must be whole numbers from 0 to {classes - 1}, which is what the model "
                f"tells apart; got {int(self.y.min())} to {int(self.y.max())}"
            )
        self.code = FixedPoint(
            peers=self.peers,
            bound=float(np.hypot(self.updates.bound, 1.0)),
            length=self.updates.model.size + 1,
            fraction_bits=self.fraction_bits,
        )
        self._malicious = np.zeros(self.peers, dtype=bool)
        self._malicious[list(self.malicious)] = True
        self._places = np.cumsum(self._malicious) - 1
        self._weights = np.rint(self.updates.weights * self.code.scale).astype(np.int64)
        self._room = torch.empty(0, self.updates.model.size)

    @property
    def peers(self) -> int:
        """How many peers there are."""
        return len(self.updates.weights)

    def dealt(self, round: int, at: Vector, peers: Sequence[int], phase: Phase) -> torch.Tensor:
        """Return what these peers deal at a model: clipped updates, before rounding.

        The result lives in a buffer that the next call overwrites.
        """
        who = np.asarray(peers, dtype=np.int64)
        x, y, sides = self._minibatches(round, at, who, phase)
        if len(self._room) != len(who):
            self._room = torch.empty(len(who), self.updates.model.size)
        if sides is None:
            updates = self.updates.weighted(at, who, x, y, out=self._room)
        else:
            updates = self.updates.plain(at, x, y, out=self._room)
            bad, good = sides.bad, sides.good
            updates[bad] = self.attack.corrupt(updates[bad], updates[good], sides.context)
            updates = self.updates.weigh(updates, who)
        updates, clipped = clip(updates, self.updates.bound)
        self.clipped += clipped
        return updates

    def loss(self, round: int, at: Vector, peers: Sequence[int]) -> float:
        """Return Σ αᵢ Lᵢ / Σ αᵢ, with Lᵢ the objective on peer i's minibatch of the round."""
        who = np.asarray(peers, dtype=np.int64)
        x, y, _ = self._minibatches(round, at, who, "training")
        w = as_tensor(at)
        with torch.no_grad():
            logits = self.updates.model.logits(w, x.flatten(0, 1))
            each = cross_entropy(logits, y.flatten(), reduction="none").view(y.shape).mean(dim=1)
        weights = self.updates.weights[who]
        mean = float((each.double().numpy() * weights).sum() / weights.sum())
        return mean + self.updates.local.l2 / 2 * float(w.double().square().sum())

    def _minibatches(
        self, round: int, at: Vector, who: Peers, phase: Phase
    ) -> tuple[torch.Tensor, torch.Tensor, _Sides | None]:
        """Return these peers' samples and labels, poisoned where they attack, and who does."""
        x, y = self.batches.take(self.x, self.y, who, round)
        if not self._malicious[who].any():
            return x, y, None
        order = np.argsort(who)
        malicious = self._malicious[who[order]]
        bad, good = _rows(order[malicious]), _rows(order[~malicious])
        places = self._places[who[bad]].tolist()
        context = Context.of(seed=self.seed, round=round, w=at, places=places, phase=phase)
        x[bad], y[bad] = self.attack.poison(x[bad], y[bad], context)
        return x, y, _Sides(bad=bad, good=good, context=context)

    def sums(
        self, round: int, at: Vector, groups: Sequence[Sequence[int]], phase: Phase = "training"
    ) -> Integers:
        """Return each group's sum of rounded updates and weights, as (groups, d + 1) integers."""
        updates = self.dealt(round, at, [peer for group in groups for peer in group], phase)
        out = np.empty((len(groups), self.code.length), dtype=np.int64)
        start = 0
        for row, group in zip(out, groups, strict=True):
            row[:-1] = self._rounded_sum(updates[start : start + len(group)])
            row[-1] = self._weights[list(group)].sum()
            start += len(group)
        return out

    def _rounded_sum(self, updates: torch.Tensor) -> Integers:
        """Return Σᵢ round(scale·updateᵢ), row by row, so that a row stays in the cache.

        A clipped update has coordinates of at most scale·bound; as many as fit are added in int32.
        """
        scaled = torch.empty(updates.shape[1])
        total = np.zeros(updates.shape[1], dtype=np.int64)
        fit = int((2**31 - 1) / (self.code.scale * self.updates.bound + 1))
        whole = torch.empty(updates.shape[1], dtype=torch.int32 if fit else torch.int64)
        for start in range(0, len(updates), fit or 1):
            some = torch.zeros_like(whole)
            for update in updates[start : start + (fit or 1)]:
                torch.mul(update, self.code.scale, out=scaled)
                some += whole.copy_(scaled.round_())
            total += some.numpy()
        return total

    def individuals(
        self, round: int, at: Vector, peers: Sequence[int], phase: Phase, among: Sequence[int]
    ) -> Individuals:
        """Return what these peers deal at a model, each for itself, `among` those taking part.

        An attacker looks at the honest updates of all who take part, so then all are computed.
        """
        attacked = bool(self._malicious[list(peers)].any())
        rows = [among.index(peer) for peer in peers] if attacked else slice(None)
        updates = self.dealt(round, at, among if attacked else peers, phase)
        return Individuals(
            values=updates.numpy()[rows].copy(), weights=self.updates.weights[list(peers)]
        )

    @cached_property
    def head(self) -> LinearHead:
        """The model's last linear layer; raises where there is none to replace."""
        return LinearHead(self.updates.model)

    def head_sums(self, at: Vector, head: Vector, peers: Sequence[int]) -> HeadSums:
        """Return the sums of one-vs-rest losses over all that these peers hold."""
        features = self.head.extractor(at)
        losses, gradient, hessian, samples = np.zeros(len(head)), np.zeros(head.shape), None, 0
        for x, y in self._whole_data(at, peers):
            parts = one_vs_rest(features(x), y.numpy(), head)
            losses += parts[0]
            gradient += parts[1]
            hessian = parts[2] if hessian is None else hessian + parts[2]
            samples += len(y)
        if hessian is None:
            raise PlanError("sums over the data of no peers were asked for")
        return HeadSums(losses=losses, gradient=gradient, hessian=hessian, samples=samples)

    def _whole_data(
        self, at: Vector, peers: Sequence[int]
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield all that these peers hold, piece by piece.

        A malicious peer poisons its whole data as if it were one minibatch. Attacks on updates do
        not touch data.
        """
        honest = [self.batches.samples_of([p]) for p in peers if not self._malicious[p]]
        if honest:
            rows = torch.from_numpy(np.concatenate(honest))
            for start in range(0, len(rows), _PIECE):
                piece = rows[start : start + _PIECE]
                yield self.x[piece], self.y[piece]
        for peer in peers:
            if self._malicious[peer]:
                rows = torch.from_numpy(self.batches.samples_of([peer]))
                context = Context.of(
                    seed=self.seed, round=0, w=at, places=[int(self._places[peer])]
                )
                x, y = self.attack.poison(self.x[rows][None], self.y[rows][None], context)
                yield x[0], y[0]


def _rows(numbers: Peers) -> slice | Peers:
    """Return these rows as a slice where they are one ascending run: that copies nothing."""
    first, last = (int(numbers[0]), int(numbers[-1])) if len(numbers) else (0, -1)
    run = np.array_equal(numbers, np.arange(first, last + 1))
    return slice(first, last + 1) if run else numbers


def simulate_peers(
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
) -> SimulatedPeers:
    """Return the peers that hold these parts of the data.

    With `peer_by_peer` every peer's gradient is computed by itself, to the bit as a real peer
    would; else many at once, which is faster and differs in the last bits.
    """
    if unknown := [p for p in malicious if not 0 <= p < len(partition)]:
        raise PlanError(f"peers are numbered 0 to {len(partition) - 1}; no peer {unknown[0]}")
    return SimulatedPeers(
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
