"""Writes the tables of the documents from the committed result records: `make docs`.

A table stands between `<!-- table: name -->` and `<!-- end -->`; what is between is replaced. With
`--check` nothing is written, and the exit code says whether all tables are up to date.
"""

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pdlrecover.experiments.analysis.calibration import calibration, unseeing
from pdlrecover.experiments.analysis.document import Document
from pdlrecover.experiments.analysis.format import readable
from pdlrecover.experiments.analysis.large_plan import NETWORK_BYTES, plan
from pdlrecover.experiments.analysis.promises import TERMS
from pdlrecover.experiments.batch.run_numbers import read_runs
from pdlrecover.experiments.experiment.result import MethodNumbers, Result, read_result
from pdlrecover.experiments.reproductions.accelerated import MORE
from pdlrecover.experiments.reproductions.attacks import FAST, RIVAL
from pdlrecover.recovery.methods import DEFAULT, METHODS, OURS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md")))
DATASETS = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "har": "HAR"}
TYPICAL = 40
"""Attackers in what is shown here."""
FRONT = {
    "poisoned": "with the attackers",
    "fine-tune-k": "fine-tuning it without them",
    "retrain": "retraining without them",
    DEFAULT: "**recovery** (`auto`)",
    OURS: "the paper's method (`pdlrecover`)",
}
"""The methods that the README shows, in words."""
RECOVERIES = (f"{FAST[0]} / retrain", f"{OURS} / retrain")
"""Ratios of times in the benchmark of real peers."""
SIMULATED = (
    "plain loop / clear round",
    "round on shares / clear round",
    "Muon's public step / round on shares",
    "peak memory, GB",
)
"""What the benchmark of simulated rounds compares."""
PLANNED = 100_000
"""So many peers are planned on paper, on so many cores:"""
PLANNED_CORES = (2, 16, 64, 256)
NEAR = ("backdoor", "leavers")
"""What is shown row by row."""
NOT_YET = "*Not recorded yet for the present methods: `pdlrecover reproduce attacks`.*"


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


