"""FedRecovery (L. Zhang, T. Zhu, H. Zhang, P. Xiong, W. Zhou, IEEE TIFS 18, 2023): no retraining.

    ŵ = w̄_T − Σ_t p_t δ_t + N(0, σ²·I)                       (its unlearning algorithm)

1. The *residual* of round t is what the removed peer c of n added to the step of that round:
   δ_t = η/n · (mean of the others' gradients − its own) = −η/(n−1) · (its own − the mean of all).
   Both are the step along the mean over all, minus the step along the mean over the others.
2. p_t = ‖ḡ_t‖² / Σ_τ ‖ḡ_τ‖² with ḡ_t the mean gradient over all: the weights sum to 1.
3. σ = (dist/√2) / (√(ln 1/β + ε) − √(ln 1/β)): then N(a, σ²·I) and N(b, σ²·I) cannot be told apart,
   up to (ε, β), while ‖a − b‖ ≤ dist. It solves ε = dist²/(2σ²) + (dist/σ)·√(2 ln 1/β).

What the paper leaves open, or what was changed:

- *Several removed peers, and weights.* With P removed, δ_t = −η·(mean over all − mean over K)
  = −η·(α_P/α_K)·(mean over P − mean over all); the means are weighted, and α_P, α_K are sums of
  weights. For one peer of n with equal weights α_P/α_K is the 1/(n−1) above.
- *The sign.* δ_t is a residual of steps, which go against the gradient. With a residual of
  gradients in its place, the minus sign would add once more what the removed peers did.
- *Other optimisers.* The learning rate is the run's own in each round. Where the run used momentum
  or Adam, δ_t is the residual of the actual steps: w̄_{t+1} − w̄_t, minus the step that the same
  optimiser takes when it is fed the kept peers' stored means from the first round on, with a state
  of its own. For plain SGD that is the formula above. In all cases Σ_t δ_t = w̄_T − w^hist, with
  w^hist what `historical` returns; as the p_t sum to 1, only about one round's worth of it is
  taken out.
- *Which gradients.* The minibatch gradients as they were dealt, clipped. The sums go over all T
  rounds but those that are void.
- *dist.* The paper bounds it by constants of smoothness, which nobody knows of a network. Here it
  is given (`Noise.distance`), or estimated by ‖Σ_t (1 − p_t) δ_t‖: how far ŵ, before the noise, is
  from w^hist, where retraining would end if gradients did not depend on the model. That is an
  estimate and no bound; with it, (ε, β) describes the noise and guarantees nothing.
- *ε and β* are 1 and 1e-5. The paper's guarantee compares with a retrained model that was given
  the same noise; `retrain` is given none.
- *The noise* is drawn as `noise` says: from the operating system, unless a source is passed in.

It opens, of every round, the kept peers' stored sum and the removed peers'. Nobody computes a
gradient.
"""

import math
from dataclasses import dataclass

import numpy as np

from pdlrecover.errors import PlanError
from pdlrecover.field import Source, SystemSource
from pdlrecover.recovery.noise import gaussian
from pdlrecover.recovery.requests import Method, Original, Removed, Stepped, Sum, past
from pdlrecover.recovery.same_bits import dot, norm


@dataclass(frozen=True, kw_only=True)
class Noise:
    """How indistinguishable from retraining the result is to be."""

    epsilon: float = 1.0
    """ε."""
    beta: float = 1e-5
    """β."""
    distance: float | None = None
    """dist: a bound on the distance to retraining, if you have one; else it is estimated."""

    def __post_init__(self) -> None:
        if not (0 < self.epsilon < math.inf and 0 < self.beta < 1):
            raise PlanError(
                f"noise needs 0 < epsilon < ∞ and 0 < beta < 1, got {self.epsilon} and {self.beta}"
            )
        if self.distance is not None and not 0 <= self.distance < math.inf:
            raise PlanError(f"a distance must be finite and not negative, got {self.distance}")

    def deviation(self, estimate: float) -> float:
        """Return σ, for the distance that was given or else for this estimate of it."""
        distance = estimate if self.distance is None else self.distance
        log = math.log(1 / self.beta)
        # √(log + ε) − √log, without taking the difference of nearly equal numbers.
        gap = self.epsilon / (math.sqrt(log + self.epsilon) + math.sqrt(log))
        return distance / math.sqrt(2) / gap


def fed_recovery(run: Original, noise: Noise | None = None, source: Source | None = None) -> Method:
    """Take the removed peers' weighted residuals out of w̄_T; add noise if it is asked for."""
    stepper = run.optimizer.start()
    weighted = np.zeros_like(run.models[0])
    plain = np.zeros_like(weighted)
    weights = 0.0
    for t in range(run.rounds):
        kept = yield from past(t)
        removed: Sum | None = yield Removed(rounds=(t,))
        if kept is None or removed is None:
            continue
        everybody = (kept.values + removed.values) / (kept.weight + removed.weight)
        residual = run.models[t + 1] - stepper.step(run.models[t], kept.mean)
        weight = dot(everybody, everybody)
        weighted += weight * residual
        plain += residual
        weights += weight
    taken_out = weighted / weights if weights > 0 else weighted
    model = run.models[-1] - taken_out
    if noise is not None:
        deviation = noise.deviation(norm(plain - taken_out))
        model = model + deviation * gaussian(source or SystemSource(), model.size)
    yield Stepped(round=run.rounds - 1, model=model, exact=False)
    return model
