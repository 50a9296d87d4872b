"""The log as JSON: its fields are stable and documented, and lines have no others."""

import ast
import json
import logging
import re
from pathlib import Path

import pytest

import pdlrecover
from pdlrecover.engines.peers.operator.logs import ALWAYS, EVENTS, FACTS, NOTE, JsonLines

SOURCE = Path(pdlrecover.__file__).parent
PAGE = Path(__file__).parents[4] / "docs" / "operating.md"
PLACES = ("engines/peers/**/*.py", "cli/peer_run.py", "descriptors.py")
WITH_EVENTS = [path for place in PLACES for path in SOURCE.glob(place) if path.name != "logs.py"]


def written():
    """Return the event of every line that the source writes."""
    for path in WITH_EVENTS:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Dict):
                yield from (
                    ast.literal_eval(value)
                    for key, value in zip(node.keys, node.values, strict=True)
                    if isinstance(key, ast.Constant) and key.value == "event"
                    if isinstance(value, ast.Constant)
                )
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "_log":
                yield ast.literal_eval(node.args[0])
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "facts['event']":
                yield ast.literal_eval(node.value)


def test_every_event_that_is_written_is_known_and_every_known_one_is_written():
    assert set(written()) | {NOTE} == set(EVENTS)


@pytest.mark.parametrize("known", [ALWAYS, FACTS, EVENTS], ids=["always", "facts", "events"])
def test_the_page_has_every_field_and_event_in_the_same_words(known):
    rows = re.findall(r"^\| `([a-z_-]+)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    for name, meaning in known.items():
        assert (name, meaning) in rows


def line(text, *arguments, facts=None, error=None):
    formatter = JsonLines()
    formatter.by = "ash"
    info = (type(error), error, error.__traceback__) if error else None
    record = logging.LogRecord("pdlrecover", logging.ERROR, "", 1, text, arguments, info)
    if facts:
        record.facts = facts
    return json.loads(formatter.format(record))


def test_a_line_has_its_fields_and_its_facts():
    told = line("%s is down", "elm", facts={"event": "unreachable", "name": "elm"})
    assert list(told) == [*ALWAYS, "name"]
    assert (told["text"], told["level"], told["by"]) == ("elm is down", "error", "ash")
    assert told["event"] == "unreachable"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", told["time"])
    assert line("round 3")["event"] == NOTE


def test_a_bug_comes_with_its_traceback_in_the_same_line():
    try:
        raise ZeroDivisionError("oh")
    except ZeroDivisionError as error:
        told = line("this is a bug", error=error)
    assert told["traceback"].endswith("ZeroDivisionError: oh")
    assert "test_logs.py" in told["traceback"]
