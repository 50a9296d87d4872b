"""The code on the README and in the tutorials is run, and prints what is shown."""

import json
import os
import subprocess
import sys
from pathlib import Path

import code_blocks
import pytest

ROOT = Path(__file__).parents[1]
PEERS = "docs/tutorials/five-peers.md"
FLOWER = "docs/tutorials/flower.md"
"""It is run by tests/flower, in an environment of its own."""
AS_NOTEBOOK = "docs/tutorials/first-recovery.md"
"""Its notebook has the same code, and is run."""
PAGES = [
    "README.md",
    "docs/data.md",
    "docs/tracking.md",
    *sorted(
        path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "tutorials").glob("*.md")
    ),
]
NOTEBOOK = (ROOT / AS_NOTEBOOK).with_suffix(".ipynb")
RUN_NOTEBOOK = """
import json, sys
import nbformat
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient

notebook, folder, patience = nbformat.read(sys.argv[1], as_version=4), sys.argv[2], int(sys.argv[3])
# By files instead of ports, which other tests may be about to take.
kernel = AsyncKernelManager(transport="ipc", connection_file=f"{folder}/kernel.json")
NotebookClient(
    notebook,
    km=kernel,
    timeout=patience,
    startup_timeout=patience,
    resources={"metadata": {"path": folder}},
).execute()
outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
json.dump([each["text"] for each in outputs if each["output_type"] == "stream"], sys.stdout)
"""
"""A program of its own: what its libraries leave open or warn of is theirs."""
NOT_RUN = 4
"""How many blocks give a reason not to be run; more need a good one."""


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if p not in (PEERS, FLOWER, AS_NOTEBOOK)])
def test_the_code_on_a_page_runs_and_prints_what_is_shown(page, tmp_path):
    code_blocks.run(ROOT / page, tmp_path)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_of_a_kind_that_can_be_run(page):
    found = code_blocks.blocks((ROOT / page).read_text("utf-8"))
    assert found
    assert {block.kind for block in found} <= set(code_blocks.KINDS)


def test_few_blocks_are_left_out_and_each_says_why():
    texts = [(ROOT / page).read_text("utf-8") for page in PAGES]
    reasons = [block.reason for text in texts for block in code_blocks.blocks(text) if block.reason]
    assert len(reasons) == NOT_RUN
    assert sum(text.count("<!-- not run") for text in texts) == NOT_RUN


@pytest.mark.slow
def test_the_notebook_runs_and_prints_what_its_page_shows(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(code_blocks.SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", RUN_NOTEBOOK, NOTEBOOK, tmp_path, str(code_blocks.PATIENCE)],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    page = code_blocks.blocks(NOTEBOOK.with_suffix(".md").read_text("utf-8"))
    shown = [block.body for block in page if block.kind == "text"]
    assert len(printed) == len(shown)
    differ = [code_blocks.differences(a, b) for a, b in zip(shown, printed, strict=True)]
    assert differ == ["" for _ in shown]


def test_the_notebook_is_committed_without_outputs():
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


def page(tmp_path, text):
    """Run the code of a page that has this text."""
    path = tmp_path / "page.md"
    path.write_text(text)
    (tmp_path / "empty").mkdir()
    code_blocks.run(path, tmp_path / "empty")


def test_a_page_that_shows_what_is_not_printed_fails(tmp_path):
    with pytest.raises(AssertionError, match="line 5: expected '4'"):
        page(tmp_path, "```python\nprint(2 + 3)\n```\n\n```text\n4\n```\n")


def test_a_page_whose_command_fails_fails(tmp_path):
    with pytest.raises(AssertionError, match="ended with 1"):
        page(tmp_path, "```sh\necho before\nfalse\necho after\n```\n")


def test_blocks_follow_each_other_in_one_folder_and_one_interpreter(tmp_path):
    code = '```toml title="x.toml"\nx = 1\n```\n```sh\ncp x.toml y.toml\n```\n'
    python = "```python\nn = 7\n```\n```python\nprint(n, open('y.toml').read())\n```\n"
    page(tmp_path, f"{code}{python}```text\n7 x = 1\n\n```\n")


def test_lines_may_be_left_out_and_percentages_be_a_few_points_off():
    assert code_blocks.differences("a\n…\nd\n", "a\nb\nc\nd\n") == ""
    assert code_blocks.differences("a\nd\n", "a\nb\nd\n") != ""
    assert code_blocks.differences("a\n", "a\nb\n") != ""
    assert code_blocks.differences("90% of 7\n", "92% of 7\n") == ""
    assert code_blocks.differences("90% of 7\n", "97% of 7\n") != ""
    assert code_blocks.differences("90% of 7\n", "90% of 8\n") != ""
