"""Datasets by name, split and centred.

Rules:

- Images are scaled to [0, 1]; HAR's features lie in [−1, 1] and its windows are in units of g and
  rad/s, as published. Nothing is divided by a spread, so a constant feature is no special case.
- Inputs are centred per feature by the mean over the training part: a sum over all peers' data,
  which the peers can open as one private sum before the first round, without showing their own.
  `Dataset.mean` keeps it, so that x + mean is in original units.
- MNIST and Fashion-MNIST keep their published test part. Digits and HAR are pooled, and 20% are
  test data by a fixed seed: of the samples (split="random", the paper's), or of the subjects
  (split="subject", where no subject is in both parts).
- Tuning looks at `Dataset.validation`, whose test part is carved out of the training part.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from pdlrecover.errors import DataError, Setting
from pdlrecover.learning import files, har
from pdlrecover.learning.files import NAMES

Split = Literal["random", "subject"]
_Part = tuple[NDArray[np.float32], NDArray[np.int64]]

TEST_SHARE = 0.2
_SPLIT_SEED = 20130424
"""Fixed, so that everybody who loads a dataset has the same test part."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Training and test samples, centred; row i of `train_x` is a sample of class `train_y[i]`."""

    name: str
    train_x: torch.Tensor
    """float32, (samples, *shape)."""
    train_y: torch.Tensor
    """int64, (samples,)."""
    test_x: torch.Tensor
    test_y: torch.Tensor
    classes: int
    shape: tuple[int, ...]
    """The shape of one sample: (1, 28, 28) for an image, (561,) for features."""
    mean: torch.Tensor
    """What was subtracted from every sample, of that shape."""
    train_subjects: torch.Tensor | None = None
    """Whose sample it is, where that is known."""
    split: Split = "random"
    note: str = ""
    """What a reader of results must know of the data."""

    def __post_init__(self) -> None:
        for part, x, y in (
            ("training", self.train_x, self.train_y),
            ("test", self.test_x, self.test_y),
        ):
            if not len(y):
                raise DataError(f"the {part} part of {self.name} is empty: it needs more samples")
            if x.shape != (len(y), *self.shape):
                raise DataError(
                    f"the {part} part of {self.name} has {len(y)} labels and samples of shape "
                    f"{tuple(x.shape)}, expected {(len(y), *self.shape)}"
                )
            if not torch.isfinite(x).all():
                raise DataError(f"the {part} part of {self.name} has values that are not finite")
            if y.min() < 0 or y.max() >= self.classes:
                raise DataError(
                    f"the {part} part of {self.name} has labels {y.min()} to {y.max()}, "
                    f"expected 0 to {self.classes - 1}"
                )

    def validation(self, fraction: float, seed: int) -> "Dataset":
        """Return the training part alone, with `fraction` of it as its test part.

        What is carved out are whole subjects if the dataset was split by subject. The mean stays
        the one that was subtracted.
        """
        rest, held = _held_out(len(self.train_y), self.train_subjects, self.split, fraction, seed)
        return replace(
            self,
            train_x=self.train_x[rest],
            train_y=self.train_y[rest],
            test_x=self.train_x[held],
            test_y=self.train_y[held],
            train_subjects=None if self.train_subjects is None else self.train_subjects[rest],
            note="; ".join(filter(None, [self.note, "validation: no test data"])),
        )


def load(name: str, data_dir: Path | str | None = None, *, split: Split = "random") -> Dataset:
    """Load a dataset by name: digits, mnist, fashion-mnist, har or har-inertial.

    Digits come with this package; the others are files in the data folder (see `files`).
    """
    if split not in ("random", "subject"):
        raise DataError(Setting("split"), f" must be random or subject, got {split!r}")
    if split == "subject" and name in ("digits", "mnist", "fashion-mnist"):
        raise DataError(
            f"{name} does not say whose samples they are; set ", Setting("split"), " to random"
        )
    folder = files.data_folder(data_dir)
    match name:
        case "digits":
            return _digits()
        case "mnist" | "fashion-mnist":
            return _idx(name, folder)
        case "har":
            return _pooled(name, har.read_features(folder), split)
        case "har-inertial":
            return _pooled(name, har.read_inertial(folder), split)
        case _:
            raise DataError(f"no dataset is called {name!r}; known are {', '.join(NAMES)}")


def _digits() -> Dataset:
    """1,797 images of 8×8 pixels from 0 to 16: E. Alpaydin, C. Kaynak, UCI 1998."""
    table = files.read_digits()
    x = (table[:, :-1].reshape(-1, 1, 8, 8) / 16).astype(np.float32)
    y = table[:, -1].astype(np.int64)
    train, test = _held_out(len(y), None, "random", TEST_SHARE, _SPLIT_SEED)
    return _centred("digits", (x[train], y[train]), (x[test], y[test]), classes=10)


def _idx(name: str, folder: Path) -> Dataset:
    """MNIST (LeCun et al., 1998) or Fashion-MNIST (Xiao et al., 2017)."""
    train_x, train_y, test_x, test_y = (
        files.read_idx(files.checked(path, folder)) for path in files.idx_paths(name)
    )
    train, test = (
        (np.divide(pixels[:, None], 255, dtype=np.float32), labels.astype(np.int64))
        for pixels, labels in ((train_x, train_y), (test_x, test_y))
    )
    return _centred(name, train, test, classes=10)


def _pooled(name: str, recordings: har.Recordings, split: Split) -> Dataset:
    x, y, subjects = recordings.x, recordings.y, torch.from_numpy(recordings.subjects)
    train, test = _held_out(len(y), subjects, split, TEST_SHARE, _SPLIT_SEED)
    dataset = _centred(name, (x[train], y[train]), (x[test], y[test]), classes=har.ACTIVITIES)
    return replace(dataset, train_subjects=subjects[train], split=split, note=recordings.note)


def _centred(name: str, train: _Part, test: _Part, *, classes: int) -> Dataset:
    (train_x, train_y), (test_x, test_y) = train, test
    mean = train_x.mean(axis=0, dtype=np.float64).astype(np.float32)
    return Dataset(
        name=name,
        train_x=torch.from_numpy(train_x - mean),
        train_y=torch.from_numpy(train_y),
        test_x=torch.from_numpy(test_x - mean),
        test_y=torch.from_numpy(test_y),
        classes=classes,
        shape=mean.shape,
        mean=torch.from_numpy(mean),
    )


def _held_out(
    samples: int, subjects: torch.Tensor | None, split: Split, fraction: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices that stay, and those of the `fraction` that is held out, both sorted."""
    if not 0 < fraction < 1:
        raise DataError(f"the share that is held out must lie between 0 and 1, got {fraction}")
    rng = np.random.default_rng(seed)
    if split == "subject" and subjects is not None:
        people = rng.permutation(np.unique(subjects.numpy()))
        chosen = people[: max(1, round(fraction * len(people)))]
        held = np.isin(subjects.numpy(), chosen)
    else:
        held = np.zeros(samples, dtype=bool)
        held[rng.permutation(samples)[: max(1, round(fraction * samples))]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)
