import hashlib
from dataclasses import replace

import numpy as np
import pytest

from pdlrecover import Tolerance
from pdlrecover.engines.peers.protocol import dealing
from pdlrecover.engines.peers.protocol.dealing import CHECKS, NONCE_BYTES, Kind, Public
from pdlrecover.engines.peers.protocol.messages import Header
from pdlrecover.field import F61, Seeded
from pdlrecover.sharing import Scheme, Shares, add_masks, open_dots
from pdlrecover.sharing.shares import DotShares

SCHEME = Scheme.for_peers(9, Tolerance(colluders=2, dropouts=1, liars=1))
SLOT, SEED = b"a step of a run", bytes(range(32))
LENGTH = 13
VECTOR = Kind(
    scheme=SCHEME,
    blocks=SCHEME.quorums.blocks(LENGTH),
    degree=SCHEME.quorums.vector_degree,
    masks=False,
)
MASKS = Kind(scheme=SCHEME, blocks=4, degree=SCHEME.quorums.dot_degree, masks=True)


def dealt(kind, seed=SEED):
    if kind.masks:
        return dealing.deal_masks(kind, SLOT, seed)
    return dealing.deal_vector(kind, np.arange(LENGTH, dtype=np.int64), SLOT, seed)


def rows(kind, made):
    return [dealing.row_of(kind, SLOT, made.public, p, made.private[p]) for p in range(9)]


def test_an_honest_dealing_verifies_everywhere_and_opens_to_what_was_dealt():
    assert SCHEME.quorums.packing == 2
    made = dealt(VECTOR)
    assert dealing.check_public(VECTOR, made.public)
    assert all(dealing.committed(made.public, p, made.private[p]) for p in range(9))
    shares = Shares(peers=tuple(range(9)), values=np.stack(rows(VECTOR, made)), length=LENGTH)
    np.testing.assert_array_equal(SCHEME.open(shares), np.arange(LENGTH))


def test_honest_masks_verify_and_sum_to_zero():
    made = [dealt(MASKS, bytes([i]) * 32) for i in range(3)]
    assert all(dealing.check_public(MASKS, each.public) for each in made)
    parts = [
        DotShares(peers=tuple(range(9)), values=np.stack(rows(MASKS, each)), degree=MASKS.degree)
        for each in made
    ]
    assert not open_dots(SCHEME, add_masks(parts)).values.any()


@pytest.mark.parametrize("kind", [VECTOR, MASKS])
def test_the_same_seed_deals_the_same_again_and_another_one_otherwise(kind):
    first, again, other = dealt(kind), dealt(kind), dealt(kind, bytes(32))
    assert first.private == again.private
    assert first.public.digest(SLOT, masks=kind.masks) == again.public.digest(
        SLOT, masks=kind.masks
    )
    assert first.public.digest(SLOT, masks=kind.masks) != other.public.digest(
        SLOT, masks=kind.masks
    )
    assert not set(first.private) & set(other.private)


def test_what_a_dealer_signs_says_whether_it_dealt_masks_and_nothing_of_the_federation_file():
    made = dealt(VECTOR).public
    assert made.digest(SLOT, masks=True) != made.digest(SLOT, masks=False)
    header = Header(
        federation=b"f" * 32,
        run=b"r" * 32,
        step=3,
        round=2,
        sender=1,
        recipient=0,
        log=b"l" * 32,
        asked=b"a" * 32,
    )
    binding = dealing.binding_of(header, 1)
    assert dealing.binding_of(replace(header, federation=b"g" * 32), 1) == binding
    for other in ({"run": b"s" * 32}, {"step": 4}, {"log": b"m" * 32}, {"asked": b"b" * 32}):
        assert dealing.binding_of(replace(header, **other), 1) != binding
    assert dealing.binding_of(header, 2) != binding


def test_a_seed_that_is_used_again_by_mistake_gives_other_randomness():
    """Rows of two dealings with the same randomness would differ by the shares of a difference."""
    zeros = np.zeros(LENGTH, dtype=np.int64)
    made = [
        dealing.deal_vector(VECTOR, zeros, SLOT, SEED),
        dealing.deal_vector(VECTOR, zeros, b"another step", SEED),
        dealing.deal_vector(VECTOR, zeros + 1, SLOT, SEED),
    ]
    shares = [np.frombuffer(each.private[0][NONCE_BYTES:], dtype="<i8") for each in made]
    for a, b in ((0, 1), (0, 2), (1, 2)):
        difference = (shares[a] - shares[b]) % F61.modulus
        assert len(set(difference[: VECTOR.blocks].tolist())) == VECTOR.blocks


