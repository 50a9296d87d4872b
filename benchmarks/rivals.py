"""Other libraries doing what we do, each in its fastest way we know, and each checked once.

Rules, where there was a choice taken in the rival's favour:

- MPyC deals and recombines plain Shamir shares (packing 1). It gets Python integers, or an object
  array of them, ready made, and draws its own randomness. `recombine` leaves its sums unreduced.
- galois and flint know no secret sharing. They multiply the matrix that we multiply (only the
  n − c rows that are not random themselves) with secrets and randomness that are ready made. The
  drawing of randomness is thus in our time and in MPyC's but not in theirs.
- flint is timed alone, and with conversion from int64 arrays and back, which anybody who holds
  numpy arrays must pay. It may use as many threads as there are cores.
"""

import os
from collections.abc import Callable
from typing import Any

import flint
import galois
import numpy as np
from mpyc import thresha
from mpyc.finfields import GF
from numpy.typing import NDArray

from pdlrecover.field import F61, Elements, SystemSource
from pdlrecover.sharing import Scheme, Shares

Work = Callable[[], Any]

MPYC_FIELD = GF(F61.modulus)
GALOIS_FIELD = galois.GF(F61.modulus)
flint.ctx.threads = os.cpu_count() or 1


def mpyc_deals(scheme: Scheme, secrets: Elements) -> dict[str, Work]:
    """Return MPyC's two ways to deal."""
    degree, peers = scheme.quorums.vector_degree, scheme.quorums.peers
    integers = secrets.tolist()
    objects = np.array(integers, dtype=object)
    return {
        "MPyC random_split": lambda: thresha.random_split(MPYC_FIELD, integers, degree, peers),
        "MPyC np_random_split": lambda: thresha.np_random_split(MPYC_FIELD, objects, degree, peers),
    }


def mpyc_opens(shares: Shares) -> dict[str, Work]:
    """Return MPyC's two ways to recombine shares of the peers j with points j + 1."""
    points = [peer + 1 for peer in shares.peers]
    lists = list(zip(points, shares.values.tolist(), strict=True))
    objects = list(zip(points, shares.values.astype(object), strict=True))
    return {
        "MPyC recombine": lambda: thresha.recombine(MPYC_FIELD, lists),
        "MPyC np_recombine": lambda: thresha.np_recombine(MPYC_FIELD, objects),
    }


def galois_product(a: Elements, b: Elements) -> Work:
    """Return the product in galois, without conversion."""
    left, right = GALOIS_FIELD(a), GALOIS_FIELD(b)
    return lambda: left @ right


def flint_product(a: Elements, b: Elements) -> Work:
    """Return the product in flint, without conversion."""
    left, right = _to_flint(a), _to_flint(b)
    return lambda: left * right


def flint_converted(a: Elements, b: Elements) -> Work:
    """Return the product in flint from int64 arrays to an int64 array; `a` may be kept."""
    left, shape = _to_flint(a), (a.shape[0], b.shape[1])
    return lambda: _from_flint(left * _to_flint(b), shape)


def bare_blas(a_shape: tuple[int, int], columns: int) -> Work:
    """Return the float64 product that a field product of these shapes rests on, and no more.

    Three limbs each way: (3m × 3k)·(3k × N), into memory that is there already.
    """
    rng = np.random.default_rng(0)
    left = rng.integers(0, 1 << 21, (3 * a_shape[0], 3 * a_shape[1])).astype(np.float64)
    right = rng.integers(0, 1 << 21, (3 * a_shape[1], columns)).astype(np.float64)
    out = np.zeros((3 * a_shape[0], columns))
    return lambda: np.matmul(left, right, out=out)


def check_rivals(plain: Scheme, packed: Scheme) -> list[str]:
    """Check every rival on a small vector: what it deals opens, what it opens was dealt.

    `plain` has packing 1 and shares like MPyC; return what was checked.
    """
    secrets = SystemSource().elements(64)
    checks = {"we open what we deal": plain.open(plain.share(secrets)) == secrets}
    everyone = tuple(range(plain.quorums.peers))
    some = everyone[-plain.quorums.vector_degree - 1 :]
    for name, deal in mpyc_deals(plain, secrets).items():
        shares = Shares(peers=everyone, values=np.array(deal(), dtype=np.int64), length=64)
        checks[f"we open what {name} deals"] = plain.open(shares.of(some)) == secrets
        checks[f"MPyC recombines what {name} deals"] = _recombined(shares.of(some)) == secrets
    checks["MPyC recombines what we deal"] = _recombined(plain.share(secrets).of(some)) == secrets
    for scheme in (plain, packed):
        what = f"packing {scheme.quorums.packing}"
        known, shares = dealt(scheme, secrets)
        ours = shares.values[scheme.quorums.tolerance.colluders :]
        checks[f"we open, {what}"] = scheme.open(shares) == secrets
        for product in (galois_product, flint_product, flint_converted):
            theirs = _as_array(product(scheme.dealing.rows, known)(), ours.shape)
            checks[f"{product.__name__} deals as we do, {what}"] = theirs == ours
        last = everyone[-scheme.quorums.vector_degree - 1 :]
        rows, values = scheme.interpolation(last).rows, shares.of(last).values
        for product in (galois_product, flint_product, flint_converted):
            opened = _as_array(product(rows, values)(), (len(rows), values.shape[1]))
            checks[f"{product.__name__} opens, {what}"] = opened == scheme.lay_out(secrets)
    wrong = [what for what, equal in checks.items() if not np.all(equal)]
    if wrong:
        raise SystemExit(f"not a fair comparison, results differ: {', '.join(wrong)}")
    return list(checks)


def dealt(scheme: Scheme, secrets: Elements) -> tuple[Elements, Shares]:
    """Return the (secrets, randomness) that the dealing matrix is multiplied with, and the shares.

    The order is that of `Scheme.dealing`: `check_rivals` would notice another one.
    """
    shares = scheme.share(secrets)
    randomness = shares.values[: scheme.quorums.tolerance.colluders]
    return np.concatenate([scheme.lay_out(secrets), randomness]), shares


def _recombined(shares: Shares) -> NDArray[np.int64]:
    lists, arrays = (work() for work in mpyc_opens(shares).values())
    reduced = np.array([x % F61.modulus for x in lists], dtype=np.int64)
    return np.where(reduced == arrays.value.astype(np.int64), reduced, -1)


def _to_flint(x: Elements) -> flint.nmod_mat:
    return flint.nmod_mat(*x.shape, x.ravel().tolist(), F61.modulus)


def _from_flint(x: flint.nmod_mat, shape: tuple[int, int]) -> Elements:
    size = shape[0] * shape[1]
    return np.fromiter(map(int, x.entries()), dtype=np.int64, count=size).reshape(shape)


def _as_array(x: Any, shape: tuple[int, ...]) -> Elements:
    if isinstance(x, flint.nmod_mat):
        return _from_flint(x, shape)
    return np.asarray(x).astype(np.int64)
