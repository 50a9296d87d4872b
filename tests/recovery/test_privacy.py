"""The guard, against a slow search and against algebra over the rationals."""

from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdlrecover.errors import PlanError
from pdlrecover.recovery.privacy import PrivacyGuard, exposed, newly_exposed

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


def follows(table, peer, known):
    """Say whether e_peer is a rational combination of the rows and of e_j, j known. Slow."""
    rows = [[Fraction(x) for x in row] for row in table]
    rows += [[Fraction(i == j) for i in range(len(table[0]))] for j in known]
    return rank(rows) == rank([*rows, [Fraction(i == peer) for i in range(len(table[0]))]])


def rank(rows):
    rows, found = [list(row) for row in rows], 0
    for column in range(len(rows[0])):
        pivot = next((r for r in range(found, len(rows)) if rows[r][column]), None)
        if pivot is None:
            continue
        rows[found], rows[pivot] = rows[pivot], rows[found]
        for r in range(found + 1, len(rows)):
            factor = rows[r][column] / rows[found][column]
            rows[r] = [x - factor * y for x, y in zip(rows[r], rows[found], strict=True)]
        found += 1
    return found


def told(sums, peers, colluders, unprotected):
    """Return who follows for whom: every peer and every coalition that can tell its vector."""
    table = [[int(peer in each) for peer in range(peers)] for each in sums]
    return {
        (peer, coalition)
        for peer in set(range(peers)) - unprotected
        for size in range(colluders + 1)
        for coalition in map(
            frozenset, combinations(set(range(peers)) - unprotected - {peer}, size)
        )
        if table and follows(table, peer, coalition | unprotected)
    }


def subsets(peers):
    everybody = range(peers)
    return [frozenset(s) for size in range(1, peers + 1) for s in combinations(everybody, size)]


@pytest.mark.parametrize("unprotected", [frozenset(), frozenset({0})])
@pytest.mark.parametrize(
    ("peers", "sums", "colluders"),
    [(4, 3, 0), (4, 2, 1), (5, 2, 1), pytest.param(5, 2, 2, marks=pytest.mark.slow)],
)
def test_the_guard_allows_just_what_tells_no_coalition_anything_new(
    peers, sums, colluders, unprotected
):
    """All families of sums, against algebra over the rationals.

    That a peer's vector follows for a coalition is not new if some of them could tell one of
    their number before.
    """
    allowed_in_all = refused = 0
    for before in product(subsets(peers), repeat=sums - 1):
        guard = PrivacyGuard(colluders=colluders, least=0, unprotected=unprotected)
        guard.note("question", *before)
        known = [{peer} | who for peer, who in told(before, peers, colluders, unprotected)]
        for last in subsets(peers):
            found = [
                {peer} | who for peer, who in told([*before, last], peers, colluders, unprotected)
            ]
            new = [some for some in found if not any(old <= some for old in known)]
            allowed = guard.allows("question", last)
            assert allowed != bool(new), (before, last)
            allowed_in_all, refused = allowed_in_all + allowed, refused + (not allowed)
    assert allowed_in_all
    assert refused


def test_sums_of_different_questions_have_nothing_to_do_with_each_other():
    guard = PrivacyGuard(colluders=1)
    everybody = frozenset(range(8))
    for question in range(3):
        guard.open(question, everybody - {question})
    assert not guard.allows(0, everybody)
    guard.open("another", everybody)


def test_a_sum_is_asked_about_once_and_remembered():
    guard, everybody = PrivacyGuard(colluders=1), frozenset(range(8))
    guard.open("round", everybody)
    guard.open("round", everybody - {0, 1, 2})
    with pytest.raises(PlanError, match="one of peers \\[1, 3\\]"):
        guard.open("round", everybody - {0, 2, 3})
    guard.open("round", everybody - {0, 1, 2})


def test_a_sum_of_unprotected_peers_alone_may_be_of_one():
    PrivacyGuard(colluders=1, unprotected=frozenset({3})).open("round", frozenset({3}))
    with pytest.raises(PlanError, match="a single other"):
        PrivacyGuard(colluders=1, unprotected=frozenset({3})).open("round", frozenset({2, 3}))


def test_a_thousand_rounds_of_the_same_peers_are_judged_once():
    newly_exposed.cache_clear()
    guard, everybody = PrivacyGuard(colluders=60), frozenset(range(200))
    for t in range(1000):
        guard.open(t, everybody)
        guard.open(t, everybody - set(range(62)))
    assert newly_exposed.cache_info().misses <= 2
