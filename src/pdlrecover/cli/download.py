"""`pdlrecover download`: fetch a dataset, with a progress bar."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TransferSpeedColumn,
)

from pdlrecover.learning import download as fetch
from pdlrecover.learning.files import data_folder

BUNDLED = "digits"
"""The dataset that needs no download."""


def download(
    name: Annotated[str, typer.Argument(help="mnist, fashion-mnist or har.")],
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Where it goes; ./data if not said.", envvar="PDLRECOVER_DATA", show_envvar=True
        ),
    ] = None,
) -> None:
    """Fetch a dataset from where it is published, and check it."""
    console = Console()
    if name == BUNDLED:
        console.print(f"{name} are bundled: they come with this package, and nothing is fetched")
        return
    said = TextColumn("{task.description}", markup=False)
    columns = said, BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, console=console) as bars:
        tasks: list[TaskID] = []

        def show(done: int, size: int) -> None:
            if not tasks:
                tasks.append(bars.add_task(name, total=None))
            bars.update(tasks[0], completed=done, total=size or None)

        fetch(name, data_dir, show)
    console.print(f"{name} is in {data_folder(data_dir)}", soft_wrap=True, markup=False)
