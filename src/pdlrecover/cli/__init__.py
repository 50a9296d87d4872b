"""The command line: `pdlrecover …`."""

import os
import sys
from typing import Annotated, NoReturn

import typer

from pdlrecover.cli.common import BAD_INPUT
from pdlrecover.cli.lazy import LazyCommand, lazy_group
from pdlrecover.errors import PDLRecoverError

COMMANDS = {
    "demo": LazyCommand("demo", "pdlrecover demo --out out/demo"),
    "plan": LazyCommand(
        "plan", "pdlrecover plan --peers 200 --colluders 66 --dropouts 60 --liars 5"
    ),
    "simulate": LazyCommand(
        "simulate",
        "pdlrecover simulate --dataset mnist --data-dir data --peers 200 --malicious 40 "
        "--rounds 1000 --methods retrain,pdlrecover --out out/mnist",
    ),
    "download": LazyCommand("download", "pdlrecover download mnist --data-dir data"),
    "reproduce": LazyCommand("reproduce", "pdlrecover reproduce all --quick"),
    "report": LazyCommand("report", "pdlrecover report out/mnist out/har --out both.html"),
}
PEER_COMMANDS = {
    "init": LazyCommand(
        "peer_files",
        "pdlrecover peer init hospital-a --name hospital-a "
        "--address hospital-a.example.org:7400 --key-file /media/stick/hospital-a.key",
    ),
    "federate": LazyCommand(
        "peer_files",
        "pdlrecover peer federate a.txt b.txt c.txt --plan plan.toml --out federation.toml",
    ),
    "sign": LazyCommand("peer_files", "pdlrecover peer sign federation.toml hospital-a"),
    "compare": LazyCommand("peer_files", "pdlrecover peer compare federation.toml theirs.toml"),
    "check-evidence": LazyCommand(
        "evidence", "pdlrecover peer check-evidence federation.toml hospital-a/evidence/1.bin"
    ),
    "check-data": LazyCommand(
        "check_data", "pdlrecover peer check-data hospital-a --federation federation.toml"
    ),
    "run": LazyCommand("peer_run", "pdlrecover peer run federation.toml hospital-a"),
    "status": LazyCommand("peer_status", "pdlrecover peer status hospital-a"),
    "doctor": LazyCommand(
        "doctor", "pdlrecover peer doctor hospital-a --federation federation.toml"
    ),
    "propose-removal": LazyCommand(
        "removals",
        "pdlrecover peer propose-removal hospital-a --peers hospital-e --reason malicious",
    ),
    "approve": LazyCommand("removals", "pdlrecover peer approve hospital-b 3f9a1c0d"),
    "recover": LazyCommand("removals", "pdlrecover peer recover hospital-a"),
    "fuzz": LazyCommand("fuzz", "pdlrecover peer fuzz --messages 1000000 --signed 100000"),
    "chaos": LazyCommand("chaos", "pdlrecover peer chaos --peers 7 --duration 600 --seed 3"),
}
HISTORY_COMMANDS = {"verify": LazyCommand("history", "pdlrecover history verify hospital-a")}

app = typer.Typer(
    cls=lazy_group(COMMANDS),
    help="Repair models that were trained together, without seeing anyone's update.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
GROUPS = (
    ("peer", PEER_COMMANDS, "A real peer: its keys, its federation, its work, and removals."),
    ("history", HISTORY_COMMANDS, "What a peer has stored."),
)
for name, commands, summary in GROUPS:
    group = typer.Typer(cls=lazy_group(commands), help=summary, no_args_is_help=True)
    group.callback()(lambda: None)
    app.add_typer(group, name=name)


@app.callback(invoke_without_command=True)
def pdlrecover_command(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Repair models that were trained together, without seeing anyone's update."""
    if version:
        from pdlrecover import __version__

        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line; what goes wrong on purpose becomes one sentence and exit code 2."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed: `pdlrecover … >&-`
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (as long as we run)
    try:
        app(standalone_mode=True)
    except PDLRecoverError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or 'the operating system'}: {error.strerror or error}")
    except MemoryError:
        fail("there is not enough memory for this; make it smaller")
    finally:
        _flush()


def _flush() -> None:
    """Say what could not be printed: Python would only mention it, after all else.

    An error that nobody expected is said by Python, and nothing instead of it.
    """
    expected = isinstance(sys.exception(), SystemExit | None)
    try:
        sys.stdout.flush()
    except OSError as error:
        gone = isinstance(error, BrokenPipeError)  # whoever read it has gone, and needs no word
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (as long as we run)
        if expected and not gone:
            fail(f"standard output: {error.strerror}")


def fail(message: str) -> NoReturn:
    """Say what is wrong, and leave."""
    from rich.console import Console

    console = Console(stderr=True, soft_wrap=True)
    console.print(f"error: {message}", style="red", highlight=False, markup=False)
    sys.exit(BAD_INPUT)
