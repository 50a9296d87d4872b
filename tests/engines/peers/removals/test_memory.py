from pathlib import Path

import pytest
from bodies import DIGEST, REMOVAL_PROPOSALS
from hypothesis import given
from hypothesis import strategies as st
from memory_store import MemoryStore

from pdlrecover.engines.peers.protocol import codec
from pdlrecover.engines.peers.protocol.messages import Approval
from pdlrecover.engines.peers.removals.memory import (
    REMOVALS,
    StoredApproval,
    StoredRemoval,
    StoredRemovals,
    recall,
    remember,
)
from pdlrecover.errors import HistoryError

KNOWN = st.builds(
    StoredRemoval,
    proposal=REMOVAL_PROPOSALS,
    approvals=st.lists(
        st.builds(StoredApproval, peer=st.integers(0, 0xFFFF), message=st.binary(max_size=50)),
        max_size=3,
    ).map(tuple),
)
RECORDS = st.builds(
    StoredRemovals,
    removals=st.lists(KNOWN, max_size=3).map(tuple),
    passed=st.lists(DIGEST, max_size=3).map(tuple),
)


@given(RECORDS)
def test_what_is_remembered_is_recalled(record):
    store = MemoryStore()
    assert recall(store) == StoredRemovals()
    remember(store, record)
    assert recall(store) == record


def test_votes_that_cannot_be_read_are_refused_and_not_forgotten():
    good = REMOVALS.encode(StoredRemovals(passed=(bytes(32),)))
    bads = [good[:-1], good + b"\0", b'{"removals": []}', b"[]", b"\0", b"[" * 100_000]
    bads += [b'{"removals": ["x"], "passed": []}', b'{"removals": [], "passed": {"a": 1}}']
    for bad in bads:
        with pytest.raises(HistoryError, match="go on with the version"):
            REMOVALS.decode(bad)


def test_removals_of_version_0_are_read():
    """As the software of then left them: a removal with two of three approvals."""
    found = REMOVALS.decode((Path(__file__).parent / "removals_version_0.json").read_bytes())
    (removal,) = found.removals
    assert found.passed == ()
    assert (removal.proposal.removed, removal.proposal.reason) == ((4,), "malicious")
    assert [each.peer for each in removal.approvals] == [0, 1]
    approvals = [codec.decode(each.message) for each in removal.approvals]
    assert [each.header.sender for each in approvals] == [0, 1]
    assert {each.body for each in approvals} == {Approval(removal=removal.proposal.digest)}
    assert REMOVALS.decode(REMOVALS.encode(found)) == found
