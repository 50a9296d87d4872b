"""The verdicts of the table of all attacks in short: counted by method, and cell by cell."""

from collections.abc import Iterator

from pdlrecover.experiments.report.document import Cell, Table

READINGS = {
    "after Adam": ("adam", "holds"),
    "after Adam, by what the rival needs in each cell": ("adam", "holds by it"),
    "after SGD": ("sgd", "holds"),
}
"""By what a cell is judged: the run's optimiser, and the column of the verdict."""


def count(table: Table) -> Table:
    """Return in how many cells each method keeps the promises, by every reading."""
    verdicts: dict[Cell, dict[str, list[bool]]] = {}
    for row in _rows(table):
        for reading, (optimizer, column) in READINGS.items():
            if row["optimizer"] == optimizer and row[column] is not None:
                of = verdicts.setdefault(row["method"], {})
                of.setdefault(reading, []).append(row[column] == "yes")
    return Table(
        title="In how many pairs of an attack and a dataset the promises are kept",
        columns=["method", *READINGS],
        rows=[[method, *(_share(of.get(r)) for r in READINGS)] for method, of in verdicts.items()],
        command=table.command,
        note="Accelerated retraining with a given number of rounds is allowed all of these.",
    )


def _share(kept: list[bool] | None) -> str | None:
    return None if kept is None else f"{sum(kept)} of {len(kept)}"


def headline(counted: Table) -> str:
    """Say in how many cells `auto` keeps its promises."""
    (ours,) = (row for row in counted.rows if row[0] == "auto")
    told = zip(counted.columns[1:], ours[1:], strict=True)
    parts = [f"in {found} cells {reading}" for reading, found in told if found is not None]
    return f"auto keeps its promises {'; '.join(parts)}."


def by_cell(table: Table) -> list[Table]:
    """Return for either optimiser how `auto` does in every cell."""
    ours = [row for row in _rows(table) if row["method"] == "auto"]
    datasets = list(dict.fromkeys(str(row["dataset"]) for row in ours))
    tables = []
    for optimizer, name in (("adam", "Adam"), ("sgd", "SGD")):
        of = [row for row in ours if row["optimizer"] == optimizer]
        told = {(row["attack"], row["dataset"]): _told(row) for row in of}
        attacks = dict.fromkeys(row["attack"] for row in of)
        rows: list[list[Cell]] = [[a, *(told.get((a, d)) for d in datasets)] for a in attacks]
        title = f"auto after {name}: points above retraining, and exact rounds"
        tables.append(
            Table(title=title, columns=["attack", *datasets], rows=rows, command=table.command)
        )
    return [each for each in tables if each.rows]


def _told(row: dict[str, Cell]) -> str:
    missed = "" if row["holds"] == "yes" else ": misses"
    return f"{row['minus retrain (points)']:+.2f}, {row['exact rounds']:g} rounds{missed}"


def _rows(table: Table) -> Iterator[dict[str, Cell]]:
    return (dict(zip(table.columns, row, strict=True)) for row in table.rows)
