"""What the package does where an extra is not installed, and that nothing else needs one."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pdlrecover.errors import ExtraError
from pdlrecover.extras import PACKAGES, extra, has

ROOT = Path(__file__).parents[1]
WITHOUT = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted({p for some in PACKAGES.values() for p in some})}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
import pdlrecover.extras
pdlrecover.extras.find_spec = lambda name: None
from pdlrecover.cli import main
main()
"""


def core_only(*arguments):
    """Run a command in a process that finds no package of any extra."""
    command = [sys.executable, "-c", WITHOUT, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_missing_package_is_one_sentence_with_its_extra():
    said = r"^drawing needs the package vl_convert.*pip install 'pdlrecover\[reports\]'$"
    with pytest.raises(ExtraError, match=said), extra("reports", "drawing"):
        raise ModuleNotFoundError("No module named 'vl_convert'", name="vl_convert")


def test_what_fails_within_a_package_stays_as_it_is():
    with pytest.raises(ModuleNotFoundError, match="numpy_of_old"), extra("reports", "drawing"):
        raise ModuleNotFoundError("No module named 'numpy_of_old'", name="numpy_of_old")


def test_every_extra_that_code_names_is_an_extra_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert PACKAGES.keys() <= project["optional-dependencies"].keys()
    assert has("peers")


def test_the_core_simulates_and_says_how_to_get_a_report(tmp_path):
    found = core_only(
        *("simulate", "--dataset", "digits", "--peers", 10, "--malicious", 2, "--rounds", 12),
        *("--methods", "accelerated-retrain:rounds=3", "--out", tmp_path / "a run"),
    )
    assert found.returncode == 0, found.stderr
    assert (tmp_path / "a run" / "result.json").exists()
    assert "pip install 'pdlrecover[reports]', then pdlrecover report" in found.stdout
    assert not (tmp_path / "a run" / "report.html").exists()
    report = core_only("report", tmp_path / "a run")
    assert report.returncode == 2
    assert "drawing charts needs the package vl_convert" in report.stderr


def test_the_core_plans():
    found = core_only("plan", "--peers", 20, "--colluders", 6, "--dropouts", 6)
    assert found.returncode == 0, found.stderr


def test_the_core_reads_csv_and_says_what_parquet_needs(tmp_path):
    (tmp_path / "own.csv").write_text("age,state\n1,ill\n2,well\n")
    (tmp_path / "own.parquet").touch()
    found = []
    for name in ("own.csv", "own.parquet"):
        (tmp_path / "peer.toml").write_text(f'[data]\nfile = "{name}"\nlabel = "state"\n')
        found.append(core_only("peer", "check-data", tmp_path))
    assert found[0].returncode == 0, found[0].stderr
    assert found[1].returncode == 2
    assert "reading Parquet needs the package pyarrow" in found[1].stderr
    assert "pip install 'pdlrecover[data]'" in found[1].stderr


def test_a_peer_without_grpc_says_what_is_missing(tmp_path):
    assert core_only("peer", "run", "--help").returncode == 0
    (tmp_path / "ada").mkdir()
    found = core_only("peer", "run", tmp_path / "federation.toml", tmp_path / "ada")
    assert found.returncode == 2
    assert "pip install 'pdlrecover[peers]'" in found.stderr
