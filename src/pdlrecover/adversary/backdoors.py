"""Backdoors: attacks that teach the model an answer of their own.

Rules:

- The samples that get the trigger are copied; the rest of a minibatch stays clean.
- Success is measured with the whole trigger (`attack_success`), whoever taught which part of it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from pdlrecover.adversary.attack import Attack, Context
from pdlrecover.adversary.simple_attacks import require_finite
from pdlrecover.adversary.triggers import Divisible, Trigger
from pdlrecover.errors import AttackError


@dataclass(frozen=True, kw_only=True)
class Backdoor(Attack):
    """Teach the model to answer `target` wherever the trigger is.

    T. Gu et al., "BadNets", 2017: the first max(1, round(fraction·b)) samples of each malicious
    minibatch, themselves drawn at random, get the trigger and the target label,

        (x, y) ↦ (trigger(x), target),

    and the update is multiplied by `scale`, g ↦ scale·g (model replacement; E. Bagdasaryan et
    al., "How to backdoor federated learning", 2020).
    """

    reads_others = False
    one_by_one = True
    trigger: Trigger
    target: int = 0
    fraction: float = 0.5
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise AttackError(f"the poisoned share must lie in 0 < · ≤ 1, got {self.fraction}")
        if self.target < 0:
            raise AttackError(f"the target is a class, counted from 0, got {self.target}")
        require_finite("scale", self.scale)

    def poison(self, x: Tensor, y: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """Stamp the first samples of each minibatch, and give them the target label."""
        count = max(1, round(self.fraction * y.shape[1]))
        return (
            torch.cat([self._stamped(x[:, :count], context), x[:, count:]], dim=1),
            torch.cat([torch.full_like(y[:, :count], self.target), y[:, count:]], dim=1),
        )

    def corrupt(self, updates: Tensor, benign: Tensor, context: Context) -> Tensor:
        """Return scale·g."""
        return updates if self.scale == 1 else self.scale * updates

    def _stamped(self, x: Tensor, context: Context) -> Tensor:
        return self.trigger(x)


@dataclass(frozen=True, kw_only=True)
class DistributedBackdoor(Backdoor):
    """DBA: a backdoor whose trigger is split over the attackers.

    C. Xie et al., "DBA: Distributed backdoor attacks against federated learning", 2020: the
    trigger is cut into p = `parts` disjoint pieces, and attacker i stamps piece i mod p only, so
    that nobody ever trains on the whole, which is what success is measured with. With fewer than
    p attackers some pieces are never taught.
    """

    trigger: Divisible
    parts: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        self.trigger.split(self.parts)

    def _stamped(self, x: Tensor, context: Context) -> Tensor:
        pieces = self.trigger.split(self.parts)
        own = pieces[torch.tensor(context.places) % self.parts]
        return torch.where(own.unsqueeze(1), self.trigger(x), x)
