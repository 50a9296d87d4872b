"""Labels of any kind, as the class numbers that models are trained with, and back.

Rules, with C the number of the model's outputs:

- Whole numbers from 0 to C − 1 stay as they are, whichever of them occur.
- Other labels are texts, truth values, numbers or anything hashable. They are numbered in the order
  of `classes=[…]` if that is given, else sorted: numbers by size, texts alphabetically, and what
  cannot be compared by its kind, then by its `repr`. There must be C of them.
- A label that is missing (None, NaN), or not whole, is no class.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from pdlrecover.errors import DataError

Numbers = NDArray[np.int64]
Labels = Numbers | list[Hashable]
"""The labels of some samples: whole numbers, or anything else."""
LIMIT = 1 << 63
"""Whole numbers are below it; larger ones are labels like texts."""
_SHOWN = 6
"""How many classes a message lists."""


@dataclass(frozen=True, kw_only=True)
class Classes:
    """The classes that a model tells apart, in the order of its outputs."""

    names: tuple[Hashable, ...]

    @classmethod
    def numbered(cls, outputs: int) -> Self:
        """Return the classes 0, 1, … of a model with so many outputs."""
        return cls(names=tuple(range(outputs)))

    @classmethod
    def of(
        cls,
        labels: Sequence[tuple[str, Labels]],
        outputs: int,
        given: Iterable[Hashable] | None = None,
    ) -> Self:
        """Return the classes of these labels, each with the name of whose they are."""
        if given is not None:
            return cls(names=_given(given, outputs))
        kinds = [(whose, _kind(each)) for whose, each in labels]
        if other := next(((w, k) for w, k in kinds if k != kinds[0][1]), None):
            raise DataError(
                f"{other[0]} are {other[1]}, and {kinds[0][0]} are {kinds[0][1]}; "
                "write the labels of all peers in the same way"
            )
        if kinds[0][1] == "whole numbers":
            values = np.unique(np.concatenate([np.unique(np.asarray(each)) for _, each in labels]))
            if values[0] >= 0 and values[-1] < outputs:
                return cls.numbered(outputs)
            if len(values) == outputs:
                return cls(names=tuple(values.tolist()))
            whose, wrong = next(
                (whose, int(value))
                for whose, each in labels
                for value in np.unique(np.asarray(each))
                if not 0 <= value < outputs
            )
            raise DataError(
                f"labels must be whole numbers from 0 to {outputs - 1}, which is what the model "
                f"tells apart, or {outputs} different ones of any kind; got {len(values)} "
                f"different ones, and {wrong} among {whose}"
            )
        found = _sorted({value for _, each in labels for value in each})
        if len(found) != outputs:
            raise DataError(
                f"the labels have {len(found)} classes ({_listed(found)}) and the model has "
                f"{outputs} outputs; give it one output for each class, or, if some do not occur, "
                "name all classes in the order of its outputs (classes=[…])"
            )
        return cls(names=tuple(found))

    @property
    def are_plain(self) -> bool:
        """Whether the classes are the numbers 0, 1, … themselves."""
        return all(type(n) is int and n == i for i, n in enumerate(self.names))

    @property
    def _are_short(self) -> bool:
        """Whether all of them are whole numbers of 64 bits."""
        return all(type(n) is int and abs(n) < LIMIT for n in self.names)

    def numbers(self, labels: Labels, whose: str) -> torch.Tensor:
        """Return the numbers of these labels; `whose` they are is said if one is unknown."""
        if self.are_plain and isinstance(labels, np.ndarray):
            unknown = labels[(labels < 0) | (labels >= len(self.names))]
            if len(unknown):
                raise self._unknown(int(unknown[0]), whose)
            return torch.from_numpy(np.require(labels, requirements="W"))
        places = {name: place for place, name in enumerate(self.names)}
        values = labels.tolist() if isinstance(labels, np.ndarray) else labels
        found = [places.get(value, -1) for value in values]
        if -1 in found:
            raise self._unknown(values[found.index(-1)], whose)
        return torch.tensor(found, dtype=torch.int64)

    def named(self, numbers: torch.Tensor) -> NDArray[Any]:
        """Return the labels of these class numbers: an array of the labels' own kind."""
        kinds = {type(name) for name in self.names}
        if self._are_short or kinds <= {str} or kinds <= {bool} or kinds <= {float}:
            known = np.array(self.names)
        else:
            known = np.empty(len(self.names), dtype=object)
            known[:] = self.names
        found: NDArray[Any] = known[numbers.numpy()]
        return found

    def _unknown(self, label: Hashable, whose: str) -> DataError:
        return DataError(
            f"{whose} have {label!r}, and the model's classes are {_listed(self.names)}; "
            "write labels as in the training"
        )


