"""CSV files as people have them, and what is said of those that cannot be read."""

import csv
import logging

import numpy as np
import pandas
import pytest

from pdlrecover import read_data
from pdlrecover.errors import DataError
from pdlrecover.learning.reading import csv_file
from pdlrecover.learning.reading.agreed import Agreed
from pdlrecover.learning.reading.csv_file import read_csv
from pdlrecover.learning.reading.source import Source

AGREED = Agreed(shape=(2,), outputs=2, features=("age", "bmi"), classes=("ill", "well"))
GOOD = "age,bmi,state\n40,22.5,well\n61,31,ill\n"


def written(tmp_path, text, name="ada.csv", encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return path


def read(tmp_path, text, agreed=Agreed(), **source):  # noqa: B008 (frozen)
    path = written(tmp_path, text)
    return read_csv(path, Source(**{"file": "ada.csv", "label": "state", **source}), agreed)


def test_a_table_is_read_as_pandas_reads_it(tmp_path):
    rng = np.random.default_rng(1)
    frame = pandas.DataFrame(rng.normal(size=(9000, 3)), columns=["a", "b", "c d"])
    frame["state"] = rng.choice(["well", "ill", 'so, "so"', "two\nlines"], 9000)
    frame.to_csv(tmp_path / "ada.csv", index=False)
    x, y = read_data(tmp_path / "ada.csv", label="state")
    assert x.columns == ("a", "b", "c d")
    np.testing.assert_array_equal(x.values, frame[["a", "b", "c d"]].to_numpy(np.float32))
    assert y == list(frame["state"])


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + GOOD,
        GOOD.replace("\n", "\r\n"),
        "\n".join(GOOD.splitlines()),
        GOOD.replace("\n", "\n\n"),
        GOOD.replace(",", " , "),
        'age,bmi,state\n"40","22.5","well"\n+61.0,3.1e1,ill\n',
    ],
    ids=["BOM", "CRLF", "no last line end", "empty lines", "blanks", "quotes and exponents"],
)
def test_files_of_other_programs_are_read_alike(tmp_path, text):
    found = read(tmp_path, text, AGREED)
    np.testing.assert_array_equal(found.samples.values, np.float32([[40, 22.5], [61, 31]]))
    assert found.labels == ["well", "ill"]


def test_columns_stand_in_the_agreed_order_whatever_the_files_own_is(tmp_path):
    found = read(tmp_path, "state,bmi,id,age\nwell,22.5,7,40\n", AGREED, drop=("id",))
    assert found.samples.columns == ("age", "bmi")
    assert found.samples.values.tolist() == [[40, 22.5]]


def test_names_are_compared_in_composed_form(tmp_path):
    agreed = Agreed(shape=(1,), outputs=2, features=("Größe",), classes=("müde", "wach"))
    found = read(tmp_path, "Gro\u0308ße,state\n1,mu\u0308de\n", agreed)
    assert found.samples.columns == ("Größe",)
    assert found.labels == ["müde"]


@pytest.mark.parametrize(
    ("cells", "labels"),
    [
        (["0", "1"], [0, 1]),
        (["1.0", "2"], [1, 2]),
        (["-1", "1"], [-1, 1]),
        (["007", "1"], ["007", "1"]),
        (["1.5", "1"], ["1.5", "1"]),
        (["True", "False"], ["True", "False"]),
    ],
)
def test_labels_are_whole_numbers_if_all_are_written_so(tmp_path, cells, labels):
    found = read(tmp_path, "age,state\n" + "".join(f"1,{cell}\n" for cell in cells))
    assert list(found.labels) == labels


