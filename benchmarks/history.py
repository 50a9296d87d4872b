"""The history of a real peer: rounds committed for good, and sums of shares read again.

    python benchmarks/history.py --record results/benchmarks/history.json

A model of a million numbers, 200 dealers, packing 32: shares of 31,250 field elements. What is
written is compared with plain bytes, as many, written to a file on the same disk and synced.
"""

import argparse
import json
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from timing import Contestant, as_record, environment, race

from pdlrecover.field import F61, SystemSource
from pdlrecover.history import Vault, VaultLayout, verify

PARAMETERS, BLOCKS, DEALERS, PACKING = 1_000_000, 31_250, 200, 32
KEY = bytes(32)
LAYOUT = VaultLayout(
    federation=bytes(32), run="benchmark", peer=0, parameters=PARAMETERS, blocks=BLOCKS
)


def timings(folder: Path, repeats: int) -> tuple[list[dict[str, object]], dict[str, float]]:
    shares = SystemSource().elements(DEALERS, BLOCKS)
    dealt = dict(enumerate(shares))
    model, total = np.linspace(-1, 1, PARAMETERS), np.arange(PARAMETERS + 1)
    content = os.urandom(model.nbytes + total.nbytes + shares.nbytes)
    vault = Vault(folder / "history", KEY, LAYOUT, keep=4)

    def commit() -> None:
        vault.commit(
            round=len(vault), model=model, dealers=range(DEALERS), shares=dealt, total=total
        )

    def plain() -> None:
        with (folder / "plain").open("ab") as file:
            file.write(content)
            file.flush()
            os.fdatasync(file.fileno())

    def add_up() -> None:
        vault.sum(len(vault) - 1, range(DEALERS))

    commit()
    if not np.array_equal(vault.sum(0, range(DEALERS)).values, F61.sum(shares, axis=0)):
        raise SystemExit("the sum of the stored shares is wrong")
    contestants = [
        Contestant(name=name, work=work, length=PARAMETERS, measured_length=PARAMETERS)
        for name, work in (("commit", commit), ("plain bytes", plain), ("sum", add_up))
    ]
    found = race("a round of a peer's history", PACKING, contestants, repeats)
    vault.close()
    if not verify(folder / "history", KEY, LAYOUT).sound:
        raise SystemExit("the history is damaged")
    best = {timing.name: timing.best for timing in found}
    return as_record(found), {
        "committed, MB/s": len(content) / best["commit"] / 1e6,
        "plain bytes synced, MB/s": len(content) / best["plain bytes"] / 1e6,
        "shares opened and added up, MB/s": shares.nbytes / best["sum"] / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument(
        "--folder", type=Path, help="where to write; a temporary place if not given"
    )
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pdlrecover-", dir=arguments.folder))
    try:
        measured, headlines = timings(folder, arguments.repeats)
    finally:
        shutil.rmtree(folder)
    for name, value in headlines.items():
        Console().print(f"{name}: {value:,.0f}")
    if arguments.record:
        record = {"environment": environment(), "headlines": headlines, "timings": measured}
        arguments.record.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
