"""Every recovery method by its name."""

from collections.abc import Callable
from dataclasses import dataclass, field

from pdlrecover.errors import PlanError
from pdlrecover.field import Seeded, Source, SystemSource
from pdlrecover.recovery.accelerated import DEFAULT_ROUNDS, accelerated_retrain
from pdlrecover.recovery.auto import AutoOptions, auto
from pdlrecover.recovery.certified_removal import RemovalOptions, certified_removal
from pdlrecover.recovery.fed_recovery import Noise, fed_recovery
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
    noise: Noise = field(default_factory=Noise)
    """Of fedrecovery-noise."""
    removal: RemovalOptions = field(default_factory=RemovalOptions)
    """Of certified-removal."""
    noise_seed: int | None = None
    """Draw noise from this seed, to repeat a simulation; by default it is the system's."""

    def source(self, name: str) -> Source:
        """Return where a method takes its noise from."""
        return SystemSource() if self.noise_seed is None else Seeded(f"{name} {self.noise_seed}")

    def exact_rounds(self, run: Original) -> int:
        """Return k."""
        planned = self.options.schedule.exact_rounds(run.rounds)
        return min(run.rounds, planned if self.budget is None else self.budget)


@dataclass(frozen=True)
class Entry:
    """A method, and what it asks for."""

    start: Callable[[Original, Settings], Method]
    private: bool = True
    """Whether it runs on shares: it asks for nothing that is not opened there."""
    needs: str = "single peers' updates"
    """What it asks for that is not."""


METHODS: dict[str, Entry] = {
    "retrain": Entry(lambda run, s: retrain(run)),
    "historical": Entry(lambda run, s: historical(run)),
    "pdlrecover": Entry(lambda run, s: pdlrecover(run, s.options)),
    "auto": Entry(
        lambda run, s: auto(run, s.batch_size, AutoOptions(open_pairs=s.options.open_pairs))
    ),
    "retrain-k": Entry(lambda run, s: retrain(run, s.exact_rounds(run))),
    "fine-tune-k": Entry(lambda run, s: fine_tune(run, s.exact_rounds(run))),
    "replay-then-tune": Entry(lambda run, s: historical(run, tuned=s.exact_rounds(run))),
    "accelerated-retrain": Entry(lambda run, s: accelerated_retrain(run, s.accelerated_rounds)),
}
BASELINES = tuple(METHODS)
"""What a sensible user would try; rivals that reveal more are asked for by name."""

METHODS |= {
    "fedrecovery": Entry(lambda run, s: fed_recovery(run)),
    "fedrecovery-noise": Entry(
        lambda run, s: fed_recovery(run, s.noise, s.source("fedrecovery-noise"))
    ),
    "certified-removal": Entry(
        lambda run, s: certified_removal(run, s.removal, s.source("certified-removal")),
        private=False,
        needs="Hessians over peers' whole data",
    ),
}


def start(name: str, run: Original, settings: Settings) -> Method:
    """Start the method of this name."""
    check(name)
    return METHODS[name].start(run, settings)


def check(name: str, *, clear: bool = True) -> None:
    """Raise if no method has this name, or if it cannot run on shares and is to."""
    if name not in METHODS:
        raise PlanError(f"no method is called {name!r}; there are {', '.join(METHODS)}")
    if not clear and not METHODS[name].private:
        raise PlanError(
            f"{name} needs {METHODS[name].needs}, which are never opened on shares; run it in the "
            "clear (--clear), or leave it out"
        )
