"""Every recovery method by its name."""

from collections.abc import Callable
from dataclasses import dataclass, field

from pdlrecover.errors import PlanError
from pdlrecover.recovery.accelerated import DEFAULT_ROUNDS, accelerated_retrain
from pdlrecover.recovery.auto import AutoOptions, auto
from pdlrecover.recovery.fine_tune import fine_tune
from pdlrecover.recovery.historical import historical
from pdlrecover.recovery.pdlrecover import Options, pdlrecover
from pdlrecover.recovery.requests import Method, Original
from pdlrecover.recovery.retrain import retrain


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the methods are given besides the run."""

    options: Options = field(default_factory=Options)
    budget: int | None = None
    """k, the exact rounds of the -k methods; by default as many as PDLRecover's schedule plans."""
    accelerated_rounds: int = DEFAULT_ROUNDS
    batch_size: int = 32

    def exact_rounds(self, run: Original) -> int:
        """Return k."""
        planned = self.options.schedule.exact_rounds(run.rounds)
        return min(run.rounds, planned if self.budget is None else self.budget)


METHODS: dict[str, Callable[[Original, Settings], Method]] = {
    "retrain": lambda run, s: retrain(run),
    "historical": lambda run, s: historical(run),
    "pdlrecover": lambda run, s: pdlrecover(run, s.options),
    "auto": lambda run, s: auto(run, s.batch_size, AutoOptions(open_pairs=s.options.open_pairs)),
    "retrain-k": lambda run, s: retrain(run, s.exact_rounds(run)),
    "fine-tune-k": lambda run, s: fine_tune(run, s.exact_rounds(run)),
    "replay-then-tune": lambda run, s: historical(run, tuned=s.exact_rounds(run)),
    "accelerated-retrain": lambda run, s: accelerated_retrain(run, s.accelerated_rounds),
}


def start(name: str, run: Original, settings: Settings) -> Method:
    """Start the method of this name."""
    check(name)
    return METHODS[name](run, settings)


def check(name: str) -> None:
    """Raise if no method has this name."""
    if name not in METHODS:
        raise PlanError(f"no method is called {name!r}; there are {', '.join(METHODS)}")
