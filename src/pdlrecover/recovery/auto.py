"""`auto`: chooses how to recover from what the run shows, without knowing the attack.

1. A plain SGD or momentum run with normal minibatches: accelerated retraining matches retraining
   in a twentieth of the rounds, so nothing is replayed.
2. Tiny minibatches (at most 4): the history averages out noise that fresh rounds would have to
   average again, so PDLRecover replays it, with few exact rounds.
3. An Adam run: first the *gate*. Open the kept peers' mean stored update over the last 10% of the
   rounds and over the first 5, and take the ratio q of their norms. A large q (or one that is not
   finite) says that the run ended where the kept peers' gradient is large, so it was pulled
   elsewhere: accelerated retraining for 0.7·T rounds. Otherwise replay the history with PDLRecover,
   then polish with fresh Adam rounds.
   The replay is given up when it has *drifted* too far from the run to be corrected, or when the
   guard keeps asking for exact rounds: fresh Adam rounds, 0.55·T, from where it had come to.
   Drift is ‖ŵ_t − w̄_t‖ / ‖w̄_t − w̄_0‖, which everybody can compute.

The constants were chosen on validation data: `docs/methods/auto.md` says how.
"""

import math
from dataclasses import dataclass, field, replace

from pdlrecover.recovery.accelerated import DEFAULT_ROUNDS, accelerated_retrain, short_adam
from pdlrecover.recovery.optimizers import Adam
from pdlrecover.recovery.pdlrecover import HopelessError, Options, pdlrecover
from pdlrecover.recovery.requests import Asking, Method, Original, Vector, past
from pdlrecover.recovery.retrain import train
from pdlrecover.recovery.same_bits import norm
from pdlrecover.recovery.schedule import Schedule


@dataclass(frozen=True, kw_only=True)
class AutoOptions:
    """The constants of the decision."""

    tiny_batch: int = 4
    """Minibatches up to this size count as tiny."""
    tiny_schedule: Schedule = field(
        default_factory=lambda: Schedule(preparation=12, period=30, final=12)
    )
    """Of the replay of a run with tiny minibatches."""
    tiny_rescue: int = 80
    """Fresh Adam rounds after such a replay that was given up."""
    gate: float = 0.35
    """The largest q with which the history is replayed."""
    schedule: Schedule = field(default_factory=lambda: Schedule(preparation=8, period=9, final=0))
    """Of the replay of an Adam run."""
    damping: float = 0.25
    """τ of the replay: the smaller, the less it remembers of the removed peers' data."""
    guard_limit: int = 12
    """How many rounds the guard may ask for before a replay is given up."""
    drift_limit: float = 0.6
    """How far the replay may drift before it is given up."""
    polish: int = 27
    """Fresh Adam rounds after a replay."""
    polish_rate: float = 0.02
    retrain: float = 0.7
    """The rounds of accelerated retraining, as a share of the run's."""
    rescue: float = 0.55
    """The fresh rounds after a replay that was given up, as a share of the run's."""
    open_pairs: bool = False
    """Accept opened pairs, hence blocks of stored sums."""


def auto(run: Original, batch_size: int, options: AutoOptions | None = None) -> Method:
    """Choose between replaying the history and accelerated retraining, and do it."""
    options = options or AutoOptions()
    adam = isinstance(run.optimizer, Adam)
    if not adam and batch_size > options.tiny_batch:
        return (yield from accelerated_retrain(run, min(DEFAULT_ROUNDS, run.rounds)))
    if not adam:
        tiny = Options(
            open_pairs=options.open_pairs,
            block=20 if options.open_pairs else None,
            schedule=_fitted(run, options.tiny_schedule),
            drift_limit=options.drift_limit,
        )
        try:
            return (yield from pdlrecover(run, tiny))
        except HopelessError as given_up:
            return (yield from _fresh(run, given_up.model, options.tiny_rescue))
    q = yield from gate(run)
    if not q <= options.gate:
        return (yield from accelerated_retrain(run, math.ceil(options.retrain * run.rounds)))
    replay = Options(
        schedule=_fitted(run, options.schedule),
        open_pairs=options.open_pairs,
        block=5 if options.open_pairs else None,
        metric_damping=options.damping,
        guard_limit=options.guard_limit,
        drift_limit=options.drift_limit,
    )
    try:
        model = yield from pdlrecover(run, replay)
    except HopelessError as given_up:
        return (yield from _fresh(run, given_up.model, math.ceil(options.rescue * run.rounds)))
    return (yield from _fresh(run, model, options.polish, options.polish_rate))


def _fresh(run: Original, model: Vector, rounds: int, *rate: float) -> Method:
    """Do `rounds` exact rounds of Adam from a model, with the minibatches of the last ones."""
    rounds = min(rounds, run.rounds)
    last_rounds = range(run.rounds - rounds, run.rounds)
    return (yield from train(model, short_adam(rounds, *rate), last_rounds))


def gate(run: Original) -> Asking[float]:
    """Return q = ‖mean stored update, last 10% of the rounds‖ / ‖the same, first 5‖."""
    late = range(run.rounds - max(1, run.rounds // 10), run.rounds)
    early = range(min(5, run.rounds))
    end = yield from past(*late)
    start = yield from past(*early)
    size = norm(start.mean)
    return norm(end.mean) / size if size > 0 else math.inf


def _fitted(run: Original, schedule: Schedule) -> Schedule:
    """Shrink a schedule to a short run."""
    return replace(
        schedule,
        preparation=max(2, min(schedule.preparation, run.rounds // 4)),
        final=min(schedule.final, run.rounds // 4),
    )
