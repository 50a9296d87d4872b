"""A trained federation in a folder: its settings, first weights and history, and no data.

    federation.json       the settings, a digest of each peer's data, and which sums are open
    first.safetensors     the module's first weights, with what is frozen in it
    layout.json models.bin sums.bin    the history

Rules:

- Loading takes the module's code and the data, and nothing else: the first weights are taken from
  the folder. Data whose digest is another is refused, with the name of the peer.
- A module with the same layers may still compute something else (another activation). So its first
  outputs are compared with those at the time of the training.
- What format 1 has saved still loads, with a warning: it has no digests, and no frozen weights.
"""

import copy
import filecmp
import hashlib
import json
import math
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pdlrecover.adversary import Attack, NoAttack
from pdlrecover.engines.classifier import put_weights, state_bytes, state_of
from pdlrecover.engines.simulated_peers import attack_text
from pdlrecover.engines.update_source import UpdateSource
from pdlrecover.errors import DataError, HistoryError, ModelError
from pdlrecover.federation.own_data import OwnData, check_module
from pdlrecover.files import make_folder, read_bytes, read_json, write_json, write_whole
from pdlrecover.history import FILES, RunHistory
from pdlrecover.learning import FlatModel
from pdlrecover.learning.input_scale import InputScale
from pdlrecover.recovery import optimizers
from pdlrecover.recovery.requests import Optimizer, Tally
from pdlrecover.recovery.standardisation import Standardise
from pdlrecover.sharing import Tolerance

FORMAT = 2
SETTINGS, FIRST = "federation.json", "first.safetensors"
SAVED = ("batch_size", "seed", "bound", "l2", "malicious", "cohorts", "clear")
"""The settings that are saved as they are."""
SAVED_LATER = ("local_steps", "local_rate", "held_out", "evaluate_every", "peer_by_peer")
"""Settings that earlier versions did not save; they had the defaults."""


@dataclass(frozen=True, kw_only=True)
class Saved:
    """What a folder says of a federation."""

    path: Path
    format: int
    settings: dict[str, Any]
    """What `simulate` is given."""
    tolerance: Tolerance
    optimizer: Optimizer
    recovered: tuple[frozenset[int], ...]
    """The kept peers of each recovery so far."""
    unprotected: frozenset[int]
    evaluated: Tally | None
    digests: tuple[str, ...] | None
    names: tuple[str, ...] | None
    classes: tuple[Any, ...] | None
    attack: str | None
    inputs: InputScale | None
    """The scale of inputs, if they are standardised."""
    outputs: tuple[float, ...] | None
    """What the module returned for `probe` with its first weights."""

    def in_order(self, datasets: Any) -> Any:
        """Return the peers' data in the order in which they were trained with."""
        count = None if self.digests is None else len(self.digests)
        if count is not None and hasattr(datasets, "__len__") and len(datasets) != count:
            raise DataError(
                f"this federation was trained by {count} peers, and the data of {len(datasets)} "
                "were given; give those of all, removed ones too"
            )
        if self.names is None or not isinstance(datasets, Mapping):
            return datasets
        if missing := [name for name in self.names if name not in datasets]:
            raise DataError(
                f"this federation was trained by peers {', '.join(self.names)}, and the data of "
                f"{missing[0]} are not among those given"
            )
        return {name: datasets[name] for name in self.names}

    def check_data(self, own: OwnData) -> None:
        """Raise if these are not the data that the federation was trained with."""
        for peer, (mine, theirs) in enumerate(
            zip(own.digests, self.digests or own.digests, strict=True)
        ):
            if mine != theirs:
                raise DataError(
                    f"the data of {own.roster.title(peer)} are not those that this federation was "
                    "trained with (their digest differs); give the same samples and labels, in the "
                    "same order and prepared in the same way"
                )

    def check_attack(self, attack: Attack | None) -> None:
        """Raise if this is not the attack that the federation was trained with."""
        given = attack_text(attack or NoAttack())
        if self.attack is not None and given != self.attack:
            raise HistoryError(
                f"this federation was trained with the attack {self.attack}, got {given}; "
                "load it with the same one (attack=…)"
            )

    def module(self, model: torch.nn.Module) -> torch.nn.Module:
        """Return a copy of the module with the weights that training started from."""
        check_module(model)
        made = copy.deepcopy(model).float()
        if self.format == 1:
            return _from_history(made, self.path.parent)
        place = self.path.parent / FIRST
        content = read_bytes(place, HistoryError, missing="get it from a copy of the folder")
        put_weights(made, state_of(content, place), str(place))
        return made

    def check_outputs(self, flat: FlatModel) -> None:
        """Raise if the module does not compute what it computed at the time of the training."""
        if self.outputs is None:
            return
        mine, theirs = np.array(probe(flat)), np.array(self.outputs)
        if mine.shape != theirs.shape or not np.allclose(mine, theirs, rtol=1e-3, atol=1e-3):
            raise ModelError(
                "the module has the layers of the one that was trained, and computes something "
                "else with the same weights (another activation, or another mode?); build it as "
                "for the training"
            )


def probe(flat: FlatModel) -> list[float]:
    """Return what a module returns for two fixed samples with its first weights."""
    x = torch.linspace(-1, 1, 2 * math.prod(flat.example_shape)).view(2, *flat.example_shape)
    with torch.no_grad():
        found: list[float] = flat.module_with(flat.initial)(x).double().flatten().tolist()
    return found


