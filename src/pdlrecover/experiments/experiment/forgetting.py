"""Whether a recovered model has forgotten the peers that left. Accuracy alone cannot tell.

A model is surer of samples that it was trained on. Let p_w(x) be the probability that the model w
gives to the class of x, and p̄(x) its mean over R *references*: retrainings from other first weights
with other minibatches, none of which saw the data of the removed peers P. Then

    a, b           such that p_w(x) ≈ a + b·p̄(x) on held-out data, by least squares: what a model
                   as good as w gives to a sample that it never saw
    excess(w)      = mean over P's samples of p_w(x) − a − b·p̄(x)
    remembered(w)  = excess(w) / excess(original)

Held-out data is weighted to P's mix of classes. Both have standard errors: that of an excess from
the residuals of P's samples, of the held-out ones and of the slope b, that of a ratio by the delta
method. The original remembers 1, and a model that never saw the data 0 within its error. Where the
original's excess is not `SURE` standard errors above zero, its share has no meaning, and is None.

Probabilities, because a few samples rule a mean of losses: `docs/reproduction.md` has what was
compared.
Next to it stands the backdoor's success above that of retraining, which need not be zero itself.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pdlrecover import learning
from pdlrecover.experiments.experiment.result import POISONED, Losses, MethodResult
from pdlrecover.recovery.methods import METHODS, REFERENCE
from pdlrecover.recovery.requests import Vector

if TYPE_CHECKING:
    from pdlrecover.engines.simulated_peers import SimulatedPeers
    from pdlrecover.learning import Dataset

SURE = 2.0
"""How many standard errors above zero the original's excess must be."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number and its standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:z.2f} ± {self.error:.2f}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Sureness:
    """p_w of the removed peers' samples, and of the held-out ones."""

    removed: NDArray[np.float64]
    held_out: NDArray[np.float64]

    @classmethod
    def mean(cls, models: Sequence["Sureness"]) -> "Sureness":
        """Return p̄."""
        return cls(
            removed=np.mean([each.removed for each in models], axis=0),
            held_out=np.mean([each.held_out for each in models], axis=0),
        )


def losses(
    simulated_peers: "SimulatedPeers", dataset: "Dataset", removed: tuple[int, ...], weights: Vector
) -> Losses:
    """Return a model's mean loss on held-out data, weighted, and on the removed peers' data."""
    model = simulated_peers.updates.model
    samples = simulated_peers.batches.samples_of(removed)
    if not len(samples):
        loss = learning.mean_loss(model, weights, dataset.test_x, dataset.test_y)
        return Losses(held_out_loss=_finite(loss), removed_loss=None)
    x, y = simulated_peers.x[samples], simulated_peers.y[samples]
    held_out, counted = 0.0, 0
    test_x, test_y = dataset.test_x, dataset.test_y
    for label in range(dataset.classes):
        same = test_y == label
        if same.any():
            count = int((y == label).sum())
            held_out += count * learning.mean_loss(model, weights, test_x[same], test_y[same])
            counted += count
    return Losses(
        held_out_loss=_finite(held_out / counted) if counted else None,
        removed_loss=_finite(learning.mean_loss(model, weights, x, y)),
    )


def _finite(value: float) -> float | None:
    """Return a loss, or None for that of a model that has diverged."""
    return value if math.isfinite(value) else None


def sureness(
    simulated_peers: "SimulatedPeers", dataset: "Dataset", removed: tuple[int, ...], weights: Vector
) -> Sureness:
    """Return how sure a model is of the removed peers' samples, and of the held-out ones."""
    model = simulated_peers.updates.model
    samples = simulated_peers.batches.samples_of(removed)
    own = simulated_peers.x[samples], simulated_peers.y[samples]
    return Sureness(
        removed=learning.confidences(model, weights, *own),
        held_out=learning.confidences(model, weights, dataset.test_x, dataset.test_y),
    )


def held_out_weights(
    simulated_peers: "SimulatedPeers", dataset: "Dataset", removed: tuple[int, ...]
) -> NDArray[np.float64]:
    """Return weights of the held-out samples, of sum 1, by which they mix classes as P's do."""
    mine = simulated_peers.y[simulated_peers.batches.samples_of(removed)].numpy()
    theirs = dataset.test_y.numpy()
    wanted, there = (np.bincount(y, minlength=dataset.classes) for y in (mine, theirs))
    weights = (wanted / np.maximum(there, 1))[theirs]
    whole: NDArray[np.float64] = weights / weights.sum()
    return whole


def excess(model: Sureness, reference: Sureness, weights: NDArray[np.float64]) -> Estimate | None:
    """Return by how much a model is surer of P's samples than one as good that never saw them.

    None if it has diverged, or is as sure of everything.
    """
    x, y = (each.held_out - weights @ each.held_out for each in (reference, model))
    square = weights @ x**2
    if not np.isfinite(model.removed).all() or not np.isfinite(y).all() or not square:
        return None
    slope = weights @ (x * y) / square
    shift = reference.removed - weights @ reference.held_out
    rest = model.removed - weights @ model.held_out - slope * shift
    residuals = y - slope * x
    variance = (
        rest.var(ddof=1) / len(rest)
        + weights**2 @ residuals**2
        + (shift.mean() / square) ** 2 * (weights**2 @ (x * residuals) ** 2)
    )
    return Estimate(value=float(rest.mean()), error=math.sqrt(variance))


def ratio(ours: Estimate, original: Estimate) -> Estimate | None:
    """Return what is remembered, by the delta method; None where the original tells nothing."""
    if original.value <= SURE * original.error:
        return None
    share = ours.value / original.value
    return Estimate(
        value=share, error=math.hypot(ours.error, share * original.error) / original.value
    )


def with_forgetting(
    methods: Mapping[str, MethodResult], found: Mapping[str, Estimate | None]
) -> dict[str, MethodResult]:
    """Return the results with what each is surer of, what it remembers, and its backdoor."""
    original = found.get(POISONED)
    results = {}
    for name, one in methods.items():
        mine = found.get(name) if is_scored(name) else None
        share = ratio(mine, original) if mine is not None and original is not None else None
        if share is not None and name == POISONED:
            share = Estimate(value=1.0, error=0.0)  # by definition
        results[name] = replace(
            one,
            excess=None if mine is None else mine.value,
            excess_error=None if mine is None else mine.error,
            remembered=None if share is None else share.value,
            remembered_error=None if share is None else share.error,
        )
    return with_success_above(results)


def with_success_above(methods: dict[str, MethodResult]) -> dict[str, MethodResult]:
    """Return the results with the backdoor's success above that of retraining, if that is there."""
    retrain = methods.get(REFERENCE)
    least = None if retrain is None else retrain.attack_success

    def above(mine: float | None) -> float | None:
        return None if mine is None or least is None else mine - least

    return {
        name: replace(one, attack_success_above_retrain=above(one.attack_success))
        for name, one in methods.items()
    }


def is_scored(name: str) -> bool:
    """Say whether a model's scores are probabilities: a method's entry does, the original's are."""
    entry = METHODS.get(name.partition(":")[0])
    return entry is None or entry.scored
