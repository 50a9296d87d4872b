"""Verified dealing: shares that prove by themselves that they lie on polynomials of their degree.

A dealer has n rows of B shares, one row for each peer, block b being the values of a polynomial
P_b of degree k − 1 (of updates, k = c + ℓ; of zero masks, k = c + 2ℓ − 1).

1. It adds `CHECKS` random blocks R_i of the same kind, and commits to every peer's row, random
   blocks included, by H(nonce ‖ row) with a nonce of 64 random bytes.
2. Coefficients r_ib are drawn from the hash of all commitments: after the shares are fixed. With
   the blocks as a table of about √B rows and columns, r_ib = u_i(row of b)·v_i(column of b): 2√B
   random numbers are drawn instead of B, and a combination is a product of matrices.
3. It publishes the polynomials R_i + Σ_b r_ib·P_b, by their values at the first k peers' points.
   The random blocks make them uniform, so they tell nothing.
4. Peer j takes its row if it is the one committed to, and if its combination has the published
   polynomials' values at x_j. Published zero masks must also sum to zero at the secrets' points.

Rules:

- If all rows that honest peers take are not on polynomials of degree below k, the combination is on
  one with probability 2/q for each of the CHECKS (Schwartz-Zippel: u and v enter with degree 2). A
  dealer may try many commitments in search of coefficients that suit it, so one check of 60 bits
  would be too few; two make 120.
- A peer with a bad row can prove it: it shows the row, which only fits the dealer's own signed
  commitment. Nobody can prove that of an honest dealer.
- Nonces are twice as long as the hash, so that a commitment fits every row about as often as any
  other: even unlimited computing power learns nothing from it (in the random oracle model).
- The proof is about degrees. It says nothing about what was dealt: see the limitations.
"""

import hashlib
import math
import operator
import secrets
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pdlrecover.engines.peers.protocol.messages import Header
from pdlrecover.errors import ShareError
from pdlrecover.field import F61, Elements, Seeded, Source, as_bytes, lagrange_rows
from pdlrecover.sharing import Scheme, zero_masks

CHECKS = 2
NONCE_BYTES = 64
_STATEMENT = b"pdlrecover dealing\0"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What is dealt: how many blocks, of which degree, and whether they are zero masks."""

    scheme: Scheme
    blocks: int
    degree: int
    masks: bool
    used_once: bool = False
    """Whether the shares are of no use after the step, as those of an evaluation."""

    @property
    def stored(self) -> bool:
        """Whether each dealer's share is kept: updates for removals, masks for later products."""
        return not self.used_once


@dataclass(frozen=True, kw_only=True, eq=False)
class Public:
    """The part of a dealing that everybody gets."""

    commitments: bytes
    proof: Elements
    """The CHECKS polynomials' values, one after the other."""

    def digest(self, binding: bytes, *, masks: bool) -> bytes:
        """Return what the dealer's statement is about: no byte can move between its parts.

        Whether these are zero masks is part of it, so that everybody can judge the dealing by it.
        """
        hashed = hashlib.sha256(b"pdlrecover public part" + bytes([masks]))
        for part in (binding, self.commitments, self.proof.astype("<i8").tobytes()):
            hashed.update(len(part).to_bytes(8, "little") + part)
        return hashed.digest()


@dataclass(frozen=True, kw_only=True, eq=False)
class Dealt:
    """A whole dealing, as only its dealer sees it."""

    public: Public
    private: tuple[bytes, ...]
    """Each peer's nonce and row."""


def binding_of(header: Header, dealer: int) -> bytes:
    """Return a step's binding: the bytes that tie a dealing to run, step, log, request, dealer.

    The federation file is not among them: its addresses and deadlines may change within a step, and
    what was dealt in it stays as it is. What may not change is in the name of the run.
    """
    place = header.step.to_bytes(8, "little") + dealer.to_bytes(2, "little")
    return header.run + place + header.log + header.asked


def statement(binding: bytes, digest: bytes) -> bytes:
    """Return what a dealer signs about its dealing."""
    return _STATEMENT + binding + digest


def deal_vector(kind: Kind, elements: Elements, binding: bytes, seed: bytes) -> Dealt:
    """Deal a vector of elements; all randomness comes from the secret seed."""
    source = _source(seed, binding, elements)
    rows = kind.scheme.share(elements, source).values
    width = kind.scheme.quorums.packing * CHECKS
    random = kind.scheme.share(source.elements(width), source).values
    return _dealt(kind, rows, random, binding, source)


def deal_masks(kind: Kind, binding: bytes, seed: bytes) -> Dealt:
    """Deal zero masks, one for each block; all randomness comes from the secret seed."""
    source = _source(seed, binding)
    all_masks = zero_masks(kind.scheme, kind.blocks + CHECKS, degree=kind.degree, source=source)
    rows, random = all_masks.values[:, : kind.blocks], all_masks.values[:, kind.blocks :]
    return _dealt(kind, rows, random, binding, source)


def new_seed() -> bytes:
    """Return a secret seed from the operating system, for one dealing."""
    return secrets.token_bytes(32)


