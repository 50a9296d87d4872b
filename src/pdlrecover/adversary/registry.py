"""Attacks by name, and their traits: `build` makes one for a dataset.

Rules:

- An attack is one class, one entry in `ATTACKS` and one section in `docs/attacks.md`. Whoever
  treats some attacks differently asks their entries; no other place has a list of names.
- A trait that is not stated refuses: no peer plays the attack alone in a drill, and no result of a
  run without attackers stands for one with it.
- A name may have a second part: `bad-unlearn:lie` waits for a recovery and then does `lie`.
- The strength of most attacks is one number first of all; `strength_of` says which argument it is.
"""

import inspect
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

from pdlrecover.adversary.attack import Attack
from pdlrecover.adversary.attacks import BadUnlearn, GaussianNoise, LabelFlip, NoAttack, SignFlip
from pdlrecover.adversary.backdoors import Backdoor, DistributedBackdoor
from pdlrecover.adversary.crafted import Direction, LittleIsEnough, MinMax, PartialTrim, Trim
from pdlrecover.adversary.triggers import trigger_for
from pdlrecover.errors import AttackError
from pdlrecover.learning import Dataset

WAITING = "bad-unlearn"
"""The attack that is made of another one."""
AFTERWARDS = "trim"
"""What it does after waiting, if not said."""
NO_ATTACK = "none"


def _backdoor(
    dataset: Dataset, *, target: int = 0, fraction: float = 0.5, scale: float = 1.0
) -> Attack:
    _check_target(dataset, target)
    return Backdoor(trigger=trigger_for(dataset), target=target, fraction=fraction, scale=scale)


def _dba(
    dataset: Dataset, *, target: int = 0, fraction: float = 0.5, scale: float = 1.0, parts: int = 4
) -> Attack:
    _check_target(dataset, target)
    return DistributedBackdoor(
        trigger=trigger_for(dataset), target=target, fraction=fraction, scale=scale, parts=parts
    )


def _label_flip(dataset: Dataset) -> Attack:
    return LabelFlip(classes=dataset.classes)


def _sign_flip(dataset: Dataset, *, scale: float = 1.0) -> Attack:
    return SignFlip(scale=scale)


def _noise(dataset: Dataset, *, std: float = 200.0) -> Attack:
    return GaussianNoise(std=std)


def _trim(dataset: Dataset, *, factor: float = 2.0) -> Attack:
    return Trim(factor=factor)


def _partial_trim(dataset: Dataset, *, deviations: float = 3.0) -> Attack:
    return PartialTrim(deviations=deviations)


def _lie(dataset: Dataset, *, z: float | None = None) -> Attack:
    return LittleIsEnough(z=z)


def _min_max(dataset: Dataset, *, direction: Direction = "std") -> Attack:
    return MinMax(direction=direction)


def _bad_unlearn(dataset: Dataset, *, then: str = AFTERWARDS, **strength: Any) -> Attack:
    return BadUnlearn(then=build(then, dataset, **strength))


def _none(dataset: Dataset) -> Attack:
    return NoAttack()


@dataclass(frozen=True)
class AttackEntry:
    """An attack and its traits."""

    build: Callable[..., Attack]
    """Makes it for a dataset; the other arguments are what `build` below takes."""
    _: KW_ONLY
    strength: str | None = None
    """The argument that is its strength, if one is."""
    alone: bool = False
    """Whether it needs nobody else's updates, so that a peer can play it in a drill."""
    untargeted: bool = False
    """Whether it has no trigger: what is measured of a model does not depend on the attack."""


ATTACKS: dict[str, AttackEntry] = {
    "backdoor": AttackEntry(_backdoor, strength="scale", alone=True),
    "dba": AttackEntry(_dba, strength="scale", alone=True),
    "label-flip": AttackEntry(_label_flip, alone=True, untargeted=True),
    "sign-flip": AttackEntry(_sign_flip, strength="scale", alone=True, untargeted=True),
    "noise": AttackEntry(_noise, strength="std", alone=True, untargeted=True),
    "trim": AttackEntry(_trim, strength="factor", untargeted=True),
    "trim-partial": AttackEntry(_partial_trim, strength="deviations", untargeted=True),
    "lie": AttackEntry(_lie, strength="z", untargeted=True),
    "min-max": AttackEntry(_min_max, untargeted=True),
    WAITING: AttackEntry(_bad_unlearn),
    NO_ATTACK: AttackEntry(_none, untargeted=True),
}
"""In the order in which they are shown."""


def build(name: str, dataset: Dataset, **strength: Any) -> Attack:
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
    if then:
        strength = {"then": then, **strength}
    parameters = list(inspect.signature(ATTACKS[name].build).parameters.values())[1:]
    accepted = [p.name for p in parameters]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
    if not open_ended and (unknown := sorted(set(strength) - set(accepted))):
        raise AttackError(
            f"the attack {name} has no {', '.join(unknown)}; "
            f"it takes {', '.join(accepted) or 'no arguments'}"
        )
    return ATTACKS[name].build(dataset, **strength)


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


def _check_target(dataset: Dataset, target: int) -> None:
    if not 0 <= target < dataset.classes:
        raise AttackError(
            f"the target must be a class of {dataset.name}, 0 to {dataset.classes - 1}, "
            f"got {target}"
        )
