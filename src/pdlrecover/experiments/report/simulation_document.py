"""The document of an experiment's results: curves, a table, the ledger, and what they say."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from pdlrecover.engines.ledger import Openings
from pdlrecover.experiments.analysis.comparison import compared, shown_names
from pdlrecover.experiments.analysis.document import Cell, Column, Document, Figure, Series, Table
from pdlrecover.experiments.analysis.format import listed
from pdlrecover.experiments.analysis.promises import above
from pdlrecover.experiments.analysis.results import Mean
from pdlrecover.experiments.analysis.seeds import SeedResults, by_experiment
from pdlrecover.experiments.analysis.summary import facts, headline, key, sentences
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.result import NumberName, RateName, Result, shown_name

CURVES: dict[RateName, str] = {"accuracy": "Accuracy", "attack_success": "Backdoor success"}
HELD_OUT = "Accuracy by the peers, on what they hold out"


@dataclass(frozen=True)
class Measure:
    """A column of numbers: its key and heading, where its values are from, how they are shown."""

    key: str
    heading: str
    of: Callable[[SeedResults, str], Mean | None]
    factor: float = 1
    spread: bool = False
    """The spread over the seeds gets a column of its own."""
    idle: bool = False
    """Left out also where every value is 0."""

    def mean(self, runs: SeedResults, method: str) -> Mean | None:
        """Return a method's value, scaled; None if a seed has none."""
        found = self.of(runs, method)
        if found is None or found.count < len(runs):
            return None
        return Mean(self.factor * found.value, self.factor * found.spread, found.count)


def _at(number: NumberName) -> Callable[[SeedResults, str], Mean | None]:
    return lambda runs, method: runs.mean(method, number)


ABOVE = "attack_success_above_retrain"
MEASURES = (
    Measure("accuracy", "accuracy (%)", _at("accuracy"), 100, spread=True),
    Measure("held_out_accuracy", "accuracy by the peers (%)", SeedResults.held_out_accuracy, 100),
    Measure("attack_success", "backdoor success (%)", _at("attack_success"), 100, spread=True),
    Measure(ABOVE, "backdoor above retrain (points)", above, 100, spread=True),
    Measure("exact_rounds", "exact rounds", SeedResults.exact_rounds),
    Measure("fallback_rounds", "asked for by the guard", _at("fallback_rounds"), idle=True),
    Measure("gradient_evaluations", "gradient evaluations", _at("gradient_evaluations")),
    Measure("seconds", "seconds", SeedResults.seconds),
    Measure("megabytes", "MB sent per peer, on shares", _at("bytes_per_peer"), 1e-6),
    Measure("distance_to_retrain", "distance to retraining", _at("distance_to_retrain")),
)
"""What the table shows; a column without any value is left out."""


def documents_from_result(*results: Result) -> list[Document]:
    """Return the documents of results; those that differ only in their seed make one."""
    return [_document(runs) for runs in by_experiment(results)]


def command(config: Config) -> str:
    """Return the command that runs a config: every flag that is not at its default."""
    defaults = Config().record()
    words = ["pdlrecover", "simulate"]
    for name, value in config.record().items():
        flag = f"--{name.replace('_', '-')}"
        if name == "methods":
            words += [flag, ",".join(value)]
        elif value is True:
            words.append(flag)
        elif value is not None and value != defaults.get(name):
            words += [flag, str(value)]
    return shlex.join(words)


def _document(runs: SeedResults) -> Document:
    commands = "\n".join(command(result.config) for result in runs)
    return Document(
        name=runs.config.dataset,
        title=headline(runs),
        summary=sentences(runs),
        key=key(runs),
        facts=facts(runs),
        comparison=shown_names(compared(runs, commands), runs.config),
        figures=[f for f in _figures(runs, commands) if f.series],
        tables=[shown_names(_table(runs, commands), runs.config)],
        ledger={shown_name(name, runs.config): _opened(runs, name) for name in runs.methods},
        shared=not runs.config.clear,
        note=_origin(runs),
    )


