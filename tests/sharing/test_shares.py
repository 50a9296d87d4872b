import numpy as np
import pytest

from pdlrecover.errors import ShareError
from pdlrecover.field import Seeded
from pdlrecover.sharing import DotShares, Scheme, Shares, Tolerance

SCHEME = Scheme.for_peers(6, Tolerance(colluders=1))
SHARES = SCHEME.share(np.arange(10))


def test_a_peer_that_answers_twice_is_refused():
    with pytest.raises(ShareError, match="each peer may give one share, got two of peer 2"):
        SHARES.of([2, 1, 2])


def test_shares_of_different_lengths_do_not_mix():
    other = SCHEME.share(np.arange(20))
    with pytest.raises(ShareError, match="different lengths cannot be combined"):
        SHARES + other


def test_shares_of_different_peers_do_not_add():
    with pytest.raises(ShareError, match="different peers"):
        SHARES.of([0, 1]) - SHARES.of([1, 0])


def test_shares_and_clear_vectors_do_not_add():
    with pytest.raises(ShareError, match="shares combine with shares only, got ndarray"):
        SHARES + np.arange(10)  # type: ignore[operator]


def test_a_peer_that_holds_nothing_cannot_be_selected():
    with pytest.raises(ShareError, match="no share of peer 5"):
        SHARES.of([0, 1]).of([5])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((2, 3)), "int64 arrays of field elements, got float64"),
        ([[1], [2]], "int64 arrays of field elements, got list"),
        (np.zeros((3, 3), dtype=np.int64), "got 2 peers and 3 rows"),
        (np.zeros(2, dtype=np.int64), r"got shape \(2,\)"),
    ],
)
def test_malformed_shares_are_refused(values, message):
    with pytest.raises(ShareError, match=message):
        Shares(peers=(0, 1), values=values, length=3)


def test_dot_shares_of_different_degrees_do_not_add():
    values = Seeded(1).elements(2)
    a, b = (DotShares(peers=(0, 1), values=values, degree=d) for d in (1, 2))
    with pytest.raises(ShareError, match="same peers, degree and shape"):
        a + b
