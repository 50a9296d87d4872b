"""What there is to say of samples before anything is done with them, for people to check."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pdlrecover.learning.classes import Labels
from pdlrecover.learning.intake import columns_of, samples_of
from pdlrecover.learning.reading.reading import Reading


@dataclass(frozen=True, kw_only=True)
class Range:
    """The numbers of one column, or of all of a sample."""

    name: str
    least: float
    mean: float
    most: float

    @property
    def is_constant(self) -> bool:
        """Whether all are the same."""
        return self.least == self.most


@dataclass(frozen=True, kw_only=True)
class Overview:
    """Samples and labels of one place, in numbers."""

    place: str
    samples: int
    shape: tuple[int, ...]
    """The shape of one sample."""
    classes: tuple[tuple[Hashable, int], ...]
    """Every class, with how many samples it has."""
    columns: tuple[str, ...] | None
    """The names of a table's columns."""
    ranges: tuple[Range, ...]
    """One for each column of samples that are flat, else one over all numbers."""

    @classmethod
    def of(
        cls,
        place: str,
        samples: torch.Tensor,
        labels: Labels,
        *,
        columns: Sequence[str] | None = None,
        classes: Sequence[Hashable] = (),
    ) -> "Overview":
        """Return the overview; `classes` are counted also where no sample is of them."""
        values = samples.numpy()
        flat = values if values.ndim == 2 else values.reshape(-1, 1)
        names = columns or [f"number {i}" for i in range(flat.shape[1])]
        names = names if values.ndim == 2 else ["all"]
        numbers = zip(
            names, flat.min(axis=0), flat.mean(axis=0, dtype=np.float64), flat.max(axis=0),
            strict=True,
        )  # fmt: skip
        return cls(
            place=place,
            samples=len(values),
            shape=tuple(values.shape[1:]),
            classes=_counted(labels, classes),
            columns=None if columns is None else tuple(columns),
            ranges=tuple(
                Range(name=name, least=float(least), mean=float(mean), most=float(most))
                for name, least, mean, most in numbers
            ),
        )

    @classmethod
    def of_reading(cls, reading: Reading) -> "Overview":
        """Return the overview of what was read, with labels as they were written."""
        columns = columns_of(reading.samples)
        samples = samples_of(reading.samples, f"the samples of {reading.place}")
        return cls.of(reading.place, samples, reading.labels, columns=columns)


def _counted(labels: Labels, classes: Sequence[Hashable]) -> tuple[tuple[Hashable, int], ...]:
    counts: dict[Any, int] = dict.fromkeys(classes, 0)
    if isinstance(labels, np.ndarray):
        values, found = np.unique(labels, return_counts=True)
        counts |= dict(zip(values.tolist(), found.tolist(), strict=True))
    else:
        for label in sorted(labels, key=str):
            counts[label] = counts.get(label, 0) + 1
    return tuple(counts.items())
