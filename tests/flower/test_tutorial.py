"""The tutorial, in the environment that has Flower."""

from pathlib import Path

import code_blocks
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "flower.md"


@pytest.mark.slow
def test_the_code_of_the_tutorial_runs_and_prints_what_is_shown(tmp_path):
    code_blocks.run(PAGE, tmp_path)
