"""One experiment, as one flat set of values: from flags, from a TOML file, or from Python.

A field's name, type, default and docstring are also those of the flag of `pdlrecover simulate`.
"""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from pdlrecover.adversary import WAITING, strength_of
from pdlrecover.decode import decode, parse_toml
from pdlrecover.engines.sum_store import Faults
from pdlrecover.errors import PlanError, Setting
from pdlrecover.files import about, read_text
from pdlrecover.recovery.accelerated import FRESH, AcceleratedOptions
from pdlrecover.recovery.groups import check_sizes
from pdlrecover.recovery.methods import (
    BASELINES,
    METHODS,
    Settings,
    check,
    check_plan,
    entry_of,
    starts_afresh,
    varied,
)
from pdlrecover.recovery.optimizers import build
from pdlrecover.recovery.pdlrecover import Options
from pdlrecover.recovery.removal import Reason
from pdlrecover.recovery.schedule import Schedule, usual_phase
from pdlrecover.recovery.standardisation import Per, Standardise
from pdlrecover.sharing import Tolerance

LATER = ("held_out", "evaluate_every", "standardise", "standardise_bound", "standardise_per")
"""Settings that earlier versions did not have: with their defaults they are in no record."""
CURVE_POINTS = 50
"""How many points a curve of accuracy has, about."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """What to train, how it is attacked, and how it is recovered."""

    dataset: str = "digits"
    """digits (bundled), mnist, fashion-mnist, har or har-inertial."""
    split: str = "random"
    """How HAR is split into training and test data: random, or subject."""
    validation: bool = False
    """Report on a fifth of the training data, held out, instead of the test data: for tuning."""
    model: str = "mlp"
    """logistic, mlp, mlp-HIDDEN, cnn, or package.module:factory."""
    partition: str = "fang"
    """How the data are divided among peers: iid, fang, dirichlet or subject."""
    degree: float = 0.5
    """The degree of fang (0.1 is iid for 10 classes), or α of dirichlet."""
    seed: int = 0
    """The seed of data, weights and minibatches."""

    peers: int = 20
    """n: how many peers train together."""
    malicious: int = 0
    """How many peers attack, are found, and are removed."""
    accused: int = 0
    """How many honest peers are removed with them by mistake."""
    leavers: int = 0
    """How many honest peers leave, instead of malicious ones."""
    undetected: int = 0
    """How many more peers attack, are not found, and stay."""
    attack: str = "backdoor"
    """What attackers do; bad-unlearn:ATTACK waits for the recovery, and then does ATTACK."""
    attack_scale: float | None = None
    """The attack's own strength: the scale of updates (backdoor, dba, sign-flip), the deviation
    of noise, the factor of trim, the deviations of trim-partial, the z of lie."""

    rounds: int = 200
    """T: rounds of training."""
    batch_size: int = 32
    """Samples in a peer's minibatch."""
    learning_rate: float = 0.1
    """The learning rate of the optimizer."""
    optimizer: str = "sgd"
    """sgd, momentum, adam or muon: turns mean updates into steps."""
    l2: float = 0.0
    """λ of L2 regularisation."""
    local_steps: int = 1
    """E: steps of SGD that a peer takes by itself in a round, each on a minibatch of its own."""
    local_rate: float = 0.1
    """Their learning rate; without effect if there is one step."""
    bound: float = 10.0
    """The public L2 bound of an update."""
    held_out: float = 0.0
    """The share of its samples that every peer keeps apart, for peers to evaluate models on by
    opened sums, as between real peers; 0: no such evaluations."""
    evaluate_every: int = 10
    """Rounds between two of these evaluations; there is one at the end, too."""

    standardise: bool = False
    """Bring inputs to mean 0 and deviation 1 over all peers before the training, by private sums,
    as between real peers."""
    standardise_bound: float = 1000.0
    """In these sums, inputs beyond ± this count as ± this."""
    standardise_per: Per = "feature"
    """What has a mean of its own: feature, channel (a sample's first axis) or all."""

    methods: tuple[str, ...] = BASELINES
    """The recovery methods to run."""
    preparation: int | None = None
    """T_p: exact rounds at the start; by default 25 of 1000 rounds, 16 of a few hundred, and an
    eighth of fewer."""
    period: int = 30
    """T_r: of the rounds between those at the start and the end, one in this many is exact."""
    final: int | None = None
    """T_f: exact rounds at the end; by default as many as at the start."""
    buffer: int = 4
    """s: how many curvature pairs are kept."""
    open_pairs: bool = False
    """Open the curvature pairs, so that curvature is computed locally."""
    block: int | None = None
    """k: how many estimated rounds are opened as one sum; by default 1, and after plain SGD 5, or
    with opened pairs all between two exact rounds."""
    accelerated_rounds: int = 25
    """Rounds of accelerated retraining."""
    fresh_start: bool = False
    """Let accelerated retraining begin at new first weights with minibatches of its own, as
    between real peers; nobody then needs stored shares, and one honest peer may leave alone."""
    accept_differencing: bool = False
    """Remove leavers even if they are too few to hide each other's updates."""

    references: int = 2
    """Where peers left and retrain is run: how many more retrainings, from other first weights,
    tell what a model would know that never saw their data; 0 measures nothing."""

    clear: bool = False
    """Skip dealing and opening: the same numbers, faster."""
    colluders: int | None = None
    """How many peers together learn nothing; by default a third of all."""
    dropouts: int | None = None
    """How many peers may be absent or removed; by default 30%, or the removed ones if more."""
    liars: int | None = None
    """How many peers may send wrong shares; by default one in 40."""
    absent: int = 0
    """How many of the kept peers do not answer during recovery."""
    lying: int = 0
    """How many of the kept peers send wrong shares during recovery."""
    budget_gb: float = 16.0
    """How much the history may take on disk, in GB."""

    def __post_init__(self) -> None:
        people = ("malicious", "undetected", "accused", "leavers", "absent", "lying")
        at_least = (("peers", 2), ("rounds", 1), ("evaluate_every", 1))
        for name, least in (*at_least, *((name, 0) for name in (*people, "seed", "references"))):
            if getattr(self, name) < least:
                raise PlanError(
                    Setting(name), f" must be at least {least}, got {getattr(self, name)}"
                )
        if self.malicious and self.leavers:
            raise PlanError(
                "either peers are malicious or they leave: give one of ",
                Setting("malicious"),
                " and ",
                Setting("leavers"),
            )
        if self.accused and not self.malicious:
            raise PlanError(
                f"{self.accused} peers are accused with the malicious ones, and there are none; "
                "give ",
                Setting("malicious"),
                ", too",
            )
        if max(self.malicious, self.leavers, len(self.removed)) >= self.peers:
            what = "malicious" if self.malicious else "leavers"
            raise PlanError(
                Setting(what, str(getattr(self, what))),
                f" of {self.peers} peers leaves nobody to recover; lower it to {self.peers - 1} "
                "or less",
            )
        positive = ("bound", "learning_rate", "accelerated_rounds", "batch_size", "budget_gb")
        for name in (*positive, "local_steps", "local_rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise PlanError(Setting(name), f" must be positive, got {getattr(self, name)}")
        if not 0 < self.standardise_bound < math.inf:
            raise PlanError(
                Setting("standardise_bound"), f" must be positive, got {self.standardise_bound}"
            )
        if not 0 <= self.held_out <= 0.5:
            raise PlanError(Setting("held_out"), f" must be from 0 to 0.5, got {self.held_out}")
        if self.undetected >= self.kept:
            raise PlanError(
                f"{len(self.removed)} removed and {self.undetected} undetected of {self.peers} "
                "peers leave nobody honest; lower one of them"
            )
        if self.attack.startswith(WAITING) and self.malicious:
            raise PlanError(
                "attackers who wait for the recovery are not found in training: give them as ",
                Setting("undetected"),
                ", and ",
                Setting("leavers"),
                " to be removed, instead of ",
                Setting("malicious"),
            )
        for method in self.methods:
            check(method, clear=self.clear)
            check_plan(method, self.settings, rounds=self.rounds, removed=len(self.removed))
            groups = entry_of(method).groups(varied(method, self.settings))
            if not self.clear and groups > 1:
                check_sizes(
                    groups, peers=self.peers, removed=self.removed, tolerance=self.tolerance
                )
        if self.clear and (self.absent or self.lying):
            raise PlanError(
                "absent and lying peers need shares; leave ", Setting("clear", "True"), " out"
            )
        if self.kept < self.absent + self.lying or self.lying > self.tolerance.liars:
            raise PlanError(
                f"{self.absent} absent and {self.lying} lying peers are more than the kept ones "
                f"can be, or than the {self.tolerance.liars} liars that are tolerated; lower ",
                Setting("absent"),
                " or ",
                Setting("lying"),
                ", or raise ",
                Setting("liars"),
            )
        build(self.optimizer, self.learning_rate, rounds=self.rounds)
        Standardise(bound=self.standardise_bound, per=self.standardise_per)
        _ = self.attack_strength, self.options, self.tolerance.quorums(self.peers)

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> Self:
        """Return the config of these values; an unknown key or a wrong type is refused."""
        if isinstance(names := values.get("methods"), str):
            found = [name.strip() for name in names.split(",") if name.strip()]
            values = {**values, "methods": found}
        if not values.get("methods", BASELINES):
            raise PlanError(
                Setting("methods"),
                f" must name at least one method, got {names!r}; known are {', '.join(METHODS)}",
            )
        return decode(cls, values, PlanError)

    @classmethod
    def from_toml(cls, path: Path, overrides: dict[str, Any] | None = None) -> Self:
        """Read a TOML file of flat keys, with `-` or `_`; overrides win."""
        text = read_text(path, PlanError, missing="name a TOML file of settings")
        with about(path, PlanError):
            values = parse_toml(text, PlanError)
            given = overrides or {}
            kept = {k: value for k, value in values.items() if k.replace("-", "_") not in given}
            return cls.from_values({**kept, **given})

    def record(self) -> dict[str, Any]:
        """Return the values for a result record."""
        values = {**asdict(self), "methods": list(self.methods)}
        return {k: v for k, v in values.items() if k not in LATER or v != getattr(Config, k)}

    @property
    def removed(self) -> range:
        """The peers that are removed: the first ones, who attack or leave, then the accused."""
        return range(self.malicious + self.accused) or range(self.leavers)

    @property
    def kept(self) -> int:
        """How many peers are not removed."""
        return self.peers - len(self.removed)

    @property
    def reason(self) -> Reason:
        """Why they are removed."""
        return "malicious" if self.malicious else "left"

    @property
    def attackers(self) -> tuple[int, ...]:
        """Who attacks: the first peers if they are found, and those after the removed ones."""
        first = len(self.removed)
        return (*range(self.malicious), *range(first, first + self.undetected))

    @property
    def attack_strength(self) -> dict[str, float]:
        """The attack's strength as its own argument."""
        name = strength_of(self.attack)
        if self.attack_scale is None or not self.attackers:
            return {}
        if name is None:
            raise PlanError(
                f"the attack {self.attack} has no strength to set with ", Setting("attack_scale")
            )
        return {name: self.attack_scale}

    @property
    def standardisation(self) -> Standardise | None:
        """How inputs are brought to one scale, if they are."""
        if not self.standardise:
            return None
        return Standardise(bound=self.standardise_bound, per=self.standardise_per)

    @property
    def schedule(self) -> Schedule:
        """The schedule of PDLRecover."""
        short = usual_phase(self.rounds)
        return Schedule(
            preparation=short if self.preparation is None else self.preparation,
            period=self.period,
            final=short if self.final is None else self.final,
            buffer=self.buffer,
        )

    @property
    def options(self) -> Options:
        """How PDLRecover is to run."""
        return Options(schedule=self.schedule, open_pairs=self.open_pairs, block=self.block)

    @property
    def accelerated(self) -> AcceleratedOptions:
        """How accelerated retraining is to run."""
        start = FRESH if self.fresh_start else AcceleratedOptions.start
        return AcceleratedOptions(rounds=self.accelerated_rounds, start=start)

    @property
    def settings(self) -> Settings:
        """What the methods are given besides the run."""
        return Settings(
            options=self.options,
            accelerated=self.accelerated,
            batch_size=self.batch_size,
            local_steps=self.local_steps,
            noise_seed=self.seed,
        )

    @property
    def accepts_differencing(self) -> bool:
        """Whether differencing is accepted by name, or there is nothing to difference."""
        afresh = all(starts_afresh(method, self.settings) for method in self.methods)
        return self.accept_differencing or afresh

    @property
    def tolerance(self) -> Tolerance:
        """What the federation must survive."""
        n, removed = self.peers, len(self.removed)
        return Tolerance(
            colluders=(n - 1) // 3 if self.colluders is None else self.colluders,
            dropouts=max(removed, 3 * n // 10) if self.dropouts is None else self.dropouts,
            liars=n // 40 if self.liars is None else self.liars,
        )

    @property
    def faults(self) -> Faults:
        """What goes wrong in recoveries: the last peers are absent, those before them lie."""
        present = self.peers - self.absent
        return Faults(
            absent=tuple(range(present, self.peers)),
            liars=tuple(range(present - self.lying, present)),
        )

    @property
    def curve_every(self) -> int:
        """Rounds between two points of a curve."""
        return max(1, self.rounds // CURVE_POINTS)