def test_another_separator_can_be_said_and_that_of_tsv_is_known(tmp_path):
    found = read(tmp_path, GOOD.replace(",", ";"), separator=";")
    assert found.samples.columns == ("age", "bmi")
    path = written(tmp_path, GOOD.replace(",", "\t"), "ada.tsv")
    assert read_data(path, label="state")[0].columns == ("age", "bmi")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"ada\.csv is empty; its first line must name the columns"),
        ("age,bmi,state\n", "names and no row; it needs samples"),
        ("age,age,state\n1,2,ill\n", "several columns called 'age'; rename all but one"),
        ("age,bmi,stat\n1,2,ill\n", "no column 'state', which label names; did you mean 'stat'"),
        ("age;bmi;state\n1;2;ill\n", 'single column.*write separator = ";"'),
        ("age,state\n1,ill\n", "lacks the column 'bmi', which the federation takes.*add or rename"),
        (
            "id,age,bmi,state\n1,2,3,ill\n",
            r'has the column \'id\', which the federation does not take.*drop = \["id"\]',
        ),
        (GOOD + "50,,ill\n", "line 4: the column 'bmi' is empty; fill it in, or leave the row"),
        (GOOD + "NA,1,ill\n", r"line 4: the column 'age' is missing \('NA'\)"),
        (GOOD + "nan,1,ill\n", "line 4: the column 'age' is missing"),
        (GOOD + "inf,1,ill\n", "line 4: the column 'age' is not finite"),
        (GOOD + "1e60,1,ill\n", "line 4: the column 'age' is not finite in float32"),
        (GOOD + "old,1,ill\n", "line 4: the column 'age' has 'old', which is no number"),
        (GOOD + "1_000,1,ill\n", "line 4: the column 'age' has '1_000', which is no number"),
        (GOOD + '"40,5",1,ill\n', "line 4: the column 'age' has '40,5'.*a decimal point"),
        (GOOD + "1,2\n", "line 4 has 2 cells, and the first line names 3 columns"),
        (GOOD + "1,2,\n", "line 4 has no class: its column 'state' is empty"),
        (GOOD + '1,"2"x,ill\n', r"ada\.csv is no CSV file"),
    ],
)
def test_what_cannot_be_read_is_one_sentence_with_its_place(tmp_path, text, said):
    with pytest.raises(DataError, match=said) as caught:
        read(tmp_path, text, AGREED)
    assert "ada.csv" in str(caught.value)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"label": None}, r'which column of ada\.csv has the classes; write label = "…"'),
        ({"drop": ("sex",)}, "no column 'sex', which drop names"),
        ({"columns": ("age", "sex")}, "no column 'sex', which columns names"),
        ({"columns": ("age", "state")}, "must name each column once, without the label"),
        ({"columns": ("age", "age")}, "must name each column once"),
        ({"drop": ("age", "bmi")}, "no column left for the samples"),
    ],
)
def test_keys_that_do_not_fit_the_file_are_refused(tmp_path, source, said):
    with pytest.raises(DataError, match=said):
        read(tmp_path, GOOD, **source)


def test_a_federation_that_names_no_features_needs_the_order_stated(tmp_path):
    agreed = Agreed(shape=(2,), outputs=2)
    with pytest.raises(DataError, match=r"the order of the columns of ada\.csv is not agreed on"):
        read(tmp_path, GOOD, agreed)
    assert read(tmp_path, GOOD, agreed, columns=("bmi", "age")).samples.columns == ("bmi", "age")


def test_lines_are_those_of_the_file_also_after_cells_with_several_lines(tmp_path):
    text = 'age,bmi,state\n1,2,"a\nb"\n\n3,4,x\n'
    found = read(tmp_path, text)
    assert [found.where(0), found.where(1)] == ["line 3", "line 5"]


def test_a_file_in_another_encoding_is_said(tmp_path):
    path = written(tmp_path, "größe,state\n1,a\n", encoding="latin-1")
    with pytest.raises(DataError, match=r"no text in UTF-8 \(byte 0xf6\); save it as CSV in UTF-8"):
        read_data(path, label="state")


def test_a_cell_that_is_too_large_is_said(tmp_path):
    with pytest.raises(DataError, match="is no CSV file: field larger than"):
        read(tmp_path, f"age,state\n1,{'x' * (csv.field_size_limit() + 1)}\n")


def test_reading_says_how_far_it_is_and_how_long_it_took(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(csv_file, "PIECE", 2)
    monkeypatch.setattr("pdlrecover.learning.reading.reading.OFTEN", 0.0)
    with caplog.at_level(logging.INFO, "pdlrecover.data"):
        read(tmp_path, "age,state\n" + 5 * "1,a\n")
    said = [record.getMessage() for record in caplog.records]
    assert said[:3] == [f"read {count} rows of ada.csv so far" for count in (2, 4, 5)]
    assert said[3].startswith("read 5 rows of ada.csv in 0.")
