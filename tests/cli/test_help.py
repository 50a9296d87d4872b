"""Help texts: an example for each command, no torch, and what a newcomer looks for first."""

import subprocess
import sys

import pytest
from test_cli import run

from pdlrecover.cli import COMMANDS, HISTORY_COMMANDS, PEER_COMMANDS
from pdlrecover.cli.simulate import FIRST, FIRST_FIELDS

GROUPS = {"": COMMANDS, "peer": PEER_COMMANDS, "history": HISTORY_COMMANDS}
EVERY = [f"{group} {name}".split() for group, names in GROUPS.items() for name in names]
WITHOUT_COMPUTING = [
    ["--help"],
    ["--version"],
    ["peer", "--help"],
    ["history", "--help"],
    ["plan", "--peers", "20", "--colluders", "3"],
    ["plan", "--peers", "20", "--colluders", "30"],
    ["simulate", "--rounds", "0"],
    ["simulate", "--methods", "magic"],
    ["download", "cats"],
    ["peer", "status", "nowhere"],
    ["peer", "doctor", "nowhere"],
    ["peer", "approve", "nowhere", "3f9a1c0d"],
    ["peer", "recover", "nowhere"],
    ["peer", "propose-removal", "nowhere", "--peers", "a", "--reason", "left"],
    ["peer", "init", "FOLDER", "--name", "ash", "--address", "ash:7400", "--drill", "backdoor"],
    ["report", "nowhere"],
    *([*command, "--help"] for command in EVERY),
]


def test_what_computes_nothing_does_not_import_torch(tmp_path):
    """All in one other process, since the first that imports it would be hidden by none."""
    script = f"""
import io, sys
from contextlib import redirect_stderr, redirect_stdout
from pdlrecover.cli import main
for arguments in {WITHOUT_COMPUTING!r}:
    sys.argv = ["pdlrecover", *arguments]
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            main()
    except SystemExit:
        pass
    if "torch" in sys.modules:
        sys.exit(f"torch is imported by {{arguments}}")
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "FOLDER" / "invitation.txt").exists()


@pytest.mark.parametrize("command", EVERY, ids=" ".join)
def test_every_command_shows_an_example_and_every_option_says_something(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    shown = run(*command, "--help").stdout
    assert f"Example: pdlrecover {' '.join(command)} " in " ".join(shown.split())
    assert "<bool>" not in shown, "a flag takes no value"
    *group, name = command
    parameters = GROUPS[" ".join(group)][name].load(name).params
    assert parameters
    assert all(parameter.help for parameter in parameters)


def test_the_settings_to_begin_with_come_first(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    shown = run("simulate", "--help").stdout
    panel = shown[shown.index(f"─ {FIRST}") :].split("╰")[0]
    flags = [line.split()[1] for line in panel.splitlines() if line.startswith("│ --")]
    assert flags == [f"--{name.replace('_', '-')}" for name in FIRST_FIELDS]
    assert len(flags) == 10
