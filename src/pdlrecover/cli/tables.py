"""Tables of documents in the terminal: the same rows, and numbers shown as on the page.

Nothing is cut: cells and headings break between words, and names of variants at `:` and `+`. A
comparison that is too wide leaves out the columns that are least needed, one that is too long its
last rows, and it says so. It takes at most `WIDTH` characters.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from pdlrecover.experiments.analysis.cells import numeric, places, shown, without_gaps
from pdlrecover.experiments.analysis.comparison import (
    compared,
    shown_names,
    standing_out,
)
from pdlrecover.experiments.analysis.document import Table
from pdlrecover.experiments.analysis.seeds import SeedResults
from pdlrecover.experiments.analysis.summary import divergences, headline
from pdlrecover.experiments.experiment.result import Result

WIDTH = 100
GAP = 2
"""Blanks between columns; 1 where it is narrow."""
SHOWN_ROWS = 20
"""Rows of a comparison; the others are on the page."""
LEAST = (
    "worst",
    "gradients",
    "held_out_accuracy",
    "settings",
    "seconds",
    "exact_rounds",
    "megabytes",
)
"""The columns that go first where there is no room, by their keys."""
NOBODY = "Nobody was removed; --malicious or --leavers says how many are to be."


class Comparison:
    """How a comparison is printed: the table, then its caption and other notes."""

    def __init__(self, table: Table, *notes: str, title: str | None = None) -> None:
        self._table, self._title = table, title or table.title
        self._notes = [note for note in (table.note, *notes) if note]

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Yield the table in the width that there is, and the notes below it."""
        width = min(WIDTH, options.max_width)
        table, notes = replace(self._table, title=self._title), list(self._notes)
        if len(table.rows) > SHOWN_ROWS:
            notes.insert(0, f"{len(table.rows) - SHOWN_ROWS} more rows are on the page.")
            table = replace(table, rows=table.rows[:SHOWN_ROWS])
        gone, best = [], standing_out(self._table)
        for key in LEAST:
            if fitted(table, width, best) is not None:
                break
            if key in without_gaps(table).keys:
                gone.append(table.headings[table.keys.index(key)])
                table = without(table, key)
        if gone:
            notes.insert(0, f"On the page only: {', '.join(gone)}.")
        yield fitted(table, width, best) or Text(f"{len(table.rows)} rows, on the page")
        yield Text("\n".join(line for note in notes for line in _wrapped(note, width)))


def results_table(*results: Result, name: str = "") -> Comparison:
    """Return what each method reached and what it cost, best first; and which diverged, and why.

    The results differ in nothing but the seed: the table has means, and ± one standard deviation.
    A name is put before the title, to tell one table from another.
    """
    runs = SeedResults(results)
    title = f"{name}: {headline(runs)}" if name else headline(runs)
    table = shown_names(compared(runs, ""), runs.config)
    nobody = not runs.config.removed and len(runs.methods) > 1
    return Comparison(table, *divergences(runs), *([NOBODY] if nobody else []), title=title)


def without(table: Table, key: str) -> Table:
    """Return a table without a column."""
    place = table.keys.index(key)
    rows = [[*row[:place], *row[place + 1 :]] for row in table.rows]
    columns = [column for column in table.columns if column.key != key]
    return replace(table, columns=columns, rows=rows)


def fitted(table: Table, width: int, best: str | None = None) -> Grid | None:
    """Return a table whose cells break only between words, or None if that is too wide.

    The row of the best method, if one is given, stands out.
    """
    table = without_gaps(table)
    decimals = [places(table, column) for column in range(len(table.columns))]
    rows = [
        [shown(cell, digits) for cell, digits in zip(row, decimals, strict=True)]
        for row in table.rows
    ]
    columns = [list(column) for column in zip(table.headings, *rows, strict=True)]
    least = [max(map(cell_len, _words(" ".join(each))), default=0) for each in columns]
    most = [max(map(cell_len, each)) for each in columns]
    gap = next((g for g in (GAP, 1) if sum(least) + g * (len(least) - 1) <= width), None)
    if gap is None:
        return None
    room = width - sum(least) - gap * (len(least) - 1)
    wanted = sum(most) - sum(least)
    grid = Grid(
        title=Text(table.title),
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, gap - 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    widths = []
    for place, (heading, low, high) in enumerate(zip(table.headings, least, most, strict=True)):
        more = high - low if wanted <= room else (high - low) * room // wanted
        if place == 0:  # a name is folded last
            more = min(high - low, room)
            room, wanted = room - more, wanted - (high - low)
        widths.append(low + more)
        side = "right" if numeric(table, place) else "left"
        grid.add_column(Text(heading), width=low + more, justify=side)  # type: ignore[arg-type]
    for row in rows:
        cells = ("\n".join(_wrapped(text, w)) for text, w in zip(row, widths, strict=True))
        grid.add_row(*map(Text, cells), style="bold" if row[0] == best else None)
    return grid


def _words(text: str) -> list[str]:
    """Return the parts between which a text may break: at blanks, and after `:` and `+`."""
    return [part for part in re.split(r" |(?<=\w[:+])(?=\w)", text) if part]


def _wrapped(text: str, width: int) -> list[str]:
    """Return a text in lines, as long as fit."""
    lines = [""]
    for match in re.finditer(r"(.+?)( |(?<=\w[:+])(?=\w)|$)", text):
        if lines[-1] and cell_len(lines[-1] + match[1]) > width:
            lines.append("")
        lines[-1] += match[0]
    return [line.rstrip() for line in lines]