def simulated_rounds() -> list[str]:
    """Return the ratios of the benchmark of simulated rounds; one that has no record says so."""
    record = read("benchmarks/simulation.json")
    rows = ["| | measured | wanted |", "|---|---|---|"]
    for name in SIMULATED:
        found = record["ratios"].get(name)
        value, sense = record.get("targets", {}).get(name, (None, ""))
        wanted = "" if value is None else f"{sense} {value:g}"
        rows.append(
            f"| {name} | {'not recorded yet' if found is None else f'{found:.2f}'} | {wanted} |"
        )
    return [
        *rows,
        "",
        f"200 peers, d = 79,510; peak memory is that of a run of {record['memory_rounds']} "
        f"rounds. `make bench`, on {record['environment']['cpu']}.",
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
        row("… between the kept peers, s", *(f"{s['estimated']['exact']:.2f}" for s in sizes)),
        row("estimated round, s", *(f"{s['estimated']['seconds']:.3f}" for s in sizes)),
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
    costs = []
    for method, cost in sizes[0]["recoveries"].items():
        spent = ", ".join(f"{part} {seconds:.2f}" for part, seconds in cost["processor"].items())
        costs.append(f"{method} {spent}")
    split = sizes[0]["work"]["FreshSum"]
    parts = ", ".join(f"{work} {1000 * spent:.0f}" for work, spent in split.items())
    return [
        *rows,
        "",
        f"Of an exact round between {sizes[0]['peers']} peers, processor ms of one: {parts}.",
        "",
        f"Of a whole recovery, processor seconds of one: {'; '.join(costs)}.",
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


def front() -> list[str]:
    """Return the few methods that a reader must know first, and what each costs one peer."""
    table = document_table("table-3")
    fastest, replay = RECOVERIES
    (size,) = [s for s in read("benchmarks/peers.json")["sizes"] if replay in s["ratios"]]
    measured = {"retrain": 1.0, DEFAULT: size["ratios"][fastest], OURS: size["ratios"][replay]}
    names = " | ".join(DATASETS.values())
    rows = [f"| | {names} | exact rounds | real peers' time |", "|---" * (len(DATASETS) + 3) + "|"]
    for method, words in FRONT.items():
        of = {row["dataset"]: row for row in table if row["method"] == method}
        cells = [f"{_short(of[d], 'accuracy')} / {_short(of[d], 'backdoor')}" for d in of]
        spent = "–".join(dict.fromkeys(f"{row['exact_rounds']:.0f}" for row in of.values()))
        time = f"{measured[method]:.2f}" if method in measured else ""
        rows.append(f"| {words} | {' | '.join(cells)} | {spent} | {time} |")
    return [
        *rows,
        "",
        "Accuracy / backdoor success in %; mean over 3 seeds. Real peers' time: wall-clock between "
        f"{size['peers']} of them after {size['rounds']} rounds, as a share of retraining's "
        "(`make bench`). `pdlrecover reproduce table-3`; "
        "[every method](docs/reproduction.md#every-method-after-sgd).",
    ]


def methods() -> list[str]:
    """Return every method on the three datasets, from Table III's document."""
    table = document_table("table-3")
    names = " | ".join(DATASETS.values())
    rows = [f"| method | {names} | exact rounds of 1000 |", "|---" * (len(DATASETS) + 2) + "|"]
    for method in dict.fromkeys(row["method"] for row in table):
        of = {row["dataset"]: row for row in table if row["method"] == method}
        cells = [f"{_short(of[d], 'accuracy')} / {_short(of[d], 'backdoor')}" for d in of]
        exact = sorted({round(row["exact_rounds"]) for row in of.values()})
        spent = f"{exact[0]}–{exact[-1]}" if len(exact) > 1 else str(exact[0])
        mark = "" if method == "poisoned" or METHODS[method].private else " *"
        rows.append(f"| {method}{mark} | {' | '.join(cells)} | {spent} |")
    return [
        *rows,
        f"| *time of one peer: pdlrecover / retrain* | {_ratios('peer_ratio')} | |",
        f"| *all peers in one process* | {_ratios('ratio')} | |",
        "",
        "Accuracy / backdoor success in %, mean over 3 seeds, in the clear (the same numbers as on "
        "shares). Those with * need more than sums over peers and are refused on shares; certified "
        "removal's exact rounds are over all of a peer's data, the others' over a minibatch. Time: "
        "with shares on, without a network, of what one peer does (its own gradients) and of what "
        f"all of them do. {_between_peers()} `pdlrecover reproduce table-3`, `reproduce table-1`.",
    ]


def _ratios(key: str) -> str:
    """Return PDLRecover's time over retraining's for 40 attackers on shares, by dataset."""
    table = [r for r in document_table("table-1") if r["mode"] == "shares" and r["m"] == TYPICAL]
    found = [[r[key] for r in table if r["dataset"] == dataset] for dataset in DATASETS]
    return " | ".join(f"{sum(some) / len(some):.2f}" for some in found)


def _between_peers() -> str:
    """Say what recoveries over retraining were measured to be between real peers."""
    found = [
        f"{size['ratios'][name]:.2f} for {name} between {size['peers']} in {size['rounds']} rounds"
        for size in read("benchmarks/peers.json")["sizes"]
        for name in RECOVERIES
        if name in size["ratios"]
    ]
    if not found:
        return "Between real peers no recovery was measured."
    return f"Real peers, who wait for each other, were measured: {', '.join(found)}."


def adam() -> list[str]:
    """Return what we recommend and the rival after Adam, for a backdoor and for leavers."""
    table = [r for r in document_table("attacks") if r["optimizer"] == "adam"]
    if not _recorded(table):
        return [NOT_YET]
    rows = [
        "| removed | method | " + " | ".join(DATASETS.values()) + " |",
        "|---" * (len(DATASETS) + 2) + "|",
    ]
    names = dict.fromkeys(row["method"] for row in table)
    for attack in NEAR:
        for method in (name for name in names if name in FAST or name.startswith(RIVAL)):
            found = [r for r in table if (r["attack"], r["method"]) == (attack, method)]
            cells = " | ".join(_effort(row) for row in found)
            rows.append(f"| {attack} | {method} | {cells} |")
    return [
        *rows,
        "",
        "Accuracy minus retraining's in points, on average / with the worst seed / exact rounds of "
        "100 / MB that a peer sends on shares; over 3 seeds. `pdlrecover reproduce attacks`.",
    ]


def verdict() -> list[str]:
    """Return in how many cells what we recommend keeps its promises, and what the rival needs."""
    table = [r for r in document_table("attacks") if r["optimizer"] == "adam"]
    if not _recorded(table):
        return [NOT_YET]
    kept = {row["method"]: row for row in document_table("attacks", 0)}
    lines = []
    for method in FAST:
        mine = [r for r in table if r["method"] == method]
        spent = sorted({round(r["exact_rounds"]) for r in mine})
        missed = [f"{r['attack']} on {DATASETS[r['dataset']]}" for r in mine if r["holds"] == "no"]
        lines.append(
            f"- **`{method}`**, {'–'.join(map(str, dict.fromkeys((spent[0], spent[-1]))))} exact "
            f"rounds: keeps its promises in {kept[method]['adam']} pairs of an attack and a "
            f"dataset after Adam (missing: {', '.join(missed) or 'none'}), and in "
            f"{kept[method]['sgd']} after SGD."
        )
    needs = {
        dataset: [r["rival_needs"] for r in table if r["dataset"] == dataset]
        for dataset in DATASETS
    }
    each = ", ".join(
        f"{_range([n for n in found if n is not None])} on {DATASETS[dataset]}"
        + (" (in some pairs more than was tried)" if None in found else "")
        for dataset, found in needs.items()
    )
    most = max(kept, key=lambda name: int(name.rpartition("=")[2]) if name in _rivals(kept) else 0)
    return [
        *lines,
        f"- **The rival**, accelerated retraining by Adam, needs {each}, by what would have done "
        f"in each pair; with {most.rpartition('=')[2]} rounds it keeps them in "
        f"{kept[most]['adam']}.",
        f"- **Plain PDLRecover** keeps them in {kept[OURS]['adam']} pairs after Adam and in "
        f"{kept[OURS]['sgd']} after SGD.",
        f"- Promised is: {TERMS}.",
    ]


def _recorded(table: list[dict[str, Any]]) -> bool:
    """Say whether the document has what we recommend beside the rival."""
    names = {row["method"] for row in table}
    return set(FAST) <= names and bool(_rivals(names))


def _rivals(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(RIVAL)]


def _range(found: list[float]) -> str:
    if not found:
        return "more than was tried"
    ends = dict.fromkeys((min(found), max(found)))
    return "–".join(f"{each:g}" for each in ends) + " rounds"


def undetected() -> list[str]:
    """Return what one undetected attacker achieves, by method, with its uncertainty."""
    document = Document.from_record(read("reproductions/accelerated.json"))
    found = [row for table in document.tables if table.title == MORE for row in table.by_key()]
    if not found:
        return ["*Not recorded yet: `pdlrecover reproduce accelerated`.*"]
    rows = [
        "| method | backdoor (%) | above retraining (points) | accuracy above it | worst seed |",
        "|---|---|---|---|---|",
    ]
    for row in found:
        above = f"{row['above_retrain']:+.1f} ± {row['above_error']:.1f}"
        rows.append(
            f"| {row['method']} | {row['backdoor']} | {above} | {row['minus_retrain']:+.2f} | "
            f"{row['worst_seed']:+.2f} |"
        )
    return [
        *rows,
        "",
        f"{DATASETS[found[0]['dataset']]} after Adam, {found[0]['seeds']} seeds; above retraining: "
        "mean and its standard error. `pdlrecover reproduce accelerated`.",
    ]


def calibrated() -> list[str]:
    """Return how often models that never saw the data are further than two errors from 0."""
    runs = read_runs(RESULTS / "reproductions" / "runs.jsonl")
    single, over = (calibration(unseeing(runs, over_seeds=each)) for each in (False, True))
    return [
        f"Of models that never saw the data, {single} are further than two errors from 0 in single "
        f"runs, and {over} averaged over the seeds of one setting. Right errors give 5%.",
    ]


def hours() -> list[str]:
    """Return what all runs of the reproductions took: each once, nothing that was copied."""
    runs = read_runs(RESULTS / "reproductions" / "runs.jsonl")
    spent = [
        one.processor_seconds
        for run in runs
        for one in run.methods.values()
        if one.borrowed_from is None
    ]
    return [
        f"In all {len(runs)} runs, with {len(spent)} trainings and recoveries that took "
        f"{sum(spent) / 3600:.1f} hours of one core. Documents share runs, so the hours in their "
        "notes add up to more.",
    ]


def _effort(row: dict[str, Any]) -> str:
    return (
        f"{row['minus_retrain']:+.2f} / {row['worst_seed']:+.2f} / {row['exact_rounds']:g} / "
        f"{row['megabytes']:.0f}"
    )


def chaos() -> list[str]:
    """Return what came of the recorded runs of real peers under faults and cheats."""
    rows = [
        "| peers | faults | hours | federations | faults that came | runs that ended with one "
        "model | given up or refused, and said why | named | holds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    commits = set()
    for path in sorted((RESULTS / "chaos").glob("*.json")):
        record = read(path)
        trials = record["trials"]
        commits.add(record["commit"])
        ends = [ending for trial in trials for ending in trial["endings"]]
        whole = sum(ending["weights"] is not None for ending in ends)
        said = sum(e["weights"] is None and e["statement"] is not None for e in ends)
        cheats = sorted({cheat for trial in trials for cheat in trial["cheats"].values()})
        named = {
            cheat
            for trial in trials
            for peer, cheat in trial["cheats"].items()
            if trial["named"].get(peer)
        }
        kind = "beyond the tolerance, too" if record["beyond"] else "within the tolerance"
        rows.append(
            f"| {record['peers']} | {kind}{f', {len(cheats)} kinds of cheats' if cheats else ''} | "
            f"{record['seconds'] / 3600:.2f} | {len(trials)} | "
            f"{sum(sum(trial['faults'].values()) for trial in trials)} | {whole} of {len(ends)} | "
            f"{said} | {', '.join(sorted(named)) or '–'} | {'yes' if record['holds'] else 'no'} |"
        )
    return [
        *rows,
        "",
        f"`pdlrecover peer chaos --record …`, of commit {', '.join(sorted(commits))}, on two cores "
        "with other work on them. Runs are trainings and recoveries.",
    ]


def document_table(name: str, place: int = -1) -> list[dict[str, Any]]:
    """Return the rows of one of a document's tables, by key; the last is the whole one."""
    return Document.from_record(read(f"reproductions/{name}.json")).tables[place].by_key()


def _short(row: dict[str, Any], key: str) -> str:
    """Return a mean without its spread; it says if runs have diverged."""
    mean, _, rest = ("–" if row[key] is None else str(row[key])).partition(" ")
    _, mark, runs = rest.partition("(diverged")
    return f"{mean} {mark}{runs}" if mark else mean


def shares() -> list[str]:
    """Return what PDLRecover reaches and takes with shares on, averaged over seeds."""
    return [
        *_by_method("shares"),
        f"| *time of one peer: pdlrecover / retrain* | {_spent(_of_one_peer)} | |",
        f"| *all peers in one process* | {_spent(lambda one, peers: one.seconds.total)} | |",
        "",
        f"Accuracy / backdoor success in %, {_seeds('shares')}, shares dealt and opened; time with "
        "its range over seeds, one thread for each run. `results/backdoor/run.sh` runs it.",
    ]


def _spent(seconds: Callable[[MethodNumbers, int], float]) -> str:
    """Return PDLRecover's time over retraining's, with its range over seeds, by dataset."""
    ratios = [
        [
            seconds(r.methods["pdlrecover"], r.config.kept)
            / seconds(r.methods["retrain"], r.config.kept)
            for r in results
        ]
        for results in _results("shares").values()
    ]
    return " | ".join(
        f"{sum(found) / len(found):.2f} ({min(found):.2f}–{max(found):.2f})" for found in ratios
    )


def _of_one_peer(one: MethodNumbers, peers: int) -> float:
    return one.seconds.of_one_peer(peers)


def _results(mode: str) -> dict[str, list[Result]]:
    found = {
        dataset: [
            read_result(read(path))
            for path in sorted(RESULTS.glob(f"backdoor/{dataset}-{mode}-*.json"))
        ]
        for dataset in DATASETS
    }
    return {dataset: results for dataset, results in found.items() if results}


def _seeds(mode: str) -> str:
    seeds = sorted({result.seed for found in _results(mode).values() for result in found})
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"mean of seeds {seeds[0]} to {seeds[-1]}"


def _by_method(mode: str) -> list[str]:
    """Return a row for every method: accuracy and backdoor on each dataset, and exact rounds."""
    results = _results(mode)
    names = " | ".join(DATASETS[dataset] for dataset in results)
    rows = [f"| method | {names} | exact rounds of 1000 |", "|---" * (len(results) + 2) + "|"]
    first = next(iter(results.values()))[0]
    for method in first.methods:
        cells = []
        for found in results.values():
            every = [result.methods[method] for result in found]
            accuracy = mean([one.accuracy for one in every])
            success = mean([one.attack_success for one in every])
            cells.append(f"{accuracy:.1f} / {success:.1f}")
        rows.append(f"| {method} | {' | '.join(cells)} | {first.methods[method].exact_rounds} |")
    return rows


def large() -> list[str]:
    """Return what rounds of large simulations take, and their ratios held against the targets."""
    record = read("benchmarks/large.json")
    rows = [
        "| peers | round in process, s | over two nodes, s | ratio | … dealing, s | … opening, s | "
        "peak memory of a run, GB |",
        "|---|---|---|---|---|---|---|",
    ]
    for size in record["sizes"]:
        best, memory = size["best"], size["whole_run"]["bytes"] / 1e9
        here, there = best["round"], best["round over two nodes"]
        rows.append(
            f"| {size['peers']:,} | {here:.2f} | {there:.2f} | {there / here:.2f} | "
            f"{best['dealing']:.2f} | {best['opening']:.2f} | {memory:.2f} |"
        )
    rows += ["", "| | measured | wanted |", "|---|---|---|"]
    for name, value in record["ratios"].items():
        target, sense = record["targets"].get(name, (None, ""))
        rows.append(f"| {name} | {value:.2f} | {'' if target is None else f'{sense} {target:g}'} |")
    parameters, machine = record["sizes"][0]["parameters"], record["environment"]
    return [
        *rows,
        "",
        f"d = {parameters:,}, {record['threads']} threads in process; both nodes on one machine, a "
        f"core each. `python benchmarks/large.py`, on {machine['cpu']}, {machine['cores']} cores.",
    ]


def large_plan() -> list[str]:
    """Return what a round of more peers than were measured would take, on paper."""
    record = read("benchmarks/large.json")
    plans = [plan(record, PLANNED, cores) for cores in PLANNED_CORES]

    def row(name: str, *values: str) -> str:
        return f"| {name} | {' | '.join(values)} |"

    return [
        row(f"{PLANNED:,} peers on", *(f"{p.cores} cores" for p in plans)),
        "|---" * (len(plans) + 1) + "|",
        row("gradients, s", *(f"{p.gradients:.1f}" for p in plans)),
        row("dealing and opening, s", *(f"{p.dealing + p.opening:.1f}" for p in plans)),
        row("transfers, s", *(f"{p.transfers:.1f}" for p in plans)),
        row("**a round, s**", *(f"{p.seconds:.1f}" for p in plans)),
        row("**rounds an hour**", *(f"{p.rounds_per_hour:,.0f}" for p in plans)),
        row("sent in a round", *(readable(p.transferred) for p in plans)),
        row("memory of the driver", *(readable(p.memory) for p in plans)),
        row("history of a round, two cohorts", *(readable(p.history) for p in plans)),
        "",
        f"Computed, not measured: from what {record['sizes'][-1]['peers']:,} peers took, by "
        f"`experiments/analysis/large_plan.py`, with {readable(NETWORK_BYTES)} a second between "
        "machines.",
    ]


TABLES: dict[str, Callable[[], list[str]]] = {
    "chaos": chaos,
    "sharing": sharing,
    "simulated-rounds": simulated_rounds,
    "large": large,
    "large-plan": large_plan,
    "peers": peers,
    "front": front,
    "methods": methods,
    "adam": adam,
    "verdict": verdict,
    "undetected": undetected,
    "calibration": calibrated,
    "hours": hours,
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
        _, end, after = rest.partition("<!-- end -->")
        if not end:
            sys.exit(f"the table {name!r} of a page has no <!-- end -->")
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
