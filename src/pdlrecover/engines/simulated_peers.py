"""All peers of a simulation: the sums they deal, and what only a simulation can look at.

That is training losses, single peers' updates, and sums over whole datasets. It is the
`UpdateSource` of a simulation whose data are here.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from pdlrecover.adversary import Attack, Context, NoAttack, Phase
from pdlrecover.engines.dealers import Dealers
from pdlrecover.engines.events import Plain
from pdlrecover.errors import PlanError
from pdlrecover.learning import (
    Batches,
    FlatModel,
    LinearHead,
    LocalTraining,
    Updates,
    data_weights,
    hold_out,
    one_vs_rest,
)
from pdlrecover.learning.flat_model import as_tensor
from pdlrecover.learning.partition import Partition
from pdlrecover.learning.updates import ONE_STEP
from pdlrecover.recovery.requests import HeadSums, Individuals, LocalSteps, Vector

_PIECE = 4096
"""How many samples go through the model at once."""


@dataclass(kw_only=True, eq=False)
class SimulatedPeers(Dealers):
    """The peers that a simulation computes for."""

    held_out_share: float = 0.0
    """Which share of its samples every peer holds out."""

    @property
    def model(self) -> FlatModel:
        """The model, as a flat vector."""
        return self.updates.model

    @property
    def local(self) -> LocalSteps:
        """How a peer comes to its update."""
        return LocalSteps(steps=self.updates.local.steps, rate=self.updates.local.rate)

    @property
    def usual_rate(self) -> None:
        """Nothing: updates are gradients, whatever the rate."""
        return None

    @property
    def seed(self) -> int:
        """The seed of all minibatches."""
        return self.batches.seed

    @property
    def batch_size(self) -> int:
        """Samples in a peer's minibatch."""
        return self.batches.batch_size

    @property
    def most_held_out(self) -> int:
        """How many samples a peer holds out at most."""
        return max(map(len, self.held_out), default=0)

    def facts(self) -> dict[str, Any]:
        """Return what makes a run of these peers what it is; sizes stand for their data."""
        facts: dict[str, Any] = {
            "weights": self.updates.weights.tolist(),
            "batch_size": self.batch_size,
            "seed": self.seed,
            "bound": self.updates.bound,
            "local": _local_of_earlier(self.updates.local),
            "malicious": list(self.malicious),
            "attack": attack_text(self.attack),
            "initial": hashlib.sha256(self.model.initial.tobytes()).hexdigest(),
        }
        if self.held_out:
            facts["held_out"] = self.held_out_share
        return facts

    def settings(self) -> dict[str, Plain]:
        """Return how they were set up, as far as it is plain."""
        local = self.updates.local
        return {
            "batch_size": self.batch_size,
            "seed": self.seed,
            "bound": self.updates.bound,
            "l2": local.l2,
            "local_steps": local.steps,
            "held_out": self.held_out_share,
        }

    def about(self) -> tuple[tuple[str, str], ...]:
        """Return what there is to say of their data."""
        return (("samples", f"{len(self.x)}, each of shape {self.model.example_shape}"),)

    def loss(self, round: int, at: Vector, peers: Sequence[int]) -> float:
        """Return Σ αᵢ Lᵢ / Σ αᵢ, with Lᵢ the objective on peer i's minibatch of the round."""
        who = np.asarray(peers, dtype=np.int64)
        steps = self.updates.local.steps
        x, y, _ = self._minibatches(round, at, who, "training", steps=steps)
        w = as_tensor(at)
        with torch.no_grad():
            logits = self.updates.model.logits(w, x.flatten(0, 1))
            each = cross_entropy(logits, y.flatten(), reduction="none").view(y.shape).mean(dim=1)
        weights = self.updates.weights[who]
        mean = float((each.double().numpy() * weights).sum() / weights.sum())
        return mean + self.updates.local.l2 / 2 * float(w.double().square().sum())

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

    def _whole_data(self, at: Vector, peers: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
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
                    seed=self.batches.seed, round=0, w=at, places=[int(self._places[peer])]
                )
                x, y = self.attack.poison(self.x[rows][None], self.y[rows][None], context)
                yield x[0], y[0]


def attack_text(attack: Attack) -> str:
    """Return an attack as text that is the same in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(attack))


def _local_of_earlier(local: LocalTraining) -> str:
    """Return local training as earlier versions wrote it, so that what they saved still loads."""
    rate = local.rate if local.steps > 1 else 0.01
    return f"LocalTraining(l2={local.l2!r}, steps={local.steps!r}, rate={rate!r})"


class _KeptRoom:
    """One buffer for all rounds: touching fresh memory costs as much as the gradients."""

    def __init__(self) -> None:
        self._kept = torch.empty(0, 0)

    def __call__(self, peers: int, size: int) -> Tensor:
        """Return so much of the buffer; what the last call wrote to it is overwritten."""
        if self._kept.shape[1] != size or len(self._kept) < peers:
            self._kept = torch.empty(peers, size)
        return self._kept[:peers]


def simulate_peers(
    model: torch.nn.Module,
    x: Tensor,
    y: Tensor,
    partition: Partition,
    *,
    batch_size: int,
    seed: int = 0,
    bound: float = 10.0,
    local: LocalTraining = ONE_STEP,
    malicious: Sequence[int] = (),
    attack: Attack | None = None,
    peer_by_peer: bool = False,
    held_out: float = 0.0,
) -> SimulatedPeers:
    """Return the peers that hold these parts of the data, and hold out this share of each.

    With `peer_by_peer` every peer's gradient is computed by itself, to the bit as a real peer
    would; else many at once, which is faster and differs in the last bits.
    """
    if unknown := [p for p in malicious if not 0 <= p < len(partition)]:
        raise PlanError(f"peers are numbered 0 to {len(partition) - 1}; no peer {unknown[0]}")
    split = [hold_out(part, held_out, seed=seed, peer=i) for i, part in enumerate(partition)]
    trained = [kept for kept, _ in split]
    return SimulatedPeers(
        x=x,
        y=y,
        batches=Batches(trained, seed, batch_size),
        held_out=[held for _, held in split] if held_out else [],
        held_out_share=held_out,
        updates=Updates(
            model=FlatModel(model, tuple(x.shape[1:])),
            weights=data_weights(trained, max(map(len, partition))),
            bound=bound,
            local=local,
            chunk=1 if peer_by_peer else None,
        ),
        malicious=tuple(malicious),
        attack=attack or NoAttack(),
        room=_KeptRoom(),
    )
