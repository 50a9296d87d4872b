"""The tables of a sharing record, and its headline numbers held against their targets."""

from typing import Any

from rich.console import Console
from rich.table import Table

OURS = "ours"
COMPARED = {
    "deal": "Dealing (ours and MPyC draw randomness; the products get it ready made)",
    "open": "Opening from c + ℓ shares",
    "field product": "F61.matmul, n × (c + ℓ) times (c + ℓ) × ⌈d/ℓ⌉",
}
"""The operations in which others are compared with ours, and the titles of their tables."""
QUIET = 0.1
"""So many busy cores of others in a race are not worth a warning."""


def headlines(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the headline ratios, at the longest length measured, with targets and verdicts."""
    length = max(record["config"]["lengths"])
    liars = record["config"]["liars"]

    def row(operation: str, packing: int, name: str, at: int = length) -> dict[str, Any]:
        return _find(record, operation, packing, at, name)

    mpyc = min(
        (row("deal", 1, f"MPyC {name}") for name in ("random_split", "np_random_split")),
        key=lambda each: each["best"],
    )
    plain, packed = row("deal", 1, OURS), row("deal", 32, OURS)
    at = f"d = {length:,}"
    results = [
        _headline(f"kernel factor: dealing, ℓ = 1, vs MPyC's faster one, {at}", mpyc, plain, 150),
        _headline(f"packing factor: our ℓ = 1 / our ℓ = 32, {at}", plain, packed),
        _headline(f"both: dealing, ℓ = 32, vs MPyC, {at}", mpyc, packed, 3000),
        _headline(
            f"dealing, ℓ = 32, vs flint with conversion, {at}",
            row("deal", 32, "flint converted"),
            packed,
            8,
        ),
        _headline(
            f"field product / bare BLAS, ℓ = 32, {at}",
            row("field product", 32, OURS),
            row("field product", 32, "bare BLAS"),
            2.5,
            at_most=True,
        ),
    ]
    memory = next(each for each in record["memory"] if each["packing"] == 32)
    peak, output = ({"best": memory[f"{name}_bytes"]} for name in ("traced", "output"))
    name = f"memory of dealing / its output, ℓ = 32, d = {memory['length']:,}"
    results.append(_headline(name, peak, output, 4, at_most=True))
    at_robust = record["config"]["robust_length"]
    for state in ("warm", "cold"):
        robust = row("robust opening", 32, f"robust, {liars} liars, {state}", at_robust)
        trusting = row("robust opening", 32, f"plain, {state}", at_robust)
        name = f"robust / plain opening, ℓ = 32, {liars} liars, {state}"
        results.append(_headline(name, robust, trusting, 6, at_most=True))
    return results


def ratios(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return by how much every contestant is slower than ours in the same race."""
    return [
        {name: row[name] for name in ("operation", "packing", "length", "name", "extrapolated")}
        | {"over_ours": row["best"] / _ours(record, row)["best"]}
        for row in record["timings"]
        if row["operation"] in COMPARED
    ]


def print_report(record: dict[str, Any]) -> None:
    """Print everything in the record that a reader wants to see."""
    console = Console(width=124)
    _print_environment(console, record)
    for operation, title in COMPARED.items():
        console.print(_comparison(record, operation, title))
    console.print(_linearity(record), _robust(record), _drawing(record), _memory(record))
    table = Table(title="Headlines", title_justify="left")
    for column in ("ratio", "value", "target", "verdict", "others busy"):
        table.add_column(column, justify="left" if column == "ratio" else "right")
    for each in record["headlines"]:
        target, verdict = "", ""
        if each["target"] is not None:
            target = f"{'≤' if each['at_most'] else '≥'} {each['target']:g}×"
            verdict = "[green]PASS" if each["passed"] else "[red bold]MISS"
        mark = "≈ " if each["extrapolated"] else ""
        busy = f"{each['others_busy']:.1f} cores" if each["others_busy"] > QUIET else ""
        table.add_row(each["name"], f"{mark}{each['value']:,.2f}×", target, verdict, busy)
    console.print(table)
    busy = max(row["others_busy"] for row in record["timings"])
    if busy > QUIET:
        console.print(
            f"[yellow]Not a quiet machine: other processes kept up to {busy:.1f} of "
            f"{record['environment']['cores']} cores busy during a race (`others_busy` in the "
            "record says in which). Verdicts from such races prove nothing: run again."
        )
    console.print(f"{record['seconds']:.0f} s in all")


def _print_environment(console: Console, record: dict[str, Any]) -> None:
    where = record["environment"]
    dirty = " with uncommitted changes" if where["uncommitted_changes"] else ""
    console.print(f"{where['cpu']}, {where['cores']} cores, load {where['load_average']:.1f}")
    console.print(f"commit {where['commit'][:12]}{dirty}, Python {where['python']}")
    console.print(", ".join(f"{name} {version}" for name, version in where["libraries"].items()))
    for pool in where["blas"]:
        console.print(
            f"BLAS: {pool['internal_api']} {pool['version']} ({pool['architecture']}), "
            f"{pool['num_threads']} threads, {pool['file']}"
        )
    console.print(f"{len(record['checked'])} checks that all compute the same: passed\n")


def _comparison(record: dict[str, Any], operation: str, title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in ("ℓ", "d", "who", "best", "/ ours", "note"):
        justify = "left" if column in ("who", "note") else "right"
        table.add_column(column, justify=justify)
    rows = [each for each in record["timings"] if each["operation"] == operation]
    for row in rows:
        ours = _ours(record, row)["best"]
        first = row["name"] == OURS
        if first and table.rows:
            table.add_section()
        table.add_row(
            str(row["packing"]) if first else "",
            f"{row['length']:,}" if first else "",
            row["name"],
            _seconds(row),
            f"{row['best'] / ours:,.2f}×",
            _note(row),
        )
    return table


def _linearity(record: dict[str, Any]) -> Table:
    table = Table(title="Is extrapolation linear? (dealing, ℓ = 1)", title_justify="left")
    for column in ("who", "best", "per number"):
        table.add_column(column, justify="left" if column == "who" else "right")
    rows = [each for each in record["timings"] if each["operation"] == "linearity"]
    for row in sorted(rows, key=lambda row: (row["name"].split(" at ")[0], row["length"])):
        table.add_row(row["name"], _seconds(row), f"{row['best'] / row['length'] * 1e6:,.1f} µs")
    return table


def _robust(record: dict[str, Any]) -> Table:
    config = record["config"]
    table = Table(
        title=f"Robust opening, d = {config['robust_length']:,}, m = {config['responders']}",
        title_justify="left",
    )
    for column in ("ℓ", "who", "best", "/ plain"):
        table.add_column(column, justify="left" if column == "who" else "right")
    plain = 0.0
    for row in record["timings"]:
        if row["operation"] == "robust opening":
            plain = row["best"] if row["name"].startswith("plain") else plain
            table.add_row(
                str(row["packing"]), row["name"], _seconds(row), f"{row['best'] / plain:,.2f}×"
            )
    return table


def _drawing(record: dict[str, Any]) -> Table:
    table = Table(title="Random elements modulo 2^61 − 1", title_justify="left")
    for column in ("who", "million per second", "note"):
        table.add_column(column, justify="right" if column.startswith("million") else "left")
    for row in record["timings"]:
        if row["operation"] == "draw":
            rate = row["length"] / row["best"] / 1e6
            table.add_row(row["name"], f"{rate:,.2f}", _note(row))
    return table


def _memory(record: dict[str, Any]) -> Table:
    table = Table(title="Memory of dealing, its output included", title_justify="left")
    for column in ("ℓ", "d", "output", "traced peak", "/ output", "resident growth", "/ output"):
        table.add_column(column, justify="right")
    for row in record["memory"]:
        table.add_row(
            str(row["packing"]),
            f"{row['length']:,}",
            f"{row['output_bytes'] / 1e6:.0f} MB",
            f"{row['traced_bytes'] / 1e6:.0f} MB",
            f"{row['traced_multiple']:.2f}×",
            f"{row['resident_bytes'] / 1e6:.0f} MB",
            f"{row['resident_multiple']:.2f}×",
        )
    return table


def _ours(record: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    return _find(record, row["operation"], row["packing"], row["length"], OURS)


def _find(
    record: dict[str, Any], operation: str, packing: int, length: int, name: str
) -> dict[str, Any]:
    return next(
        each
        for each in record["timings"]
        if (each["operation"], each["packing"], each["length"], each["name"])
        == (operation, packing, length, name)
    )


def _headline(
    name: str,
    over: dict[str, Any],
    under: dict[str, Any],
    target: float | None = None,
    *,
    at_most: bool = False,
) -> dict[str, Any]:
    value, passed = over["best"] / under["best"], None
    if target is not None:
        passed = bool(value <= target if at_most else value >= target)
    return {
        "name": name,
        "value": value,
        "target": target,
        "at_most": at_most,
        "passed": passed,
        "extrapolated": any(each.get("extrapolated", False) for each in (over, under)),
        "others_busy": max(each.get("others_busy", 0.0) for each in (over, under)),
    }


def _seconds(row: dict[str, Any]) -> str:
    mark = "≈ " if row["extrapolated"] else ""
    if row["best"] < 1:
        return f"{mark}{row['best'] * 1e3:,.2f} ms"
    return f"{mark}{row['best']:,.2f} s"


def _note(row: dict[str, Any]) -> str:
    return f"extrapolated from d = {row['measured_length']:,}" if row["extrapolated"] else ""
