"""Every method under every attack, after SGD and after Adam: where recovery holds up.

A cell holds by the promises of `promises`, within a number of exact rounds: a tenth of the rounds
after SGD; after Adam as many as accelerated retraining needs, and for a backdoor and for leavers at
most 0.7 of that. A cell that misses is shown as missing.

What accelerated retraining needs is read in two ways. *In all cells*: the smallest of the tried
numbers of rounds with which it holds in every cell after Adam, since nobody knows beforehand which
cell they are in; attacks that go on during the recovery are left out of this, since there
retraining itself is attacked. *Here*: the smallest that would have done in this one cell. Where
none of the tried numbers does, it is as many as the run had.
"""

from pdlrecover.adversary import WAITING
from pdlrecover.experiments.analysis.promises import gap, holds, points, word
from pdlrecover.experiments.analysis.results import Results, number
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.result import POISONED
from pdlrecover.experiments.report.document import Row
from pdlrecover.experiments.reproductions.reproduction import (
    BLOCKS,
    SHORT,
    Draft,
    Reproduction,
    measured,
)
from pdlrecover.experiments.reproductions.scale import ATTACKS, LEAVERS, Scale
from pdlrecover.experiments.reproductions.verdicts import READINGS, by_cell, count, headline
from pdlrecover.recovery.methods import BASELINES, OURS

ALL = (*ATTACKS, LEAVERS)
RIVAL = "accelerated-retrain"
JUDGED = ("auto", OURS, RIVAL)
"""The methods that are held against what is allowed."""
RIVAL_SHARES = (0.4, 0.5, 0.6, 0.7, 0.8)
"""The rounds of accelerated retraining that are tried after Adam, as shares of the run's."""
EASY = ("backdoor", LEAVERS)
"""Run with all seeds after SGD, too, as the tables and curves of the paper are."""
EASY_SHARE = 0.7
"""Where the history is worth most, this share of what the rival needs is allowed."""


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
        for seed in (scale.seeds if optimizer == "adam" or attack in EASY else scale.seeds[:1])
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
        r for r in results.where(attack=attack) if r.config.malicious or r.config.undetected
    )


def needed(scale: Scale, cells: list[Results]) -> int | None:
    """Return the fewest rounds of accelerated retraining that hold in all these cells, or None."""
    tried = sorted(rivals(scale).items())
    good = (k for k, name in tried if all(holds(of, name, k, left=_left(of)) for of in cells))
    return next(good, None)


def _left(of: Results) -> bool:
    """Say whether honest peers left."""
    return bool(of[0].config.leavers)


def _row(of: Results, method: str, attack: str, allowed: float, here: float | None) -> Row:
    config, lost = of[0].config, gap(of, method)
    judged = method.split(":")[0] in JUDGED
    limits = {"": allowed, "_here": here} if judged else {"": None, "_here": None}
    shown = ("worst_seed", "backdoor", "above_retrain", "remembered", "exact_rounds")
    row: Row = {
        "optimizer": config.optimizer,
        "dataset": config.dataset,
        "attack": attack,
        "method": method,
        **measured(of, method, "accuracy", "minus_retrain"),
        "spread": points(lost.spread) if lost and lost.count > 1 else None,
        **measured(of, method, *shown),
        "megabytes": number(of.mean_of(method, lambda one: one.bytes_per_peer / 1e6), 0),
        "seeds": len(of),
    }
    for which, most in limits.items():
        verdict = None if most is None else holds(of, method, most, left=_left(of))
        row |= {f"allowed{which}": most and round(most), f"holds{which}": word(verdict)}
    return row


def _write(draft: Draft, results: Results) -> None:
    scale = draft.scale
    rows: list[Row] = []
    notes: list[str] = []
    for optimizer in ("adam", "sgd"):
        cells = [
            (attack, of)
            for dataset in scale.datasets
            for attack in ALL
            if (of := of_attack(results.where(optimizer=optimizer, dataset=dataset), attack))
        ]
        limit, reason = _limit(scale, optimizer, [of for attack, of in cells if attack != WAITING])
        notes.append(reason)
        for attack, of in cells:
            own = (needed(scale, [of]) or scale.adam_rounds) if optimizer == "adam" else None
            for method in (POISONED, *_methods(scale, optimizer)):
                share = _share(optimizer, attack, method)
                most = scale.adam_rounds if share is None else share * limit
                here = None if share is None or own is None else share * own
                rows.append(_row(of, method, attack, most, here))
    counted = count(rows)
    draft.summary = [headline(counted) if scale.promised else SHORT, *notes]
    draft.table(
        "In how many pairs of an attack and a dataset the promises are kept",
        counted,
        note="Accelerated retraining with a given number of rounds is allowed all of these.",
        **READINGS,
    )
    for title, found in by_cell(rows).items():
        draft.table(title, found)
    draft.table(
        "Every method under every attack",
        rows,
        note="holds: within 0.5 points of retraining, backdoor at most 2 points above it, exact "
        "rounds at most what is allowed, and remembered not more than two standard errors above "
        f"0.3 where honest peers left and it can be measured. {BLOCKS} Under {WAITING} retraining "
        "is attacked, too: there is no clean model to compare with.",
        spread="spread of that",
        above_retrain="above retrain (points)",
        allowed_here="allowed by the need here",
        holds_here="holds by it",
    )


def _share(optimizer: str, attack: str, method: str) -> float | None:
    """Return which share of the limit a method is allowed; None for the rival itself."""
    if optimizer == "sgd":
        return 1.0
    if method.startswith(RIVAL):
        return None
    return EASY_SHARE if attack in EASY else 1.0


def _limit(scale: Scale, optimizer: str, cells: list[Results]) -> tuple[float, str]:
    """Return how many exact rounds are allowed, and why."""
    if optimizer == "sgd":
        allowed = scale.exact_share * scale.rounds
        return allowed, f"After SGD {allowed:g} exact rounds are allowed, of {scale.rounds}."
    found = needed(scale, cells)
    reason = (
        f"After Adam accelerated retraining needs {found} of {scale.adam_rounds} exact rounds to "
        f"hold in every cell (those of {WAITING} are not counted: retraining is attacked there)."
        if found
        else "After Adam accelerated retraining does not hold in every cell even with "
        f"{max(rivals(scale))} of {scale.adam_rounds} exact rounds."
    )
    return float(found or scale.adam_rounds), reason


REPRODUCTION = Reproduction(
    name="attacks", title="All methods under all attacks", cells=_cells, write=_write
)
