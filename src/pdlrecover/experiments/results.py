"""The document of a result record: curves, a table, the ledger, and what they say."""

import shlex
from collections.abc import Iterable
from typing import Any

from pdlrecover.experiments.config import Config
from pdlrecover.experiments.document import Cell, Document, Figure, Series, Table
from pdlrecover.experiments.run import Record
from pdlrecover.experiments.seeds import Runs, by_experiment, mean, spread
from pdlrecover.experiments.summary import facts, headline, sentences
from pdlrecover.experiments.words import listed

CURVES = {"accuracy": "Accuracy", "attack_success": "Backdoor success"}
COLUMNS: tuple[tuple[str, tuple[str, ...], float], ...] = (
    ("accuracy (%)", ("accuracy",), 100),
    ("backdoor success (%)", ("attack_success",), 100),
    ("remembered", ("remembered",), 1),
    ("exact rounds", ("exact_rounds",), 1),
    ("asked for by the guard", ("fallback_rounds",), 1),
    ("gradient evaluations", ("gradient_evaluations",), 1),
    ("seconds", ("seconds", "total"), 1),
    ("MB sent per peer", ("bytes_per_peer",), 1e-6),
    ("distance to retraining", ("distance_to_retrain",), 1),
)
"""What the table shows: a heading, where the value is in a record, and what it is multiplied by."""
SPREAD = ("accuracy", "attack_success", "remembered")
"""The values whose spread over the seeds gets a column of its own."""


def documents_from_result(*results: Record) -> list[Document]:
    """Return the documents of result records; those that differ only in their seed make one."""
    return [_document(runs) for runs in by_experiment(results)]


def command(config: Record) -> str:
    """Return the command that runs a config: every flag that is not at its default."""
    defaults = Config().record()
    words = ["pdlrecover", "simulate"]
    for name, value in config.items():
        flag = f"--{name.replace('_', '-')}"
        if name == "methods":
            words += [flag, ",".join(value)]
        elif value is True:
            words.append(flag)
        elif value is not None and value != defaults.get(name):
            words += [flag, str(value)]
    return shlex.join(words)


def _document(runs: Runs) -> Document:
    commands = "\n".join(command(record["config"]) for record in runs.records)
    return Document(
        name=runs.config["dataset"],
        title=headline(runs),
        summary=sentences(runs),
        facts=facts(runs),
        figures=[
            figure for key in CURVES for figure in [_figure(runs, key, commands)] if figure.series
        ],
        tables=[_table(runs, commands)],
        ledger={name: _opened(runs, name) for name in runs.methods},
        note=_origin(runs),
    )


def _figure(runs: Runs, key: str, commands: str) -> Figure:
    lines = [_series(runs, name, key) for name in runs.methods]
    note = f"Means over {len(runs.records)} seeds, and one standard deviation to each side."
    return Figure(
        title=CURVES[key],
        x="round",
        y=f"{CURVES[key].lower()} (%)",
        series=[line for line in lines if any(y is not None for y in line.y)],
        command=commands,
        note=note if len(runs.records) > 1 else "",
    )


def _series(runs: Runs, method: str, key: str) -> Series:
    """Return a curve in percent, at the rounds that every seed has measured."""
    curves = runs.values(method, "curve")
    points = [dict(zip(curve["round"], curve[key], strict=True)) for curve in curves]
    rounds = [at for at in points[0] if all(at in found for found in points)]
    values = [[_scaled(found[at], 100) for found in points] for at in rounds]
    return Series(
        name=method,
        x=[float(at) for at in rounds],
        y=[mean(found) for found in values],
        spread=[spread(found) for found in values] if len(points) > 1 else None,
    )


def _table(runs: Runs, commands: str) -> Table:
    columns: list[str] = ["method"]
    cells: list[list[Cell]] = [list(runs.methods)]
    for title, path, factor in COLUMNS:
        column = [_scaled(runs.mean(name, *path), factor) for name in runs.methods]
        idle = path == ("fallback_rounds",) and not any(column)
        if idle or all(value is None for value in column):
            continue
        columns.append(title)
        cells.append(list(column))
        if len(runs.records) > 1 and path[0] in SPREAD:
            columns.append(f"± {title}")
            cells.append([_scaled(runs.spread(name, *path), factor) for name in runs.methods])
    failed = [sum(map(bool, runs.values(name, "diverged"))) for name in runs.methods]
    if any(failed):
        columns.append("diverged")
        several = f" of {len(runs.records)} seeds" if len(runs.records) > 1 else ""
        cells.append([(f"{n}{several}" if several else "yes") if n else None for n in failed])
    notes = []
    if "remembered" in columns:
        notes.append("Remembered, of the removed peers’ data: the original model 1, retraining 0.")
    if len(runs.records) > 1:
        notes.append(f"Means over {len(runs.records)} seeds; ± is the standard deviation.")
    return Table(
        title="Results",
        columns=columns,
        rows=[list(row) for row in zip(*cells, strict=True)],
        command=commands,
        note=" ".join(notes),
    )


def _opened(runs: Runs, method: str) -> dict[str, Any]:
    """Return what a method opened; counts are averaged over the seeds, and stay whole numbers."""
    found = runs.values(method, "opened")
    kinds = list(dict.fromkeys(kind for opened in found for kind in opened))
    return {
        kind: {
            **{
                key: round(sum(opened.get(kind, {}).get(key, 0) for opened in found) / len(found))
                for key in ("openings", "numbers")
            },
            "of": next(opened[kind]["of"] for opened in found if kind in opened),
        }
        for kind in kinds
    }


def _origin(runs: Runs) -> str:
    """Return the seeds, how it ran, and with which versions."""
    seeds = listed([str(seed) for seed in runs.seeds])
    dealt = "shares were dealt and opened"
    if runs.config["clear"]:
        dealt = "shares were not dealt (--clear), which gives the same numbers"
    parts = [f"{'Seed' if len(runs.seeds) == 1 else 'Seeds'} {seeds}", dealt]
    for name in ("pdlrecover", "python", "torch", "numpy"):
        if found := _distinct(record.get("versions", {}).get(name) for record in runs.records):
            parts.append(f"{name} {listed(found)}")
    if commits := _distinct(record.get("commit") for record in runs.records):
        parts.append(f"commit {listed(commits)}")
    notes = _distinct(record.get("dataset_note") for record in runs.records)
    return " ".join(f"{told}." for told in ["; ".join(parts), *notes])


def _distinct(values: Iterable[str | None]) -> list[str]:
    return list(dict.fromkeys(value for value in values if value))


def _scaled(value: float | None, factor: float) -> float | None:
    return value if value is None or factor == 1 else factor * value
