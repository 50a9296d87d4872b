import importlib.util
from pathlib import Path

import pytest

from pdlrecover.engines.peers.protocol.states import TABLE, TAKES, Move, StepState, moved
from pdlrecover.errors import MessageError

SCRIPT = Path(__file__).parents[4] / "docs" / "peers_states.py"


def test_the_page_is_drawn_from_the_table_as_it_is():
    spec = importlib.util.spec_from_file_location("peers_states", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.page()


def test_what_the_table_does_not_have_is_not_legal():
    legal = 0
    for state in StepState:
        for move in Move:
            if (state, move) in TABLE:
                legal += 1
                assert moved(state, move) is TABLE[state, move]
            else:
                with pytest.raises(MessageError, match="is not legal"):
                    moved(state, move)
    assert legal == len(TABLE)


def test_every_state_leads_to_an_end_and_ends_take_nothing():
    ends = {StepState.OPENED, StepState.STOPPED}
    for state in StepState:
        reached, todo = set(), [state]
        while todo:
            at = todo.pop()
            reached.add(at)
            todo += [b for (a, _), b in TABLE.items() if a is at and b not in reached]
        assert reached & ends
    assert all(not TAKES[state] for state in ends)
    assert set(TAKES) == set(StepState)
