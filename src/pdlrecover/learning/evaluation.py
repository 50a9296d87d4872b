"""How good a model is: accuracy and mean loss, as fractions of 1 and in nats.

A model that has diverged is no error here: its loss is not finite, and its accuracy that of
always naming one class.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from pdlrecover.errors import DataError
from pdlrecover.learning.flat_model import FlatModel, Weights, as_tensor

_BATCH = 2048


def predictions(model: FlatModel, w: Weights, x: torch.Tensor) -> torch.Tensor:
    """Return the class that the model names for each sample."""
    return torch.cat([logits.argmax(dim=1) for logits in _logits(model, w, x)])


def accuracy(model: FlatModel, w: Weights, x: torch.Tensor, y: torch.Tensor) -> float:
    """Return the share of samples whose class the model names."""
    return int((predictions(model, w, x) == y).sum()) / len(y)


def mean_loss(model: FlatModel, w: Weights, x: torch.Tensor, y: torch.Tensor) -> float:
    """Return the mean cross-entropy over the samples."""
    total, start = 0.0, 0
    for logits in _logits(model, w, x):
        end = start + len(logits)
        total += float(cross_entropy(logits, y[start:end], reduction="sum"))
        start = end
    return total / len(y)


def confidences(
    model: FlatModel, w: Weights, x: torch.Tensor, y: torch.Tensor
) -> NDArray[np.float64]:
    """Return the probability that the model gives to each sample's own class."""
    each = [logits.double().softmax(dim=1) for logits in _logits(model, w, x)]
    found: NDArray[np.float64] = torch.cat(each).gather(1, y[:, None])[:, 0].numpy()
    return found


def correct_and_loss(
    model: FlatModel, w: Weights, x: torch.Tensor, y: torch.Tensor, *, bound: float
) -> tuple[int, float]:
    """Return how many samples are classified right, and Σ min(loss, bound).

    A loss that is no number counts as the bound, and its sample as wrong.
    """
    correct, loss, start = 0, 0.0, 0
    for logits in _logits(model, w, x):
        labels = y[start : start + len(logits)]
        each = cross_entropy(logits, labels, reduction="none").double().nan_to_num(nan=bound)
        finite = torch.isfinite(logits).all(dim=1)
        correct += int(((logits.argmax(dim=1) == labels) & finite).sum())
        loss += float(each.clamp(0.0, bound).sum())
        start += len(logits)
    return correct, loss


def _logits(model: FlatModel, w: Weights, x: torch.Tensor) -> Iterator[torch.Tensor]:
    if not len(x):
        raise DataError("a model cannot be measured on no samples")
    weights = as_tensor(w)
    for start in range(0, len(x), _BATCH):
        with torch.no_grad():
            yield model.logits(weights, x[start : start + _BATCH])
