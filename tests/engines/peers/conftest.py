"""What tests of peers share."""

import pytest
import whole_peers
from forked_peers import ForkedPeers


@pytest.fixture(scope="session")
def forked_peers():
    """Where processes are cheap to start: made once, for the tests that start many."""
    made = ForkedPeers(whole_peers.environment())
    yield made
    made.close()


@pytest.fixture(autouse=True)
def stores_are_closed():
    """Close the stores of all peers of a test, also of one that failed: LMDB wants it so."""
    yield
    for each in whole_peers.MADE:
        each.runs.store.close()
    whole_peers.MADE.clear()
