"""The adversary: attacks on what malicious peers learn from, and on what they deal."""

from pdlrecover.adversary.attack import Attack, Context, Phase
from pdlrecover.adversary.attacks import (
    ATTACKS,
    Backdoor,
    GaussianNoise,
    LabelFlip,
    NoAttack,
    SignFlip,
    build,
)
from pdlrecover.adversary.success import Targeted, attack_success
from pdlrecover.adversary.triggers import EveryNth, Stripes, Trigger, trigger_for

__all__ = [
    "ATTACKS",
    "Attack",
    "Backdoor",
    "Context",
    "EveryNth",
    "GaussianNoise",
    "LabelFlip",
    "NoAttack",
    "Phase",
    "SignFlip",
    "Stripes",
    "Targeted",
    "Trigger",
    "attack_success",
    "build",
    "trigger_for",
]
