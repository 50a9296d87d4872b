"""Federations so large that no matrix is written down: the same shares and openings to the bit."""

import numpy as np
import pytest

from pdlrecover.errors import LiarsError
from pdlrecover.field import F61, Seeded, interpolation
from pdlrecover.sharing import (
    Scheme,
    Tolerance,
    dots_public,
    open_dots,
    open_robust,
    zero_masks,
)

TOLERANCE = Tolerance(colluders=13, dropouts=12, liars=2)
PEERS, LENGTH = 60, 97
KEPT = tuple(p for p in range(PEERS) if p % 7)


def everything(scheme):
    """Return all that is dealt and opened of two vectors, from seeds."""
    shares = scheme.share(Seeded(1).elements(2, LENGTH), Seeded(2))
    lied = shares.of(KEPT)
    lied.values[[3, 8]] = 5
    opening = open_robust(scheme, lied, Seeded(3))
    few = shares.of(KEPT[: scheme.quorums.vector_degree + 3])
    mask = zero_masks(scheme, 1, 2, degree=scheme.quorums.dot_degree, source=Seeded(4))
    dots = dots_public(scheme, [shares.of(KEPT)], np.arange(LENGTH) - 40, mask)
    return {
        "shares": shares.values,
        "opened": opening.values,
        "liars": np.array(opening.liars),
        "opened by few": open_robust(scheme, few, Seeded(5)).values,
        "trusted": scheme.open(few),
        "masks": mask.values,
        "shares of dots": dots.values,
        "dots": open_dots(scheme, dots, Seeded(6)).values,
    }


def test_all_that_is_dealt_and_opened_is_the_same_to_the_bit(monkeypatch):
    written = everything(Scheme.for_peers(PEERS, TOLERANCE))
    monkeypatch.setattr(interpolation, "WRITTEN", 0)
    monkeypatch.setattr("pdlrecover.sharing.shamir._cached", interpolation.Interpolation)
    scheme = Scheme.for_peers(PEERS, TOLERANCE)
    assert not scheme.dealing.is_written
    found = everything(scheme)
    for name, values in written.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
    assert written["liars"].tolist() == [KEPT[3], KEPT[8]]


def test_too_many_liars_are_noticed_where_nothing_is_written_down(monkeypatch):
    monkeypatch.setattr(interpolation, "WRITTEN", 0)
    monkeypatch.setattr("pdlrecover.sharing.shamir._cached", interpolation.Interpolation)
    scheme = Scheme.for_peers(PEERS, TOLERANCE)
    lied = scheme.share(Seeded(1).elements(LENGTH)).of(KEPT)
    lied.values[: len(KEPT) // 2] = 5
    with pytest.raises(LiarsError):
        open_robust(scheme, lied)


@pytest.mark.parametrize("peers", [2500])
def test_what_many_peers_are_dealt_opens_to_what_it_was(peers):
    scheme = Scheme.for_peers(peers, Tolerance(colluders=800, dropouts=700, liars=2))
    assert not scheme.dealing.is_written
    secrets = Seeded(7).elements(3 * scheme.quorums.packing + 1)
    shares = scheme.share(secrets).of(range(peers - scheme.quorums.vector, peers))
    np.testing.assert_array_equal(open_robust(scheme, shares).values, secrets)
    public = np.arange(len(secrets))
    mask = zero_masks(scheme, 1, degree=scheme.quorums.dot_degree)
    some = scheme.share(secrets).of(range(scheme.quorums.dot))
    opened = open_dots(scheme, dots_public(scheme, [some], public, mask)).values
    expected = sum(int(a) * int(b) for a, b in zip(secrets, public, strict=True)) % F61.modulus
    assert opened.tolist() == [expected]
