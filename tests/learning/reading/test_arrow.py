"""Parquet files, and what is said of those that cannot be read."""

import datetime
from decimal import Decimal

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pdlrecover import read_data
from pdlrecover.errors import DataError
from pdlrecover.learning.reading import arrow
from pdlrecover.learning.reading.agreed import Agreed
from pdlrecover.learning.reading.arrow import read_parquet
from pdlrecover.learning.reading.source import Source

AGREED = Agreed(shape=(2,), outputs=2, features=("age", "bmi"), classes=("ill", "well"))


def read(tmp_path, columns, agreed=AGREED, **source):
    pq.write_table(pa.table(columns), tmp_path / "ben.parquet")
    said = Source(**{"file": "ben.parquet", "label": "state", **source})
    return read_parquet(tmp_path / "ben.parquet", said, agreed)


def test_a_table_is_read_in_pieces_as_pandas_has_it(tmp_path, monkeypatch):
    monkeypatch.setattr(arrow, "PIECE", 64)
    rng = np.random.default_rng(1)
    frame = pandas.DataFrame(
        {
            "f": rng.normal(size=500),
            "i": rng.integers(-9, 9, 500),
            "b": rng.integers(0, 2, 500).astype(bool),
            "state": pandas.Categorical(rng.choice(["well", "ill"], 500)),
        }
    )
    frame.to_parquet(tmp_path / "ben.parquet")
    x, y = read_data(tmp_path / "ben.parquet", label="state")
    assert x.columns == ("f", "i", "b")
    np.testing.assert_array_equal(x.values, frame[["f", "i", "b"]].to_numpy(np.float32))
    assert y == list(frame["state"])


def test_columns_stand_in_the_agreed_order(tmp_path):
    columns = {"state": ["ill"], "bmi": [31.0], "id": ["x"], "age": [Decimal("61.5")]}
    found = read(tmp_path, columns, drop=("id",))
    assert found.samples.columns == ("age", "bmi")
    assert found.samples.values.tolist() == [[61.5, 31.0]]


def test_a_columns_name_may_have_a_point(tmp_path):
    columns = {"a": [1.0], "a.b": [2.0], "state": [0]}
    found = read(tmp_path, columns, Agreed())
    assert found.samples.values.tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize("labels", [[0, 1], [True, False], ["a", "b"]])
def test_labels_keep_their_kind(tmp_path, labels):
    assert list(read(tmp_path, {"age": [1, 2], "state": labels}, Agreed()).labels) == labels


DAY = datetime.date(2026, 1, 1)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"bmi": [1.0, None]}, "row 2: the column 'bmi' is missing; fill it in, or leave the row"),
        ({"bmi": [1, None]}, "row 2: the column 'bmi' is missing"),
        ({"bmi": [True, None]}, "row 2: the column 'bmi' is missing"),
        ({"bmi": [1.0, np.inf]}, "row 2: the column 'bmi' is not finite"),
        ({"bmi": ["low", "high"]}, r"column 'bmi' of .* has the type (large_)?string, and samples"),
        ({"bmi": [DAY, DAY]}, "column 'bmi' of .* has the type date32"),
        ({"bmi": [[1.0], [2.0]]}, "column 'bmi' of .* has the type list"),
        ({"state": ["ill", None]}, "row 2 has no class: its column 'state' is empty"),
        ({"state": [0.5, 1.0]}, "column 'state' of .* has the type double, and labels are"),
        ({"id": [1, 2]}, r'has the column \'id\', .*drop = \["id"\]'),
    ],
)
def test_what_cannot_be_read_is_one_sentence_with_its_place(tmp_path, columns, said):
    with pytest.raises(DataError, match=said) as caught:
        read(tmp_path, {"age": [1.0, 2.0], "bmi": [3.0, 4.0], "state": ["ill", "well"], **columns})
    assert "ben.parquet" in str(caught.value)


def test_a_label_that_is_blank_is_missing(tmp_path):
    for blank in ("", "  ", None):
        pq.write_table(pa.table({"a": [1, 2], "y": ["ill", blank]}), tmp_path / "own.parquet")
        with pytest.raises(DataError, match="row 2 has no class"):
            read_parquet(tmp_path / "own.parquet", Source(file="own.parquet", label="y"), Agreed())


def test_columns_of_one_name_are_refused(tmp_path):
    table = pa.table([pa.array([1.0]), pa.array([2.0]), pa.array([0])], ["age", "age", "state"])
    pq.write_table(table, tmp_path / "ben.parquet")
    with pytest.raises(DataError, match="several columns called 'age'"):
        read_data(tmp_path / "ben.parquet", label="state")


def test_an_empty_table_and_what_is_no_table_are_refused(tmp_path):
    with pytest.raises(DataError, match="has columns and no row"):
        read(tmp_path, {"age": pa.array([], "f8"), "state": pa.array([], "i8")}, Agreed())
    whole = (tmp_path / "ben.parquet").read_bytes()
    for content in (b"", b"age,state\n1,0\n", whole[:-20]):
        (tmp_path / "ben.parquet").write_bytes(content)
        with pytest.raises(DataError, match=r"ben\.parquet is no Parquet file, or damaged: \S"):
            read_data(tmp_path / "ben.parquet", label="state")


def test_a_separator_says_nothing_about_parquet(tmp_path):
    with pytest.raises(DataError, match="separator is about CSV"):
        read(tmp_path, {"age": [1.0], "state": [0]}, separator=";")
