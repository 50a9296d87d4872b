from pathlib import Path

import numpy as np
import pytest
import torch

from pdlrecover.errors import DataError
from pdlrecover.learning import Dataset, files, har, load


def write_har(folder: Path, *, windows: int, subjects: int) -> None:
    """Write small text files in the form of the published ones."""
    rng = np.random.default_rng(1)
    who = np.arange(windows) % subjects + 1
    for part, rows in (("train", slice(0, windows // 2)), ("test", slice(windows // 2, None))):
        signals = folder / part / "Inertial Signals"
        signals.mkdir(parents=True)
        count = len(who[rows])
        np.savetxt(folder / part / f"X_{part}.txt", rng.uniform(-1, 1, (count, 561)), "%.6e")
        np.savetxt(folder / part / f"y_{part}.txt", rng.integers(1, 7, count), "%d")
        np.savetxt(folder / part / f"subject_{part}.txt", who[rows], "%d")
        for channel in har.CHANNELS:
            np.savetxt(signals / f"{channel}_{part}.txt", rng.normal(size=(count, 128)), "%.6e")


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load("digits")


def test_digits_are_split_80_to_20_the_same_way_every_time(digits: Dataset) -> None:
    assert digits.shape == (1, 8, 8)
    assert (len(digits.train_y), len(digits.test_y)) == (1438, 359)
    assert torch.equal(load("digits").test_x, digits.test_x)


def test_images_are_centred_and_lie_in_0_to_1_in_original_units(digits: Dataset) -> None:
    assert digits.train_x.mean(0).abs().max() < 1e-6
    original = torch.cat([digits.train_x, digits.test_x]) + digits.mean
    assert original.min() > -1e-6
    assert abs(original.max() - 1) < 1e-6


def test_constant_features_stay_finite_and_become_zero(digits: Dataset) -> None:
    constant = digits.train_x.flatten(1).std(0) == 0
    assert constant.any()
    assert (digits.train_x.flatten(1)[:, constant] == 0).all()


def test_validation_never_looks_at_test_data(digits: Dataset) -> None:
    tuning = digits.validation(0.25, seed=3)
    rows = {row.numpy().tobytes() for row in digits.train_x}
    assert all(row.numpy().tobytes() in rows for row in tuning.test_x)
    assert len(tuning.test_y) == round(0.25 * len(digits.train_y))
    assert len(tuning.train_y) + len(tuning.test_y) == len(digits.train_y)
    joined = torch.cat([tuning.train_x, tuning.test_x]).flatten(1)
    assert torch.equal(joined.double().sum(0), digits.train_x.flatten(1).double().sum(0))
    assert torch.equal(tuning.test_x, digits.validation(0.25, seed=3).test_x)
    assert not torch.equal(tuning.test_x, digits.validation(0.25, seed=4).test_x)


@pytest.mark.parametrize("fraction", [0, 1, -0.5, float("nan")])
def test_a_validation_share_outside_0_to_1_is_refused(digits: Dataset, fraction: float) -> None:
    with pytest.raises(DataError, match="between 0 and 1"):
        digits.validation(fraction, seed=0)


def test_unknown_names_and_splits_are_refused_with_what_is_known() -> None:
    with pytest.raises(DataError, match="'imagenet'; known are digits, mnist"):
        load("imagenet")
    with pytest.raises(DataError, match="digits does not say whose samples"):
        load("digits", split="subject")
    with pytest.raises(DataError, match="split must be random or subject"):
        load("digits", split="size")  # type: ignore[arg-type]


@pytest.mark.parametrize("place", ["har", "har/UCI HAR Dataset"])
def test_hars_text_files_are_found_where_they_were_unpacked(tmp_path: Path, place: str) -> None:
    write_har(tmp_path / place, windows=40, subjects=10)
    features, inertial = load("har", tmp_path), load("har-inertial", tmp_path)
    assert features.shape == (561,)
    assert inertial.shape == (9, 128)
    assert "published" in features.note
    for dataset in (features, inertial):
        assert (len(dataset.train_y), len(dataset.test_y)) == (32, 8)
        assert dataset.classes == 6


def test_hars_text_files_are_found_in_one_flat_folder(tmp_path: Path) -> None:
    write_har(tmp_path / "unpacked", windows=20, subjects=10)
    (tmp_path / "har").mkdir()
    for file in (tmp_path / "unpacked").rglob("*.txt"):
        file.rename(tmp_path / "har" / file.name)
    assert len(load("har", tmp_path).train_y) == 16


def test_a_part_of_hars_text_files_is_refused_naming_the_missing_one(tmp_path: Path) -> None:
    write_har(tmp_path / "har", windows=20, subjects=10)
    (tmp_path / "har/test/y_test.txt").unlink()
    with pytest.raises(DataError, match=r"har/y_test\.txt is not in the data folder"):
        load("har", tmp_path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [("7\n" * 10, "labels must be 1 to 6"), ("1\n" * 9, "19 labels"), ("walking\n", "no table")],
)
def test_damaged_text_files_are_refused(tmp_path: Path, content: str, complaint: str) -> None:
    write_har(tmp_path / "har", windows=20, subjects=10)
    (tmp_path / "har/train/y_train.txt").write_text(content)
    with pytest.raises(DataError, match=complaint):
        load("har", tmp_path)


def test_features_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    write_har(tmp_path / "har", windows=20, subjects=10)
    rows = np.full((10, 561), np.nan)
    np.savetxt(tmp_path / "har/train/X_train.txt", rows)
    with pytest.raises(DataError, match="not finite"):
        load("har", tmp_path)


def test_a_split_by_subject_has_nobody_in_both_parts(tmp_path: Path) -> None:
    write_har(tmp_path / "har", windows=60, subjects=10)
    dataset = load("har", tmp_path, split="subject")
    assert dataset.train_subjects is not None
    assert len(dataset.train_subjects.unique()) == 8
    assert len(dataset.test_y) == 12
    tuning = dataset.validation(0.25, seed=0)
    assert tuning.train_subjects is not None
    assert len(tuning.train_subjects.unique()) == 6
    assert len(tuning.test_y) == 12


def test_no_har_at_all_is_one_sentence_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"har/har561_recomputed\.npz is not in .*download har"):
        load("har", tmp_path)


@pytest.mark.parametrize(("name", "mean"), [("mnist", 0.1307), ("fashion-mnist", 0.2860)])
@pytest.mark.slow
def test_the_published_images_have_their_known_size_and_mean(
    real_data: Path, name: str, mean: float
) -> None:
    if not (real_data / files.idx_paths(name)[0]).is_file():
        pytest.skip(f"no {name} in {real_data}")
    dataset = load(name, real_data)
    assert dataset.train_x.shape == (60_000, 1, 28, 28)
    assert dataset.test_x.shape == (10_000, 1, 28, 28)
    assert float(dataset.mean.mean()) == pytest.approx(mean, abs=1e-4)
    assert dataset.train_y.bincount().min() > 5_000


@pytest.mark.parametrize(("name", "shape"), [("har", (561,)), ("har-inertial", (9, 128))])
@pytest.mark.slow
def test_the_published_recordings_have_30_subjects(
    real_data: Path, name: str, shape: tuple[int, ...]
) -> None:
    if not (real_data / "har").is_dir():
        pytest.skip(f"no har in {real_data}")
    dataset = load(name, real_data)
    assert dataset.shape == shape
    assert len(dataset.train_y) + len(dataset.test_y) == 10_299
    assert dataset.train_subjects is not None
    assert len(dataset.train_subjects.unique()) == 30
    assert dataset.note
    by_subject = load(name, real_data, split="subject")
    assert by_subject.train_subjects is not None
    assert len(by_subject.train_subjects.unique()) == 24


def test_recomputed_features_are_called_so(real_data: Path) -> None:
    if not (real_data / "har/har561_recomputed.npz").is_file() or har._find(
        real_data, "X_train.txt"
    ):
        pytest.skip(f"no recomputed features in {real_data}, or published ones before them")
    assert "recomputed" in load("har", real_data).note
