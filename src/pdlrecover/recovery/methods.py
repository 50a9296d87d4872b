"""Every recovery method by its name."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from pdlrecover.errors import PlanError
from pdlrecover.field import Seeded, Source, SystemSource
from pdlrecover.recovery.accelerated import DEFAULT_ROUNDS, accelerated_retrain
from pdlrecover.recovery.auto import AutoOptions, auto
from pdlrecover.recovery.certified_removal import RemovalOptions, certified_removal
from pdlrecover.recovery.crab import CrabOptions, crab
from pdlrecover.recovery.delta_grad import DeltaGradOptions, delta_grad
from pdlrecover.recovery.fed_eraser import FedEraserOptions, fed_eraser
from pdlrecover.recovery.fed_recovery import Noise, fed_recovery
from pdlrecover.recovery.fedrecover import FedRecoverOptions, fedrecover
from pdlrecover.recovery.fine_tune import fine_tune
from pdlrecover.recovery.historical import historical
from pdlrecover.recovery.pdlrecover import Options, pdlrecover
from pdlrecover.recovery.requests import Method, Original
from pdlrecover.recovery.retrain import retrain

PLANNED = ("preparation", "period", "final", "buffer")
"""What a variant may change of a schedule."""
OF_AUTO = ("damping", "polish", "polish_rate", "rescue", "retrain")
"""What else a variant of `auto` may change."""
FRACTIONS = ("damping", "polish_rate", "rescue", "retrain")
"""What need not be whole."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the methods are given besides the run."""

    options: Options = field(default_factory=Options)
    budget: int | None = None
    """k, the exact rounds of the -k methods; by default as many as PDLRecover's schedule plans."""
    accelerated_rounds: int = DEFAULT_ROUNDS
    batch_size: int = 32
    auto: AutoOptions = field(default_factory=AutoOptions)
    fedrecover: FedRecoverOptions = field(default_factory=FedRecoverOptions)
    fed_eraser: FedEraserOptions = field(default_factory=FedEraserOptions)
    crab: CrabOptions = field(default_factory=CrabOptions)
    delta_grad: DeltaGradOptions = field(default_factory=DeltaGradOptions)

    noise: Noise = field(default_factory=Noise)
    """Of fedrecovery-noise."""
    removal: RemovalOptions = field(default_factory=RemovalOptions)
    """Of certified-removal."""
    noise_seed: int | None = None
    """Draw noise from this seed, to repeat a simulation; by default it is the system's."""

    def source(self, name: str) -> Source:
        """Return where a method takes its noise from."""
        return SystemSource() if self.noise_seed is None else Seeded(f"{name} {self.noise_seed}")

    def varied(self, overrides: dict[str, Any]) -> "Settings":
        """Return these settings with the numbers of a variant."""
        rounds = overrides.get("rounds")
        plan = {k: v for k, v in overrides.items() if k in PLANNED}
        of_auto = {k: v for k, v in overrides.items() if k in OF_AUTO}
        block = overrides.get("block", self.options.block)
        schedule = replace(self.options.schedule, **plan)
        auto = replace(
            self.auto,
            open_pairs=self.options.open_pairs,
            schedule=replace(self.auto.schedule, **plan),
            **of_auto,
        )
        return replace(
            self,
            options=replace(self.options, schedule=schedule, block=block),
            auto=auto,
            budget=self.budget if rounds is None else rounds,
            accelerated_rounds=self.accelerated_rounds if rounds is None else rounds,
        )

    def exact_rounds(self, run: Original) -> int:
        """Return k."""
        planned = self.options.schedule.exact_rounds(run.rounds)
        return min(run.rounds, planned if self.budget is None else self.budget)


@dataclass(frozen=True)
class MethodEntry:
    """A method, and what it asks for."""

    start: Callable[[Original, Settings], Method]
    private: bool = True
    """Whether it runs on shares: it asks for nothing that is not opened there."""
    needs: str = "single peers' updates"
    """What it asks for that is not."""
    varies: tuple[str, ...] = ()
    """What its variants may change: see `Settings.varied`."""
    removes: bool = False
    """Whether it is about the removed peers' own updates, so that there must be some."""


