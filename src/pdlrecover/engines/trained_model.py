"""A trained or recovered model, as the user sees it."""

from dataclasses import dataclass

import torch
from numpy.typing import ArrayLike

from pdlrecover.adversary import Attack, attack_success
from pdlrecover.engines.evaluations import EvaluationPoint
from pdlrecover.engines.ledger import Ledger
from pdlrecover.errors import DataError
from pdlrecover.learning import FlatModel, Weights, accuracy


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedModel:
    """A trained or recovered model, and what it took."""

    weights: Weights
    ledger: Ledger
    evaluations: tuple[EvaluationPoint, ...] = ()
    """How good the peers found it on what they hold out, round by round."""
    continued: tuple[str, ...] = ()
    """Why a recovery went on for another cycle, if it did."""
    _flat: FlatModel

    @property
    def model(self) -> torch.nn.Module:
        """A copy of the user's module with these weights."""
        return self._flat.module_with(self.weights)

    def accuracy(self, x: ArrayLike, y: ArrayLike) -> float:
        """Return the share of these samples that are classified right."""
        samples, labels = as_tensors(x, y)
        return accuracy(self._flat, self.weights, samples, labels)

    def attack_success(self, x: ArrayLike, y: ArrayLike, attack: Attack) -> float | None:
        """Return how often the attack's trigger, stamped on these samples, gets its answer."""
        samples, labels = as_tensors(x, y)
        return attack_success(self._flat, self.weights, samples, labels, attack)


def as_tensors(x: ArrayLike, y: ArrayLike) -> tuple[torch.Tensor, torch.Tensor]:
    """Return samples and labels as torch computes with them; they must be finite."""
    samples, labels = torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y)
    if labels.is_floating_point() and not torch.equal(labels, labels.round()):
        raise DataError("labels must be whole numbers, the classes counted from 0")
    labels = labels.to(torch.int64)
    if not torch.isfinite(samples).all():
        raise DataError("samples must be finite numbers; some are NaN or infinite")
    return samples, labels