def run_digest(
    source: UpdateSource,
    tolerance: Tolerance,
    *,
    clear: bool,
    data: tuple[str, ...] | None,
    standardise: Standardise | None = None,
) -> str:
    """Return a digest of what makes a run what it is; without `data`, sizes stand for them."""
    facts: dict[str, Any] = {
        **source.facts(),
        "tolerance": _tolerance_of_earlier(tolerance),
        "clear": clear,
    }
    if standardise is not None:
        facts["standardise"] = asdict(standardise)
    if data is not None:
        facts["data"] = list(data)
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _tolerance_of_earlier(tolerance: Tolerance) -> str:
    """Return the text that has stood in digests from the first, however it is shown to people."""
    colluders, dropouts, liars = tolerance.colluders, tolerance.dropouts, tolerance.liars
    return f"{colluders} colluders, {dropouts} dropouts and {liars} liars"


def write_saved(
    folder: Path, history: RunHistory, flat: FlatModel, settings: Mapping[str, Any]
) -> None:
    """Write a federation to a folder; the settings come last, so that they are there with all."""
    make_folder(folder, HistoryError)
    if not folder.samefile(history.folder):
        _check_empty(folder, history)
    try:
        if not folder.samefile(history.folder):
            for name in FILES:
                shutil.copy2(history.folder / name, folder / name)
    except OSError as error:
        raise HistoryError(
            f"{folder} cannot be written: {error.strerror}; make room, or choose another folder"
        ) from error
    write_whole(folder / FIRST, state_bytes(flat.module_with(flat.initial)), HistoryError)
    facts = {"format": FORMAT, **settings, "outputs": probe(flat)}
    write_json(folder / SETTINGS, facts, HistoryError)


def _check_empty(folder: Path, history: RunHistory) -> None:
    """Raise if a folder holds another run's history, which would be written over."""
    models, layout = folder / "models.bin", folder / "layout.json"
    if not models.exists() and not layout.exists():
        return
    found = read_json(layout, HistoryError, damaged="choose another folder")
    same_run = isinstance(found, dict) and found.get("run") == history.layout.run
    mine = history.folder / "models.bin"
    if not same_run or not models.exists() or not filecmp.cmp(models, mine, shallow=False):
        raise HistoryError(f"{folder} holds another federation; choose another folder")


def read_saved(folder: Path) -> Saved:
    """Read what a folder says of a federation."""
    path = folder / SETTINGS
    missing = "name the folder of a saved federation"
    values = read_json(path, HistoryError, missing=missing, damaged="get it from a copy")
    if not isinstance(values, dict):
        raise HistoryError(f"{path} is damaged: it is no JSON object; get it from a copy")
    found = values.get("format")
    if found not in (1, FORMAT):
        raise HistoryError(
            f"{path} has format {found}, and this version reads 1 and {FORMAT}; "
            "load it with the version that saved it"
        )
    if found == 1:
        warnings.warn(
            f"{path} was saved by an earlier version, which kept no digests of the data: make sure "
            "that these are the data it was trained with",
            UserWarning,
            stacklevel=3,
        )
    try:
        tally, digests = values.get("evaluated"), values.get("data")
        settings = {key: values[key] for key in SAVED}
        settings |= {key: values[key] for key in SAVED_LATER if key in values}
        if (chosen := values.get("standardise")) is not None:
            settings["standardise"] = Standardise(**chosen)
        return Saved(
            path=path,
            format=found,
            settings=settings,
            inputs=_scale_of(values.get("inputs")),
            tolerance=Tolerance(**values["tolerance"]),
            optimizer=optimizers.from_record(values["optimizer"]),
            recovered=tuple(frozenset(kept) for kept in values["recovered"]),
            unprotected=frozenset(values.get("unprotected", ())),
            evaluated=None if tally is None else Tally(**tally),
            digests=None if digests is None else tuple(digests),
            names=_tuple(values.get("names")),
            classes=_tuple(values.get("classes")),
            attack=values.get("attack"),
            outputs=_tuple(values.get("outputs")),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise HistoryError(f"{path} is damaged: {error}; get it from a copy") from error


def written_scale(scale: InputScale | None) -> dict[str, Any] | None:
    """Return a scale of inputs for a JSON file, to the bit."""
    return None if scale is None else {"mean": scale.mean.tolist(), "std": scale.std.tolist()}


def _scale_of(written: dict[str, Any] | None) -> InputScale | None:
    if written is None:
        return None
    return InputScale(**{name: np.array(values) for name, values in written.items()})


def written_classes(names: tuple[Any, ...]) -> list[Any] | None:
    """Return classes for a JSON file; None for what JSON does not have: the data tell them."""
    plain = all(isinstance(name, str | int | float | bool) for name in names)
    return list(names) if plain else None


def _tuple(values: list[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)


def _from_history(module: torch.nn.Module, folder: Path) -> torch.nn.Module:
    """Give a module the first of the models that a history has."""
    trainable = [p for p in module.parameters() if p.requires_grad]
    size = sum(p.numel() for p in trainable)
    layout = read_json(folder / "layout.json", HistoryError)
    if not isinstance(layout, dict) or layout.get("parameters") != size:
        raise ModelError(
            f"the module has {size} weights, and the one that was trained another number; build "
            "it as for the training"
        )
    content = read_bytes(folder / "models.bin", HistoryError)
    if len(content) < 8 * size:
        raise HistoryError(f"the history in {folder} has no model; get it from a copy")
    first, start = np.frombuffer(content, dtype=np.float64, count=size), 0
    with torch.no_grad():
        for parameter in trainable:
            part = first[start : start + parameter.numel()]
            parameter.copy_(torch.from_numpy(part.copy()).view(parameter.shape))
            start += parameter.numel()
    return module
