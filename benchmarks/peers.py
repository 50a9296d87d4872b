"""Real peers: seconds, bytes and memory of a round, against a bare exchange of the same bytes.

    python benchmarks/peers.py --record results/benchmarks/peers.json
    python benchmarks/peers.py --quick                      # five peers, few rounds

Every peer is a process of its own that runs `pdlrecover peer run`: gRPC with mutual TLS on the
loopback, verified dealing, sealed history on disk. The network is 784-100-10 (79,510 numbers).

1. `peers_bare.py`: as many processes exchange the bytes of an exact round, and nothing else; every
   other time each computes a gradient and deals before.
2. The peers train, remove a fifth of them by PDLRecover, and then, at the smaller size, the same
   ones by retraining: both recoveries are between the same kept peers, and follow each other.
3. The bare exchange once more. Its time is the median over both.

An exact round is held against the bare exchange plus the time that the peers' own gradient and
dealing took in that round, and also against the exchange with gradient and dealing before it, which
is harder: nothing else runs in those processes. Seconds are wall-clock on this machine, where all
processes share the cores. Processor seconds are those of one peer, and depend less on what else
runs.
"""

import argparse
import itertools
import json
import shutil
import statistics
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from peers_folders import PeerFolders
from rich.console import Console
from rich.table import Table
from timing import environment, progress

from pdlrecover.engines.peers.identity.sealing import SEALING_OVERHEAD
from pdlrecover.engines.peers.protocol import codec
from pdlrecover.engines.peers.protocol.dealing import CHECKS, NONCE_BYTES
from pdlrecover.engines.peers.protocol.messages import NOTHING, Dealing, Header, SubSecret
from pdlrecover.sharing import Tolerance

TOLERANCES = {
    5: Tolerance(colluders=1, dropouts=2, liars=0),
    10: Tolerance(colluders=3, dropouts=2, liars=1),
    20: Tolerance(colluders=6, dropouts=4, liars=1),
}
PARAMETERS = 79_510
WARM_UP = 3
"""So many first rounds are not counted: connections are made, and pages touched."""
PATIENCE = 3600.0
EXACT = "exact round / (bare exchange + the peers' own gradient and dealing)"


def message_sizes(peers: int) -> tuple[int, int]:
    """Return how many bytes a dealing and a sub-secret have."""
    quorums = TOLERANCES[peers].quorums(peers)
    blocks = quorums.blocks(PARAMETERS + 1)
    header = Header(
        federation=NOTHING, run=NOTHING, step=0, round=0, sender=0, recipient=1, log=NOTHING,
        asked=NOTHING,
    )  # fmt: skip
    bodies = (
        Dealing(
            commitments=bytes(32 * peers),
            proof=np.zeros(CHECKS * (quorums.vector_degree + 1), dtype=np.int64),
            statement=bytes(64),
            sealed=bytes(NONCE_BYTES + 8 * (blocks + CHECKS) + SEALING_OVERHEAD),
        ),
        SubSecret(choice=NOTHING, values=np.zeros(blocks, dtype=np.int64)),
    )
    first, second = (len(codec.encode(header, body, lambda _: bytes(64))) for body in bodies)
    return first, second


def bare(folders: PeerFolders, rounds: int, name: str) -> list[dict[str, float]]:
    """Let as many processes exchange the same bytes; return all their rounds."""
    progress(f"{folders.peers} processes, bare exchange ({name})")
    first, second = message_sizes(folders.peers)
    folders.start("peers_bare.py", str(rounds), str(first), str(second), name)
    folders.end(PATIENCE)
    found = [json.loads((folders.folder(me) / name).read_text()) for me in range(folders.peers)]
    return [row for rows in found for row in rows[2:]]


