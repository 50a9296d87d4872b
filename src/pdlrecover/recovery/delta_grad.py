"""DeltaGrad (Wu, Dobriban & Davidson, ICML 2020), the central ancestor: replay the pooled gradient.

From ŵ_0 = w̄_0, for t = 0 … T−1 (Algorithm 1 there, for gradient descent):

1. Exact round, if t ≤ j₀ or (t − j₀) mod T₀ = 0: compute ∇F(ŵ_t) and, where ŵ_t ≠ w̄_t, add the pair
   ΔW = ŵ_t − w̄_t, ΔG = ∇F(ŵ_t) − ∇F(w̄_t). The last m are used.
2. Estimated round: ∇F(ŵ_t) ≈ ∇F(w̄_t) + B(ŵ_t − w̄_t), B by L-BFGS, as in `curvature`.
3. Step along it.

The safeguard for networks, from the paper's appendix (its extension to objectives that are not
strongly convex or not smooth):

4. A pair enters only where the objective is locally convex: ΔWᵀΔG > 0.
5. An estimated round is exact instead if ‖B(ŵ_t − w̄_t)‖ > L·‖ŵ_t − w̄_t‖, with L = 1.

What the paper leaves open, or differs in, and what is done here:

- *The pooled gradient* is Σ_K g, over the kept peers alone. The paper stores only the sum over all
  data, and subtracts the removed samples' gradients, computed at every ŵ_t: here those who hold
  them are gone, and the kept peers' own sum is in the history.
- *Minibatches* are those of the original rounds, as in the paper's SGD variant.
- *B and L* are about the mean gradient, as in the paper: B's product is divided by Σ_K α before it
  is compared.
- *What an exact round that the safeguard asked for changes*: it adds its pair, and the plan of the
  others stays.
- *Without pairs*, or where an estimate is not finite or has no solution, a round is exact.
- *The optimiser* is the run's own, where the paper has (S)GD; no metric, no damping.
- *Short runs*: j₀ is at most a quarter of the run.
- *Void rounds* of the original run are passed over, exact rounds that are void change nothing, and
  where a stored sum is void there is neither an estimate nor a pair.

Only sums are asked for: fresh ones, and stored ones both for pairs and for estimates. The pairs are
thereby open, which PDLRecover avoids.
"""

from dataclasses import dataclass

import numpy as np

from pdlrecover.recovery.curvature import OpenedCurvature
from pdlrecover.recovery.requests import Method, Original, Stepped, Sum, Vector, past, update
from pdlrecover.recovery.same_bits import dot, norm
from pdlrecover.recovery.schedule import Schedule


@dataclass(frozen=True, kw_only=True)
class DeltaGradOptions:
    """DeltaGrad's constants."""

    burn_in: int = 20
    """j₀: the last round of the burn-in."""
    period: int = 5
    """T₀."""
    buffer: int = 2
    """m."""
    smoothness: float = 1.0
    """L: an estimate may change the mean gradient by this times the displacement."""
    safeguard: bool = True
    """Whether steps 4 and 5 are taken."""

    def __post_init__(self) -> None:
        self.schedule(rounds=4)  # which refuses what it cannot be

    def schedule(self, rounds: int) -> Schedule:
        """Return which of `rounds` rounds are exact."""
        burn_in = max(1, min(self.burn_in, rounds // 4))
        return Schedule(preparation=burn_in + 1, period=self.period, final=0, buffer=self.buffer)


def delta_grad(run: Original, options: DeltaGradOptions | None = None) -> Method:
    """Recover the model; yields requests, returns ŵ_T."""
    options = options or DeltaGradOptions()
    schedule = options.schedule(run.rounds)
    curvature = OpenedCurvature(size=schedule.buffer)
    stepper = run.optimizer.start()
    model = run.models[0].copy()
    for t in range(run.rounds):
        if t in run.void:
            yield Stepped(round=t, model=model, exact=False, void=True)
            continue
        v = model - run.models[t]
        mean, stored, planned = None, None, schedule.is_exact(t, run.rounds)
        if curvature.displacements and not planned:
            stored = yield from past(t)
            mean = None if stored is None else _estimate(curvature, stored, v, options)
        exact = mean is None
        if mean is None:
            fresh = yield from update(t, model)
            if fresh is None:
                yield Stepped(round=t, model=model, exact=True, void=True)
                continue
            mean = fresh.mean
            if v.any():
                stored = stored or (yield from past(t))
                difference = None if stored is None else fresh.values - stored.values
                if difference is not None and (not options.safeguard or dot(v, difference) > 0):
                    curvature.add(v, difference)
        model = stepper.step(model, mean)
        yield Stepped(round=t, model=model, exact=exact, fallback=exact and not planned)
    return model


def _estimate(
    curvature: OpenedCurvature, stored: Sum, v: Vector, options: DeltaGradOptions
) -> Vector | None:
    """Return the mean update at w̄ + v, or None if it cannot be had or is not to be trusted."""
    with np.errstate(over="ignore", invalid="ignore"):
        product = curvature.product(v, None, 1.0)
        if product is None:
            return None
        if options.safeguard:
            change = norm(product) / stored.weight
            if not change <= options.smoothness * norm(v):
                return None
        mean: Vector = (stored.values + product) / stored.weight
    return mean if np.isfinite(mean).all() else None
