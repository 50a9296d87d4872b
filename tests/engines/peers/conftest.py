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
