from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdlrecover.errors import LiarsError, ShareError
from pdlrecover.field import F61, Q, Seeded
from pdlrecover.sharing import Scheme, Tolerance, open_robust
from pdlrecover.sharing.robust import _parity_checks, shortest_recurrence

TOLERANCE = Tolerance(colluders=4, dropouts=3, liars=3)
SCHEME = Scheme.for_peers(20, TOLERANCE)  # packing 4: vectors need 8 + 2·liars
SECRET = Seeded("secret").elements(50)
NEEDED = SCHEME.quorums.vector_degree + 1


def lied(shares, liars, lie):
    values = shares.values.copy()
    for liar in liars:
        row = shares.peers.index(liar)
        values[row] = lie(values[row], liar)
    return replace(shares, values=values)


def junk(values, liar):
    return Seeded(f"junk of {liar}").elements(*values.shape)


def one_cell_off_by_one(values, liar):
    values = values.copy()
    values[liar % values.size] = (values[liar % values.size] + 1) % Q
    return values


def zeros(values, liar):
    return np.zeros_like(values)


_OTHER = SCHEME.share(Seeded("another secret").elements(50), Seeded("conspiracy"))


def coordinated(values, liar):
    """All liars send shares of one and the same other secret."""
    return _OTHER.of([liar]).values[0]


LIES = [junk, one_cell_off_by_one, zeros, coordinated]


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("count", [0, 1, 3])
def test_liars_are_named_and_ignored(lie, count):
    liars = (2, 11, 19)[:count]
    opening = open_robust(SCHEME, lied(SCHEME.share(SECRET), liars, lie))
    assert opening.liars == liars
    np.testing.assert_array_equal(opening.values, SECRET)


@pytest.mark.parametrize("lie", LIES)
def test_liars_and_dropouts_together_at_exactly_the_radius(lie):
    liars = (1, 7, 8)
    responders = [p for p in range(20) if p not in (0, 3, 5, 12, 13, 14)]
    assert len(responders) == NEEDED + 2 * 3
    shares = lied(SCHEME.share(SECRET).of(responders), liars, lie)
    opening = open_robust(SCHEME, shares)
    assert opening.liars == liars
    np.testing.assert_array_equal(opening.values, SECRET)


@pytest.mark.parametrize("lie", LIES)
def test_one_liar_beyond_the_radius_raises(lie):
    responders = [p for p in range(20) if p not in (0, 3, 5, 12, 13, 14)]
    shares = lied(SCHEME.share(SECRET).of(responders), (1, 7, 8, 9), lie)
    with pytest.raises(LiarsError, match="more than 3 of 14 peers sent wrong shares"):
        open_robust(SCHEME, shares)


def test_fewer_answers_than_would_notice_the_tolerated_liars_are_refused():
    with pytest.raises(ShareError, match="to notice 3 liars an opening takes 11 peers, and 14 to"):
        open_robust(SCHEME, SCHEME.share(SECRET).of(range(10)))


def conspired(shares, liars, victims):
    """Let liars add a polynomial that is zero at everybody else's point but the victims'.

    The word is then as near to another polynomial, from which only the victims seem to differ.
    """
    others = [p for p in shares.peers if p not in liars and p not in victims]
    values = shares.values.copy()
    for row, peer in enumerate(shares.peers):
        if peer in liars:
            error = 1
            for other in others:
                error = error * int(SCHEME.points[peer] - SCHEME.points[other]) % Q
            values[row] = (values[row].astype(object) + error) % Q
    return replace(shares, values=values)


def test_the_tolerated_liars_cannot_frame_anybody_however_few_answer():
    """With 11 answers, 3 liars could pass a word off as one from which one honest peer differs."""
    shares = SCHEME.share(SECRET).of(range(11))
    for liars, victims in [((8, 9, 10), (0,)), ((8, 9), (0, 1)), ((9, 10), (0, 1))]:
        assert len(shares.peers) - len(liars) - len(victims) <= NEEDED - 1
        with pytest.raises(LiarsError, match="more than 0 of 11 peers"):
            open_robust(SCHEME, conspired(shares, liars, victims))


