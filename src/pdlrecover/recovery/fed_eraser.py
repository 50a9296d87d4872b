"""FedEraser (Liu, Ma, Yang, Wang & Liu, IWQoS 2021): stored lengths, fresh directions.

The server keeps every peer's update in one round of every Δt. From ŵ = w̄_0, for each kept round t:

1. Calibration training: each kept peer computes ûᵢ at ŵ.
2. Calibration: Ũᵢ = ‖gᵢ(w̄_t)‖ · ûᵢ/‖ûᵢ‖ (its equation 3): as long as the stored update, in the
   fresh one's direction.
3. Step along Σ Ũᵢ / Σ αᵢ (equations 4 and 5).

What the paper leaves open, or differs in, and what is done here:

- *The first round*: at w̄_0 stored and fresh are the same, so the stored ones are used, as there.
- *The calibration ratio* r = ½ is the share of its local steps that a peer trains again. A peer
  here takes one step in a round, and half a step has the direction of a whole one: so ⌈r⌉ = 1 step
  is taken, and the ratio saves nothing. A peer's cost is 1/Δt of retraining's, not r/Δt.
- *How far a kept round goes*: the paper's Δt counts rounds of many local steps, and it takes one
  step for each kept round. With one gradient to a round, that would be a run of T/Δt rounds, which
  ends half trained. So each kept round stands for Δt rounds: the optimiser steps Δt times along its
  calibrated update, which for plain SGD is Δt times the rate. `repeat=False` takes one step.
- *Norms* are of the whole update of one peer, as the paper writes; its authors' code takes them by
  layer and after averaging.
- *A fresh update of zero* has no direction, and adds nothing.
- *The optimiser* is the run's own, from its first state, where the paper adds the update itself.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pdlrecover.errors import PlanError
from pdlrecover.recovery import requests
from pdlrecover.recovery.requests import Individuals, Method, Original, Sum, Vector


@dataclass(frozen=True, kw_only=True)
class FedEraserOptions:
    """FedEraser's constants."""

    interval: int = 2
    """Δt: updates are kept in one round of this many."""
    repeat: bool = True
    """Whether a kept round is stepped along for all the rounds that it stands for, or once."""

    def __post_init__(self) -> None:
        if self.interval < 1:
            raise PlanError(f"FedEraser's interval must be at least 1, got {self.interval}")


def fed_eraser(run: Original, options: FedEraserOptions | None = None) -> Method:
    """Recover the model; yields requests, returns the last ŵ."""
    options = options or FedEraserOptions()
    stepper = run.optimizer.start()
    model = run.models[0].copy()
    for t in range(0, run.rounds, options.interval):
        stored = yield from requests.individual(t)
        total = stored.total
        if t > 0:
            fresh = yield from requests.individual(t, at=model)
            total = calibrated(lengths(stored.values), fresh)
        end = min(t + options.interval, run.rounds) if options.repeat else t + 1
        for step in range(t, end):
            model = stepper.step(model, total.mean)
            yield requests.Stepped(round=step, model=model, exact=False)
    return model


def lengths(rows: NDArray[np.float32]) -> Vector:
    """Return the L2 norm of every row."""
    return np.asarray(np.linalg.norm(rows, axis=1), dtype=float)


def calibrated(wanted: Vector, fresh: Individuals) -> Sum:
    """Return the sum of the fresh updates, each brought to its wanted length."""
    sizes = lengths(fresh.values)
    factors = np.divide(wanted, sizes, out=np.zeros_like(sizes), where=sizes > 0)
    values = np.asarray(factors.astype(np.float32) @ fresh.values, dtype=float)
    return Sum(values=values, weight=float(fresh.weights.sum()))
