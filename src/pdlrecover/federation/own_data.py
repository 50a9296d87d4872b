"""All peers' own data, as a simulation keeps them: one tensor, and who holds which rows.

Rules: peers stand in the order given, and a peer's samples in a row. All samples have one shape.
Every peer's data have a digest, over shape, samples in float32 and class numbers, by which a saved
federation knows them again.
"""

import hashlib
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import UninitializedParameter

from pdlrecover.errors import DataError, ModelError
from pdlrecover.federation.arguments import described
from pdlrecover.federation.roster import Roster
from pdlrecover.learning import FlatModel
from pdlrecover.learning.classes import Classes
from pdlrecover.learning.flat_model import as_tensor
from pdlrecover.learning.intake import Columns, check_columns, columns_of, data_of
from pdlrecover.learning.partition import Partition

PROBED = 64
"""How many samples a new model is tried on."""
LARGE = 1e4
"""Samples beyond this are warned of: pixels and standardised features stay far below."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnData:
    """What the peers of a simulation hold."""

    x: torch.Tensor
    y: torch.Tensor
    partition: Partition
    roster: Roster
    classes: Classes
    digests: tuple[str, ...]
    """One for each peer."""
    columns: Columns | None = None
    """The columns of the peers' tables, if they gave tables."""


def take_in(
    datasets: Any,
    model: torch.nn.Module,
    classes: Iterable[Hashable] | None = None,
    *,
    scaled: bool = False,
) -> OwnData:
    """Take everything that the peers give, and find out which classes their labels are.

    Unless they are to be `scaled`, large samples are warned of.
    """
    check_module(model)
    named = _named(datasets)
    names = tuple(named) if isinstance(named, Mapping) else None
    given = list(named.values()) if isinstance(named, Mapping) else list(named)
    if not given:
        raise DataError("a federation needs at least one peer's dataset, got none")
    roster = Roster(count=len(given), names=names)
    parts = [data_of(data, roster.title(peer)) for peer, data in enumerate(given)]
    columns = _columns(given, roster)
    shape = parts[0][0].shape[1:]
    for peer, (samples, _) in enumerate(parts):
        if samples.shape[1:] != shape:
            raise DataError(
                f"all peers' samples must have one shape; {roster.title(0)} has {tuple(shape)} and "
                f"{roster.title(peer)} {tuple(samples.shape[1:])}"
            )
    flat = FlatModel(model, tuple(shape))
    outputs = flat.classes
    _check_logits(flat, parts[0][0][:PROBED])
    if not scaled:
        _warn_of_scale(parts, roster)
    if outputs < 2:
        raise ModelError(
            f"the model has {outputs} output for each sample, and needs one for each class; for "
            "two classes give it two outputs, and no sigmoid or softmax at the end"
        )
    whose = [f"{roster.title(peer)}'s labels" for peer in range(len(parts))]
    labels = [y for _, y in parts]
    known = Classes.of(list(zip(whose, labels, strict=True)), outputs, classes)
    numbers = [known.numbers(y, who) for y, who in zip(labels, whose, strict=True)]
    ends = np.cumsum([len(y) for y in numbers])
    return OwnData(
        x=torch.cat([x for x, _ in parts]),
        y=torch.cat(numbers),
        partition=[np.arange(e - len(y), e) for e, y in zip(ends, numbers, strict=True)],
        roster=roster,
        classes=known,
        digests=tuple(_digest(x, y) for (x, _), y in zip(parts, numbers, strict=True)),
        columns=columns,
    )


def _columns(given: Sequence[Any], roster: Roster) -> Columns | None:
    """Return the columns of those peers' samples that are tables; raise if they differ."""
    first: Columns | None = None
    for peer, data in enumerate(given):
        found = columns_of(data[0]) if isinstance(data, tuple | list) else None
        check_columns(found, first, f"{roster.title(peer)}'s samples")
        first = first or found
    return first


def _check_logits(flat: FlatModel, samples: torch.Tensor) -> None:
    """Refuse a model that returns probabilities: they would go through a softmax again."""
    with torch.no_grad():
        found = flat.logits(as_tensor(flat.initial), samples)
    whole = torch.allclose(found.sum(dim=1), torch.ones(len(found)), atol=1e-4)
    if found.shape[1] > 1 and whole and bool((found >= 0).all()):
        raise ModelError(
            "the model returns probabilities, which are 0 or more and add up to 1; the loss takes "
            "logits, so leave the softmax at its end out"
        )


def _warn_of_scale(parts: Sequence[tuple[torch.Tensor, Any]], roster: Roster) -> None:
    """Warn of samples so large that hardly any learning rate fits them."""
    peer, largest = max(
        ((peer, float(x.abs().max())) for peer, (x, _) in enumerate(parts)),
        key=lambda each: each[1],
    )
    if largest > LARGE:
        warnings.warn(
            f"{roster.title(peer)}'s samples reach {largest:.3g}; bring features to a common scale "
            "first, the same at all peers (standardise=True does), or the training may diverge",
            stacklevel=4,
        )


def check_module(model: Any) -> None:
    """Raise unless this is a torch module whose weights are there."""
    if isinstance(model, type) and issubclass(model, torch.nn.Module):
        raise ModelError(
            f"the model must be a torch module, got the class {model.__name__}; "
            f"make one of it: {model.__name__}(…)"
        )
    if not isinstance(model, torch.nn.Module):
        raise ModelError(f"the model must be a torch module, got {described(model)}")
    if isinstance(model, torch.jit.ScriptModule) or hasattr(model, "_orig_mod"):
        raise ModelError(
            "the model is compiled or scripted, and gradients of many peers at once cannot be "
            "taken of it; give the module that it was made of"
        )
    if any(isinstance(parameter, UninitializedParameter) for parameter in model.parameters()):
        raise ModelError(
            f"{type(model).__name__} has lazy layers without weights; call it once on a sample"
        )


def _named(datasets: Any) -> Mapping[str, Any] | Sequence[Any]:
    """Return the peers' data, by name or in a row."""
    if isinstance(datasets, Mapping):
        if wrong := [name for name in datasets if not isinstance(name, str) or not name]:
            raise DataError(
                f"in a mapping of datasets the peers have names, texts, got {wrong[0]!r}; "
                "give a list for peers by number"
            )
        if odd := [name for name in datasets if not name.isprintable()]:
            raise DataError(f"names of peers must be printable, got {odd[0]!r}; name it otherwise")
        return datasets
    if not isinstance(datasets, list | tuple):
        raise DataError(
            "datasets must be a list with the data of one peer after the other, or a mapping from "
            f"peers' names to their data, got {_kind(datasets)}"
        )
    return datasets


def _kind(value: Any) -> str:
    if isinstance(value, torch.utils.data.Dataset):
        return f"one {type(value).__name__}; give one for each peer"
    shape = getattr(value, "shape", None)
    return f"a {type(value).__name__}" + (f" of shape {tuple(shape)}" if shape else "")


def _digest(x: torch.Tensor, y: torch.Tensor) -> str:
    hashed = hashlib.sha256(f"{tuple(x.shape)}\n".encode())
    hashed.update(x.contiguous().numpy().data)
    hashed.update(y.contiguous().numpy().data)
    return hashed.hexdigest()
