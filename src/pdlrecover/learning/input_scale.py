"""A public scale of inputs: x is mapped to (x − m)/s before a model sees it.

Rules:

- m and s are double precision, and so is the map; its result is rounded to float32. Operations are
  elementwise: a sample is mapped to the same bits on every machine, alone or among others.
- In a model's file m and s are two tensors beside the weights. So a program that does not know of
  them meets tensors that it did not expect, instead of feeding inputs of another scale.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from pdlrecover.errors import DataError, ModelError

MEAN, DEVIATION = "pdlrecover.input_mean", "pdlrecover.input_std"
"""Names of the tensors in a model's file."""


@dataclass(frozen=True, kw_only=True, eq=False)
class InputScale:
    """Means and standard deviations, in a shape that fits a sample."""

    mean: NDArray[np.float64]
    """m."""
    std: NDArray[np.float64]
    """s."""
    _mean: torch.Tensor = field(init=False, repr=False)
    _std: torch.Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        fits = self.mean.shape == self.std.shape
        if not (fits and np.isfinite(self.mean).all() and (self.std > 0).all()):
            raise ModelError(
                "inputs are standardised by finite means and as many deviations above 0, got "
                f"shapes {self.mean.shape} and {self.std.shape}, with the least deviation "
                f"{self.std.min() if self.std.size else None}"
            )
        for name in ("mean", "std"):
            object.__setattr__(self, f"_{name}", torch.from_numpy(getattr(self, name).copy()))

    @classmethod
    def of(cls, vector: NDArray[np.float64], shape: tuple[int, ...]) -> Self:
        """Return the scale of a vector: means, then deviations, each to be put in this shape."""
        mean, std = vector.reshape(2, *shape)
        return cls(mean=mean.copy(), std=std.copy())

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return samples (…, *shape) on the scale."""
        scaled = ((x.double() - self._mean) / self._std).float()
        if scaled.shape != x.shape:  # a single feature, say, would become as many as there are
            raise DataError(
                f"samples are standardised by means of shape {self.mean.shape}, got samples of "
                f"shape {tuple(x.shape[1:])}; prepare them as in the training"
            )
        return scaled

    @property
    def digest(self) -> str:
        """SHA-256 of means and deviations: the same at all peers."""
        content = np.concatenate([self.mean.ravel(), self.std.ravel()]).astype("<f8").tobytes()
        return hashlib.sha256(content).hexdigest()

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """What a model's file has of it."""
        return {MEAN: torch.from_numpy(self.mean), DEVIATION: torch.from_numpy(self.std)}

    @classmethod
    def taken_from(cls, tensors: dict[str, torch.Tensor]) -> Self | None:
        """Take it out of the tensors of a file; None if there is none."""
        mean, std = (tensors.pop(name, None) for name in (MEAN, DEVIATION))
        if mean is None and std is None:
            return None
        if mean is None or std is None or {mean.dtype, std.dtype} != {torch.float64}:
            raise ModelError(
                f"a standardised model's file has {MEAN} and {DEVIATION} in double precision; this "
                "one is damaged: get it again from where it was saved"
            )
        return cls(mean=mean.numpy(), std=std.numpy())
