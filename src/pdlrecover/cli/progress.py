"""Progress in the terminal: one bar for each method, with the accuracy as it is measured."""

from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Bars:
    """The progress of an experiment."""

    def __init__(self, console: Console) -> None:
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
        self._tasks[name] = self._progress.add_task(name, total=rounds, accuracy="accuracy   –  ")

    def step(self, name: str, round: int, accuracy: float | None) -> None:
        """Move a bar on."""
        text = "accuracy   –  " if accuracy is None else f"accuracy {100 * accuracy:4.1f}%"
        self._progress.update(self._tasks[name], completed=round, accuracy=text)

    def end(self, name: str) -> None:
        """Fill a bar."""
        task = self._tasks[name]
        done = self._progress.tasks[task].completed
        self._progress.update(task, total=max(done, 1), completed=max(done, 1))
