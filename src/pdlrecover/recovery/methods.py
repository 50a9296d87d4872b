"""Every recovery method by its name, and its traits: what others need to know of it.

Rules:

- A method is one file, one entry in `METHODS` and one page in `docs/methods`. Whoever treats some
  methods differently asks their entries; no other place has a list of names.
- A trait that is not stated refuses. A method with a bare entry runs in the clear only and not
  between peers, counts as one that opens every stored round, gets no score for forgetting, and is
  run only when it is asked for.
- A method's own options are a dataclass in its file: it asks for them by `Settings.of`.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import partial
from typing import Any, Literal, TypeVar, get_args

from pdlrecover.errors import PlanError, Setting
from pdlrecover.field import Seeded, Source, SystemSource
from pdlrecover.recovery.accelerated import FRESH, AcceleratedOptions, accelerated_retrain
from pdlrecover.recovery.auto import AutoOptions, auto
from pdlrecover.recovery.certified_removal import RemovalOptions, certified_removal
from pdlrecover.recovery.crab import CrabOptions, crab
from pdlrecover.recovery.delta_grad import DeltaGradOptions, delta_grad
from pdlrecover.recovery.distillation import DistillationOptions, distillation
from pdlrecover.recovery.fed_eraser import FedEraserOptions, fed_eraser
from pdlrecover.recovery.fedrecover import FedRecoverOptions, fedrecover
from pdlrecover.recovery.fedrecovery import Noise, fed_recovery
from pdlrecover.recovery.fine_tune import fine_tune
from pdlrecover.recovery.historical import historical
from pdlrecover.recovery.knot import KnotOptions, knot
from pdlrecover.recovery.pdlrecover import Options, pdlrecover
from pdlrecover.recovery.rapid_retrain import RapidOptions, rapid_retrain
from pdlrecover.recovery.requests import Method, Original
from pdlrecover.recovery.retrain import retrain
from pdlrecover.recovery.schedule import Schedule
from pdlrecover.recovery.sisa import SisaOptions, sisa
from pdlrecover.recovery.suggestions import did_you_mean

DEFAULT = "auto"
"""The method that is run unless another is asked for."""
OURS = "pdlrecover"
"""The method whose exact rounds set budgets."""
REFERENCE = "retrain"
"""The method that all others are measured against."""
MOST = 1 << 31
"""Whole numbers of a variant are below this."""
T = TypeVar("T")
Numbers = dict[str, Any]
"""What a variant changes: `pdlrecover:preparation=10+final=5` has two numbers."""
Kind = type[int] | type[float] | type[str] | type[bool]
FORMS: dict[Kind, tuple[str, str, Callable[[str], Any]]] = {
    int: (r"\d+", "a whole number", int),
    float: (r"\d+(\.\d+)?", "a number", float),
    str: (r"[a-z][a-z-]*", "a word", str),
    bool: ("yes|no", "yes or no", lambda word: word == "yes"),
}
"""How each kind of value is written in a variant, what it is called, and how it is read."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the methods are given besides the run."""

    options: Options = field(default_factory=Options)
    budget: int | None = None
    """k, the exact rounds of the -k methods; by default as many as PDLRecover's schedule plans."""
    accelerated: AcceleratedOptions = field(default_factory=AcceleratedOptions)
    batch_size: int = 32
    local_steps: int = 1
    """Minibatches that a peer took in a round of the training."""
    own: tuple[object, ...] = ()
    """Options of other methods that differ from the defaults, such as `CrabOptions(drop=0.2)`."""
    noise_seed: int | None = None
    """Draw noise from this seed, to repeat a simulation; by default it is the system's."""

    def of(self, kind: type[T]) -> T:
        """Return the options of this class: the first in `own`, or the defaults."""
        return next((each for each in self.own if isinstance(each, kind)), kind())

    def source(self, name: str) -> Source:
        """Return where a method takes its noise from."""
        return SystemSource() if self.noise_seed is None else Seeded(f"{name} {self.noise_seed}")

    def exact_rounds(self, run: Original) -> int:
        """Return k."""
        planned = self.options.schedule.exact_rounds(run.rounds)
        return min(run.rounds, planned if self.budget is None else self.budget)


