"""What a given effort buys: accuracy and remembering against exact rounds and against time.

Three originals: SGD, Adam, and SGD with minibatches of two. Every method, several plans of each.
The modelled time is that of one peer on a network: an exact round costs 60 ms (gradient, dealing,
opening), any other opening of a vector 15 ms.
"""

from typing import Any

from pdlrecover.experiments.collection import Results, percent
from pdlrecover.experiments.config import Config
from pdlrecover.experiments.document import Cell, Document, Figure, Series, Table
from pdlrecover.experiments.reproductions.reproduction import Reproduction, command
from pdlrecover.experiments.run import POISONED, Record
from pdlrecover.experiments.scale import LEAVERS, TINY_BATCH, Scale
from pdlrecover.recovery.methods import BASELINES, METHODS

EXACT_SECONDS = 0.060
OPENING_SECONDS = 0.015
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


def modelled_seconds(entry: Record) -> float:
    """Return the time of one peer on a network, by the costs above."""
    openings = sum(entry["opened"].get(kind, {}).get("openings", 0) for kind in VECTORS)
    return EXACT_SECONDS * float(entry["exact_rounds"]) + OPENING_SECONDS * float(openings)


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
                if of:
                    figures += _figures(f"{dataset}, {original}, {attack}", of, attack, scale)
                    rows += _rows(dataset, original, attack, of)
    table = Table(
        title="What a given effort buys",
        columns=[
            "dataset",
            "original",
            "removed",
            "method",
            "accuracy (%)",
            "remembered",
            "exact rounds",
            "seconds",
            "modelled seconds",
        ],
        rows=rows,
        command=command("frontier", scale),
    )
    return Document(
        name="frontier",
        title="Accuracy and forgetting against effort",
        summary=["Every method with several plans: up and to the left is better."],
        figures=figures,
        tables=[table],
    )


def _methods(of: Results) -> list[str]:
    return [name for name in of[0]["methods"] if name != POISONED]


def _figures(title: str, of: Results, attack: str, scale: Scale) -> list[Figure]:
    panels = [("accuracy", "accuracy (%)", 100.0)]
    if attack == LEAVERS:
        panels.append(("remembered", "remembered", 1.0))
    efforts = [
        ("exact rounds", "exact_rounds"),
        ("modelled seconds", ""),
        ("measured seconds", "s"),
    ]
    figures = []
    for key, label, scaling in panels:
        for effort, path in efforts:
            families: dict[str, list[tuple[float, float]]] = {}
            for name in _methods(of):
                y, x = of.mean(name, key), _effort(of, name, path)
                if y is not None and x is not None:
                    families.setdefault(name.split(":")[0], []).append((x, scaling * y.value))
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


def _effort(of: Results, name: str, path: str) -> float | None:
    if path == "exact_rounds":
        found = of.mean(name, "exact_rounds")
    elif path == "s":
        found = of.mean(name, "seconds", "processor")
    else:
        values = [modelled_seconds(r["methods"][name]) for r in of if name in r["methods"]]
        return sum(values) / len(values) if values else None
    return None if found is None else found.value


def _rows(dataset: str, original: str, attack: str, of: Results) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for name in _methods(of):
        efforts = [_effort(of, name, path) for path in ("exact_rounds", "s", "")]
        remembered = of.mean(name, "remembered")
        rows.append(
            [
                dataset,
                original,
                attack,
                name,
                percent(of.mean(name, "accuracy")),
                None if remembered is None else round(remembered.value, 2),
                *(None if e is None else round(e, 1) for e in efforts),
            ]
        )
    return rows


REPRODUCTION = Reproduction(
    name="frontier",
    title="Accuracy and forgetting against effort",
    cells=_cells,
    document=_document,
)
