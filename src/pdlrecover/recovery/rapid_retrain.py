"""Rapid retraining (Liu, Xu, Yuan, Wang & Li, INFOCOM 2022): steps divided by the Fisher diagonal.

From w̄_0, for t = 1 … K, with g_t the kept peers' mean gradient at ŵ:

1. Γ_t = g_t∘g_t, the diagonal of the empirical Fisher information, which stands in for that of the
   Hessian; averaged over blocks of b = 3 neighbours.
2. Momentum of both, as in AdaHessian: m_t = β₁m_{t−1} + (1 − β₁)g_t and
   v_t = β₂v_{t−1} + (1 − β₂)Γ_t∘Γ_t, each divided by 1 − β^t; β₁ = 0.9, β₂ = 0.999.
3. ŵ ← ŵ − η·m̂_t/(√v̂_t + λ).

What the paper leaves open, or differs in, and what is done here:

- *Which Fisher*: the paper's is the mean over samples of squared gradients. Here only the sum over
  the kept peers is opened, so it is the square of their mean gradient: smaller, by up to the number
  of samples in a round where these gradients are mostly noise, and of the same size where they
  agree. Each kept peer's own Fisher could be dealt like its update, at twice the traffic.
- *One public optimiser* steps along the opened mean, where in the paper every peer steps by itself
  with its own Fisher and the models are averaged.
- *λ*: the paper has none, and divides by a diagonal that may be arbitrarily small. Without it one
  coordinate that no sample excites makes the first step infinite.
- *η* = 0.001 is the paper's. *λ* and *K* were set on digits.
- *A whole peer* leaves here; in the paper some samples of a peer, which takes part in retraining.

It opens K fresh sums, and nothing of the history.
"""

from dataclasses import dataclass

import numpy as np

from pdlrecover.errors import PlanError
from pdlrecover.recovery.requests import Method, Original, Vector
from pdlrecover.recovery.retrain import train


@dataclass(frozen=True, kw_only=True)
class RapidOptions:
    """The constants of rapid retraining."""

    rounds: int = 50
    """K."""
    rate: float = 1e-3
    """η."""
    damping: float = 1e-4
    """λ."""
    block: int = 3
    """b."""
    beta1: float = 0.9
    """β₁: of the gradient."""
    beta2: float = 0.999
    """β₂: of the Fisher information."""

    def __post_init__(self) -> None:
        if not (self.rounds >= 1 and self.block >= 1 and self.rate > 0 and self.damping > 0):
            raise PlanError(
                "rapid retraining needs rounds and block of at least 1, rate and damping above 0; "
                f"got {self.rounds}, {self.block}, {self.rate} and {self.damping}"
            )
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1):
            raise PlanError(
                "rapid retraining's beta1 and beta2 are shares from 0 to below 1, got "
                f"{self.beta1} and {self.beta2}"
            )

    def start(self) -> "_FisherSteps":
        """Return the optimiser in its first state."""
        return _FisherSteps(self)


def rapid_retrain(run: Original, options: RapidOptions | None = None) -> Method:
    """Retrain for K exact rounds."""
    options = options or RapidOptions()
    return train(run.models[0], options, range(options.rounds))


class _FisherSteps:
    def __init__(self, options: RapidOptions) -> None:
        self._options = options
        self._m: Vector | float = 0.0
        self._v: Vector | float = 0.0
        self._decay1 = self._decay2 = 1.0

    def step(self, model: Vector, mean: Vector) -> Vector:
        o = self._options
        self._decay1 *= o.beta1
        self._decay2 *= o.beta2
        fisher = blocked(mean * mean, o.block)
        self._m = o.beta1 * self._m + (1 - o.beta1) * mean
        self._v = o.beta2 * self._v + (1 - o.beta2) * (fisher * fisher)
        root: Vector = np.sqrt(self._v / (1 - self._decay2))
        return model - o.rate * (self._m / (1 - self._decay1)) / (root + o.damping)

    def metric(self, epsilon: float) -> Vector | None:
        return None


def blocked(x: Vector, size: int) -> Vector:
    """Return x with every `size` neighbours replaced by their mean; the last may be fewer."""
    starts = range(0, len(x), size)
    counts = np.full(len(starts), float(size))
    counts[-1] = len(x) - starts[-1]
    padded = np.zeros(len(starts) * size)
    padded[: len(x)] = x
    rows = padded.reshape(-1, size)
    total = rows[:, 0].copy()
    for column in range(1, size):
        total += rows[:, column]
    return np.repeat(total / counts, size)[: len(x)]
