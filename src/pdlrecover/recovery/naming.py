"""Naming: who dealt what made a round void, at the cost of opening a little of each single dealer.

1. Each dealer's weight of that round. Who is outside of what an honest peer deals is named.
2. If nobody is: a few random projections of each dealer's update, which bound its norm.

The round's updates are used for nothing, so nothing that is used is opened here.
"""

from pdlrecover.recovery.requests import Method, Sketches, Vector, Weights

NAMINGS = 3
"""After the first so many void rounds of a run somebody is looked for, after later ones not, unless
there is a removal: a cheat that is named again and again does not make the others reveal more and
more."""


def naming(round: int, at: Vector) -> Method:
    """Find who made a round void; the model stays the one that the round asked at."""
    found: frozenset[int] = yield Weights(round=round)
    if not found:
        yield Sketches(round=round)
    return at
