"""Accelerated retraining: few exact rounds from first weights, with an optimiser made for that.

    w_{t+1} = w_t − γ(1 − t/K)·U_t,    t = 0 … K − 1

with U_t the opened mean update, orthogonalised layer by layer (`Muon`) with a limited gain, so that
a direction which few peers want does not weigh as much as one that all want. It never touches the
history, so no poison in it can mislead. `docs/methods/accelerated-retrain.md` says how the
constants were chosen.

It begins at w̄_0 with the minibatches of the training, or, with a *fresh start*, at new first
weights with minibatches of its own. Then no update is asked for at a model of the training, so no
sum of updates that it opens can be subtracted from one that the training opened.

Where peers evaluate models on held-out data, K rounds that end more than half a point below the
original are followed by a second cycle: K further rounds from there, with the rate's schedule and
the momentum begun anew, and the minibatches of rounds K … 2K − 1. If they end more than five points
below, some kept peer is probably working against the recovery, and the next cycle is a *hard* one,
with γ = 0.16 and μ = 0.9: a long memory averages over what the attackers gain in a single round,
and large steps make honest updates small, which bounds attacks that must look like them.

Where nobody evaluates, the opened means tell. Near a minimum they are small and point here and
there; attackers pull one way to the end. So a hard cycle follows if the mean over the last quarter
of the rounds is more than a third as long as the first round's:

    ‖ḡ_tail‖ > ⅓·‖ḡ_0‖,    ḡ_tail = (4/K)·Σ_{t ≥ 3K/4} ḡ_t

That is looked at only where a round is of at least `ENOUGH` samples: with fewer, the noise of
minibatches is as long.
"""

import math
from dataclasses import dataclass

from pdlrecover.errors import PlanError
from pdlrecover.recovery.evaluation import Cycle, CycleEnd, in_cycles
from pdlrecover.recovery.optimizers import Adam, Muon, Rate
from pdlrecover.recovery.requests import (
    Asking,
    LocalSteps,
    Method,
    Optimizer,
    Original,
    Update,
    Vector,
)
from pdlrecover.recovery.retrain import train
from pdlrecover.recovery.same_bits import norm

FIRST, FRESH = STARTS = ("first", "fresh")
RATES = {"muon": 0.05, "adam": 0.03}
"""γ by the optimiser's name."""
HARD_RATE, HARD_MOMENTUM = 0.16, 0.9
"""γ and μ of a cycle by muon that follows one which somebody probably worked against."""
TAIL = 4
"""The last 1/TAIL of a cycle's rounds show whether somebody still pulls,"""
ENOUGH = 1024
"""where this many samples are in a round."""


@dataclass(frozen=True, kw_only=True)
class AcceleratedOptions:
    """How accelerated retraining is to run."""

    rounds: int = 25
    """K."""
    optimizer: str = "muon"
    """muon, or adam with a warm-up of 5 rounds, constant to 0.6·K, then linear to zero."""
    rate: float | None = None
    """γ; None: see `RATES`."""
    momentum: float = 0.6
    """μ of muon."""
    gain: float = 60.0
    """How many times muon lifts small singular values at most, in a hard cycle, too. A low gain
    amplifies less of what few peers want; 30000 is as far as can be: see `docs/optimizers.md`."""
    start: str = FIRST
    """first: at w̄_0, with the minibatches of the training; fresh: see above."""
    local_steps: int | None = None
    """Local steps of each peer in each round; None: as in the training."""
    local_rate: float = 0.3
    """Their rate."""
    cycles: int = 2
    """At most this many cycles of K rounds. Adam has a second one only where peers evaluate."""

    def __post_init__(self) -> None:
        if self.optimizer not in RATES:
            raise PlanError(f"optimizer must be one of {', '.join(RATES)}, got {self.optimizer!r}")
        if self.start not in STARTS:
            raise PlanError(f"start must be {' or '.join(STARTS)}, got {self.start!r}")
        if not 0 <= self.momentum < 1:
            raise PlanError(f"momentum must be at least 0 and below 1, got {self.momentum}")
        if not 1 <= self.gain < math.inf:
            raise PlanError(f"gain must be at least 1 and finite, got {self.gain}")
        if self.local_steps is not None and self.local_steps < 1:
            raise PlanError(f"local_steps must be at least 1, got {self.local_steps}")
        if self.cycles < 1:
            raise PlanError(f"cycles must be at least 1, got {self.cycles}")

    @property
    def local(self) -> LocalSteps | None:
        """The local steps, if they are not the training's."""
        if self.local_steps is None:
            return None
        return LocalSteps(steps=self.local_steps, rate=self.local_rate)

    def steps(self, run: Original, *, hard: bool = False) -> Optimizer:
        """Return the optimiser that makes the most of these rounds, or of those of a hard cycle."""
        peak = RATES[self.optimizer] if self.rate is None else self.rate
        if self.optimizer == "muon":
            peak, momentum = (HARD_RATE, HARD_MOMENTUM) if hard else (peak, self.momentum)
            rate = Rate(peak=peak, hold=0.0, rounds=self.rounds)
            return Muon(rate=rate, layers=run.layers, momentum=momentum, gain=self.gain)
        rate = Rate(peak=peak, warmup=min(5, self.rounds), hold=0.6, rounds=self.rounds)
        return Adam(rate=rate, beta1=0.8, beta2=0.99, epsilon=1e-4)


def accelerated_retrain(
    run: Original, options: AcceleratedOptions | None = None, *, batch_size: int = 0
) -> Method:
    """Retrain for K exact rounds, and again for K if these were not enough.

    `batch_size` is how many samples a peer's update is of; it tells noise from attacks.
    """
    options = options or AcceleratedOptions()
    tells = options.optimizer == "muon" and len(run.kept) * batch_size >= ENOUGH
    first, stream = run.models[0], 0
    if options.start == FRESH:
        if run.fresh is None:
            raise PlanError("this run has no way to draw new first weights for a fresh start")
        first, stream = run.fresh.first, run.fresh.stream
    length = options.rounds

    def cycle(now: Cycle, model: Vector) -> Asking[CycleEnd]:
        rounds = range(now.number * length, (now.number + 1) * length)
        steps = options.steps(run, hard=now.is_hard)
        trained = train(model, steps, rounds, stream=stream, local=options.local)
        end = yield from _watched(trained, length)
        return end if tells else CycleEnd(model=end.model)

    return in_cycles(cycle, first, rounds=length, most=options.cycles, goal=run.goal)


def _watched(trained: Method, rounds: int) -> Asking[CycleEnd]:
    """Go through a cycle, and look whether the opened means still pull one way at its end."""
    means: list[Vector] = []
    first, answer = 0.0, None
    while True:
        try:
            request = trained.send(answer)
        except StopIteration as end:
            return CycleEnd(model=end.value, pulled=_pull(means, first))
        answer = yield request
        if isinstance(request, Update) and answer is not None:
            first = first or norm(answer.mean)
            means = [*means, answer.mean][-max(rounds // TAIL, 1) :]


def _pull(means: list[Vector], first: float) -> str:
    """Return how the mean of the last opened means compares with the first one, if it is long."""
    if not means:
        return ""
    total = means[0].copy()
    for mean in means[1:]:
        total += mean
    last = norm(total / len(means))
    if not 3 * last > first:
        return ""
    return f"the opened means still pull one way, {last / first:.2f} times as far as at first"
