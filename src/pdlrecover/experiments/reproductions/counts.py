"""Accuracy by the number of removed peers, and by the number of exact rounds."""

from pdlrecover.experiments.analysis.document import Row
from pdlrecover.experiments.analysis.promises import TERMS, holds, word
from pdlrecover.experiments.analysis.results import Results, line
from pdlrecover.experiments.experiment.config import Config
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
from pdlrecover.recovery.methods import OURS, REFERENCE

METHODS = (REFERENCE, OURS, "historical")
SHOWN = (POISONED, *METHODS)
NOTE = (
    "The paper's numbers are those of its text, where it says around. Its attacked model loses "
    "most of its accuracy; the backdoor here does not lower accuracy, it adds a trigger, so "
    f"that is not comparable. {BLOCKS}"
)
STEPS = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2)
"""Numbers of preparation and of final rounds, as shares of the plan's own."""


def _by_count(name: str, title: str, attack: str) -> Reproduction:
    def write(draft: Draft, results: Results) -> None:
        scale = draft.scale
        key = "leavers" if attack == LEAVERS else "malicious"
        rows = []
        for dataset in scale.datasets:
            of = {m: results.where(dataset=dataset, **{key: m}) for m in scale.counts}
            rows += [_count_row(scale, dataset, m, some) for m, some in of.items() if some]
            for rate, label in rates(attack).items():
                xs, by = [float(m) for m in of], f"{dataset}: {label} by the number removed"
                means = {name: [r.mean(name, rate) for r in of.values()] for name in SHOWN}
                series = [line(name, xs, found) for name, found in means.items()]
                draft.figure(by, "peers removed", label, series)
        kept = [row["holds"] == "yes" for row in rows]
        gaps = [float(found) for row in rows if (found := row["minus_retrain"]) is not None]
        draft.summary = [
            f"PDLRecover minus retraining: {min(gaps):+.2f} to {max(gaps):+.2f} points.",
            f"It keeps its promises in {sum(kept)} of {len(kept)} settings: {TERMS}, at most "
            f"{scale.exact_share:g} of the rounds exact.",
        ]
        accuracies = {method: f"{method} (%)" for method in SHOWN}
        published = {f"paper_{method}": f"paper: {method} (%)" for method in SHOWN}
        draft.table(draft.title, rows, note=NOTE, **accuracies, **published)

    return Reproduction(
        name=name,
        title=title,
        cells=lambda scale: scale.configs_by_count(attack, METHODS),
        write=write,
    )


def _count_row(scale: Scale, dataset: str, m: int, of: Results) -> Row:
    left = bool(of[0].config.leavers)
    published = {method: paper.by_count(dataset, method, m, left=left) for method in SHOWN}
    return {
        "dataset": dataset,
        "m": m,
        **{method: of.accuracy(method) for method in SHOWN},
        **{f"paper_{k}": None if v is None else round(100 * v) for k, v in published.items()},
        **measured(of, OURS, "minus_retrain", "above_retrain", "remembered", "exact_rounds"),
        "seeds": len(of),
        "holds": word(holds(of, OURS, scale.exact_share * scale.rounds, left=left)),
    }


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
    return scale.configs(methods=("retrain", *names))


def _write_rounds(draft: Draft, results: Results) -> None:
    ranges = []
    for dataset in draft.scale.datasets:
        of = results.where(dataset=dataset)
        for key, variants in _variants(draft.scale).items():
            xs = [float(n) for n, _ in variants]
            ours = line("pdlrecover", xs, [of.mean(name, "accuracy") for _, name in variants])
            whole = line("retrain", xs, [of.mean("retrain", "accuracy")] * len(xs))
            found = [y for y in ours.y if y is not None]
            ranges.append(
                f"{dataset} {min(found):.1f} to {max(found):.1f}% with {min(xs):g} to {max(xs):g} "
                f"{key} rounds"
            )
            title = f"{dataset}: accuracy (%) by {key} rounds"
            draft.figure(title, f"{key} rounds", "accuracy (%)", [ours, whole])
    draft.summary = [
        f"How many exact rounds PDLRecover needs at the start and at the end: it reaches "
        f"{'; '.join(ranges)}."
    ]


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
    write=_write_rounds,
)
