"""Server optimisers: how a mean update becomes a step. Public, and the same bits everywhere.

Training steps through one, and recovery replays the same one from its own updates. Powers of β are
running products, since a library's `pow` may differ in the last bit between machines.
"""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from pdlrecover.errors import PlanError, Setting
from pdlrecover.layers import Layer
from pdlrecover.recovery.orthogonal import orthogonalised
from pdlrecover.recovery.requests import Optimizer, Vector


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A learning rate: linear warm-up, a plateau, then linear to zero."""

    peak: float
    warmup: int = 0
    """Rounds until the peak is reached."""
    hold: float = 1.0
    """The share of the rounds until which the peak is held; 1 holds it for ever."""
    rounds: int = 0
    """The rounds in all; needed if the peak is not held for ever."""

    def __post_init__(self) -> None:
        if not self.peak > 0 or not np.isfinite(self.peak):
            raise PlanError(
                Setting("learning_rate"), f" must be positive and finite, got {self.peak}"
            )
        if self.hold < 1 and self.rounds < 1:
            raise PlanError("a learning rate that falls to zero needs to know the rounds in all")

    def at(self, t: int) -> float:
        """Return the rate of round t."""
        rate = self.peak
        if t < self.warmup:
            rate *= (t + 1) / self.warmup
        end = self.hold * self.rounds
        if self.hold < 1 and t > end:
            rate *= max(0.0, (self.rounds - t) / (self.rounds - end))
        return rate


@dataclass(frozen=True, kw_only=True)
class SGD:
    """w ← w − γ·m with m ← μ·m + g; plain SGD when the momentum μ is 0."""

    rate: Rate
    momentum: float = 0.0

    def start(self) -> "_SGDSteps":
        """Return the optimiser in its first state."""
        return _SGDSteps(self)


class _SGDSteps:
    def __init__(self, config: SGD) -> None:
        self._config = config
        self._t = 0
        self._velocity: Vector | None = None

    def step(self, model: Vector, mean: Vector) -> Vector:
        if self._config.momentum:
            carried = 0.0 if self._velocity is None else self._config.momentum * self._velocity
            self._velocity = mean = carried + mean
        rate = self._config.rate.at(self._t)
        self._t += 1
        return model - rate * mean

    def metric(self, epsilon: float) -> Vector | None:
        return None


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Kingma & Ba 2015: w ← w − γ·m̂/(√v̂ + ε)."""

    rate: Rate
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def start(self) -> "_AdamSteps":
        """Return the optimiser in its first state."""
        return _AdamSteps(self)


class _AdamSteps:
    def __init__(self, config: Adam) -> None:
        self._config = config
        self._t = 0
        self._m: Vector | float = 0.0
        self._v: Vector | float = 0.0
        self._decay1 = self._decay2 = 1.0

    def step(self, model: Vector, mean: Vector) -> Vector:
        c = self._config
        self._decay1 *= c.beta1
        self._decay2 *= c.beta2
        self._m = c.beta1 * self._m + (1 - c.beta1) * mean
        self._v = c.beta2 * self._v + (1 - c.beta2) * (mean * mean)
        ahead = self._m / (1 - self._decay1)
        rate = c.rate.at(self._t)
        self._t += 1
        return model - rate * ahead / (np.sqrt(self._v / (1 - self._decay2)) + c.epsilon)

    def metric(self, epsilon: float) -> Vector | None:
        if isinstance(self._v, float):
            return None
        root: Vector = np.sqrt(self._v / (1 - self._decay2)) + epsilon
        return root


@dataclass(frozen=True, kw_only=True)
class Muon:
    """Jordan et al. 2024: w ← w − γ·U(N), with N = μm + (1 − μ)g and m ← μm + (1 − μ)g.

    U orthogonalises each layer: see `orthogonal`.
    """

    rate: Rate
    layers: tuple[Layer, ...] = field(default=(), repr=False)
    """They cover the vector of weights."""
    momentum: float = 0.6
    gain: float | None = None
    """How many times small singular values are lifted at most; None: as far as can be."""

    def __post_init__(self) -> None:
        if self.gain is not None and not 1 <= self.gain < np.inf:
            raise PlanError(f"the gain of muon must be at least 1 and finite, got {self.gain}")

    def start(self) -> "_MuonSteps":
        """Return the optimiser in its first state."""
        if not self.layers:
            raise PlanError("muon needs to know the model's layers (layers=…)")
        return _MuonSteps(self)


class _MuonSteps:
    def __init__(self, config: Muon) -> None:
        self._config = config
        self._t = 0
        self._m: Vector | float = 0.0

    def step(self, model: Vector, mean: Vector) -> Vector:
        mu = self._config.momentum
        self._m = mu * self._m + (1 - mu) * mean
        ahead = mu * self._m + (1 - mu) * mean
        rate = self._config.rate.at(self._t)
        self._t += 1
        return model - rate * orthogonalised(ahead, self._config.layers, self._config.gain)

    def metric(self, epsilon: float) -> Vector | None:
        return None


KINDS: dict[str, type[SGD] | type[Adam] | type[Muon]] = {"SGD": SGD, "Adam": Adam, "Muon": Muon}
"""What can be saved."""


def build(
    name: str, learning_rate: float | None, *, rounds: int, layers: tuple[Layer, ...] = ()
) -> Optimizer:
    """Return the optimiser of this name: sgd, momentum (0.9), adam or muon.

    Without a learning rate it has a usual one. That of muon falls to zero over the rounds.
    """
    usual = 0.04 if name == "muon" else 0.1
    rate = Rate(peak=usual if learning_rate is None else learning_rate)
    known: dict[str, Optimizer] = {
        "sgd": SGD(rate=rate),
        "momentum": SGD(rate=rate, momentum=0.9),
        "adam": Adam(rate=rate),
        "muon": Muon(rate=replace(rate, hold=0.0, rounds=max(1, rounds)), layers=layers),
    }
    if name not in known:
        raise PlanError(
            f"no optimizer is called {name!r}; there are {', '.join(known)} (",
            Setting("optimizer"),
            ")",
        )
    return known[name]


def as_record(optimizer: Optimizer) -> dict[str, Any]:
    """Return an optimiser of this file as plain values."""
    kind = type(optimizer).__name__
    if KINDS.get(kind) is not type(optimizer):
        raise PlanError(f"only {', '.join(KINDS)} can be saved, got {kind}")
    return {"kind": kind, **asdict(optimizer)}


def from_record(record: dict[str, Any]) -> Optimizer:
    """Return the optimiser that `as_record` wrote down."""
    values = dict(record)
    kind, rate = KINDS[values.pop("kind")], Rate(**values.pop("rate"))
    if "layers" in values:
        values["layers"] = tuple(Layer(**layer) for layer in values["layers"])
    return kind(rate=rate, **values)
