"""What a given effort buys: accuracy and remembering against exact rounds and against time.

Three originals: SGD, Adam, and SGD with minibatches of two. Every method, several plans of each.
Exact rounds are the kept peers' gradient evaluations over their number, so that a round in which
some of them compute counts for its share. The modelled time is that of one peer on a network: an
exact round costs 60 ms (gradient, dealing, opening), any other opening of a vector 15 ms, and one
of single numbers a round trip of 1 ms.
"""

from typing import Any

from pdlrecover.experiments.collection import Results, number, percent
from pdlrecover.experiments.config import Config
from pdlrecover.experiments.document import Cell, Document, Figure, Series, Table
from pdlrecover.experiments.judgement import (
    ACCURACY_MARGIN,
    BACKDOOR_MARGIN,
    REMEMBERED,
    gap,
    points,
)
from pdlrecover.experiments.reproductions.reproduction import Reproduction, command
from pdlrecover.experiments.run import Record
from pdlrecover.experiments.scale import LEAVERS, TINY_BATCH, Scale
from pdlrecover.recovery.methods import BASELINES, METHODS

EXACT_SECONDS = 0.060
OPENING_SECONDS = 0.015
TRIP_SECONDS = 0.001
VECTORS = ("stored sums", "directions", "removed sums")
"""The openings besides exact rounds that send whole vectors."""
SHARES = (0.02, 0.05, 0.1, 0.2)
"""Exact rounds of the -k methods and of accelerated retraining, as shares of the run's."""


