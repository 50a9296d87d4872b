"""One experiment, as one flat set of values: from flags, from a TOML file, or from Python."""

import difflib
import math
import tomllib
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import UnionType
from typing import Any, Self, get_args, get_origin

from pdlrecover.adversary import WAITING, strength_of
from pdlrecover.engines.sum_store import Faults
from pdlrecover.errors import PlanError
from pdlrecover.recovery.methods import BASELINES, Settings, check, check_plan
from pdlrecover.recovery.pdlrecover import Options
from pdlrecover.recovery.removal import Reason
from pdlrecover.recovery.schedule import Schedule
from pdlrecover.sharing import Tolerance

EVALUATIONS = 50
"""How many points a curve of accuracy has, about."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """What to train, how it is attacked, and how it is recovered."""

    dataset: str = "digits"
    """digits, mnist, fashion-mnist, har or har-inertial."""
    split: str = "random"
    """How HAR is split in training and test: random, or by subject."""
    validation: bool = False
    """Hold a fifth of the training data out and report on that: for tuning."""
    model: str = "mlp"
    """logistic, mlp, mlp-HIDDEN, cnn, or package.module:factory."""
    peers: int = 20
    """n: how many peers train together."""
    malicious: int = 0
    """How many of them attack, are found, and are the ones removed."""
    accused: int = 0
    """How many honest peers are removed with the attackers, by mistake."""
    leavers: int = 0
    """How many honest ones leave instead."""
    undetected: int = 0
    """How many more attack, are not found, and stay."""
    attack: str = "backdoor"
    """What attackers do: backdoor, dba, label-flip, sign-flip, noise, trim, trim-partial, lie,
    min-max, bad-unlearn, bad-unlearn:ATTACK or none."""
    attack_scale: float | None = None
    """The attack's own strength: the scale of updates (backdoor, dba, sign-flip), the deviation
    of noise, the factor of trim, the deviations of trim-partial, the z of lie."""
    rounds: int = 200
    """T: rounds of training."""
    batch_size: int = 32
    learning_rate: float = 0.1
    optimizer: str = "sgd"
    """sgd, momentum or adam, at the server: it turns mean updates into steps."""
    l2: float = 0.0
    """λ of L2 regularisation."""
    partition: str = "fang"
    """Who holds what: iid, fang, dirichlet or subject."""
    degree: float = 0.5
    """The degree of fang (0.1 is iid for 10 classes), or α of dirichlet."""
    seed: int = 0
    methods: tuple[str, ...] = BASELINES
    """Which recovery methods to run."""
    clear: bool = False
    """Skip dealing and opening; the numbers are the same."""
    preparation: int | None = None
    """T_p; 25, or an eighth of a run shorter than 200 rounds."""
    period: int = 30
    """T_r."""
    final: int | None = None
    """T_f; 25, or an eighth of a run shorter than 200 rounds."""
    buffer: int = 4
    """s."""
    open_pairs: bool = False
    """Open the curvature pairs, so that curvature is computed locally."""
    block: int | None = None
    """k: so many estimated rounds are opened as one; 5 after SGD with shared pairs, else 1."""
    accelerated_rounds: int = 50
    """Rounds of accelerated retraining."""
    colluders: int | None = None
    """So many peers together learn nothing; a third of the peers if not said."""
    dropouts: int | None = None
    """So many may be absent or removed; 30% of the peers, or the removed ones if more."""
    liars: int | None = None
    """So many may send wrong shares; one in 40 if not said."""
    absent: int = 0
    """So many of the kept peers do not answer while the model is recovered."""
    lying: int = 0
    """So many of them send wrong shares meanwhile."""
    budget_gb: float = 16.0
    """How much history may take on disk, in GB."""
    bound: float = 10.0
    """The public L2 bound of an update."""
    accept_differencing: bool = False
    """Remove fewer honest leavers than hide each other's updates."""

    def __post_init__(self) -> None:
        counts = ("malicious", "undetected", "accused", "leavers", "absent", "lying", "seed")
        for name, least in (("peers", 2), ("rounds", 1), *((name, 0) for name in counts)):
            if getattr(self, name) < least:
                raise PlanError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.malicious and self.leavers:
            raise PlanError("either peers are malicious or they leave: give one of the two")
        if self.accused and not self.malicious:
            raise PlanError(
                f"{self.accused} peers are accused with the malicious ones, and there are none"
            )
        if max(self.malicious, self.leavers, len(self.removed)) >= self.peers:
            what = "malicious" if self.malicious else "leavers"
            raise PlanError(
                f"{what} = {getattr(self, what)} of {self.peers} peers leaves nobody to recover; "
                f"lower it to {self.peers - 1} or less"
            )
        for name in ("bound", "learning_rate", "accelerated_rounds", "batch_size", "budget_gb"):
            if not 0 < getattr(self, name) < math.inf:
                raise PlanError(f"{name} must be positive, got {getattr(self, name)}")
        if len(self.removed) + self.undetected >= self.peers:
            raise PlanError(
                f"{len(self.removed)} removed and {self.undetected} undetected of {self.peers} "
                "peers leave nobody honest; lower one of them"
            )
        if self.attack.startswith(WAITING) and self.malicious:
            raise PlanError(
                "attackers who wait for the recovery are not found in training: give them as "
                "undetected, and leavers to be removed, instead of malicious"
            )
        for method in self.methods:
            check(method, clear=self.clear)
            plan = Settings(options=self.options)
            check_plan(method, plan, rounds=self.rounds, removed=len(self.removed))
        away = self.peers - len(self.removed) - self.absent - self.lying
        if self.clear and (self.absent or self.lying):
            raise PlanError("absent and lying peers need shares; leave --clear out")
        if away < 0 or self.lying > self.tolerance.liars:
            raise PlanError(
                f"{self.absent} absent and {self.lying} lying peers are more than the kept ones "
                f"can be, or than the {self.tolerance.liars} liars that are tolerated"
            )
        _ = self.attack_strength, self.options, self.tolerance.quorums(self.peers)

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> Self:
        """Make a config of these values; a key that does not exist is refused."""
        known = {f.name: f for f in fields(cls)}
        values = dict(values)
        if isinstance(values.get("methods"), str):
            values["methods"] = [name.strip() for name in values["methods"].split(",")]
        for key, value in values.items():
            if key not in known:
                nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.4)
                hint = (
                    f"did you mean {nearest[0]!r}?" if nearest else f"known are {', '.join(known)}"
                )
                raise PlanError(f"there is no setting called {key!r}; {hint}")
            _check_type(key, value, known[key].type)
        if "methods" in values:
            values["methods"] = tuple(values["methods"])
        return cls(**values)

    @classmethod
    def from_toml(cls, path: Path, overrides: dict[str, Any] | None = None) -> Self:
        """Read a TOML file of flat keys, with `-` or `_`; overrides win."""
        try:
            text = path.read_text()
            values = tomllib.loads(text)
        except OSError as error:
            raise PlanError(f"{path} cannot be read: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise PlanError(f"{path} is not TOML: {error}") from error
        flat = {key.replace("-", "_"): value for key, value in values.items()}
        try:
            return cls.from_values({**flat, **(overrides or {})})
        except PlanError as error:
            raise PlanError(f"{path}: {error}") from error

    def with_seed(self, seed: int) -> "Config":
        """Return the same experiment with another seed."""
        return replace(self, seed=seed)

    def record(self) -> dict[str, Any]:
        """Return the values for a result record."""
        return {**asdict(self), "methods": list(self.methods)}

    @property
    def removed(self) -> range:
        """The peers that are removed: the first ones, who attack or leave, then the accused."""
        return range(self.malicious + self.accused) or range(self.leavers)

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
            raise PlanError(f"the attack {self.attack} has no strength to set with attack_scale")
        return {name: self.attack_scale}

    @property
    def schedule(self) -> Schedule:
        """The schedule of PDLRecover."""
        short = max(2, min(25, self.rounds // 8))
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
    def evaluate_every(self) -> int:
        """Rounds between two points of a curve."""
        return max(1, self.rounds // EVALUATIONS)


def _check_type(key: str, value: Any, hint: Any) -> None:
    """Refuse a value of a type that the setting cannot have."""
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if not any(_is_a(value, kind) for kind in kinds):
        raise PlanError(f"{key} must be {' or '.join(map(_named, kinds))}, got {value!r}")


def _named(kind: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    return names.get(kind, "left out" if kind is type(None) else "a list of texts")


def _is_a(value: Any, kind: Any) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if get_origin(kind) is tuple:
        return isinstance(value, list | tuple) and all(isinstance(x, str) for x in value)
    return isinstance(value, kind)
