"""The glossary, the guide for contributors and the decisions name what there is."""

import re

import pytest
from references import ROOT, broken, references

GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
PAGES = [
    "CONTRIBUTING.md",
    "docs/glossary.md",
    "docs/decisions/0014-the-codec-is-written-by-hand.md",
]


def rows(text):
    """Return the cells of every row of the tables."""
    return [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| ")]


@pytest.mark.parametrize("page", PAGES)
def test_everything_that_the_page_names_exists(page):
    assert broken((ROOT / page).read_text()) == []


def test_every_word_has_one_meaning_and_a_file():
    defined = [row for row in rows(GLOSSARY) if len(row) == 3 and row[0].strip() != "word"]
    words = [row[0].strip() for row in defined]
    assert len(words) > 30
    assert len(set(words)) == len(words)
    assert [row[0] for row in defined if not references(row[2])] == []


def test_every_question_has_an_answer_with_a_place():
    asked = rows(GLOSSARY.partition("## Where to find what")[2])[1:]
    assert len(asked) > 8
    assert [q for q, answer in asked if not references(answer) and "](" not in answer] == []


def test_the_guide_shows_every_package():
    layout = re.search(
        r"```\nsrc/pdlrecover/\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.S
    )
    packages = {p.parent.name for p in (ROOT / "src" / "pdlrecover").glob("*/__init__.py")}
    assert sorted(name for name in packages if f"{name}/" not in layout[1]) == []
    assert layout[1].count("\n") < 10