@dataclass(frozen=True)
class MethodEntry:
    """A method and its traits."""

    start: Callable[[Original, Settings], Method]
    _: KW_ONLY
    on: Literal["clear", "shares", "peers"] = "clear"
    """Where it may run: in the clear only; on shares as well, since it asks for nothing that is
    not opened there; or also between peers, which all come to the same model by themselves."""
    needs: str = "answers that its entry does not name"
    """What it asks for that is never opened on shares, if it runs in the clear only."""
    sees: Literal["history", "last model", "first model", "nothing"] = "history"
    """What it uses of the original run: anything; only a model from which it starts with fresh
    updates alone; or nothing but the first weights, so that there need not have been a run."""
    afresh: Callable[[Settings], bool] = lambda settings: False
    """Says whether it starts afresh with these settings: at new first weights and with minibatches
    of its own. It then opens nothing that was opened in training, and needs no stored share."""
    length: Callable[[Original, Settings], int] = lambda run, settings: run.rounds
    """Returns how many rounds it goes through, exact or not: for those who watch."""
    groups: Callable[[Settings], int] = lambda settings: 1
    """Returns into how many groups it divides the peers, each with sums of its own."""
    rounds: Literal["own", "scheduled", "budgeted"] = "own"
    """Who sets its exact rounds: the method; PDLRecover's schedule, which must fit the run; or the
    number that PDLRecover has used, by default what that schedule plans."""
    passes_over: bool = False
    """Whether it goes on without stored sums that must stay closed (`Original.closed`)."""
    removes: bool = False
    """Whether it is about the removed peers' own updates, so that there must be some."""
    noisy: bool = False
    """Whether it adds noise by design, so that a high loss is no sign of divergence."""
    scored: bool = False
    """Whether its models' scores are likelihoods, so that losses tell what it has forgotten."""
    baseline: bool = False
    """Whether a sensible user would try it; the others are run when they are asked for."""
    varies: Mapping[str, Kind] = field(default_factory=dict)
    """What its variants may change, by kind."""
    vary: Callable[[Settings, Numbers], Settings] = lambda settings, numbers: settings
    """Returns the settings of a variant."""

    @property
    def private(self) -> bool:
        """Whether it runs on shares."""
        return self.on != "clear"


def changed(options: Any, numbers: Numbers) -> Any:
    """Return options with other numbers, which are theirs or their schedule's."""
    plan = {key: value for key, value in numbers.items() if key in PLAN}
    rest: Numbers = {key: value for key, value in numbers.items() if key not in PLAN}
    if plan:
        rest["schedule"] = replace(options.schedule, **plan)
    return replace(options, **rest)


def _variants(options: type[Any]) -> dict[str, Any]:
    """Return the traits of a method whose variants change its own options.

    An option whose type is optional varies by the type that it has if it is given.
    """
    declared = {each.name: get_args(each.type) or (each.type,) for each in fields(options)}
    return {
        "varies": {name: next(k for k in kinds if k in FORMS) for name, kinds in declared.items()},
        "vary": lambda s, numbers: replace(s, own=(replace(s.of(options), **numbers), *s.own)),
    }


def _rival(method: Callable[..., Method], options: type[Any], **traits: Any) -> MethodEntry:
    """Return the entry of a method that takes nothing but the run and its own options."""
    return MethodEntry(
        lambda run, s: method(run, s.of(options)), scored=True, **_variants(options), **traits
    )


SINGLE = "single peers' updates"
PLAN: dict[str, Kind] = {each.name: int for each in fields(Schedule)}
"""What a variant may change of a schedule."""
_baseline = partial(MethodEntry, on="peers", scored=True, baseline=True)
_budgeted = partial(
    _baseline,
    rounds="budgeted",
    length=lambda run, s: s.exact_rounds(run),
    varies={"rounds": int},
    vary=lambda s, numbers: replace(s, budget=numbers["rounds"]),
)

