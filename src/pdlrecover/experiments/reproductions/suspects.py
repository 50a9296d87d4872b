"""Wrong suspects: what recovery is worth when attackers were missed and honest peers accused.

Of m attackers a share is missed: they stay, and attack the recovery too. Besides, as many honest
peers as a share of m are removed with the others.
"""

from pdlrecover.experiments.analysis.promises import above, gap, points
from pdlrecover.experiments.analysis.results import Results, line, number, percent
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.result import RateName
from pdlrecover.experiments.report.document import Document, Figure, Row, Table
from pdlrecover.experiments.reproductions.attacks import RIVAL
from pdlrecover.experiments.reproductions.reproduction import Reproduction, columns, command
from pdlrecover.experiments.reproductions.scale import Scale
from pdlrecover.recovery.methods import OURS, REFERENCE

MISSED = (0.0, 0.1, 0.25, 0.5)
ACCUSED = (0.0, 0.1, 0.2, 0.3)
RATES: dict[RateName, str] = {
    "accuracy": "accuracy (%)",
    "attack_success": "backdoor success (%)",
}
STRONG = 50.0
"""A backdoor with more success than this is still in the model."""
COLUMNS = columns(
    "dataset",
    "missed",
    "accused",
    "method",
    "accuracy",
    "minus_retrain",
    "backdoor",
    "above_retrain",
    "remembered",
    "exact_rounds",
    missed="missed (% of the attackers)",
    accused="accused (% of the attackers)",
    above_retrain="above retrain (points)",
)
METHODS = (REFERENCE, OURS, "auto", f"{RIVAL}:rounds=60")


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


def _document(scale: Scale, results: Results) -> Document:
    rows: list[Row] = []
    figures = []
    for dataset in scale.datasets:
        found = [
            (missed, accused, of)
            for missed, accused, malicious, undetected, wrongly in _suspects(scale)
            if (
                of := results.where(
                    dataset=dataset, malicious=malicious, undetected=undetected, accused=wrongly
                )
            )
        ]
        rows += [_row(dataset, *cell, method) for cell in found for method in METHODS]
        missing = [(100 * missed, of) for missed, accused, of in found if not accused]
        blaming = [(100 * accused, of) for missed, accused, of in found if not missed]
        for who, some in (("attackers missed", missing), ("honest peers accused", blaming)):
            xs = [x for x, _ in some]
            for rate, what in RATES.items():
                figures.append(
                    Figure(
                        title=f"{dataset}: {what} by {who}",
                        x=f"{who} (% of the attackers)",
                        y=what,
                        series=[
                            line(method, xs, [of.mean(method, rate) for _, of in some])
                            for method in METHODS
                        ],
                        command=command("suspects", scale),
                    )
                )
    table = Table.from_rows(
        title="Recovery with wrong suspects",
        columns=COLUMNS,
        rows=rows,
        command=command("suspects", scale),
        note="Retraining keeps the missed attackers too, and is what the others are measured by.",
    )
    return Document(
        name="suspects",
        title="Recovery with wrong suspects",
        summary=_summary(rows),
        figures=figures,
        tables=[table],
    )


def _row(dataset: str, missed: float, accused: float, of: Results, method: str) -> Row:
    return {
        "dataset": dataset,
        "missed": round(100 * missed),
        "accused": round(100 * accused),
        "method": method,
        "accuracy": of.accuracy(method),
        "minus_retrain": points(gap(of, method)),
        "backdoor": percent(of.mean(method, "attack_success")),
        "above_retrain": points(above(of, method), 1),
        "remembered": number(of.remembered(method)),
        "exact_rounds": number(of.mean(method, "exact_rounds"), 1),
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
    name="suspects", title="Recovery with wrong suspects", cells=_cells, document=_document
)
