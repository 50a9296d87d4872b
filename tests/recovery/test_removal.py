"""The rule on removals, against a slow search."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdlrecover.errors import PlanError
from pdlrecover.recovery.removal import exposed

PEERS = 6


def slow(sums, colluders):
    """Return the smallest sets of at most c + 1 peers outside of which a combination is zero."""
    table = np.array([[peer in each for peer in range(PEERS)] for each in sums], dtype=float)
    rank = np.linalg.matrix_rank(table)
    found = set()
    for size in range(1, colluders + 2):
        for some in map(frozenset, combinations(range(PEERS), size)):
            others = [peer for peer in range(PEERS) if peer not in some]
            inside = not others or np.linalg.matrix_rank(table[:, others]) < rank
            if inside and not any(less <= some for less in found):
                found.add(some)
    return found


@settings(deadline=None)
@given(
    sums=st.lists(st.frozensets(st.integers(0, PEERS - 1)), min_size=1, max_size=5),
    colluders=st.integers(0, 3),
)
def test_the_peers_that_sums_tell_of_are_those_that_a_search_finds(sums, colluders):
    found = exposed(sums, colluders)
    assert {some for some in found if not any(less < some for less in found)} == slow(
        sums, colluders
    )


def test_more_sums_than_can_be_judged_are_refused():
    sums = [frozenset(p for p in range(60) if p >> i & 1 or p == i) for i in range(6)]
    with pytest.raises(PlanError, match="too many to check what follows from them"):
        exposed([*sums, *(frozenset({p, p + 1, p + 2}) for p in range(20))], 1)
