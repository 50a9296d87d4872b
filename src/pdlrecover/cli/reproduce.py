"""`pdlrecover reproduce`: a table or figure by name, or all of them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from pdlrecover.cli.common import INTERRUPTED, DataDir, MixedProcessors, On
from pdlrecover.cli.progress import watcher_of_runs
from pdlrecover.cli.tables import Comparison, fitted
from pdlrecover.cluster import LOCAL
from pdlrecover.errors import ClusterError, DataError, PDLRecoverError, PlanError, RecordError
from pdlrecover.experiments.analysis.comparison import standing_out
from pdlrecover.experiments.analysis.document import Document
from pdlrecover.experiments.analysis.format import listed
from pdlrecover.experiments.analysis.results import Results, origin
from pdlrecover.experiments.batch.cache import cached, run_cells
from pdlrecover.experiments.batch.recorded import Recorded, lacking
from pdlrecover.experiments.batch.run_numbers import NAME, add_runs, rounded
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.result import POISONED, Result
from pdlrecover.experiments.report.html import write_report
from pdlrecover.experiments.reproductions import REPRODUCTIONS, document_of_records
from pdlrecover.experiments.reproductions.scale import FULL, QUICK, Scale
from pdlrecover.files import make_folder, read_json, write_json
from pdlrecover.learning.files import DATA_VARIABLE, data_folder, is_absent
from pdlrecover.recovery.suggestions import did_you_mean

ALL = "all"
NAMES = "\n".join(f"- `{each.name}`: {each.title}" for each in REPRODUCTIONS.values())
EPILOG = f"Names:\n\n{NAMES}\n\n"
SHOWN_ROWS = 40
"""Longer tables, and those in which a word would be cut, are left to the page."""


def reproduce(
    name: Annotated[str, typer.Argument(help=f"{ALL}, or one of {', '.join(REPRODUCTIONS)}.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version on the bundled digits, in minutes.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Where documents and the page go; out/NAME if not said.")
    ] = None,
    cache: Annotated[Path, typer.Option(help="Where finished runs are kept.")] = Path("out/cache"),
    recorded: Annotated[
        bool | None,
        typer.Option(
            "--recorded/--fresh",
            help=f"Take finished runs' numbers from {NAME} in --out, or run everything; by default "
            "they are taken if --out is said and has them.",
        ),
    ] = None,
    documents: Annotated[
        bool, typer.Option("--documents", help="Only write documents of recorded runs; run none.")
    ] = False,
    data_dir: DataDir = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="How many runs at a time; as many as cores.")
    ] = None,
    on: On = LOCAL,
    mixed_processors: MixedProcessors = False,
) -> None:
    """Reproduce a table or figure of the paper, or one of ours, by its name.

    The full versions take hours. Interrupt them as you like: what is done is not done again, and
    what is complete is written.

    Example: pdlrecover reproduce table-3 --data-dir data
    """
    if name != ALL and name not in REPRODUCTIONS:
        known = [ALL, *REPRODUCTIONS]
        meant = did_you_mean(name, known)
        raise PlanError(f"nothing here is called {name!r}; {meant}known are {', '.join(known)}")
    names = list(REPRODUCTIONS) if name == ALL else [name]
    scale = QUICK if quick else FULL
    folder = out or Path("out") / (f"{name}-quick" if quick else name)
    _check_scale(folder, scale)
    console = Console()
    taken = documents or (out is not None if recorded is None else recorded)
    records = Recorded.read(folder) if taken else Recorded()
    cells = {each: REPRODUCTIONS[each].cells(scale) for each in names}
    if documents:
        _write_documents(cells, scale, records, folder, console)
        return
    every = [cell for some in cells.values() for cell in some]
    _check_data(every, cached(every, cache, records), data_dir)
    make_folder(folder, RecordError)
    if said := _taken(every, records):
        console.print(f"{said} {folder / NAME}; --fresh runs all.", soft_wrap=True, markup=False)
    stopped: KeyboardInterrupt | PDLRecoverError | None = None
    made: list[Document] = []
    with Live(console=console, transient=True) as live:
        try:
            watcher = watcher_of_runs(name, live, console)
            run_cells(
                every,
                cache,
                recorded=records,
                data_dir=data_dir,
                watcher=watcher,
                workers=workers,
                on=on,
                mixed_processors=mixed_processors,
            )
        except (KeyboardInterrupt, PlanError, ClusterError) as error:
            stopped = error
        for each, some in cells.items():
            live.update(Text(f"{each}: putting it together"))
            found = [result for result in cached(some, cache, records) if result is not None]
            if len(found) < len(some) or (stopped and not some):
                continue
            try:
                made.append(_documented(each, scale, found, folder))
                if found:
                    add_runs(found, folder)
            except (KeyboardInterrupt, PDLRecoverError) as error:
                if isinstance(stopped, KeyboardInterrupt):
                    raise
                stopped = error
    _show(made, folder, console)
    if isinstance(stopped, KeyboardInterrupt):
        console.print("\ninterrupted; the same command goes on from what is done")
        raise typer.Exit(INTERRUPTED)
    if stopped:
        raise stopped


def _check_data(
    configs: Sequence[Config], done: Sequence[Result | None], data_dir: Path | None
) -> None:
    """Raise, in one sentence, if no run that is to be done has its data."""
    wanted = [config.dataset for config, found in zip(configs, done, strict=True) if found is None]
    lacking = [name for name in dict.fromkeys(wanted) if is_absent(name, data_dir)]
    if wanted and set(wanted) == set(lacking):
        raise DataError(
            f"{listed(lacking)} {'is' if len(lacking) == 1 else 'are'} not in the data folder "
            f"{data_folder(data_dir).absolute()}; get {'it' if len(lacking) == 1 else 'each'} with "
            f"`pdlrecover download NAME`, name the folder by --data-dir or {DATA_VARIABLE}, or "
            "give --quick, which needs no data"
        )


def _taken(configs: Sequence[Config], recorded: Recorded) -> str:
    """Say how much of these runs is recorded; nothing if nothing is."""
    parts = {(replace(c, methods=()), name) for c in configs for name in (POISONED, *c.methods)}
    gone = {(replace(c, methods=()), name) for c in configs for name in recorded.missing(c)}
    count = len(parts) - len(gone)
    return f"{count} of {len(parts)} trainings and recoveries are taken from" if count else ""


def _write_documents(
    cells: dict[str, list[Config]], scale: Scale, records: Recorded, folder: Path, console: Console
) -> None:
    """Write documents of what is recorded; raise for those of which that is too little."""
    made, missing = [], []
    for name, some in cells.items():
        path = folder / f"{name}.json"
        found = document_of_records(REPRODUCTIONS[name], scale, records, _earlier(path))
        if found is None:
            missing.append(f"{name} ({lacking(some, records) or 'it is computed, not recorded'})")
            continue
        write_json(path, found.record(), RecordError, indent=1)
        made.append(found)
    _show(made, folder, console)
    if missing:
        raise PlanError(f"not written, because runs are not recorded: {'; '.join(missing)}")


def _show(documents: Sequence[Document], folder: Path, console: Console) -> None:
    """Print the documents, and make a page of them."""
    for document in documents:
        _print(document, console)
    if documents:
        page = write_report(documents, folder / "report.html")
        console.print(f"Page: {page}", soft_wrap=True, markup=False, highlight=False)


def _documented(name: str, scale: Scale, results: list[Result], folder: Path) -> Document:
    """Make a document of its runs' rounded numbers, and write it down."""
    results = [rounded(result) for result in results]
    path = folder / f"{name}.json"
    document = REPRODUCTIONS[name].document(scale, Results(results), _earlier(path))
    document = replace(document, note=document.note or origin(results))
    make_folder(folder, RecordError)
    write_json(path, document.record(), RecordError, indent=1)
    return document