def measure(
    place: Path, peers: int, rounds: int, bare_rounds: int, retrain: bool
) -> dict[str, Any]:
    """Run one federation and its rival; return the record."""
    with PeerFolders(place, peers, TOLERANCES[peers], rounds) as folders:
        removed = range(peers - max(1, peers // 5), peers)
        kept = range(removed.start)
        exchanges = bare(folders, bare_rounds, "before.json")
        progress(f"{peers} peers train {rounds} rounds")
        folders.start("peers_probe.py")
        folders.have(range(peers), "trained.json", PATIENCE)
        for method in ("pdlrecover", "retrain")[: 1 + retrain]:
            progress(f"{len(removed)} of {peers} peers are removed by {method}")
            folders.have(kept, f"{folders.remove(removed, method)}.json", PATIENCE)
        resident = folders.resident()
        folders.stop()
        exchanges += bare(folders, bare_rounds, "after.json")
        return summary(folders, exchanges, resident, retrain)


def summary(
    folders: PeerFolders,
    exchanges: list[dict[str, float]],
    resident: list[dict[str, int]],
    retrain: bool,
) -> dict[str, Any]:
    probes = folders.probes()
    quorums = folders.membership.scheme.quorums
    alone, whole = ([r for r in exchanges if r["computes"] == kind] for kind in (0, 1))
    exact, exact_cpu = exact_rounds(probes)
    estimated = estimated_rounds(probes)
    record: dict[str, Any] = {
        "peers": folders.peers,
        "tolerance": vars(folders.membership.tolerance),
        "packing": quorums.packing,
        "numbers": PARAMETERS,
        "rounds": folders.membership.training.rounds,
        "exact": exact,
        "estimated": estimated,
        "bare": {
            "exchange_seconds": median(alone, "seconds"),
            "whole_seconds": median(whole, "seconds"),
            "computing_seconds": median(whole, "computing"),
            "exchange_cpu": median(alone, "cpu"),
            "whole_cpu": median(whole, "cpu"),
            "bytes": sum(message_sizes(folders.peers)) * (folders.peers - 1),
        },
        "work": {kind: work(probes, kind) for kind in ("FreshSum", "MaskedDots", "StoredSum")},
        "resident_bytes": {k: max(each[k] for each in resident) for k in ("most", "own")},
    }
    against = record["bare"]
    own = own_work(probes)
    record["own"] = own
    record["ratios"] = {
        EXACT: exact["seconds"] / (against["exchange_seconds"] + own["seconds"]),
        "in processor seconds": exact_cpu / (against["exchange_cpu"] + own["cpu"]),
        "exact round / bare processes that compute, deal and exchange": exact["seconds"]
        / against["whole_seconds"],
        "the same in processor seconds": exact_cpu / against["whole_cpu"],
        "bytes of an estimated / an exact round": estimated["bytes"] / estimated["exact_bytes"],
    }
    if retrain:
        spans = recovery_seconds(probes)
        record["recovery"] = spans
        record["ratios"]["recovery / retraining"] = spans["pdlrecover"] / spans["retrain"]
    return record


def median(rows: list[dict[str, float]], name: str) -> float:
    return statistics.median(row[name] for row in rows)


def exact_rounds(probes: list[dict[str, Any]]) -> tuple[dict[str, Any], float]:
    """Return what an exact round of the training takes, and one peer's processor seconds of it."""
    seconds, states, sent = [], [], []
    for probe in probes:
        steps = runs_of(probe)[0]
        for before, step in zip(steps[WARM_UP - 1 :], steps[WARM_UP:], strict=False):
            seconds.append(step["at"] - before["at"])
            states.append(step["states"])
            sent.append(sum(step["bytes"].values()))
    names = ("COMPUTING", "GATHERING", "AGREEING", "OPENING", "HISTORY")
    record = {
        "seconds": statistics.median(seconds),
        "bytes": statistics.median(sent),
        "bytes_by_message": mean_of([s["bytes"] for p in probes for s in runs_of(p)[0]]),
        "states": {name: statistics.median(s.get(name, 0.0) for s in states) for name in names},
    }
    fresh = [sum(s["kind"] == "FreshSum" for s in p["steps"]) for p in probes]
    cpu = [p["process_cpu"]["FreshSum"] / count for p, count in zip(probes, fresh, strict=True)]
    return record, statistics.median(cpu)


def estimated_rounds(probes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what an estimate takes: its dot products, and the opening of its direction.

    `exact_bytes` are those of an exact round between the same peers.
    """
    seconds, sent, counts = [], [], []
    for probe in probes:
        runs = runs_of(probe)
        if len(runs) < 2:
            continue
        spent = size = 0.0
        steps = runs[1]
        found = 0
        for before, step in itertools.pairwise(steps):
            if step["kind"] == "FreshSum":
                spent = size = 0.0
                continue
            spent += step["at"] - before["at"]
            size += sum(step["bytes"].values())
            if step["kind"] == "StoredSum":
                seconds.append(spent)
                sent.append(size)
                spent, size, found = 0.0, 0.0, found + 1
        counts.append(found)
    exact = [sum(s["bytes"].values()) for s in runs_of(probes[0])[1] if s["kind"] == "FreshSum"]
    return {
        "seconds": statistics.median(seconds),
        "bytes": statistics.median(sent),
        "openings": counts[0],
        "exact_rounds": len(exact),
        "exact_bytes": statistics.median(exact),
    }


def own_work(probes: list[dict[str, Any]]) -> dict[str, float]:
    """Return what gradient and dealing of an exact round take a peer: the mean over all rounds."""
    found: dict[str, list[float]] = {"wall": [], "cpu": []}
    for probe in probes:
        steps = sum(step["kind"] == "FreshSum" for step in probe["steps"])
        for clock, values in found.items():
            spent = probe[clock]["FreshSum"]
            values.append((spent["gradient"] + spent["dealing"]) / steps)
    return {"seconds": statistics.median(found["wall"]), "cpu": statistics.median(found["cpu"])}


def recovery_seconds(probes: list[dict[str, Any]]) -> dict[str, float]:
    """Return how long the recoveries took, from the first peer's start to the last one's end."""
    found = {}
    for i, method in enumerate(("pdlrecover", "retrain"), start=1):
        runs = [runs_of(probe)[i] for probe in probes if len(runs_of(probe)) > i]
        first = min(steps[0]["begun"] for steps in runs)
        found[method] = max(steps[-1]["at"] for steps in runs) - first
    return found


def work(probes: list[dict[str, Any]], kind: str) -> dict[str, float]:
    """Return one peer's processor seconds in a step of this kind, by work; all else is network."""
    found: Counter[str] = Counter()
    for probe in probes:
        steps = sum(step["kind"] == kind for step in probe["steps"])
        if not steps:
            continue
        shares = {name: spent / steps for name, spent in probe["cpu"][kind].items()}
        shares["network"] = probe["process_cpu"][kind] / steps - sum(shares.values())
        for name, spent in shares.items():
            found[name] += spent / sum(kind in p["cpu"] for p in probes)
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def runs_of(probe: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Return a peer's steps, run by run: the training, then the recoveries."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for step in probe["steps"]:
        runs.setdefault(step["run"], []).append(step)
    return list(runs.values())


def mean_of(rows: list[dict[str, float]]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row)
    return {name: value / len(rows) for name, value in total.items()}


TARGETS = {
    EXACT: 2.5,
    "bytes of an estimated / an exact round": 0.6,
    "recovery / retraining": 0.4,
}


def show(record: dict[str, Any]) -> None:
    console, against = Console(), record["bare"]
    table = Table(title=f"{record['peers']} peers, d = {record['numbers']:,}", title_justify="left")
    for name in ("", "seconds", "MB sent by a peer"):
        table.add_column(name, justify="left" if not name else "right")
    for name, seconds, size in (
        ("exact round", record["exact"]["seconds"], record["exact"]["bytes"]),
        ("estimate", record["estimated"]["seconds"], record["estimated"]["bytes"]),
        ("bare exchange", against["exchange_seconds"], against["bytes"]),
        ("… after gradient and dealing", against["whole_seconds"], against["bytes"]),
    ):
        table.add_row(name, f"{seconds:.3f}", f"{size / 1e6:.2f}")
    console.print(table)
    most, own = (record["resident_bytes"][name] / 1e6 for name in ("most", "own"))
    console.print(f"memory of a peer: {own:.0f} MB, {most:.0f} MB with libraries and history")
    states = ", ".join(f"{k.lower()} {v:.3f}" for k, v in record["exact"]["states"].items())
    console.print(f"an exact round's seconds by state: {states}")
    for kind, shares in record["work"].items():
        told = ", ".join(f"{name} {1000 * spent:.1f}" for name, spent in shares.items())
        total = 1000 * sum(shares.values())
        console.print(f"{kind}, one peer's processor ms: {told}; in all {total:.0f}")
    for name, value in record["ratios"].items():
        target = TARGETS.get(name)
        verdict = "" if target is None else f"at most {target}: "
        verdict += "" if target is None else "PASS" if value <= target else "MISS"
        console.print(f"{name}: {value:.2f}  {verdict}")


def write(path: Path | None, sizes: list[dict[str, Any]]) -> None:
    """Write the record of all sizes so far."""
    if path:
        record = {"environment": environment(), "targets": TARGETS, "sizes": sizes}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", type=Path, help="where the result record goes")
    parser.add_argument("--quick", action="store_true", help="five peers, few rounds")
    parser.add_argument("--peers", type=int, nargs="+", default=[10, 20], choices=TOLERANCES)
    parser.add_argument("--rounds", type=int, default=400, help="of training, at the first size")
    parser.add_argument("--bare-rounds", type=int, default=8, help="of the exchange, each time")
    parser.add_argument(
        "--folder", type=Path, help="where the peers' files go, and stay; else a temporary place"
    )
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.peers, arguments.rounds, arguments.bare_rounds = [5], 24, 4
    place = Path(tempfile.mkdtemp(prefix="pdl-", dir=arguments.folder))
    sizes = []
    try:
        for i, peers in enumerate(arguments.peers):
            rounds = arguments.rounds if i == 0 else max(24, arguments.rounds // 6)
            found = measure(place / str(peers), peers, rounds, arguments.bare_rounds, i == 0)
            show(found)
            sizes.append(found)
            write(arguments.record, sizes)
    finally:
        if not arguments.folder:
            shutil.rmtree(place)


if __name__ == "__main__":
    main()