@pytest.mark.parametrize("kind", [VECTOR, MASKS])
def test_any_change_of_a_row_the_proof_or_the_place_is_noticed(kind):
    made = dealt(kind)
    good = made.private[4]
    for position in (0, kind.blocks, kind.blocks + CHECKS - 1):
        row = np.frombuffer(good[NONCE_BYTES:], dtype="<i8").astype(np.int64)
        row[position] = (row[position] + 1) % F61.modulus
        bad = good[:NONCE_BYTES] + row.astype("<i8").tobytes()
        assert not dealing.committed(made.public, 4, bad)
        assert dealing.row_of(kind, SLOT, made.public, 4, bad) is None
    assert dealing.row_of(kind, SLOT, made.public, 5, good) is None
    assert dealing.row_of(kind, b"another step", made.public, 4, good) is None
    assert not dealing.committed(made.public, 5, good)
    proof = made.public.proof.copy()
    proof[-1] = (proof[-1] + 1) % F61.modulus
    changed = Public(commitments=made.public.commitments, proof=proof)
    assert sum(dealing.row_of(kind, SLOT, changed, p, made.private[p]) is None for p in range(9))
    assert changed.digest(SLOT, masks=kind.masks) != made.public.digest(SLOT, masks=kind.masks)


@pytest.mark.parametrize("private", [b"", bytes(63), bytes(64), bytes(65), bytes(64 + 8 * 500)])
def test_rows_of_any_shape_are_refused_without_a_crash(private):
    assert dealing.row_of(VECTOR, SLOT, dealt(VECTOR).public, 0, private) is None


def test_a_public_part_of_another_shape_is_refused():
    made = dealt(VECTOR).public
    for commitments, proof in (
        (made.commitments[:-32], made.proof),
        (made.commitments, made.proof[:-1]),
        (b"", made.proof[:0]),
    ):
        assert not dealing.check_public(VECTOR, Public(commitments=commitments, proof=proof))


def test_no_byte_can_move_between_the_public_parts():
    made = dealt(VECTOR).public
    told = made.commitments + made.proof.astype("<i8").tobytes()
    moved = Public(
        commitments=told[: len(made.commitments) + 32],
        proof=np.frombuffer(told[len(made.commitments) + 32 :], dtype="<i8").astype(np.int64),
    )
    assert moved.digest(SLOT, masks=False) != made.digest(SLOT, masks=False)
    assert not dealing.is_shaped(VECTOR, moved)


def test_masks_of_the_right_degree_that_do_not_sum_to_zero_are_refused():
    made = dealt(MASKS)
    shifted = F61.add(made.public.proof, np.array(1))
    public = Public(commitments=made.public.commitments, proof=shifted)
    assert not dealing.check_public(MASKS, public)


def test_the_published_combination_is_uniform_given_any_c_shares():
    """Two secrets, the same colluders' rows: the proof takes each value about as often.

    The proof of a secret is its combination plus that of the random blocks, so for fixed rows of
    the colluders the published value elsewhere runs through the field with those blocks. Chi-square
    on 16 cells, seed fixed; false alarm rate 1e-4 (bound 44.3 at 15 degrees of freedom).
    """
    counts = np.zeros(16)
    for i in range(400):
        made = dealing.deal_vector(
            VECTOR, np.full(LENGTH, 7, dtype=np.int64), SLOT, Seeded(i).elements(4).tobytes()
        )
        counts[int(made.public.proof[-1]) * 16 // F61.modulus] += 1
    assert ((counts - 25) ** 2 / 25).sum() < 44.3


@pytest.mark.parametrize("blocks", [1, 2, 7, 9, 10])
def test_a_proof_is_the_combination_that_its_definition_says(blocks):
    """Σ_b u(b div w)·v(b mod w)·row_b, and the random block, in Python's integers."""
    kind = Kind(scheme=SCHEME, blocks=blocks, degree=VECTOR.degree, masks=False)
    row = Seeded("row").elements(1, blocks + CHECKS)
    found = dealing._combined(kind, SLOT, b"commitments", row[:, :blocks], row[:, blocks:])
    width = next(w for w in range(1, 99) if w * w >= blocks)
    lines = -(-blocks // width)
    source = Seeded(hashlib.sha256(b"pdlrecover challenge" + SLOT + b"commitments").hexdigest())
    v, u = source.elements(width, CHECKS).tolist(), source.elements(lines, CHECKS).tolist()
    numbers = row[0].tolist()
    for i in range(CHECKS):
        terms = (u[b // width][i] * v[b % width][i] * numbers[b] for b in range(blocks))
        assert found[i, 0] == (sum(terms) + numbers[blocks + i]) % F61.modulus
