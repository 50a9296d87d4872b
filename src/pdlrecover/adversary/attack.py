"""What an attack may do, and when.

Rules:

- An attack is independent of the partition, the model, the engine and the recovery method. It
  acts on the malicious peers only, at two places: on their minibatches (`poison`), and on their
  updates (`corrupt`). What it does not override is honest.
- Both return tensors; those they were given are never changed.
- Updates are shown and returned as plain gradients gᵢ, so that those of all peers compare. What a
  peer deals is αᵢ·gᵢ, its weight times that; weighing, then clipping, come after the attack, and
  an attacker's weight stays its own.
- `corrupt` is shown the honest updates of the round, which a real attacker may not know: an
  attack that uses them says that it needs full knowledge.
- `Context.phase` tells training from recovery, for attackers that behave until they can hide;
  `Context.places` tells the attackers apart, for those who share the work.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, Self

import numpy as np
from torch import Tensor

from pdlrecover.learning import Weights

Phase = Literal["training", "recovery"]
_WORD = (1 << 64) - 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Context:
    """The round in which an attack takes place."""

    round: int
    w: Weights
    """The model that the updates are computed at."""
    places: tuple[int, ...]
    """Which attacker each row is: its place among all malicious peers, in ascending order.

    In a recovery some of them may be gone; the others keep their places.
    """
    generator: np.random.Generator
    """The attack's randomness, of this round only."""
    phase: Phase = "training"

    @classmethod
    def of(
        cls, *, seed: int, round: int, w: Weights, places: Sequence[int], phase: Phase = "training"
    ) -> Self:
        """Return the context of a round, its randomness being a function of (seed, round)."""
        generator = np.random.default_rng([seed & _WORD, round])
        return cls(round=round, w=w, places=tuple(places), generator=generator, phase=phase)


class Attack(Protocol):
    """An attack of m malicious peers among k honest ones."""

    reads_others: ClassVar[bool] = True
    """Whether `corrupt` looks at the honest updates, so that all are computed before any is added
    up. Where it does not, it may be shown none."""
    one_by_one: ClassVar[bool] = False
    """Whether every attacker does what it would do by itself, so that some of them, with their own
    places, can be asked at a time."""

    def poison(self, x: Tensor, y: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """Return what the malicious peers make of minibatches x (m, b, *shape) and y (m, b)."""
        return x, y

    def corrupt(self, updates: Tensor, benign: Tensor, context: Context) -> Tensor:
        """Return what they claim instead of their updates (m, d), the others' being (k, d)."""
        return updates
