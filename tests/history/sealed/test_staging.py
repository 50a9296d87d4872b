"""Shares of the next round that are written before it is committed."""

import lmdb
import numpy as np
import pytest

from pdlrecover.errors import HistoryError
from pdlrecover.field import F61, Seeded
from pdlrecover.history import Vault, VaultLayout, verify
from pdlrecover.history.sealed.records import share_key

KEY = bytes(range(32))
LAYOUT = VaultLayout(federation=b"\x07" * 32, run="spring", peer=3, parameters=40, blocks=10)
DEALERS = (0, 2, 5)
ROWS = dict(zip(DEALERS, Seeded("rows").elements(3, 10), strict=True))
NAMES = {0: "dealing a", 2: "dealing b", 5: "dealing c"}


def stage(vault, dealers, **names):
    staged = {p: (names.get(f"of_{p}", NAMES[p]), ROWS[p]) for p in dealers}
    vault.put_checkpoints({"step": b"promised"}, staged=staged, head=False)


def commit(vault, shares=ROWS, names=NAMES):
    vault.commit(round=len(vault), model=np.zeros(40), dealers=DEALERS, shares=shares, names=names)


def record(folder, t, dealer):
    with lmdb.open(str(folder), readonly=True) as env, env.begin() as transaction:
        return transaction.get(share_key(t, dealer))


def test_a_staged_share_is_adopted_as_it_is_and_the_rest_is_written(tmp_path):
    with Vault(tmp_path, KEY, LAYOUT) as vault:
        stage(vault, (0, 5))
    before = {p: record(tmp_path, 0, p) for p in DEALERS}
    assert before[2] is None
    assert verify(tmp_path, KEY).sound, "a history is sound between staging and commit"
    with Vault(tmp_path, KEY, LAYOUT) as vault:
        assert np.array_equal(vault.staged(5, "dealing c"), ROWS[5])
        assert vault.staged(2, "dealing b") is None
        commit(vault)
        assert np.array_equal(vault.sum(0, DEALERS).values, F61.sum(np.stack([*ROWS.values()]), 0))
        assert vault.staged(5, "dealing c") is None, "the next round has none yet"
        assert vault.get_checkpoint("step") == b"promised"
    assert {p: record(tmp_path, 0, p) == before[p] for p in DEALERS} == {0: True, 2: False, 5: True}
    assert verify(tmp_path, KEY).sound


def test_a_share_that_was_staged_of_another_dealing_is_not_taken(tmp_path):
    with Vault(tmp_path, KEY, LAYOUT) as vault:
        stage(vault, (0, 2), of_2="another dealing")
        assert vault.staged(2, "dealing b") is None
        others = {**ROWS, 2: ROWS[0]}
        commit(vault, others)
        assert np.array_equal(vault.sum(0, [2]).values, others[2])
    with Vault(tmp_path / "unnamed", KEY, LAYOUT) as vault:
        stage(vault, DEALERS)
        commit(vault, dict.fromkeys(DEALERS, ROWS[0]), names=None)
        assert np.array_equal(vault.sum(0, [5]).values, ROWS[0])


def test_what_was_staged_and_is_not_of_the_round_goes_with_its_commit(tmp_path):
    with Vault(tmp_path, KEY, LAYOUT) as vault:
        stage(vault, DEALERS)
        commit(vault, {0: ROWS[0]})
        assert vault.sum(0, DEALERS).missing == (2, 5)
        stage(vault, (2,))
        vault.finish(np.ones(40))
        with pytest.raises(HistoryError, match="finished"):
            stage(vault, (2,))
    assert record(tmp_path, 0, 2) is None
    assert record(tmp_path, 1, 2) is None
    assert verify(tmp_path, KEY).sound


def test_damage_to_a_staged_share_is_found(tmp_path):
    with Vault(tmp_path, KEY, LAYOUT) as vault:
        stage(vault, (0, 2))
    with lmdb.open(str(tmp_path), map_size=1 << 26) as env, env.begin(write=True) as transaction:
        broken = bytearray(transaction.get(share_key(0, 0)))
        broken[20] ^= 1
        transaction.put(share_key(0, 0), bytes(broken))
        transaction.delete(share_key(0, 2))
        transaction.put(share_key(0, 4), bytes(50))
    assert {str(damage) for damage in verify(tmp_path, KEY).damage} == {
        "round 0, share of dealer 0: the record is damaged",
        "round 0, share of dealer 2: the record is missing",
        "round 0, share of dealer 4: nothing was stored there",
    }
    with Vault(tmp_path, KEY, LAYOUT) as vault:
        assert vault.staged(0, "dealing a") is None
        assert vault.staged(2, "dealing b") is None
        commit(vault, {0: ROWS[0], 5: ROWS[5]}, names={5: "dealing c"})
        assert np.array_equal(vault.sum(0, [0, 5]).values, F61.add(ROWS[0], ROWS[5]))


def test_a_share_of_the_wrong_length_is_not_staged(tmp_path):
    with Vault(tmp_path, KEY, LAYOUT) as vault:
        with pytest.raises(HistoryError, match="shape"):
            vault.put_checkpoints({}, staged={0: ("dealing a", ROWS[0][:5])})
        commit(vault)
