"""What an attack may do, and when.

Rules:

- An attack is independent of the partition, the model, the engine and the recovery method. It
  acts on the malicious peers only, at two places: on their minibatches (`poison`), and on their
  updates before these are clipped and dealt (`corrupt`). What it does not override is honest.
- Both return tensors; those they were given are never changed.
- `corrupt` is shown the honest updates of the round, which a real attacker may not know: an
  attack that uses them says that it needs full knowledge.
- `Context.phase` tells training from recovery, for attackers that behave until they can hide.
"""

from dataclasses import dataclass
from typing import Literal, Protocol, Self

import numpy as np
import torch

from pdlrecover.learning import Weights

Phase = Literal["training", "recovery"]
_WORD = (1 << 64) - 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Context:
    """The round in which an attack takes place."""

    round: int
    w: Weights
    """The model that the updates were computed at."""
    generator: np.random.Generator
    """The attack's randomness, of this round only."""
    phase: Phase = "training"

    @classmethod
    def of(cls, *, seed: int, round: int, w: Weights, phase: Phase = "training") -> Self:  # noqa: A002 (the field's own name)
        """Return the context of a round, its randomness being a function of (seed, round)."""
        generator = np.random.default_rng([seed & _WORD, round])
        return cls(round=round, w=w, generator=generator, phase=phase)


class Attack(Protocol):
    """An attack of m malicious peers among k honest ones."""

    def poison(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what the malicious peers make of minibatches x (m, b, *shape) and y (m, b)."""
        return x, y

    def corrupt(
        self, updates: torch.Tensor, benign: torch.Tensor, context: Context
    ) -> torch.Tensor:
        """Return what they deal instead of their updates (m, d), the others' being (k, d)."""
        return updates
