import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

import lmdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdlrecover.errors import FieldError, HistoryError
from pdlrecover.field import F61, Seeded
from pdlrecover.history import Vault, VaultLayout, verify
from pdlrecover.history.sealed import records, unlock
from pdlrecover.history.sealed.database import SPARE, Database
from pdlrecover.history.sealed.records import Kind, Sealer, checkpoint_key, round_key, share_key

KEY, OTHER = bytes(range(32)), bytes(32)
LAYOUT = VaultLayout(federation=b"\x07" * 32, run="spring", peer=3, parameters=40, blocks=10)
DEALERS = (0, 2, 3, 5)


def shares_of(t, dealers=DEALERS, blocks=10):
    rows = Seeded(f"round {t}").elements(len(dealers), blocks)
    return dict(zip(dealers, rows, strict=True))


def model_of(t, parameters=40):
    return np.linspace(-t, 1, parameters)


def commit(vault, *, dealers=DEALERS, **more):
    t = len(vault)
    layout = vault.layout
    return vault.commit(
        round=t,
        model=model_of(t, layout.parameters),
        dealers=dealers,
        shares=shares_of(t, dealers, layout.blocks),
        total=np.arange(layout.parameters + 1) - t,
        **more,
    )


def commit_many(vault):
    for _ in range(200):
        commit(vault)


def filled(folder, rounds=4, **options):
    with Vault(folder, KEY, LAYOUT, **options) as vault:
        for _ in range(rounds):
            commit(vault, evidence={"receipts": b"signed by all"})
    return folder


def edited(folder, change):
    """Change the database as somebody without the key could."""
    with (
        lmdb.open(str(folder), map_size=1 << 26) as env,
        env.begin(write=True) as transaction,
    ):
        change(transaction)


def flip(transaction, key, index=40):
    record = bytearray(transaction.get(key))
    record[index] ^= 1
    transaction.put(key, bytes(record))


