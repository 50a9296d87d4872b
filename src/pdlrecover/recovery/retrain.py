"""Retraining without the removed peers, and training itself: exact rounds from a first model.

    w_{t+1} = step(w_t, Σ_K g(w_t) / Σ_K α)

A round whose sum is void is passed over: w_{t+1} = w_t, and the optimiser stays where it is.

With everybody kept this is how the original run was trained; with the removed peers left out it is
what every recovery is measured against. `rounds` below T gives retrain-k.
"""

from pdlrecover.recovery.requests import (
    LocalSteps,
    Method,
    Optimizer,
    Original,
    Stepped,
    Vector,
    update,
)


def train(
    first: Vector,
    optimizer: Optimizer,
    rounds: range,
    *,
    stream: int = 0,
    local: LocalSteps | None = None,
) -> Method:
    """Do exact rounds from a model, with the minibatches of these rounds; return the last model.

    `stream` and `local` are as in `Update`.
    """
    stepper = optimizer.start()
    model = first.copy()
    for t in rounds:
        total = yield from update(t, model, stream=stream, local=local)
        if total is not None:
            model = stepper.step(model, total.mean)
        yield Stepped(round=t, model=model, exact=True, void=total is None)
    return model


def retrain(run: Original, rounds: int | None = None) -> Method:
    """Retrain from w̄_0 with the run's own optimiser, for T rounds or the first `rounds`."""
    return train(run.models[0], run.optimizer, range(run.rounds if rounds is None else rounds))
