"""PDLRecover (Li et al.), corrected: replay the run without the removed peers.

From ŵ_0 = w̄_0, for t = 0 … T−1:

1. Exact round (planned, or asked for by the guard): open Σ_K g(ŵ_t). Before the final rounds, and
   where ŵ_t ≠ w̄_t, it adds the pair ΔW = ŵ_t − w̄_t (public), ΔG = Σ_K g(ŵ_t) − Σ_K g(w̄_t) (shared).
2. Estimated round: step along ĝ_t = Σ_K g(w̄_t) + H̃(ŵ_t − w̄_t), with H̃v as in `curvature`.
3. Step: the run's own server optimiser, from its first state, along ĝ_t / Σ_K α.

A round that was void in the run is passed over: there w̄_{t+1} = w̄_t, and its stored sum is in no
pair and in no block. So is an exact round that is void now. Where an opened stored sum or direction
is void, the round is exact. A round whose stored sum must stay closed is exact, and adds no pair;
while ŵ_t = w̄_t, where the updates are those of the stored sum, it is passed over.

Two modes, and in both only the sum over a *block* of k estimated rounds is opened:

- *Shared*: the pairs stay shared. At the first round t of a block, Σ_τ Σ_K g(w̄_τ) + k·H̃(ŵ_t − w̄_t)
  is opened, τ over the block, and all its rounds step along a k-th of that: the displacement is
  taken to stay what it was.
- *Opened pairs*: the stored sums of the pairs are opened, H̃v is computed locally, and only
  Σ_τ Σ_K g(w̄_τ) is opened. Each round steps along mean(ḡ) + H̃(ŵ_t − mean(w̄)). Which sums that
  takes is known from the schedule, so they are opened many at once, before they are needed.

With k = 1 both give the same model, to the precision of the fixed point, and shared is the paper's
method. Under plain SGD the displacement changes so slowly that shared blocks of k = 5 give as good
a model for a fifth of the openings, and with opened pairs one block can last from one exact round
to the next; an adaptive optimiser moves faster than a block can follow.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from pdlrecover.errors import PlanError
from pdlrecover.recovery import requests
from pdlrecover.recovery.curvature import Curvature, OpenedCurvature
from pdlrecover.recovery.optimizers import SGD
from pdlrecover.recovery.requests import MOST_NUMBERS, Asking, Method, Original, Sum, Vector
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
    """k: how many estimated rounds are opened together. None: after plain SGD `SGD_BLOCK`, or with
    opened pairs all rounds between two exact ones; else 1."""
    metric_epsilon: float = 1e-4
    """Added to √v̂ where the run used Adam."""
    metric_damping: float = 0.5
    """τ in an optimiser's metric."""

    def __post_init__(self) -> None:
        if self.block is not None and self.block < 1:
            raise PlanError(f"block must be at least 1, got {self.block}")

    def block_for(self, run: Original) -> int:
        """Return k: the user's choice or what suits the run, and what its encoding has room for.

        A direction is k stored sums and pairs whose coefficients add up to k·HEADROOM, say. With
        opened pairs it is k stored sums, and nothing is multiplied.
        """
        sgd, code = isinstance(run.optimizer, SGD) and not run.optimizer.momentum, run.code
        if self.open_pairs:
            wanted = self.block or (self.schedule.period if sgd else 1)
            return max(1, min(wanted, int(code.coefficient_bound(0) * code.scale)))
        wanted = self.block or (SGD_BLOCK if sgd else 1)
        room = code.coefficient_bound(wanted + 2 * self.schedule.buffer) / (1 + 2 * HEADROOM)
        if room < 1:
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
        moved = model - run.models[t]
        if t in run.void or (t in run.closed and not moved.any()):
            yield requests.Stepped(round=t, model=model, exact=False, void=t in run.void)
            continue
        mean, exact, fallback = None, t in run.closed or schedule.is_exact(t, rounds), False
        if not exact and estimator.ready:
            metric = stepper.metric(options.metric_epsilon)
            mean = yield from estimator.estimate(t, model, metric)
            fallback = not guard.accepts(mean)
        if mean is None or fallback:
            exact = True
            fresh = yield from requests.update(t, model)
            if fresh is None:
                yield requests.Stepped(
                    round=t, model=model, exact=exact, fallback=fallback, void=True
                )
                continue
            mean = fresh.mean
            guard.learn(mean)
            if t < rounds - schedule.final and t not in run.closed and moved.any():
                estimator.learn(t, moved, fresh)
        model = stepper.step(model, mean)
        yield requests.Stepped(round=t, model=model, exact=exact, fallback=fallback)
    return model


def _block(run: Original, options: Options, t: int, length: int) -> tuple[int, ...]:
    """Return the rounds from t on that are estimated together, up to one that stays closed.

    Rounds that were void in the run are left out; t itself was not.
    """
    planned = options.schedule.block(t, run.rounds, length)
    end = next((each for each in planned if each in run.closed), planned.stop)
    return tuple(each for each in range(t, end) if each not in run.void)


