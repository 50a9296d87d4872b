"""Progress in the terminal: a bar for each method, or lines where it is no terminal."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, Self

import typer
from rich.console import Console
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

if TYPE_CHECKING:
    from pdlrecover.experiments.batch.cache import Status, Watcher

LINE_SECONDS = 5.0
"""Where it is no terminal, a method that takes longer has a line every so often."""
QUIET_SECONDS = 30.0
"""Where it is no terminal, several runs have a line at least this often, with what they do."""


class Shown(Protocol):
    """Progress that is shown between entering and leaving it."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def start(self, name: str, rounds: int) -> None:
        """Show that a method has begun."""

    def step(self, name: str, round: int, accuracy: float | None) -> None:
        """Show that a round is done; the accuracy is the latest measured."""

    def end(self, name: str) -> None:
        """Show that a method is done."""


def shown(console: Console, first: str) -> Shown:
    """Return the progress that suits this console; `first` is said before the first method."""
    kind = Bars if console.is_terminal else Lines
    return kind(console, first)


def reached(accuracy: float | None) -> str:
    """Return the accuracy as it is shown, as wide whether it is known or not."""
    return "accuracy   –  " if accuracy is None else f"accuracy {100 * accuracy:4.1f}%"


class Bars:
    """One bar for each method, with the accuracy as it is measured."""

    def __init__(self, console: Console, first: str = "") -> None:
        self._first = first
        self._progress = Progress(
            TextColumn("{task.description:>20}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[accuracy]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def start(self, name: str, rounds: int) -> None:
        """Show a new bar."""
        if self._first:
            self._progress.console.print(self._first, soft_wrap=True, markup=False, highlight=False)
            self._first = ""
        self._tasks[name] = self._progress.add_task(name, total=rounds, accuracy=reached(None))

    def step(self, name: str, round: int, accuracy: float | None) -> None:
        """Move a bar on."""
        task = self._tasks[name]
        self._progress.update(task, completed=round, accuracy=reached(accuracy))

    def end(self, name: str) -> None:
        """Fill a bar."""
        task = self._tasks[name]
        done = self._progress.tasks[task].completed
        self._progress.update(task, total=max(done, 1), completed=max(done, 1))


class Lines:
    """A line when a method begins, when it has ended, and every few seconds; each is written out.

    So a log file, or a pipe, shows at any time how far it is.
    """

    def __init__(
        self, console: Console, first: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console, self._first, self._clock = console, first, clock
        self._rounds = self._done = 0
        self._accuracy: float | None = None
        self._began = self._said = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def start(self, name: str, rounds: int) -> None:
        """Say that a method has begun."""
        if self._first:
            self._say(self._first)
            self._first = ""
        self._rounds, self._done, self._accuracy = rounds, 0, None
        self._began = self._said = self._clock()
        self._say(f"{name}: begins")

    def step(self, name: str, round: int, accuracy: float | None) -> None:
        """Say how far a method is, if that was not said a moment ago."""
        self._done, self._accuracy = round, accuracy
        if self._clock() - self._said >= LINE_SECONDS:
            self._said = self._clock()
            self._say(f"{name}: {round} of {self._rounds} rounds, {reached(accuracy)}")

    def end(self, name: str) -> None:
        """Say that a method has ended."""
        seconds = self._clock() - self._began
        what = f"{self._done} rounds, {reached(self._accuracy)}, {seconds:.1f} s"
        self._say(f"{name}: done, {what}")

    def _say(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, markup=False, highlight=False)


def watcher_of_runs(
    name: str, live: Live, console: Console, clock: Callable[[], float] = time.monotonic
) -> "Watcher":
    """Return what shows how far the runs are: all at once, so that common ones are run once.

    What is no terminal gets a line for every run that is done, and for what long ones do meanwhile.
    """
    begun = last = clock()
    said = -1

    def watch(status: "Status") -> None:
        nonlocal said, last
        now = clock()
        gone = timedelta(seconds=round(now - begun))
        line = f"{name}: {status.done} of {status.total} runs done, {gone} gone"
        if console.is_terminal:
            lines = [line, *status.running]
            live.update(Text("\n  ".join(lines[: max(2, console.height - 2)])))
        elif status.done > said or now - last >= QUIET_SECONDS:
            said, last, quiet = status.done, now, status.done == said
            typer.echo("; ".join([line, *status.running]) if quiet else line, err=True)

    return watch
