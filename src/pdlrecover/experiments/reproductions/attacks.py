"""The usual methods under every attack, after SGD and after Adam: where recovery holds up.

A cell holds by the promises of `promises`, within a number of exact rounds: a tenth of the rounds
after SGD, and after Adam as many as the rival needs. A cell that misses is shown as missing.

The rival is accelerated retraining by Adam, with numbers of rounds in steps of a twentieth of the
run's. What it needs *here* is the smallest of them with which it holds in a cell. What it needs is
the smallest with which it holds in every cell after Adam, since nobody knows beforehand which cell
they are in; attacks that go on during the recovery are left out of this, since there retraining
itself is attacked. Where none of the tried numbers does, it is as many as the run had.
"""

from pdlrecover.adversary import WAITING
from pdlrecover.experiments.analysis.document import Row
from pdlrecover.experiments.analysis.promises import TERMS, gap, holds, points, word
from pdlrecover.experiments.analysis.results import Results, number
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.result import POISONED
from pdlrecover.experiments.reproductions.reproduction import (
    BLOCKS,
    SHORT,
    Draft,
    Reproduction,
    measured,
)
from pdlrecover.experiments.reproductions.scale import ATTACKS, LEAVERS, Scale
from pdlrecover.experiments.reproductions.verdicts import READINGS, by_cell, count, headline
from pdlrecover.recovery.methods import BASELINES, DEFAULT, OURS

ALL = (*ATTACKS, LEAVERS)
FAST = ("accelerated-retrain", DEFAULT)
"""What we recommend, and hold against the rival."""
JUDGED = (*FAST, OURS)
"""The methods that are held against what is allowed, and the rival, a variant of the first."""
RIVAL = "accelerated-retrain:optimizer=adam"
RIVAL_SHARES = (0.4, 0.5, 0.6, 0.7, 0.8)
"""The rival's rounds after Adam, as shares of the run's; `tuning` has more of them, and rates."""
RIVAL_AFTER_SGD = 50
EASY = ("backdoor", LEAVERS)
"""Run with all seeds after SGD, too, as the tables and curves of the paper are."""


def rival(rounds: int) -> str:
    """Return the rival with this many rounds."""
    return f"{RIVAL}+rounds={rounds}"


def rivals(scale: Scale, shares: tuple[float, ...] = RIVAL_SHARES) -> dict[int, str]:
    """Return the rival by its number of rounds, after Adam."""
    return {k: rival(k) for k in (round(share * scale.adam_rounds) for share in shares)}


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
    """Return the methods, after Adam with several numbers of rounds for the rival."""
    tried = rivals(scale).values() if optimizer == "adam" else (rival(RIVAL_AFTER_SGD),)
    return (*BASELINES, *tried)


def of_attack(results: Results, attack: str) -> Results:
    """Return the cells of an attack, or of leavers."""
    if attack == LEAVERS:
        return results.where(malicious=0, undetected=0)
    return Results(
        r for r in results.where(attack=attack) if r.config.malicious or r.config.undetected
    )


def needed(scale: Scale, cells: list[Results]) -> int | None:
    """Return the rival's fewest rounds that hold in all these cells, or None."""
    tried = sorted(rivals(scale).items())
    good = (k for k, name in tried if all(holds(of, name, k, left=_left(of)) for of in cells))
    return next(good, None)


def _left(of: Results) -> bool:
    """Say whether honest peers left."""
    return bool(of[0].config.leavers)


def _row(of: Results, method: str, attack: str, allowed: float, here: int | None) -> Row:
    config, lost = of[0].config, gap(of, method)
    judged = method.split(":")[0] in JUDGED
    verdict = holds(of, method, allowed, left=_left(of)) if judged else None
    shown = ("worst_seed", "backdoor", "above_retrain", "remembered", "exact_rounds")
    return {
        "optimizer": config.optimizer,
        "dataset": config.dataset,
        "attack": attack,
        "method": method,
        **measured(of, method, "accuracy", "minus_retrain"),
        "spread": points(lost.spread) if lost and lost.count > 1 else None,
        **measured(of, method, *shown),
        "megabytes": number(of.mean_of(method, lambda one: one.bytes_per_peer / 1e6), 0),
        "seeds": len(of),
        "allowed": round(allowed) if judged else None,
        "holds": word(verdict),
        "rival_needs": here,
    }


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
            here = needed(scale, [of]) if optimizer == "adam" else None
            for method in (POISONED, *_methods(scale, optimizer)):
                most = scale.adam_rounds if method.startswith(RIVAL) else limit
                rows.append(_row(of, method, attack, most, here))
    counted = count(rows)
    draft.summary = [*(headline(counted, FAST) if scale.promised else [SHORT]), *notes]
    draft.table(
        "In how many pairs of an attack and a dataset the promises are kept",
        counted,
        note="The rival, accelerated retraining by Adam, is allowed all of its rounds.",
        **READINGS,
    )
    for title, found in by_cell(rows, FAST[0]).items():
        draft.table(title, found)
    draft.table(
        "Every usual method under every attack",
        rows,
        note=f"holds: {TERMS}, exact rounds at most what is allowed, and remembered not more than "
        f"two standard errors above 0.3 where honest peers left and it can be measured. {BLOCKS} "
        f"Under {WAITING} retraining is attacked, too: there is no clean model to compare with. "
        "Methods that need more than sums, and those that remove by a formula, are in Table III.",
        spread="spread of that",
        above_retrain="above retrain (points)",
        rival_needs="rounds that the rival needs here",
    )


def _limit(scale: Scale, optimizer: str, cells: list[Results]) -> tuple[float, str]:
    """Return how many exact rounds are allowed, and why."""
    if optimizer == "sgd":
        allowed = scale.exact_share * scale.rounds
        return allowed, f"After SGD {allowed:g} exact rounds are allowed, of {scale.rounds}."
    found = needed(scale, cells)
    reason = (
        f"After Adam the rival, accelerated retraining by Adam, needs {found} of "
        f"{scale.adam_rounds} exact rounds to hold in every cell (those of {WAITING} are not "
        "counted: retraining is attacked there)."
        if found
        else "After Adam the rival, accelerated retraining by Adam, does not hold in every cell "
        f"even with {max(rivals(scale))} of {scale.adam_rounds} exact rounds."
    )
    return float(found or scale.adam_rounds), reason


REPRODUCTION = Reproduction(
    name="attacks", title="The usual methods under all attacks", cells=_cells, write=_write
)
