"""A peer's own samples: its part of a dataset by name, or its own files.

Rules: samples have the federation's shape, labels are its classes, and there are no more samples
than it allows. Files are taken as they are; nothing is scaled, centred or unpickled.
"""

import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from pdlrecover.engines.peers.federation.membership import Membership
from pdlrecover.engines.peers.settings import Data
from pdlrecover.errors import DataError
from pdlrecover.learning import Dataset, load
from pdlrecover.learning.files import NAMES
from pdlrecover.learning.partition import iid


def load_own(data: Data, membership: Membership, me: int, folder: Path) -> Dataset:
    """Return this peer's data as the training part of a dataset."""
    if data.source in NAMES:
        found = _part(data, membership, me)
    else:
        found = _files(folder / data.source, membership)
    samples, model = len(found.train_y), membership.model
    if (found.shape, found.classes) != (model.shape, model.classes):
        raise DataError(
            f"the data ({data.source}) have samples of shape {list(found.shape)} in "
            f"{found.classes} classes, and the federation's model takes {list(model.shape)} in "
            f"{model.classes}; set data.source in peer.toml to what the federation agreed on"
        )
    if samples > membership.training.samples:
        raise DataError(
            f"this peer has {samples} samples and the federation agreed on at most "
            f"{membership.training.samples} (training.samples); use fewer, or agree on more"
        )
    return found


def _part(data: Data, membership: Membership, me: int) -> Dataset:
    dataset = load(data.source)
    parts = len(membership.peers) if data.parts is None else data.parts
    part = me if data.part is None else data.part
    if not 0 <= part < parts:
        raise DataError(f"data.part must be from 0 to {parts - 1}, got {part}")
    rows = torch.from_numpy(iid(dataset.train_y.numpy(), parts, membership.training.seed)[part])
    subjects = dataset.train_subjects
    return replace(
        dataset,
        train_x=dataset.train_x[rows],
        train_y=dataset.train_y[rows],
        train_subjects=None if subjects is None else subjects[rows],
    )


def _files(path: Path, membership: Membership) -> Dataset:
    x, y = _arrays(path)
    if not np.issubdtype(x.dtype, np.number) or x.ndim < 2 or len(x) != len(y) or not len(y):
        raise DataError(
            f"{path} must have x, numbers of shape (samples, …), and y, one whole number for each "
            f"sample; got x {x.dtype} {x.shape} and y {y.dtype} {y.shape}"
        )
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise DataError(f"the labels in {path} must be whole numbers, got {y.dtype} {y.shape}")
    samples = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))
    labels = torch.from_numpy(y.astype(np.int64))
    return Dataset(
        name=path.name,
        train_x=samples,
        train_y=labels,
        test_x=samples,
        test_y=labels,
        classes=membership.model.classes,
        shape=tuple(samples.shape[1:]),
        mean=torch.zeros(samples.shape[1:]),
    )


def _arrays(path: Path) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    try:
        if path.is_dir():
            return (
                np.load(path / "x.npy", allow_pickle=False),
                np.load(path / "y.npy", allow_pickle=False),
            )
        with np.load(path, allow_pickle=False) as arrays:
            return arrays["x"], arrays["y"]
    except FileNotFoundError as error:
        raise DataError(
            f"{error.filename} is not there; set data.source in peer.toml to one of "
            f"{', '.join(NAMES)}, an .npz file with x and y, or a folder with x.npy and y.npy"
        ) from error
    except (OSError, KeyError, ValueError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path} is no .npz file with arrays x and y of numbers, nor a folder with x.npy and "
            "y.npy; write one by `numpy.savez`, and name it as data.source in peer.toml"
        ) from error
