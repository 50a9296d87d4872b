"""`pdlrecover reproduce`: a table or figure by name, or all of them."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table as Grid

from pdlrecover.cli.common import INTERRUPTED, DataDir
from pdlrecover.errors import PlanError
from pdlrecover.experiments.cells import Status, run_cells
from pdlrecover.experiments.collection import Results
from pdlrecover.experiments.document import Document, Table
from pdlrecover.experiments.report import write_report
from pdlrecover.experiments.reproductions import REPRODUCTIONS
from pdlrecover.experiments.scale import FULL, QUICK, Scale

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
    try:
        documents = [
            _reproduce(each, scale, folder, cache, data_dir, workers, console) for each in names
        ]
    except KeyboardInterrupt:
        console.print("\ninterrupted; the same command goes on from what is done")
        raise typer.Exit(INTERRUPTED) from None
    page = write_report(documents, folder / "report.html")
    console.print(f"Page: {page}", soft_wrap=True, markup=False, highlight=False)


def _reproduce(
    name: str,
    scale: Scale,
    folder: Path,
    cache: Path,
    data_dir: Path | None,
    workers: int | None,
    console: Console,
) -> Document:
    """Run what one reproduction needs, write its document, and print it."""
    one = REPRODUCTIONS[name]
    cells = one.cells(scale)
    with Live(f"{name}: {len(cells)} runs", console=console, transient=True) as live:

        def watch(status: Status) -> None:
            left = status.total - status.done
            lines = [f"{name}: {left} of {len(cells)} runs to go", *status.running]
            live.update("\n  ".join(lines[: 2 + (os.cpu_count() or 1)]))

        records = run_cells(cells, cache, data_dir=data_dir, watcher=watch, workers=workers)
        live.update(f"{name}: putting it together")
        document = one.document(scale, Results(records))
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"{name}.json"
    part = place.with_suffix(".part")
    part.write_text(json.dumps(document.record(), indent=1))
    part.replace(place)
    console.rule(document.title, align="left")
    for sentence in document.summary:
        console.print(sentence, markup=False, highlight=False)
    for table in document.tables:
        long = len(table.rows) > SHOWN_ROWS
        console.print(f"{table.title}: {len(table.rows)} rows" if long else _grid(table))
    return document


def _grid(table: Table) -> Grid:
    grid = Grid(title=table.title, title_justify="left")
    for column in table.columns:
        grid.add_column(column)
    for row in table.rows:
        grid.add_row(*("–" if cell is None else str(cell) for cell in row))
    return grid
