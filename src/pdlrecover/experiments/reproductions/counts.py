"""Accuracy by the number of removed peers, and by the number of exact rounds."""

from pdlrecover.experiments.analysis.promises import above, gap, holds, points, word
from pdlrecover.experiments.analysis.results import Results, line, number
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.result import POISONED, RateName
from pdlrecover.experiments.report.document import Column, Document, Figure, Row, Table
from pdlrecover.experiments.reproductions import paper
from pdlrecover.experiments.reproductions.reproduction import (
    BLOCKS,
    Reproduction,
    columns,
    command,
)
from pdlrecover.experiments.reproductions.scale import LEAVERS, Scale
from pdlrecover.recovery.methods import OURS, REFERENCE

METHODS = (REFERENCE, OURS, "historical")
COUNTED = [
    *columns("dataset", "m"),
    *(Column(key=method, heading=f"{method} (%)") for method in (POISONED, *METHODS)),
    *(
        Column(key=f"paper_{method}", heading=f"paper: {method} (%)")
        for method in (POISONED, *METHODS)
    ),
    *columns("minus_retrain", "above_retrain", "remembered", "exact_rounds", "seeds", "holds"),
]
NOTE = (
    "The paper's numbers are those of its text, where it says around. Its attacked model loses "
    "most of its accuracy; the backdoor here does not lower accuracy, it adds a trigger, so "
    f"that is not comparable. {BLOCKS}"
)
STEPS = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2)
"""Numbers of preparation and of final rounds, as shares of the plan's own."""


def _by_count(name: str, title: str, attack: str) -> Reproduction:
    key = "leavers" if attack == LEAVERS else "malicious"

    def configs(scale: Scale) -> list[Config]:
        return [
            scale.config(dataset, seed, m, attack=attack, methods=METHODS)
            for dataset in scale.datasets
            for m in scale.counts
            for seed in (scale.seeds if m == scale.typical else scale.seeds[:1])
        ]

    def document(scale: Scale, results: Results) -> Document:
        figures = []
        xs = [float(m) for m in scale.counts]
        for dataset in scale.datasets:
            of = [results.where(dataset=dataset, **{key: m}) for m in scale.counts]
            panels: list[tuple[RateName, str]] = [("accuracy", "accuracy (%)")]
            if attack != LEAVERS:
                panels.append(("attack_success", "backdoor success (%)"))
            for rate, label in panels:
                series = [line(m, xs, [r.mean(m, rate) for r in of]) for m in (POISONED, *METHODS)]
                figures.append(
                    Figure(
                        title=f"{dataset}: {label} by the number removed",
                        x="peers removed",
                        y=label,
                        series=series,
                        command=command(name, scale),
                    )
                )
        rows = [
            _count_row(scale, dataset, m, some)
            for dataset in scale.datasets
            for m in scale.counts
            if (some := results.where(dataset=dataset, **{key: m}))
        ]
        kept = [row["holds"] == "yes" for row in rows]
        gaps = [float(found) for row in rows if (found := row["minus_retrain"]) is not None]
        summary = [
            f"PDLRecover minus retraining: {min(gaps):+.2f} to {max(gaps):+.2f} points.",
            f"It keeps its promises in {sum(kept)} of {len(kept)} settings: within 0.5 points, the "
            f"backdoor within 2, at most {scale.exact_share:g} of the rounds exact.",
        ]
        table = Table.from_rows(
            title=title,
            columns=COUNTED,
            rows=rows,
            command=command(name, scale),
            note=NOTE,
        )
        return Document(name=name, title=title, summary=summary, figures=figures, tables=[table])

    return Reproduction(name=name, title=title, cells=configs, document=document)


def _count_row(scale: Scale, dataset: str, m: int, of: Results) -> Row:
    allowed = scale.exact_share * scale.rounds
    left = bool(of[0].config.leavers)
    row: Row = {
        "dataset": dataset,
        "m": m,
        "minus_retrain": points(gap(of, "pdlrecover")),
        "above_retrain": points(above(of, "pdlrecover"), 1),
        "remembered": number(of.remembered("pdlrecover")),
        "exact_rounds": number(of.mean("pdlrecover", "exact_rounds"), 1),
        "seeds": len(of),
        "holds": word(holds(of, "pdlrecover", allowed, left=left)),
    }
    for method in (POISONED, *METHODS):
        published = paper.by_count(dataset, method, m, left=left)
        row[method] = of.accuracy(method)
        row[f"paper_{method}"] = None if published is None else round(100 * published)
    return row


def _variants(scale: Scale) -> dict[str, list[tuple[int, str]]]:
    """Return variants of PDLRecover by what they vary: how many rounds, and the method's name."""
    base = scale.config(scale.datasets[0], 0).schedule
    counts = {
        "preparation": sorted({max(2, round(base.preparation * s)) for s in STEPS}),
        "final": sorted({round(base.final * s) for s in (0.0, *STEPS)}),
    }
    return {key: [(n, f"pdlrecover:{key}={n}") for n in numbers] for key, numbers in counts.items()}


def _rounds_cells(scale: Scale) -> list[Config]:
    names = [name for variants in _variants(scale).values() for _, name in variants]
    return [
        scale.config(dataset, seed, methods=("retrain", *names))
        for dataset in scale.datasets
        for seed in scale.seeds
    ]


def _rounds_document(scale: Scale, results: Results) -> Document:
    figures, ranges = [], []
    for dataset in scale.datasets:
        of = results.where(dataset=dataset)
        for key, variants in _variants(scale).items():
            xs = [float(n) for n, _ in variants]
            ours = line("pdlrecover", xs, [of.mean(name, "accuracy") for _, name in variants])
            found = [y for y in ours.y if y is not None]
            ranges.append(
                f"{dataset} {min(found):.1f} to {max(found):.1f}% with {min(xs):g} to {max(xs):g} "
                f"{key} rounds"
            )
            whole = [of.mean("retrain", "accuracy")] * len(xs)
            figures.append(
                Figure(
                    title=f"{dataset}: accuracy (%) by {key} rounds",
                    x=f"{key} rounds",
                    y="accuracy (%)",
                    series=[ours, line("retrain", xs, whole)],
                    command=command("figure-rounds", scale),
                )
            )
    return Document(
        name="figure-rounds",
        title="Accuracy by preparation and final rounds (the paper's figure)",
        summary=[
            f"How many exact rounds PDLRecover needs at the start and at the end: it reaches "
            f"{'; '.join(ranges)}.",
        ],
        figures=figures,
    )


MALICIOUS_COUNT = _by_count(
    "figure-malicious-count", "Accuracy by the number of attackers (the paper's figure)", "backdoor"
)
LEAVER_COUNT = _by_count(
    "figure-leaver-count", "Accuracy by the number of leavers (the paper's figure)", LEAVERS
)
ROUNDS = Reproduction(
    name="figure-rounds",
    title="Accuracy by preparation and final rounds (the paper's figure)",
    cells=_rounds_cells,
    document=_rounds_document,
)
