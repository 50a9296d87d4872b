"""A user's own samples and labels, in whatever form they come, as torch computes with them.

Rules:

- Samples are tensors, arrays, lists, or tables with numbers only, of pandas or as `read_data`
  returns them: one row for each. They become float32; nothing is scaled, and values must be finite.
- A peer's data are a pair (samples, labels), or a map-style `torch.utils.data.Dataset` of such
  pairs, which is read once. pandas is never imported.
- Tables are taken by position: so all must have the same columns in the same order, and samples and
  labels the same index.
- What cannot be taken is refused in a sentence that says whose it is, what was got, and what to do.
"""

from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from pdlrecover.errors import DataError
from pdlrecover.learning.classes import Labels, labels_of
from pdlrecover.learning.reading.table import Table

Pair = tuple[torch.Tensor, Labels]
Columns = tuple[Any, ...]
"""The names of a table's columns, in their order."""


def data_of(data: Any, who: str) -> Pair:
    """Return the samples and labels of a peer that is called `who`, as many of each."""
    x, y = _pair(data, who)
    return samples_and_labels(x, y, who)


def samples_and_labels(x: Any, y: Any, who: str = "") -> Pair:
    """Return samples and labels, as many of each and at least one."""
    samples = samples_of(x, _of(who, "samples"))
    labels = labels_of(y, _of(who, "labels"))
    indices: list[Any] = [each.index for each in (x, y) if hasattr(each, "to_numpy")]
    if len(indices) == 2 and len(x) == len(y) and not indices[0].equals(indices[1]):
        raise DataError(
            f"{_of(who, 'samples')} and labels have different indices, and rows would be paired by "
            "their places; sort both alike, or give y.to_numpy() if the places are right"
        )
    if not len(labels) or len(samples) != len(labels):
        raise DataError(
            f"{who or 'there'} {'has' if who else 'are'} {len(samples)} samples and {len(labels)} "
            "labels; give at least one, and as many of each"
        )
    return samples, labels


def columns_of(data: Any) -> Columns | None:
    """Return the columns of samples that are a table, None of any others."""
    is_table = isinstance(data, Table) or (hasattr(data, "columns") and hasattr(data, "to_numpy"))
    return tuple(data.columns) if is_table else None


def check_columns(found: Columns | None, expected: Columns | None, whose: str) -> None:
    """Raise unless two tables have the same columns in the same order; others are not compared."""
    if found is None or expected is None or found == expected:
        return
    same = set(found) == set(expected)
    other = next((b for a, b in zip(found, expected, strict=False) if a != b), expected[-1])
    what = "in another order" if same else f"other ones, with no {other!r} at its place"
    raise DataError(
        f"the columns of {whose} are {what} than those of the first table; give all tables the "
        "same columns, such as by x[columns]"
    )


def samples_of(x: Any, whose: str = "the samples") -> torch.Tensor:
    """Return samples (N, …) in float32; `whose` they are is said if they cannot be taken."""
    if hasattr(x, "toarray"):
        raise DataError(f"{whose} are sparse ({type(x).__name__}); give them as x.toarray()")
    x = x.values if isinstance(x, Table) else x
    samples = _from_table(x, whose) if hasattr(x, "to_numpy") else _from_array(x, whose)
    if samples.ndim < 2:
        raise DataError(
            f"{whose} have the shape {tuple(samples.shape)}, and must have one row for each "
            "sample; where a sample is a single number, give x.reshape(-1, 1)"
        )
    finite = torch.isfinite(samples)
    if not finite.all():
        row = int((~finite).nonzero()[0, 0])
        raise DataError(
            f"{whose} must be finite numbers; sample {row} has NaN or infinite ones (in float32): "
            "leave it out, or fill them in"
        )
    return samples


def _from_table(x: Any, whose: str) -> torch.Tensor:
    """Return the numbers of a table or column of pandas."""
    kinds = zip(x.columns, x.dtypes, strict=True) if hasattr(x, "columns") else [(x.name, x.dtype)]
    if wrong := [name for name, kind in kinds if getattr(kind, "kind", "O") not in "biuf"]:
        raise DataError(
            f"{whose} must be numbers, and these columns are not: "
            f"{', '.join(repr(name) for name in wrong[:5])}; encode them, or leave them out"
        )
    values = x.to_numpy(dtype=np.float64, na_value=np.nan)
    return _from_array(values, whose)


