"""Updates crafted from statistics of the honest ones, so as to harm and still look honest.

Rules:

- Statistics are over plain gradients, each honest peer counting once, whatever its weight.
- Means and deviations are per coordinate; the deviation is that of the population: divided by the
  count, not by one less.
- Distances are between whole updates, never per coordinate.
- What is random is drawn for every attacker and coordinate by itself.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pdlrecover.adversary.attack import Attack, Context
from pdlrecover.adversary.simple_attacks import require_finite
from pdlrecover.errors import AttackError

Real = NDArray[np.float32]
Direction = Literal["std", "unit", "sign"]

_BLOCK = 1024
"""Coordinates at a time: all peers' together stay in the processor's cache."""

_may_have_diverged = np.errstate(invalid="ignore", over="ignore")
"""Honest updates that are not finite stop the round afterwards, with a better word."""


@dataclass(frozen=True, kw_only=True)
class Trim(Attack):
    """Go beyond every honest value, against the direction in which the honest move.

    M. Fang et al., "Local model poisoning attacks to Byzantine-robust federated learning", 2020,
    against the trimmed mean, with full knowledge. Per coordinate, with the honest values' sum s,
    minimum lo and maximum hi, and r uniform in (1, b]:

        s > 0:  g = r·lo if lo < 0, else lo/r    (below the minimum)
        s < 0:  g = r·hi if hi > 0, else hi/r    (above the maximum)

    and 0 where s = 0. The paper has local models where we have gradients, the direction of all
    peers' sum where we take that of the honest, and b = 2.
    """

    factor: float = 2.0
    """b."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.factor) and self.factor > 1):
            raise AttackError(f"factor must be finite and more than 1, got {self.factor}")

    @_may_have_diverged
    def corrupt(self, updates: Tensor, benign: Tensor, context: Context) -> Tensor:
        """Return values beyond the honest ones, on the wrong side."""
        _require_honest(benign)
        total = benign.sum(0).numpy()
        extreme = np.where(total > 0, benign.amin(0).numpy(), benign.amax(0).numpy())
        extreme[total == 0] = 0
        values: Real = context.generator.random(tuple(updates.shape), dtype=np.float32)
        np.subtract(self.factor, (self.factor - 1) * values, out=values, casting="same_kind")
        towards_zero = np.flatnonzero(extreme * np.sign(total) > 0)
        values[:, towards_zero] = 1 / values[:, towards_zero]
        values *= extreme
        return torch.from_numpy(values)


@dataclass(frozen=True, kw_only=True)
class PartialTrim(Attack):
    """Trim by attackers who know nothing but their own honest updates.

    M. Fang et al., 2020, with partial knowledge: from the mean μ and the deviation σ of the
    attackers' updates, per coordinate, and k = `deviations` = 3,

        μ > 0:  g uniform in [μ − (k+1)·σ, μ − k·σ]
        μ < 0:  g uniform in [μ + k·σ, μ + (k+1)·σ]

    and 0 where μ = 0. A single attacker has σ = 0 and stays honest.
    """

    reads_others = False
    deviations: float = 3.0
    """k."""

    def __post_init__(self) -> None:
        require_finite("deviations", self.deviations)

    @_may_have_diverged
    def corrupt(self, updates: Tensor, benign: Tensor, context: Context) -> Tensor:
        """Return values some deviations off, on the wrong side."""
        mean, std = moments(updates)
        values: Real = context.generator.random(tuple(updates.shape), dtype=np.float32)
        values += np.float32(self.deviations)
        values *= -np.sign(mean) * std
        values += mean
        return torch.from_numpy(values)


@dataclass(frozen=True, kw_only=True)
class LittleIsEnough(Attack):
    """LIE: stay so near to the mean that more than half of the peers look no better.

    G. Baruch et al., "A little is enough: circumventing defenses for distributed learning", 2019:
    all attackers claim, per coordinate,

        g = μ − z·σ

    with the honest updates' mean μ and deviation σ, and z = `largest_z` of the peers in the
    round unless it is given. The paper estimates μ and σ from the attackers' own updates; here
    they are the honest ones', which is full knowledge.
    """

    z: float | None = None

    def __post_init__(self) -> None:
        if self.z is not None:
            require_finite("z", self.z)

    @_may_have_diverged
    def corrupt(self, updates: Tensor, benign: Tensor, context: Context) -> Tensor:
        """Return μ − z·σ for every attacker."""
        _require_honest(benign)
        z = largest_z(len(updates) + len(benign), len(updates)) if self.z is None else self.z
        mean, std = moments(benign)
        return torch.from_numpy(mean - np.float32(z) * std).expand(len(updates), -1)


