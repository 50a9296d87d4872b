"""A document: figures and tables as plain data, independent of how they are drawn.

A reproduction returns a `Document`; the page, the terminal and the docs are made from it. Its
record is JSON, so that a page can be drawn again without running anything.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from pdlrecover.decode import decode
from pdlrecover.engines.ledger import Openings
from pdlrecover.errors import RecordError

Number = float | int
"""Both are named, so that a whole number that is read stays one."""
Cell = str | float | int | None
Row = dict[str, Cell]
"""A table's row, by the keys of its columns."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a figure."""

    name: str
    x: list[Number]
    y: list[Number | None]
    spread: list[Number | None] | None = None
    """Half the width of the band around it: the standard deviation over seeds."""
    points: bool = False
    """Draw separate points, not a line."""
    labels: list[str] | None = None
    """What each point is: the plan, say."""

    def __post_init__(self) -> None:
        for what in ("y", "spread", "labels"):
            values = getattr(self, what)
            if values is not None and len(values) != len(self.x):
                raise RecordError(f"the series {self.name!r} does not have as many {what} as x")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Lines over one axis."""

    title: str
    x: str
    """What the horizontal axis is."""
    y: str
    series: list[Series]
    command: str
    """What was run to get this."""
    note: str = ""
    log: bool = False
    """The vertical axis is logarithmic; what is not positive is left out."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table: programs find it by its key, people by its heading."""

    key: str
    heading: str


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of cells; numbers stay numbers, so that tables sort and tests can read them."""

    title: str
    columns: list[Column]
    rows: list[list[Cell]]
    command: str
    note: str = ""

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise RecordError(f"a row of {self.title!r} does not have {len(self.columns)} cells")
        if len(set(self.keys)) < len(self.columns):
            raise RecordError(f"two columns of {self.title!r} have the same key")

    @classmethod
    def from_rows(
        cls, title: str, rows: Sequence[Row], headings: dict[str, str], command: str, note: str = ""
    ) -> Self:
        """Make a table of rows by key: those of the first are its columns, in their order.

        A column without a heading is headed by its key.
        """
        keys = list(rows[0]) if rows else []
        columns = [Column(key=k, heading=headings.get(k, k.replace("_", " "))) for k in keys]
        cells = [[row[key] for key in keys] for row in rows]
        return cls(title=title, columns=columns, rows=cells, command=command, note=note)

    @property
    def keys(self) -> list[str]:
        """The keys of the columns."""
        return [column.key for column in self.columns]

    @property
    def headings(self) -> list[str]:
        """The headings of the columns."""
        return [column.heading for column in self.columns]

    def by_key(self) -> list[Row]:
        """Return the rows, each by the keys of the columns."""
        return [dict(zip(self.keys, row, strict=True)) for row in self.rows]


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One number that a busy person looks at first: "1.4%", backdoor success, "was 99.5%"."""

    value: str
    label: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Document:
    """The results of one reproduction or of some experiments."""

    name: str
    title: str
    summary: list[str]
    """A few sentences that a busy person understands."""
    key: int = 0
    """Which of them says most: it stands out, and stands for the document on a page of many."""
    facts: list[Fact] = field(default_factory=list)
    comparison: Table | None = None
    """All methods beside each other, best first."""
    figures: list[Figure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    ledger: dict[str, dict[str, Openings]] = field(default_factory=dict)
    """By method and kind: what it opened, as in the results."""
    shared: bool = True
    """Whether anything was shared; if not, the ledger says what would have been opened."""
    note: str = ""
    """Where it comes from: versions, commit, seeds."""

    def __post_init__(self) -> None:
        if not 0 <= self.key < max(1, len(self.summary)):
            raise RecordError(f"{self.title!r} has no sentence {self.key}, counted from 0")

    def record(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Return what `record` wrote down; raise RecordError if a part is of another type.

        Documents of earlier versions have no keys: there each heading stands for its key.
        """
        tables = record.get("tables")
        if isinstance(tables, list):
            record = {**record, "tables": [_keyed(table) for table in tables]}
        return decode(cls, record, RecordError)


def _keyed(table: Any) -> Any:
    columns = table.get("columns") if isinstance(table, dict) else None
    if not isinstance(columns, list):
        return table
    named = [{"key": c, "heading": c} if isinstance(c, str) else c for c in columns]
    return {**table, "columns": named}
