"""What may be said of a source, and what `read_data` and the library make of what is there."""

import random
import sys

import numpy as np
import pandas
import pytest
import small
import torch

from pdlrecover import Federation, read_data
from pdlrecover.errors import DataError, ExtraError
from pdlrecover.learning.reading.agreed import Agreed
from pdlrecover.learning.reading.class_numbers import class_numbers
from pdlrecover.learning.reading.function import read_function
from pdlrecover.learning.reading.read import read
from pdlrecover.learning.reading.reading import Reading
from pdlrecover.learning.reading.source import Source
from pdlrecover.learning.reading.table import Table


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"file": "a.csv", "folder": "b"}, "file and folder are both there; leave all but one out"),
        ({"folder": "a", "label": "y"}, "label says nothing about folder; leave it out"),
        ({"file": "a.csv", "split": "train"}, "split says nothing about file.*name a dataset"),
        ({"function": "a:b", "columns": ("x",)}, "columns says nothing about function"),
        ({"label": "y"}, "label says nothing about what is read.*name a file or dataset"),
        ({"file": "a.csv", "separator": "::"}, "separator must be one character, got '::'"),
        ({"folder": "a", "mode": "CMYK"}, "mode must be one of L, RGB, RGBA, got 'CMYK'"),
        ({"dataset": "a", "image": "x", "inputs": "z"}, "inputs and image say different things"),
        ({"dataset": "a", "image": "x", "drop": ("z",)}, "image and drop say different things"),
        ({"function": "small"}, r"function must be package\.module:function, got 'small'"),
        ({"function": ":data"}, r"function must be package\.module:function, got ':data'"),
        ({"dataset": "a", "mode": "L"}, "mode and resize are about images"),
    ],
)
def test_what_a_source_says_must_make_sense(source, said):
    with pytest.raises(DataError, match=said):
        Source(**source)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gone.csv", r"gone\.csv is not there; name the file"),
        ("folder.csv", r"folder\.csv is a folder; name the file"),
        ("a.xlsx", r"a\.xlsx is none of \.csv, \.tsv, \.parquet, \.npz; convert it"),
    ],
)
def test_a_file_must_be_there_and_of_a_known_kind(tmp_path, name, said):
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match=said):
        read(Source(file=name, label="y"), tmp_path, Agreed())


@pytest.mark.parametrize(
    ("source", "package", "said"),
    [
        ({"folder": "."}, "PIL", "reading images needs the package PIL"),
        ({"dataset": "."}, "datasets", "reading Hugging Face datasets needs the package datasets"),
    ],
)
def test_what_needs_an_extra_says_which(tmp_path, monkeypatch, source, package, said):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ExtraError, match=rf"{said}.*pip install 'pdlrecover\[data\]'"):
        read(Source(**source), tmp_path, Agreed())


def test_arrays_are_read_from_a_file_or_a_folder(tmp_path):
    x, y = small.points()
    np.savez(tmp_path / "own.npz", x=x, y=y)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    for path in (tmp_path / "own.npz", tmp_path):
        found, labels = read_data(path)
        np.testing.assert_array_equal(found, x)
        np.testing.assert_array_equal(labels, y)
        with pytest.raises(DataError, match=r"label .* arrays; leave it out"):
            read_data(path, label="y")
    with pytest.raises(DataError, match="there is no file or folder"):
        read_data(tmp_path / "gone")


def test_arrays_of_objects_are_not_unpickled(tmp_path):
    np.savez(tmp_path / "own.npz", x=np.ones((2, 2)), y=np.array(["a", None], dtype=object))
    with pytest.raises(DataError, match="arrays x and y of numbers"):
        read_data(tmp_path / "own.npz")


def test_damaged_arrays_are_one_sentence(tmp_path):
    """Other programs' archives, and bits that flipped; false alarms: none, the seed is fixed."""
    path, draw = tmp_path / "own.npz", random.Random(7)
    np.savez_compressed(path, x=np.random.default_rng(7).random((20, 3)), y=np.arange(20) % 2)
    whole = path.read_bytes()
    damaged = [b"", b"PK", whole[:-200]]
    for _ in range(200):
        content = bytearray(whole)
        for _ in range(draw.choice((1, 3, 10))):
            content[draw.randrange(len(content))] = draw.randrange(256)
        damaged.append(bytes(content))
    refused = 0
    for content in damaged:
        path.write_bytes(content)
        try:
            read_data(path)
        except DataError:
            refused += 1
    assert refused > 100


def test_an_array_that_claims_to_be_larger_than_memory_is_refused(tmp_path):
    np.save(tmp_path / "y.npy", [0, 1])
    with (tmp_path / "x.npy").open("wb") as file:
        claim = {"descr": "<f4", "fortran_order": False, "shape": (1 << 44, 4)}
        np.lib.format.write_array_header_1_0(file, claim)
    with pytest.raises(DataError, match=r"more numbers than there is memory for .*fewer samples"):
        read_data(tmp_path)


# Functions


