"""PDLRecover (Li et al.), corrected: replay the run without the removed peers.

From ŵ_0 = w̄_0, for t = 0 … T−1:

1. Exact round (planned, or asked for by the guard): open Σ_K g(ŵ_t). Before the final rounds, and
   where ŵ_t ≠ w̄_t, it adds the pair ΔW = ŵ_t − w̄_t (public), ΔG = Σ_K g(ŵ_t) − Σ_K g(w̄_t) (shared).
2. Estimated round: open ĝ_t = Σ_K g(w̄_t) + H̃(ŵ_t − w̄_t), with H̃v as in `curvature`.
3. Step: the run's own server optimiser, from its first state, along ĝ_t / Σ_K α.

Two modes. *Shared*: the pairs stay shared, and every estimated round opens its own ĝ_t. *Opened
pairs*: the pairs are opened at the exact rounds, H̃v is computed locally, and the stored sums are
opened in blocks of k estimated rounds at a time, as one sum over the block: each of its rounds
then steps along mean(ḡ) + H̃(ŵ_t − mean(w̄)). With k = 1 both modes give the same model, to the
precision of the fixed point.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pdlrecover.errors import PlanError
from pdlrecover.recovery.curvature import Curvature, OpenedCurvature
from pdlrecover.recovery.requests import (
    Direction,
    Method,
    Original,
    Request,
    Stepped,
    Sum,
    Vector,
    past,
    update,
)
from pdlrecover.recovery.schedule import Guard, Schedule


@dataclass(frozen=True, kw_only=True)
class Options:
    """How PDLRecover is to run."""

    schedule: Schedule = field(default_factory=Schedule)
    open_pairs: bool = False
    """Open the pairs, which lets blocks of stored sums be opened at once."""
    block: int = 1
    """k: stored sums opened together; needs `open_pairs` if above 1."""
    metric_epsilon: float = 1e-4
    """Added to √v̂ where the run used Adam."""
    metric_damping: float = 0.5
    """τ in an optimiser's metric."""
    guard_limit: int | None = None
    """Give up after so many rounds that the guard asked for; None never gives up."""

    def __post_init__(self) -> None:
        if self.block < 1 or (self.block > 1 and not self.open_pairs):
            raise PlanError(
                f"block must be at least 1, and above 1 only with opened pairs; got {self.block}"
            )


class HopelessError(PlanError):
    """The guard asked for more exact rounds than allowed: replaying this history does not pay."""


def pdlrecover(run: Original, options: Options | None = None) -> Method:
    """Recover the model; yields requests, returns ŵ_T."""
    options = options or Options()
    schedule, rounds = options.schedule, run.rounds
    schedule.check(rounds)
    estimator = (_Opened if options.open_pairs else _Shared)(run, options)
    guard = Guard()
    stepper = run.optimizer.start()
    model = run.models[0].copy()
    for t in range(rounds):
        mean, exact, fallback = None, schedule.is_exact(t, rounds), False
        if not exact and estimator.ready:
            metric = stepper.metric(options.metric_epsilon)
            mean = yield from estimator.estimate(t, model, metric)
            fallback = mean is None or not guard.accepts(mean)
            if fallback and options.guard_limit is not None and guard.trips > options.guard_limit:
                raise HopelessError(f"the guard asked for {guard.trips} exact rounds by round {t}")
        if mean is None or fallback:
            exact = True
            fresh = yield from update(t, model)
            mean = fresh.mean
            guard.learn(mean)
            if t < rounds - schedule.final and (model != run.models[t]).any():
                yield from estimator.learn(t, model, fresh)
        model = stepper.step(model, mean)
        yield Stepped(round=t, model=model, exact=exact, fallback=fallback)
    return model


class _Shared:
    """Estimates from pairs that stay shared."""

    def __init__(self, run: Original, options: Options) -> None:
        self._run, self._options = run, options
        self._curvature = Curvature(size=options.schedule.buffer)

    @property
    def ready(self) -> bool:
        return bool(self._curvature.rounds)

    def learn(self, t: int, model: Vector, fresh: Sum) -> Generator[Request, Any, None]:
        self._curvature.add(t, model - self._run.models[t])
        return
        yield  # a generator that asks for nothing: the pair is opened only when it is used

    def estimate(
        self, t: int, model: Vector, metric: Vector | None
    ) -> Generator[Request, Any, Vector | None]:
        damping = 1.0 if metric is None else self._options.metric_damping
        v = model - self._run.models[t]
        found = yield from self._curvature.estimate(v, metric, damping)
        if found is None or not _fits(found.coefficients, self._run):
            return None
        opened: Sum = yield Direction(
            round=t, pairs=tuple(self._curvature.rounds), coefficients=found.coefficients
        )
        return (opened.values + found.public) / opened.weight


class _Opened:
    """Estimates from opened pairs, and stored sums opened in blocks."""

    def __init__(self, run: Original, options: Options) -> None:
        self._run, self._options = run, options
        self._curvature = OpenedCurvature(size=options.schedule.buffer)
        self._block: range = range(0)
        self._stored: Sum | None = None
        self._centre: Vector = run.models[0]

    @property
    def ready(self) -> bool:
        return bool(self._curvature.displacements)

    def learn(self, t: int, model: Vector, fresh: Sum) -> Generator[Request, Any, None]:
        stored = yield from past(t)
        self._curvature.add(model - self._run.models[t], fresh.values - stored.values)

    def estimate(
        self, t: int, model: Vector, metric: Vector | None
    ) -> Generator[Request, Any, Vector | None]:
        if self._stored is None or t not in self._block:
            yield from self._open_block(t)
        assert self._stored is not None  # noqa: S101 (set by _open_block)
        damping = 1.0 if metric is None else self._options.metric_damping
        product = self._curvature.product(model - self._centre, metric, damping)
        if product is None:
            return None
        size = len(self._block)
        return (self._stored.values / size + product) / (self._stored.weight / size)

    def _open_block(self, start: int) -> Generator[Request, Any, None]:
        schedule, rounds = self._options.schedule, self._run.rounds
        end = start + 1
        while end < start + self._options.block and not schedule.is_exact(end, rounds):
            end += 1
        self._block = range(start, end)
        self._stored = yield from past(*self._block)
        total = np.zeros_like(self._run.models[start])
        for t in self._block:
            total += self._run.models[t]
        self._centre = total / len(self._block)


def _fits(coefficients: tuple[float, ...], run: Original) -> bool:
    """Say whether Σ_K g + Σ_b p_b ΔG_b cannot wrap around; a pair is the difference of two sums."""
    sums = 1 + 2 * len(coefficients)
    return 1 + 2 * sum(abs(p) for p in coefficients) <= run.code.coefficient_bound(sums)
