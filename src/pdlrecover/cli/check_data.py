"""`pdlrecover peer check-data`: what a peer's data are, before anything is started."""

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pdlrecover.cli.common import Folder
from pdlrecover.errors import DataError

if TYPE_CHECKING:
    from pdlrecover.learning.reading.overview import Overview

SHOWN = 40
"""Classes and columns that are listed, at most."""


def check_data(
    folder: Folder,
    federation: Annotated[
        Path | None,
        typer.Option(help="The federation file: check the data against it, as `peer run` does."),
    ] = None,
) -> None:
    """Read this peer's data and show what was read: samples, classes, ranges of the columns.

    Nothing is sent or stored. Without a federation file it shows what a plan might say of the data.
    """
    _log_to_terminal()
    from pdlrecover.engines.peers.own_data import named, read_own
    from pdlrecover.engines.peers.settings import load_settings
    from pdlrecover.learning.reading.agreed import Agreed
    from pdlrecover.learning.reading.overview import Overview

    settings = load_settings(folder)
    if federation is not None:
        found_in = _checked(folder, federation)
        if isinstance(found_in, str):
            typer.echo(found_in)
        else:
            _show(found_in)
        typer.echo(f"This is what {federation} agrees on; `pdlrecover peer run` takes it.")
        return
    if (name := named(settings.data)) is not None:
        raise DataError(
            f"{name} is dealt out among the peers of a federation; name its file by --federation, "
            "or this peer's own data under [data] in peer.toml"
        )
    found = Overview.of_reading(read_own(settings, folder, Agreed()))
    _show(found)
    typer.echo("A plan for such data has, if all peers' classes occur here:\n")
    for line in _as_plan(found):
        typer.echo(line)


def _checked(folder: Path, federation: Path) -> "Overview | str":
    """Return the data as this peer would train on them, having checked them.

    Of a Flower app, which has its own, it is what the app answered.
    """
    from pdlrecover.engines.peers.federation.federation_file import load_federation
    from pdlrecover.engines.peers.folder import IDENTITY
    from pdlrecover.engines.peers.identity.own_keys import Identity
    from pdlrecover.engines.peers.own_data import load_own
    from pdlrecover.engines.peers.settings import load_settings
    from pdlrecover.learning import Dataset
    from pdlrecover.learning.reading.overview import Overview

    membership = load_federation(federation)
    me = membership.number_of(Identity.load(folder / IDENTITY))
    data = load_own(load_settings(folder), membership, me, folder)
    if not isinstance(data, Dataset):
        return data.in_one_line()
    names: tuple[str | int, ...] = membership.data.classes or tuple(range(data.classes))
    return Overview.of(
        data.name,
        data.train_x,
        [names[number] for number in data.train_y.tolist()],
        columns=membership.data.features,
        classes=names,
    )


def _show(found: "Overview") -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    shape = " × ".join(map(str, found.shape))
    typer.echo(f"{found.place}: {found.samples:,} samples of {shape} numbers\n")
    classes = Table("class", "samples", "share", box=SIMPLE_HEAD, show_edge=False)
    for name, count in found.classes[:SHOWN]:
        classes.add_row(Text(str(name)), f"{count:,}", f"{count / found.samples:.1%}")
    console.print(classes)
    _mention_more(len(found.classes), "classes")
    title = "numbers" if found.columns is None else "column"
    ranges = Table(title, "least", "mean", "most", box=SIMPLE_HEAD, show_edge=False)
    for each in found.ranges[:SHOWN]:
        name = f"{each.name} (constant)" if each.is_constant else each.name
        numbers = (f"{value:.6g}" for value in (each.least, each.mean, each.most))
        ranges.add_row(Text(name), *numbers)
    typer.echo()
    console.print(ranges)
    _mention_more(len(found.ranges), "columns")
    typer.echo()


def _mention_more(count: int, what: str) -> None:
    if count > SHOWN:
        typer.echo(f"… and {count - SHOWN} more {what}")


def _as_plan(found: "Overview") -> list[str]:
    """Return what a plan would say of these data."""
    names = [name for name, _ in found.classes]
    numbers = [name for name in names if type(name) is int and name >= 0]
    numbered = len(numbers) == len(names)
    count = max(numbers) + 1 if numbered else len(names)
    lines = ["[model]", f"shape = {list(found.shape)}", f"classes = {count}", "", "[data]"]
    if not numbered:
        lines.append(f"classes = {_texts(list(map(str, names)))}")
    if found.columns is not None:
        lines.append(f"features = {_texts(list(found.columns))}")
    return lines if lines[-1] != "[data]" else lines[:-2]


def _texts(names: list[str]) -> str:
    return json.dumps(names, ensure_ascii=False)


def _log_to_terminal() -> None:
    """Let how far reading is, and how long it took, go to standard error."""
    logger = logging.getLogger("pdlrecover.data")
    logger.handlers, logger.propagate = [logging.StreamHandler()], False
    logger.setLevel(logging.INFO)
