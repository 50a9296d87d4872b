"""What an experiment has to show: figures and tables as plain data, whoever draws them.

A reproduction returns a `Document`; the page, the terminal and the docs are made from it. Its
record is JSON, so that a page can be drawn again without running anything.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, Self

Cell = str | float | int | None


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a figure."""

    name: str
    x: list[float]
    y: list[float | None]
    spread: list[float | None] | None = None
    """Half the width of the band around it: the standard deviation over seeds."""
    points: bool = False
    """Draw separate points, not a line."""


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


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of cells; numbers stay numbers, so that tables sort and tests can read them."""

    title: str
    columns: list[str]
    rows: list[list[Cell]]
    command: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Document:
    """The results of one reproduction or of some experiments."""

    name: str
    title: str
    summary: list[str]
    """A few sentences that a busy person understands."""
    figures: list[Figure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    ledger: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By method: what it opened, as in the result records."""

    def record(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Return what `record` wrote down."""
        values = dict(record)
        figures = [
            Figure(**{**f, "series": [Series(**s) for s in f["series"]]})
            for f in values.pop("figures")
        ]
        tables = [Table(**t) for t in values.pop("tables")]
        return cls(**values, figures=figures, tables=tables)
