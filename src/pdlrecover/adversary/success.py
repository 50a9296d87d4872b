"""Whether an attack has reached its goal."""

from typing import Protocol, runtime_checkable

import torch

from pdlrecover.adversary.attack import Attack
from pdlrecover.adversary.simple_attacks import BadUnlearn
from pdlrecover.adversary.triggers import Trigger
from pdlrecover.errors import DataError
from pdlrecover.learning import FlatModel, Weights, predictions


@runtime_checkable
class Targeted(Protocol):
    """An attack that wants one answer wherever its trigger is."""

    @property
    def trigger(self) -> Trigger:
        """The pattern."""

    @property
    def target(self) -> int:
        """The answer."""


def attack_success(
    model: FlatModel, w: Weights, x: torch.Tensor, y: torch.Tensor, attack: Attack
) -> float | None:
    """Return how often the trigger gets its answer, or None if the attack has no trigger.

    It is the share, among the samples that are not of the target class, of those classified as
    the target when the trigger is stamped on them. A clean model's share need not be 0: compare
    with that of retraining. Attackers that wait for a recovery have the goal of what they do then.
    """
    if isinstance(attack, BadUnlearn):
        attack = attack.then
    if not isinstance(attack, Targeted):
        return None
    others = x[y != attack.target]
    if not len(others):
        raise DataError(
            f"every sample is of the target class {attack.target}, so the backdoor cannot be "
            "measured; choose another target"
        )
    named = predictions(model, w, attack.trigger(others))
    return int((named == attack.target).sum()) / len(others)