METHODS: dict[str, MethodEntry] = {
    "retrain": _baseline(lambda run, s: retrain(run), sees="first model"),
    "historical": _baseline(lambda run, s: historical(run), passes_over=True),
    "pdlrecover": _baseline(
        lambda run, s: pdlrecover(run, s.options),
        rounds="scheduled",
        passes_over=True,
        varies={**PLAN, "block": int},
        vary=lambda s, numbers: replace(s, options=changed(s.options, numbers)),
    ),
    "auto": _baseline(
        lambda run, s: auto(run, s.batch_size, s.of(AutoOptions), s.accelerated, s.local_steps),
        sees="nothing",
        afresh=lambda s: s.of(AutoOptions).start_of(s.accelerated) == FRESH,
        length=lambda run, s: s.of(AutoOptions).plan(run, s.batch_size, s.accelerated).rounds,
        **_variants(AutoOptions),
    ),
    "retrain-k": _budgeted(lambda run, s: retrain(run, s.exact_rounds(run)), sees="first model"),
    "fine-tune-k": _budgeted(lambda run, s: fine_tune(run, s.exact_rounds(run)), sees="last model"),
    "replay-then-tune": _budgeted(
        lambda run, s: historical(run, tuned=s.exact_rounds(run)),
        length=lambda run, s: run.rounds,
        passes_over=True,
    ),
    "accelerated-retrain": _baseline(
        lambda run, s: accelerated_retrain(run, s.accelerated, batch_size=s.batch_size),
        sees="nothing",
        afresh=lambda s: s.accelerated.start == FRESH,
        length=lambda run, s: s.accelerated.rounds,
        varies={
            "rounds": int,
            "optimizer": str,
            "rate": float,
            "momentum": float,
            "gain": float,
            "start": str,
            "local_steps": int,
            "local_rate": float,
            "cycles": int,
        },
        vary=lambda s, numbers: replace(s, accelerated=replace(s.accelerated, **numbers)),
    ),
    "fedrecover": _rival(fedrecover, FedRecoverOptions, needs=SINGLE),
    "fed-eraser": _rival(fed_eraser, FedEraserOptions, needs=SINGLE),
    "crab": _rival(crab, CrabOptions, needs=SINGLE, removes=True),
    "delta-grad": _rival(delta_grad, DeltaGradOptions, on="peers"),
    "fedrecovery": MethodEntry(
        lambda run, s: fed_recovery(run), on="peers", removes=True, scored=True
    ),
    "fedrecovery-noise": MethodEntry(
        lambda run, s: fed_recovery(run, s.of(Noise), s.source("fedrecovery-noise")),
        on="shares",
        removes=True,
        noisy=True,
        scored=True,
        **_variants(Noise),
    ),
    "certified-removal": MethodEntry(
        lambda run, s: certified_removal(run, s.of(RemovalOptions), s.source("certified-removal")),
        needs="Hessians over peers' whole data",
        removes=True,
        noisy=True,
        **_variants(RemovalOptions),
    ),
    "rapid-retrain": _rival(
        rapid_retrain,
        RapidOptions,
        on="peers",
        sees="first model",
        length=lambda run, s: s.of(RapidOptions).rounds,
    ),
    "distillation": _rival(
        distillation,
        DistillationOptions,
        on="peers",
        length=lambda run, s: s.of(DistillationOptions).length(run),
        removes=True,
    ),
    "sisa": _rival(
        sisa,
        SisaOptions,
        on="shares",
        sees="first model",
        groups=lambda s: s.of(SisaOptions).shards,
        length=lambda run, s: run.rounds + s.of(SisaOptions).length(run),
    ),
    "knot": _rival(knot, KnotOptions, needs=SINGLE),
}
"""In the order in which they are run and shown."""
BASELINES = tuple(name for name, entry in METHODS.items() if entry.baseline)


