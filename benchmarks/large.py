"""Large simulations: a round in this process and over two Ray nodes, and the memory of a whole run.

    python benchmarks/large.py --record results/benchmarks/large.json

The network is 784-100-10 (79,510 numbers), minibatches of 32, on random data of MNIST's shape; a
fifth of the peers attack (a sign flip), are removed, and are a cohort of their own. A round is one
of the training: the sums of both cohorts, dealt, and their total opened. For each number of peers

- both ways take turns in a process of its own, with two nodes of one core each on this machine, and
  must come to the same sums; what counts is the best of all runs;
- the peak memory (VmHWM) is that of another process, without Ray, that trains and recovers.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from memory import _largest_resident as largest_resident
from rich.console import Console
from rich.table import Table
from timing import Contestant, as_record, environment, progress, race

from pdlrecover.adversary import SignFlip
from pdlrecover.cluster import QUIET
from pdlrecover.engines.shards.sharded_peers import ShardedPeers, sharded
from pdlrecover.engines.shards.sharding import Sharding
from pdlrecover.engines.simulated_peers import SimulatedPeers, simulate_peers
from pdlrecover.engines.sum_store import SharedSums
from pdlrecover.federation import Federation
from pdlrecover.field import Integers, one_blas_thread
from pdlrecover.learning.models import build
from pdlrecover.recovery.methods import OURS, Settings
from pdlrecover.recovery.pdlrecover import Options
from pdlrecover.recovery.schedule import Schedule
from pdlrecover.sharing import Scheme, Tolerance

PEERS = (1000, 2000, 5000, 10_000)
SAMPLES = 60_000
NODES = 2
STORE_BYTES = 400 << 20
SCHEDULE = Schedule(preparation=3, period=3, final=1, buffer=2)
"""Of the recovery whose memory is measured: the fewest rounds that do all there is to do."""
TARGETS = {
    "peak memory of 10,000 peers, GB": (2.0, "at most"),
    "round of 10,000 peers / 10 · round of 1,000": (1.2, "at most"),
    "over two nodes / in process, 10,000 peers": (1.2, "at most"),
}


def scheme_of(peers: int) -> Scheme:
    tolerance = Tolerance(colluders=peers // 3, dropouts=3 * peers // 10, liars=5)
    return Scheme.for_peers(peers, tolerance)


def people_of(peers: int, samples: int) -> SimulatedPeers:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((samples, 1, 28, 28), dtype=np.float32))
    y = torch.from_numpy(rng.integers(0, 10, samples))
    return simulate_peers(
        build("mlp", (1, 28, 28), 10, 0),
        x,
        y,
        np.array_split(rng.permutation(samples), peers),
        batch_size=32,
        bound=1.0,
        malicious=range(peers // 5),
        attack=SignFlip(),
    )


@contextmanager
def two_nodes() -> Iterator[str]:
    """Start two nodes of one core each; yield their cluster's address."""
    os.environ.update(QUIET)
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args={**node, "node_name": "first"})
    try:
        made.add_node(**node, node_name="second")
        yield made.address
    finally:
        made.shutdown()


