"""Whether a recovered model has forgotten the removed peers. Accuracy alone cannot tell.

    gap(w)        = loss on held-out data − loss on the removed peers' own data
    remembered(w) = (gap(w) − gap(retrain)) / (gap(original) − gap(retrain))

The original model is 1 and retraining is 0. On one seed the noise is about ±0.3: average over
seeds. Where the original itself remembers next to nothing the ratio has no meaning, and is None.
Next to it stands the backdoor's success above that of retraining, which need not be zero itself.
"""

from typing import Any

from pdlrecover.engines.population import Population
from pdlrecover.learning import Dataset, mean_loss
from pdlrecover.recovery.requests import Vector

MEASURABLE = 0.002
"""The least difference of gaps, in nats, that can be told from chance."""

Entry = dict[str, Any]


def losses(
    population: Population, dataset: Dataset, removed: tuple[int, ...], weights: Vector
) -> Entry:
    """Return a model's mean loss on held-out data, and on the removed peers' data."""
    model = population.updates.model
    samples = population.batches.samples_of(removed)
    return {
        "held_out_loss": mean_loss(model, weights, dataset.test_x, dataset.test_y),
        "removed_loss": mean_loss(model, weights, population.x[samples], population.y[samples])
        if len(samples)
        else None,
    }


def add_forgetting(methods: dict[str, Entry], original: str) -> None:
    """Add `remembered` and `attack_success_above_retrain` to every entry; None without a value."""
    retrain = methods.get("retrain")
    for entry in methods.values():
        entry["remembered"] = entry["attack_success_above_retrain"] = None
        if retrain is None:
            continue
        entry["remembered"] = remembered(entry, methods[original], retrain)
        if entry["attack_success"] is not None and retrain["attack_success"] is not None:
            entry["attack_success_above_retrain"] = (
                entry["attack_success"] - retrain["attack_success"]
            )


def remembered(entry: Entry, original: Entry, retrain: Entry) -> float | None:
    """Return how much of the removed peers' data a model remembers: the original 1, retrain 0."""
    gaps = [_gap(each) for each in (entry, original, retrain)]
    if any(gap is None for gap in gaps):
        return None
    of_entry, of_original, of_retrain = (gap for gap in gaps if gap is not None)
    scale = of_original - of_retrain
    return (of_entry - of_retrain) / scale if abs(scale) >= MEASURABLE else None


def _gap(entry: Entry) -> float | None:
    lost, kept = entry.get("removed_loss"), entry.get("held_out_loss")
    return None if lost is None or kept is None else float(kept - lost)
