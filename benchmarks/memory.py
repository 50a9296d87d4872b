"""The memory that dealing takes, measured in fresh processes.

Two measures: what numpy reports to `tracemalloc` (exact and repeatable), and by how much the
process's largest resident size grows (what the machine sees). Both include the shares dealt.
"""

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np

from pdlrecover.field import F61, Elements
from pdlrecover.sharing import Scheme, Tolerance


def dealing_memory(
    tolerance: Tolerance, peers: int, packing: int, length: int
) -> dict[str, int | float]:
    """Return the output's bytes, and both peaks in bytes and as multiples of it."""
    setting = vars(tolerance) | {"peers": peers, "packing": packing, "length": length}
    results: dict[str, int | float] = {}
    for measure in MEASURES:
        command = [sys.executable, __file__, measure, json.dumps(setting)]
        answer = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 (this file)
        output, peak = json.loads(answer.stdout)
        results |= {"output_bytes": output, f"{measure}_bytes": peak}
        results[f"{measure}_multiple"] = peak / output
    return results


def traced(scheme: Scheme, secrets: Elements) -> tuple[int, int]:
    """Return the bytes of the shares, and of all that was allocated at the worst moment."""
    tracemalloc.start()
    shares = scheme.share(secrets)
    return shares.values.nbytes, tracemalloc.get_traced_memory()[1]


def resident(scheme: Scheme, secrets: Elements) -> tuple[int, int]:
    """Return the bytes of the shares, and the growth of the largest resident size."""
    before = _largest_resident()
    shares = scheme.share(secrets)
    return shares.values.nbytes, _largest_resident() - before


MEASURES = {"traced": traced, "resident": resident}


def _largest_resident() -> int:
    """Return the largest resident size so far, in bytes (Linux only).

    `getrusage` will not do: its ru_maxrss starts at the parent's, even in a new program.
    """
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def main(measure: str, setting: dict[str, int]) -> None:
    peers, packing, length = (setting.pop(name) for name in ("peers", "packing", "length"))
    scheme = Scheme(Tolerance(**setting).quorums(peers, packing=packing))
    scheme.share(np.zeros(8 * packing, dtype=np.int64))  # what is kept for later is not counted
    secrets = np.random.default_rng(0).integers(0, F61.modulus, length)
    print(json.dumps(MEASURES[measure](scheme, secrets)))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
