"""What an experiment has to show: figures and tables as plain data, whoever draws them.

A reproduction returns a `Document`; the page, the terminal and the docs are made from it. Its
record is JSON, so that a page can be drawn again without running anything.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, Self

from pdlrecover.decode import decode
from pdlrecover.errors import RecordError

Number = float | int
"""Both are named, so that a whole number that is read stays one."""
Cell = str | float | int | None


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What a ledger says of one kind of openings."""

    openings: int
    numbers: int
    """How many numbers were opened in all."""
    of: str
    """Whose: those of one peer, or sums."""


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
class Table:
    """Rows of cells; numbers stay numbers, so that tables sort and tests can read them."""

    title: str
    columns: list[str]
    rows: list[list[Cell]]
    command: str
    note: str = ""

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise RecordError(f"a row of {self.title!r} does not have {len(self.columns)} cells")


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
    figures: list[Figure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    ledger: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By method: what it opened, as in the result records: {kind: {openings, numbers, of}}."""
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
        """Return what `record` wrote down; raise RecordError if a part is of another type."""
        document = decode(cls, record, RecordError)
        decode(dict[str, dict[str, Opening]], document.ledger, RecordError, where="ledger")
        return document
