"""A peer's own samples: its part of a dataset by name, or its own files.

Rules: samples have the federation's shape, labels are its classes, and there are no more samples
than it allows. Nothing is centred or unpickled; nothing is scaled but the pixels of images, from 0
to 1.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from pdlrecover.engines.peers.federation.membership import Membership
from pdlrecover.engines.peers.settings import DIGITS, Data, PeerSettings
from pdlrecover.errors import DataError
from pdlrecover.learning import Dataset, load
from pdlrecover.learning.files import NAMES
from pdlrecover.learning.intake import samples_of
from pdlrecover.learning.partition import iid
from pdlrecover.learning.reading.agreed import Agreed
from pdlrecover.learning.reading.arrays import read_arrays
from pdlrecover.learning.reading.class_numbers import class_numbers
from pdlrecover.learning.reading.read import SUFFIXES, read
from pdlrecover.learning.reading.reading import Reading

if TYPE_CHECKING:
    from pdlrecover.flower import FlowerPeers


def load_own(
    settings: PeerSettings, membership: Membership, me: int, folder: Path
) -> "Dataset | FlowerPeers":
    """Return this peer's data as the training part of a dataset, or the app that has them."""
    if settings.data.flower is not None:
        from pdlrecover.engines.peers.flower_data import load_flower  # it may need an extra

        return load_flower(settings, membership, me)
    if (name := named(settings.data)) is not None:
        found = _part(name, settings.data, membership, me)
    else:
        found = _read(settings, membership, folder)
    samples, model = len(found.train_y), membership.model
    if (found.shape, found.classes) != (model.shape, model.classes):
        raise DataError(
            f"the data ({found.name}) have samples of shape {list(found.shape)} in "
            f"{found.classes} classes, and the federation's model takes {list(model.shape)} in "
            f"{model.classes}; set [data] in peer.toml to what the federation agreed on"
        )
    if samples > membership.training.samples:
        raise DataError(
            f"this peer has {samples} samples and the federation agreed on at most "
            f"{membership.training.samples} (training.samples); use fewer, or agree on more"
        )
    return found


def named(data: Data) -> str | None:
    """Return the dataset that is read by its name, None of a peer's own data."""
    places = [getattr(data, place) for place in data.kinds() if place != "source"]
    name = DIGITS if data.source is None and not any(places) else data.source
    return name if name in NAMES else None


def _part(name: str, data: Data, membership: Membership, me: int) -> Dataset:
    dataset = load(name)
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


def read_own(settings: PeerSettings, folder: Path, agreed: Agreed) -> Reading:
    """Read this peer's own files, or what its function returns."""
    data = settings.data
    if data.flower is not None:
        raise DataError(
            f"the samples of {data.flower} are the Flower app's own, and it is called with the "
            "federation's model; name the federation file by --federation"
        )
    if data.function is not None:
        settings.code.check(data.function, "data.function")  # before anything of it is imported
    if data.source is None:
        return read(data, folder, agreed)
    path = folder / data.source
    if path.suffix.lower() in SUFFIXES and path.suffix.lower() != ".npz":
        raise DataError(
            f"data.source names {path.name}, a table; under [data] in peer.toml write file = "
            f'"{data.source}" and label = "…" instead'
        )
    if not path.exists():
        raise DataError(
            f"{path} is not there; set data.source in peer.toml to one of {', '.join(NAMES)}, an "
            ".npz file with x and y, or a folder with x.npy and y.npy"
        )
    return read_arrays(path)


def agreed_by(membership: Membership) -> Agreed:
    """Return what a federation says of samples."""
    model, data = membership.model, membership.data
    return Agreed(
        shape=model.shape, outputs=model.classes, features=data.features, classes=data.classes
    )


def _read(settings: PeerSettings, membership: Membership, folder: Path) -> Dataset:
    reading = read_own(settings, folder, agreed_by(membership))
    samples = samples_of(reading.samples, f"the samples of {reading.place}")
    labels = class_numbers(reading, membership.data.classes, membership.model.classes)
    return Dataset(
        name=reading.place,
        train_x=samples,
        train_y=labels,
        test_x=samples,
        test_y=labels,
        classes=membership.model.classes,
        shape=tuple(samples.shape[1:]),
        mean=torch.zeros(samples.shape[1:]),
    )
