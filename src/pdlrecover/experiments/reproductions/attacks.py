"""Every method under every attack, after SGD and after Adam: where recovery holds up.

A cell holds if the mean accuracy is within half a point of retraining's, the backdoor's success at
most two points above retraining's, and the exact rounds within what is allowed: a tenth of the
rounds after SGD; after Adam as many as accelerated retraining needs. Where honest peers left, what
is remembered must be at most 0.3. A cell that misses is shown as missing.
"""

from pdlrecover.experiments.collection import Results, number, percent
from pdlrecover.experiments.config import Config
from pdlrecover.experiments.document import Cell, Document, Table
from pdlrecover.experiments.reproductions.reproduction import Reproduction, command
from pdlrecover.experiments.run import POISONED
from pdlrecover.experiments.scale import ATTACKS, LEAVERS, Scale
from pdlrecover.recovery.methods import BASELINES

ALL = (*ATTACKS, LEAVERS)
ACCURACY_MARGIN = 0.005
BACKDOOR_MARGIN = 0.02
REMEMBERED = 0.3
RIVAL_SHARE = 0.8
"""The rounds of accelerated retraining after Adam, as a share of the run's."""
COLUMNS = [
    "optimizer",
    "dataset",
    "attack",
    "method",
    "accuracy (%)",
    "minus retrain (points)",
    "backdoor (%)",
    "above retrain (points)",
    "remembered",
    "exact rounds",
    "holds",
]


def _cells(scale: Scale) -> list[Config]:
    return [
        scale.config(
            dataset,
            seed,
            attack=attack,
            optimizer=optimizer,
            methods=BASELINES,
            **_rival(scale, optimizer),
        )
        for optimizer in ("adam", "sgd")
        for dataset in scale.datasets
        for attack in ALL
        for seed in (scale.seeds if optimizer == "adam" else scale.seeds[:1])
    ]


def _rival(scale: Scale, optimizer: str) -> dict[str, int]:
    """Return how many rounds accelerated retraining gets: 50, or 0.8·T after Adam."""
    if optimizer == "sgd":
        return {"accelerated_rounds": min(50, scale.rounds // 2)}
    return {"accelerated_rounds": round(RIVAL_SHARE * scale.adam_rounds)}


def of_attack(results: Results, attack: str) -> Results:
    """Return the cells of an attack, or of leavers."""
    if attack == LEAVERS:
        return results.where(malicious=0, undetected=0)
    return Results(
        r
        for r in results.where(attack=attack)
        if r["config"]["malicious"] or r["config"]["undetected"]
    )


def holds(of: Results, method: str, allowed: float, *, left: bool) -> bool | None:
    """Say whether a method holds in these cells; None if it was not run."""
    accuracy, retrain = of.mean(method, "accuracy"), of.mean("retrain", "accuracy")
    exact = of.mean(method, "exact_rounds")
    if accuracy is None or retrain is None or exact is None:
        return None
    above = of.mean(method, "attack_success_above_retrain")
    remembered = of.mean(method, "remembered") if left else None
    return (
        accuracy.value >= retrain.value - ACCURACY_MARGIN
        and (above is None or above.value <= BACKDOOR_MARGIN)
        and exact.value <= allowed
        and (remembered is None or remembered.value <= REMEMBERED)
    )


def _row(of: Results, method: str, attack: str, allowed: float) -> list[Cell]:
    config = of[0]["config"]
    accuracy, retrain = of.mean(method, "accuracy"), of.mean("retrain", "accuracy")
    above = of.mean(method, "attack_success_above_retrain")
    gap = None if accuracy is None or retrain is None else accuracy.value - retrain.value
    verdict = holds(of, method, allowed, left=attack == LEAVERS)
    judged = method in ("pdlrecover", "auto", "accelerated-retrain")
    return [
        config["optimizer"],
        config["dataset"],
        attack,
        method,
        percent(accuracy),
        None if gap is None else round(100 * gap, 2),
        percent(of.mean(method, "attack_success")),
        None if above is None else round(100 * above.value, 1),
        number(of.mean(method, "remembered")),
        number(of.mean(method, "exact_rounds"), 0),
        None if not judged or verdict is None else "yes" if verdict else "no",
    ]


def _document(scale: Scale, results: Results) -> Document:
    rows: list[list[Cell]] = []
    verdicts: dict[str, list[bool]] = {}
    for optimizer in ("adam", "sgd"):
        rounds = scale.adam_rounds if optimizer == "adam" else scale.rounds
        share = RIVAL_SHARE if optimizer == "adam" else scale.exact_share
        for dataset in scale.datasets:
            for attack in ALL:
                of = of_attack(results.where(optimizer=optimizer, dataset=dataset), attack)
                if not of:
                    continue
                for method in (POISONED, *BASELINES):
                    row = _row(of, method, attack, share * rounds)
                    rows.append(row)
                    if row[-1] is not None:
                        verdicts.setdefault(f"{method} after {optimizer}", []).append(
                            row[-1] == "yes"
                        )
    summary = [
        f"{name}: holds in {sum(found)} of {len(found)} cells." for name, found in verdicts.items()
    ]
    table = Table(
        title="Every method under every attack",
        columns=COLUMNS,
        rows=rows,
        command=command("attacks", scale),
        note="holds: within 0.5 points of retraining, backdoor at most 2 points above it, exact "
        f"rounds at most {scale.exact_share:g} of the rounds after SGD and {RIVAL_SHARE:g} of them "
        "after Adam, and remembered at most 0.3 where honest peers left.",
    )
    return Document(
        name="attacks", title="All methods under all attacks", summary=summary, tables=[table]
    )


REPRODUCTION = Reproduction(
    name="attacks", title="All methods under all attacks", cells=_cells, document=_document
)
