"""Attacks by name, and their traits: `build` makes one for a dataset.

Rules:

- An attack is one class, one entry in `ATTACKS` and one section in `docs/attacks.md`. Whoever
  treats some attacks differently asks their entries; no other place has a list of names.
- A trait that is not stated refuses: no peer plays the attack alone in a drill, and no result of a
  run without attackers stands for one with it.
- A name may have a second part: `bad-unlearn:lie` waits for a recovery and then does `lie`.
- Classes are imported when an attack is built: names and traits are asked for without torch, too.
- The strength of most attacks is one number first of all; `strength_of` says which argument it is.
"""

import inspect
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pdlrecover.errors import AttackError

if TYPE_CHECKING:
    from pdlrecover.adversary.attack import Attack
    from pdlrecover.learning import Dataset

WAITING = "bad-unlearn"
"""The attack that is made of another one."""
AFTERWARDS = "trim"
"""What it does after waiting, if not said."""
NO_ATTACK = "none"


@dataclass(frozen=True)
class Later:
    """An attack's class in a module of this package, imported when it is first used."""

    module: str
    name: str

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._class)

    @property
    def _class(self) -> "Callable[..., Attack]":
        found: Callable[..., Attack] = getattr(
            import_module(f"pdlrecover.adversary.{self.module}"), self.name
        )
        return found

    def __call__(self, **arguments: Any) -> "Attack":
        """Make the attack."""
        return self._class(**arguments)


@dataclass(frozen=True)
class AttackEntry:
    """An attack and its traits."""

    attack: "Callable[..., Attack]"
    """Its class; the arguments are what `build` below takes, besides what is `given`."""
    _: KW_ONLY
    given: "Callable[[Dataset], dict[str, Any]]" = lambda dataset: {}
    """Returns the arguments that the dataset determines."""
    strength: str | None = None
    """The argument that is its strength, if one is."""
    alone: bool = False
    """Whether it needs nobody else's updates, so that a peer can play it in a drill."""
    untargeted: bool = False
    """Whether it has no trigger: what is measured of a model does not depend on the attack."""


def _trigger(dataset: "Dataset") -> dict[str, Any]:
    from pdlrecover.adversary.triggers import trigger_for

    return {"trigger": trigger_for(dataset)}


ATTACKS: dict[str, AttackEntry] = {
    "backdoor": AttackEntry(
        Later("backdoors", "Backdoor"), given=_trigger, strength="scale", alone=True
    ),
    "dba": AttackEntry(
        Later("backdoors", "DistributedBackdoor"), given=_trigger, strength="scale", alone=True
    ),
    "label-flip": AttackEntry(
        Later("simple_attacks", "LabelFlip"),
        given=lambda dataset: {"classes": dataset.classes},
        alone=True,
        untargeted=True,
    ),
    "sign-flip": AttackEntry(
        Later("simple_attacks", "SignFlip"), strength="scale", alone=True, untargeted=True
    ),
    "noise": AttackEntry(
        Later("simple_attacks", "GaussianNoise"), strength="std", alone=True, untargeted=True
    ),
    "trim": AttackEntry(Later("crafted", "Trim"), strength="factor", untargeted=True),
    "trim-partial": AttackEntry(
        Later("crafted", "PartialTrim"), strength="deviations", untargeted=True
    ),
    "lie": AttackEntry(Later("crafted", "LittleIsEnough"), strength="z", untargeted=True),
    "min-max": AttackEntry(Later("crafted", "MinMax"), untargeted=True),
    WAITING: AttackEntry(Later("simple_attacks", "BadUnlearn")),
    NO_ATTACK: AttackEntry(Later("simple_attacks", "NoAttack"), untargeted=True),
}
"""In the order in which they are shown."""


def build(name: str, dataset: "Dataset", **strength: Any) -> "Attack":
    """Return the attack of that name on that dataset.

    - backdoor: target=0, fraction=0.5, scale=1.0, with the dataset's usual trigger
    - dba: the same, and parts=4
    - label-flip
    - sign-flip: scale=1.0
    - noise: std=200.0
    - trim: factor=2.0
    - trim-partial: deviations=3.0
    - lie: z=None, which is `largest_z`
    - min-max: direction="std", "unit" or "sign"
    - bad-unlearn: then="trim", and what that attack takes; or bad-unlearn:ATTACK
    - none
    """
    name, then = _parsed(name)
    if name == WAITING:
        from pdlrecover.adversary.simple_attacks import BadUnlearn

        then = strength.pop("then", then or AFTERWARDS)
        return BadUnlearn(then=build(then, dataset, **strength))
    entry, given = ATTACKS[name], ATTACKS[name].given(dataset)
    accepted = [key for key in inspect.signature(entry.attack).parameters if key not in given]
    if unknown := sorted(set(strength) - set(accepted)):
        raise AttackError(
            f"the attack {name} has no {', '.join(unknown)}; "
            f"it takes {', '.join(accepted) or 'no arguments'}"
        )
    if not 0 <= (target := strength.get("target", 0)) < dataset.classes:
        raise AttackError(
            f"the target must be a class of {dataset.name}, 0 to {dataset.classes - 1}, "
            f"got {target}"
        )
    return entry.attack(**given, **strength)


def strength_of(name: str) -> str | None:
    """Return the argument that is this attack's strength, or None if it has none."""
    name, then = _parsed(name)
    return ATTACKS[then or (AFTERWARDS if name == WAITING else name)].strength


def _parsed(name: str) -> tuple[str, str]:
    """Return the two parts of a name, the second one empty if there is none; both are known."""
    first, colon, second = name.partition(":")
    if first not in ATTACKS or (colon and (first != WAITING or second not in ATTACKS)):
        raise AttackError(
            f"no attack is called {name!r}; known are {', '.join(ATTACKS)}, and "
            f"{WAITING}:ATTACK with one of the others"
        )
    return first, second
