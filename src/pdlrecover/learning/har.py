"""Human activity recognition from a phone at the waist: 30 subjects, 6 activities.

D. Anguita et al., "A public domain dataset for human activity recognition using smartphones",
ESANN 2013. Free for non-commercial use with citation.

Rules:

- The published text files are read when they are there: in har/, in its train/ and test/, or in
  har/UCI HAR Dataset/, as the archive unpacks.
- Else har/har_inertial.npz (the same windows) or har/har561_recomputed.npz (features that were
  recomputed from those windows, not the published ones; the note says so).
- The published training and test parts are pooled, in that order: how they are split is the
  caller's choice.
"""

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pdlrecover.errors import DataError
from pdlrecover.learning import files

FEATURES = 561
CHANNELS = tuple(
    f"{signal}_{axis}" for signal in ("body_acc", "body_gyro", "total_acc") for axis in "xyz"
)
WINDOW = 128
ACTIVITIES = 6
PARTS = ("train", "test")


@dataclass(frozen=True, kw_only=True, eq=False)
class Recordings:
    """All windows, pooled: values, activities 0 to 5, and who wore the phone."""

    x: NDArray[np.float32]
    y: NDArray[np.int64]
    subjects: NDArray[np.int64]
    note: str

    def __post_init__(self) -> None:
        if not len(self.x) == len(self.y) == len(self.subjects) or not len(self.x):
            raise DataError(
                f"HAR has {len(self.x)} windows, {len(self.y)} labels and {len(self.subjects)} "
                "subjects, which must be as many, and some; delete it and get it again"
            )
        if self.y.min() < 0 or self.y.max() >= ACTIVITIES:
            raise DataError(
                f"HAR's labels must be 1 to {ACTIVITIES}, got {self.y.min() + 1} to "
                f"{self.y.max() + 1}; delete it and get it again"
            )


def read_features(folder: Path) -> Recordings:
    """Read the 561 features of each window: the published ones, else the recomputed ones."""
    if not _find(folder, "X_train.txt"):
        note = "HAR's 561 features, recomputed from the inertial windows: not the published ones"
        return _read_npz(folder, "har/har561_recomputed.npz", (FEATURES,), note)
    x = np.concatenate([_text(folder, f"X_{part}.txt", FEATURES) for part in PARTS])
    return _with_labels(folder, x, "HAR's 561 published features")


def read_inertial(folder: Path) -> Recordings:
    """Read the windows themselves: 9 channels of 128 values at 50 Hz."""
    note = "HAR's inertial windows: body acceleration, rotation, total acceleration; x, y, z each"
    if not _find(folder, "body_acc_x_train.txt"):
        return _read_npz(folder, "har/har_inertial.npz", (len(CHANNELS), WINDOW), note)
    parts = [
        np.stack([_text(folder, f"{channel}_{part}.txt", WINDOW) for channel in CHANNELS], axis=1)
        for part in PARTS
    ]
    return _with_labels(folder, np.concatenate(parts), note)


def member_names() -> list[str]:
    """Return the text files that are read, as the archive names them under its one folder."""
    return [
        name
        for part in PARTS
        for name in (
            *(f"{part}/{kind}_{part}.txt" for kind in ("X", "y", "subject")),
            *(f"{part}/Inertial Signals/{channel}_{part}.txt" for channel in CHANNELS),
        )
    ]


def _with_labels(folder: Path, x: NDArray[np.float32], note: str) -> Recordings:
    y, subjects = (
        np.concatenate([_text(folder, f"{kind}_{part}.txt", 1)[:, 0] for part in PARTS])
        for kind in ("y", "subject")
    )
    return Recordings(x=x, y=y.astype(np.int64) - 1, subjects=subjects.astype(np.int64), note=note)


def _find(folder: Path, name: str) -> Path | None:
    """Return where a text file is, wherever the archive was unpacked."""
    part = name.removesuffix(".txt").rsplit("_", 1)[1]
    for root in (folder / "har", folder / "har" / "UCI HAR Dataset"):
        for place in (root, root / part, root / part / "Inertial Signals"):
            if (place / name).is_file():
                return place / name
    return None


def _text(folder: Path, name: str, columns: int) -> NDArray[np.float32]:
    place = _find(folder, name)
    if place is None:
        raise files.missing(f"har/{name}", folder)
    values = files.read_text(place)
    if values.shape[1] != columns:
        raise DataError(
            f"{place} has {values.shape[1]} columns, not {columns}; delete it and get it again"
        )
    return values


def _read_npz(folder: Path, path: str, shape: tuple[int, ...], note: str) -> Recordings:
    place = files.checked(path, folder)
    try:
        with np.load(place, allow_pickle=False) as arrays:
            x, y, subjects = (
                np.concatenate([arrays[f"{kind}_{part}"] for part in PARTS])
                for kind in ("X", "y", "subject")
            )
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{place} does not hold HAR's arrays ({error}); delete it and get it again"
        ) from error
    if x.shape[1:] != shape:
        raise DataError(
            f"{place} has windows of shape {x.shape[1:]}, not {shape}; delete it and get it again"
        )
    return Recordings(
        x=x.astype(np.float32, copy=False),
        y=y.astype(np.int64) - 1,
        subjects=subjects.astype(np.int64),
        note=note,
    )
