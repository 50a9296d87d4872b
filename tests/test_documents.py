"""What the documents show is run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_readme_example_runs_as_it_stands():
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code
    for block in code:
        result = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        assert result.stdout


@pytest.mark.slow
def test_the_story_of_lost_and_lying_peers_ends_well():
    story = ROOT / "examples" / "lost_and_lying.py"
    result = subprocess.run([sys.executable, story], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "the liar is peer 7" in result.stdout


def test_links_in_the_documents_lead_somewhere():
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
