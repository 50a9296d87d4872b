"""The races: dealing, opening, the field product, robust opening, drawing, and linearity."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rivals import (
    Work,
    bare_blas,
    dealt,
    flint_converted,
    flint_product,
    galois_product,
    mpyc_deals,
    mpyc_opens,
)
from timing import Contestant, Timing, race

from pdlrecover.field import F61, Elements, SystemSource
from pdlrecover.sharing import Scheme, Shares, Tolerance, open_robust
from pdlrecover.sharing.robust import _parity_checks
from pdlrecover.sharing.shamir import _cached

TOLERANCE = Tolerance(colluders=66, dropouts=60, liars=5)


@dataclass(frozen=True, kw_only=True)
class Config:
    """What is measured."""

    peers: int = 200
    tolerance: Tolerance = TOLERANCE
    packings: tuple[int, ...] = (1, 32)
    lengths: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    rounds: int = 3
    columns: dict[str, int] = field(
        default_factory=lambda: {
            "ours": 1_000_000,
            "field product": 125_000,
            "bare BLAS": 125_000,
            "flint": 32_000,
            "galois": 800,
            "MPyC deal": 800,
            "MPyC open": 10_000,
        }
    )
    """The most columns (blocks of ℓ numbers) to measure; beyond them times are extrapolated."""
    robust_length: int = 100_000
    responders: int = 140
    liars: int = 21
    drawn: int = 1_000_000

    def scheme(self, packing: int) -> Scheme:
        """Return the scheme with this packing."""
        return Scheme(self.tolerance.quorums(self.peers, packing=packing))


QUICK = Config(
    lengths=(10_000, 100_000),
    rounds=2,
    columns=Config().columns
    | {"flint": 3_200, "galois": 160, "MPyC deal": 160, "MPyC open": 4_000},
)


def race_dealing(config: Config, scheme: Scheme, length: int) -> list[Timing]:
    """Time `share` against dealing elsewhere, or the product in it elsewhere."""
    return _race_rivals(
        config,
        scheme,
        length,
        "deal",
        lambda n: _bind(scheme.share, random(n)),
        (scheme.dealing.rows, lambda n: known(scheme, n)),
        lambda n: mpyc_deals(scheme, random(n)),
    )


def race_opening(config: Config, scheme: Scheme, length: int) -> list[Timing]:
    """Time `open`, of just enough shares, against recombining or the product in it elsewhere."""
    peers = tuple(range(config.peers - scheme.quorums.vector_degree - 1, config.peers))

    def held(n: int) -> Shares:
        return scheme.share(random(n)).of(peers)

    return _race_rivals(
        config,
        scheme,
        length,
        "open",
        lambda n: _bind(scheme.open, held(n)),
        (scheme.interpolation(peers).rows, lambda n: held(n).values),
        lambda n: mpyc_opens(held(n)),
    )


def _race_rivals(
    config: Config,
    scheme: Scheme,
    length: int,
    operation: str,
    ours: Callable[[int], Work],
    product: tuple[Elements, Callable[[int], Elements]],
    mpyc: Callable[[int], dict[str, Work]],
) -> list[Timing]:
    """Race ours, the product that it comes down to, and (with packing 1) MPyC."""
    entry = _Entry(config, scheme, length)
    matrix, right = product
    contestants = [
        entry("ours", "ours", ours),
        entry("bare BLAS", "bare BLAS", lambda n: bare_blas(matrix.shape, entry.blocks(n))),
    ]
    for name, multiply in PRODUCTS.items():
        limit = name.split()[0]
        contestants.append(entry(name, limit, lambda n, f=multiply: f(matrix, right(n))))
    if scheme.quorums.packing == 1:
        for name in mpyc(1):
            contestants.append(entry(name, f"MPyC {operation}", lambda n, x=name: mpyc(n)[x]))
    return race(operation, scheme.quorums.packing, contestants, config.rounds)


def race_product(config: Config, scheme: Scheme, length: int) -> list[Timing]:
    """Time F61.matmul of all n rows with c + ℓ rows of numbers against its bare BLAS product."""
    entry = _Entry(config, scheme, length)
    shape = (config.peers, scheme.quorums.vector_degree + 1)
    matrix = random(*shape)

    def product(n: int) -> Work:
        return _bind(F61.matmul, matrix, random(shape[1], entry.blocks(n)))

    contestants = [
        entry("ours", "field product", product),
        entry("bare BLAS", "bare BLAS", lambda n: bare_blas(shape, entry.blocks(n))),
    ]
    return race("field product", scheme.quorums.packing, contestants, 2 * config.rounds)


def race_linearity(config: Config) -> list[Timing]:
    """Time the rivals that get extrapolated at a quarter of the size that is extrapolated from."""
    scheme = config.scheme(1)
    matrix, columns = scheme.dealing.rows, config.columns
    works = {}
    for share in (4, 1):
        n = columns["MPyC deal"] // share
        works |= {(name, n): work for name, work in mpyc_deals(scheme, random(n)).items()}
        n = columns["galois"] // share
        works["galois", n] = galois_product(matrix, known(scheme, n))
        n = columns["flint"] // share
        works["flint converted", n] = flint_converted(matrix, known(scheme, n))
    contestants = [
        Contestant(name=f"{name} at {n:,}", work=work, length=n, measured_length=n)
        for (name, n), work in works.items()
    ]
    return race("linearity", 1, contestants, config.rounds)


def race_robust(config: Config) -> list[Timing]:
    """Time `open_robust` of honest and of partly junk shares against `open` of the same shares."""
    n, timings = config.robust_length, []
    for packing in config.packings:
        scheme = config.scheme(packing)
        secret = random(n)
        rng = np.random.default_rng(1)
        responders = rng.permutation(config.peers)[: config.responders]
        honest = scheme.share(secret).of(sorted(responders.tolist()))
        junk = Shares(peers=honest.peers, values=honest.values.copy(), length=n)
        lying = sorted(rng.permutation(config.responders)[: config.liars].tolist())
        junk.values[lying] = random(config.liars, scheme.quorums.blocks(n))
        opening = open_robust(scheme, junk)
        if not np.array_equal(opening.values, secret) or len(opening.liars) != config.liars:
            raise SystemExit("robust opening is wrong: it did not find the secret and the liars")
        works = {
            "plain": _bind(scheme.open, honest),
            "robust, 0 liars": _bind(open_robust, scheme, honest),
            f"robust, {config.liars} liars": _bind(open_robust, scheme, junk),
        }
        states = {"warm": lambda work: work, "cold": lambda _: clear_caches}
        contestants = [
            Contestant(
                name=f"{name}, {state}",
                work=work,
                prepare=prepare(work),
                length=n,
                measured_length=n,
            )
            for state, prepare in states.items()
            for name, work in works.items()
        ]
        timings += race("robust opening", packing, contestants, 2 * config.rounds)
    return timings


def race_randomness(config: Config) -> list[Timing]:
    """Time drawing random elements."""
    n, few = config.drawn, config.drawn // 50
    rng = np.random.default_rng(0)
    works = {
        "SystemSource": (n, _bind(SystemSource().elements, n)),
        "numpy default_rng (not for secrets)": (n, _bind(rng.integers, 0, F61.modulus, n)),
        "secrets.randbelow": (few, lambda: [secrets.randbelow(F61.modulus) for _ in range(few)]),
    }
    contestants = [
        Contestant(name=name, work=work, length=n, measured_length=measured)
        for name, (measured, work) in works.items()
    ]
    return race("draw", 1, contestants, 2 * config.rounds)


class _Entry:
    """Makes contestants for one length, at a smaller size where `Config.columns` says so."""

    def __init__(self, config: Config, scheme: Scheme, length: int) -> None:
        self.columns, self.length = config.columns, length
        self.blocks = scheme.quorums.blocks
        self.packing = scheme.quorums.packing

    def __call__(self, name: str, limit: str, make: Callable[[int], Work]) -> Contestant:
        n = min(self.length, self.columns[limit] * self.packing)
        return Contestant(name=name, work=make(n), length=self.length, measured_length=n)


PRODUCTS = {
    "flint product": flint_product,
    "flint converted": flint_converted,
    "galois product": galois_product,
}


def known(scheme: Scheme, length: int) -> Elements:
    """Return secrets and randomness, what the dealing matrix is multiplied with."""
    return dealt(scheme, random(length))[0]


def random(*shape: int) -> Elements:
    """Return random elements as input."""
    return SystemSource().elements(*shape)


def clear_caches() -> None:
    """Forget all matrices that openings keep for the next time."""
    _cached.cache_clear()
    _parity_checks.cache_clear()


def _bind(function: Callable[..., Any], *arguments: Any) -> Work:
    return lambda: function(*arguments)
