"""What a given effort buys: accuracy and forgetting, by exact rounds and by time.

Three originals: SGD, Adam, and SGD with minibatches of two. Several plans of PDLRecover, and of the
methods that take a number of rounds; each rival with its authors' settings, and `auto` as it is.
Exact rounds are the kept peers' gradient evaluations over their number, so that a round in which
some of them compute counts for its share. The modelled time is that of one peer on a network: an
exact round costs 60 ms (gradient, dealing, opening), any other opening of a sum of vectors 15 ms,
and one of single numbers a round trip of 1 ms. What rivals see of single peers is taken to be sent
along, for nothing.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from statistics import fmean
from typing import Any

from pdlrecover.experiments.analysis.document import Row, Series
from pdlrecover.experiments.analysis.format import listed
from pdlrecover.experiments.analysis.promises import holds
from pdlrecover.experiments.analysis.results import Results, work
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.forgetting import Estimate, is_scored
from pdlrecover.experiments.experiment.result import MethodResult, NumberName
from pdlrecover.experiments.reproductions.attacks import FAST, RIVAL, RIVAL_SHARES, rival
from pdlrecover.experiments.reproductions.reproduction import Draft, Reproduction, measured
from pdlrecover.experiments.reproductions.scale import LEAVERS, TINY_BATCH, Scale
from pdlrecover.recovery.methods import BASELINES, METHODS

EXACT_SECONDS = 0.060
OPENING_SECONDS = 0.015
TRIP_SECONDS = 0.001
VECTORS = ("stored sums", "directions", "removed sums")
"""The openings besides exact rounds that send whole vectors."""
SGD_SHARES = (0.02, 0.05, 0.1, 0.2)
"""Exact rounds of the methods that take a number of them, as shares of the run's."""
ADAM_SHARES = (0.1, 0.2, 0.5)
RIVAL_ADAM_SHARES = (0.05, 0.1, 0.2, 0.35, *RIVAL_SHARES)
RIVAL_TINY_SHARES = (0.02, 0.035, 0.05, 0.065, 0.08, 0.1, 0.2)
"""Finer ones for the rival, accelerated retraining by Adam."""
FAST_ROUNDS = (10, 15, 20, 30, 40)
"""Rounds of accelerated retraining as we recommend it, besides its own number."""
BUDGETED = tuple(method for method, entry in METHODS.items() if entry.rounds == "budgeted")


