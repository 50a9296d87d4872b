"""Bars are for people: in a terminal, and nowhere else."""

import os
import pty
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import small
from rich.console import Console
from rich.progress import Progress

CODE = """
import small
federation = small.federation(batch_size=4)
federation.train(5, 0.3)
federation.recover([0, 1], rounds=3)
"""


def recover(**arguments):
    """Train for 5 rounds, and recover in 3."""
    federation = small.federation(batch_size=4)
    federation.train(5, 0.3, **arguments)
    return federation.recover([0, 1], rounds=3, **arguments)


@contextmanager
def terminal(monkeypatch):
    """Make standard error a real terminal; yield what returns all that it shows."""
    screen, end = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(end, "w") as stderr, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stderr)

        def read():
            stderr.flush()
            os.set_blocking(screen, False)
            seen = b""
            while True:
                try:
                    seen += os.read(screen, 1 << 16)
                except OSError:
                    return seen.decode()

        yield read
    os.close(screen)


def test_a_terminal_shows_a_bar_for_each_part_and_standard_output_nothing(monkeypatch, capfd):
    with terminal(monkeypatch) as read:
        recover()
        seen = read()
    for each in ("training", "5/5", "recovery by auto", "3/3"):
        assert each in seen
    assert capfd.readouterr() == ("", "")


def test_no_bar_is_shown_where_none_is_wanted(monkeypatch):
    with terminal(monkeypatch) as read:
        recover(progress=False)
        assert read() == ""


def test_an_observer_is_told_beside_the_bar(monkeypatch):
    seen = []
    with terminal(monkeypatch) as read:
        recover(observer=lambda step: seen.append(step.round))
        assert "5/5" in read()
    assert seen == [0, 1, 2, 3, 4, 0, 1, 2]


def test_redirected_output_is_left_alone_whatever_the_environment_says(capfd, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    recover()
    assert capfd.readouterr() == ("", "")


def test_where_the_caller_shows_a_bar_nothing_breaks(monkeypatch):
    with terminal(monkeypatch), Progress(console=Console(stderr=True)) as bars:
        bars.add_task("mine", total=1)
        assert recover().ledger.exact_rounds == 3


@pytest.mark.slow
def test_a_notebook_shows_a_bar_below_its_cell():
    nbformat = pytest.importorskip("nbformat", reason="notebooks are tried where there are any")
    nbclient = pytest.importorskip("nbclient", reason="notebooks are tried where there are any")
    pytest.importorskip("ipykernel", reason="notebooks are tried where there are any")
    tests = str(Path(__file__).parents[1])
    cell = nbformat.v4.new_code_cell(
        f"import sys; sys.path.insert(0, {tests!r})" + CODE + "federation"
    )
    notebook = nbformat.v4.new_notebook(cells=[cell])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    shown = [each.data["text/html"] for each in cell.outputs if "data" in each]
    assert shown[0].endswith("training: 5 of 5 rounds")
    assert shown[1].endswith("recovery by auto: 3 of 3 rounds")
    assert shown[2].startswith("<table><caption>Federation")
