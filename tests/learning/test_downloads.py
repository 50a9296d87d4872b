import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pdlrecover.errors import DataError
from pdlrecover.learning import downloads, files, har


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def published(tmp_path: Path) -> Path:
    (tmp_path / "published").mkdir()
    return tmp_path / "published"


@pytest.fixture
def server(published: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve the folder `published` on loopback, and make it the address of all datasets."""
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=str(published))
    ) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.02,))
        thread.start()
        address = f"http://127.0.0.1:{listening.server_port}/"
        monkeypatch.setitem(downloads.ADDRESSES, "mnist", address)
        monkeypatch.setitem(downloads.ADDRESSES, "har", address + "har.zip")
        yield address
        listening.shutdown()
        thread.join()


@pytest.fixture
def four_files(published: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    contents = {path: path.encode() * 50_000 for path in files.idx_paths("mnist")}
    for path, content in contents.items():
        (published / path.split("/")[1]).write_bytes(content)
        monkeypatch.setitem(files.DIGESTS, path, hashlib.sha256(content).hexdigest())
    return contents


def publish_har(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        for name in har.member_names():
            archive.writestr(f"UCI HAR Dataset/{name}", name)
        archive.writestr("UCI HAR Dataset/../../escaped.txt", "never unpacked")
    with zipfile.ZipFile(published / "har.zip", "w") as archive:
        archive.writestr("UCI HAR Dataset.zip", inner.getvalue())
    known = hashlib.sha256(inner.getvalue()).hexdigest()
    monkeypatch.setattr(downloads, "HAR_DIGEST", known)


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_the_files_arrive_whole_and_progress_is_told(
    tmp_path: Path, server: str, four_files: dict[str, bytes]
) -> None:
    told: list[tuple[int, int]] = []
    downloads.download("mnist", tmp_path / "data", lambda *step: told.append(step))
    for path, content in four_files.items():
        assert (tmp_path / "data" / path).read_bytes() == content
    assert everything(tmp_path / "data") == sorted(four_files)
    assert {length for _, length in told} == {len(content) for content in four_files.values()}
    assert [done for done, length in told if done == length]


def test_what_is_there_undamaged_is_not_fetched_again_and_what_is_damaged_is(
    tmp_path: Path, server: str, four_files: dict[str, bytes]
) -> None:
    downloads.download("mnist", tmp_path)
    first, *_ = four_files
    (tmp_path / first).write_bytes(b"damaged")
    told: list[tuple[int, int]] = []
    downloads.download("mnist", tmp_path, lambda *step: told.append(step))
    assert (tmp_path / first).read_bytes() == four_files[first]
    assert {length for _, length in told} == {len(four_files[first])}


def test_wrong_content_is_refused_and_nothing_is_left(
    tmp_path: Path, published: Path, server: str, four_files: dict[str, bytes]
) -> None:
    (published / "train-images-idx3-ubyte.gz").write_bytes(b"something else")
    with pytest.raises(DataError, match="nothing was kept"):
        downloads.download("mnist", tmp_path / "data")
    assert everything(tmp_path / "data") == []


def test_a_file_that_is_not_published_is_one_sentence(
    tmp_path: Path, published: Path, server: str, four_files: dict[str, bytes]
) -> None:
    (published / "train-images-idx3-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"could not download http.*404.*check the network"):
        downloads.download("mnist", tmp_path / "data")
    assert everything(tmp_path / "data") == []


def test_an_interrupted_download_leaves_nothing(
    tmp_path: Path, server: str, four_files: dict[str, bytes]
) -> None:
    def interrupt(done: int, length: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        downloads.download("mnist", tmp_path / "data", interrupt)
    assert everything(tmp_path / "data") == []


def test_hars_archive_inside_an_archive_is_unpacked(
    tmp_path: Path, published: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_har(published, monkeypatch)
    home = tmp_path / "data" / "har" / "UCI HAR Dataset"
    (home / "train").mkdir(parents=True)
    (home / "train" / "X_train.txt").write_text("left over from somewhere")
    downloads.download("har", tmp_path / "data")
    assert everything(home) == sorted(har.member_names())
    assert (home / "train/X_train.txt").read_text() == "train/X_train.txt"
    assert not list(tmp_path.rglob("escaped.txt"))
    assert [path.name for path in home.parent.iterdir()] == [home.name]
    (published / "har.zip").unlink()
    downloads.download("har-inertial", tmp_path / "data")


@pytest.mark.parametrize("content", [b"no archive", None])
def test_an_archive_that_is_not_hars_is_refused(
    tmp_path: Path,
    published: Path,
    server: str,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes | None,
) -> None:
    publish_har(published, monkeypatch)
    if content is None:
        monkeypatch.setattr(downloads, "HAR_DIGEST", "0" * 64)
    else:
        (published / "har.zip").write_bytes(content)
    with pytest.raises(DataError, match=r"not HAR's archive|nothing was kept"):
        downloads.download("har", tmp_path / "data")
    assert everything(tmp_path / "data") == []


def test_digits_need_no_download_and_unknown_names_are_refused(tmp_path: Path) -> None:
    downloads.download("digits", tmp_path)
    with pytest.raises(DataError, match="'imagenet' can be downloaded; known are mnist"):
        downloads.download("imagenet", tmp_path)
