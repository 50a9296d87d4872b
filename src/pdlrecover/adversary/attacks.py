"""Attacks on data and on updates; `build` makes one by name.

Each is a small frozen dataclass: its strength is its fields, its formula is its docstring.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from pdlrecover.adversary.attack import Attack, Context
from pdlrecover.adversary.triggers import Trigger, trigger_for
from pdlrecover.errors import AttackError
from pdlrecover.learning import Dataset


@dataclass(frozen=True, kw_only=True)
class NoAttack(Attack):
    """Everybody is honest."""


@dataclass(frozen=True, kw_only=True)
class Backdoor(Attack):
    """Teach the model to answer `target` wherever the trigger is.

    T. Gu et al., "BadNets", 2017: the first max(1, round(fraction·b)) samples of each malicious
    minibatch, themselves drawn at random, get the trigger and the target label,

        (x, y) ↦ (trigger(x), target),

    and the update is multiplied by `scale`, g ↦ scale·g (model replacement; E. Bagdasaryan et
    al., "How to backdoor federated learning", 2020).
    """

    trigger: Trigger
    target: int = 0
    fraction: float = 0.5
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise AttackError(f"the poisoned share must lie in 0 < · ≤ 1, got {self.fraction}")
        if self.target < 0:
            raise AttackError(f"the target is a class, counted from 0, got {self.target}")
        _require_finite("scale", self.scale)

    def poison(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Stamp the first samples of each minibatch, and give them the target label."""
        count = max(1, round(self.fraction * y.shape[1]))
        return (
            torch.cat([self.trigger(x[:, :count]), x[:, count:]], dim=1),
            torch.cat([torch.full_like(y[:, :count], self.target), y[:, count:]], dim=1),
        )

    def corrupt(
        self, updates: torch.Tensor, benign: torch.Tensor, context: Context
    ) -> torch.Tensor:
        """Return scale·g."""
        return updates if self.scale == 1 else self.scale * updates


@dataclass(frozen=True, kw_only=True)
class LabelFlip(Attack):
    """Mirror the labels, y ↦ C − 1 − y (V. Tolpegin et al., 2020; M. Fang et al., 2020)."""

    classes: int
    """C."""

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise AttackError(f"labels flip among at least 2 classes, got {self.classes}")

    def poison(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the samples with mirrored labels."""
        return x, self.classes - 1 - y


@dataclass(frozen=True, kw_only=True)
class SignFlip(Attack):
    """Climb where others descend, g ↦ −scale·g (L. Li et al., "RSA", 2019)."""

    scale: float = 1.0

    def __post_init__(self) -> None:
        _require_finite("scale", self.scale)

    def corrupt(
        self, updates: torch.Tensor, benign: torch.Tensor, context: Context
    ) -> torch.Tensor:
        """Return −scale·g."""
        return -self.scale * updates


@dataclass(frozen=True, kw_only=True)
class GaussianNoise(Attack):
    """Deal noise instead of updates, g ↦ N(0, std²·I).

    P. Blanchard et al., "Machine learning with adversaries", 2017, with std = 200: the update is
    replaced, not disturbed. The usual clipping applies to it afterwards.
    """

    std: float = 200.0

    def __post_init__(self) -> None:
        _require_finite("std", self.std)

    def corrupt(
        self, updates: torch.Tensor, benign: torch.Tensor, context: Context
    ) -> torch.Tensor:
        """Return noise, from the context's randomness."""
        noise = context.generator.standard_normal(tuple(updates.shape), dtype="float32")
        return torch.from_numpy(noise).mul_(self.std)


def _backdoor(
    dataset: Dataset, *, target: int = 0, fraction: float = 0.5, scale: float = 1.0
) -> Attack:
    if not 0 <= target < dataset.classes:
        raise AttackError(
            f"the target must be a class of {dataset.name}, 0 to {dataset.classes - 1}, "
            f"got {target}"
        )
    return Backdoor(trigger=trigger_for(dataset), target=target, fraction=fraction, scale=scale)


def _label_flip(dataset: Dataset) -> Attack:
    return LabelFlip(classes=dataset.classes)


def _sign_flip(dataset: Dataset, *, scale: float = 1.0) -> Attack:
    return SignFlip(scale=scale)


def _noise(dataset: Dataset, *, std: float = 200.0) -> Attack:
    return GaussianNoise(std=std)


def _none(dataset: Dataset) -> Attack:
    return NoAttack()


ATTACKS: Mapping[str, Callable[..., Attack]] = MappingProxyType(
    {
        "backdoor": _backdoor,
        "label-flip": _label_flip,
        "sign-flip": _sign_flip,
        "noise": _noise,
        "none": _none,
    }
)


def build(name: str, dataset: Dataset, **strength: Any) -> Attack:
    """Return the attack of that name on that dataset.

    - backdoor: target=0, fraction=0.5, scale=1.0, with the dataset's usual trigger
    - label-flip
    - sign-flip: scale=1.0
    - noise: std=200.0
    - none
    """
    if name not in ATTACKS:
        raise AttackError(f"no attack is called {name!r}; known are {', '.join(ATTACKS)}")
    accepted = list(inspect.signature(ATTACKS[name]).parameters)[1:]
    if unknown := sorted(set(strength) - set(accepted)):
        raise AttackError(
            f"the attack {name} has no {', '.join(unknown)}; "
            f"it takes {', '.join(accepted) or 'no arguments'}"
        )
    return ATTACKS[name](dataset, **strength)


def _require_finite(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise AttackError(f"{name} must be finite and not negative, got {value}")
