"""Hugging Face datasets on disk, and what is said of those that cannot be read."""

import json
import pickle
import socket

import datasets
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from pdlrecover import read_data
from pdlrecover.errors import DataError
from pdlrecover.learning.reading.agreed import Agreed
from pdlrecover.learning.reading.hugging_face import read_dataset
from pdlrecover.learning.reading.source import Source

STATES = datasets.ClassLabel(names=["ill", "well"])
TABLE = {"bmi": [31.0, 22.5, 20.0], "age": [61, 40, 33], "state": [0, 1, 1]}
PIXELS = np.random.default_rng(3).integers(0, 256, (3, 6, 5), dtype=np.uint8)
AGREED = Agreed(shape=(2,), outputs=2, features=("age", "bmi"), classes=("ill", "well"))


@pytest.fixture(autouse=True)
def quiet():
    datasets.disable_progress_bars()


def table(**columns):
    made = datasets.Dataset.from_dict({**TABLE, **columns})
    return made.cast_column("state", STATES) if "state" not in columns else made


def pictures(pixels=PIXELS):
    images = [Image.fromarray(each) for each in pixels]
    return datasets.Dataset.from_dict(
        {"picture": images, "state": ["ill", "well", "ill"]},
        features=datasets.Features(
            {"picture": datasets.Image(), "state": datasets.Value("string")}
        ),
    )


def read(folder, made=None, agreed=AGREED, **source):
    if made is not None:
        made.save_to_disk(folder)
    return read_dataset(folder, Source(**{"dataset": ".", "label": "state", **source}), agreed)


def test_columns_stand_in_the_agreed_order_and_labels_have_their_names(tmp_path):
    found = read(tmp_path, table(id=["a", "b", "c"]), drop=("id",))
    assert found.samples.columns == ("age", "bmi")
    assert found.samples.values.tolist() == [[61, 31], [40, 22.5], [33, 20]]
    assert found.labels == ["ill", "well", "well"]


def test_what_was_chosen_before_it_was_saved_is_read_so(tmp_path):
    made = table().select([2, 0])
    assert read(tmp_path, made).samples.values[:, 0].tolist() == [33, 61]


def test_a_split_is_named_unless_there_is_only_one(tmp_path):
    read(tmp_path / "one", datasets.DatasetDict(train=table()))
    two = datasets.DatasetDict(train=table(), test=table().select([1]))
    assert len(read(tmp_path / "two", two, split="test").labels) == 1
    with pytest.raises(DataError, match="has the splits 'train', 'test', got split = None; name"):
        read(tmp_path / "two")
    with pytest.raises(DataError, match="got split = 'tset'"):
        read(tmp_path / "two", split="tset")
    with pytest.raises(DataError, match="has no splits; leave split out"):
        read(tmp_path / "none", table(), split="train")


@pytest.mark.parametrize("typed", [True, False])
def test_a_column_of_arrays_is_the_samples(tmp_path, typed):
    values = np.random.default_rng(2).normal(size=(3, 4, 2)).astype(np.float32)
    made = datasets.Dataset.from_dict({"x": values.tolist(), "state": [0, 1, 0]})
    if typed:
        made = made.cast_column("x", datasets.Array2D((4, 2), "float32"))
    found = read(tmp_path, made, Agreed(shape=(4, 2), outputs=2), inputs="x")
    np.testing.assert_array_equal(found.samples, values)
    assert list(found.labels) == [0, 1, 0]


def test_a_column_of_images_is_the_samples(tmp_path):
    pictures().save_to_disk(tmp_path)
    x, y = read_data(tmp_path, label="state", image="picture")
    np.testing.assert_array_equal(x[:, 0], np.divide(PIXELS, 255, dtype=np.float32))
    assert y == ["ill", "well", "ill"]


@pytest.mark.parametrize(
    ("columns", "source", "said"),
    [
        ({"bmi": [1.0, None, 2.0]}, {}, "row 2: the column 'bmi' is missing"),
        ({"bmi": ["a", "b", "c"]}, {}, "the column 'bmi' of .* has the type string, and samples"),
        ({"state": ["ill", None, "well"]}, {}, "row 2 has no class: its column 'state' is empty"),
        ({}, {"label": "stat"}, "no column 'stat', which label names; did you mean 'state'"),
        ({"x": [[1.0], [1.0, 2.0], [3.0]]}, {"inputs": "x"}, "'x' must be numbers, all of one"),
        ({"x": [["a"], ["b"], ["c"]]}, {"inputs": "x"}, "'x' must be numbers"),
        ({}, {"inputs": "age"}, r'has single numbers; name them by columns = \["age"\]'),
        ({}, {"image": "age"}, "the column 'age' of .* has no images"),
        ({}, {"inputs": "ages"}, "no column 'ages', which inputs names; did you mean 'age'"),
    ],
)
def test_what_cannot_be_read_is_one_sentence_with_its_place(tmp_path, columns, source, said):
    with pytest.raises(DataError, match=said):
        read(tmp_path, table(**columns), **source)