def largest_z(peers: int, malicious: int) -> float:
    """Return how many deviations off the mean m of n peers may be, by the rule of LIE.

    They need s = ⌊n/2 + 1⌋ − m honest peers who are farther from the mean than they are, to be in
    the majority: z = Φ⁻¹((n − m − s)/(n − m)). Few attackers have no room, and get 0.
    """
    honest = peers - malicious
    supporters = peers // 2 + 1 - malicious
    if supporters <= 0:
        raise AttackError(
            f"{malicious} of {peers} peers are a majority, to whom any z is allowed; give z"
        )
    nearer = (honest - supporters) / honest
    return NormalDist().inv_cdf(nearer) if nearer > 0.5 else 0.0


@dataclass(frozen=True, kw_only=True)
class MinMax(Attack):
    """Go as far as the honest are apart.

    V. Shejwalkar and A. Houmansadr, "Manipulating the Byzantine", 2021, with full knowledge: all
    attackers claim

        g = μ + γ·p,  p = −σ ("std"), −μ/‖μ‖ ("unit") or −sign(μ) ("sign"),

    with the honest updates' mean μ and deviation σ, and the largest γ such that

        max_i ‖g − gᵢ‖ ≤ max_{i,j} ‖gᵢ − gⱼ‖.

    The paper tries all three directions and searches γ by halving steps. Each ‖g − gᵢ‖² is a
    quadratic in γ, so that γ is the least of their larger roots: what such a search converges to.
    """

    direction: Direction = "std"

    def __post_init__(self) -> None:
        if self.direction not in get_args(Direction):
            raise AttackError(
                f"the direction is one of {', '.join(get_args(Direction))}, got {self.direction!r}"
            )

    @_may_have_diverged
    def corrupt(self, updates: Tensor, benign: Tensor, context: Context) -> Tensor:
        """Return μ + γ·p for every attacker."""
        _require_honest(benign)
        rows: Real = benign.numpy()
        mean, towards = np.empty((2, rows.shape[1]), dtype=np.float32)
        gram, along, length = np.zeros((len(rows), len(rows))), np.zeros(len(rows)), 0.0
        for at in _blocks(rows.shape[1]):
            mean[at], centred = _centred(rows[:, at])
            towards[at] = p = self._towards(mean[at], centred)
            gram += centred @ centred.T
            along += centred @ p
            length += float(p @ p)
        if length == 0:
            return torch.from_numpy(mean).expand(len(updates), -1)
        squares = np.diag(gram)
        farthest = (squares[:, None] + squares - 2 * gram).max()
        # ‖g − gᵢ‖² = ‖gᵢ − μ‖² − 2γ·p·(gᵢ − μ) + γ²‖p‖², and at γ = 0 it is below the bound.
        slope = along / length
        room = np.maximum(farthest - squares, 0) / length
        gamma = (slope + np.sqrt(slope * slope + room)).min()
        return torch.from_numpy(mean + np.float32(gamma) * towards).expand(len(updates), -1)

    def _towards(self, mean: Real, centred: Real) -> Real:
        """Return p at some coordinates, up to a factor that γ makes up for."""
        if self.direction == "std":
            return -_deviation(centred)
        return -mean if self.direction == "unit" else -np.sign(mean)


def moments(updates: Tensor) -> tuple[Real, Real]:
    """Return mean and deviation of updates (k, d), per coordinate."""
    rows: Real = updates.numpy()
    mean, std = np.empty((2, rows.shape[1]), dtype=np.float32)
    for at in _blocks(rows.shape[1]):
        mean[at], centred = _centred(rows[:, at])
        std[at] = _deviation(centred)
    return mean, std


def _blocks(width: int) -> Iterator[slice]:
    return (slice(start, start + _BLOCK) for start in range(0, width, _BLOCK))


def _centred(rows: Real) -> tuple[Real, Real]:
    mean = rows.mean(axis=0)
    return mean, rows - mean


def _deviation(centred: Real) -> Real:
    deviation: Real = np.sqrt(np.einsum("ij,ij->j", centred, centred) / len(centred))
    return deviation


def _require_honest(benign: Tensor) -> None:
    if not len(benign):
        raise AttackError(
            "this attack looks at honest updates, and every peer is malicious; leave one honest"
        )
