"""`pdlrecover report`: rebuilds the report page from stored results."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pdlrecover.experiments.report.html import write_report
from pdlrecover.experiments.report.load import read_documents


def report(
    results: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR…",
            help="Folders with a result.json or document.json, or such files themselves.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The page; report.html in the first folder if not said."),
    ] = None,
) -> None:
    """Write a page of results: curves, tables, and who saw what, in one file without network.

    Results that differ only in their seed are put together: means, and the spread as bands.
    """
    documents = read_documents(results)
    first = results[0] if results[0].is_dir() else results[0].parent
    page = first / "report.html" if out is None else out
    written = write_report(documents, page / "report.html" if page.is_dir() else page)
    Console().print(f"Report: {written}", soft_wrap=True, markup=False, highlight=False)