def test_a_function_may_return_what_the_library_takes(monkeypatch):
    frame = pandas.DataFrame({"bmi": [1.0, 2.0], "age": [3.0, 4.0]})
    labels = pandas.Series(["ill", "well"])
    for made in ((frame, labels), (Table(("bmi", "age"), frame.to_numpy("f4")), list(labels))):
        monkeypatch.setattr(small, "data", lambda made=made: made, raising=False)
        found = read_function("small:data", Agreed(features=("age", "bmi")))
        assert found.samples.tolist() == [[3, 1], [4, 2]]
        assert found.labels == ["ill", "well"]
    pairs = torch.utils.data.TensorDataset(torch.ones(2, 3), torch.tensor([0, 1]))
    monkeypatch.setattr(small, "data", lambda: pairs)
    assert read_function("small:data", Agreed(features=("a", "b", "c"))).samples.shape == (2, 3)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: 1 / 0, "small:data returned no data, but raised ZeroDivisionError: division"),
        (lambda path: path, "small:data returned no data, but raised TypeError"),
        (lambda: None, "small:data's data must be a pair"),
        (lambda: ([[np.nan]], [0]), "small:data's samples must be finite"),
        (lambda: (pandas.DataFrame({"a": [1.0]}), [0]), "a table with the columns 'a', and the"),
    ],
)
def test_a_function_that_returns_something_else_is_said(monkeypatch, made, said):
    monkeypatch.setattr(small, "data", made, raising=False)
    with pytest.raises(DataError, match=said):
        read_function("small:data", Agreed(features=("age",)))


@pytest.mark.parametrize("name", ["nowhere:data", "small:nothing", "small"])
def test_a_function_that_cannot_be_imported_is_said(name):
    with pytest.raises(DataError, match=f"cannot import '{name}'"):
        read_function(name, Agreed())


# Classes


def numbers(labels, classes, outputs=2, by_number=False):
    where = "line {}".format
    labels = np.array(labels) if isinstance(labels[0], int) and labels[0] is not True else labels
    reading = Reading(
        place="ada.csv", samples=None, labels=labels, where=where, by_number=by_number
    )
    return class_numbers(reading, classes, outputs).tolist()


@pytest.mark.parametrize(
    ("labels", "classes", "by_number", "expected"),
    [
        (["well", "well"], ("ill", "well"), False, [1, 1]),
        ([1, -1], ("-1", "1"), False, [1, 0]),
        ([1, -1], ("-1", "1"), True, [1, 0]),
        ([True, False], ("False", "True"), False, [1, 0]),
        ([1, 0], None, False, [1, 0]),
        ([1, 0], ("ill", "well"), True, [1, 0]),
        (["well", "ill"], ("ill", "well"), True, [1, 0]),
    ],
)
def test_labels_become_numbers_by_the_agreed_names(labels, classes, by_number, expected):
    assert numbers(labels, classes, by_number=by_number) == expected


@pytest.mark.parametrize(
    ("labels", "classes", "by_number", "said"),
    [
        (["well", "dead"], ("ill", "well"), False, "ada.csv, line 1 has the label 'dead', and the"),
        ([0, 1], ("ill", "well"), False, "line 0 has the label '0', and the federation's classes"),
        ([0, 2], ("ill", "well"), True, "line 1 has the label 2, .* from 0 to 1 .*number them so$"),
        ([0, 2], None, False, "line 1 has the label 2, .*or name the classes in the plan"),
        (["a", "b"], None, False, r'line 0 has the label \'a\', .*classes = \["…"\]'),
    ],
)
def test_a_label_that_is_no_class_is_said_with_its_place(labels, classes, by_number, said):
    with pytest.raises(DataError, match=said):
        numbers(labels, classes, by_number=by_number)


# The library


@pytest.fixture
def tables(tmp_path):
    """Write each peer's points as a table, some as CSV and some as Parquet; return the paths."""
    paths = {}
    for peer in range(small.PEERS):
        x, y = small.points(seed=peer, count=20 + peer)
        frame = pandas.DataFrame(x.astype(float), columns=["a", "b", "c"]).assign(kind=y)
        paths[f"peer-{peer}"] = path = tmp_path / f"{peer}.{'parquet' if peer % 2 else 'csv'}"
        if peer % 2:
            frame.to_parquet(path)
        else:
            frame.to_csv(path, index=False)
    return paths


def test_a_simulation_of_files_is_the_simulation_of_their_arrays(tables):
    data = {name: read_data(path, label="kind") for name, path in tables.items()}
    found = Federation.simulate(small.module(), data, small.TOLERANCE, batch_size=8, seed=3)
    found.train(rounds=4, learning_rate=0.3)
    same = small.federation()
    same.train(rounds=4, learning_rate=0.3)
    np.testing.assert_array_equal(found.original.models[4], same.original.models[4])


def test_peers_whose_columns_are_in_another_order_are_refused_by_the_library(tables):
    data = {name: read_data(path, label="kind") for name, path in tables.items()}
    data["peer-3"] = read_data(tables["peer-3"], label="kind", columns=["b", "a", "c"])
    with pytest.raises(DataError, match=r"peer-3.* in another order"):
        Federation.simulate(small.module(), data, small.TOLERANCE)


def test_a_table_is_taken_apart_by_rows():
    table = Table(("a", "b"), np.arange(6, dtype=np.float32).reshape(3, 2))
    assert len(table) == 3
    np.testing.assert_array_equal(table[1:].values, [[2, 3], [4, 5]])
    np.testing.assert_array_equal(np.asarray(table[[0, 2]]), [[0, 1], [4, 5]])
    np.testing.assert_array_equal(table.in_order(("b", "a")).values[0], [1, 0])
    with pytest.raises(DataError, match=r"taken apart by rows, such as table\[:100\], got 'a'"):
        table["a"]
