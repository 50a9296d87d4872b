"""docs/paper.md names what there is, and misses nothing of the paper."""

import re

import pytest
from references import ROOT, broken, references

from pdlrecover.experiments.reproductions import REPRODUCTIONS

PAGE = (ROOT / "docs" / "paper.md").read_text()
PAPER = ROOT.parent / "shared" / "paper" / "pdlrecover.tex"
EQUATIONS, CORRECTIONS = 35, 10
SECTIONS = {
    "Related Work",
    "Preliminary Knowledge",
    "Decentralized Federated Learning",
    "background",
    "PDLRecoversection",
    "Security Analysis",
    "conclustion",
}
"""Labels of sections of which there is nothing to show."""


@pytest.fixture
def paper():
    if not PAPER.exists():
        pytest.skip(f"the paper is not at {PAPER.relative_to(ROOT.parent)}, beside the project")
    return PAPER.read_text()


def rows():
    """Return the first cell of every row of the page's tables."""
    return [line.split("|")[1].strip() for line in PAGE.splitlines() if line.startswith("|")]


def test_everything_that_the_page_names_exists():
    assert len(references(PAGE)) > 80
    assert broken(PAGE) == []


def test_a_reference_that_leads_nowhere_is_found():
    assert broken("`nowhere.py` and `sharing/robust.py:no_such_name`") == [
        "nowhere.py",
        "sharing/robust.py:no_such_name",
    ]


def test_every_equation_and_every_correction_has_a_row():
    numbered = [int(n) for cell in rows() for n in re.findall(r"\((\d+)\)", cell)]
    assert numbered == list(range(1, EQUATIONS + 1))
    corrections = [int(n) for cell in rows() for n in re.findall(r"\*\*C(\d+)\*\*", cell)]
    assert corrections == list(range(1, CORRECTIONS + 1))
    assert {int(n) for n in re.findall(r"\*\*C(\d+)\*\*", PAGE)} == set(corrections)


def test_every_command_on_the_page_is_a_reproduction():
    named = set(re.findall(r"`(?:pdlrecover )?reproduce ([\w-]+)", PAGE))
    assert named <= set(REPRODUCTIONS)
    papers = {name for name in REPRODUCTIONS if name.startswith(("table-", "figure-"))}
    assert papers | {"bound"} <= named


def test_the_page_has_all_equations_of_the_paper(paper):
    assert paper.count(r"\begin{equation}") == EQUATIONS


def test_the_page_has_all_labels_of_the_paper(paper):
    labels = set(re.findall(r"\\label\{([^}]*)\}", paper)) - SECTIONS
    assert sorted(label for label in labels if f"`{label}`" not in PAGE) == []


def test_the_page_has_every_theorem_table_figure_and_algorithm_of_the_paper(paper):
    stated = re.findall(r"\\textbf\{((?:Theorem|Assumption|Corollary|Lemma)[^}]*?)[.:]?\}", paper)
    assert len(stated) == 6
    assert [name for name in stated if name not in PAGE] == []
    unlabelled = r"\\begin\{(table|figure|algorithm)\*?\}(?:(?!\\label|\\end\{\1).)*\\end\{\1"
    assert re.search(unlabelled, paper, re.DOTALL) is None, "all have labels, checked above"
