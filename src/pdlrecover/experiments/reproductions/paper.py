"""What the paper reports, to stand beside what we measure.

Accuracies as fractions of 1, times in seconds, by dataset and by number of removed peers.
"""

COUNTS = (10, 20, 30, 40, 50, 60)
"""m: how many peers are removed."""

COMPARED = ("retrain", "certified-removal", "fedrecovery", "fedrecover", "pdlrecover")
ACCURACY: dict[str, dict[str, float]] = {
    "mnist": dict(zip(COMPARED, (0.954, 0.952, 0.953, 0.947, 0.939), strict=True)),
    "fashion-mnist": dict(zip(COMPARED, (0.949, 0.865, 0.874, 0.858, 0.932), strict=True)),
    "har": dict(zip(COMPARED, (0.946, 0.844, 0.865, 0.872, 0.934), strict=True)),
}
"""Table III."""

Times = dict[str, dict[int, tuple[float, float]]]


def _times(retrain: tuple[int, ...], pdlrecover: tuple[int, ...]) -> dict[int, tuple[float, float]]:
    return {m: (r, p) for m, r, p in zip(COUNTS, retrain, pdlrecover, strict=True)}


ATTACK_TIMES: Times = {
    "mnist": _times((679, 682, 703, 695, 682, 607), (439, 441, 449, 404, 419, 417)),
    "fashion-mnist": _times((707, 706, 707, 711, 708, 710), (433, 423, 438, 416, 462, 465)),
    "har": _times((1235, 1212, 1227, 1217, 1246, 1250), (875, 887, 867, 893, 886, 901)),
}
"""Table I: seconds of retraining and of PDLRecover."""

LEAVER_TIMES: Times = {
    "mnist": _times((682, 686, 694, 691, 675, 672), (447, 435, 454, 413, 422, 416)),
    "fashion-mnist": _times((702, 712, 704, 705, 707, 718), (426, 414, 428, 426, 461, 461)),
    "har": _times((1241, 1249, 1223, 1218, 1248, 1263), (871, 879, 876, 897, 876, 902)),
}
"""Table II."""

AROUND: dict[str, dict[str, float]] = {
    "mnist": {"retrain": 0.93, "pdlrecover": 0.91},
    "fashion-mnist": {"retrain": 0.93, "pdlrecover": 0.91},
    "har": {"retrain": 0.94, "pdlrecover": 0.92},
}
"""What the text says of every number of attackers, "around"."""

POISONED_BY_MOST = {"mnist": 0.24, "fashion-mnist": 0.24, "har": 0.13}
"""The attacked model's accuracy with 60 attackers, in the text."""

HISTORICAL_AFTER_LEAVERS = 0.75
"""In the text, of all datasets."""


def by_count(dataset: str, method: str, m: int, *, left: bool) -> float | None:
    """Return what the paper's text says of a method after m peers attacked or left, or None."""
    if left:
        return HISTORICAL_AFTER_LEAVERS if method == "historical" and dataset in AROUND else None
    if method == "poisoned":
        return POISONED_BY_MOST.get(dataset) if m == COUNTS[-1] else None
    return AROUND.get(dataset, {}).get(method)