def _earlier(path: Path) -> Document | None:
    """Return a document that is there, if it can be read."""
    try:
        return Document.from_record(read_json(path, RecordError)) if path.exists() else None
    except RecordError:
        return None


def _check_scale(folder: Path, scale: Scale) -> None:
    """Raise if the folder has a document of the other scale, which is not to be mixed with this."""
    for path in sorted(folder.glob("*.json")):
        found = read_json(path, RecordError, damaged="delete it, or give another --out")
        if not isinstance(found, dict) or "tables" not in found:
            continue  # it is no document
        parts = [*found["tables"], *found.get("figures", [])]
        commands = [str(part.get("command", "")) for part in parts if isinstance(part, dict)]
        small = {QUICK.flags.strip() in command.split() for command in commands}
        if (scale is not QUICK) in small:
            theirs, mine = ("full", "quick") if scale is QUICK else ("quick", "full")
            raise PlanError(
                f"{path} is a {theirs} reproduction, and a {mine} one was asked for; give another "
                "--out, so that they are not mixed"
            )


def _print(document: Document, console: Console) -> None:
    """Print a document's sentences, its comparison, and the other tables that are small enough."""
    console.rule(Text(document.title), align="left")
    for sentence in document.summary:
        console.print(sentence, markup=False, highlight=False)
    if document.comparison is not None:
        console.print(Comparison(document.comparison))
    best = None if document.comparison is None else standing_out(document.comparison)
    for table in document.tables:
        columns, rows = len(table.columns), len(table.rows)
        grid = fitted(table, console.width, best) if rows <= SHOWN_ROWS else None
        console.print(
            grid or f"{table.title}: {rows} rows of {columns} columns, on the page", markup=False
        )
