"""A simulated round of 200 peers: vectorised against a plain loop, shares against the clear.

    python benchmarks/simulation.py --record results/benchmarks/simulation.json

The network is 784-100-10 (79,510 numbers), minibatches of 32, on random data of MNIST's shape.
All contestants end with the same thing: the opened sum of all clipped, rounded updates. Beside them
is what Muon makes of such a sum, the public step to the next model. The peak memory is that of a
whole run of `--rounds` rounds, training and recovery on shares, in a process of its own.
"""

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from timing import Contestant, as_record, environment, progress, race

from pdlrecover.engines.simulated_peers import SimulatedPeers, simulate_peers
from pdlrecover.engines.sum_store import ClearSums, SharedSums
from pdlrecover.federation import Federation
from pdlrecover.field import Integers, one_blas_thread
from pdlrecover.learning.models import build
from pdlrecover.recovery.methods import OURS, Settings
from pdlrecover.recovery.optimizers import Muon, Rate
from pdlrecover.sharing import Scheme, Tolerance

PEERS = 200
REMOVED = 40
TARGETS = {
    "plain loop / clear round": (2.0, "at least"),
    "round on shares / clear round": (2.5, "at most"),
    "Muon's public step / round on shares": (0.1, "at most"),
    "peak memory, GB": (6.0, "at most"),
}


def simulated_peers() -> SimulatedPeers:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(60_000, 1, 28, 28)).astype(np.float32))
    y = torch.from_numpy(rng.integers(0, 10, 60_000))
    parts = np.array_split(rng.permutation(60_000), PEERS)
    return simulate_peers(build("mlp", (1, 28, 28), 10, 0), x, y, parts, batch_size=32)


def plain_loop(people: SimulatedPeers, w: np.ndarray, t: int) -> Integers:
    """Do what one would write first: every peer's gradient by autograd, one after the other."""
    module = people.updates.model.module_with(w)
    parameters = list(module.parameters())
    total = torch.zeros(people.updates.model.size + 1, dtype=torch.float64)
    for peer in range(PEERS):
        x, y = people.batches.take(people.x, people.y, [peer], t)
        loss = torch.nn.functional.cross_entropy(module(x[0]), y[0])
        pieces = torch.autograd.grad(loss, parameters)
        weight = float(people.updates.weights[peer])
        update = weight * torch.cat([piece.flatten() for piece in pieces])
        norm = float(torch.linalg.vector_norm(update))
        if norm > people.updates.bound:
            update *= people.updates.bound / norm
        total[:-1] += torch.round(update * people.code.scale)
        total[-1] += round(weight * people.code.scale)
    return total.numpy().astype(np.int64)


def rounds_race(repeats: int) -> tuple[list[dict[str, object]], dict[str, float]]:
    people = simulated_peers()
    one_blas_thread()
    w = people.updates.model.initial
    scheme = Scheme.for_peers(PEERS, Tolerance(colluders=66, dropouts=60, liars=5))
    length = people.code.length
    clear = ClearSums()
    shared = SharedSums(scheme=scheme, length=length, responders=tuple(range(PEERS)))

    def clear_round() -> Integers:
        return clear.open(clear.read(clear.deal(people.sums(0, w, [range(PEERS)])), [0])[0])

    def shared_round() -> Integers:
        dealt = shared.deal(people.sums(0, w, [range(PEERS)]))
        return shared.open(shared.read(dealt, [0])[0])

    works = {
        "clear round": clear_round,
        "round on shares": shared_round,
        "plain loop": lambda: plain_loop(people, w, 0),
    }
    found = {name: work() for name, work in works.items()}
    if not np.array_equal(found["clear round"], found["round on shares"]):
        raise SystemExit("shares and clear disagree")
    largest = np.abs(found["clear round"] - found["plain loop"]).max() / people.code.scale
    if largest > 1e-4:
        raise SystemExit(f"the plain loop disagrees by {largest}")
    layers = people.updates.model.layers
    step = Muon(rate=Rate(peak=0.04), layers=layers).start()
    mean = found["clear round"][:-1] / people.code.scale
    contestants = [
        Contestant(name=name, work=work, length=length, measured_length=length)
        for name, work in {**works, "Muon's public step": lambda: step.step(w, mean)}.items()
    ]
    timings = race("a round", scheme.quorums.packing, contestants, repeats)
    best = {timing.name: timing.best for timing in timings}
    return as_record(timings), {
        "plain loop / clear round": best["plain loop"] / best["clear round"],
        "round on shares / clear round": best["round on shares"] / best["clear round"],
        "Muon's public step / round on shares": best["Muon's public step"]
        / best["round on shares"],
    }


def whole_run(rounds: int) -> None:
    """Train and recover on shares; print the largest resident size in bytes."""
    federation = Federation(
        simulated_peers(),
        Scheme.for_peers(PEERS, Tolerance(colluders=66, dropouts=60, liars=5)),
        cohorts=[range(REMOVED), range(REMOVED, PEERS)],
        budget=1 << 40,
    )
    federation.train(rounds, 0.03)
    federation.recover(range(REMOVED), OURS, settings=Settings(), reason="malicious")
    print(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def peak_memory(rounds: int) -> float:
    progress(f"peak memory of {rounds} rounds")
    command = [sys.executable, __file__, "--whole-run", str(rounds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 (this file)
    return int(done.stdout) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", type=Path, help="where the result record goes")
    parser.add_argument("--repeats", type=int, default=12, help="rounds of the race")
    parser.add_argument(
        "--rounds", type=int, default=1000, help="rounds of the run for memory, 60 or more"
    )
    parser.add_argument("--whole-run", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.whole_run:
        whole_run(arguments.whole_run)
        return
    timings, ratios = rounds_race(arguments.repeats)
    ratios["peak memory, GB"] = peak_memory(arguments.rounds)
    table = Table(title=f"A simulated round of {PEERS} peers", title_justify="left")
    for name in ("", "measured", "target", ""):
        table.add_column(name)
    for name, value in ratios.items():
        target, sense = TARGETS[name]
        fine = value >= target if sense == "at least" else value <= target
        table.add_row(name, f"{value:.2f}", f"{sense} {target}", "PASS" if fine else "MISS")
    Console().print(table)
    if arguments.record:
        record = {
            "environment": environment(),
            "memory_rounds": arguments.rounds,
            "timings": timings,
            "ratios": ratios,
            "targets": TARGETS,
        }
        arguments.record.parent.mkdir(parents=True, exist_ok=True)
        arguments.record.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
