"""When a recovery counts as good: the promises, and whether a method keeps them.

Over the seeds of one setting: the mean accuracy at most half a point below retraining's, the
backdoor's mean success at most two points above retraining's, and no more exact rounds than are
allowed. Where honest peers left, what is remembered must be at most 0.3, if it can be measured.
"""

from pdlrecover.experiments.collection import Results

ACCURACY_MARGIN = 0.005
BACKDOOR_MARGIN = 0.02
REMEMBERED = 0.3


def holds(of: Results, method: str, allowed: float, *, left: bool) -> bool | None:
    """Say whether a method keeps the promises in these cells; None if it was not run in all."""
    entries = [record["methods"].get(method) for record in of]
    if not entries or any(
        entry is None or "retrain" not in r["methods"] for entry, r in zip(entries, of, strict=True)
    ):
        return None
    if any("diverged" in entry for entry in entries):
        return False
    exact, lost = of.mean(method, "exact_rounds"), gap(of, method)
    above = of.mean(method, "attack_success_above_retrain")
    kept = of.mean(method, "remembered") if left else None
    return (
        exact is not None
        and lost is not None
        and lost >= -ACCURACY_MARGIN
        and (above is None or above.value <= BACKDOOR_MARGIN)
        and exact.value <= allowed
        and (kept is None or kept.value <= REMEMBERED)
    )


def gap(of: Results, method: str) -> float | None:
    """Return the mean accuracy above retraining's."""
    ours, theirs = of.mean(method, "accuracy"), of.mean("retrain", "accuracy")
    return None if ours is None or theirs is None else ours.value - theirs.value


def worst(of: Results, method: str, key: str) -> float | None:
    """Return the largest value of a method over the seeds."""
    values = [record["methods"].get(method, {}).get(key) for record in of]
    return max((value for value in values if value is not None), default=None)


def points(rate: float | None, digits: int = 2) -> float | None:
    """Return a difference of rates in points."""
    return None if rate is None else round(100 * rate, digits)


def word(verdict: bool | None) -> str | None:
    """Return a verdict for a table."""
    return None if verdict is None else "yes" if verdict else "no"
