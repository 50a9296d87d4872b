"""Real peers: seconds, bytes and memory of a round, against a bare exchange of the same bytes.

    python benchmarks/peers.py --record results/benchmarks/peers.json
    python benchmarks/peers.py --quick                      # five peers, few rounds

Every peer is a process of its own that runs `pdlrecover peer run`: gRPC with mutual TLS on the
loopback, verified dealing, sealed history on disk. The network is 784-100-10 (79,510 numbers).

1. `peers_bare.py`: as many processes exchange the bytes of an exact round, and nothing else; every
   other time each computes a gradient and deals before.
2. The peers train, and remove a fifth of them: at the first size by accelerated retraining, then by
   PDLRecover, then by retraining, else by PDLRecover alone. All are between the same kept peers,
   and follow each other.
3. The bare exchange once more. Its time is the median over both.

An exact round is held against the bare exchange plus the time that the peers' own gradient and
dealing took in that round, and also against the exchange with gradient and dealing before it, which
is harder: nothing else runs in those processes. Seconds are wall-clock on this machine, where all
processes share the cores. Processor seconds are those of one peer, and depend less on what else
runs.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from peers_folders import PeerFolders
from peers_summary import EXACT, FIVE, ONE, summary
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
PATIENCE = 3600.0
METHODS = ("accelerated-retrain", "pdlrecover", "retrain")


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
    place: Path, peers: int, rounds: int, bare_rounds: int, methods: tuple[str, ...]
) -> dict[str, Any]:
    """Run one federation, its recoveries and its rival; return the record."""
    with PeerFolders(place, peers, TOLERANCES[peers], rounds) as folders:
        removed = range(peers - max(1, peers // 5), peers)
        kept = range(removed.start)
        exchanges = bare(folders, bare_rounds, "before.json")
        progress(f"{peers} peers train {rounds} rounds")
        folders.start("peers_probe.py")
        folders.have(range(peers), "trained.json", PATIENCE)
        for method in methods:
            progress(f"{len(removed)} of {peers} peers are removed by {method}")
            files = folders.remove(removed, method, again=method == "retrain")
            folders.have(kept, f"{files}.json", PATIENCE)
        resident = folders.resident()
        folders.stop()
        exchanges += bare(folders, bare_rounds, "after.json")
        sent = sum(message_sizes(peers)) * (peers - 1)
        return summary(folders, exchanges, resident, methods, sent) | {"numbers": PARAMETERS}


TARGETS = {
    EXACT: 2.5,
    ONE: 0.3,
    FIVE: 0.3,
    "bytes of an estimated / an exact round": 0.6,
    "pdlrecover / retrain": 0.2,
    "accelerated-retrain / retrain": 0.08,
}


def show(record: dict[str, Any]) -> None:
    console, against = Console(), record["bare"]
    table = Table(title=f"{record['peers']} peers, d = {record['numbers']:,}", title_justify="left")
    for name in ("", "seconds", "MB sent by a peer"):
        table.add_column(name, justify="left" if not name else "right")
    for name, seconds, size in (
        ("exact round", record["exact"]["seconds"], record["exact"]["bytes"]),
        ("… between the kept", record["estimated"]["exact"], record["estimated"]["exact_bytes"]),
        ("estimated round", record["estimated"]["seconds"], record["estimated"]["bytes"]),
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
    for method, cost in record["recoveries"].items():
        told = ", ".join(f"{name} {spent:.2f}" for name, spent in cost["processor"].items())
        console.print(f"{method}: {cost['seconds']:.1f} s; one peer's processor seconds: {told}")
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
            methods = METHODS if i == 0 else ("pdlrecover",)
            found = measure(place / str(peers), peers, rounds, arguments.bare_rounds, methods)
            show(found)
            sizes.append(found)
            write(arguments.record, sizes)
    finally:
        if not arguments.folder:
            shutil.rmtree(place)


if __name__ == "__main__":
    main()
