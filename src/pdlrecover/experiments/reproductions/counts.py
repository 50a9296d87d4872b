"""Accuracy by the number of removed peers, and by the number of exact rounds."""

from pdlrecover.experiments.analysis.promises import above, gap, holds, points, word
from pdlrecover.experiments.analysis.results import Results, line, number
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.run import POISONED
from pdlrecover.experiments.report.document import Cell, Document, Figure, Table
from pdlrecover.experiments.reproductions import paper
from pdlrecover.experiments.reproductions.reproduction import BLOCKS, Reproduction, command
from pdlrecover.experiments.reproductions.scale import LEAVERS, Scale
from pdlrecover.recovery.methods import OURS, REFERENCE

METHODS = (REFERENCE, OURS, "historical")
COUNTED = [
    "dataset",
    "m",
    *(f"{method} (%)" for method in (POISONED, *METHODS)),
    *(f"paper: {method} (%)" for method in (POISONED, *METHODS)),
    "minus retrain (points)",
    "backdoor above retrain (points)",
    "remembered",
    "exact rounds",
    "seeds",
    "holds",
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

    def cells(scale: Scale) -> list[Config]:
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
            panels = [("accuracy", "accuracy (%)")]
            if attack != LEAVERS:
                panels.append(("attack_success", "backdoor success (%)"))
            for path, label in panels:
                series = [line(m, xs, [r.mean(m, path) for r in of]) for m in (POISONED, *METHODS)]
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
        kept = [row[-1] == "yes" for row in rows]
        place = COUNTED.index("minus retrain (points)")
        gaps = [float(found) for row in rows if (found := row[place]) is not None]
        summary = [
            f"PDLRecover minus retraining: {min(gaps):+.2f} to {max(gaps):+.2f} points.",
            f"It keeps its promises in {sum(kept)} of {len(kept)} settings: within 0.5 points, the "
            f"backdoor within 2, at most {scale.exact_share:g} of the rounds exact.",
        ]
        table = Table(
            title=title, columns=COUNTED, rows=rows, command=command(name, scale), note=NOTE
        )
        return Document(name=name, title=title, summary=summary, figures=figures, tables=[table])

    return Reproduction(name=name, title=title, cells=cells, document=document)


def _count_row(scale: Scale, dataset: str, m: int, of: Results) -> list[Cell]:
    allowed = scale.exact_share * scale.rounds
    left = bool(of[0]["config"]["leavers"])
    published = [paper.by_count(dataset, each, m, left=left) for each in (POISONED, *METHODS)]
    return [
        dataset,
        m,
        *(of.accuracy(method) for method in (POISONED, *METHODS)),
        *(None if each is None else round(100 * each) for each in published),
        points(gap(of, "pdlrecover")),
        points(above(of, "pdlrecover"), 1),
        number(of.remembered("pdlrecover")),
        number(of.mean("pdlrecover", "exact_rounds"), 1),
        len(of),
        word(holds(of, "pdlrecover", allowed, left=left)),
    ]


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
