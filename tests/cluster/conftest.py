"""Another version of this package, and the command line, for the cluster of `ray_nodes`."""

import shutil
import sys

import pytest
from ray_nodes import SOURCE


@pytest.fixture
def other_source(tmp_path):
    """Return a folder with this package, one line of which computes something else."""
    copied = shutil.copytree(SOURCE / "pdlrecover", tmp_path / "src" / "pdlrecover")
    with (copied / "layers.py").open("a") as file:
        file.write("\nLEVELS = 3\n")
    return copied.parent


@pytest.fixture
def command():
    """Return how the command line is run as a process of its own."""
    return [sys.executable, "-m", "pdlrecover"]
