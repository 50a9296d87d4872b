"""The bundled digits are those that scikit-learn has."""

import gzip

import numpy as np
import pytest

from pdlrecover.errors import DataError
from pdlrecover.learning import files


def test_the_digits_are_scikit_learns():
    from sklearn.datasets import load_digits

    truth, table = load_digits(), files.read_digits()
    np.testing.assert_array_equal(table[:, :-1], truth.data)
    np.testing.assert_array_equal(table[:, -1], truth.target)


def test_digits_that_are_missing_or_damaged_are_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "DIGITS", tmp_path / "digits.csv.gz")
    with pytest.raises(DataError, match=r"cannot be read .*install pdlrecover again"):
        files.read_digits()
    (tmp_path / "digits.csv.gz").write_bytes(gzip.compress(b"1,2,3\n"))
    with pytest.raises(DataError, match="is damaged; install pdlrecover again"):
        files.read_digits()
