"""Results in hand-written prose go stale, so they stand in generated tables.

A number with %, × or "points" outside of what `make docs` writes must be on the list below, with a
reason why it cannot go stale. Pages of decisions say what a choice was made by, once, and may.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
GENERATED = re.compile(r"<!-- (?:table|figure)[^>]*-->.*?<!-- end -->", re.DOTALL)
CODE = re.compile(r"```.*?```", re.DOTALL)
RESULT = re.compile(r"\d[\d.,–]*\s?(?:%|×|points\b)")
NOT_LOOKED_AT = ("docs/results.md", "docs/decisions/", "docs/reference/cli.md")
ALLOWED = {
    ("docs/methods/crab.md", "10%"): "a constant of the method",
    ("docs/methods/crab.md", "60%"): "a constant of the method",
    ("docs/methods/crab.md", "70%"): "a constant of the method",
    ("docs/paper.md", "224×"): "the size of an image",
    ("docs/paper.md", "13%"): "why a setting of the paper was not taken; nothing runs it any more",
}


def results_in(text):
    """Return the numbers in what was written by hand."""
    return [found[0] for found in RESULT.finditer(CODE.sub("", GENERATED.sub("", text)))]


def prose():
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
    names = {path.relative_to(ROOT).as_posix(): path for path in pages}
    kept = {name: path for name, path in names.items() if not name.startswith(NOT_LOOKED_AT)}
    return {(name, each) for name, path in kept.items() for each in results_in(path.read_text())}


def test_no_result_is_typed_into_prose():
    typed = sorted(prose() - ALLOWED.keys())
    assert typed == [], "let a table of docs/tables.py say it, or give a reason in ALLOWED"


def test_the_list_has_nothing_that_is_not_there():
    assert sorted(ALLOWED.keys() - prose()) == []


def test_results_are_found_in_prose_and_not_in_tables_and_code():
    text = "It saves 8 to 34% of them.\n<!-- table: x -->\n| 5% |\n<!-- end -->\n```\n7%\n```\n"
    assert results_in(text) == ["34%"]
    assert results_in("3 points lower, 1.5× faster, in 7 pointers") == ["3 points", "1.5×"]
