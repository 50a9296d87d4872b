"""The verdicts of the table of all attacks in short: counted by method, and cell by cell."""

from pdlrecover.experiments.report.document import Cell, Row, Table
from pdlrecover.experiments.reproductions.reproduction import columns

READINGS = {
    "adam": ("adam", "holds"),
    "adam_here": ("adam", "holds_here"),
    "sgd": ("sgd", "holds"),
}
"""By what a cell is judged: the run's optimiser, and the column of the verdict."""
COUNTED = columns(
    "method",
    *READINGS,
    adam="after Adam",
    adam_here="after Adam, by what the rival needs in each cell",
    sgd="after SGD",
)


def count(table: Table) -> Table:
    """Return in how many cells each method keeps the promises, by every reading."""
    verdicts: dict[Cell, dict[str, list[bool]]] = {}
    for row in table.by_key():
        for reading, (optimizer, column) in READINGS.items():
            if row["optimizer"] == optimizer and row[column] is not None:
                of = verdicts.setdefault(row["method"], {})
                of.setdefault(reading, []).append(row[column] == "yes")
    return Table(
        title="In how many pairs of an attack and a dataset the promises are kept",
        columns=COUNTED,
        rows=[[method, *(_share(of.get(r)) for r in READINGS)] for method, of in verdicts.items()],
        command=table.command,
        note="Accelerated retraining with a given number of rounds is allowed all of these.",
    )


def _share(kept: list[bool] | None) -> str | None:
    return None if kept is None else f"{sum(kept)} of {len(kept)}"


def headline(counted: Table) -> str:
    """Say in how many cells `auto` keeps its promises."""
    (ours,) = (row for row in counted.by_key() if row["method"] == "auto")
    parts = [
        f"in {ours[column.key]} cells {column.heading}"
        for column in counted.columns[1:]
        if ours[column.key] is not None
    ]
    return f"auto keeps its promises {'; '.join(parts)}."


def by_cell(table: Table) -> list[Table]:
    """Return for either optimiser how `auto` does in every cell."""
    ours = [row for row in table.by_key() if row["method"] == "auto"]
    datasets = list(dict.fromkeys(str(row["dataset"]) for row in ours))
    tables = []
    for optimizer, name in (("adam", "Adam"), ("sgd", "SGD")):
        of = [row for row in ours if row["optimizer"] == optimizer]
        found = {(row["attack"], row["dataset"]): _shown(row) for row in of}
        attacks = dict.fromkeys(row["attack"] for row in of)
        rows: list[list[Cell]] = [[a, *(found.get((a, d)) for d in datasets)] for a in attacks]
        title = f"auto after {name}: points above retraining, and exact rounds"
        tables.append(
            Table(
                title=title,
                columns=columns("attack", *datasets),
                rows=rows,
                command=table.command,
            )
        )
    return [each for each in tables if each.rows]


def _shown(row: Row) -> str:
    missed = "" if row["holds"] == "yes" else ": misses"
    return f"{row['minus_retrain']:+.2f}, {row['exact_rounds']:g} rounds{missed}"
