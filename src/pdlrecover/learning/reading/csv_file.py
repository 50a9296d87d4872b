"""CSV: a line with the columns' names, then one line for each sample; UTF-8, by RFC 4180.

Rules:

- Features are numbers with a decimal point; blanks around a cell are nothing. A cell that is empty,
  or says NA, NaN, null or the like, is missing, and refused.
- Labels that are all whole numbers are read as such (2 and 2.0 alike), others as texts.
- Empty lines are skipped. The file is read in pieces: it takes the memory of its numbers.
"""

import csv
import json
import re
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from pdlrecover.errors import DataError
from pdlrecover.learning.classes import Labels
from pdlrecover.learning.reading.agreed import Agreed
from pdlrecover.learning.reading.reading import Reading, Watch
from pdlrecover.learning.reading.source import Source
from pdlrecover.learning.reading.table import Rows, Table, check_finite, features_of, spelled

PIECE = 4096
"""Lines that are read at once."""
SEPARATORS = {".csv": ",", ".tsv": "\t"}
_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "nil", "-", "?"})
_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.0*)?")
_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")


def read_csv(path: Path, source: Source, agreed: Agreed) -> Reading:
    """Read a CSV file."""
    separator = source.separator or SEPARATORS.get(path.suffix.lower(), ",")
    watch, texts, lines = Watch(path.name), _Texts(), array("q")
    with _opened(path) as file:
        rows = csv.reader(file, delimiter=separator, strict=True)
        names = _header(next(rows, None), path, separator)
        features, label = features_of(names, source, agreed, path.name)
        columns = [spelled(names[place]) for place in features]
        numbers = Rows(len(features))
        for piece in _pieces(rows):
            first = len(lines)
            lines.extend(line for line, _ in piece)
            cells: list[float] = []
            for line, row in piece:
                if len(row) != len(names):
                    raise DataError(
                        f"{path.name}, line {line} has {len(row)} cells, and the first line names "
                        f"{len(names)} columns; mend the line, or quote cells that have "
                        f"{separator!r} in them"
                    )
                chosen = [row[place] for place in features]
                try:
                    cells += map(float, chosen)
                except ValueError:
                    raise _no_number(path, line, columns, chosen) from None
                if "_" in "".join(chosen):  # Python takes it as part of a number
                    raise _no_number(path, line, columns, chosen)
                if not (text := row[label].strip()):
                    raise DataError(
                        f"{path.name}, line {line} has no class: its column "
                        f"{spelled(names[label])!r} is empty; fill it in, or leave the row out"
                    )
                texts.add(spelled(text))
            with np.errstate(over="ignore"):
                values = np.array(cells, np.float32).reshape(-1, len(features))
            check_finite(values, columns, lambda at: f"line {lines[at]}", path.name, first)
            numbers.add(values)
            watch.step(len(lines))
    if not lines:
        raise DataError(f"{path.name} has a line with names and no row; it needs samples")
    watch.end(len(lines))
    return Reading(
        place=path.name,
        samples=Table(tuple(columns), numbers.matrix()),
        labels=texts.labels(),
        where=lambda at: f"line {lines[at]}",
    )


def _pieces(rows: Any) -> Iterator[list[tuple[int, list[str]]]]:
    """Yield lines that are not empty, each with its number in the file, some at once."""
    numbered = ((rows.line_num, row) for row in rows if row)
    while piece := list(islice(numbered, PIECE)):
        yield piece


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open the file as text; what cannot be read is said."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield file
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path.name} is no text in UTF-8 (byte {error.object[error.start]:#x}); save it as "
            "CSV in UTF-8"
        ) from error
    except csv.Error as error:
        raise DataError(f"{path.name} is no CSV file: {error}; write it by a CSV writer") from error


def _header(names: list[str] | None, path: Path, separator: str) -> list[str]:
    if not names or not any(name.strip() for name in names):
        raise DataError(f"{path.name} is empty; its first line must name the columns")
    other = next((sign for sign in ";\t|," if sign != separator and sign in names[0]), None)
    if len(names) == 1 and other:
        raise DataError(
            f"{path.name} has a single column, {names[0][:60]!r}, if cells are separated by "
            f"{separator!r}; write separator = {json.dumps(other)}"
        )
    return names


def _no_number(path: Path, line: int, columns: list[str], cells: list[str]) -> DataError:
    """Return the error for the first cell of a line that is no number."""
    column, cell = next(
        (c, cell) for c, cell in zip(columns, cells, strict=True) if not _is_number(cell)
    )
    where = f"{path.name}, line {line}: the column {column!r}"
    if cell.strip().lower() in _MISSING:
        said = "is empty" if not cell.strip() else f"is missing ({cell.strip()!r})"
        return DataError(f"{where} {said}; fill it in, or leave the row or the column out")
    advice = (
        "write a decimal point"
        if _COMMA.fullmatch(cell.strip())
        else f'write it as a number, or leave the column out by drop = ["{column}"]'
    )
    return DataError(f"{where} has {cell.strip()[:60]!r}, which is no number; {advice}")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


class _Texts:
    """Labels as texts, each text kept once."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._all: list[Any] = []

    def add(self, text: str) -> None:
        """Add a label."""
        self._all.append(self._known.setdefault(text, text))

    def labels(self) -> Labels:
        """Return the labels: whole numbers if all of them are."""
        if all(_WHOLE.fullmatch(text) for text in self._known):
            whole = {text: int(text.partition(".")[0]) for text in self._known}
            return np.fromiter((whole[text] for text in self._all), np.int64, len(self._all))
        return self._all