def _plans(rounds: int, *, adam: bool) -> tuple[str, ...]:
    counts = sorted({max(5, round(rounds * share)) for share in SHARES})
    if adam:
        counts = sorted({*counts, *(round(share * rounds) for share in (0.35, 0.5, 0.65, 0.8))})
    budgets = [
        f"{method}:rounds={k}"
        for method in ("accelerated-retrain", "retrain-k", "fine-tune-k", "replay-then-tune")
        for k in counts
    ]
    base = max(2, rounds // 5 if adam else rounds // 40)
    plans = [
        f"pdlrecover:preparation={max(2, round(base * p))}+period={period}+final={round(base * f)}"
        for p, f in ((0.5, 0.5), (1, 0.5), (1, 1))
        for period in ((5, 10) if adam else (15, 30, 60))
    ]
    return ("retrain", "historical", "auto", *plans, *budgets)


def _methods_for(rounds: int, values: dict[str, Any]) -> tuple[str, ...]:
    """Return the plans, and after normal minibatches each rival with its own settings."""
    rivals = () if "batch_size" in values else tuple(m for m in METHODS if m not in BASELINES)
    return (*_plans(rounds, adam=values["optimizer"] == "adam"), *rivals)


ORIGINALS: dict[str, dict[str, Any]] = {
    "SGD": {"optimizer": "sgd"},
    "Adam": {"optimizer": "adam"},
    "SGD, minibatches of 2": {"optimizer": "sgd", "batch_size": TINY_BATCH},
}


def _cells(scale: Scale) -> list[Config]:
    cells = []
    for dataset in scale.datasets:
        for values in ORIGINALS.values():
            adam = values["optimizer"] == "adam"
            rounds = scale.adam_rounds if adam else scale.rounds
            for attack in ("backdoor", LEAVERS):
                for seed in scale.seeds if adam else scale.seeds[:1]:
                    cells.append(
                        scale.config(
                            dataset,
                            seed,
                            attack=attack,
                            methods=_methods_for(rounds, values),
                            **values,
                        )
                    )
    return cells


def modelled_seconds(entry: Record, kept: int) -> float:
    """Return the time of one peer on a network, by the costs above."""
    opened = entry["opened"]
    openings = sum(opened.get(kind, {}).get("openings", 0) for kind in VECTORS)
    trips = opened.get("directions", {}).get("openings", 0) if "dot products" in opened else 0
    return (
        EXACT_SECONDS * exact_rounds(entry, kept)
        + OPENING_SECONDS * float(openings)
        + TRIP_SECONDS * float(trips)
    )


def exact_rounds(entry: Record, kept: int) -> float:
    """Return how many rounds' worth of gradients the kept peers have computed."""
    return float(entry["gradient_evaluations"]) / kept


def _document(scale: Scale, results: Results) -> Document:
    figures: list[Figure] = []
    rows: list[list[Cell]] = []
    for dataset in scale.datasets:
        for original, values in ORIGINALS.items():
            for attack in ("backdoor", LEAVERS):
                of = Results(
                    r
                    for r in results.where(dataset=dataset, **values)
                    if bool(r["config"]["leavers"]) == (attack == LEAVERS)
                    and (r["config"]["batch_size"] == TINY_BATCH) == ("batch_size" in values)
                )
                rounds = scale.adam_rounds if values["optimizer"] == "adam" else scale.rounds
                methods = _methods_for(rounds, values)
                if of:
                    title = f"{dataset}, {original}, {attack}"
                    figures += _figures(title, of, attack, scale, methods)
                    rows += _rows(dataset, original, attack, of, methods)
    table = Table(
        title="What a given effort buys",
        columns=[
            "dataset",
            "original",
            "removed",
            "method",
            "accuracy (%)",
            "minus retrain (points)",
            "backdoor above retrain (points)",
            "remembered",
            "exact rounds",
            "modelled seconds",
            "seconds",
        ],
        rows=rows,
        command=command("frontier", scale),
    )
    return Document(
        name="frontier",
        title="Accuracy and forgetting against effort",
        summary=[
            "Every method with several plans: up and to the left is better.",
            *_cheapest(rows),
        ],
        figures=figures,
        tables=[table],
    )


def _panels(attack: str) -> list[tuple[str, str, float]]:
    """Return what is drawn: key, label, and factor."""
    panels = [("accuracy", "accuracy (%)", 100.0), ("remembered", "remembered", 1.0)]
    if attack == LEAVERS:
        return panels
    return [panels[0], ("attack_success_above_retrain", "backdoor above retrain (points)", 100.0)]


EFFORTS = ("exact rounds", "modelled seconds", "measured seconds")


def _figures(
    title: str, of: Results, attack: str, scale: Scale, methods: tuple[str, ...]
) -> list[Figure]:
    figures = []
    for key, label, factor in _panels(attack):
        for effort in EFFORTS:
            families: dict[str, list[tuple[float, float]]] = {}
            for name in methods:
                y, x = of.mean(name, key), _effort(of, name, effort)
                if y is not None and x is not None:
                    families.setdefault(name.split(":")[0], []).append((x, factor * y.value))
            series = [
                Series(
                    name=family,
                    x=[x for x, _ in sorted(points)],
                    y=[y for _, y in sorted(points)],
                    points=True,
                )
                for family, points in families.items()
            ]
            figures.append(
                Figure(
                    title=f"{title}: {label} by {effort}",
                    x=effort,
                    y=label,
                    series=series,
                    command=command("frontier", scale),
                )
            )
    return figures


def _effort(of: Results, name: str, effort: str) -> float | None:
    values = []
    for record in of:
        if (entry := record["methods"].get(name)) is not None:
            kept = record["config"]["peers"] - record["config"]["leavers"]
            kept -= record["config"]["malicious"]
            values.append(
                {
                    "exact rounds": exact_rounds(entry, kept),
                    "modelled seconds": modelled_seconds(entry, kept),
                    "measured seconds": entry["seconds"]["processor"],
                }[effort]
            )
    return sum(values) / len(values) if values else None


def _rows(
    dataset: str, original: str, attack: str, of: Results, methods: tuple[str, ...]
) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for name in methods:
        efforts = [_effort(of, name, effort) for effort in EFFORTS]
        above = of.mean(name, "attack_success_above_retrain")
        rows.append(
            [
                dataset,
                original,
                attack,
                name,
                percent(of.mean(name, "accuracy")),
                points(gap(of, name)),
                points(None if above is None else above.value, 1),
                number(of.mean(name, "remembered")),
                *(None if e is None else round(e, 1) for e in efforts),
            ]
        )
    return rows


def _cheapest(rows: list[list[Cell]]) -> list[str]:
    """Say for each setting which method keeps the promises with the least exact rounds."""
    lines = []
    for setting in dict.fromkeys(tuple(row[:3]) for row in rows):
        good = [
            row
            for row in rows
            if tuple(row[:3]) == setting
            and row[5] is not None
            and float(row[5]) >= -100 * ACCURACY_MARGIN
            and (row[6] is None or float(row[6]) <= 100 * BACKDOOR_MARGIN)
            and (row[7] is None or setting[2] != LEAVERS or float(row[7]) <= REMEMBERED)
        ]
        if good:
            best = min(good, key=lambda row: float(row[8] or 0.0))
            where = f"{setting[0]}, {setting[1]}, {setting[2]}"
            lines.append(f"{where}: {best[3]} needs the least, {best[8]} exact rounds.")
    return lines


REPRODUCTION = Reproduction(
    name="frontier",
    title="Accuracy and forgetting against effort",
    cells=_cells,
    document=_document,
)
