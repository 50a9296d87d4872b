"""Attacks that need to know nothing of the others: on labels, and on the attackers' own updates.

Each is a small frozen dataclass: its strength is its fields, its formula is its docstring.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pdlrecover.adversary.attack import Attack, Context
from pdlrecover.errors import AttackError


@dataclass(frozen=True, kw_only=True)
class NoAttack(Attack):
    """Everybody is honest."""

    reads_others = False
    one_by_one = True


@dataclass(frozen=True, kw_only=True)
class LabelFlip(Attack):
    """Mirror the labels, y ↦ C − 1 − y (V. Tolpegin et al., 2020; M. Fang et al., 2020)."""

    reads_others = False
    one_by_one = True
    classes: int
    """C."""

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise AttackError(f"labels flip among at least 2 classes, got {self.classes}")

    def poison(self, x: Tensor, y: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """Return the samples with mirrored labels."""
        return x, self.classes - 1 - y


@dataclass(frozen=True, kw_only=True)
class SignFlip(Attack):
    """Climb where others descend, g ↦ −scale·g (L. Li et al., "RSA", 2019)."""

    reads_others = False
    one_by_one = True
    scale: float = 1.0

    def __post_init__(self) -> None:
        require_finite("scale", self.scale)

    def corrupt(self, updates: Tensor, benign: Tensor, context: Context) -> Tensor:
        """Return −scale·g."""
        return -self.scale * updates


@dataclass(frozen=True, kw_only=True)
class GaussianNoise(Attack):
    """Claim noise instead of updates, g ↦ N(0, std²·I).

    P. Blanchard et al., "Machine learning with adversaries", 2017, with std = 200: the update is
    replaced, not disturbed. The usual clipping applies to it afterwards.
    """

    reads_others = False
    std: float = 200.0

    def __post_init__(self) -> None:
        require_finite("std", self.std)

    def corrupt(self, updates: Tensor, benign: Tensor, context: Context) -> Tensor:
        """Return noise, from the context's randomness."""
        noise = context.generator.standard_normal(tuple(updates.shape), dtype="float32")
        return torch.from_numpy(noise).mul_(self.std)


@dataclass(frozen=True, kw_only=True)
class BadUnlearn(Attack):
    """Behave in training, and do something else in the exact rounds of a recovery.

    W. Wang et al., "Poisoning attacks and defenses to federated unlearning", 2025, have attackers
    who were not detected send updates that are designed to keep the model poisoned while it is
    recovered. Here `then`, any other attack, is what they do from that moment on, so nothing in
    the history betrays them. Estimated rounds ask nobody for fresh updates and use what was dealt
    in training; they are spoilt through the exact ones only.
    """

    then: Attack

    def __post_init__(self) -> None:
        if isinstance(self.then, BadUnlearn):
            raise AttackError("bad-unlearn waits for the recovery once; give it another attack")

    def poison(self, x: Tensor, y: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """Return the minibatches as they are, or in a recovery what the other attack makes."""
        return (x, y) if context.phase == "training" else self.then.poison(x, y, context)

    def corrupt(self, updates: Tensor, benign: Tensor, context: Context) -> Tensor:
        """Return the updates as they are, or in a recovery what the other attack makes."""
        if context.phase == "training":
            return updates
        return self.then.corrupt(updates, benign, context)


def require_finite(name: str, value: float) -> None:
    """Refuse a strength that is negative, infinite or not a number."""
    if not (math.isfinite(value) and value >= 0):
        raise AttackError(f"{name} must be finite and not negative, got {value}")