def _methods(rounds: int, *, adam: bool, tiny: bool) -> tuple[str, ...]:
    """Return the plans, and after normal minibatches each rival with its own settings."""
    shares = ADAM_SHARES if adam else SGD_SHARES
    finer = RIVAL_ADAM_SHARES if adam else RIVAL_TINY_SHARES if tiny else SGD_SHARES
    fast = [FAST[0], *(f"{FAST[0]}:rounds={k}" for k in FAST_ROUNDS)]
    budgets = [
        f"{method}:rounds={round(rounds * share)}" for method in BUDGETED for share in shares
    ]
    budgets += [rival(round(rounds * share)) for share in finer]
    base = max(2, rounds // 5 if adam else rounds // 40)
    plans = [
        f"pdlrecover:preparation={max(2, round(base * p))}+period={period}+final={round(base * f)}"
        for p, f in ((0.5, 0.5), (1, 0.5), (1, 1))
        for period in ((5, 10) if adam else (15, 30, 60))
    ]
    rivals = () if tiny else tuple(m for m in METHODS if m not in BASELINES)
    return ("retrain", "historical", "auto", *fast, *plans, *budgets, *rivals)


ORIGINALS: dict[str, dict[str, Any]] = {
    "SGD": {"optimizer": "sgd"},
    "Adam": {"optimizer": "adam"},
    "SGD, minibatches of 2": {"optimizer": "sgd", "batch_size": TINY_BATCH},
}


def _settings(scale: Scale) -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Yield each dataset, original and attack, with the methods that are run there."""
    for dataset in scale.datasets:
        for original, values in ORIGINALS.items():
            adam = values["optimizer"] == "adam"
            rounds = scale.adam_rounds if adam else scale.rounds
            methods = _methods(rounds, adam=adam, tiny="batch_size" in values)
            for attack in ("backdoor", LEAVERS):
                yield dataset, original, attack, methods


def _cells(scale: Scale) -> list[Config]:
    return [
        scale.config(dataset, seed, attack=attack, methods=methods, **ORIGINALS[original])
        for dataset, original, attack, methods in _settings(scale)
        for seed in (scale.seeds if original == "Adam" else scale.seeds[:1])
    ]


def modelled_seconds(one: MethodResult, peers: int) -> float | None:
    """Return the time of one peer on a network, by the costs above; None if it is not recorded."""
    if not one.opened:
        return None
    counts = {kind: opened.openings for kind, opened in one.opened.items()}
    openings = sum(counts.get(kind, 0) for kind in VECTORS)
    trips = counts.get("directions", 0) if "dot products" in counts else 0
    return EXACT_SECONDS * work(one, peers) + OPENING_SECONDS * openings + TRIP_SECONDS * trips


EFFORTS: dict[str, tuple[str, Callable[[MethodResult, int], float | None]]] = {
    "exact_rounds": ("exact rounds", work),
    "modelled_seconds": ("modelled seconds", modelled_seconds),
    "seconds": ("measured seconds", lambda one, peers: one.processor_seconds),
}
"""By what effort is measured: how the axes of the figures are called, and what it was."""


def _write(draft: Draft, results: Results) -> None:
    rows: list[Row] = []
    cheapest: list[str] = []
    best: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    recorded: Counter[str] = Counter()
    for dataset, original, attack, methods in _settings(draft.scale):
        values = ORIGINALS[original]
        of = Results(
            r
            for r in results.where(dataset=dataset, **values)
            if bool(r.config.leavers) == (attack == LEAVERS)
            and (r.config.batch_size == TINY_BATCH) == ("batch_size" in values)
        )
        if of:
            title = f"{dataset}, {original}, {attack}"
            asked.update(methods)
            methods = tuple(name for name in methods if of.entries(name))
            recorded.update(methods)
            _draw(draft, title, of, attack, methods)
            what: Row = {"dataset": dataset, "original": original, "removed": attack}
            rows += [what | _row(of, method) for method in methods]
            good = _good(of, methods, attack)
            cheapest.append(f"{title}: {_cheapest(good)}")
            best.update([] if good is None else [_family(_first(good))[0]])
    draft.table("What a given effort buys", rows)
    draft.summary = [
        "The promises are kept with the fewest exact rounds by "
        f"{listed([f'{name} in {n}' for name, n in best.most_common()] or ['nobody'])} "
        f"of the {best.total()} settings in which that can be told.",
        "What accuracy and forgetting cost: up and to the left is better. PDLRecover and the "
        "methods that take a number of rounds have several plans, every other method one.",
        "Which plan keeps the promises with the fewest exact rounds is read off the test data "
        "that it is then reported on, after SGD from one seed: it shows what can be had, not "
        "what somebody who must choose beforehand would get.",
        *_elsewhere(asked, recorded),
        *cheapest,
    ]


def _elsewhere(asked: Counter[str], recorded: Counter[str]) -> list[str]:
    """Say which methods have rows in some of the settings only, and where their numbers are."""
    few = [name for name in METHODS if recorded[name] < asked[name]]
    if not few:
        return []
    counts = [f"{name} in {recorded[name]} of {asked[name]}" for name in few]
    return [
        f"Only some of the settings have rows of {listed(counts)}. Beside all others these "
        "methods stand in Table III, with every seed: `pdlrecover reproduce table-3`."
    ]


def _panels(attack: str) -> list[tuple[NumberName | None, str, float]]:
    """Return what is drawn: which number, None for what is remembered; its label; its factor."""
    second: tuple[NumberName | None, str, float] = (None, "remembered", 1.0)
    if attack != LEAVERS:
        second = ("attack_success_above_retrain", "backdoor above retrain (points)", 100.0)
    return [("accuracy", "accuracy (%)", 100.0), second]


def _draw(draft: Draft, title: str, of: Results, attack: str, methods: tuple[str, ...]) -> None:
    for shown, label, factor in _panels(attack):
        for effort, (axis, _) in EFFORTS.items():
            families: dict[str, list[tuple[float, float, float | None, str]]] = {}
            for name in methods:
                y = of.remembered(name) if shown is None else of.mean(name, shown)
                x = _effort(of, name, effort)
                if y is not None and x is not None:
                    family, plan = _family(name)
                    error = y.error if isinstance(y, Estimate) else None
                    families.setdefault(family, []).append((x, factor * y.value, error, plan))
            series = [
                Series(
                    name=family,
                    x=[x for x, *_ in points],
                    y=[y for _, y, *_ in points],
                    spread=[error for *_, error, _ in points] if shown is None else None,
                    labels=[plan for *_, plan in points],
                    points=True,
                )
                for family, found in families.items()
                for points in [sorted(found, key=lambda each: each[:2])]
            ]
            draft.figure(f"{title}: {label} by {axis}", axis, label, series)


def _family(name: str) -> tuple[str, str]:
    """Return the method whose plan this is, and the plan; the rival is a method of its own."""
    if name.startswith(RIVAL):
        return RIVAL, name.removeprefix(f"{RIVAL}+")
    family, _, plan = name.partition(":")
    return family, plan


def _effort(of: Results, name: str, effort: str) -> float | None:
    _, spent = EFFORTS[effort]
    values = [spent(r.methods[name], r.config.kept) for r in of if name in r.methods]
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _row(of: Results, name: str) -> Row:
    efforts = {effort: _effort(of, name, effort) for effort in EFFORTS}
    return {
        "method": name,
        **measured(of, name, "accuracy", "minus_retrain", "above_retrain", "remembered"),
        **{effort: None if e is None else round(e, 1) for effort, e in efforts.items()},
    }


def _good(of: Results, methods: tuple[str, ...], attack: str) -> dict[str, float] | None:
    """Return the exact rounds of the plans that keep the promises; None where nobody can tell."""
    left = attack == LEAVERS
    if left and of.remembered("retrain") is None:
        return None
    return {
        name: rounds.value
        for name in methods
        if is_scored(name)
        and (rounds := of.exact_rounds(name)) is not None
        and holds(of, name, math.inf, left=left)
    }


def _first(good: dict[str, float]) -> str:
    """Return the plan with the fewest exact rounds; retraining keeps its own promises."""
    return min(good, key=lambda name: good[name], default="retrain")


def _cheapest(good: dict[str, float] | None) -> str:
    """Say which plan keeps the promises with the fewest exact rounds."""
    if good is None:
        return "the original remembers too little for forgetting to be measured."
    best = _first(good)
    if best == "retrain":
        return "nothing but retraining keeps the promises."
    first = min((n for n in good if n.startswith(RIVAL)), key=lambda n: good[n], default=None)
    beside = "" if first in (None, best) else f" (of the rival: {good[first]:.1f})"
    return f"{best} needs the least, {good[best]:.1f} exact rounds{beside}."


REPRODUCTION = Reproduction(
    name="frontier",
    title="Accuracy and forgetting against effort",
    cells=_cells,
    write=_write,
)
