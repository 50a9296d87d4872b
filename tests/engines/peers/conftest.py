"""What tests of peers share."""

import pytest
import town
from nursery import Nursery


@pytest.fixture(scope="session")
def nursery():
    """Where processes are cheap to start: made once, for the tests that start many."""
    made = Nursery(town.environment())
    yield made
    made.close()


@pytest.fixture(autouse=True)
def stores_are_closed():
    """Close the stores of all peers of a test, also of one that failed: LMDB wants it so."""
    yield
    for each in town.MADE:
        each.runs.store.close()
    town.MADE.clear()