def test_a_label_that_is_minus_one_is_missing(tmp_path):
    made = datasets.Dataset.from_dict({**TABLE, "state": [0, -1, 1]}).cast_column("state", STATES)
    with pytest.raises(DataError, match="row 2 has no class"):
        read(tmp_path, made)


def test_an_array_column_of_images_or_of_several_shapes_is_refused(tmp_path):
    with pytest.raises(DataError, match='has images; name it as image = "picture"'):
        read(tmp_path / "a", pictures(), inputs="picture")
    ragged = datasets.Dataset.from_dict({"x": [[1], [1, 2], [3]], "state": [0, 1, 0]})
    with pytest.raises(DataError, match="row 1 or one of the next 2"):
        read(tmp_path / "b", ragged, inputs="x")
    gap = datasets.Dataset.from_dict({"x": [[1.0], None, [3.0]], "state": [0, 1, 0]})
    with pytest.raises(DataError, match=r"row 1 or one of the next 2.* without gaps"):
        read(tmp_path / "c", gap, inputs="x")
    numbers = datasets.List(datasets.Value("float32"))
    named = datasets.Features({"x": numbers, "state": datasets.Value("int64")})
    none = datasets.Dataset.from_dict({"x": [[], []], "state": [0, 1]}, features=named)
    with pytest.raises(DataError, match="have no numbers; name another"):
        read(tmp_path / "d", none, inputs="x")
    unlabelled = datasets.Dataset.from_dict({"x": [[1.0], [1e300]], "state": [0, None]})
    with pytest.raises(DataError, match="row 2 has no class"):
        read(tmp_path / "e", unlabelled, inputs="x")


def test_a_class_number_without_a_name_is_refused(tmp_path):
    named = datasets.Features({"age": datasets.Value("int64"), "state": STATES})
    for number in (2, -2):
        rows = pa.table({"age": [61, 40], "state": [1, number]})
        made = datasets.Dataset(rows, info=datasets.DatasetInfo(features=named))
        with pytest.raises(DataError, match=f"row 2 has the class number {number}, and .* 2 class"):
            read(tmp_path / str(number), made, Agreed())


def test_how_a_dataset_was_shown_when_it_was_saved_changes_nothing(tmp_path):
    plain = read(tmp_path / "a", pictures(), Agreed(), image="picture")
    shown = read(tmp_path / "b", pictures().with_format("numpy"), Agreed(), image="picture")
    np.testing.assert_array_equal(shown.samples, plain.samples)
    assert shown.labels == plain.labels


def test_images_of_another_size_are_refused_with_their_row(tmp_path):
    with pytest.raises(DataError, match=r"row 1 has 5 × 6 pixels .* samples have 4 × 4"):
        read(tmp_path, pictures(), Agreed(shape=(1, 4, 4), outputs=2), image="picture")


@pytest.mark.parametrize("path", ["here.png", "https://example.org/x.png"])
def test_images_that_are_elsewhere_are_not_fetched(tmp_path, monkeypatch, path):
    Image.fromarray(PIXELS[0]).save(tmp_path / "here.png")
    pictures().save_to_disk(tmp_path / "set")
    _forget_bytes(tmp_path / "set", str(tmp_path / path) if path == "here.png" else path)
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("a connection"))
    with pytest.raises(DataError, match=r"row 1: the column 'picture' has .* only a path"):
        read(tmp_path / "set", image="picture")


