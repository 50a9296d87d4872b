"""What the page on attacks says holds."""

import importlib
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pdlrecover import cli
from pdlrecover.adversary import ATTACKS, build
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.learning import Dataset

PAGE = (Path(__file__).parents[2] / "docs" / "attacks.md").read_text()
SECTIONS = dict(re.findall(r"^## [^\n]*`([^`]+)`\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))


def test_every_attack_has_a_section():
    assert set(SECTIONS) == set(ATTACKS)


@pytest.mark.parametrize("name", [name for name in ATTACKS if name != "none"])
def test_every_section_has_commands_that_are_understood(name, digits: Dataset, monkeypatch):
    seen: list[Config] = []
    module = importlib.import_module("pdlrecover.cli.simulate")
    monkeypatch.setattr(module, "run_and_show", lambda config, *_: seen.append(config))
    commands = re.findall(r"^pdlrecover (simulate .*)$", SECTIONS[name].replace("\\\n", ""), re.M)
    assert commands
    for command in commands:
        result = CliRunner().invoke(cli.app, shlex.split(command))
        assert result.exit_code == 0, result.output
        assert seen[-1].attack.partition(":")[0] == name
        build(seen[-1].attack, digits, **seen[-1].attack_strength)
