"""Replays the kept peers' stored updates, without any correction.

    ŵ_{t+1} = step(ŵ_t, Σ_K g(w̄_t) / Σ_K α), and ŵ_{t+1} = ŵ_t where that sum is void

`tuned` replaces the last k rounds by exact ones: replay-then-tune. Rounds whose stored sum must
stay closed are passed over.
"""

from pdlrecover.errors import PlanError
from pdlrecover.recovery.requests import Method, Original, Stepped, past, update


def historical(run: Original, tuned: int = 0) -> Method:
    """Replay the stored updates of the kept peers, then tune for `tuned` exact rounds."""
    if not 0 <= tuned <= run.rounds:
        raise PlanError(f"a run of {run.rounds} rounds cannot end in {tuned} exact ones")
    stepper = run.optimizer.start()
    model = run.models[0].copy()
    for t in range(run.rounds):
        exact = t >= run.rounds - tuned
        if t in run.closed and not (exact and (model - run.models[t]).any()):
            yield Stepped(round=t, model=model, exact=False)
            continue
        total = yield from update(t, model) if exact else past(t)
        if total is not None:
            model = stepper.step(model, total.mean)
        yield Stepped(round=t, model=model, exact=exact, void=total is None)
    return model
