"""What the constants of `auto` were chosen by: variants of it, on validation data only.

A fifth of the training data is held out and plays the part of the test data, so nothing that is
reported elsewhere was looked at. The originals are Adam runs with a backdoor, with leavers, and
with two attacks from which a replay drifts away. A variant holds by the promises of `judgement`,
with as many exact rounds as the longest accelerated retraining here; with 0.7 of them after a
backdoor and after leavers.
"""

from pdlrecover.experiments.collection import Results, number
from pdlrecover.experiments.config import Config
from pdlrecover.experiments.document import Cell, Document, Table
from pdlrecover.experiments.judgement import above, gap, gaps, holds, points, word
from pdlrecover.experiments.reproductions.attacks import EASY, EASY_SHARE, of_attack, rivals
from pdlrecover.experiments.reproductions.reproduction import SHORT, Reproduction, command
from pdlrecover.experiments.scale import LEAVERS, Scale

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
RIVALS = (0.6, 0.7)
"""Of accelerated retraining: rounds as shares of the run's."""
COLUMNS = [
    "dataset",
    "attack",
    "method",
    "minus retrain (points)",
    "worst seed (points)",
    "backdoor above retrain (points)",
    "remembered",
    "exact rounds",
    "allowed",
    "holds",
    "replay begun",
]


def _cells(scale: Scale) -> list[Config]:
    return [
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


def _row(of: Results, method: str, attack: str, most: int) -> list[Cell]:
    begun = sum("directions" in r["methods"][method]["opened"] for r in of)
    allowed = EASY_SHARE * most if attack in EASY and method.startswith("auto") else most
    return [
        of[0]["config"]["dataset"],
        attack,
        method,
        points(gap(of, method)),
        points(min(gaps(of, method))),
        points(above(of, method), 1),
        number(of.remembered(method)),
        number(of.mean(method, "exact_rounds"), 1),
        round(allowed),
        word(holds(of, method, allowed, left=attack == LEAVERS)),
        f"{begun} of {len(of)}" if method.startswith("auto") else None,
    ]


def _document(scale: Scale, results: Results) -> Document:
    others = rivals(scale, RIVALS)
    rows = [
        _row(of_attack(results.where(dataset=dataset), attack), method, attack, max(others))
        for dataset in scale.datasets
        for attack in ATTACKS
        for method in (*VARIANTS, *others.values())
    ]
    missed = {row[2] for row in rows if row[COLUMNS.index("holds")] != "yes"}
    kept = [variant for variant in VARIANTS if variant not in missed]
    table = Table(
        title="Variants of auto after Adam, on validation data",
        columns=COLUMNS,
        rows=rows,
        command=command("tuning", scale),
    )
    return Document(
        name="tuning",
        title="How the constants of auto were chosen",
        summary=[
            *([] if scale.promised else [SHORT]),
            f"{len(kept)} of {len(VARIANTS)} variants of auto keep all promises in all of "
            f"{len(scale.datasets) * len(ATTACKS)} cells after Adam, on validation data, over "
            f"{len(scale.seeds)} seeds.",
            *([f"They are: {', '.join(kept)}."] if kept else []),
        ],
        tables=[table],
    )


REPRODUCTION = Reproduction(
    name="tuning", title="How the constants of auto were chosen", cells=_cells, document=_document
)