def test_beyond_the_tolerance_enough_conspirators_do_pass_a_wrong_word_off():
    """The limit of every decoder: distance 7 less the radius of 3 is 4, and 4 is one too many."""
    shares = SCHEME.share(SECRET).of(range(14))
    opening = open_robust(SCHEME, conspired(shares, (10, 11, 12, 13), (0, 1, 2)))
    assert opening.liars == (0, 1, 2)
    opening = open_robust(SCHEME, conspired(shares, (11, 12, 13), (0, 1, 2, 3)))
    assert opening.liars == (11, 12, 13)
    np.testing.assert_array_equal(opening.values, SECRET)


@given(draw=st.randoms(use_true_random=False), lie=st.sampled_from(LIES))
@settings(max_examples=40, deadline=None)
def test_any_liars_within_any_radius_are_found(draw, lie):
    responders = draw.sample(range(20), draw.randint(NEEDED + 3, 20))
    spare = len(responders) - NEEDED
    liars = draw.sample(responders, draw.randint(0, min(spare // 2, spare - 3)))
    opening = open_robust(SCHEME, lied(SCHEME.share(SECRET).of(responders), liars, lie))
    assert sorted(opening.liars) == sorted(liars)
    np.testing.assert_array_equal(opening.values, SECRET)


def test_a_liar_in_one_vector_of_a_stack_is_found():
    stack = Seeded("stack").elements(3, 2, 50)
    shares = SCHEME.share(stack)
    values = shares.values.copy()
    values[6, 2, 1, 0] = (values[6, 2, 1, 0] + 1) % Q
    opening = open_robust(SCHEME, replace(shares, values=values))
    assert opening.liars == (6,)
    np.testing.assert_array_equal(opening.values, stack)


def test_a_full_size_opening_with_21_liars_among_140():
    scheme = Scheme.for_peers(200, Tolerance(colluders=66, dropouts=60, liars=5))
    secret = Seeded("large").elements(10_000)
    shares = scheme.share(secret).of(range(30, 170))
    liars = tuple(range(40, 82, 2))
    opening = open_robust(scheme, lied(shares, liars, one_cell_off_by_one))
    assert opening.liars == liars
    np.testing.assert_array_equal(opening.values, secret)
    with pytest.raises(LiarsError):
        open_robust(scheme, lied(shares, (*liars, 30), one_cell_off_by_one))


def test_the_combination_is_not_foreseeable():
    """Two liars who know the combination cancel in it; the default is drawn after the shares."""
    checks = 20 - NEEDED
    combination = Seeded("known").elements(1, checks)
    parity = _parity_checks(F61, tuple(SCHEME.points.tolist()), checks)
    seen = F61.matmul(combination, parity)[0]

    def cancelling(values, liar):
        values = values.copy()
        other = {2: 3, 3: 2}[liar]
        error = int(seen[other]) if liar == 2 else -int(seen[other])
        values[0] = (int(values[0]) + error) % Q
        return values

    shares = lied(SCHEME.share(SECRET), (2, 3), cancelling)
    assert open_robust(SCHEME, shares, Seeded("known")).liars == ()  # why a seed is never default
    assert open_robust(SCHEME, shares).liars == (2, 3)


def test_too_few_shares_are_refused_before_anybody_is_accused():
    with pytest.raises(ShareError, match="at least 8 peers"):
        open_robust(SCHEME, SCHEME.share(SECRET).of(range(7)))


@given(
    roots=st.lists(st.integers(1, Q - 1), min_size=1, max_size=6, unique=True),
    seed=st.integers(0, 1000),
)
def test_the_shortest_recurrence_of_a_sum_of_powers_has_their_bases_as_roots(roots, seed):
    weights = [int(w) or 1 for w in Seeded(seed).elements(len(roots))]
    sequence = [
        sum(w * pow(x, r, Q) for w, x in zip(weights, roots, strict=True)) % Q
        for r in range(2 * len(roots))
    ]
    expected = [1]
    for x in roots:  # times (1 − x·z)
        shifted = [0, *(-x * c for c in expected)]
        expected = [(a + b) % Q for a, b in zip([*expected, 0], shifted, strict=True)]
    assert shortest_recurrence(sequence, Q) == expected
