"""Whether a recovered model has forgotten the removed peers. Accuracy alone cannot tell.

    gap(w)        = loss on held-out data − loss on the removed peers' own data
    remembered(w) = (gap(w) − gap(retrain)) / (gap(original) − gap(retrain))

Held-out data is weighted to the removed peers' mix of classes; else a model that is merely better
at some classes would seem to remember. The original model is 1 and retraining is 0. On one seed the
noise is about ±0.3: average over seeds. Where the original itself remembers next to nothing, as
after SGD with normal minibatches, the ratio has no meaning, and is None.
Next to it stands the backdoor's success above that of retraining, which need not be zero itself.
"""

import math
from dataclasses import replace

import msgspec

from pdlrecover.engines.simulated_peers import SimulatedPeers
from pdlrecover.experiments.experiment.result import POISONED, Losses, MethodResult
from pdlrecover.learning import Dataset, mean_loss
from pdlrecover.recovery.methods import METHODS, REFERENCE
from pdlrecover.recovery.requests import Vector

TELLING = 0.02
"""The least that the original must remember, in nats, for a share of it to tell anything:
models that never saw the removed data differ from retraining by half of that."""


def losses(
    simulated_peers: SimulatedPeers, dataset: Dataset, removed: tuple[int, ...], weights: Vector
) -> Losses:
    """Return a model's mean loss on held-out data, weighted, and on the removed peers' data."""
    model = simulated_peers.updates.model
    samples = simulated_peers.batches.samples_of(removed)
    if not len(samples):
        return Losses(held_out_loss=None, removed_loss=None)
    x, y = simulated_peers.x[samples], simulated_peers.y[samples]
    held_out, counted = 0.0, 0
    test_x, test_y = dataset.test_x, dataset.test_y
    for label in range(dataset.classes):
        same = test_y == label
        if same.any():
            count = int((y == label).sum())
            held_out += count * mean_loss(model, weights, test_x[same], test_y[same])
            counted += count
    return Losses(
        held_out_loss=_finite(held_out / counted) if counted else None,
        removed_loss=_finite(mean_loss(model, weights, x, y)),
    )


def _finite(value: float) -> float | None:
    """Return a loss, or None for that of a model that has diverged."""
    return value if math.isfinite(value) else None


def with_forgetting(methods: dict[str, MethodResult]) -> dict[str, MethodResult]:
    """Return the results with `remembered` and `attack_success_above_retrain` filled in."""
    retrain = methods.get(REFERENCE)
    if retrain is None:
        return methods
    original = methods.get(POISONED)
    found = {}
    for name, one in methods.items():
        told = original is not None and is_scored(name)
        share = remembered(one, original, retrain) if told and original else None
        found[name] = replace(one, remembered=share)
    return with_success_above(found)


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
    """Say whether losses tell what a model remembers: a method's entry does, the original's do."""
    entry = METHODS.get(name.partition(":")[0])
    return entry is None or entry.scored


def remembered(one: MethodResult, original: MethodResult, retrain: MethodResult) -> float | None:
    """Return how much of the removed peers' data a model remembers: the original 1, retrain 0."""
    ours, first, last = gap(one), gap(original), gap(retrain)
    if ours is None or first is None or last is None:
        return None
    return (ours - last) / (first - last) if first - last >= TELLING else None


def gap(one: MethodResult | None) -> float | None:
    """Return the loss on held-out data minus that on the removed peers' data."""
    held_out = None if one is None else one.held_out_loss
    if one is None or held_out is None or held_out is msgspec.UNSET or one.removed_loss is None:
        return None
    return held_out - one.removed_loss
