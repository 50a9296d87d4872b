import io
import zipfile

import pytest

from pdlrecover.errors import RecordError
from pdlrecover.experiments.batch import parcel
from pdlrecover.experiments.batch.parcel import packed, unpacked

RESULTS = ("models/retrain.safetensors", "models/rapid-retrain:rate=0.1.safetensors", "result.json")
TO_CONTINUE = ("history/layout.json", "history/rounds/3.bin", "models/earlier.npy")


def cell(folder):
    for name in (*RESULTS, *TO_CONTINUE, "progress", "models/.hidden.part", "notes/mine.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def files(folder):
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def test_what_belongs_to_a_cell_goes_and_comes_and_nothing_else(tmp_path, monkeypatch):
    folder = cell(tmp_path / "cell")
    for history, names in ((True, {*RESULTS, *TO_CONTINUE}), (False, {*RESULTS})):
        there = tmp_path / f"there-{history}"
        there.mkdir()
        unpacked(packed(folder, history=history), there, history=history)
        assert files(there) == names
        assert all((there / name).read_text() == name for name in names)
    monkeypatch.setattr(parcel, "MOST", 10)
    small = tmp_path / "small"
    small.mkdir()
    unpacked(packed(folder, history=True), small, history=True)
    assert files(small) == {*RESULTS}


def test_nothing_of_nothing_is_an_empty_archive(tmp_path):
    unpacked(packed(tmp_path / "none", history=True), tmp_path, history=False)
    assert not files(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        *("../result.json", "/etc/passwd", "models/../../x.safetensors", "models/a/b.safetensors"),
        *("models/.safetensors", "history/../result.json", "progress", "result.json/", "a\\b"),
        "history/layout.json",
    ],
)
def test_an_archive_writes_no_other_file(tmp_path, name):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("result.json", "{}")
        archive.writestr(name, "x")
    there = tmp_path / "a" / "there"
    there.mkdir(parents=True)
    with pytest.raises(RecordError, match="does not belong"):
        unpacked(content.getvalue(), there, history=False)
    assert not files(tmp_path)


def test_a_file_twice_or_compressed_or_no_archive_is_refused(tmp_path):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("result.json", "0" * 10_000)
    with pytest.raises(RecordError, match="does not belong"):
        unpacked(content.getvalue(), tmp_path, history=False)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("result.json", "1")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("result.json", "2")
    with pytest.raises(RecordError, match="does not belong"):
        unpacked(content.getvalue(), tmp_path, history=False)
    with pytest.raises(RecordError, match="came back damaged"):
        unpacked(b"no archive", tmp_path, history=False)
    assert not files(tmp_path)
