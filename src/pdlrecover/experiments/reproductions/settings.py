"""Other settings: partitions, models, and PDLRecover without blocks of rounds.

Each changes one thing of the paper's setting and keeps the rest. A split of HAR by subject tests
on people on whom nobody has trained, which is the honest one.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from pdlrecover.experiments.analysis.document import Row
from pdlrecover.experiments.analysis.promises import TERMS, gap, holds, points, word
from pdlrecover.experiments.analysis.results import Results, number
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.result import POISONED, MethodResult
from pdlrecover.experiments.reproductions.attacks import FAST, RIVAL_AFTER_SGD, rival, rivals
from pdlrecover.experiments.reproductions.reproduction import Draft, Reproduction, measured
from pdlrecover.experiments.reproductions.scale import Scale
from pdlrecover.recovery.methods import OURS, REFERENCE

UNBLOCKED = "pdlrecover:block=1"
"""PDLRecover as in the paper: it opens something in every round."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is changed, and on which datasets."""

    name: str
    datasets: tuple[str, ...]
    values: dict[str, Any] = field(default_factory=dict)


USUAL = ("mnist", "digits")
SETTINGS = (
    Setting(name="the paper's", datasets=("mnist", "fashion-mnist", "har", "digits")),
    Setting(name="split by subject", datasets=("har",), values={"split": "subject"}),
    Setting(
        name="Dirichlet partition, α = 0.5",
        datasets=USUAL,
        values={"partition": "dirichlet", "degree": 0.5},
    ),
    Setting(
        name="logistic model", datasets=USUAL, values={"model": "logistic", "learning_rate": 0.05}
    ),
    Setting(
        name="convolutional network, after Adam",
        datasets=USUAL,
        values={"model": "cnn", "optimizer": "adam"},
    ),
)


def _config(scale: Scale, setting: Setting, dataset: str, seed: int) -> Config:
    """Return one run; after Adam nothing is blocked, and the rival needs more rounds."""
    methods: tuple[str, ...] = (REFERENCE, OURS, UNBLOCKED, *FAST, rival(RIVAL_AFTER_SGD))
    if setting.values.get("optimizer") == "adam":
        methods = (REFERENCE, OURS, *FAST, *rivals(scale, (0.5, 0.7)).values())
    return scale.config(dataset, seed, methods=methods, **setting.values)


def _pairs(scale: Scale) -> list[tuple[Setting, str]]:
    return [(s, dataset) for s in SETTINGS for dataset in scale.datasets if dataset in s.datasets]


def _cells(scale: Scale) -> list[Config]:
    return [_config(scale, *pair, seed) for pair in _pairs(scale) for seed in scale.seeds]


def _write(draft: Draft, results: Results) -> None:
    scale = draft.scale
    rows = []
    for setting, dataset in _pairs(scale):
        config = _config(scale, setting, dataset, scale.seeds[0])
        same = {key: v for key, v in vars(config).items() if key not in ("seed", "methods")}
        if of := results.where(**same):
            rows += [_row(setting, scale, of, m) for m in (POISONED, *config.methods)]
            draft.summary.append(f"{setting.name}, {dataset}: {_reached(of, config.methods)}.")
    draft.table(
        "One thing changed",
        rows,
        note=f"holds: {TERMS}. {UNBLOCKED} opens a vector in every round, as in the paper; "
        "elsewhere up to 5 estimated rounds are opened as one after SGD.",
    )


def _reached(of: Results, methods: tuple[str, ...]) -> str:
    """Say how far each method is from retraining."""
    gaps = {method: points(gap(of, method)) for method in methods if method != "retrain"}
    parts = [f"{method} {found:+.2f}" for method, found in gaps.items() if found is not None]
    return f"{', '.join(parts)} points from retraining"


def _row(setting: Setting, scale: Scale, of: Results, method: str) -> Row:
    verdict = holds(of, method, math.inf, left=False)
    judged = scale.promised and method not in (POISONED, REFERENCE)
    shown = ("accuracy", "minus_retrain", "backdoor", "above_retrain")
    return {
        "setting": setting.name,
        "dataset": of[0].config.dataset,
        "method": method,
        **measured(of, method, *shown),
        "exact_rounds": number(of.exact_rounds(method), 1),
        "vectors_opened": number(of.mean_of(method, _vectors), 0),
        "seeds": len(of),
        "holds": word(verdict) if judged else None,
    }


def _vectors(one: MethodResult) -> int | None:
    """Return how many vectors a method has opened: all openings but those of dot products."""
    if not one.opened:
        return None
    return sum(o.openings for kind, o in one.opened.items() if kind != "dot products")


REPRODUCTION = Reproduction(name="settings", title="Other settings", cells=_cells, write=_write)
