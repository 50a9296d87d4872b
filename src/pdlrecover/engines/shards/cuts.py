"""How the peers of a round are cut into parts that are computed apart, and added up again.

Rules:

- A cut is at a whole number of pieces, each some whole vectorised calls (`Dealers.piece`), counted
  from the first peer on. So a call has the same peers in it as without a cut, and the same bits.
- Sums are whole numbers: in which order parts are added up makes no difference.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pdlrecover.field import Integers

Peers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """Some peers of some groups, one after the other."""

    groups: tuple[int, ...]
    """Which groups these are."""
    peers: tuple[Peers, ...]
    """Their peers in this part, in the order that they have there."""


def cut(groups: Sequence[Sequence[int]], piece: int, most: int) -> list[Part]:
    """Cut groups of peers into at most so many parts of about as many pieces each."""
    lists = [np.asarray(group, dtype=np.int64) for group in groups]
    ends = np.cumsum([len(each) for each in lists])
    pieces = -(-int(ends[-1]) // piece)
    count = max(1, min(most, pieces))
    bounds = [piece * (pieces * i // count) for i in range(count + 1)]
    return [_between(lists, ends, first, end) for first, end in pairwise(bounds)]


def add_up(parts: Sequence[tuple[Part, Integers]], groups: int) -> Integers:
    """Return the sums of all groups, from what the groups of each part came to."""
    total = np.zeros((groups, parts[0][1].shape[1]), dtype=np.int64)
    for part, sums in parts:
        for group, row in zip(part.groups, sums, strict=True):
            total[group] += row
    return total


def _between(lists: Sequence[Peers], ends: NDArray[np.int64], first: int, end: int) -> Part:
    """Return the peers from one place to another, of all groups in a row."""
    starts = ends - [len(each) for each in lists]
    found = {
        i: each[max(0, first - int(start)) : max(0, end - int(start))]
        for i, (each, start) in enumerate(zip(lists, starts, strict=True))
    }
    some = {i: peers for i, peers in found.items() if len(peers)}
    return Part(groups=tuple(some), peers=tuple(some.values()))
