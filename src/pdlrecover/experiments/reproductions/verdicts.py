"""Short form of the attacks table: verdicts counted by method, and cell by cell."""

from collections.abc import Sequence

from pdlrecover.experiments.analysis.document import Cell, Row

READINGS = {"adam": "after Adam", "sgd": "after SGD"}
"""The optimisers of the original runs, with their headings."""


def count(rows: list[Row]) -> list[Row]:
    """Return in how many cells each method keeps the promises, after either optimiser."""
    verdicts: dict[Cell, dict[Cell, list[bool]]] = {}
    for row in rows:
        if row["holds"] is not None:
            of = verdicts.setdefault(row["method"], {})
            of.setdefault(row["optimizer"], []).append(row["holds"] == "yes")
    return [
        {"method": method, **{optimizer: _share(of.get(optimizer)) for optimizer in READINGS}}
        for method, of in verdicts.items()
    ]


def _share(kept: list[bool] | None) -> str | None:
    return None if kept is None else f"{sum(kept)} of {len(kept)}"


def headline(counted: list[Row], methods: Sequence[str]) -> list[str]:
    """Say in how many cells each of these methods keeps its promises."""
    lines = []
    for row in (row for method in methods for row in counted if row["method"] == method):
        parts = [f"in {row[key]} cells {by}" for key, by in READINGS.items() if row[key]]
        lines.append(f"{row['method']} keeps its promises {' and '.join(parts)}.")
    return lines


def by_cell(rows: list[Row], method: str) -> dict[str, list[Row]]:
    """Return for either optimiser how a method does in every cell: the rows of a table by title."""
    ours = [row for row in rows if row["method"] == method and row["minus_retrain"] is not None]
    datasets = dict.fromkeys(str(row["dataset"]) for row in ours)
    tables: dict[str, list[Row]] = {}
    for optimizer, name in (("adam", "Adam"), ("sgd", "SGD")):
        of = [row for row in ours if row["optimizer"] == optimizer]
        found = {(row["attack"], row["dataset"]): _shown(row) for row in of}
        beside = ", beside what the rival needs" if optimizer == "adam" else ""
        tables[f"{method} after {name}: points above retraining, and exact rounds{beside}"] = [
            {"attack": attack, **{dataset: found.get((attack, dataset)) for dataset in datasets}}
            for attack in dict.fromkeys(row["attack"] for row in of)
        ]
    return {title: some for title, some in tables.items() if some}


def _shown(row: Row) -> str:
    missed = "" if row["holds"] == "yes" else ": misses"
    rival = "" if row["optimizer"] == "sgd" else f" (rival: {row['rival_needs'] or 'none'})"
    return f"{row['minus_retrain']:+.2f}, {row['exact_rounds']:g} rounds{rival}{missed}"
