"""The bundled digits are those that scikit-learn itself reads."""

import gzip
import subprocess
import sys
from importlib.machinery import ModuleSpec

import numpy as np
import pytest

from pdlrecover.errors import DataError
from pdlrecover.learning import files


def test_the_digits_are_scikit_learns():
    from sklearn.datasets import load_digits

    truth, table = load_digits(), files.read_digits()
    np.testing.assert_array_equal(table[:, :-1], truth.data)
    np.testing.assert_array_equal(table[:, -1], truth.target)


def test_the_digits_are_read_without_importing_scikit_learn():
    text = (
        "import sys; from pdlrecover.learning import load; load('digits')\n"
        "sys.exit('sklearn' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", text]).returncode == 0


def test_digits_that_are_missing_or_damaged_are_one_sentence(tmp_path, monkeypatch):
    package = ModuleSpec("sklearn", None, is_package=True)
    package.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(files, "find_spec", lambda name: package)
    with pytest.raises(DataError, match=r"cannot be read .*install scikit-learn again"):
        files.read_digits()
    folder = tmp_path / "datasets" / "data"
    folder.mkdir(parents=True)
    (folder / "digits.csv.gz").write_bytes(gzip.compress(b"1,2,3\n"))
    with pytest.raises(DataError, match="is damaged; install scikit-learn again"):
        files.read_digits()
    monkeypatch.setattr(files, "find_spec", lambda name: None)
    with pytest.raises(DataError, match="which is not here; pip install it"):
        files.read_digits()
