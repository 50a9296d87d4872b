"""Table III and the curves: how good each method's model is, and how it gets there."""

from pdlrecover.experiments.analysis.document import Row
from pdlrecover.experiments.analysis.format import listed
from pdlrecover.experiments.analysis.promises import above, gap, points
from pdlrecover.experiments.analysis.results import Results, number
from pdlrecover.experiments.experiment.result import POISONED
from pdlrecover.experiments.reproductions import paper
from pdlrecover.experiments.reproductions.reproduction import (
    BLOCKS,
    Draft,
    Reproduction,
    measured,
    rates,
)
from pdlrecover.experiments.reproductions.scale import LEAVERS, Scale
from pdlrecover.recovery.methods import BASELINES, METHODS

ALL = (*BASELINES, *(name for name in METHODS if name not in BASELINES))
"""Every method, those that need more than sums last."""


def _table_3(draft: Draft, results: Results) -> None:
    scale = draft.scale
    by_dataset = {dataset: results.where(dataset=dataset) for dataset in scale.datasets}
    draft.summary = [_reached(scale, results)]
    if scale.promised:
        draft.summary += [line for name, of in by_dataset.items() for line in _fedrecover(name, of)]
    draft.table(
        f"Every method, {scale.typical} of {scale.peers} peers with a backdoor removed",
        [
            _row(name, method, of)
            for name, of in by_dataset.items()
            for method in (POISONED, *ALL)
            if of.entries(method)
        ],
        note="Backdoor success is what the trigger achieves on clean test samples. "
        "Exact rounds: gradients that the kept peers computed, as rounds of all of them; certified "
        f"removal's are over all of a peer's data, the others' over a minibatch. {BLOCKS}",
        paper="paper (%)",
        individual="opens single updates",
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
    """Say whether FedRecover comes as near to retraining as its authors report, and as cheaply."""
    lost, backdoor = gap(of, "fedrecover"), above(of, "fedrecover")
    spent = of.mean("fedrecover", "gradient_evaluations")
    whole = of.mean("retrain", "gradient_evaluations")
    if lost is None or backdoor is None or spent is None or whole is None:
        return []
    saved = 1 - spent.value / whole.value
    good = backdoor.value <= 0.02 and abs(lost.value) <= 0.01 and saved >= 0.85
    return [
        f"{dataset}: FedRecover {'does' if good else 'does not do'} what its authors report on "
        "MNIST, against retraining (backdoor at most 2 points above, accuracy within 1 point, 85% "
        "of the peers' work saved): "
        f"{points(backdoor)} points, {points(lost)} points, {100 * saved:.1f}%."
    ]


def _row(dataset: str, method: str, of: Results) -> Row:
    published = paper.ACCURACY.get(dataset, {}).get(method)
    return {
        "dataset": dataset,
        "method": method,
        "accuracy": of.accuracy(method),
        "paper": None if published is None else round(100 * published, 1),
        **measured(of, method, "backdoor", "above_retrain"),
        "exact_rounds": number(of.exact_rounds(method), 0),
        "individual": "yes" if any(one.sees_single_peers for one in of.entries(method)) else "no",
    }


def _curves(name: str, title: str, attack: str, methods: tuple[str, ...]) -> Reproduction:
    def write(draft: Draft, results: Results) -> None:
        scale, missing = draft.scale, dict[str, None]()
        for dataset in scale.datasets:
            of = results.where(dataset=dataset)
            for rate, label in rates(attack).items():
                title = f"{dataset}: {label} by round"
                names = [m for m in (POISONED, *methods) if of.entries(m)]
                lines = {m: draft.curve(of, m, rate, title) for m in names}
                missing |= dict.fromkeys(m for m, line in lines.items() if line is None)
                draft.figure(
                    title,
                    "round of the method",
                    label,
                    [line for line in lines.values() if line is not None],
                    note="Mean over seeds, with its standard deviation.",
                )
        draft.summary = [
            _reached(scale, results),
            "How each method's model gets better, round by round, without "
            f"{scale.typical} of {scale.peers} peers.",
        ]
        if missing:
            said = f"Numbers, but no curves are recorded of {listed(list(missing))}."
            draft.summary.append(said)

    return Reproduction(
        name=name,
        title=title,
        cells=lambda scale: scale.configs(attack=attack, methods=methods),
        write=write,
    )


TABLE_3 = Reproduction(
    name="table-3",
    title="Accuracy of the methods (the paper's Table III)",
    cells=lambda scale: scale.configs(methods=ALL),
    write=_table_3,
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
