"""Writes the tables of the documents from the committed result records: `make docs`.

A table stands between `<!-- table: name -->` and `<!-- end -->`; what is between is replaced. With
`--check` nothing is written, and the exit code says whether all tables are up to date.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md")))
DATASETS = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "har": "HAR"}


def sharing() -> list[str]:
    """Return the headlines of the sharing benchmark."""
    record = read("benchmarks/sharing.json")
    rows = ["| | measured | wanted |", "|---|---|---|"]
    for line in record["headlines"]:
        sense = "at most" if line["at_most"] else "at least"
        wanted = "" if line["target"] is None else f"{sense} {line['target']:,}"
        mark = "≈ " if line["extrapolated"] else ""
        rows.append(f"| {line['name']} | {mark}{line['value']:,.2f}× | {wanted} |")
    return [
        *rows,
        "",
        f"`make bench`, on {record['environment']['cpu']}, 2 cores; ≈: extrapolated.",
    ]


def peers() -> list[str]:
    """Return what rounds between real peers take, and their ratios held against the targets."""
    record = read("benchmarks/peers.json")
    sizes = record["sizes"]

    def row(name: str, *values: str) -> str:
        return f"| {name} | {' | '.join(values)} |"

    rows = [
        row("", *(f"{s['peers']} peers" for s in sizes)),
        "|---" * (len(sizes) + 1) + "|",
        row("rounds of the training", *(str(s["rounds"]) for s in sizes)),
        row("exact round, s", *(f"{s['exact']['seconds']:.2f}" for s in sizes)),
        row("estimate of up to 5 rounds, s", *(f"{s['estimated']['seconds']:.2f}" for s in sizes)),
        row("bare exchange of the same bytes, s", *(_bare(s, "exchange_seconds") for s in sizes)),
        row("sent by a peer in an exact round, MB", *(_megabytes(s["exact"]) for s in sizes)),
        row("memory of a peer's own, MB", *(_memory(s, "own") for s in sizes)),
        row("… with mapped files and libraries, MB", *(_memory(s, "most") for s in sizes)),
        row("processor ms of a peer in an exact round", *(_processor(s) for s in sizes)),
    ]
    for name in dict.fromkeys(name for s in sizes for name in s["ratios"]):
        target = record["targets"].get(name)
        wanted = "" if target is None else f" (wanted: at most {target})"
        found = (s["ratios"].get(name) for s in sizes)
        rows.append(row(name + wanted, *("" if r is None else f"{r:.2f}" for r in found)))
    split = sizes[0]["work"]["FreshSum"]
    parts = ", ".join(f"{work} {1000 * spent:.0f}" for work, spent in split.items())
    return [
        *rows,
        "",
        f"Of an exact round between {sizes[0]['peers']} peers, processor ms of one: {parts}.",
        "",
        f"`make bench`, on {record['environment']['cpu']}, 2 cores for all processes.",
    ]


def _bare(size: dict[str, Any], name: str) -> str:
    return f"{size['bare'][name]:.2f}"


def _megabytes(part: dict[str, Any]) -> str:
    return f"{part['bytes'] / 1e6:.2f}"


def _memory(size: dict[str, Any], which: str) -> str:
    return f"{size['resident_bytes'][which] / 1e6:.0f}"


def _processor(size: dict[str, Any]) -> str:
    return f"{1000 * sum(size['work']['FreshSum'].values()):.0f}"


def backdoor() -> list[str]:
    """Return every method on the three datasets, under a backdoor of 40 of 200 peers."""
    return [
        *_by_method("clear"),
        "",
        f"Accuracy / backdoor success in %, {_seeds('clear')}, computed in the clear (the same "
        "numbers as on shares).",
        "HAR's 561 features are recomputed from the inertial signals. `results/backdoor/run.sh` "
        "runs it.",
    ]


def shares() -> list[str]:
    """Return what PDLRecover reaches and takes with shares on, averaged over seeds."""
    ratios = " | ".join(
        f"{sum(found) / len(found):.2f} ({min(found):.2f}–{max(found):.2f})"
        for found in (
            [
                r["methods"]["pdlrecover"]["seconds"]["total"]
                / r["methods"]["retrain"]["seconds"]["total"]
                for r in records
            ]
            for records in _records("shares").values()
        )
    )
    return [
        *_by_method("shares"),
        f"| *time of pdlrecover / retrain* | {ratios} | |",
        "",
        f"Accuracy / backdoor success in %, {_seeds('shares')}, shares dealt and opened; time with "
        "its range over seeds, one thread for each run. `results/backdoor/run.sh` runs it.",
    ]


def _records(mode: str) -> dict[str, list[dict[str, Any]]]:
    found = {
        dataset: [read(p) for p in sorted(RESULTS.glob(f"backdoor/{dataset}-{mode}-*.json"))]
        for dataset in DATASETS
    }
    return {dataset: records for dataset, records in found.items() if records}


def _seeds(mode: str) -> str:
    seeds = sorted({record["seed"] for found in _records(mode).values() for record in found})
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"mean of seeds {seeds[0]} to {seeds[-1]}"


def _by_method(mode: str) -> list[str]:
    """Return a row for every method: accuracy and backdoor on each dataset, and exact rounds."""
    records = _records(mode)
    names = " | ".join(DATASETS[dataset] for dataset in records)
    rows = [f"| method | {names} | exact rounds of 1000 |", "|---" * (len(records) + 2) + "|"]
    first = next(iter(records.values()))[0]
    for method in first["methods"]:
        cells = []
        for found in records.values():
            entries = [record["methods"][method] for record in found]
            accuracy = mean([entry["accuracy"] for entry in entries])
            success = mean([entry["attack_success"] for entry in entries])
            cells.append(f"{accuracy:.1f} / {success:.1f}")
        exact = first["methods"][method]["exact_rounds"]
        rows.append(f"| {method} | {' | '.join(cells)} | {exact} |")
    return rows


TABLES: dict[str, Callable[[], list[str]]] = {
    "sharing": sharing,
    "peers": peers,
    "backdoor": backdoor,
    "shares": shares,
}


def read(path: Path | str) -> dict[str, Any]:
    """Return a record."""
    record: dict[str, Any] = json.loads((RESULTS / path).read_text())
    return record


def mean(rates: list[float]) -> float:
    """Return the mean of rates, in percent."""
    return 100 * sum(rates) / len(rates)


def filled(text: str) -> str:
    """Return a page with its tables made anew."""
    parts = text.split("<!-- table: ")
    for i, part in enumerate(parts[1:], start=1):
        name, _, rest = part.partition(" -->")
        _, _, after = rest.partition("<!-- end -->")
        table = "\n".join(TABLES[name]())
        parts[i] = f"{name} -->\n{table}\n<!-- end -->{after}"
    return "<!-- table: ".join(parts)


def main() -> None:
    """Write or check every page."""
    stale = [page for page in PAGES if filled(page.read_text()) != page.read_text()]
    if "--check" in sys.argv:
        sys.exit(f"not up to date, run `make docs`: {[p.name for p in stale]}" if stale else 0)
    for page in stale:
        page.write_text(filled(page.read_text()))


if __name__ == "__main__":
    main()
