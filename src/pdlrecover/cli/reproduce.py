"""`pdlrecover reproduce`: a table or figure by name, or all of them."""

import json
import os
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table as Grid

from pdlrecover.cli.common import INTERRUPTED, DataDir
from pdlrecover.errors import PlanError
from pdlrecover.experiments.cells import Status, run_cells
from pdlrecover.experiments.collection import Results, origin
from pdlrecover.experiments.config import Config
from pdlrecover.experiments.document import Document, Table
from pdlrecover.experiments.report import write_report
from pdlrecover.experiments.reproductions import REPRODUCTIONS
from pdlrecover.experiments.run import Record
from pdlrecover.experiments.scale import FULL, QUICK

ALL = "all"
SHOWN_ROWS = 40
"""Longer tables are left to the page."""


def reproduce(
    name: Annotated[str, typer.Argument(help=f"{ALL}, or one of {', '.join(REPRODUCTIONS)}.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version on the bundled digits, in minutes.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Where documents and the page go; out/NAME if not said.")
    ] = None,
    cache: Annotated[Path, typer.Option(help="Where finished runs are kept.")] = Path("out/cache"),
    data_dir: DataDir = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="How many runs at a time; as many as cores.")
    ] = None,
) -> None:
    """Reproduce a table or figure of the paper, or one of ours, by its name.

    The full versions take hours. Interrupt them as you like: what is done is not done again.
    """
    if name != ALL and name not in REPRODUCTIONS:
        known = ", ".join([ALL, *REPRODUCTIONS])
        raise PlanError(f"nothing here is called {name!r}; known are {known}")
    names = list(REPRODUCTIONS) if name == ALL else [name]
    scale = QUICK if quick else FULL
    folder = out or Path("out") / (f"{name}-quick" if quick else name)
    console = Console()
    cells = {each: REPRODUCTIONS[each].cells(scale) for each in names}
    try:
        with Live(console=console, transient=True) as live:
            records = _run(name, cells, live, cache=cache, data_dir=data_dir, workers=workers)
            documents = []
            for each, found in records.items():
                live.update(f"{each}: putting it together")
                document = REPRODUCTIONS[each].document(scale, Results(found))
                documents.append(replace(document, note=origin(found)))
                _write(documents[-1], folder)
    except KeyboardInterrupt:
        console.print("\ninterrupted; the same command goes on from what is done")
        raise typer.Exit(INTERRUPTED) from None
    for document in documents:
        _print(document, console)
    page = write_report(documents, folder / "report.html")
    console.print(f"Page: {page}", soft_wrap=True, markup=False, highlight=False)


def _run(
    name: str,
    cells: dict[str, list[Config]],
    live: Live,
    *,
    cache: Path,
    data_dir: Path | None,
    workers: int | None,
) -> dict[str, list[Record]]:
    """Run all cells at once, so that those which several have in common are run once."""

    def watch(status: Status) -> None:
        lines = [f"{name}: {status.total - status.done} runs to go", *status.running]
        live.update("\n  ".join(lines[: 2 + (os.cpu_count() or 1)]))

    every = [cell for some in cells.values() for cell in some]
    records = iter(run_cells(every, cache, data_dir=data_dir, watcher=watch, workers=workers))
    return {each: list(islice(records, len(some))) for each, some in cells.items()}


def _write(document: Document, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"{document.name}.json"
    part = place.with_suffix(".part")
    part.write_text(json.dumps(document.record(), indent=1))
    part.replace(place)


def _print(document: Document, console: Console) -> None:
    console.rule(document.title, align="left")
    for sentence in document.summary:
        console.print(sentence, markup=False, highlight=False)
    for table in document.tables:
        long = len(table.rows) > SHOWN_ROWS
        console.print(f"{table.title}: {len(table.rows)} rows" if long else _grid(table))


def _grid(table: Table) -> Grid:
    grid = Grid(title=table.title, title_justify="left")
    for column in table.columns:
        grid.add_column(column)
    for row in table.rows:
        grid.add_row(*("–" if cell is None else str(cell) for cell in row))
    return grid
