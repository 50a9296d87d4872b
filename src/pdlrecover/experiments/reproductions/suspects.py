"""Wrong suspects: what recovery is worth when attackers were missed and honest peers accused.

Of m attackers a share is missed: they stay, and attack the recovery too. Besides, as many honest
peers as a share of m are removed with the others.
"""

from pdlrecover.experiments.collection import Results, percent
from pdlrecover.experiments.config import Config
from pdlrecover.experiments.document import Cell, Document, Figure, Series, Table
from pdlrecover.experiments.reproductions.reproduction import Reproduction, command
from pdlrecover.experiments.scale import Scale

MISSED = (0.0, 0.1, 0.25, 0.5)
ACCUSED = (0.0, 0.1, 0.2, 0.3)
METHODS = ("retrain", "pdlrecover", "auto", "accelerated-retrain:rounds=60")


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
    rows: list[list[Cell]] = []
    figures = []
    for dataset in scale.datasets:
        lines: dict[str, list[tuple[float, float, float | None]]] = {m: [] for m in METHODS}
        for missed, accused, found, undetected, wrongly in _suspects(scale):
            of = results.where(
                dataset=dataset, malicious=found, undetected=undetected, accused=wrongly
            )
            for method in METHODS:
                accuracy, success = of.mean(method, "accuracy"), of.mean(method, "attack_success")
                rows.append(
                    [
                        dataset,
                        f"{100 * missed:.0f}",
                        f"{100 * accused:.0f}",
                        method,
                        percent(accuracy),
                        percent(success),
                    ]
                )
                if accuracy and not accused:
                    backdoor = None if success is None else 100 * success.value
                    lines[method].append((100 * missed, 100 * accuracy.value, backdoor))
        for place, label in ((1, "accuracy (%)"), (2, "backdoor success (%)")):
            series = [
                Series(name=m, x=[p[0] for p in points], y=[p[place] for p in points])
                for m, points in lines.items()
            ]
            figures.append(
                Figure(
                    title=f"{dataset}: {label} by the share of attackers missed",
                    x="attackers missed (%)",
                    y=label,
                    series=series,
                    command=command("suspects", scale),
                )
            )
    table = Table(
        title="Recovery with wrong suspects",
        columns=[
            "dataset",
            "missed (%)",
            "accused (% of the attackers)",
            "method",
            "accuracy (%)",
            "backdoor (%)",
        ],
        rows=rows,
        command=command("suspects", scale),
        note="Retraining keeps the missed attackers too: no recovery of the same suspects can do "
        "better.",
    )
    return Document(
        name="suspects",
        title="Recovery with wrong suspects",
        summary=[
            "What is left of the backdoor when some attackers are missed, and what honest "
            "peers removed by mistake cost."
        ],
        figures=figures,
        tables=[table],
    )


REPRODUCTION = Reproduction(
    name="suspects", title="Recovery with wrong suspects", cells=_cells, document=_document
)
