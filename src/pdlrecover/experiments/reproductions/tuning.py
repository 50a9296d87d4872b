"""How the constants of `auto` were chosen: on validation data, over three seeds.

A fifth of the training data is held out and plays the part of the test data, so nothing that is
reported elsewhere was looked at. The originals are Adam runs with a backdoor, with leavers, and
with two attacks from which a replay drifts away. A variant holds by the promises of `promises`,
with as many exact rounds as the longest accelerated retraining here; with 0.7 of them after a
backdoor and after leavers. For the schedule after tiny minibatches there are SGD runs with a
backdoor, and a tenth of the rounds may be exact.
"""

from pdlrecover.experiments.analysis.promises import holds, word
from pdlrecover.experiments.analysis.results import Results
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.report.document import Row
from pdlrecover.experiments.reproductions.attacks import (
    EASY,
    EASY_SHARE,
    RIVAL,
    of_attack,
    rivals,
)
from pdlrecover.experiments.reproductions.reproduction import SHORT, Draft, Reproduction, measured
from pdlrecover.experiments.reproductions.scale import LEAVERS, TINY_BATCH, Scale

ATTACKS = ("backdoor", LEAVERS, "dba", "lie")
VARIANTS = (
    "auto:preparation=8+period=9+polish=22+damping=0.5",
    "auto:preparation=10+period=8+polish=24+damping=0.5",
    "auto:preparation=16+period=10+polish=24+damping=0.5",
    "auto:preparation=8+period=12+polish=30+rescue=0.5+damping=0.5",
    "auto:preparation=10+period=10+polish=28+rescue=0.5+damping=0.5",
    "auto:preparation=10+period=8+polish=24+polish_rate=0.03+rescue=0.5+damping=0.5",
    "auto:preparation=8+period=9+polish=28+rescue=0.55+damping=0.5",
    "auto:preparation=10+period=9+polish=26+rescue=0.5+damping=0.5",
    "auto:preparation=8+period=9+polish=27+damping=0.4",
    "auto:preparation=8+period=9+polish=27+damping=0.35",
    "auto:preparation=8+period=9+polish=27+damping=0.3",
    "auto:preparation=8+period=9+polish=27+damping=0.25",
)
TINY_VARIANTS = tuple(
    f"pdlrecover:preparation={prepare}+period={period}+final={final}"
    for prepare, period, final in ((10, 100, 10), (12, 60, 12), (12, 45, 12), (12, 30, 12))
)
"""Schedules of the replay after tiny minibatches, by the exact rounds they plan."""
TINY_RIVALS = (0.035, 0.05, 0.065)
RIVALS = (0.6, 0.7)
"""Of accelerated retraining: rounds as shares of the run's."""


def _cells(scale: Scale) -> list[Config]:
    methods = ("retrain", *_tiny_methods(scale))
    tiny = scale.configs(batch_size=TINY_BATCH, validation=True, methods=methods)
    return tiny + [
        scale.config(
            dataset,
            seed,
            attack=attack,
            optimizer="adam",
            validation=True,
            methods=("retrain", *VARIANTS, *rivals(scale, RIVALS).values()),
        )
        for dataset in scale.datasets
        for attack in ATTACKS
        for seed in scale.seeds
    ]


def _tiny_methods(scale: Scale) -> tuple[str, ...]:
    shares = (f"{RIVAL}:rounds={round(share * scale.rounds)}" for share in TINY_RIVALS)
    return (*TINY_VARIANTS, *shares)


def _row(of: Results, method: str, attack: str, most: float) -> Row:
    allowed = EASY_SHARE * most if attack in EASY and method.startswith("auto") else most
    return {
        "dataset": of[0].config.dataset,
        "attack": attack,
        "method": method,
        **measured(of, method, "minus_retrain", "worst_seed", "above_retrain", "remembered"),
        **measured(of, method, "exact_rounds"),
        "allowed": round(allowed),
        "holds": word(holds(of, method, allowed, left=attack == LEAVERS)),
    }


def _begun(of: Results, method: str) -> Row:
    """Say in how many runs a variant of `auto` replayed."""
    begun = sum("directions" in result.methods[method].opened for result in of)
    return {"replay_begun": f"{begun} of {len(of)}" if method.startswith("auto") else None}


def _write(draft: Draft, results: Results) -> None:
    scale, others = draft.scale, rivals(draft.scale, RIVALS)
    after_adam = results.where(optimizer="adam")
    rows = [
        _row(of, method, attack, max(others)) | _begun(of, method)
        for dataset in scale.datasets
        for attack in ATTACKS
        for of in [of_attack(after_adam.where(dataset=dataset), attack)]
        for method in (*VARIANTS, *others.values())
    ]
    tiny_rows = [
        _row(of, method, "backdoor", scale.exact_share * scale.rounds)
        for dataset in scale.datasets
        for of in [results.where(optimizer="sgd", dataset=dataset)]
        for method in _tiny_methods(scale)
    ]
    draft.table("Variants of auto after Adam, on validation data", rows)
    title = "Schedules of PDLRecover after minibatches of two, on validation data"
    draft.table(title, tiny_rows)
    kept = _kept(rows, VARIANTS)
    draft.summary = [
        *([] if scale.promised else [SHORT]),
        f"{len(kept)} of {len(VARIANTS)} variants of auto keep all promises in all of "
        f"{len(scale.datasets) * len(ATTACKS)} cells after Adam, on validation data, over "
        f"{len(scale.seeds)} seeds.",
        *([f"They are: {', '.join(kept)}."] if kept else []),
        "After minibatches of two these schedules of PDLRecover keep the promises on all "
        f"datasets: {', '.join(_kept(tiny_rows, TINY_VARIANTS)) or 'none'}.",
    ]


def _kept(rows: list[Row], variants: tuple[str, ...]) -> list[str]:
    """Return the variants that hold in all cells."""
    missed = {row["method"] for row in rows if row["holds"] != "yes"}
    return [variant for variant in variants if variant not in missed]


REPRODUCTION = Reproduction(
    name="tuning", title="How the constants of auto were chosen", cells=_cells, write=_write
)
