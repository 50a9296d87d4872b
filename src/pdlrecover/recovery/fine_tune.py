"""Fine-tune-k: the poisoned model, and k exact rounds without the removed peers."""

from pdlrecover.errors import PlanError
from pdlrecover.recovery.requests import Method, Original
from pdlrecover.recovery.retrain import train


def fine_tune(run: Original, rounds: int) -> Method:
    """Continue from w̄_T for `rounds` exact rounds, with the last rounds' minibatches."""
    if not 1 <= rounds <= run.rounds:
        raise PlanError(f"fine-tuning takes 1 to {run.rounds} rounds, got {rounds}")
    return train(run.models[run.rounds], run.optimizer, range(run.rounds - rounds, run.rounds))