def _from_array(x: Any, whose: str) -> torch.Tensor:
    if isinstance(x, list | tuple) and any(isinstance(row, torch.Tensor) for row in x):
        x = _stacked(x, whose)
    if isinstance(x, torch.Tensor):
        if x.is_meta:
            raise DataError(f"{whose} are on the device meta, which has no numbers; give real ones")
        if x.is_complex() or x.is_quantized:
            raise DataError(f"{whose} must be real numbers, got {x.dtype}")
        dense = x.detach() if x.layout == torch.strided else x.detach().to_dense()
        return dense.to(device="cpu", dtype=torch.float32)
    if not isinstance(x, np.ndarray | list | tuple):
        raise DataError(
            f"{whose} must be a tensor, an array, a list or a table of numbers, got {_described(x)}"
        )
    try:
        array = np.asarray(x)
    except ValueError:
        raise DataError(f"{whose} must all have the same shape, and differ") from None
    if array.dtype.kind == "O":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError):
            raise DataError(f"{whose} must be numbers, got an array of objects") from None
    if array.dtype.kind not in "biuf":
        raise DataError(f"{whose} must be numbers, got an array of {array.dtype}")
    with np.errstate(over="ignore"):
        return torch.from_numpy(np.require(array, np.float32, ["C", "W"]))


def _pair(data: Any, who: str) -> tuple[Any, Any]:
    """Return what a peer gives as samples and as labels."""
    if isinstance(data, tuple | list) and len(data) == 2:
        return data[0], data[1]
    if isinstance(data, DataLoader):
        raise DataError(f"{who} gave a DataLoader; give the dataset in it (loader.dataset)")
    if isinstance(data, IterableDataset):
        raise DataError(
            f"{who} gave an IterableDataset ({type(data).__name__}), of which no minibatch can be "
            "drawn again; give a dataset with a length, or a pair (samples, labels)"
        )
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        return data.tensors[0], data.tensors[1]
    if isinstance(data, Dataset):
        return _read(data, who)
    raise DataError(
        f"{who}'s data must be a pair (samples, labels) or a torch Dataset of such pairs, "
        f"got {_described(data)}"
    )


def _read(dataset: Any, who: str) -> tuple[Any, Any]:
    """Return everything in a map-style dataset."""
    if not hasattr(dataset, "__len__"):
        raise DataError(
            f"{who}'s {type(dataset).__name__} has no length; give it one, or give a pair "
            "(samples, labels)"
        )
    samples, labels = [], []
    for place in range(len(dataset)):
        item = dataset[place]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise DataError(
                f"item {place} of {who}'s {type(dataset).__name__} must be a pair (sample, label), "
                f"got {_described(item)}"
            )
        if not isinstance(item[0], torch.Tensor | np.ndarray | np.generic | list | tuple | float):
            raise DataError(
                f"sample {place} of {who}'s {type(dataset).__name__} must be a tensor or an array, "
                f"got {_described(item[0])}; images need a transform that makes tensors of them"
            )
        samples.append(torch.as_tensor(np.asarray(item[0])))
        labels.append(item[1])
    return (_stacked(samples, f"{who}'s samples") if samples else torch.zeros(0, 1)), labels


def _stacked(rows: Any, whose: str) -> torch.Tensor:
    try:
        return torch.stack([torch.as_tensor(row) for row in rows])
    except (RuntimeError, TypeError, ValueError):
        raise DataError(f"{whose} must all have the same shape, and differ") from None


def _of(who: str, what: str) -> str:
    return f"{who}'s {what}" if who else f"the {what}"


def _described(value: Any) -> str:
    """Return what a value is, in a few words."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return f"one {type(value).__name__} of shape {tuple(value.shape)}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    text = repr(value)
    short = len(text) <= 40 and "\n" not in text
    return (
        text
        if short and isinstance(value, str | int | float | None)
        else (f"a {type(value).__name__}")
    )
