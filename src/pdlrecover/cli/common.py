"""Shared by several commands: arguments, exit codes, what is printed, and passphrases."""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, cast

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from pdlrecover.engines.events import Observer

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
TensorBoardFolder = Annotated[
    Path | None,
    typer.Option(
        "--tensorboard",
        metavar="DIR",
        help="Write curves for TensorBoard here, as in --tensorboard runs; look at them by "
        "tensorboard --logdir runs.",
        rich_help_panel="Tracking",
    ),
]
MLflowPlace = Annotated[
    str | None,
    typer.Option(
        "--mlflow",
        metavar="URI",
        help="Send runs to MLflow: a server's address, sqlite:///mlflow.db, or a folder, as in "
        "--mlflow http://127.0.0.1:5000.",
        rich_help_panel="Tracking",
    ),
]
On = Annotated[
    str,
    typer.Option(
        metavar="local|auto|HOST:PORT",
        help="Where runs go: this machine, or the nodes of a Ray cluster, which is this machine's "
        "(auto) or has its head there.",
        rich_help_panel="Several machines",
    ),
]
MixedProcessors = Annotated[
    bool,
    typer.Option(
        "--mixed-processors",
        help="Accept nodes whose processor has other instructions than this machine's; the last "
        "bits of results then differ.",
        rich_help_panel="Several machines",
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


def observers(tensorboard: Path | None, mlflow: str | None, **options: Any) -> list["Observer"]:
    """Return who follows a command's runs, by what its options say; the rest are MLflow's."""
    found: list[Observer] = []
    if tensorboard is not None:
        from pdlrecover.tracking import TensorBoard

        found.append(TensorBoard(tensorboard))
    if mlflow is not None:
        from pdlrecover.tracking import MLflow

        found.append(MLflow(mlflow, **options))
    return found


def finish(observers: Sequence["Observer"], wait: float) -> bool:
    """Wait some seconds for observers that send; say whether they have sent everything."""
    sent = [each.close(wait) for each in observers if hasattr(each, "close")]
    return all(sent)


class Unread:
    """Standard output for work that is worth finishing even if its reader has gone.

    After `| head` has closed the pipe, what is printed goes nowhere, and files are still written.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text, if somebody reads."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._go_nowhere()
            return len(text)

    def flush(self) -> None:
        """Write out what was written, if somebody reads."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._go_nowhere()

    def _go_nowhere(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def console_of_work() -> "Console":
    """Return the console of a command that writes files, which outlives its reader."""
    from rich.console import Console

    return Console(file=cast(TextIO, Unread(sys.stdout)))
