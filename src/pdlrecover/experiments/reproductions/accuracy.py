"""Table III and the curves: how good each method's model is, and how it gets there."""

from collections.abc import Callable

from pdlrecover.experiments.analysis.promises import above, gap, points
from pdlrecover.experiments.analysis.results import Results, number, percent
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.result import POISONED, RateName
from pdlrecover.experiments.report.document import Document, Figure, Row, Table
from pdlrecover.experiments.reproductions import paper
from pdlrecover.experiments.reproductions.reproduction import (
    BLOCKS,
    Reproduction,
    columns,
    command,
)
from pdlrecover.experiments.reproductions.scale import LEAVERS, Scale
from pdlrecover.recovery.methods import BASELINES, METHODS

ALL = (*BASELINES, *(name for name in METHODS if name not in BASELINES))
"""Every method, those that need more than sums last."""
COLUMNS = columns(
    "dataset",
    "method",
    "accuracy",
    "paper",
    "backdoor",
    "above_retrain",
    "remembered",
    "exact_rounds",
    "individual",
    paper="paper (%)",
    individual="opens single updates",
)


def _cells(attack: str, methods: tuple[str, ...]) -> Callable[[Scale], list[Config]]:
    def cells(scale: Scale) -> list[Config]:
        return [
            scale.config(dataset, seed, attack=attack, methods=methods)
            for dataset in scale.datasets
            for seed in scale.seeds
        ]

    return cells


def _table_3(scale: Scale, results: Results) -> Document:
    rows: list[Row] = []
    summary = [_reached(scale, results)]
    for dataset in scale.datasets:
        of = results.where(dataset=dataset)
        for method in (POISONED, *ALL):
            rows.append(_row(dataset, method, of))
        if scale.promised:
            summary += _fedrecover(dataset, of)
    table = Table.from_rows(
        title=f"Every method, {scale.typical} of {scale.peers} peers with a backdoor removed",
        columns=COLUMNS,
        rows=rows,
        command=command("table-3", scale),
        note="Backdoor success is what the trigger achieves on clean test samples. Remembered: the "
        "original model is 1, retraining is 0; – where the original remembers too little to tell. "
        "Exact rounds: gradients that the kept peers computed, as rounds of all of them; certified "
        f"removal's are over all of a peer's data, the others' over a minibatch. {BLOCKS}",
    )
    return Document(
        name="table-3",
        title="Accuracy of the methods (the paper's Table III)",
        summary=summary,
        tables=[table],
    )


def _reached(scale: Scale, results: Results) -> str:
    """Say where PDLRecover ends, and where retraining does."""
    parts = []
    for dataset in scale.datasets:
        of = results.where(dataset=dataset)
        ours, theirs = of.mean("pdlrecover", "accuracy"), of.mean("retrain", "accuracy")
        if ours and theirs:
            parts.append(f"{dataset} {ours.percent()}% ({theirs.percent()}%)")
    return (
        f"PDLRecover reaches, and in brackets retraining: {', '.join(parts)}; mean over "
        f"{len(scale.seeds)} seeds."
    )


def _fedrecover(dataset: str, of: Results) -> list[str]:
    """Say whether FedRecover does what its authors report of it."""
    lost, success = gap(of, "fedrecover"), of.mean("fedrecover", "attack_success")
    spent = of.mean("fedrecover", "gradient_evaluations")
    whole = of.mean("retrain", "gradient_evaluations")
    if lost is None or success is None or spent is None or whole is None:
        return []
    saved = 1 - spent.value / whole.value
    good = success.value <= 0.02 and abs(lost.value) <= 0.01 and saved >= 0.85
    return [
        f"{dataset}: FedRecover {'does' if good else 'does not do'} what its authors report on "
        "MNIST (backdoor at most 2%, within 1 point of retraining, 85% of the peers' work saved): "
        f"{success.percent()}%, {points(lost)} points, {100 * saved:.1f}%."
    ]


def _row(dataset: str, method: str, of: Results) -> Row:
    published = paper.ACCURACY.get(dataset, {}).get(method)
    spent = of.mean(method, "exact_rounds") if method == POISONED else of.exact_rounds(method)
    return {
        "dataset": dataset,
        "method": method,
        "accuracy": of.accuracy(method),
        "paper": None if published is None else round(100 * published, 1),
        "backdoor": percent(of.mean(method, "attack_success")),
        "above_retrain": points(above(of, method), 1),
        "remembered": number(of.remembered(method)),
        "exact_rounds": number(spent, 0),
        "individual": "yes" if of.individual_openings(method) else "no",
    }


def _curves(name: str, title: str, attack: str, methods: tuple[str, ...]) -> Reproduction:
    def document(scale: Scale, results: Results) -> Document:
        figures = []
        for dataset in scale.datasets:
            of = results.where(dataset=dataset)
            panels: list[tuple[RateName, str]] = [("accuracy", "accuracy (%)")]
            if attack != LEAVERS:
                panels.append(("attack_success", "backdoor success (%)"))
            for rate, label in panels:
                series = [s for m in (POISONED, *methods) if (s := of.curve(m, rate)) is not None]
                figures.append(
                    Figure(
                        title=f"{dataset}: {label} by round",
                        x="round of the method",
                        y=label,
                        series=series,
                        command=command(name, scale),
                        note="Mean over seeds, with its standard deviation.",
                    )
                )
        what = f"{scale.typical} of {scale.peers} peers"
        summary = [
            _reached(scale, results),
            f"How each method's model gets better, round by round, without {what}.",
        ]
        return Document(name=name, title=title, summary=summary, figures=figures)

    return Reproduction(name=name, title=title, cells=_cells(attack, methods), document=document)


TABLE_3 = Reproduction(
    name="table-3",
    title="Accuracy of the methods (the paper's Table III)",
    cells=_cells("backdoor", ALL),
    document=_table_3,
)
ATTACK_CURVES = _curves(
    "figure-attack-curves",
    "Accuracy by round after an attack (the paper's figure)",
    "backdoor",
    ALL,
)
LEAVER_CURVES = _curves(
    "figure-leaver-curves",
    "Accuracy by round after peers left (the paper's figure)",
    LEAVERS,
    BASELINES,
)
