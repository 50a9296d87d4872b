"""Timings side by side on a noisy machine, and what they were measured on.

Rules:

- Contestants take turns, round after round, so that a slow spell of the machine hits them all.
  In one round a fast contestant runs several times. What counts is the best of all runs.
- Garbage collection is off while the clock runs, as in `timeit`.
- A contestant that is too slow for the size asked for runs at a smaller one, and its time is
  multiplied up; such a timing says `extrapolated` and keeps the size it was measured at.
- How many cores other processes kept busy during a race is recorded with it: ratios from a race
  on a busy machine say little, since threaded and unthreaded code suffer differently.
"""

import gc
import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import threadpoolctl

ROUND_SECONDS = 0.15
"""A contestant faster than this runs again in the same round, up to `RUNS_PER_ROUND` times."""
RUNS_PER_ROUND = 5

LIBRARIES = ("numpy", "mpyc", "galois", "python-flint", "cryptography", "threadpoolctl")


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """Something to time: `work`, after an untimed `prepare`."""

    name: str
    work: Callable[[], Any]
    prepare: Callable[[], Any] = lambda: None
    length: int
    """How many numbers the timing is meant for."""
    measured_length: int
    """How many numbers `work` really works on; if fewer, the time is extrapolated."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """All runs of one contestant in one setting."""

    name: str
    operation: str
    packing: int
    length: int
    measured_length: int
    extrapolated: bool
    seconds: list[float]
    """What was measured, at `measured_length`."""
    best: float
    """The best of them, multiplied up to `length` if extrapolated."""
    others_busy: float
    """How many cores were busy with other processes, on average over the race."""


def race(
    operation: str, packing: int, contestants: Sequence[Contestant], rounds: int
) -> list[Timing]:
    """Time the contestants in turns."""
    progress(f"{operation}, packing {packing}, {contestants[0].length:,} numbers")
    seconds: dict[str, list[float]] = {each.name: [] for each in contestants}
    start, others = time.perf_counter(), _others_seconds()
    for _ in range(rounds):
        for each in contestants:
            spent = 0.0
            for _ in range(RUNS_PER_ROUND):
                seconds[each.name].append(_run(each))
                spent += seconds[each.name][-1]
                if spent > ROUND_SECONDS:
                    break
    busy = max(0.0, (_others_seconds() - others) / (time.perf_counter() - start))
    return [_timing(operation, packing, each, seconds[each.name], busy) for each in contestants]


def progress(text: str) -> None:
    """Say on stderr what is being measured."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def environment() -> dict[str, Any]:
    """Return what the timings depend on: code, libraries, threads, processor, load."""
    return {
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--", "src", "benchmarks")),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "libraries": {name: importlib.metadata.version(name) for name in LIBRARIES},
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "blas": [
            {key: pool[key] for key in ("internal_api", "version", "architecture", "num_threads")}
            | {"file": Path(pool["filepath"]).name}
            for pool in threadpoolctl.threadpool_info()
            if pool["user_api"] == "blas"
        ],
    }


def as_record(timings: Sequence[Timing]) -> list[dict[str, Any]]:
    """Return timings as they are written to a record."""
    return [asdict(timing) for timing in timings]


def _run(contestant: Contestant) -> float:
    contestant.prepare()
    gc.collect(0)
    gc.disable()
    try:
        start = time.perf_counter()
        contestant.work()
        return time.perf_counter() - start
    finally:
        gc.enable()


def _timing(
    operation: str, packing: int, each: Contestant, seconds: list[float], busy: float
) -> Timing:
    return Timing(
        name=each.name,
        operation=operation,
        packing=packing,
        length=each.length,
        measured_length=each.measured_length,
        extrapolated=each.measured_length != each.length,
        seconds=seconds,
        best=min(seconds) * each.length / each.measured_length,
        others_busy=busy,
    )


def _others_seconds() -> float:
    """Return the processor seconds that all other processes have used so far (Linux only)."""
    path = Path("/proc/stat")
    if not path.exists():
        return 0.0
    user, nice, system, _, _, interrupts, soft, stolen = map(int, path.read_text().split()[1:9])
    ticks = user + nice + system + interrupts + soft + stolen
    return ticks / os.sysconf("SC_CLK_TCK") - time.process_time()


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent.parent), *arguments]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 (fixed commands)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return answer.stdout.strip()


def _cpu_model() -> str:
    path = Path("/proc/cpuinfo")
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
