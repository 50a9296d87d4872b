"""When a recovery counts as good: the promises, and whether a method keeps them.

Over the seeds of one setting: the mean accuracy at most 0.3 points below retraining's and that of
no seed more than 0.5 points, the backdoor's mean success at most two points above retraining's, and
no more exact rounds than are allowed. Where honest peers left, what is remembered must not be
surely above 0.3, if it can be measured: a promise is broken if it is above that by more than two
standard errors.
A method that diverged with any seed keeps nothing.
"""

from pdlrecover.experiments.analysis.results import Mean, Results
from pdlrecover.experiments.experiment.forgetting import SURE
from pdlrecover.experiments.experiment.result import RateName
from pdlrecover.recovery.methods import REFERENCE

ACCURACY_MARGIN = 0.003
WORST_MARGIN = 0.005
"""Of the worst seed."""
BACKDOOR_MARGIN = 0.02
REMEMBERED = 0.3
ACCURATE = (
    f"on average at most {100 * ACCURACY_MARGIN:g} points below retraining, with no seed more than "
    f"{100 * WORST_MARGIN:g} below it"
)
CLEAN = f"the backdoor at most {100 * BACKDOOR_MARGIN:g} points above"
TERMS = f"{ACCURATE}, {CLEAN}"
"""What is promised of a model, in words."""


def holds(of: Results, method: str, allowed: float, *, left: bool) -> bool | None:
    """Say whether a method keeps the promises in these results; None if any is without it."""
    if not of or not all({method, REFERENCE} <= result.methods.keys() for result in of):
        return None
    if any(of.diverged(method)):
        return False
    exact, lost = of.mean(method, "exact_rounds"), gap(of, method)
    more = above(of, method)
    kept = of.remembered(method) if left else None
    return (
        exact is not None
        and lost is not None
        and lost.value >= -ACCURACY_MARGIN
        and min(gaps(of, method)) >= -WORST_MARGIN
        and (more is None or more.value <= BACKDOOR_MARGIN)
        and exact.value <= allowed
        and (kept is None or kept.value - SURE * kept.error <= REMEMBERED)
    )


def gaps(of: Results, method: str, rate: RateName = "accuracy") -> list[float]:
    """Return a rate above retraining's, for each seed that has both."""
    pairs = [
        (getattr(r.methods[method], rate), getattr(r.methods[REFERENCE], rate))
        for r in of
        if {method, REFERENCE} <= r.methods.keys()
    ]
    return [ours - theirs for ours, theirs in pairs if ours is not None and theirs is not None]


def gap(of: Results, method: str) -> Mean | None:
    """Return the mean accuracy above retraining's, with the spread of the differences."""
    return Mean.of(gaps(of, method))


def above(of: Results, method: str) -> Mean | None:
    """Return the backdoor's success above retraining's, None where there is no backdoor."""
    return Mean.of(gaps(of, method, "attack_success"))


def points(rate: Mean | float | None, digits: int = 2) -> float | None:
    """Return a difference of rates in points."""
    value = rate.value if isinstance(rate, Mean) else rate
    return None if value is None else round(100 * value, digits) + 0.0  # no minus zero


def word(verdict: bool | None) -> str | None:
    """Return a verdict for a table."""
    return None if verdict is None else "yes" if verdict else "no"
