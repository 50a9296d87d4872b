"""Deal a vector to 20 peers, lose 5 of them, let one lie, open it all the same.

Run it with `python examples/lost_and_lying.py`.
"""

import time
from dataclasses import replace

import numpy as np
from rich.console import Console

from pdlrecover import Scheme, Tolerance
from pdlrecover.field import FixedPoint, SystemSource
from pdlrecover.sharing import open_robust

NUMBERS = 100_000
LOST = (1, 4, 9, 13, 17)
LIAR = 7

console = Console(highlight=False)
clock = time.perf_counter()


def say(step: str) -> None:
    """Print a step and what it cost since the one before."""
    global clock
    now = time.perf_counter()
    console.print(f"[green]{1000 * (now - clock):7.1f} ms[/]  {step}")
    clock = time.perf_counter()


scheme = Scheme.for_peers(20, Tolerance(colluders=6, dropouts=5, liars=1))
quorums = scheme.quorums
say(
    f"planned: any {quorums.tolerance.colluders} of 20 peers learn nothing, "
    f"{quorums.packing} numbers ride in one polynomial, {quorums.vector} peers can open"
)

secret = np.random.default_rng(0).normal(size=NUMBERS)
code = FixedPoint(peers=20, bound=float(np.linalg.norm(secret)), length=NUMBERS)
say(f"a secret vector of {NUMBERS:,} numbers: {secret[:3].round(3)} …")

shares = scheme.share(code.encode(secret))
one = shares.values[0].nbytes
say(f"dealt: every peer holds {one / 1000:.0f} kB, instead of {NUMBERS * 8 / 1000:.0f} kB")
say(f"what peer 0 sees of it: {shares.values[0, :3]} …")

answers = shares.of(peer for peer in range(20) if peer not in LOST)
say(f"peers {', '.join(map(str, LOST))} are gone")

values = answers.values.copy()
values[answers.peers.index(LIAR)] = SystemSource().elements(values.shape[1])
answers = replace(answers, values=values)
say(f"peer {LIAR} sends random numbers instead of its share")

believed = code.decode(scheme.open(answers))
wrong = np.mean(np.abs(believed - secret) > code.scale**-1)
say(f"opened by trusting everybody: {100 * wrong:.0f}% of the numbers are wrong")

opening = open_robust(scheme, answers)
opened = code.decode(opening.values)
error = np.abs(opened - secret).max()
say(f"opened robustly: the liar is peer {', '.join(map(str, opening.liars))}")
say(f"largest error {error:.1e}, half a step of the encoding being {0.5 / code.scale:.1e}")

if opening.liars != (LIAR,) or error > 0.5001 / code.scale:
    raise SystemExit("the story did not end as it should")