METHODS: dict[str, MethodEntry] = {
    "retrain": MethodEntry(lambda run, s: retrain(run)),
    "historical": MethodEntry(lambda run, s: historical(run)),
    "pdlrecover": MethodEntry(
        lambda run, s: pdlrecover(run, s.options), varies=(*PLANNED, "block")
    ),
    "auto": MethodEntry(
        lambda run, s: auto(run, s.batch_size, s.auto),
        varies=("preparation", "period", "buffer", *OF_AUTO),
    ),
    "retrain-k": MethodEntry(lambda run, s: retrain(run, s.exact_rounds(run)), varies=("rounds",)),
    "fine-tune-k": MethodEntry(
        lambda run, s: fine_tune(run, s.exact_rounds(run)), varies=("rounds",)
    ),
    "replay-then-tune": MethodEntry(
        lambda run, s: historical(run, tuned=s.exact_rounds(run)), varies=("rounds",)
    ),
    "accelerated-retrain": MethodEntry(
        lambda run, s: accelerated_retrain(run, s.accelerated_rounds), varies=("rounds",)
    ),
}
BASELINES = tuple(METHODS)
"""What a sensible user would try; rivals are asked for by name, most need more than sums."""

METHODS |= {
    "fedrecover": MethodEntry(lambda run, s: fedrecover(run, s.fedrecover), private=False),
    "fed-eraser": MethodEntry(lambda run, s: fed_eraser(run, s.fed_eraser), private=False),
    "crab": MethodEntry(lambda run, s: crab(run, s.crab), private=False, removes=True),
    "delta-grad": MethodEntry(lambda run, s: delta_grad(run, s.delta_grad)),
    "fedrecovery": MethodEntry(lambda run, s: fed_recovery(run), removes=True),
    "fedrecovery-noise": MethodEntry(
        lambda run, s: fed_recovery(run, s.noise, s.source("fedrecovery-noise")), removes=True
    ),
    "certified-removal": MethodEntry(
        lambda run, s: certified_removal(run, s.removal, s.source("certified-removal")),
        private=False,
        removes=True,
        needs="Hessians over peers' whole data",
    ),
}

SCHEDULED = ("pdlrecover", "retrain-k", "fine-tune-k", "replay-then-tune")
"""Methods whose exact rounds are planned by PDLRecover's schedule, which must fit the run."""


def start(name: str, run: Original, settings: Settings) -> Method:
    """Start the method of this name, or a variant of it: `pdlrecover:preparation=10+final=5`."""
    base, overrides = parse(name)
    return METHODS[base].start(run, settings.varied(overrides))


def parse(name: str) -> tuple[str, dict[str, Any]]:
    """Return the method that a name is of, and what it changes in the settings."""
    base, _, rest = name.partition(":")
    if base not in METHODS:
        raise PlanError(f"no method is called {base!r}; there are {', '.join(METHODS)}")
    overrides: dict[str, Any] = {}
    varies = METHODS[base].varies
    for part in rest.split("+") if rest else ():
        key, _, value = part.partition("=")
        if not varies:
            raise PlanError(f"{name!r} is no variant of {base}, which has none")
        number = r"\d+(\.\d+)?" if key in FRACTIONS else r"\d+"
        if key not in varies or not re.fullmatch(number, value, re.ASCII):
            raise PlanError(
                f"{name!r} is no variant of {base}: write {base}:KEY=NUMBER+… with KEY of "
                f"{', '.join(varies)}"
            )
        overrides[key] = float(value) if key in FRACTIONS else int(value)
    return base, overrides


def check(name: str, *, clear: bool = True) -> None:
    """Raise if no method has this name, or if it cannot run on shares and is to."""
    base, _ = parse(name)
    if not clear and not METHODS[base].private:
        raise PlanError(
            f"{base} needs {METHODS[base].needs}, which are never opened on shares; run it in the "
            "clear (--clear), or leave it out"
        )


def check_plan(name: str, settings: Settings, *, rounds: int, removed: int) -> None:
    """Raise if a method has no room in a run of so many rounds, or nobody's work to take away."""
    base, overrides = parse(name)
    varied = settings.varied(overrides)
    if base in SCHEDULED:
        varied.options.schedule.check(rounds)
    for key in overrides.keys() & {"rounds", *FRACTIONS}:
        if not 0 < overrides[key] < math.inf:
            raise PlanError(f"{name!r} cannot run: {key} must be above 0 and finite")
    if METHODS[base].removes and not removed:
        raise PlanError(f"{base} takes away what removed peers have done, and nobody is removed")
