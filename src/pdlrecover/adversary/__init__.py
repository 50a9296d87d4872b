"""The adversary: attacks on what malicious peers learn from, and on what they deal."""

from typing import TYPE_CHECKING

from pdlrecover.adversary.registry import ATTACKS, NO_ATTACK, WAITING, build, strength_of
from pdlrecover.later import later

if TYPE_CHECKING:
    from pdlrecover.adversary.attack import Attack, Context, Phase
    from pdlrecover.adversary.backdoors import Backdoor, DistributedBackdoor
    from pdlrecover.adversary.crafted import LittleIsEnough, MinMax, PartialTrim, Trim, largest_z
    from pdlrecover.adversary.registry import ATTACKS, NO_ATTACK, WAITING, build, strength_of
    from pdlrecover.adversary.simple_attacks import (
        BadUnlearn,
        GaussianNoise,
        LabelFlip,
        NoAttack,
        SignFlip,
    )
    from pdlrecover.adversary.success import Targeted, attack_success
    from pdlrecover.adversary.triggers import Divisible, EveryNth, Stripes, Trigger, trigger_for

__all__ = [
    "ATTACKS",
    "NO_ATTACK",
    "WAITING",
    "Attack",
    "Backdoor",
    "BadUnlearn",
    "Context",
    "DistributedBackdoor",
    "Divisible",
    "EveryNth",
    "GaussianNoise",
    "LabelFlip",
    "LittleIsEnough",
    "MinMax",
    "NoAttack",
    "PartialTrim",
    "Phase",
    "SignFlip",
    "Stripes",
    "Targeted",
    "Trigger",
    "Trim",
    "attack_success",
    "build",
    "largest_z",
    "strength_of",
    "trigger_for",
]

__getattr__ = later(
    __name__,
    {
        "Attack": "attack",
        "Backdoor": "backdoors",
        "BadUnlearn": "simple_attacks",
        "Context": "attack",
        "DistributedBackdoor": "backdoors",
        "Divisible": "triggers",
        "EveryNth": "triggers",
        "GaussianNoise": "simple_attacks",
        "LabelFlip": "simple_attacks",
        "LittleIsEnough": "crafted",
        "MinMax": "crafted",
        "NoAttack": "simple_attacks",
        "PartialTrim": "crafted",
        "Phase": "attack",
        "SignFlip": "simple_attacks",
        "Stripes": "triggers",
        "Targeted": "success",
        "Trigger": "triggers",
        "Trim": "crafted",
        "attack_success": "success",
        "largest_z": "crafted",
        "trigger_for": "triggers",
    },
)


def __dir__() -> list[str]:
    return __all__