class _Shared:
    """Estimates from pairs that stay shared; one for all rounds of a block."""

    def __init__(self, run: Original, options: Options) -> None:
        self._run, self._options = run, options
        self._curvature = Curvature(size=options.schedule.buffer)
        self._length = options.block_for(run)
        self._block: tuple[int, ...] = ()
        self._mean: Vector | None = None

    @property
    def ready(self) -> bool:
        return bool(self._curvature.rounds)

    def learn(self, t: int, displacement: Vector, fresh: Sum | None = None) -> None:
        self._curvature.add(t, displacement)
        self._block = ()

    def estimate(self, t: int, model: Vector, metric: Vector | None) -> Asking[Vector | None]:
        if t not in self._block:
            self._block = _block(self._run, self._options, t, self._length)
            self._mean = yield from self._estimate(model, metric)
        return self._mean

    def _estimate(self, model: Vector, metric: Vector | None) -> Asking[Vector | None]:
        k, damping = len(self._block), 1.0 if metric is None else self._options.metric_damping
        v = model - self._run.models[self._block[0]]
        found = yield from self._curvature.estimate(v, metric, damping)
        if found is None:
            return None
        request = requests.Direction(
            rounds=self._block,
            pairs=tuple(self._curvature.rounds),
            coefficients=tuple(k * p for p in found.coefficients),
        )
        if not request.fits(self._run.code):
            return None
        opened: Sum | None = yield request
        if opened is None:
            return None
        return (opened.values + k * found.public) / opened.weight


class _OpenedPairs:
    """Estimates from opened pairs; stored sums are opened ahead of their use, many at once.

    A sum that is missing is opened together with those that the schedule needs next. Where the
    guard changes the schedule, some turn out not to be needed.

    A pair whose two sums have different weights is of different peers, and who was away in one of
    the two would look like curvature: it is left out. It must not be shared instead: a shared pair
    is of those who were there both times, and what is opened with it, less what is open already,
    would be the update of the one who was away.
    """

    def __init__(self, run: Original, options: Options) -> None:
        self._run, self._options = run, options
        self._curvature = OpenedCurvature(size=options.schedule.buffer)
        self._length = options.block_for(run)
        self._learned: dict[int, tuple[Vector, Sum]] = {}
        """By round: pairs whose stored sum is not subtracted yet, the last few."""
        self._opened: dict[tuple[int, ...], Sum | None] = {}
        """Stored sums that were opened and not used yet; None if they are void."""
        self._block: tuple[int, ...] = ()
        self._mean: Sum | None = None
        self._centre: Vector

    @property
    def ready(self) -> bool:
        return bool(self._learned or self._curvature.displacements)

    def learn(self, t: int, displacement: Vector, fresh: Sum) -> None:
        self._learned[t] = displacement, fresh
        while len(self._learned) > self._curvature.size:
            del self._learned[min(self._learned)]

    def estimate(self, t: int, model: Vector, metric: Vector | None) -> Asking[Vector | None]:
        begins = t not in self._block
        if begins:
            self._block = _block(self._run, self._options, t, self._length)
        if begins or self._learned:
            yield from self._open(begins)
            self._add_pairs()
        if begins:
            self._begin_block()
        if not self._curvature.displacements or self._mean is None:
            return None
        damping = 1.0 if metric is None else self._options.metric_damping
        product = self._curvature.product(model - self._centre, metric, damping)
        if product is None:
            return None
        product += self._mean.values
        product /= self._mean.weight
        return product

    def _open(self, begins: bool) -> Asking[None]:
        """Open the sums of pairs, and of a block that begins, and with them the next ones."""
        wanted = [*((b,) for b in self._learned), *([self._block] if begins else [])]
        most = max(1, MOST_NUMBERS // self._run.code.length)
        while missing := [each for each in wanted if each not in self._opened]:
            ahead = [each for each in self._ahead() if each not in self._opened]
            group = [*missing, *ahead][:most]
            sums = yield from requests.past_blocks(*group)
            self._opened.update(zip(group, sums, strict=True))

    def _ahead(self) -> Iterator[tuple[int, ...]]:
        """Yield what the schedule needs after this block, in order: pairs, and the next block."""
        schedule, rounds, t = self._options.schedule, self._run.rounds, self._block[-1] + 1
        pairs: list[tuple[int, ...]] = []
        while t < rounds:
            if t in self._run.void or t in self._run.closed:
                t += 1
                continue
            if schedule.is_exact(t, rounds):
                pairs = [*pairs, (t,)][-schedule.buffer :]
                t += 1
                continue
            block = _block(self._run, self._options, t, self._length)
            yield from (*pairs, block)
            pairs, t = [], block[-1] + 1

    def _add_pairs(self) -> None:
        for b, (displacement, fresh) in self._learned.items():
            stored = self._opened.pop((b,))
            if stored is None or stored.weight != fresh.weight:
                continue
            self._curvature.add(displacement, fresh.values - stored.values)
        self._learned = {}

    def _begin_block(self) -> None:
        """Take the mean stored sum of the block, and the mean model."""
        total, size = self._run.models[self._block[0]].copy(), len(self._block)
        for t in self._block[1:]:
            total += self._run.models[t]
        self._centre = total / size
        stored, self._mean = self._opened.pop(self._block), None
        if stored is not None:
            self._mean = Sum(values=stored.values / size, weight=stored.weight / size)