def rounds_race(peers: int, samples: int, repeats: int) -> dict[str, Any]:
    """Return the timings of a round, both ways, and of its parts."""
    people, scheme = people_of(peers, samples), scheme_of(peers)
    one_blas_thread()
    w, groups = people.updates.model.initial, [range(peers // 5), range(peers // 5, peers)]
    store = SharedSums(scheme=scheme, length=people.code.length, responders=tuple(range(peers)))
    asked = {"phase": "training", "stream": 0, "local": None, "teacher": None}

    def opened(sums: Integers) -> Integers:
        return store.open(store.total(store.read(store.deal(sums), range(len(groups)))))

    sums = people.sums(0, w, groups)
    held = store.total(store.read(store.deal(sums), range(len(groups))))
    with two_nodes() as address:
        where = Sharding(shards=NODES, on=address)
        with sharded(people, scheme, where, progress) as shards:
            used = shards.processor_seconds
            if not np.array_equal(shards.sums(0, w, groups, **asked), sums):
                raise SystemExit("shards and this process disagree")
            used = shards.processor_seconds - used
            works: dict[str, Callable[[], Any]] = {
                "round": lambda: opened(people.sums(0, w, groups)),
                "round over two nodes": lambda: opened(shards.sums(0, w, groups, **asked)),
                "dealing": lambda: store.deal(sums),
                "opening": lambda: store.open(held),
            }
            timings = race(
                f"{peers} peers",
                scheme.quorums.packing,
                [_contestant(name, work, people.code.length) for name, work in works.items()],
                repeats,
            )
            parts = _parts(shards, people, peers)
    return {
        "best": {timing.name: timing.best for timing in timings},
        "timings": as_record(timings),
        "shards_processor_seconds": used,
        "parts": parts,
        "record_bytes": 2 * peers * scheme.quorums.blocks(people.code.length) * 8,
        "parameters": people.updates.model.size,
        "packing": scheme.quorums.packing,
    }


def _parts(shards: ShardedPeers, people: SimulatedPeers, peers: int) -> int:
    """Return into how many parts a round's work is cut."""
    return min(shards.crew.parts, -(-peers // people.piece()))


def _contestant(name: str, work: Callable[[], Any], length: int) -> Contestant:
    return Contestant(name=name, work=work, length=length, measured_length=length)


def whole_run(peers: int, samples: int, rounds: int) -> dict[str, Any]:
    """Train and recover; return the largest resident size in bytes, and seconds."""
    federation = Federation(
        people_of(peers, samples),
        scheme_of(peers),
        cohorts=[range(peers // 5), range(peers // 5, peers)],
        budget=1 << 40,
    )
    start = time.perf_counter()
    federation.train(rounds, 0.03, progress=False)
    settings = Settings(options=Options(schedule=SCHEDULE))
    federation.recover(
        range(peers // 5), OURS, settings=settings, reason="malicious", progress=False
    )
    return {"bytes": largest_resident(), "seconds": time.perf_counter() - start, "rounds": rounds}


def of_its_own(what: str, *numbers: int) -> dict[str, Any]:
    """Return what a process of its own measures."""
    command = [sys.executable, __file__, "--only", what, *map(str, numbers)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 (this file)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def targets_of(sizes: list[dict[str, Any]]) -> dict[str, float]:
    """Return what is held against the targets: of the largest size, beside the smallest."""
    first, last = sizes[0], sizes[-1]
    factor = last["peers"] / first["peers"]
    best = last["best"]
    return {
        f"peak memory of {last['peers']:,} peers, GB": last["whole_run"]["bytes"] / 1e9,
        f"round of {last['peers']:,} peers / {factor:g} · round of {first['peers']:,}": (
            best["round"] / factor / first["best"]["round"]
        ),
        f"over two nodes / in process, {last['peers']:,} peers": (
            best["round over two nodes"] / best["round"]
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", type=Path, help="where the result record goes")
    parser.add_argument("--peers", type=int, nargs="+", default=PEERS, help="numbers of peers")
    parser.add_argument("--repeats", type=int, default=2, help="rounds of each race")
    parser.add_argument("--rounds", type=int, default=8, help="rounds trained for the memory")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="samples of all peers")
    parser.add_argument("--only", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        what, *numbers = arguments.only
        measure = {"race": rounds_race, "run": whole_run}[what]
        print(json.dumps(measure(*map(int, numbers))))
        return
    sizes = []
    for peers in sorted(arguments.peers):
        progress(f"{peers:,} peers: memory of a whole run")
        run = of_its_own("run", peers, arguments.samples, arguments.rounds)
        found = of_its_own("race", peers, arguments.samples, arguments.repeats)
        sizes.append({"peers": peers, "whole_run": run, **found})
    ratios = targets_of(sizes)
    show(sizes, ratios)
    if arguments.record:
        record = {
            "environment": environment(),
            "command": " ".join(["python", *sys.argv]),
            "threads": torch.get_num_threads(),
            "nodes": NODES,
            "samples": arguments.samples,
            "sizes": sizes,
            "ratios": ratios,
            "targets": TARGETS,
        }
        arguments.record.parent.mkdir(parents=True, exist_ok=True)
        arguments.record.write_text(json.dumps(record, indent=1))


def show(sizes: list[dict[str, Any]], ratios: dict[str, float]) -> None:
    table = Table(title="A simulated round of many peers", title_justify="left")
    for name in ("peers", "round, s", "over two nodes, s", "ratio", "peak memory, GB"):
        table.add_column(name, justify="right")
    for size in sizes:
        here, there = size["best"]["round"], size["best"]["round over two nodes"]
        memory = size["whole_run"]["bytes"] / 1e9
        table.add_row(
            f"{size['peers']:,}",
            f"{here:.2f}",
            f"{there:.2f}",
            f"{there / here:.2f}",
            f"{memory:.2f}",
        )
    console = Console()
    console.print(table)
    for name, value in ratios.items():
        target, sense = TARGETS.get(name, (None, ""))
        wanted = "" if target is None else f" ({sense} {target})"
        console.print(f"{name}: {value:.2f}{wanted}", highlight=False)


if __name__ == "__main__":
    main()
