"""The samples that a peer holds out: never trained on, and only evaluated on.

Rules: of N samples a peer holds out h = round(share·N), at least 1 and at most N − 1; a single
sample is trained on. Which ones is a pure function of (seed, peer, N): each position has a hash
(see `batches`), and those with the smallest are held out. So they are the same in training, in
every recovery, and in a simulation of the same peers.
"""

import math

import numpy as np

from pdlrecover.errors import DataError
from pdlrecover.learning.batches import draws
from pdlrecover.learning.partition import Indices

_STREAM = 0x4845_4C44_4F55_5421
"""A stream of draws that no minibatch is taken from."""


def most_held_out(share: float, samples: int) -> int:
    """Return h: how many of that many samples are held out."""
    if not 0 <= share <= 0.5:
        raise DataError(f"the share that is held out must be from 0 to 0.5, got {share}")
    return min(max(1, math.floor(share * samples + 0.5)), samples - 1) if share else 0


def hold_out(part: Indices, share: float, *, seed: int, peer: int) -> tuple[Indices, Indices]:
    """Return what a peer trains on of its samples, and what it holds out, in their order."""
    held = np.zeros(len(part), dtype=bool)
    if count := most_held_out(share, len(part)):
        hashes = draws(seed ^ _STREAM, [peer], [1 << 32], 0, len(part))[0]
        held[np.argsort(hashes, kind="stable")[:count]] = True
    return part[~held], part[held]
