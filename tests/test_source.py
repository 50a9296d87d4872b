import subprocess
import sys
from pathlib import Path

import pytest

import pdlrecover
from pdlrecover import source

SOURCE = '''"""What it is for."""

from pdlrecover.recovery.same_bits import norm
import json

LIMIT = 3
"""How far."""


def far(x):
    """Say whether it is far."""
    return norm(x) > LIMIT  # at last
'''


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("What it is for.", "What it does."),
        ("Say whether", "Tell whether"),
        ("How far.", "The largest."),
        ("  # at last", ""),
        ("norm(x) > LIMIT", "(norm(x)\n        > LIMIT)"),
        ("pdlrecover.recovery.same_bits", "pdlrecover.norms"),
        ("import json\n\nLIMIT", "\nimport json\nLIMIT"),
    ],
)
def test_prose_form_and_place_are_not_in_the_key(before, after):
    assert before in SOURCE
    assert source.code_of(SOURCE.replace(before, after)) == source.code_of(SOURCE)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ("> LIMIT", ">= LIMIT"),
        ("import norm", "import distance as norm"),
        ("import json", "import numpy as json"),
        ("LIMIT = 3", 'LIMIT = "3"'),
    ],
)
def test_code_is_in_the_key(before, after):
    assert before in SOURCE
    assert source.code_of(SOURCE.replace(before, after)) != source.code_of(SOURCE)


def test_it_counts_where_a_name_comes_from_if_several_define_it():
    there = "from pdlrecover.recovery.same_bits import norm"
    assert there in SOURCE
    moved = SOURCE.replace(there, "from pdlrecover.sharing.dots import norm")
    assert source.code_of(moved, {"norm"}) != source.code_of(SOURCE, {"norm"})
    late = "def f(x):\n    from pdlrecover.{} import norm\n    return norm(x)"
    assert source.code_of(late.format("a")) != source.code_of(late.format("b"))


def test_a_moved_file_keeps_the_key(tmp_path, monkeypatch):
    def digest(**files):
        for path in tmp_path.glob("*"):
            path.unlink()
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        monkeypatch.setattr(source, "sources", lambda: sorted(files))
        monkeypatch.setattr(source, "ROOT", tmp_path)
        return source.source_digest.__wrapped__()

    before = digest(a=SOURCE, b="x = 1")
    assert digest(z=SOURCE, b="x = 1") == before
    assert digest(a=SOURCE, b='"""Doc."""\nx = 1') == before
    assert digest(a=SOURCE, b="x = 2") != before
    assert digest(a=SOURCE) != before
    imports = "from pdlrecover.{} import x"
    both = {"b": "x = 1", "c": "x = 2"}
    assert digest(a=imports.format("b"), **both) != digest(a=imports.format("c"), **both)


def test_the_source_is_everything_that_a_run_loads():
    text = (
        "import sys, pdlrecover.experiments.experiment.run\n"
        "for name, module in sys.modules.items():\n"
        "    if name.split('.')[0] == 'pdlrecover': print(module.__file__)"
    )
    command = [sys.executable, "-c", text]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    root = Path(pdlrecover.__file__).parent
    loaded = {Path(line).relative_to(root).as_posix() for line in found.splitlines()}
    harmless = {"errors.py", "later.py", "files.py", "descriptors.py", "decode.py", "suspects.py"}
    harmless |= {"__init__.py", "experiments/__init__.py", "cluster.py", "extras.py", "source.py"}
    assert harmless < loaded
    assert loaded - harmless <= set(source.sources())
    own = ("config", "curve", "forgetting", "record", "result", "run", "world")
    assert {f"experiments/experiment/{name}.py" for name in own} <= loaded
