"""What is built can be installed elsewhere, and does there what the README says."""

import importlib.util
import os
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = {"grpcio", "vl-convert-python", "ray", "flwr", "tensorboard", "mlflow-skinny"}
"""Packages that the core does without; and those that it once brought along:"""
GONE = {"scikit-learn", "scipy", "joblib"}


def run(*command, cwd=None):
    """Run a command outside of the repository, with nothing of this process's environment."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PDLRECOVER"))}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=kept, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the sdist of what git tracks, and the wheel of the sdist."""
    place = tmp_path_factory.mktemp("built")
    source = place / "source"
    for name in tracked():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", place, source, cwd=place)
    return next(place.glob("*.tar.gz")), next(place.glob("*.whl"))


def tracked():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if found.returncode:
        pytest.skip("this is no git repository")
    return [name for name in found.stdout.splitlines() if (ROOT / name).is_file()]


def test_the_sdist_is_the_repository(built):
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert set(tracked()) - names == set()


def test_the_wheel_has_the_package_and_its_data_only(built):
    with zipfile.ZipFile(built[1]) as wheel:
        names = wheel.namelist()
    ours = {name.removeprefix("src/") for name in tracked() if name.startswith("src/pdlrecover/")}
    assert {name for name in names if ".dist-info/" not in name} == ours


def test_an_index_gets_metadata_whose_links_lead_somewhere(built):
    with zipfile.ZipFile(built[1]) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith("/METADATA"))
        found = message_from_bytes(wheel.read(name))
    text = found.get_payload()
    assert found["Description-Content-Type"] == "text/markdown"
    assert "## Ten lines" in text
    assert "](docs/" not in text
    assert "![" not in text
    assert set(found.get_all("Provides-Extra")) == PROJECT["optional-dependencies"].keys()
    assert "Typing :: Typed" in found.get_all("Classifier")


def test_every_extra_has_its_row_in_the_docs():
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    assert [name for name in PROJECT["optional-dependencies"] if f"`{name}`" not in page] == []


def test_with_a_repository_the_links_of_the_description_lead_there():
    spec = importlib.util.spec_from_file_location("setup", ROOT / "setup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    description = module.description
    found = description("[a](docs/a.md#b), [c](#d), [e](https://e.org)", "https://f.org/g", "1.2")
    assert found == "[a](https://f.org/g/blob/v1.2/docs/a.md#b), [c](#d), [e](https://e.org)"
    assert description("[a](docs/a.md), [c](#d)", None, "1.2") == "a, [c](#d)"


@pytest.mark.slow
def test_installed_elsewhere_the_core_is_small_and_the_demo_runs(built, tmp_path):
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    install = (python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt")
    run(*install, built[1], cwd=tmp_path)
    listed = run(python, "-m", "pip", "list", "--format", "freeze").lower().replace("_", "-")
    packages = {line.partition("==")[0] for line in listed.splitlines()}
    assert "pdlrecover" in packages
    assert packages & (EXTRAS | GONE) == set()
    run(*install, f"{built[1]}[reports]", cwd=tmp_path)
    said = run(tmp_path / "env" / "bin" / "pdlrecover", "demo", "--out", "out", cwd=tmp_path)
    assert "no single peer's update was ever opened" in " ".join(said.split())
    assert (tmp_path / "out" / "report.html").stat().st_size > 1_000_000  # with what draws charts
