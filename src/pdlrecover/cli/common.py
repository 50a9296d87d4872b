"""Shared by several commands: arguments, exit codes, and asking for a passphrase."""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

BAD_INPUT = 2
"""The exit code for input that cannot be used."""
INTERRUPTED = 130
"""The exit code after ctrl-C."""

DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Where the datasets are; ./data if not said.",
        envvar="PDLRECOVER_DATA",
        show_envvar=True,
    ),
]
Folder = Annotated[Path, typer.Argument(help="The peer's own folder.")]
FederationFile = Annotated[Path, typer.Argument(help="The federation file.")]


def exit_when_terminated() -> None:
    """Let SIGTERM end this process as ctrl-C does, so that those it started are ended, too."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(INTERRUPTED))


def ask_passphrase() -> str:
    """Ask for the passphrase of the history."""
    return str(typer.prompt("Passphrase of the history", hide_input=True, err=True))