def in_child(work):
    """Do something in a process of its own; return how it ended."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def found(folder):
    return {str(d) for d in verify(folder, KEY, LAYOUT).damage}


def test_what_was_committed_is_there_after_opening_again(tmp_path):
    filled(tmp_path)
    with Vault(tmp_path, KEY, LAYOUT) as vault:
        assert len(vault) == len(vault.models) == 4
        for t in range(4):
            np.testing.assert_array_equal(vault.models[t], model_of(t))
            np.testing.assert_array_equal(vault.total(t), np.arange(41) - t)
            assert vault.dealers(t) == DEALERS
            assert vault.evidence(t, "receipts") == b"signed by all"
        assert not vault.finished
        vault.finish(model_of(9))
        assert vault.finished
        assert len(vault) == 4
        np.testing.assert_array_equal(vault.models[-1], model_of(9))
        assert [m[0] for m in vault.models[3:]] == [-3, -9]
        with pytest.raises(HistoryError, match="finished"):
            commit(vault)
        with pytest.raises(IndexError, match="5 models"):
            vault.models[5]
    assert verify(tmp_path, KEY, LAYOUT).sound


@settings(max_examples=30, deadline=None)
@given(
    blocks=st.integers(1, 50),
    dealers=st.sets(st.integers(0, 300), min_size=1, max_size=20),
    data=st.data(),
)
def test_sums_of_shares_are_the_plain_sums_modulo_q(tmp_path_factory, blocks, dealers, data):
    layout = VaultLayout(federation=bytes(32), run="r", peer=0, parameters=3, blocks=blocks)
    shares = {d: Seeded(d).elements(blocks) for d in dealers}
    if data.draw(st.booleans()):
        shares = {d: np.full(blocks, F61.modulus - 1) for d in dealers}
    some = data.draw(st.lists(st.sampled_from(sorted(dealers)), unique=True))
    with Vault(tmp_path_factory.mktemp("vault"), KEY, layout) as vault:
        vault.commit(round=0, model=np.zeros(3), dealers=dealers, shares=shares)
        got = vault.sum(0, some)
    expected = [sum(int(shares[d][b]) for d in some) % F61.modulus for b in range(blocks)]
    assert got.values.tolist() == expected
    assert got.whole


def test_dealers_that_are_missing_are_reported(tmp_path):
    with Vault(tmp_path, KEY, LAYOUT) as vault:
        vault.commit(round=0, model=model_of(0), dealers=(1, 2, 4), shares=shares_of(0, (2, 4)))
        vault.commit(round=1, model=model_of(1), dealers=(1, 2, 4), shares={})
        some = vault.sum(0, [1, 2, 4, 9])
        assert some.missing == (1, 9)
        assert not some.whole
        both = shares_of(0, (2, 4))
        np.testing.assert_array_equal(some.values, F61.add(both[2], both[4]))
        assert vault.sum(1, [1, 2]).missing == (1, 2)
        with pytest.raises(HistoryError, match="2 rounds are stored, and round 2 is not"):
            vault.sum(2, [1])
        with pytest.raises(HistoryError, match=r"round 0, opened sum: none was stored"):
            vault.total(0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"round": 1}, "round 0 comes next, got round 1"),
        ({"dealers": (0, 2, 3)}, r"shares of \[5\], who are not among its dealers"),
        ({"dealers": (0, 0, 2, 3, 5)}, "distinct"),
        ({"model": np.zeros(39)}, r"float64 and shape \(40,\), got float64 and shape \(39,\)"),
        ({"shares": {0: np.zeros(10)}}, "int64 and shape .* got float64"),
        ({"shares": {0: np.full(10, -1)}}, "field elements must lie in"),
        ({"evidence": {"x" * 65: b""}}, "1 to 64 bytes"),
    ],
)
def test_a_round_that_makes_no_sense_is_refused_and_nothing_is_stored(tmp_path, change, message):
    whole = {"round": 0, "model": model_of(0), "dealers": DEALERS, "shares": shares_of(0)}
    with Vault(tmp_path, KEY, LAYOUT) as vault:
        with pytest.raises((HistoryError, FieldError), match=message):
            vault.commit(**{**whole, **change})
        assert len(vault) == 0
        vault.commit(**whole)
    assert verify(tmp_path, KEY, LAYOUT).whole == (0,)


def test_nothing_can_be_read_off_the_disk_and_only_by_the_owner(tmp_path):
    folder = filled(tmp_path / "history")
    content = (folder / "data.mdb").read_bytes() + (folder / "head").read_bytes()
    for secret in (model_of(1).tobytes(), shares_of(1)[2].tobytes(), b"signed by all", KEY):
        assert secret[:16] not in content
    assert folder.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())


def test_a_wrong_key_is_found_at_opening(tmp_path):
    filled(tmp_path)
    with pytest.raises(HistoryError, match=r"key does not open the history in .* another"):
        Vault(tmp_path, OTHER, LAYOUT)
    with pytest.raises(HistoryError, match="key does not open"):
        verify(tmp_path, OTHER, LAYOUT)
    with pytest.raises(HistoryError, match="has 32 bytes, got 5"):
        Vault(tmp_path, b"short", LAYOUT)
    assert verify(tmp_path, KEY, LAYOUT).sound


@pytest.mark.parametrize(
    ("name", "value"), [("federation", bytes(32)), ("run", "autumn"), ("peer", 4), ("blocks", 11)]
)
def test_another_history_is_refused_by_what_differs(tmp_path, name, value):
    filled(tmp_path)
    other = VaultLayout(**{**vars(LAYOUT), name: value})
    with pytest.raises(HistoryError, match=f"another one: its {name} is"):
        Vault(tmp_path, KEY, other)


def test_another_format_is_refused(tmp_path):
    filled(tmp_path)

    def newer(transaction):
        header = json.loads(transaction.get(records.HEADER))
        transaction.put(records.HEADER, json.dumps({**header, "format": 4}).encode())

    edited(tmp_path, newer)
    with pytest.raises(HistoryError, match="has format 4, and this version reads 3"):
        Vault(tmp_path, KEY, LAYOUT)


def test_only_one_process_writes_and_others_may_read(tmp_path):
    steps, reports = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        with Vault(tmp_path, KEY, LAYOUT) as vault:
            for _ in range(2):
                commit(vault)
                os.write(reports[1], b".")
                os.read(steps[0], 1)
        os._exit(0)
    os.read(reports[0], 1)
    with pytest.raises(HistoryError, match="another process is using the history"):
        Vault(tmp_path, KEY, LAYOUT)
    with Vault(tmp_path, KEY, LAYOUT, read_only=True) as reader:
        assert reader.sum(0, DEALERS).whole
        with pytest.raises(HistoryError, match="opened for reading only"):
            commit(reader)
    os.write(steps[1], b".")
    os.read(reports[0], 1)
    with Vault(tmp_path, KEY, LAYOUT, read_only=True) as reader:
        assert len(reader) == 2
    os.write(steps[1], b".")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pytest.raises(HistoryError, match="there is no history"):
        Vault(tmp_path / "nowhere", KEY, LAYOUT, read_only=True)


def test_every_round_has_a_head_of_its_own(tmp_path):
    other = VaultLayout(**{**vars(LAYOUT), "peer": 4})
    with Vault(tmp_path / "a", KEY, LAYOUT) as a, Vault(tmp_path / "b", OTHER, other) as b:
        heads = [a.head]
        for t in range(3):
            heads.append(commit(a))
            b.commit(round=t, model=model_of(t), dealers=DEALERS, shares={})
        assert a.head.link != b.head.link
        assert len({h.link for h in heads}) == 4


# Damage


def test_a_flipped_bit_is_found_and_the_other_rounds_are_whole(tmp_path):
    filled(tmp_path)
    edited(tmp_path, lambda transaction: flip(transaction, share_key(2, 3)))
    look = verify(tmp_path, KEY, LAYOUT)
    assert [str(d) for d in look.damage] == ["round 2, share of dealer 3: the record is damaged"]
    assert look.whole == (0, 1, 3)
    assert look.models == (0, 1, 2, 3)
    assert "rounds that are whole: 0–1, 3" in str(look)
    with Vault(tmp_path, KEY, LAYOUT) as vault:
        some = vault.sum(2, DEALERS)
        assert some.damaged == (3,)
        good = [s for d, s in shares_of(2).items() if d != 3]
        np.testing.assert_array_equal(some.values, F61.combine([1, 1, 1], good))


@pytest.mark.parametrize("index", [0, 11, 12, -17, -16, -1])
def test_every_part_of_a_record_counts(tmp_path, index):
    filled(tmp_path, 1)
    edited(tmp_path, lambda transaction: flip(transaction, round_key(0, Kind.MODEL), index))
    assert found(tmp_path) == {"round 0, model: the record is damaged"}
    with Vault(tmp_path, KEY, LAYOUT) as vault, pytest.raises(HistoryError, match="round 0, model"):
        vault.model(0)


@pytest.mark.parametrize("length", [0, 5, 28, 60, 107])
def test_a_truncated_record_is_found(tmp_path, length):
    filled(tmp_path)
    key = share_key(1, 5)
    edited(tmp_path, lambda txn: txn.put(key, txn.get(key)[:length]))
    assert found(tmp_path) == {"round 1, share of dealer 5: the record is damaged"}
    with Vault(tmp_path, KEY, LAYOUT) as vault:
        assert vault.sum(1, DEALERS).damaged == (5,)


def test_swapped_records_are_named(tmp_path):
    filled(tmp_path)

    def swap(transaction):
        a, b = share_key(1, 2), share_key(3, 5)
        first, second = transaction.get(a), transaction.get(b)
        transaction.put(a, second)
        transaction.put(b, first)

    edited(tmp_path, swap)
    assert found(tmp_path) == {
        "round 1, share of dealer 2: holds another record, that of round 3, share of dealer 5",
        "round 3, share of dealer 5: holds another record, that of round 1, share of dealer 2",
    }


def test_missing_and_strange_records_are_found(tmp_path):
    filled(tmp_path)

    def change(transaction):
        transaction.delete(share_key(0, 3))
        transaction.delete(round_key(2, Kind.MODEL))
        transaction.put(share_key(1, 9), transaction.get(share_key(1, 5)))
        transaction.put(share_key(7, 0), b"")
        transaction.put(checkpoint_key("nobody's"), b"")

    edited(tmp_path, change)
    look = verify(tmp_path, KEY, LAYOUT)
    assert {str(d) for d in look.damage} == {
        "round 0, share of dealer 3: the record is missing",
        "round 2, model: the record is missing",
        "round 1, share of dealer 9: nothing was stored there",
        "round 7, share of dealer 0: nothing was stored there",
        "checkpoint nobody's: nothing was stored there",
    }
    assert look.whole == (3,)
    assert look.models == (0, 1, 3)


def test_a_deleted_round_is_found(tmp_path):
    filled(tmp_path)

    def delete(transaction):
        doomed = [k for k, _ in transaction.cursor() if k.startswith(records.round_prefix(1))]
        for key in doomed:
            transaction.delete(key)

    edited(tmp_path, delete)
    look = verify(tmp_path, KEY, LAYOUT)
    assert [str(d) for d in look.damage] == ["round 1, manifest: the whole round is missing"]
    assert look.whole == (0, 2, 3)


def test_a_round_put_back_from_an_abandoned_branch_breaks_the_chain(tmp_path):
    filled(tmp_path / "a", 2)
    old = shutil.copytree(tmp_path / "a", tmp_path / "copy")
    with Vault(tmp_path / "a", KEY, LAYOUT) as vault:
        commit(vault)
    abandoned = {}
    edited(tmp_path / "a", lambda txn: abandoned.update(dict(txn.cursor())))
    shutil.rmtree(tmp_path / "a")
    shutil.copytree(old, tmp_path / "a")
    with Vault(tmp_path / "a", KEY, LAYOUT) as vault:
        commit(vault)
        commit(vault)
    key = round_key(2, Kind.MANIFEST)
    edited(tmp_path / "a", lambda txn: txn.put(key, abandoned[key]))
    assert found(tmp_path / "a") == {
        "round 2, manifest: the round is not the one that was stored: the chain breaks"
    }
    edited(tmp_path / "a", lambda txn: txn.put(share_key(2, 5), abandoned[share_key(2, 5)]))
    with Vault(tmp_path / "a", KEY, LAYOUT) as vault:
        assert vault.sum(2, DEALERS).damaged == (0, 2, 3)  # the manifest is the abandoned one


def test_an_earlier_record_in_its_own_place_is_found(tmp_path):
    with Vault(tmp_path, KEY, LAYOUT) as vault:
        vault.put_checkpoints({"removal": b"round 5"})
    old = {}
    edited(tmp_path, lambda txn: old.update(dict(txn.cursor())))
    with Vault(tmp_path, KEY, LAYOUT) as vault:
        vault.put_checkpoints({"removal": b"round 6"})
    key = checkpoint_key("removal")
    edited(tmp_path, lambda txn: txn.put(key, old[key]))
    assert found(tmp_path) == {"checkpoint removal: an earlier record was put back there"}
    with (
        Vault(tmp_path, KEY, LAYOUT) as vault,
        pytest.raises(HistoryError, match="not the record that was stored"),
    ):
        vault.get_checkpoint("removal")


def test_a_damaged_state_is_replaced_by_what_the_head_file_remembers(tmp_path):
    filled(tmp_path)
    edited(tmp_path, lambda txn: flip(txn, records.STATE))
    look = verify(tmp_path, KEY, LAYOUT)
    assert [str(d).split(":")[0] for d in look.damage] == ["the state"]
    assert look.whole == (0, 1, 2, 3)
    with pytest.raises(HistoryError, match="the state: the record is damaged"):
        Vault(tmp_path, KEY, LAYOUT)
    (tmp_path / "head").write_bytes(bytes(200))
    look = verify(tmp_path, KEY, LAYOUT)
    assert len(look.damage) == 2
    assert look.whole == ()


def test_a_damaged_header_is_said(tmp_path):
    filled(tmp_path)
    edited(tmp_path, lambda txn: txn.put(records.HEADER, b"{"))
    with pytest.raises(HistoryError, match=r"header of the history in .* is damaged"):
        Vault(tmp_path, KEY, LAYOUT)


def test_records_of_another_peer_or_run_do_not_open():
    salt, key = bytes(32), share_key(1, 2)
    record = Sealer(KEY, salt, LAYOUT).seal(key, b"secret")
    assert Sealer(KEY, salt, LAYOUT).open(key, record) == b"secret"
    for change in ({"run": "autumn"}, {"peer": 4}, {"federation": bytes(32)}):
        with pytest.raises(records.InvalidTag):
            Sealer(KEY, salt, VaultLayout(**{**vars(LAYOUT), **change})).open(key, record)
    for other in (share_key(1, 3), share_key(2, 2), round_key(1, Kind.EVIDENCE, key[-4:])):
        with pytest.raises(records.InvalidTag):
            Sealer(KEY, salt, LAYOUT).open(other, record)
    assert KEY.hex() not in repr(Sealer(KEY, salt, LAYOUT))


# Rollback


def test_a_database_put_back_is_refused_unless_accepted(tmp_path):
    filled(tmp_path, 2)
    old = (tmp_path / "data.mdb").read_bytes()
    with Vault(tmp_path, KEY, LAYOUT) as vault:
        commit(vault)
        signed = commit(vault)
    (tmp_path / "data.mdb").write_bytes(old)
    with pytest.raises(HistoryError, match=r"earlier copy, with 2 rounds .* there were 4 after"):
        Vault(tmp_path, KEY, LAYOUT)
    look = verify(tmp_path, KEY, LAYOUT)
    assert "put back to an earlier copy" in str(look.damage[0])
    assert look.whole == (0, 1)
    with Vault(tmp_path, KEY, LAYOUT, accept_rollback=True) as vault:
        assert len(vault) == 2
        assert vault.head != signed
        commit(vault)
    assert verify(tmp_path, KEY, LAYOUT).sound


def test_a_whole_folder_put_back_is_sound_and_only_a_remembered_head_tells(tmp_path):
    filled(tmp_path / "a", 2)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with Vault(tmp_path / "a", KEY, LAYOUT) as vault:
        remembered = commit(vault)
    assert verify(tmp_path / "b", KEY, LAYOUT).sound
    with Vault(tmp_path / "b", KEY, LAYOUT) as vault:
        assert vault.head.rounds < remembered.rounds
        assert commit(vault) != remembered  # every sealing is new


def test_a_database_that_is_ahead_goes_on(tmp_path):
    filled(tmp_path, 2)
    head = (tmp_path / "head").read_bytes()
    with Vault(tmp_path, KEY, LAYOUT) as vault:
        commit(vault)
        vault.finish(model_of(3))
    (tmp_path / "head").write_bytes(head)
    with Vault(tmp_path, KEY, LAYOUT) as vault:
        assert len(vault) == 3
    assert (tmp_path / "head").read_bytes() != head


def test_a_missing_or_foreign_head_file_is_refused(tmp_path):
    filled(tmp_path / "a")
    filled(tmp_path / "b")
    shutil.copy(tmp_path / "a" / "head", tmp_path / "b" / "head")
    with pytest.raises(HistoryError, match="head is damaged or of another history"):
        Vault(tmp_path / "b", KEY, LAYOUT)
    with Vault(tmp_path / "b", KEY, LAYOUT, accept_rollback=True) as vault:
        assert len(vault) == 4
    (tmp_path / "b" / "head").unlink()
    with pytest.raises(HistoryError, match="its head file is missing"):
        Vault(tmp_path / "b", KEY, LAYOUT)
    (tmp_path / "a" / "data.mdb").unlink()
    with pytest.raises(HistoryError, match="empty and its head file is not"):
        Vault(tmp_path / "a", KEY, LAYOUT)


# Killed, cut off, full


@pytest.mark.slow
def test_a_killed_process_leaves_whole_rounds_and_loses_none_that_it_reported(tmp_path):
    layout = VaultLayout(federation=bytes(32), run="r", peer=0, parameters=5000, blocks=2000)
    acknowledged = 0
    for delay in (0.02, 0.05, 0.07, 0.11, 0.13, 0.17):
        receive, send = os.pipe()
        child = os.fork()
        if child == 0:
            with Vault(tmp_path, KEY, layout) as vault:
                while True:
                    commit(vault, dealers=range(8))
                    os.write(send, len(vault).to_bytes(4, "big"))
        os.close(send)
        with open(receive, "rb") as reports:
            reports.read(4)  # it has begun
            time.sleep(delay)
            os.kill(child, signal.SIGKILL)
            rest = reports.read()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        acknowledged = int.from_bytes(rest[-4:], "big") if rest else acknowledged + 1
        look = verify(tmp_path, KEY, layout)
        assert look.sound, str(look)
        assert acknowledged <= look.rounds <= acknowledged + 1
        assert look.whole == tuple(range(look.rounds))
        with Vault(tmp_path, KEY, layout) as vault:
            acknowledged = len(vault)
            expected = F61.sum(np.stack([*shares_of(acknowledged - 1, range(8), 2000).values()]), 0)
            np.testing.assert_array_equal(vault.sum(acknowledged - 1, range(8)).values, expected)
    assert acknowledged > 6


def killed_at_birth(folder, moment):
    """Leave what a process leaves that is killed while it makes a history."""
    folder.mkdir()
    if moment in ("file", "power"):
        (folder / "data.mdb").write_bytes(bytes(1 << 20 if moment == "power" else 0))
        return

    def work():
        name = {"opened": "reserve", "reserved": "writing"}.get(moment)
        if name:
            setattr(Database, name, lambda *_: os._exit(0))
        else:
            unlock.remember = lambda *_: os._exit(0)
        Vault(folder, KEY, LAYOUT)

    assert in_child(work) == 0
    assert not (folder / "head").exists()


@pytest.mark.parametrize("moment", ["file", "power", "opened", "reserved", "written"])
def test_a_history_killed_at_its_birth_is_empty_and_sound(tmp_path, moment):
    killed_at_birth(tmp_path / "history", moment)
    for layout in (None, LAYOUT):
        look = verify(tmp_path / "history", KEY, layout)
        assert look.sound, str(look)
        assert look.rounds == 0
    filled(tmp_path / "history")
    assert verify(tmp_path / "history", KEY).whole == (0, 1, 2, 3)


def test_a_history_that_was_emptied_is_not_taken_for_a_new_one(tmp_path):
    filled(tmp_path)
    (tmp_path / "data.mdb").write_bytes(bytes(1 << 20))
    assert not verify(tmp_path, KEY).sound
    with pytest.raises(HistoryError, match="structure of the database"):
        Vault(tmp_path, KEY, LAYOUT)
    (tmp_path / "data.mdb").write_bytes(b"")
    with pytest.raises(HistoryError, match="cannot be used"):
        verify(tmp_path, KEY)
    with pytest.raises(HistoryError, match="empty and its head file is not"):
        Vault(tmp_path, KEY, LAYOUT)


def test_a_database_that_was_cut_off_is_refused_and_kills_nobody(tmp_path):
    filled(tmp_path)
    whole = (tmp_path / "data.mdb").read_bytes()
    with lmdb.open(str(tmp_path), readonly=True, lock=False) as env:
        used = 4096 * (env.info()["last_pgno"] + 1)

    def refused():
        with pytest.raises(HistoryError):
            Vault(tmp_path, KEY, LAYOUT)
        assert not verify(tmp_path, KEY, LAYOUT).sound

    for length in (1, 4096, 8192, 12288, used // 2, used - 4096, used - 1):
        (tmp_path / "data.mdb").write_bytes(whole[:length])
        assert in_child(refused) == 0, length
    (tmp_path / "data.mdb").write_bytes(whole)
    assert verify(tmp_path, KEY, LAYOUT).sound


@pytest.mark.slow
def test_whatever_bits_flip_a_sound_history_reads_as_it_was_stored(tmp_path):
    filled(tmp_path, 3)
    path = tmp_path / "data.mdb"
    whole = path.read_bytes()
    with lmdb.open(str(tmp_path), readonly=True, lock=False) as env:
        used = 4096 * (env.info()["last_pgno"] + 1)
    places = np.random.default_rng(7).integers(0, used, 120)

    def look(place):
        changed = bytearray(whole)
        changed[place] ^= 1 << (place % 8)
        path.write_bytes(changed)
        try:
            if verify(tmp_path, KEY, LAYOUT).sound:
                with Vault(tmp_path, KEY, LAYOUT, read_only=True) as vault:
                    for t in range(3):
                        np.testing.assert_array_equal(vault.models[t], model_of(t))
                        total = F61.combine([1] * 4, [*shares_of(t).values()])
                        np.testing.assert_array_equal(vault.sum(t, DEALERS).values, total)
        except HistoryError:
            pass  # header, key check or file head

    def all_places():
        for place in places.tolist():
            look(place)

    assert in_child(all_places) == 0


def test_a_limit_stops_before_a_round(tmp_path):
    with Vault(tmp_path, KEY, LAYOUT, limit=1_400_000) as vault:
        with pytest.raises(HistoryError, match=r"would grow to .* and 1.4 MB are allowed"):
            vault.reserve(4 << 20)
        with pytest.raises(HistoryError, match="nothing was written"):
            commit_many(vault)
        rounds = len(vault)
        assert rounds > 3
    look = verify(tmp_path, KEY, LAYOUT)
    assert look.sound
    assert look.rounds == rounds


def test_a_full_disk_stops_before_a_round(tmp_path, monkeypatch):
    with Vault(tmp_path, KEY, LAYOUT) as vault:
        commit(vault)
        real = os.statvfs(tmp_path)

        class Full:
            f_bavail, f_frsize = 3, real.f_frsize

        with monkeypatch.context() as patched:
            patched.setattr(os, "statvfs", lambda path: Full)
            with pytest.raises(HistoryError, match=r"needs .* there is no room .* are free"):
                vault.reserve(1 << 20)
        commit(vault)


@pytest.mark.parametrize("free", [SPARE - 1, SPARE, SPARE + 100_000])
def test_what_a_full_disk_needs_is_more_than_what_it_has(tmp_path, monkeypatch, free):
    """Also where the next write alone would fit: some of the disk is left to other files."""
    with Vault(tmp_path, KEY, LAYOUT) as vault:

        class Nearly:
            f_bavail, f_frsize = free, 1

        monkeypatch.setattr(os, "statvfs", lambda path: Nearly)
        with pytest.raises(HistoryError) as caught:
            vault.reserve(100_000)
    text = str(caught.value)
    needed, kept, there = (float(size) for size in re.findall(r"([0-9.]+) MB", text))
    assert needed > there
    assert needed > kept
    assert "stay free for other files" in text


def test_what_was_reserved_is_not_refused_in_the_middle_of_a_round(tmp_path, monkeypatch):
    with Vault(tmp_path, KEY, LAYOUT) as vault:
        commit(vault)
        vault.reserve(LAYOUT.round_bytes(len(DEALERS)) + (1 << 19))
        real, journal = os.statvfs(tmp_path), vault._journal

        class Full:
            f_bavail, f_frsize = 0, real.f_frsize

        monkeypatch.setattr(os, "statvfs", lambda path: Full)
        monkeypatch.setattr(journal._store, "limit", 1)
        for i in range(50):
            vault.put_checkpoints({"step": bytes([i]) * 5000}, head=False)
        commit(vault)
        with pytest.raises(HistoryError, match="are allowed"):
            vault.reserve(4 << 20)
        monkeypatch.setattr(journal._store, "limit", None)
        with pytest.raises(HistoryError, match="no room"):
            vault.reserve(4 << 20)
        assert len(vault) == 2
    assert verify(tmp_path, KEY, LAYOUT).sound


def test_room_that_the_file_has_already_needs_no_free_disk(tmp_path, monkeypatch):
    with Vault(tmp_path, KEY, LAYOUT) as vault:
        vault.reserve(4 << 20)
    real = os.statvfs(tmp_path)

    class Full:
        f_bavail, f_frsize = 0, real.f_frsize

    monkeypatch.setattr(os, "statvfs", lambda path: Full)
    with Vault(tmp_path, KEY, LAYOUT) as vault:
        vault.reserve(2 << 20)
        commit(vault)
        assert len(vault) == 1


def test_a_file_that_may_not_grow_stops_before_a_round_and_inside_of_one(tmp_path, monkeypatch):
    """The operating system itself refuses: by RLIMIT_FSIZE, in a process of its own."""

    def work():
        with Vault(tmp_path, KEY, LAYOUT) as vault:
            commit(vault)
            used = vault._journal._store._env.info()["last_pgno"] + 1
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096 * (used + 3), resource.RLIM_INFINITY))
            with pytest.raises(HistoryError, match=r"no room \(File too large\)"):
                vault.reserve(1 << 20)
            monkeypatch.setattr(Database, "reserve", lambda self, size: None)
            with pytest.raises(HistoryError, match=r"disk of .* is full .* nothing .* lost"):
                commit_many(vault)
            rounds = len(vault)
            resource.setrlimit(
                resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            )
            monkeypatch.undo()
            commit(vault)
            assert len(vault) == rounds + 1

    assert in_child(work) == 0
    look = verify(tmp_path, KEY, LAYOUT)
    assert look.sound
    assert look.whole == tuple(range(look.rounds))


@pytest.fixture
def tiny_disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None or sys.platform != "linux":
        pytest.skip("mounting a tiny disk takes root and Linux")
    made = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(place)], capture_output=True
    )
    if made.returncode:
        pytest.skip("no tmpfs can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_really_fills_up_loses_nothing(tiny_disk, monkeypatch):
    layout = VaultLayout(federation=bytes(32), run="r", peer=0, parameters=5000, blocks=9000)
    with Vault(tiny_disk / "history", KEY, layout) as vault:
        with pytest.raises(HistoryError, match="no room"):
            commit_many(vault)
        rounds = len(vault)
        assert rounds > 2
        monkeypatch.setattr(Database, "reserve", lambda self, size: None)
        with pytest.raises(HistoryError, match=r"is full .* nothing .* lost"):
            commit_many(vault)
        assert len(vault) >= rounds
    look = verify(tiny_disk / "history", KEY, layout)
    assert look.sound
    assert look.rounds == len(vault)


def test_a_full_map_undoes_the_write(tmp_path, monkeypatch):
    layout = VaultLayout(federation=bytes(32), run="r", peer=0, parameters=300_000, blocks=20_000)
    with Vault(tmp_path, KEY, layout) as vault:
        commit(vault)
        with monkeypatch.context() as patched:
            patched.setattr(Database, "reserve", lambda self, size: None)
            with pytest.raises(HistoryError, match="outgrew the room reserved for it"):
                commit_many(vault)
        rounds = len(vault)
        commit(vault)
        assert len(vault) == rounds + 1
    assert verify(tmp_path, KEY, layout).sound


def test_a_head_file_that_cannot_be_written_loses_nothing(tmp_path, monkeypatch):
    with Vault(tmp_path, KEY, LAYOUT) as vault:
        commit(vault)
        real = os.fsync
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError(28, "full")))
            with pytest.raises(HistoryError, match=r"head file .* 2 rounds are stored"):
                commit(vault)
        assert os.fsync is real
    with Vault(tmp_path, KEY, LAYOUT) as vault:
        assert len(vault) == 2


# Retention, checkpoints, threads


def test_old_shares_are_dropped_and_those_of_round_0_and_models_are_kept(tmp_path):
    with Vault(tmp_path, KEY, LAYOUT, keep=3) as vault:
        for _ in range(8):
            commit(vault)
        assert vault.shares_from == 5
        for t in range(1, 5):
            assert vault.sum(t, DEALERS).missing == DEALERS
        assert vault.sum(0, DEALERS).whole
        assert vault.sum(5, DEALERS).whole
        np.testing.assert_array_equal(vault.models[0], model_of(0))
        vault.finish(model_of(8))
        assert vault.shares_from == 5
    look = verify(tmp_path, KEY, LAYOUT)
    assert look.sound, str(look)
    assert look.whole == (0, 5, 6, 7)
    assert look.models == tuple(range(9))
    assert verify(tmp_path, KEY, LAYOUT).rounds == 8
    with pytest.raises(HistoryError, match="at least 1 round"):
        Vault(tmp_path, KEY, LAYOUT, keep=0)


def test_the_file_stops_growing_when_shares_are_dropped(tmp_path):
    layout = VaultLayout(federation=bytes(32), run="r", peer=0, parameters=10, blocks=5000)
    sizes = []
    with Vault(tmp_path, KEY, layout, keep=2) as vault:
        for _ in range(30):
            commit(vault, dealers=range(10))
            sizes.append((tmp_path / "data.mdb").stat().st_size)
    assert sizes[-1] < 1.1 * sizes[12]
    assert verify(tmp_path, KEY, layout).sound


def test_keeping_fewer_rounds_from_now_on_drops_the_rest_at_the_next_round(tmp_path):
    filled(tmp_path, 6)
    with Vault(tmp_path, KEY, LAYOUT, keep=1) as vault:
        commit(vault)
        assert vault.shares_from == 6
    look = verify(tmp_path, KEY, LAYOUT)
    assert look.sound
    assert look.whole == (0, 6)


def test_rounds_that_this_peer_has_not_all_shares_of_are_named(tmp_path):
    with Vault(tmp_path, KEY, LAYOUT) as vault:
        commit(vault)
        for shares in ({}, {2: shares_of(2)[2]}):
            vault.commit(round=len(vault), model=model_of(1), dealers=DEALERS, shares=shares)
        vault.commit(round=3, model=None, dealers=DEALERS, shares={})
    found = verify(tmp_path, KEY)
    assert found.sound
    assert found.whole == (0, 1, 2, 3)
    assert found.unshared == (1, 2)
    assert "rounds without all of this peer's shares (it was away, or late): 1–2" in str(found)


def test_a_recovery_goes_on_from_its_checkpoint(tmp_path):
    with Vault(tmp_path, KEY, LAYOUT) as vault:
        assert vault.get_checkpoint("removal-1") is None
        vault.put_checkpoints({"removal-1": b"round 5"})
        vault.put_checkpoints({"removal-1": bytes(100_000)})
        vault.put_checkpoints({"removal-2": b""})
    with Vault(tmp_path, KEY, LAYOUT) as vault:
        assert vault.get_checkpoint("removal-1") == bytes(100_000)
        assert vault.get_checkpoint("removal-2") == b""
        with pytest.raises(HistoryError, match="1 to 64 bytes"):
            vault.put_checkpoints({"": b""})
    edited(tmp_path, lambda txn: flip(txn, checkpoint_key("removal-1")))
    assert found(tmp_path) == {"checkpoint removal-1: the record is damaged"}
    with (
        Vault(tmp_path, KEY, LAYOUT) as vault,
        pytest.raises(HistoryError, match="checkpoint removal-1: the record is damaged"),
    ):
        vault.get_checkpoint("removal-1")


def test_threads_may_read_while_rounds_are_committed(tmp_path):
    wrong = []

    def read(vault):
        for _ in range(60):
            t = len(vault) - 1
            if not vault.sum(t, DEALERS).whole:
                wrong.append(t)

    with Vault(tmp_path, KEY, LAYOUT) as vault:
        commit(vault)
        readers = [threading.Thread(target=read, args=(vault,)) for _ in range(3)]
        for reader in readers:
            reader.start()
        for _ in range(20):
            commit(vault)
        for reader in readers:
            reader.join()
    assert not wrong
    assert Path(tmp_path / "data.mdb").exists()