def _source(seed: bytes, binding: bytes, elements: Elements | None = None) -> Source:
    """Return the randomness of one dealing: another binding or vector never gets the same again."""
    hashed = hashlib.sha256(b"pdlrecover dealing randomness" + seed)
    dealt = b"" if elements is None else as_bytes(elements)
    for part in (binding, dealt):
        hashed.update(len(part).to_bytes(8, "little"))
        hashed.update(part)
    return Seeded(hashed.hexdigest())


def _dealt(kind: Kind, rows: Elements, random: Elements, binding: bytes, source: Source) -> Dealt:
    words = -(-NONCE_BYTES * 8 // 61)
    nonces = [
        hashlib.sha512(binding + row.tobytes()).digest()
        for row in source.elements(len(rows), words)
    ]
    private = tuple(
        b"".join((nonce, as_bytes(row), as_bytes(more)))
        for nonce, row, more in zip(nonces, rows, random, strict=True)
    )
    commitments = b"".join(_commitment(part) for part in private)
    shown = slice(kind.degree + 1)
    values = _combined(kind, binding, commitments, rows[shown], random[shown])
    return Dealt(public=Public(commitments=commitments, proof=values.ravel()), private=private)


def is_shaped(kind: Kind, public: Public) -> bool:
    """Say whether a public part has a commitment for each peer, and a proof of the right length."""
    commitments, proof = 32 * kind.scheme.quorums.peers, CHECKS * (kind.degree + 1)
    return len(public.commitments) == commitments and len(public.proof) == proof


def check_public(kind: Kind, public: Public) -> bool:
    """Say whether a public part is well formed; of zero masks, whether they sum to zero."""
    if not is_shaped(kind, public):
        return False
    if not kind.masks:
        return True
    known, targets = _points(kind), kind.scheme.secret_points
    rows = _rows(tuple(known.tolist()), tuple(targets.tolist()))
    at_secrets = F61.matmul(_proof(kind, public), np.ascontiguousarray(rows.T))
    return not F61.sum(at_secrets, axis=1).any()


def committed(public: Public, peer: int, private: bytes) -> bool:
    """Say whether this is the row that the dealer committed to for this peer."""
    return _commitment(private) == public.commitments[32 * peer : 32 * peer + 32]


def own_row(kind: Kind, dealt: Dealt, me: int) -> Elements:
    """Return the dealer's own shares."""
    return _row(dealt.private[me])[: kind.blocks]


def _row(private: bytes) -> Elements:
    """Return a row with its random blocks: read-only, and not copied."""
    return np.frombuffer(private, dtype="<i8", offset=NONCE_BYTES).astype(np.int64, copy=False)


def row_of(
    kind: Kind, binding: bytes, public: Public, peer: int, private: bytes
) -> Elements | None:
    """Return the peer's shares out of its row, or None if the row is not what was proven."""
    try:
        row = F61.elements(_row(private))
    except ValueError:
        return None
    if len(row) != kind.blocks + CHECKS:
        return None
    if len(public.proof) != CHECKS * (kind.degree + 1):
        return None
    shares, random = row[: kind.blocks], row[kind.blocks :]
    mine = _combined(kind, binding, public.commitments, shares[None], random[None])[:, 0]
    return shares if mine.tolist() == _proven_at(kind, public, peer) else None


def _proven_at(kind: Kind, public: Public, peer: int) -> list[int]:
    """Return the published polynomials' values at a peer's point; they are few, so as integers."""
    target = int(kind.scheme.points[peer])
    weights = _rows(tuple(_points(kind).tolist()), (target,))[0].tolist()
    values = _proof(kind, public).tolist()
    return [sum(map(operator.mul, weights, each)) % F61.modulus for each in values]


def _commitment(private: bytes) -> bytes:
    hashed = hashlib.sha256(b"pdlrecover row")
    hashed.update(private)
    return hashed.digest()


def _combined(
    kind: Kind, binding: bytes, commitments: bytes, rows: Elements, random: Elements
) -> Elements:
    """Return the random combinations of each row, (CHECKS, rows), its random blocks added."""
    if kind.blocks < 1:
        raise ShareError("a dealing has at least one block")
    columns = math.isqrt(kind.blocks - 1) + 1
    lines = -(-kind.blocks // columns)
    seed = hashlib.sha256(b"pdlrecover challenge" + binding + commitments).hexdigest()
    source = Seeded(seed)
    v, u = source.elements(columns, CHECKS), source.elements(lines, CHECKS)
    blocks = np.empty((len(rows), lines * columns), dtype=np.int64)
    blocks[:, : kind.blocks] = rows
    blocks[:, kind.blocks :] = 0
    lined = F61.matmul(blocks.reshape(-1, columns), v).reshape(len(rows), lines, CHECKS)
    sums = F61.sum(F61.multiply(lined, u[None]), axis=1)
    return F61.add(sums, random).T


def _points(kind: Kind) -> Elements:
    return kind.scheme.points[: kind.degree + 1]


def _proof(kind: Kind, public: Public) -> Elements:
    return public.proof.reshape(CHECKS, kind.degree + 1)


@lru_cache(maxsize=1024)
def _rows(points: tuple[int, ...], targets: tuple[int, ...]) -> Elements:
    return lagrange_rows(F61, points, targets)
