"""How the constants of accelerated retraining and of `auto` were chosen: on validation data.

A fifth of the training data is held out and plays the part of the test data, so nothing that is
reported elsewhere was looked at. The rival, accelerated retraining by Adam, is tuned as carefully
as ours: its rounds in steps of five, with three rates. `auto` is decided by the other originals:
one that was itself trained by Muon, and others with small minibatches. What accelerated retraining
computes does not depend on the attack that is removed, so there is a backdoor everywhere.

Rounds, momentum and local steps were chosen with singular values lifted as far as can be; the gain
that limits this, with a rate of its own, after that.
"""

from itertools import product
from typing import Any

from pdlrecover.experiments.analysis.document import Row
from pdlrecover.experiments.analysis.promises import holds, word
from pdlrecover.experiments.analysis.results import Results, number
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.reproductions.reproduction import SHORT, Draft, Reproduction, measured
from pdlrecover.experiments.reproductions.scale import TINY_BATCH, Scale

NAME = "accelerated-retrain"
FULL = "gain=30000"
MUON = tuple(
    f"{NAME}:rounds={k}+rate={rate}+{FULL}"
    for k, rate in product((15, 20, 25, 30, 40), (0.03, 0.04, 0.06))
)
MOMENTA = tuple(f"{NAME}:rounds=25+momentum={mu}+rate=0.04+{FULL}" for mu in (0.5, 0.8, 0.9))
GAINS = tuple(
    f"{NAME}:rounds=25+gain={gain}+rate={rate}"
    for gain, rate in product((40, 60, 100), (0.04, 0.05, 0.06))
)
ADAM = tuple(
    f"{NAME}:optimizer=adam+rounds={k}+rate={rate}"
    for k, rate in product(range(40, 85, 5), (0.02, 0.03, 0.05))
)
LOCAL = tuple(
    f"{NAME}:rounds={k}+local_steps={steps}+local_rate={local}+rate={rate}+{FULL}"
    for (k, steps), local, rate in product(
        ((5, 16), (10, 4), (10, 8), (15, 4)), (0.1, 0.3), (0.04, 0.05)
    )
)
LONGER = tuple(
    f"{NAME}:rounds={k}{more}"
    for more, k in product((f"+rate=0.04+{FULL}", ""), (25, 30, 35, 40, 50))
)
SMALL = tuple(
    f"{NAME}:rounds={k}+local_steps={steps}+local_rate={local}+rate=0.04+{FULL}"
    for k, steps, local in product((25, 40), (1, 4, 8), (0.03, 0.1, 0.3))
    if steps > 1 or local == 0.1  # one local step has no rate of its own
)
FOUND: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "Adam": ({"optimizer": "adam"}, (*MUON, *MOMENTA, *GAINS, *LOCAL, *ADAM)),
    "Muon": ({"optimizer": "muon"}, LONGER),
    "Adam, minibatches of 2": ({"optimizer": "adam", "batch_size": TINY_BATCH}, SMALL),
    "Adam, minibatches of 8": ({"optimizer": "adam", "batch_size": 8}, SMALL),
}
"""By original: its settings, and the variants that are tried after it."""


def _cells(scale: Scale) -> list[Config]:
    return [
        cell
        for settings, variants in FOUND.values()
        for cell in scale.configs(validation=True, methods=("retrain", *variants), **settings)
    ]


def _row(of: Results, original: str, method: str) -> Row:
    keys = ("minus_retrain", "worst_seed", "above_retrain", "exact_rounds")
    return {
        "original": original,
        "dataset": of[0].config.dataset,
        "method": method,
        **measured(of, method, *keys),
        "gradients": number(
            of.mean_of(method, lambda one: one.gradient_evaluations / of[0].config.kept), 1
        ),
        "holds": word(holds(of, method, of[0].config.rounds, left=False)),
    }


def _write(draft: Draft, results: Results) -> None:
    scale = draft.scale
    draft.summary = [] if scale.promised else [SHORT]
    for original, (settings, variants) in FOUND.items():
        rows = [
            _row(of, original, method)
            for dataset in scale.datasets
            for config in [scale.config(dataset, 0, **settings)]
            for of in [
                results.where(
                    dataset=dataset,
                    optimizer=config.optimizer,
                    batch_size=config.batch_size,
                )
            ]
            for method in variants
        ]
        draft.table(f"Accelerated retraining after {original}, on validation data", rows)
        kept = _kept(rows, variants)
        draft.summary.append(
            f"After {original} {len(kept)} of {len(variants)} variants keep the promises on every "
            f"dataset, over {len(scale.seeds)} seeds: {', '.join(kept) or 'none'}."
        )


def _kept(rows: list[Row], variants: tuple[str, ...]) -> list[str]:
    """Return the variants that hold in all cells."""
    missed = {row["method"] for row in rows if row["holds"] != "yes"}
    return [variant for variant in variants if variant not in missed]


REPRODUCTION = Reproduction(
    name="tuning",
    title="How the constants of accelerated retraining were chosen",
    cells=_cells,
    write=_write,
)