def test_arrays_of_images_that_are_elsewhere_are_not_opened(tmp_path):
    Image.fromarray(PIXELS[0]).save(tmp_path / "here.png")
    path = {"bytes": None, "path": str(tmp_path / "here.png")}
    column = pa.array([[path], [path]], pa.list_(pa.struct({"bytes": "binary", "path": "string"})))
    datasets.Dataset(pa.table({"x": column, "state": [0, 1]})).save_to_disk(tmp_path / "set")
    info = tmp_path / "set" / "dataset_info.json"
    claimed = {"x": datasets.List(datasets.Image()), "state": datasets.Value("int64")}
    features = datasets.Features(claimed).to_dict()
    info.write_text(json.dumps(json.loads(info.read_text()) | {"features": features}))
    with pytest.raises(DataError, match=r"^the arrays of the column 'x' must be .* type list<"):
        read(tmp_path / "set", inputs="x")


def test_what_the_json_names_outside_of_the_folder_is_not_read(tmp_path):
    table().save_to_disk(tmp_path / "other")
    (elsewhere,) = (tmp_path / "other").glob("*.arrow")
    said = r"^[^ ]*/set takes what is at '.*' for a part of itself"
    for name in ("../other/" + elsewhere.name, str(elsewhere), "http://127.0.0.1:1/x.arrow"):
        table().save_to_disk(tmp_path / "set")
        state = tmp_path / "set" / "state.json"
        files = {"_data_files": [{"filename": name}]}
        state.write_text(json.dumps(json.loads(state.read_text()) | files))
        with pytest.raises(DataError, match=said):
            read(tmp_path / "set")
    datasets.DatasetDict(train=table()).save_to_disk(tmp_path / "splits" / "set")
    listing = tmp_path / "splits" / "set" / "dataset_dict.json"
    listing.write_text(json.dumps({"splits": ["../../other"]}))
    with pytest.raises(DataError, match=said):
        read(tmp_path / "splits" / "set")
    listing.write_text(json.dumps({"splits": ["train"]}))
    state = tmp_path / "splits" / "set" / "train" / "state.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | files))
    with pytest.raises(DataError, match=said):
        read(tmp_path / "splits" / "set")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("state.json", "[]"),
        ("state.json", '{"_data_files": 3}'),
        ("dataset_info.json", '{"features": "x"}'),
        ("dataset_dict.json", '{"splits": 3}'),
    ],
)
def test_json_that_makes_no_sense_is_a_damaged_dataset(tmp_path, file, content):
    table().save_to_disk(tmp_path)
    (tmp_path / file).write_text(content)
    with pytest.raises(DataError, match="or it is empty or damaged: "):
        read(tmp_path)


def _forget_bytes(folder, path):
    """Write the Arrow file anew with images that are paths only: saving would embed them."""
    (file,) = folder.glob("*.arrow")
    with pa.ipc.open_stream(file) as stream:
        schema = stream.schema
    images = pa.array(3 * [{"bytes": None, "path": path}], schema.field("picture").type)
    batch = pa.record_batch([images, pa.array(3 * ["ill"])], schema=schema)
    _write(folder, batch)


def _write(folder, *batches):
    """Write a dataset's Arrow file anew."""
    (file,) = folder.glob("*.arrow")
    with pa.ipc.open_stream(file) as stream:
        schema = stream.schema
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def test_what_save_to_disk_did_not_write_is_refused(tmp_path):
    with pytest.raises(DataError, match="there is no folder"):
        read(tmp_path / "gone")
    (tmp_path / "a").mkdir()
    with pytest.raises(DataError, match="is no Hugging Face dataset as save_to_disk writes it"):
        read(tmp_path / "a")
    table().save_to_disk(tmp_path / "b")
    (file,) = (tmp_path / "b").glob("*.arrow")
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(DataError, match=r"is no Hugging Face dataset .*or damaged"):
        read(tmp_path / "b")
    with pytest.raises(DataError, match="or it is empty"):
        read(tmp_path / "c", datasets.Dataset.from_dict({"age": [], "state": []}))
    table().save_to_disk(tmp_path / "d")
    _write(tmp_path / "d")
    with pytest.raises(DataError, match="has columns and no row"):
        read(tmp_path / "d")


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("it was unpickled",))


def test_nothing_in_the_folder_is_unpickled_or_imported(tmp_path):
    table().save_to_disk(tmp_path)
    (tmp_path / "dataset_info.pkl").write_bytes(pickle.dumps(Bomb()))
    (tmp_path / f"{tmp_path.name}.py").write_text("raise SystemExit('it was run')")
    state = json.loads((tmp_path / "state.json").read_text())
    file = tmp_path / state["_data_files"][0]["filename"]
    assert len(read(tmp_path).labels) == 3
    file.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(DataError, match="is no Hugging Face dataset"):
        read(tmp_path)
