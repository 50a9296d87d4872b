"""What one peer deals in a round: its own clipped update and weight, as integers.

To the bit what a simulation computes for this peer, where that computes peer by peer.
"""

from dataclasses import dataclass

import numpy as np
import torch

from pdlrecover.adversary import Attack, Context, Phase
from pdlrecover.errors import DataError
from pdlrecover.field import FixedPoint, Integers
from pdlrecover.learning import FlatModel, LocalTraining, Updates, clip
from pdlrecover.learning.batches import draws
from pdlrecover.recovery.requests import Vector


@dataclass(kw_only=True, eq=False)
class Contribution:
    """One peer's data, and what follows from it."""

    peer: int
    peers: int
    model: FlatModel
    x: torch.Tensor
    y: torch.Tensor
    size_bound: int
    """The public bound on how many samples a peer holds."""
    batch_size: int
    seed: int
    """The federation's seed, from which everybody draws its minibatches."""
    bound: float
    l2: float = 0.0
    fraction_bits: int = 20
    attack: Attack | None = None
    """What this peer does to its own update, in a drill."""
    clipped: int = 0

    def __post_init__(self) -> None:
        if not 1 <= len(self.y) <= self.size_bound or len(self.x) != len(self.y):
            raise DataError(
                f"a peer holds 1 to {self.size_bound} samples (the size bound) and as many labels, "
                f"got {len(self.x)} and {len(self.y)}"
            )
        weight = len(self.y) / self.size_bound
        self.code = FixedPoint(
            peers=self.peers,
            bound=float(np.hypot(self.bound, 1.0)),
            length=self.model.size + 1,
            fraction_bits=self.fraction_bits,
        )
        self._weight = round(weight * self.code.scale)
        self._updates = Updates(
            model=self.model,
            weights=np.array([weight]),
            bound=self.bound,
            local=LocalTraining(l2=self.l2),
        )

    def __call__(self, round: int, at: Vector, phase: Phase = "training") -> Integers:
        """Return the d + 1 integers of this peer's update at a model, and of its weight."""
        places = draws(self.seed, [self.peer], [len(self.y)], round, self.batch_size)
        rows = torch.from_numpy(places)
        updates, clipped = self._update(round, at, self.x[rows], self.y[rows], phase)
        self.clipped += clipped
        updates.mul_(self.code.scale).round_()
        out = np.empty(self.code.length, dtype=np.int64)
        out[:-1] = updates[0].double().numpy()
        out[-1] = self._weight
        return out

    def _update(
        self, round: int, at: Vector, x: torch.Tensor, y: torch.Tensor, phase: Phase
    ) -> tuple[torch.Tensor, int]:
        """Return the clipped update, and whether the bound has shortened it."""
        me = np.array([0])
        if self.attack is None:
            return self._updates(at, me, x, y)
        context = Context.of(seed=self.seed, round=round, w=at, places=[0], phase=phase)
        x, y = self.attack.poison(x, y, context)
        plain = self._updates.plain(at, x, y)
        claimed = self.attack.corrupt(plain, torch.empty(0, self.model.size), context)
        return clip(self._updates.weigh(claimed, me), self.bound)
