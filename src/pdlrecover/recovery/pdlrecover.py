"""PDLRecover (Li et al.), corrected: replay the run without the removed peers.

From ŵ_0 = w̄_0, for t = 0 … T−1:

1. Exact round (planned, or asked for by the guard): open Σ_K g(ŵ_t). Before the final rounds, and
   where ŵ_t ≠ w̄_t, it adds the pair ΔW = ŵ_t − w̄_t (public), ΔG = Σ_K g(ŵ_t) − Σ_K g(w̄_t) (shared).
2. Estimated round: step along ĝ_t = Σ_K g(w̄_t) + H̃(ŵ_t − w̄_t), with H̃v as in `curvature`.
3. Step: the run's own server optimiser, from its first state, along ĝ_t / Σ_K α.

Two modes, and in both only the sum over a *block* of k estimated rounds is opened:

- *Shared*: the pairs stay shared. At the first round t of a block, Σ_τ Σ_K g(w̄_τ) + k·H̃(ŵ_t − w̄_t)
  is opened, τ over the block, and all its rounds step along a k-th of that: the displacement is
  taken to stay what it was.
- *Opened pairs*: the pairs are opened at the exact rounds, H̃v is computed locally, and only
  Σ_τ Σ_K g(w̄_τ) is opened. Each round steps along mean(ḡ) + H̃(ŵ_t − mean(w̄)).

With k = 1 both give the same model, to the precision of the fixed point, and shared is the paper's
method. Under plain SGD the displacement changes so slowly that k = 5 gives as good a model for a
fifth of the openings; an adaptive optimiser moves faster than a shared block can follow.
"""

from dataclasses import dataclass, field

import numpy as np

from pdlrecover.errors import PlanError
from pdlrecover.recovery import requests
from pdlrecover.recovery.curvature import Curvature, OpenedCurvature
from pdlrecover.recovery.optimizers import SGD
from pdlrecover.recovery.requests import Asking, Method, Original, Sum, Vector
from pdlrecover.recovery.schedule import Guard, Schedule

HEADROOM = 10.0
"""Coefficients of pairs are given room to add up to this: more than they do even after Adam."""
SGD_BLOCK = 5
"""Estimated rounds opened together where the pairs stay shared and the run used plain SGD."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How PDLRecover is to run."""

    schedule: Schedule = field(default_factory=Schedule)
    open_pairs: bool = False
    """Open the pairs, so that curvature is computed locally."""
    block: int | None = None
    """k: how many estimated rounds are opened together; None: `SGD_BLOCK` if it applies, else 1."""
    metric_epsilon: float = 1e-4
    """Added to √v̂ where the run used Adam."""
    metric_damping: float = 0.5
    """τ in an optimiser's metric."""

    def __post_init__(self) -> None:
        if self.block is not None and self.block < 1:
            raise PlanError(f"block must be at least 1, got {self.block}")

    def block_for(self, run: Original) -> int:
        """Return k: the user's choice or what suits the run, and what its encoding has room for.

        A direction is k stored sums and pairs whose coefficients add up to k·HEADROOM, say.
        """
        sgd = isinstance(run.optimizer, SGD) and not run.optimizer.momentum
        wanted = self.block or (SGD_BLOCK if sgd and not self.open_pairs else 1)
        room = run.code.coefficient_bound(wanted + 2 * self.schedule.buffer) / (1 + 2 * HEADROOM)
        if room < 1 and not self.open_pairs:
            raise PlanError(
                f"updates of norm up to {run.code.bound:g} leave no room for curvature in the "
                "encoding; train with a smaller L2 bound, or recover by another method"
            )
        return max(1, min(wanted, int(room)))


def pdlrecover(run: Original, options: Options | None = None) -> Method:
    """Recover the model; yields requests, returns ŵ_T."""
    options = options or Options()
    schedule, rounds = options.schedule, run.rounds
    schedule.check(rounds)
    estimator = (_OpenedPairs if options.open_pairs else _Shared)(run, options)
    guard = Guard()
    stepper = run.optimizer.start()
    model = run.models[0].copy()
    for t in range(rounds):
        mean, exact, fallback = None, schedule.is_exact(t, rounds), False
        if not exact and estimator.ready:
            metric = stepper.metric(options.metric_epsilon)
            mean = yield from estimator.estimate(t, model, metric)
            fallback = not guard.accepts(mean)
        if mean is None or fallback:
            exact = True
            fresh = yield from requests.update(t, model)
            mean = fresh.mean
            guard.learn(mean)
            if t < rounds - schedule.final and (model != run.models[t]).any():
                yield from estimator.learn(t, model, fresh)
        model = stepper.step(model, mean)
        yield requests.Stepped(round=t, model=model, exact=exact, fallback=fallback)
    return model


class _Shared:
    """Estimates from pairs that stay shared; one for all rounds of a block."""

    def __init__(self, run: Original, options: Options) -> None:
        self._run, self._options = run, options
        self._curvature = Curvature(size=options.schedule.buffer)
        self._length = options.block_for(run)
        self._block: range = range(0)
        self._mean: Vector | None = None

    @property
    def ready(self) -> bool:
        return bool(self._curvature.rounds)

    def learn(self, t: int, model: Vector, fresh: Sum) -> Asking[None]:
        self._curvature.add(t, model - self._run.models[t])
        self._block = range(0)
        return
        yield  # a generator that asks for nothing: the pair is opened only when it is used

    def estimate(self, t: int, model: Vector, metric: Vector | None) -> Asking[Vector | None]:
        if t not in self._block:
            self._block = self._options.schedule.block(t, self._run.rounds, self._length)
            self._mean = yield from self._estimate(model, metric)
        return self._mean

    def _estimate(self, model: Vector, metric: Vector | None) -> Asking[Vector | None]:
        k, damping = len(self._block), 1.0 if metric is None else self._options.metric_damping
        v = model - self._run.models[self._block[0]]
        found = yield from self._curvature.estimate(v, metric, damping)
        if found is None:
            return None
        request = requests.Direction(
            rounds=tuple(self._block),
            pairs=tuple(self._curvature.rounds),
            coefficients=tuple(k * p for p in found.coefficients),
        )
        if not request.fits(self._run.code):
            return None
        opened: Sum = yield request
        return (opened.values + k * found.public) / opened.weight


class _OpenedPairs:
    """Estimates from opened pairs, and stored sums opened in blocks."""

    def __init__(self, run: Original, options: Options) -> None:
        self._run, self._options = run, options
        self._curvature = OpenedCurvature(size=options.schedule.buffer)
        self._block: range = range(0)
        self._stored: Sum
        self._centre: Vector

    @property
    def ready(self) -> bool:
        return bool(self._curvature.displacements)

    def learn(self, t: int, model: Vector, fresh: Sum) -> Asking[None]:
        stored = yield from requests.past(t)
        self._curvature.add(model - self._run.models[t], fresh.values - stored.values)

    def estimate(self, t: int, model: Vector, metric: Vector | None) -> Asking[Vector | None]:
        if t not in self._block:
            yield from self._open_block(t)
        damping = 1.0 if metric is None else self._options.metric_damping
        product = self._curvature.product(model - self._centre, metric, damping)
        if product is None:
            return None
        size = len(self._block)
        return (self._stored.values / size + product) / (self._stored.weight / size)

    def _open_block(self, start: int) -> Asking[None]:
        length = self._options.block_for(self._run)
        self._block = self._options.schedule.block(start, self._run.rounds, length)
        self._stored = yield from requests.past(*self._block)
        total = np.zeros_like(self._run.models[start])
        for t in self._block:
            total += self._run.models[t]
        self._centre = total / len(self._block)
