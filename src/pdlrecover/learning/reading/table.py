"""Tables of numbers with named columns: which columns are read, in which order, and where they go.

Rules:

- Names are compared in Unicode's composed form (NFC), without blanks around them.
- Where features are agreed, a table must have these columns and no others but the label and what is
  dropped; they are taken in the agreed order, whatever the file's own is.
- Cells are finite numbers. What is not is refused with its row and column.
"""

import difflib
import json
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdlrecover.errors import DataError
from pdlrecover.learning.reading.agreed import Agreed
from pdlrecover.learning.reading.source import Source

Floats = NDArray[np.float32]
_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Table:
    """Samples with named columns, as `read_data` returns them: row i is a sample."""

    columns: tuple[str, ...]
    values: Floats
    """float32, (samples, columns)."""

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice | NDArray[Any] | Sequence[int]) -> "Table":
        """Return some rows, by a slice or by an array or list of row numbers."""
        if not isinstance(rows, slice | np.ndarray | list):
            raise DataError(
                f"a table is taken apart by rows, such as table[:100], got {rows!r}; for a column "
                "see table.columns and table.values"
            )
        return Table(self.columns, self.values[rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the numbers, for numpy."""
        return np.array(self.values, dtype=dtype, copy=copy)

    def in_order(self, columns: tuple[str, ...]) -> "Table":
        """Return the same table with its columns in this order."""
        places = [self.columns.index(name) for name in columns]
        return Table(columns, np.ascontiguousarray(self.values[:, places]))


class Rows:
    """A table's numbers as they come in; they take hardly more memory than the numbers do."""

    def __init__(self, width: int) -> None:
        self._width, self._numbers = width, array("f")

    def add(self, values: Floats) -> None:
        """Add some rows."""
        self._numbers.frombytes(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)

    def matrix(self) -> Floats:
        """Return all rows."""
        if not self._numbers:
            return np.zeros((0, self._width), np.float32)
        return np.frombuffer(self._numbers, np.float32).reshape(-1, self._width)


def spelled(name: str) -> str:
    """Return a name as names are compared."""
    return unicodedata.normalize("NFC", name).strip()


def features_of(
    names: Sequence[str], source: Source, agreed: Agreed, place: str
) -> tuple[list[int], int]:
    """Return which columns of a table are the features, in their order, and which is the label."""
    found = [spelled(name) for name in names]
    if twice := [name for name, count in Counter(found).items() if count > 1]:
        raise DataError(f"{place} has several columns called {twice[0]!r}; rename all but one")
    if source.label is None:
        raise DataError(
            f'it is not said which column of {place} has the classes; write label = "…", one of '
            f"{listed(found)}"
        )
    label = known_column(source.label, found, place, "label")
    dropped = [known_column(name, found, place, "drop") for name in source.drop or ()]
    if source.columns is None:
        chosen = [name for name in found if name != label and name not in dropped]
    else:
        chosen = [known_column(name, found, place, "columns") for name in source.columns]
        if len(set(chosen)) != len(chosen) or label in chosen or set(chosen) & set(dropped):
            raise DataError(
                f"columns = [{listed(chosen)}] must name each column once, without the label "
                f"({label!r}) and without what drop names"
            )
    if not chosen:
        raise DataError(
            f"{place} has no column left for the samples: its columns are {listed(found)}"
        )
    chosen = _in_agreed_order(chosen, source, agreed, place)
    return [found.index(name) for name in chosen], found.index(label)


def _in_agreed_order(chosen: list[str], source: Source, agreed: Agreed, place: str) -> list[str]:
    if agreed.features is None:
        if agreed.is_federation and source.columns is None:
            raise DataError(
                f"the order of the columns of {place} is not agreed on: let the plan of the "
                'federation say it, under [data]: features = ["…"]; or state it in peer.toml as '
                "columns = [...], the same at all peers"
            )
        return chosen
    if missing := [name for name in agreed.features if name not in chosen]:
        raise DataError(
            f"{place} lacks {_columns(missing)}, which the federation takes: it needs "
            f"{listed(agreed.features)}, and has {listed(chosen)}; add or rename columns"
        )
    if other := [name for name in chosen if name not in agreed.features]:
        raise DataError(
            f"{place} has {_columns(other)}, which the federation does not take; leave "
            f"{'it' if len(other) == 1 else 'them'} out by drop = {json.dumps(other[:_SHOWN])}"
        )
    return list(agreed.features)


def known_column(name: str, found: Sequence[str], place: str, key: str) -> str:
    """Return a column's name that a key gives, having found it."""
    if (same := spelled(name)) in found:
        return same
    near = difflib.get_close_matches(same, found, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {listed(found)}"
    raise DataError(f"{place} has no column {name!r}, which {key} names; {hint}")


def check_finite(
    values: Floats, columns: Sequence[str], where: Callable[[int], str], place: str, first: int = 0
) -> None:
    """Raise for the first cell that is no finite number; row 0 is the sample `first`."""
    finite = np.isfinite(values)
    if finite.all():
        return
    row, column = map(int, np.argwhere(~finite)[0])
    is_missing = np.isnan(values[row, column])
    raise DataError(
        f"{place}, {where(first + row)}: the column {columns[column]!r} is "
        + (
            "missing; fill it in, or leave the row or the column out"
            if is_missing
            else "not finite in float32; leave the row out, or scale the column"
        )
    )


def listed(names: Sequence[str]) -> str:
    """Return some names for a message."""
    more = f", … and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more


def _columns(names: Sequence[str]) -> str:
    return f"the column{'s' if len(names) > 1 else ''} {listed(names)}"
