"""Wrong suspects: what recovery is worth when attackers were missed and honest peers accused.

Of m attackers a share is missed: they stay, and attack the recovery too. Besides, as many honest
peers as a share of m are removed with the others.
"""

from pdlrecover.experiments.analysis.document import Row
from pdlrecover.experiments.analysis.results import Results, line
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.reproductions.attacks import FAST, rival
from pdlrecover.experiments.reproductions.reproduction import Draft, Reproduction, measured, rates
from pdlrecover.experiments.reproductions.scale import Scale
from pdlrecover.recovery.methods import OURS, REFERENCE

MISSED = (0.0, 0.1, 0.25, 0.5)
ACCUSED = (0.0, 0.1, 0.2, 0.3)
STRONG = 50.0
"""A backdoor with more success than this is still in the model."""
METHODS = (REFERENCE, OURS, *FAST, rival(60))


def _suspects(scale: Scale) -> list[tuple[float, float, int, int, int]]:
    """Return shares of missed and accused, and the numbers found, missed and accused."""
    pairs = [(missed, 0.0) for missed in MISSED] + [(0.0, accused) for accused in ACCUSED[1:]]
    by_numbers: dict[tuple[int, int, int], tuple[float, float]] = {}
    for missed, accused in [*pairs, (MISSED[-1], ACCUSED[-1])]:
        undetected, wrongly = round(scale.typical * missed), round(scale.typical * accused)
        numbers = (scale.typical - undetected, undetected, wrongly)
        by_numbers.setdefault(numbers, (missed, accused))
    return [(*shares, *numbers) for numbers, shares in by_numbers.items()]


def _cells(scale: Scale) -> list[Config]:
    return [
        scale.config(
            dataset,
            seed,
            found,
            optimizer="adam",
            undetected=undetected,
            accused=accused,
            methods=METHODS,
        )
        for dataset in scale.datasets
        for _, _, found, undetected, accused in _suspects(scale)
        for seed in scale.seeds
    ]


def _write(draft: Draft, results: Results) -> None:
    rows = []
    for dataset in draft.scale.datasets:
        found = []
        for missed, accused, malicious, undetected, wrongly in _suspects(draft.scale):
            counts = {"malicious": malicious, "undetected": undetected, "accused": wrongly}
            if of := results.where(dataset=dataset, **counts):
                found.append((missed, accused, of))
        rows += [_row(dataset, *cell, method) for cell in found for method in METHODS]
        missing = [(100 * missed, of) for missed, accused, of in found if not accused]
        blaming = [(100 * accused, of) for missed, accused, of in found if not missed]
        for who, some in (("attackers missed", missing), ("honest peers accused", blaming)):
            xs = [x for x, _ in some]
            for rate, what in rates("backdoor").items():
                means = {m: [of.mean(m, rate) for _, of in some] for m in METHODS}
                draft.figure(
                    f"{dataset}: {what} by {who}",
                    f"{who} (% of the attackers)",
                    what,
                    [line(method, xs, values) for method, values in means.items()],
                )
    draft.table(
        draft.title,
        rows,
        note="Retraining keeps the missed attackers too, and is what the others are measured by.",
        missed="missed (% of the attackers)",
        accused="accused (% of the attackers)",
        above_retrain="above retrain (points)",
    )
    draft.summary = _summary(rows)


def _row(dataset: str, missed: float, accused: float, of: Results, method: str) -> Row:
    return {
        "dataset": dataset,
        "missed": round(100 * missed),
        "accused": round(100 * accused),
        "method": method,
        **measured(of, method, "accuracy", "minus_retrain", "backdoor", "above_retrain"),
        **measured(of, method, "exact_rounds"),
    }


def _summary(rows: list[Row]) -> list[str]:
    """Say what missed attackers do to retraining itself, and how far from it the others end."""
    lines = [_missed(rows)]
    for method in METHODS[1:]:
        of = [row for row in rows if row["method"] == method]
        gaps, above = (
            [float(value) for row in of if (value := row[key]) is not None]
            for key in ("minus_retrain", "above_retrain")
        )
        if gaps and above:
            lines.append(
                f"{method}: at the worst {min(gaps):+.2f} points of accuracy and {max(above):+.1f} "
                "points of backdoor success from retraining with the same suspects."
            )
    return lines


def _missed(rows: list[Row]) -> str:
    """Say how much of the backdoor retraining keeps where the fewest attackers are missed."""
    least = min(float(row["missed"] or 0) for row in rows if row["missed"])
    kept = [
        float(str(row["backdoor"]).split()[0])
        for row in rows
        if (row["missed"], row["accused"], row["method"]) == (least, 0, METHODS[0])
    ]
    moral = ": what matters most is to find all of them" if min(kept) > STRONG else ""
    return (
        f"With {least:g}% of the attackers missed, retraining itself keeps the backdoor at "
        f"{min(kept):g}% to {max(kept):g}%{moral}."
    )


REPRODUCTION = Reproduction(
    name="suspects", title="Recovery with wrong suspects", cells=_cells, write=_write
)