def start(name: str, run: Original, settings: Settings) -> Method:
    """Start the method of this name, or a variant of it: `pdlrecover:preparation=10+final=5`."""
    return entry_of(name).start(run, varied(name, settings))


def entry_of(name: str) -> MethodEntry:
    """Return the entry of a method, or of the one that a name is a variant of."""
    return METHODS[parse(name)[0]]


def length(name: str, run: Original, settings: Settings) -> int:
    """Return how many rounds a method goes through."""
    return entry_of(name).length(run, varied(name, settings))


def starts_afresh(name: str, settings: Settings) -> bool:
    """Say whether a method starts afresh with these settings."""
    return entry_of(name).afresh(varied(name, settings))


def varied(name: str, settings: Settings) -> Settings:
    """Return the settings with the numbers of a variant."""
    base, numbers = parse(name)
    return METHODS[base].vary(settings, numbers) if numbers else settings


def parse(name: str) -> tuple[str, Numbers]:
    """Return the method that a name is of, and what it changes in the settings."""
    base, _, rest = name.partition(":")
    if base not in METHODS:
        meant = did_you_mean(base, METHODS)
        raise PlanError(f"no method is called {base!r}; {meant}there are {', '.join(METHODS)}")
    numbers: Numbers = {}
    varies = METHODS[base].varies
    for part in rest.split("+") if rest else ():
        key, _, value = part.partition("=")
        if not varies:
            raise PlanError(f"{name!r} is no variant of {base}, which has none")
        if key not in varies or not re.fullmatch(FORMS[varies[key]][0], value, re.ASCII):
            known = ", ".join(f"{each} ({FORMS[kind][1]})" for each, kind in varies.items())
            raise PlanError(
                f"{name!r} is no variant of {base}: write {base}:KEY=VALUE+… with KEY of {known}"
            )
        numbers[key] = FORMS[varies[key]][2](value)
    return base, numbers


def check(name: str, *, clear: bool = True) -> None:
    """Raise if no method has this name, or if it cannot run on shares and is to."""
    base, _ = parse(name)
    if not clear and not METHODS[base].private:
        raise PlanError(
            f"{base} needs {METHODS[base].needs}, which are never opened on shares; run it in the "
            "clear (",
            Setting("clear", "True"),
            "), or leave it out",
        )


def check_between_peers(name: str) -> None:
    """Raise if a method cannot run between peers, each of which computes the model by itself."""
    check(name, clear=False)
    entry = entry_of(name)
    if entry.noisy:
        raise PlanError(
            f"{name} adds random noise, and every peer would draw its own and come to another "
            "model; choose another method"
        )
    if entry.on != "peers":
        raise PlanError(
            f"{name} is not known to lead every peer to the same model; choose another method, or "
            'say on="peers" in its entry if it does'
        )


def check_plan(name: str, settings: Settings, *, rounds: int, removed: int) -> None:
    """Raise if a method has no room in a run of this length, or nobody's work to take away."""
    base, numbers = parse(name)
    options = varied(name, settings).options
    if METHODS[base].rounds != "own":
        options.schedule.check(rounds)
    for key, value in numbers.items():
        if (key == "rounds" or METHODS[base].varies[key] is float) and not 0 < value < math.inf:
            raise PlanError(f"{name!r} cannot run: {key} must be above 0 and finite")
        if key == "rounds" and METHODS[base].rounds == "budgeted" and value > rounds:
            raise PlanError(
                f"{name!r} cannot have {value} exact rounds, for the run has {rounds}; lower it"
            )
        if isinstance(value, int) and value >= MOST:
            raise PlanError(f"{name[:60]!r} cannot run: {key} must be below {MOST}")
    if METHODS[base].removes and not removed:
        raise PlanError(f"{base} takes away what removed peers have done, and nobody is removed")
