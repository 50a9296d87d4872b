"""How a table's cells are shown, on the page and in the terminal.

- What is not there, or is not finite, is a dash. A column of nothing else is left out.
- A cell that begins with a number, as `0.31 ± 0.05` does, counts as that number: it is set and
  sorted as one.
- Numbers of one column have the same decimals: one for percentages; else as many as give the
  typical number three digits, but no more than two from 0.1 on, and no more than were given.
"""

import math
import re
from dataclasses import replace
from decimal import Decimal

from pdlrecover.experiments.analysis.document import Cell, Table

DASH = "–"
NUMBER = re.compile(r"[+-]?[\d,]*\.?\d+(?=$| ± | \()")


def missing(cell: Cell) -> bool:
    """Say whether there is nothing to show."""
    return cell is None or (isinstance(cell, float) and not math.isfinite(cell))


def value(cell: Cell) -> float | int | None:
    """Return the number that a cell is or begins with, if it is none but a name's or a word's."""
    if isinstance(cell, str):
        found = NUMBER.match(cell)
        return float(found[0].replace(",", "")) if found else None
    return None if missing(cell) else cell


def numeric(table: Table, column: int) -> bool:
    """Say whether a column is one of numbers: it has some, and nothing else."""
    there = [row[column] for row in table.rows if not missing(row[column])]
    return bool(there) and all(value(cell) is not None for cell in there)


def places(table: Table, column: int) -> int:
    """Return how many decimals the plain numbers of a column get."""
    cells = [row[column] for row in table.rows]
    numbers = [abs(c) for c in cells if isinstance(c, float | int) and math.isfinite(c)]
    if all(float(number).is_integer() for number in numbers):
        return 0
    if "%" in table.headings[column]:
        return 1
    typical = sorted(number for number in numbers if number)[sum(map(bool, numbers)) // 2]
    given = max(-int(Decimal(str(number)).as_tuple().exponent) for number in numbers)
    most = 2 if typical >= 0.1 else 6
    return max(0, min(most, given, 2 - math.floor(math.log10(typical))))


def shown(cell: Cell, decimals: int) -> str:
    """Return a cell's text; ± does not stand alone at the end of a line."""
    if missing(cell):
        return DASH
    if isinstance(cell, str):
        return cell.replace(" ± ", "\u00a0±\u00a0")
    return f"{cell:z,.{decimals}f}"


def without_gaps(table: Table) -> Table:
    """Return the table without the columns in which nothing is there."""
    kept = [i for i in range(len(table.columns)) if not all(missing(row[i]) for row in table.rows)]
    if not table.rows or len(kept) == len(table.columns):
        return table
    return replace(
        table,
        columns=[table.columns[i] for i in kept],
        rows=[[row[i] for i in kept] for row in table.rows],
    )
