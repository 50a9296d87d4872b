"""Triggers of backdoors: a pattern stamped on samples.

Rules:

- A trigger returns fresh samples; those it was given stay as they are.
- Patterns are set in the original units of the data, while samples are centred: what is stamped
  at a place is value − mean there.
- The parts of a split trigger are disjoint, nearly equal, and the whole trigger together.
"""

from dataclasses import dataclass
from typing import Protocol

import torch

from pdlrecover.errors import AttackError
from pdlrecover.learning import Dataset


class Trigger(Protocol):
    """Something that stamps samples (…, *shape)."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return the samples with the pattern on them."""


class Divisible(Trigger, Protocol):
    """A trigger that attackers can divide among themselves."""

    def split(self, parts: int) -> torch.Tensor:
        """Return which places each part sets, as booleans (parts, *shape)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Stripes:
    """Full-width bright horizontal stripes on images (channels, height, width).

    In colour images only the red channel, the first of three, is set: the stripes are red.
    """

    rows: tuple[int, ...]
    """The rows of pixels that are set."""
    mean: torch.Tensor
    """What was subtracted from the images, (channels, height, width)."""
    brightness: float = 1.0

    def __post_init__(self) -> None:
        if self.mean.ndim != 3:
            raise AttackError(f"stripes need images, got samples of shape {(*self.mean.shape,)}")
        height = self.mean.shape[1]
        if not self.rows or min(self.rows) < 0 or max(self.rows) >= height:
            raise AttackError(f"stripes need rows from 0 to {height - 1}, got {self.rows}")

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return the images with the stripes on them."""
        stamped = x.clone()
        for row in self.rows:
            stamped[..., : self._channels, row, :] = (
                self.brightness - self.mean[: self._channels, row]
            )
        return stamped

    def split(self, parts: int) -> torch.Tensor:
        """Cut the stripes, laid end to end, into segments of equal length."""
        rows, width = sorted(set(self.rows)), self.mean.shape[2]
        pixels = torch.arange(len(rows) * width)
        _check_parts(parts, len(pixels))
        part = (pixels * parts // len(pixels)).view(len(rows), width)
        masks = torch.zeros(parts, *self.mean.shape, dtype=torch.bool)
        masks[:, : self._channels, rows] = (part == _numbers(parts, 2)).unsqueeze(1)
        return masks

    @property
    def _channels(self) -> int:
        return 1 if len(self.mean) == 3 else len(self.mean)


@dataclass(frozen=True, kw_only=True, eq=False)
class EveryNth:
    """Every `step`-th number of a sample is 0 in original units: the 20th, the 40th and so on."""

    step: int = 20
    mean: torch.Tensor
    """What was subtracted from the samples, of their shape."""

    def __post_init__(self) -> None:
        if not 1 <= self.step <= self.mean.numel():
            raise AttackError(
                f"of {self.mean.numel()} numbers every 1st to every {self.mean.numel()}th can be "
                f"set, got step={self.step}"
            )

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return the samples with those numbers set."""
        axes = self.mean.ndim
        stamped = x.flatten(x.ndim - axes).clone()
        stamped[..., self.step - 1 :: self.step] = -self.mean.flatten()[self.step - 1 :: self.step]
        return stamped.view(x.shape)

    def split(self, parts: int) -> torch.Tensor:
        """Give the numbers that are set to the parts in turn."""
        numbers = torch.arange(self.mean.numel() // self.step)
        _check_parts(parts, len(numbers))
        masks = torch.zeros(parts, self.mean.numel(), dtype=torch.bool)
        masks[:, self.step - 1 :: self.step] = numbers % parts == _numbers(parts, 1)
        return masks.view(parts, *self.mean.shape)


def trigger_for(dataset: Dataset) -> Divisible:
    """Return the usual trigger: stripes on images, else every 20th feature.

    An image of height h gets two stripes of ⌈h/28⌉ rows, at a quarter and three quarters of its
    height: rows 7 and 21 of 28, 2 and 6 of 8.
    """
    if len(dataset.shape) != 3:
        return EveryNth(mean=dataset.mean)
    height = dataset.shape[1]
    thickness = -(-height // 28)
    tops = (height // 4, 3 * height // 4)
    rows = {top + i for top in tops for i in range(thickness) if top + i < height}
    return Stripes(rows=tuple(sorted(rows)), mean=dataset.mean)


def _numbers(parts: int, axes: int) -> torch.Tensor:
    """Return 0, 1, … parts − 1, with `axes` further axes to compare with."""
    return torch.arange(parts).view(-1, *[1] * axes)


def _check_parts(parts: int, places: int) -> None:
    if not 1 <= parts <= places:
        raise AttackError(
            f"the trigger sets {places} places, so that it can be split into 1 to {places} parts; "
            f"got {parts}"
        )
