"""Who follows a federation's training and recoveries, and what they are told of its settings."""

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pdlrecover.engines.events import Ended, Follow, Observer, Plain, Run
from pdlrecover.engines.following import numbers_of, record_of
from pdlrecover.engines.simulation import Observer as Function
from pdlrecover.engines.trained_model import TRAINING, TrainedModel
from pdlrecover.errors import PlanError
from pdlrecover.federation.arguments import described
from pdlrecover.recovery import methods
from pdlrecover.recovery.removal import Reason
from pdlrecover.recovery.requests import Optimizer, Stepped

if TYPE_CHECKING:
    from pdlrecover.federation.simulated import SimulatedFederation

Watching = Function | Observer | Sequence[Function | Observer] | None
"""What `observer` may be."""


def functions_and_observers(given: Any) -> tuple[Function | None, list[Observer]]:
    """Return the functions that are given as one, and the observers; refuse anything else."""
    every = [] if given is None else list(given) if isinstance(given, list | tuple) else [given]
    for each in every:
        if isinstance(each, type) or not (hasattr(each, "begin") or callable(each)):
            got = f"the class {each.__name__}" if isinstance(each, type) else described(each)
            raise PlanError(
                "observer must be a function that takes a Stepped, an observer such as "
                f'TensorBoard("runs"), or a list of these, got {got}'
            )
    observers = [each for each in every if hasattr(each, "begin")]
    functions = [each for each in every if not hasattr(each, "begin")]
    if not functions:
        return None, observers
    return functions[0] if len(functions) == 1 else _all(functions), observers


def _all(functions: Sequence[Callable[[Stepped], None]]) -> Function:
    def function(step: Stepped) -> None:
        for each in functions:
            each(step)

    return function


def training_run(federation: "SimulatedFederation", rounds: int, optimizer: Optimizer) -> Run:
    """Return the training as observers are told of it.

    It is that of the folder that its history is in, and goes on if that has begun.
    """
    history = federation.history
    mark = f"{history.layout.run} {history.folder.resolve()}"
    return Run(
        name=TRAINING,
        kind="training",
        identity=hashlib.sha256(mark.encode()).hexdigest()[:32],
        continues=history.rounds > 0,
        settings={"rounds": rounds, **_steps(optimizer), **settings_of(federation)},
    )


def recovery_run(
    federation: "SimulatedFederation",
    method: str,
    removed: Sequence[int],
    reason: Reason,
    settings: methods.Settings,
) -> Run:
    """Return a recovery as observers are told of it; nobody takes one up again."""
    return Run(
        name=method,
        kind="recovery",
        settings={
            "method": method,
            "removed": ", ".join(federation.roster.name(peer) for peer in removed),
            "reason": reason,
            "fresh_start": methods.starts_afresh(method, settings),
            "training_rounds": len(federation.history.sums),
            **settings_of(federation),
        },
    )


def ended(model: TrainedModel, follow: Follow | None) -> None:
    """Tell that a training or a recovery has come to its model."""
    if follow is not None:
        totals = model.ledger.totals()
        seconds = model.ledger.split_seconds().total
        follow(Ended(numbers=numbers_of(totals, seconds), records=record_of(totals)))


def settings_of(federation: "SimulatedFederation") -> dict[str, Plain]:
    """Return what a federation was set up with, as far as it is plain."""
    source = federation.update_source
    return {
        "peers": source.peers,
        "weights": source.model.size,
        **vars(federation.scheme.quorums.tolerance),
        **source.settings(),
        "clear": federation.clear,
    }


def _steps(optimizer: Optimizer) -> dict[str, Plain]:
    """Return what an optimiser is, with its highest rate if it says that."""
    rate = getattr(getattr(optimizer, "rate", None), "peak", None)
    return {
        "optimizer": type(optimizer).__name__,
        **({"learning_rate": float(rate)} if isinstance(rate, int | float) else {}),
    }
