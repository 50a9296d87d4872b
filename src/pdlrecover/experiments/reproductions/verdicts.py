"""Short form of the attacks table: verdicts counted by method, and cell by cell."""

from pdlrecover.experiments.report.document import Cell, Row

READINGS = {
    "adam": "after Adam",
    "adam_here": "after Adam, by what the rival needs in each cell",
    "sgd": "after SGD",
}
"""By what a cell is judged: the run's optimiser, and whether by what is needed in the cell."""


def count(rows: list[Row]) -> list[Row]:
    """Return in how many cells each method keeps the promises, by every reading."""
    verdicts: dict[Cell, dict[str, list[bool]]] = {}
    for row in rows:
        for reading in READINGS:
            optimizer, _, here = reading.partition("_")
            verdict = row["holds_here" if here else "holds"]
            if row["optimizer"] == optimizer and verdict is not None:
                of = verdicts.setdefault(row["method"], {})
                of.setdefault(reading, []).append(verdict == "yes")
    return [
        {"method": method, **{reading: _share(of.get(reading)) for reading in READINGS}}
        for method, of in verdicts.items()
    ]


def _share(kept: list[bool] | None) -> str | None:
    return None if kept is None else f"{sum(kept)} of {len(kept)}"


def headline(counted: list[Row]) -> str:
    """Say in how many cells `auto` keeps its promises."""
    (ours,) = (row for row in counted if row["method"] == "auto")
    parts = [f"in {ours[key]} cells {by}" for key, by in READINGS.items() if ours[key] is not None]
    return f"auto keeps its promises {'; '.join(parts)}."


def by_cell(rows: list[Row]) -> dict[str, list[Row]]:
    """Return for either optimiser how `auto` does in every cell: the rows of a table by title."""
    ours = [row for row in rows if row["method"] == "auto"]
    datasets = dict.fromkeys(str(row["dataset"]) for row in ours)
    tables: dict[str, list[Row]] = {}
    for optimizer, name in (("adam", "Adam"), ("sgd", "SGD")):
        of = [row for row in ours if row["optimizer"] == optimizer]
        found = {(row["attack"], row["dataset"]): _shown(row) for row in of}
        tables[f"auto after {name}: points above retraining, and exact rounds"] = [
            {"attack": attack, **{dataset: found.get((attack, dataset)) for dataset in datasets}}
            for attack in dict.fromkeys(row["attack"] for row in of)
        ]
    return {title: some for title, some in tables.items() if some}


def _shown(row: Row) -> str:
    missed = "" if row["holds"] == "yes" else ": misses"
    return f"{row['minus_retrain']:+.2f}, {row['exact_rounds']:g} rounds{missed}"
