"""Opening in spite of liars: find who sent wrong shares, name them, and open the rest.

Rules:

- m responders, a polynomial of degree below k in each of B blocks: the responders' values of one
  block are a word of a Reed-Solomon code with distance m − k + 1. With e liars tolerated, at least
  k + e must respond, so that e who conspire are always noticed; up to
  min(⌊(m − k)/2⌋, m − k − e) liars, the *radius*, are found and left out. The quorum of the plan,
  k + 2e, makes that e or more.
- A liar may be wrong in any of the blocks, and all blocks are judged by one word: their random
  combination, with coefficients drawn after the shares are fixed. A liar stays hidden in it with
  probability 1/q each. Whether anybody lied at all is seen even cheaper, in the course of opening:
  by one random combination of the parity checks of every block.
- Parity checks of that word depend on the errors only. With w_i = 1/∏_{j≠i}(x_i − x_j):

      S_r = Σ_i w_i x_i^r y_i = Σ_{i lies} w_i x_i^r error_i,     r = 0 … m − k − 1

  Berlekamp-Massey gives the shortest recurrence of S, whose reversed roots are the liars' points.
- If the recurrence is longer than the radius, or its roots are not as many responders' points,
  no word of the code is within the radius: `LiarsError`, and nothing is opened. No decoder can
  promise more than that: m − k + 1 − radius liars who conspire can pass off a wrong word.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pdlrecover.errors import LiarsError, ShareError
from pdlrecover.field import Elements, Field, Source, SystemSource, barycentric_weights
from pdlrecover.sharing.shamir import Scheme
from pdlrecover.sharing.shares import Shares


@dataclass(frozen=True, kw_only=True, eq=False)
class Opening:
    """What was opened, and who lied about it."""

    values: Elements
    liars: tuple[int, ...]
    """The peers whose shares were wrong and have been left out."""


def open_robust(scheme: Scheme, shares: Shares, source: Source | None = None) -> Opening:
    """Open a vector or a stack; the liars among the responders are named and left out.

    The source draws the coefficients of the random combination; liars must not foresee them.
    """
    scheme.check_openable(shares)
    degree, source = scheme.quorums.vector_degree, source or SystemSource()
    check_spare(scheme, shares.peers, degree)
    opened = _open_if_consistent(scheme, shares, degree, source)
    if opened is not None:
        return Opening(values=opened, liars=())
    words = shares.values.reshape(len(shares.peers), -1)
    liars = find_liars(scheme, shares.peers, words, degree, source)
    honest = shares.of(peer for peer in shares.peers if peer not in liars)
    return Opening(values=scheme.open_trusted(honest), liars=liars)


def _open_if_consistent(
    scheme: Scheme, shares: Shares, degree: int, source: Source
) -> Elements | None:
    """Open, trusting everybody, and check with one row more that nobody lied; None if somebody did.

    That row is a random combination of the parity checks, so a block with a wrong share gives
    zero there with probability 1/q.
    """
    needed, checks = degree + 1, len(shares.peers) - degree - 1
    if checks == 0:
        return scheme.open_trusted(shares)
    opening = scheme.interpolation(shares.peers[:needed])
    points = tuple(scheme.points[list(shares.peers)].tolist())
    parity = _parity_checks(scheme.field, points, checks)
    check = scheme.field.matmul(source.elements(1, checks), parity)
    words = shares.values.reshape(len(shares.peers), -1)
    if not opening.is_written:
        if scheme.field.matmul(check, words).any():
            return None
        return scheme.in_order(opening.values(words[:needed]), shares)
    rows = np.zeros((len(opening.rows) + 1, len(shares.peers)), dtype=np.int64)
    rows[:-1, :needed], rows[-1:] = opening.rows, check
    found = scheme.field.matmul(rows, words)
    return None if found[-1].any() else scheme.in_order(found[:-1], shares)


def find_liars(
    scheme: Scheme,
    peers: tuple[int, ...],
    words: Elements,
    degree: int,
    source: Source | None = None,
) -> tuple[int, ...]:
    """Return who sent values that do not lie on the polynomials of this degree.

    words[j, b] is what peers[j] sent of block b. Steps: combine the blocks; compute the parity
    checks; if all are zero nobody lied; else find the recurrence and its roots.
    """
    field = scheme.field
    checks = len(peers) - degree - 1
    if checks == 0:
        return ()
    coefficients = (source or SystemSource()).elements(words.shape[1], 1)
    word = field.matmul(words, coefficients)
    points = scheme.points[list(peers)]
    parity = _parity_checks(field, tuple(points.tolist()), checks)
    syndromes = [int(s) for s in field.matmul(parity, word)[:, 0]]
    if not any(syndromes):
        return ()
    locator = shortest_recurrence(syndromes, field.modulus)
    wrong = _roots(field, locator, points)
    radius = min(checks // 2, checks - scheme.quorums.tolerance.liars)
    if len(locator) - 1 > radius or int(wrong.sum()) != len(locator) - 1:
        raise LiarsError(
            f"more than {radius} of {len(peers)} peers sent wrong shares, and no more than "
            f"{radius} can be told apart; nothing was opened: ask more peers and try again"
        )
    return tuple(peer for peer, lies in zip(peers, wrong, strict=True) if lies)


def check_spare(scheme: Scheme, peers: tuple[int, ...], degree: int) -> None:
    """Check that the tolerated liars, all of them conspiring, would at least be noticed."""
    liars = scheme.quorums.tolerance.liars
    if len(peers) < degree + 1 + liars:
        raise ShareError(
            f"to notice {liars} liars an opening takes {degree + 1 + liars} peers, and "
            f"{degree + 1 + 2 * liars} to name them; got {len(peers)}: wait for more"
        )


def shortest_recurrence(sequence: list[int], modulus: int) -> list[int]:
    """Return C = [1, c₁ … c_L], shortest with Σ_j C_j·S_{r−j} = 0 for r = L … (Massey 1969).

    If S_r is a sum of powers Σ a_i x_i^r, then C(z) = ∏ (1 − x_i z).
    """
    current, previous = [1], [1]
    length, gap, last = 0, 1, 1
    for r, term in enumerate(sequence):
        discrepancy = term
        for j in range(1, min(len(current), r + 1)):
            discrepancy += current[j] * sequence[r - j]
        discrepancy %= modulus
        if discrepancy == 0:
            gap += 1
            continue
        factor = discrepancy * pow(last, -1, modulus) % modulus
        longer = current + [0] * (len(previous) + gap - len(current))
        for j, value in enumerate(previous):
            longer[j + gap] = (longer[j + gap] - factor * value) % modulus
        if 2 * length <= r:
            length, gap, last, previous = r + 1 - length, 1, discrepancy, current
        else:
            gap += 1
        current = longer
    return (current + [0] * (length + 1))[: length + 1]


def _roots(field: Field, locator: list[int], points: Elements) -> NDArray[np.bool_]:
    """Return for which points x ≠ 0 C(1/x) = 0, that is Σ_j C_j·x^(L−j) = 0."""
    value = np.zeros_like(points)
    for coefficient in locator:
        value = field.add(field.multiply(value, points), np.asarray(coefficient))
    return np.equal(value, 0)


@lru_cache(maxsize=64)
def _parity_checks(field: Field, points: tuple[int, ...], checks: int) -> Elements:
    """Return the rows w_i·x_i^r, r < checks, that annihilate every word of the code."""
    x = np.array(points, dtype=np.int64)
    rows = [barycentric_weights(field, x)]
    for _ in range(checks - 1):
        rows.append(field.multiply(rows[-1], x))
    parity = np.stack(rows)
    parity.flags.writeable = False
    return parity
