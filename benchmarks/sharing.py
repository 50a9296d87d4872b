"""Our secret sharing against MPyC, galois, flint and the bare BLAS product, in one run.

Setting: n = 200 peers, c = 66 colluders, vectors of d numbers, packing ℓ = 1 (plain Shamir, like
for like with MPyC) and ℓ = 32. What each rival does, and does not, is said in `rivals.py`; how
the timings are taken in `timing.py`. Ratios are of best times.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from memory_store import dealing_memory
from races import (
    QUICK,
    Config,
    race_dealing,
    race_linearity,
    race_opening,
    race_product,
    race_randomness,
    race_robust,
)
from report import headlines, print_report, ratios
from rivals import check_rivals
from timing import Timing, as_record, environment, progress

EXAMPLE = """example:
  .venv/bin/python benchmarks/sharing.py --record results/sharing.json     about 5 minutes
  .venv/bin/python benchmarks/sharing.py --record look.json --quick   under 1 minute
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", type=Path, required=True, metavar="FILE.json")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer rounds")
    arguments = parser.parse_args()
    config = QUICK if arguments.quick else Config()
    record = measure(config)
    record["config"]["quick"] = arguments.quick
    arguments.record.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    print_report(record)


def measure(config: Config) -> dict[str, Any]:
    """Run everything and return the record."""
    start, where = time.time(), environment()
    progress("checking that ours and every rival compute the same")
    checked = check_rivals(config.scheme(1), config.scheme(32))
    timings: list[Timing] = []
    for contest in (race_dealing, race_opening, race_product):
        for packing in config.packings:
            for length in config.lengths:
                timings += contest(config, config.scheme(packing), length)
    timings += race_linearity(config)
    timings += race_robust(config)
    timings += race_randomness(config)
    progress("memory of dealing")
    memory = [
        {"packing": packing, "length": length}
        | dealing_memory(config.tolerance, config.peers, packing, length)
        for packing, length in ((1, 100_000), (32, 1_000_000))
    ]
    record: dict[str, Any] = {
        "config": vars(config) | {"tolerance": vars(config.tolerance)},
        "environment": where,
        "checked": checked,
        "timings": as_record(timings),
        "memory": memory,
    }
    record["ratios"] = ratios(record)
    record["headlines"] = headlines(record)
    record["seconds"] = time.time() - start
    return record


if __name__ == "__main__":
    main()
