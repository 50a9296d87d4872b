"""Drills: which attack a peer plays on purpose, to practise a removal."""

import logging
from typing import TYPE_CHECKING

from pdlrecover.adversary import ATTACKS, build, strength_of
from pdlrecover.engines.peers.settings import Drill
from pdlrecover.errors import AttackError

if TYPE_CHECKING:
    from pdlrecover.adversary import Attack
    from pdlrecover.learning import Dataset

LOG = logging.getLogger("pdlrecover.peer")


def check_drill(attack: str | None) -> None:
    """Refuse what a peer cannot play alone."""
    alone = [name for name, entry in ATTACKS.items() if entry.alone]
    if attack is not None and attack not in alone:
        raise AttackError(
            f"a drill's attack is one of {', '.join(alone)}, which need nobody else's updates; "
            f"got {attack!r}"
        )


def attack_of(drill: Drill, data: "Dataset") -> "Attack | None":
    """Return the attack of a drill, None if there is no drill."""
    check_drill(drill.attack)
    if drill.attack is None:
        return None
    LOG.warning(
        "drill: this peer attacks the others on purpose (%s)",
        drill.attack,
        extra={"facts": {"event": "drill"}},
    )
    name = strength_of(drill.attack)
    strength = {} if drill.strength is None or name is None else {name: drill.strength}
    return build(drill.attack, data, **strength)
