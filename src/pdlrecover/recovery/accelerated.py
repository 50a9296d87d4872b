"""Accelerated retraining: few exact rounds from first weights, with an optimiser made for that.

    w_{t+1} = w_t − γ(1 − t/K)·U_t,    t = 0 … K − 1

with U_t the opened mean update, orthogonalised layer by layer (`Muon`). It never touches the
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
"""

from dataclasses import dataclass

from pdlrecover.errors import PlanError
from pdlrecover.recovery.evaluation import Cycle, in_cycles
from pdlrecover.recovery.optimizers import Adam, Muon, Rate
from pdlrecover.recovery.requests import LocalSteps, Method, Optimizer, Original, Vector
from pdlrecover.recovery.retrain import train

FIRST, FRESH = STARTS = ("first", "fresh")
RATES = {"muon": 0.04, "adam": 0.03}
"""γ by the optimiser's name."""
HARD_RATE, HARD_MOMENTUM = 0.16, 0.9
"""γ and μ of a cycle by muon that follows one which ended far below the original."""


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
    start: str = FIRST
    """first: at w̄_0, with the minibatches of the training; fresh: see above."""
    local_steps: int | None = None
    """Local steps of each peer in each round; None: as in the training."""
    local_rate: float = 0.3
    """Their rate."""
    cycles: int = 2
    """At most this many cycles of K rounds, where peers evaluate models; elsewhere there is one."""

    def __post_init__(self) -> None:
        if self.optimizer not in RATES:
            raise PlanError(f"optimizer must be one of {', '.join(RATES)}, got {self.optimizer!r}")
        if self.start not in STARTS:
            raise PlanError(f"start must be {' or '.join(STARTS)}, got {self.start!r}")
        if not 0 <= self.momentum < 1:
            raise PlanError(f"momentum must be at least 0 and below 1, got {self.momentum}")
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
            return Muon(rate=rate, layers=run.layers, momentum=momentum)
        rate = Rate(peak=peak, warmup=min(5, self.rounds), hold=0.6, rounds=self.rounds)
        return Adam(rate=rate, beta1=0.8, beta2=0.99, epsilon=1e-4)


def accelerated_retrain(run: Original, options: AcceleratedOptions | None = None) -> Method:
    """Retrain for K exact rounds, and again for K if these were not enough."""
    options = options or AcceleratedOptions()
    first, stream = run.models[0], 0
    if options.start == FRESH:
        if run.fresh is None:
            raise PlanError("this run has no way to draw new first weights for a fresh start")
        first, stream = run.fresh.first, run.fresh.stream
    length = options.rounds

    def cycle(now: Cycle, model: Vector) -> Method:
        rounds = range(now.number * length, (now.number + 1) * length)
        steps = options.steps(run, hard=now.far_below)
        return train(model, steps, rounds, stream=stream, local=options.local)

    return in_cycles(cycle, first, rounds=length, most=options.cycles, goal=run.goal)
