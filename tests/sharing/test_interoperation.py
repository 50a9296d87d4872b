"""Other people's implementations agree: MPyC on shares, galois on matrix products."""

import galois
import numpy as np
from mpyc import finfields, thresha

from pdlrecover.field import F61, Q, Seeded
from pdlrecover.sharing import Scheme, Shares, Tolerance

FIELD = finfields.GF(Q)
SCHEME = Scheme(Tolerance(colluders=3).quorums(9, packing=1))
SECRET = Seeded("interoperation").elements(20)


def test_mpyc_recombines_our_shares():
    shares = SCHEME.share(SECRET)
    points = [(peer + 1, [FIELD(int(x)) for x in shares.values[peer]]) for peer in (8, 0, 4, 5)]
    assert [x.value for x in thresha.recombine(FIELD, points)] == SECRET.tolist()


def test_we_open_what_mpyc_splits():
    rows = thresha.random_split(FIELD, [FIELD(int(x)) for x in SECRET], 3, 9)
    values = np.array([[int(x) for x in row] for row in rows], dtype=np.int64)
    shares = Shares(peers=tuple(range(9)), values=values, length=20)
    np.testing.assert_array_equal(SCHEME.open(shares.of([7, 2, 3, 6])), SECRET)


def test_galois_multiplies_matrices_to_the_same_result():
    a, b = Seeded("a").elements(5, 12), Seeded("b").elements(12, 7)
    field = galois.GF(Q)
    expected = field(a.astype(object)) @ field(b.astype(object))
    assert F61.matmul(a, b).tolist() == expected.tolist()