def _figures(runs: SeedResults, commands: str) -> list[Figure]:
    """Return the curves on the test part, then what the peers opened by themselves."""
    known = [
        _figure(runs, title, [runs.curve(name, rate) for name in runs.methods], commands)
        for rate, title in CURVES.items()
    ]
    opened = [runs.held_out_curve(name) for name in runs.methods]
    return [*known, _figure(runs, HELD_OUT, opened, commands)]


def _figure(runs: SeedResults, title: str, lines: Sequence[Series | None], commands: str) -> Figure:
    several = len(runs) > 1
    note = f"Means over {len(runs)} seeds, and one standard deviation to each side."
    return Figure(
        title=title,
        x="round",
        y=f"{title.lower()} (%)",
        series=[
            replace(
                line,
                name=shown_name(line.name, runs.config),
                spread=line.spread if several else None,
            )
            for line in lines
            if line
        ],
        command=commands,
        note=note if several else "",
    )


def _table(runs: SeedResults, commands: str) -> Table:
    columns = [Column(key="method", heading="method")]
    cells: list[list[Cell]] = [list(runs.methods)]
    for measure in MEASURES:
        found = [measure.mean(runs, name) for name in runs.methods]
        if not any(mean is not None and (mean.value or not measure.idle) for mean in found):
            continue
        columns.append(Column(key=measure.key, heading=measure.heading))
        cells.append([None if mean is None else mean.value for mean in found])
        if len(runs) > 1 and measure.spread:
            columns.append(Column(key=f"{measure.key}_spread", heading=f"± {measure.heading}"))
            cells.append([None if mean is None else mean.spread for mean in found])
    kept = [runs.remembered(name) for name in runs.methods]
    if any(kept):
        columns.append(Column(key="remembered", heading="remembered"))
        cells.append([None if each is None else str(each) for each in kept])
    failed = [sum(map(bool, runs.diverged(name))) for name in runs.methods]
    if any(failed):
        columns.append(Column(key="diverged", heading="diverged"))
        several = f" of {len(runs)} seeds" if len(runs) > 1 else ""
        cells.append([(f"{n}{several}" if several else "yes") if n else None for n in failed])
    notes = []
    if any(column.key == "remembered" for column in columns):
        notes.append(
            "Remembered, of the data of the peers that left: the original model 1, a model that "
            "never saw it 0; its ± is a standard error."
        )
    for name in runs.methods:
        reasons = [why for one in runs.entries(name) for why in one.continued or ()]
        notes += [f"{shown_name(name, runs.config)} went on: {why}." for why in reasons]
    if len(runs) > 1:
        notes.append(f"Means over {len(runs)} seeds; ± is else the standard deviation.")
    return Table(
        title="Every number",
        columns=columns,
        rows=[list(row) for row in zip(*cells, strict=True)],
        command=commands,
        note=" ".join(notes),
    )


def _opened(runs: SeedResults, method: str) -> dict[str, Openings]:
    """Return what a method opened; counts are averaged over the seeds, and stay whole numbers."""
    every = [one.opened for one in runs.entries(method)]
    kinds = dict.fromkeys(kind for opened in every for kind in opened)
    found = {kind: [opened[kind] for opened in every if kind in opened] for kind in kinds}
    return {
        kind: Openings(
            openings=round(sum(each.openings for each in some) / len(every)),
            numbers=round(sum(each.numbers for each in some) / len(every)),
            of=some[0].of,
        )
        for kind, some in found.items()
    }


def _origin(runs: SeedResults) -> str:
    """Return the seeds, how it ran, and with which versions."""
    seeds = listed([str(seed) for seed in runs.seeds])
    dealt = "shares were dealt and opened"
    if runs.config.clear:
        dealt = "shares were not dealt (--clear), which gives the same numbers"
    parts = [f"{'Seed' if len(runs.seeds) == 1 else 'Seeds'} {seeds}", dealt]
    for name in ("pdlrecover", "python", "torch", "numpy"):
        if found := _distinct(result.versions.get(name) for result in runs):
            parts.append(f"{name} {listed(found)}")
    if commits := _distinct(result.commit for result in runs):
        parts.append(f"commit {listed(commits)}")
    notes = _distinct(result.dataset_note for result in runs)
    return " ".join(f"{part}." for part in ["; ".join(parts), *notes])


def _distinct(values: Iterable[str | None]) -> list[str]:
    return list(dict.fromkeys(value for value in values if value))
