"""A peer's own data: what `peer.toml` says, what the federation agreed on, and whether they fit."""

import sys
from dataclasses import replace

import numpy as np
import pandas
import pytest
import whole_peers
from hospitals import HEART

from pdlrecover.engines.peers.federation.plan import DataPlan, Model
from pdlrecover.engines.peers.own_data import load_own
from pdlrecover.engines.peers.settings import Code, Data, PeerSettings, load_settings
from pdlrecover.errors import DataError, PlanError

KINDS = ("north", "south", "west")
NAMED = replace(
    HEART,
    model=Model(name="logistic", shape=(3,), classes=3),
    data=DataPlan(classes=KINDS, features=("a", "b", "c")),
)
UNNAMED = replace(NAMED, data=DataPlan())
X, Y = whole_peers.datasets()[0]


def load(folder, membership=NAMED, code=Code(), **data):  # noqa: B008 (frozen)
    return load_own(PeerSettings(data=Data(**data), code=code), membership, 0, folder)


@pytest.fixture
def folder(tmp_path):
    """Write the same data as a table with names of classes, and as arrays with their numbers."""
    frame = pandas.DataFrame(X[:, ::-1].astype(float), columns=["c", "b", "a"])
    frame["kind"] = [KINDS[label] for label in Y]
    frame.to_csv(tmp_path / "own.csv", index=False)
    np.savez(tmp_path / "own.npz", x=X, y=Y)
    return tmp_path


def test_a_table_and_arrays_with_the_same_samples_are_the_same_data(folder):
    table = load(folder, file="own.csv", label="kind")
    for data in ({"file": "own.npz"}, {"source": "own.npz"}):
        arrays = load(folder, **data)
        np.testing.assert_array_equal(table.train_x, arrays.train_x)
        np.testing.assert_array_equal(table.train_y, arrays.train_y)
    np.testing.assert_array_equal(table.train_x, X)


def test_arrays_may_have_labels_that_are_names(folder):
    np.savez(folder / "own.npz", x=X, y=np.array(KINDS)[Y])
    np.testing.assert_array_equal(load(folder, source="own.npz").train_y, Y)


def test_a_peer_that_holds_some_of_the_classes_numbers_them_as_the_others(folder):
    frame = pandas.read_csv(folder / "own.csv")
    frame[frame["kind"] != "north"].to_csv(folder / "own.csv", index=False)
    found = load(folder, file="own.csv", label="kind").train_y
    np.testing.assert_array_equal(found, Y[Y != 0])


@pytest.mark.parametrize(
    ("membership", "data", "said"),
    [
        (
            UNNAMED,
            {"file": "own.csv", "label": "kind"},
            "the order of the columns .* is not agreed",
        ),
        (
            UNNAMED,
            {"file": "own.csv", "label": "kind", "columns": ("a", "b", "c")},
            r"line 2 has the label '\w+', and the federation names no classes",
        ),
        (NAMED, {"source": "own.csv"}, 'names own.csv, a table; .* write file = "own.csv"'),
        (NAMED, {"source": "gone.npz"}, r"gone\.npz is not there; set data\.source"),
        (NAMED, {"source": "digits"}, r"\(digits\) have samples of shape \[1, 8, 8\] in 10"),
        (NAMED, {"file": "own.npz", "label": "kind"}, "label is about tables, and own.npz has"),
        (
            replace(
                NAMED, data=DataPlan(classes=("north", "south", "x"), features=("a", "b", "c"))
            ),
            {"file": "own.csv", "label": "kind"},
            r"own\.csv, line \d+ has the label 'west', and the federation's classes are 'north'",
        ),
        (
            replace(UNNAMED, model=replace(NAMED.model, shape=(2,))),
            {"source": "own.npz"},
            r"\(own\.npz\) have samples of shape \[3\] .* the federation's model takes \[2\]",
        ),
        (
            replace(NAMED, training=replace(NAMED.training, samples=5)),
            {"file": "own.csv", "label": "kind"},
            "has 12 samples and the federation agreed on at most 5",
        ),
    ],
)
def test_data_that_do_not_fit_are_refused(folder, membership, data, said):
    with pytest.raises(DataError, match=said):
        load(folder, membership, **data)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module with a function that returns data, which leaves a file when it is imported."""
    (tmp_path / "own_code.py").write_text(
        "from pathlib import Path\n"
        "import whole_peers\n"
        "Path(__file__).with_name('imported').touch()\n"
        "def data():\n"
        "    return whole_peers.datasets()[0]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "imported"
    sys.modules.pop("own_code", None)


@pytest.mark.parametrize("allowed", [(), ("own_code:other",), ("own_code",)])
def test_a_function_is_not_imported_unless_it_is_allowed_by_name(module, tmp_path, allowed):
    with pytest.raises(
        PlanError, match=r'data\.function names code.*allowed = \["own_code:data"\]'
    ):
        load(tmp_path, code=Code(allowed=allowed), function="own_code:data")
    assert not module.exists()


def test_a_module_without_a_function_is_not_imported(module, tmp_path):
    with pytest.raises(DataError, match=r"function must be package\.module:function"):
        load(tmp_path, function="own_code")
    assert not module.exists()


def test_a_function_that_is_allowed_gives_the_data(module, tmp_path):
    found = load(tmp_path, code=Code(allowed=("own_code:data",)), function="own_code:data")
    np.testing.assert_array_equal(found.train_x, X)
    np.testing.assert_array_equal(found.train_y, Y)
    assert module.exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('file = "a.csv"\nfolder = "b"', "data: file and folder are both there"),
        ('file = "a.csv"\nsource = "b"', "data: source and file are both there"),
        ('file = "a.csv"\npart = 1', "data: part says nothing about file; leave it out, or name"),
        ('source = "a"\nlabel = "x"', "data: label says nothing about source"),
        ('file = "a.csv"\ncolums = ["x"]', "unknown key 'colums' in data; did you mean 'columns'"),
        ('file = "a.csv"\ncolumns = "x"', "data.columns must be a list of texts or left out"),
        ("resize = true", "data: resize says nothing about what is read"),
    ],
)
def test_settings_of_data_that_make_no_sense_are_refused(tmp_path, text, said):
    path = tmp_path / "peer.toml"
    path.write_text(f"[data]\n{text}\n")
    with pytest.raises(PlanError) as caught:
        load_settings(tmp_path)
    assert str(caught.value).startswith(f"{path}: {said}")
