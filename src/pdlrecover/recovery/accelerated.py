"""Accelerated retraining: restart at w̄_0 with server Adam, for few exact rounds.

It never touches the history, so no poison in it can mislead. The constants were found good on
three datasets: rate 0.03, β 0.8/0.99, ε 1e-4, 5 rounds of warm-up, constant to 0.6·k, then linear
to zero.
"""

from pdlrecover.recovery.optimizers import Adam, Rate
from pdlrecover.recovery.requests import Method, Original
from pdlrecover.recovery.retrain import train

DEFAULT_ROUNDS = 50


def short_adam(rounds: int, peak: float = 0.03) -> Adam:
    """Return the Adam that makes the most of a few rounds."""
    rate = Rate(peak=peak, warmup=min(5, rounds), hold=0.6, rounds=rounds)
    return Adam(rate=rate, beta1=0.8, beta2=0.99, epsilon=1e-4)


def accelerated_retrain(run: Original, rounds: int = DEFAULT_ROUNDS) -> Method:
    """Retrain from w̄_0 with Adam for `rounds` exact rounds, or as many as the run had."""
    rounds = min(rounds, run.rounds)
    return train(run.models[0], short_adam(rounds), range(rounds))
