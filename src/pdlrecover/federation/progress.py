"""Progress bars: in a terminal, or below a notebook's cell, and nowhere else.

Rules: a terminal's bar goes to standard error, and only if that is a terminal; so nothing is ever
written to a file or a pipe. A notebook's bar needs no widgets.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pdlrecover.engines.simulation import Observer
from pdlrecover.recovery.requests import Stepped


@contextmanager
def watched(
    title: str, rounds: int, observer: Observer | None, *, show: bool
) -> Iterator[Observer | None]:
    """Yield an observer that moves a bar on, and tells the given one, if there is one."""
    display = _notebook() if show else None
    if display is not None:
        with _in_notebook(display, title, rounds) as move:
            yield _both(move, observer)
    elif (
        show and sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    ):
        with _in_terminal(title, rounds) as move:
            yield _both(move, observer)
    else:
        yield observer


def _both(move: Callable[[], None], observer: Observer | None) -> Observer:
    def step(news: Stepped) -> None:
        move()
        if observer is not None:
            observer(news)

    return step


@contextmanager
def _in_terminal(title: str, rounds: int) -> Iterator[Callable[[], None]]:
    from rich.console import Console
    from rich.errors import LiveError
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=24))
    ending = (MofNCompleteColumn(), TextColumn("rounds"), TimeElapsedColumn())
    bars = Progress(*columns, *ending, console=Console(stderr=True))
    task = bars.add_task(title, total=rounds)

    def move() -> None:
        done = bars.tasks[task].completed + 1
        bars.update(task, completed=done, total=max(done, rounds))

    with suppress(LiveError):  # the caller shows a bar already
        bars.start()
    try:
        yield move
    finally:
        bars.stop()


def _notebook() -> Any:
    """Return what shows things below a notebook's cell, if this runs in one."""
    found = sys.modules.get("IPython")
    shell = found.get_ipython() if found is not None else None
    if shell is None or type(shell).__name__ != "ZMQInteractiveShell":
        return None
    from IPython.display import display

    return display


@contextmanager
def _in_notebook(display: Any, title: str, rounds: int) -> Iterator[Callable[[], None]]:
    done = 0
    handle = display(_Bar(title, 0, rounds), display_id=True)

    def move() -> None:
        nonlocal done
        done += 1
        if done % max(1, rounds // 100) == 0 or done >= rounds:
            handle.update(_Bar(title, done, max(done, rounds)))

    yield move


class _Bar:
    """A bar as a notebook shows it."""

    def __init__(self, title: str, done: int, rounds: int) -> None:
        self._title, self._done, self._rounds = title, done, rounds

    def _repr_html_(self) -> str:
        return (
            f'<progress value="{self._done}" max="{self._rounds}"></progress> '
            f"{self._title}: {self._done} of {self._rounds} rounds"
        )

    def __repr__(self) -> str:
        return f"{self._title}: {self._done} of {self._rounds} rounds"
