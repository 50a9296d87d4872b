import gzip
from pathlib import Path

import numpy as np
import pytest

from pdlrecover.errors import DataError
from pdlrecover.learning import files

LABELS = "mnist/train-labels-idx1-ubyte.gz"


def idx(values: np.ndarray) -> bytes:
    lengths = b"".join(n.to_bytes(4, "big") for n in values.shape)
    return gzip.compress(bytes([0, 0, 8, values.ndim]) + lengths + values.tobytes())


@pytest.mark.parametrize("shape", [(5,), (3, 4, 2)])
def test_an_idx_file_reads_as_it_was_written(tmp_path: Path, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    (tmp_path / "x.gz").write_bytes(idx(values))
    np.testing.assert_array_equal(files.read_idx(tmp_path / "x.gz"), values)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not gzipped",
        gzip.compress(b""),
        gzip.compress(b"\x00\x00\x08\x01\x00"),
        gzip.compress(b"\x00\x00\x08\x01\x00\x00\x00\x05abc"),
        gzip.compress(b"\x00\x00\x0d\x01\x00\x00\x00\x03abc"),
        idx(np.zeros(100, dtype=np.uint8))[:-9],
    ],
    ids=["nothing", "not gzipped", "no header", "half a header", "too short", "floats", "cut off"],
)
def test_what_is_no_idx_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"x\.gz is no .*idx file"):
        files.read_idx(tmp_path / "x.gz")


def test_a_missing_file_is_named_with_the_folder_and_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        files.checked(LABELS, tmp_path)
    message = str(error.value)
    assert LABELS in message
    assert str(tmp_path) in message
    assert "pdlrecover download mnist --data-dir" in message
    assert files.DATA_VARIABLE in message


def test_a_damaged_file_is_named_and_not_read(tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    (tmp_path / LABELS).write_bytes(idx(np.zeros(3, dtype=np.uint8)))
    with pytest.raises(DataError, match=r"train-labels.* is damaged.*delete it and get it again"):
        files.checked(LABELS, tmp_path)


def test_the_data_folder_is_the_argument_then_the_environment_then_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(files.DATA_VARIABLE, raising=False)
    assert files.data_folder() == Path("data")
    monkeypatch.setenv(files.DATA_VARIABLE, "/elsewhere")
    assert files.data_folder() == Path("/elsewhere")
    assert files.data_folder("here") == Path("here")


def test_every_published_file_that_is_there_has_the_known_digest(real_data: Path) -> None:
    for path, known in files.DIGESTS.items():
        if (real_data / path).is_file():
            assert files.digest(real_data / path) == known, path
