"""Every method under every attack, after SGD and after Adam: where recovery holds up.

A cell holds if the mean accuracy is within half a point of retraining's, the backdoor's success at
most two points above retraining's, and the exact rounds within what is allowed: a tenth of the
rounds after SGD; after Adam as many as accelerated retraining needs, and for a backdoor and for
leavers at most 0.7 of that. Where honest peers left, what is remembered must be at most 0.3. A cell
that misses is shown as missing.

What accelerated retraining needs is the smallest of the tried numbers of rounds with which it holds
in every cell after Adam: nobody knows beforehand which cell they are in. The number that would have
done in the one cell stands beside it.
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
RIVAL = "accelerated-retrain"
RIVAL_SHARES = (0.5, 0.6, 0.7, 0.8)
"""The rounds of accelerated retraining that are tried after Adam, as shares of the run's."""
EASY = ("backdoor", LEAVERS)
EASY_SHARE = 0.7
"""Where the history is worth most, this share of what the rival needs is allowed."""
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
    "allowed",
    "holds",
]


def _cells(scale: Scale) -> list[Config]:
    return [
        scale.config(
            dataset,
            seed,
            attack=attack,
            optimizer=optimizer,
            methods=_methods(scale, optimizer),
        )
        for optimizer in ("adam", "sgd")
        for dataset in scale.datasets
        for attack in ALL
        for seed in (scale.seeds if optimizer == "adam" else scale.seeds[:1])
    ]


def _methods(scale: Scale, optimizer: str) -> tuple[str, ...]:
    """Return the methods, after Adam with several numbers of rounds for accelerated retraining."""
    if optimizer == "sgd":
        return BASELINES
    return (*(m for m in BASELINES if m != RIVAL), *rivals(scale).values())


def rivals(scale: Scale, shares: tuple[float, ...] = RIVAL_SHARES) -> dict[int, str]:
    """Return accelerated retraining by its number of rounds, after Adam."""
    counts = [round(share * scale.adam_rounds) for share in shares]
    return {k: f"{RIVAL}:rounds={k}" for k in counts}


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


def needed(scale: Scale, cells: list[tuple[str, Results]]) -> int | None:
    """Return the fewest rounds of accelerated retraining that hold in all these cells, or None."""
    for k, name in sorted(rivals(scale).items()):
        if all(holds(of, name, k, left=attack == LEAVERS) for attack, of in cells):
            return k
    return None


def _row(of: Results, method: str, attack: str, allowed: float) -> list[Cell]:
    config = of[0]["config"]
    accuracy, retrain = of.mean(method, "accuracy"), of.mean("retrain", "accuracy")
    above = of.mean(method, "attack_success_above_retrain")
    gap = None if accuracy is None or retrain is None else accuracy.value - retrain.value
    verdict = holds(of, method, allowed, left=attack == LEAVERS)
    judged = method.split(":")[0] in ("pdlrecover", "auto", RIVAL)
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
        number(of.mean(method, "exact_rounds"), 1),
        None if not judged else round(allowed),
        None if not judged or verdict is None else "yes" if verdict else "no",
    ]


def _document(scale: Scale, results: Results) -> Document:
    rows: list[list[Cell]] = []
    notes: list[str] = []
    verdicts: dict[str, list[bool]] = {}
    for optimizer in ("adam", "sgd"):
        cells = [
            (attack, of)
            for dataset in scale.datasets
            for attack in ALL
            if (of := of_attack(results.where(optimizer=optimizer, dataset=dataset), attack))
        ]
        limit, told = _limit(scale, optimizer, cells)
        notes.append(told)
        for attack, of in cells:
            for method in (POISONED, *_methods(scale, optimizer)):
                rival = method.startswith(RIVAL)
                share = EASY_SHARE if optimizer == "adam" and attack in EASY and not rival else 1.0
                whole = scale.adam_rounds if rival and optimizer == "adam" else limit
                row = _row(of, method, attack, share * whole)
                rows.append(row)
                if row[-1] is not None:
                    verdicts.setdefault(f"{method} after {optimizer}", []).append(row[-1] == "yes")
    table = Table(
        title="Every method under every attack",
        columns=COLUMNS,
        rows=rows,
        command=command("attacks", scale),
        note="holds: within 0.5 points of retraining, backdoor at most 2 points above it, exact "
        "rounds at most what is allowed, and remembered at most 0.3 where honest peers left.",
    )
    counted = [f"{name}: holds in {sum(v)} of {len(v)} cells." for name, v in verdicts.items()]
    return Document(
        name="attacks",
        title="All methods under all attacks",
        summary=[*notes, *counted],
        tables=[table],
    )


def _limit(scale: Scale, optimizer: str, cells: list[tuple[str, Results]]) -> tuple[float, str]:
    """Return how many exact rounds are allowed, and why."""
    if optimizer == "sgd":
        allowed = scale.exact_share * scale.rounds
        return allowed, f"After SGD {allowed:g} exact rounds are allowed, of {scale.rounds}."
    found, most = needed(scale, cells), max(rivals(scale))
    alone = [needed(scale, [cell]) for cell in cells]
    lone = [k for k in alone if k is not None]
    told = (
        f"After Adam accelerated retraining needs {found} of {scale.adam_rounds} exact rounds to "
        "hold in every cell"
        if found
        else f"After Adam accelerated retraining does not hold in every cell even with {most} of "
        f"{scale.adam_rounds} exact rounds"
    )
    if lone:
        told += (
            f"; in single cells {min(lone)} to {max(lone)} would have done (of {len(cells)} cells, "
            f"{alone.count(None)} had none that did)"
        )
    return float(found or most), told + "."


REPRODUCTION = Reproduction(
    name="attacks", title="All methods under all attacks", cells=_cells, document=_document
)
