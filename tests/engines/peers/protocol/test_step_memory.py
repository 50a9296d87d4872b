import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bodies import DIGEST, ELEMENTS, HELD, SIGNATURE, VIEW
from hypothesis import given
from hypothesis import strategies as st

from pdlrecover.engines.peers.operator.misconduct import MISDEEDS
from pdlrecover.engines.peers.protocol.ballot import BallotRecord
from pdlrecover.engines.peers.protocol.messages import Held, Proposal, Vote
from pdlrecover.engines.peers.protocol.step_memory import (
    KEPT_ROW,
    PROMISE,
    Promise,
    Row,
    Spoken,
)
from pdlrecover.engines.peers.removals.memory import REMOVALS
from pdlrecover.errors import HistoryError

HELD_ROW = Held(dealer=3, digest=b"e" * 32)
ROW = Row(step=12, held=HELD_ROW, statement=b"s" * 64, values=np.arange(5))
NOTE = replace(ROW, values=None)
PROPOSALS = st.builds(Proposal, view=VIEW, since=VIEW, dealers=HELD)
VOTES = st.builds(Vote, view=VIEW, final=st.booleans(), choice=DIGEST)
BALLOTS = st.builds(
    BallotRecord,
    view=VIEW,
    locked_view=VIEW,
    locked=DIGEST | st.just(b""),
    cast=st.lists(VOTES, max_size=3).map(tuple),
    valid=st.none() | PROPOSALS,
    proposed=st.none() | PROPOSALS,
    voted=st.lists(PROPOSALS, max_size=3).map(tuple),
)
SPOKEN = st.builds(Spoken, ballot=BALLOTS, sub_secret=st.none() | ELEMENTS)
PROMISES = st.builds(
    Promise,
    step=st.integers(0, 1 << 40),
    seed=DIGEST,
    dealt=DIGEST | st.just(b""),
    now=SPOKEN,
    before=st.none() | SPOKEN,
)
ROWS = st.builds(
    Row,
    step=st.integers(0, 1 << 40),
    held=st.builds(Held, dealer=st.integers(0, 0xFFFF), digest=DIGEST),
    statement=SIGNATURE,
    values=st.none() | ELEMENTS,
)
RECORDS = st.tuples(st.just(PROMISE), PROMISES) | st.tuples(st.just(KEPT_ROW), ROWS)


def same(found):
    assert (found.held, found.statement) == (ROW.held, ROW.statement)
    np.testing.assert_array_equal(found.values, ROW.values)


def test_a_row_that_is_kept_whole_needs_nothing_else():
    same(KEPT_ROW.decode(KEPT_ROW.encode(ROW)).restored(lambda held: 1 / 0))


def test_a_row_that_is_kept_elsewhere_is_found_by_its_dealing():
    note = KEPT_ROW.encode(NOTE)
    assert len(note) < len(KEPT_ROW.encode(ROW))
    same(KEPT_ROW.decode(note).restored({ROW.held: ROW.values}.get))


def test_a_row_that_was_lost_elsewhere_is_none():
    other = Held(dealer=3, digest=b"x" * 32)
    assert KEPT_ROW.decode(KEPT_ROW.encode(NOTE)).restored({other: ROW.values}.get).values is None


@given(RECORDS)
def test_what_is_stored_is_read_and_stored_again_the_same(made):
    form, record = made
    data = form.encode(record)
    assert form.encode(form.decode(data)) == data
    if form is PROMISE:
        assert form.decode(data).now.ballot == record.now.ballot


@given(RECORDS, st.data())
def test_what_is_cut_or_extended_is_refused_with_what_to_do(made, data):
    form, record = made
    good = form.encode(record)
    cut = data.draw(st.integers(4, len(good) - 1))
    for bad in (good[:cut], good + b"\0"):
        with pytest.raises(HistoryError, match="go on with the version of"):
            form.decode(bad)


@given(st.binary(max_size=200))
def test_garbage_raises_one_error_only(data):
    for form in (PROMISE, KEPT_ROW):
        try:
            form.decode(data)
        except HistoryError:
            continue
        assert form is KEPT_ROW  # 107 bytes that begin with no version are a note of a row


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just("00" * 32),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["dealt", "now", "before", "ballot", "removals", "passed", "lock"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_json_of_a_wrong_shape_is_refused_and_nothing_is_forgotten(value):
    text = json.dumps(value).encode()
    for form, data in ((PROMISE, bytes(40) + text), (REMOVALS, text), (MISDEEDS, text)):
        try:
            found = form.decode(data)
        except HistoryError:
            continue
        kept = value.values() if isinstance(value, dict) else value
        assert not any(kept), found  # only what says nothing is read as nothing


def test_a_record_of_a_later_version_or_another_kind_is_refused():
    data = KEPT_ROW.encode(ROW)
    with pytest.raises(HistoryError, match="is of version 2 and kind 2, and version 1"):
        KEPT_ROW.decode(data[:4] + b"\2" + data[5:])
    with pytest.raises(HistoryError, match="kind 1 are expected"):
        PROMISE.decode(data)


OLD = json.loads((Path(__file__).parent / "step_memory_version_0.json").read_text())
"""What was stored before records had a version, as the software of then wrote it."""
EMPTY = BallotRecord(
    view=0, locked_view=-1, locked=b"", cast=(), valid=None, proposed=None, voted=()
)


def old(name):
    return bytes.fromhex(OLD[name])


def test_promises_of_version_0_are_read():
    dealers = (Held(dealer=0, digest=b"d" * 32), Held(dealer=3, digest=b"e" * 32))
    proposal = Proposal(view=0, since=-1, dealers=dealers)
    cast = tuple(Vote(view=0, final=final, choice=proposal.choice) for final in (False, True))
    found = PROMISE.decode(old("promise"))
    assert (found.step, found.seed, found.dealt) == (12, bytes(range(32)), b"o" * 32)
    assert found.now.ballot == BallotRecord(
        view=0,
        locked_view=0,
        locked=proposal.choice,
        cast=cast,
        valid=proposal,
        proposed=proposal,
        voted=(proposal,),
    )
    assert found.now.sub_secret is None
    assert found.before.ballot == EMPTY
    assert found.before.sub_secret.tolist() == [1, 2, (1 << 61) - 2]
    first = PROMISE.decode(old("first promise"))
    assert (first.step, first.seed, first.dealt, first.before) == (0, bytes(32), b"", None)
    assert first.now.ballot == EMPTY


def test_rows_of_version_0_are_read():
    whole, note = KEPT_ROW.decode(old("whole row")), KEPT_ROW.decode(old("row kept elsewhere"))
    assert whole.step == note.step == 12
    assert note.values is None
    same(whole.restored(lambda held: 1 / 0))
    same(note.restored({ROW.held: ROW.values}.get))


def test_what_is_read_of_version_0_is_stored_in_the_version_of_now():
    for form, name in ((PROMISE, "promise"), (KEPT_ROW, "whole row")):
        record = form.decode(old(name))
        again = form.decode(form.encode(record))
        assert form.encode(again) == form.encode(record)
        assert form.encode(again).startswith(b"PDLS\1")