def labels_of(y: Any, whose: str) -> Labels:
    """Return labels as they were written; `whose` they are is said if they cannot be labels.

    Taken are tensors, arrays, lists, and columns of pandas.
    """
    if isinstance(y, torch.Tensor):
        y = (y.detach().cpu() if y.dtype != torch.bfloat16 else y.detach().float()).numpy()
    elif hasattr(y, "to_numpy"):
        y = y.to_numpy()
    elif isinstance(y, str | bytes | dict | set) or not hasattr(y, "__len__"):
        raise DataError(
            f"{whose} must be one label for each sample, in a list, an array, a tensor or a "
            f"column, got {_shown(y)}"
        )
    if not isinstance(y, np.ndarray):
        return _listed_labels(list(y), whose)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise DataError(
            f"{whose} have the shape {y.shape}, and must be one label for each sample; "
            "of one-hot labels give y.argmax(axis=1)"
        )
    if y.dtype.kind == "f":
        return _whole(y, whose)
    if y.dtype.kind == "i" or (y.dtype.kind == "u" and (not len(y) or int(y.max()) < LIMIT)):
        return np.ascontiguousarray(y, dtype=np.int64)
    return _listed_labels(y.tolist(), whose)


def _listed_labels(values: list[Any], whose: str) -> Labels:
    """Return the labels of a list, which may be of any kind."""
    values = [value.item() if _is_scalar(value) else value for value in values]
    for place, value in enumerate(values):
        if _is_missing(value):
            raise DataError(f"{whose} lack the one of sample {place} ({value!r}); leave it out")
        if not isinstance(value, Hashable) or isinstance(value, torch.Tensor):
            raise DataError(
                f"{whose} must be one label for each sample, and sample {place} has "
                f"{_shown(value)}; of one-hot labels give y.argmax(axis=1)"
            )
    kinds = {type(value) for value in values}
    if kinds <= {int} and all(abs(value) < LIMIT for value in values):
        return np.array(values, dtype=np.int64)
    if float in kinds and kinds <= {int, float}:
        return _whole(np.array(values, dtype=np.float64), whose)
    return values


def _whole(y: NDArray[Any], whose: str) -> Numbers:
    """Return labels that were written as floating-point numbers."""
    if not np.isfinite(y).all():
        place = int(np.flatnonzero(~np.isfinite(y))[0])
        raise DataError(f"{whose} lack the one of sample {place} ({y[place]}); leave it out")
    if len(wrong := y[(y != np.round(y)) | (np.abs(y) >= LIMIT)]):
        raise DataError(
            f"labels must be whole numbers, the classes counted from 0, or names of classes; "
            f"{whose} have {wrong[0]}"
        )
    return y.astype(np.int64)


def _given(classes: Iterable[Hashable], outputs: int) -> tuple[Hashable, ...]:
    if isinstance(classes, str) or not isinstance(classes, Iterable):
        raise DataError(
            f"classes must be a list, one for each output of the model, got {classes!r}"
        )
    names = tuple(each.item() if isinstance(each, np.generic) else each for each in classes)
    if unhashable := next((n for n in names if not isinstance(n, Hashable)), None):
        raise DataError(f"a class must be a number or a name, got {unhashable!r} in classes")
    if len(names) != outputs or len(set(names)) != outputs:
        raise DataError(
            f"classes must name the model's {outputs} outputs, each once, got {_listed(names)}"
        )
    return names


def _kind(labels: Labels) -> str:
    """Return what labels are, in words."""
    if isinstance(labels, np.ndarray):
        return "whole numbers"
    kinds = {type(value) for value in labels}
    known = {str: "texts", bool: "truth values"}
    return known.get(next(iter(kinds)), "of other kinds") if len(kinds) == 1 else "of other kinds"


def _sorted(values: set[Hashable]) -> list[Hashable]:
    try:
        return sorted(values)  # type: ignore[type-var] # what cannot be compared raises
    except TypeError:
        return sorted(values, key=lambda value: (type(value).__name__, repr(value)))


def _is_scalar(value: Any) -> bool:
    return isinstance(value, np.generic) or (isinstance(value, torch.Tensor) and not value.ndim)


def _is_missing(value: Any) -> bool:
    """Say whether this is None, NaN, or what pandas has for them."""
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, float) and value != value)
    )


def _listed(values: Sequence[Any]) -> str:
    more = f", … and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
    return ", ".join(map(repr, values[:_SHOWN])) + more


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 and "\n" not in text else f"a {type(value).__name__}"
