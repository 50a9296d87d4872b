"""The document of a result record: curves, a table, the ledger, and what they say."""

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from pdlrecover.experiments.analysis.promises import above
from pdlrecover.experiments.analysis.results import Mean
from pdlrecover.experiments.analysis.seeds import SeedRuns, by_experiment
from pdlrecover.experiments.analysis.summary import facts, headline, key, sentences
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.run import Record
from pdlrecover.experiments.report.document import Cell, Document, Figure, Series, Table
from pdlrecover.experiments.report.format import listed

CURVES = {"accuracy": "Accuracy", "attack_success": "Backdoor success"}


@dataclass(frozen=True)
class Column:
    """A column of the table: its heading, where its values are from, and how they are shown."""

    title: str
    of: Callable[[SeedRuns, str], Mean | None]
    factor: float = 1
    spread: bool = False
    """The spread over the seeds gets a column of its own."""
    idle: bool = False
    """Left out also where every value is 0."""

    def mean(self, runs: SeedRuns, method: str) -> Mean | None:
        """Return a method's value, scaled; None if a seed has none."""
        found = self.of(runs, method)
        if found is None or found.count < len(runs):
            return None
        return Mean(self.factor * found.value, self.factor * found.spread, found.count)


def _at(*path: str) -> Callable[[SeedRuns, str], Mean | None]:
    return lambda runs, method: runs.mean(method, *path)


COLUMNS = (
    Column("accuracy (%)", _at("accuracy"), 100, spread=True),
    Column("backdoor success (%)", _at("attack_success"), 100, spread=True),
    Column("backdoor above retrain (points)", above, 100, spread=True),
    Column("remembered", SeedRuns.remembered, spread=True),
    Column("exact rounds", SeedRuns.exact_rounds),
    Column("asked for by the guard", _at("fallback_rounds"), idle=True),
    Column("gradient evaluations", _at("gradient_evaluations")),
    Column("seconds", SeedRuns.seconds),
    Column("MB sent per peer", _at("bytes_per_peer"), 1e-6),
    Column("distance to retraining", _at("distance_to_retrain")),
)
"""What the table shows; a column without any value is left out."""


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


def _document(runs: SeedRuns) -> Document:
    commands = "\n".join(command(record["config"]) for record in runs)
    return Document(
        name=runs.config["dataset"],
        title=headline(runs),
        summary=sentences(runs),
        key=key(runs),
        facts=facts(runs),
        figures=[
            figure for key in CURVES for figure in [_figure(runs, key, commands)] if figure.series
        ],
        tables=[_table(runs, commands)],
        ledger={name: _opened(runs, name) for name in runs.methods},
        note=_origin(runs),
    )


def _figure(runs: SeedRuns, key: str, commands: str) -> Figure:
    lines = [runs.curve(name, key) for name in runs.methods]
    note = f"Means over {len(runs)} seeds, and one standard deviation to each side."
    return Figure(
        title=CURVES[key],
        x="round",
        y=f"{CURVES[key].lower()} (%)",
        series=[_banded(line, len(runs)) for line in lines if line],
        command=commands,
        note=note if len(runs) > 1 else "",
    )


def _banded(line: Series, seeds: int) -> Series:
    return line if seeds > 1 else replace(line, spread=None)


def _table(runs: SeedRuns, commands: str) -> Table:
    columns: list[str] = ["method"]
    cells: list[list[Cell]] = [list(runs.methods)]
    for column in COLUMNS:
        found = [column.mean(runs, name) for name in runs.methods]
        if not any(mean is not None and (mean.value or not column.idle) for mean in found):
            continue
        columns.append(column.title)
        cells.append([None if mean is None else mean.value for mean in found])
        if len(runs) > 1 and column.spread:
            columns.append(f"± {column.title}")
            cells.append([None if mean is None else mean.spread for mean in found])
    failed = [sum(map(bool, runs.diverged(name))) for name in runs.methods]
    if any(failed):
        columns.append("diverged")
        several = f" of {len(runs)} seeds" if len(runs) > 1 else ""
        cells.append([(f"{n}{several}" if several else "yes") if n else None for n in failed])
    notes = []
    if "remembered" in columns:
        notes.append("Remembered, of the removed peers’ data: the original model 1, retraining 0.")
    if len(runs) > 1:
        notes.append(f"Means over {len(runs)} seeds; ± is the standard deviation.")
    return Table(
        title="Results",
        columns=columns,
        rows=[list(row) for row in zip(*cells, strict=True)],
        command=commands,
        note=" ".join(notes),
    )


def _opened(runs: SeedRuns, method: str) -> dict[str, Any]:
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


def _origin(runs: SeedRuns) -> str:
    """Return the seeds, how it ran, and with which versions."""
    seeds = listed([str(seed) for seed in runs.seeds])
    dealt = "shares were dealt and opened"
    if runs.config["clear"]:
        dealt = "shares were not dealt (--clear), which gives the same numbers"
    parts = [f"{'Seed' if len(runs.seeds) == 1 else 'Seeds'} {seeds}", dealt]
    for name in ("pdlrecover", "python", "torch", "numpy"):
        if found := _distinct(record.get("versions", {}).get(name) for record in runs):
            parts.append(f"{name} {listed(found)}")
    if commits := _distinct(record.get("commit") for record in runs):
        parts.append(f"commit {listed(commits)}")
    notes = _distinct(record.get("dataset_note") for record in runs)
    return " ".join(f"{told}." for told in ["; ".join(parts), *notes])


def _distinct(values: Iterable[str | None]) -> list[str]:
    return list(dict.fromkeys(value for value in values if value))
