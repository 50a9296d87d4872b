"""What a step waits for when it takes longer than it should: said to people, and to the engine.

Four things can be missing:

shares     the set is settled, or nothing was to be dealt, and too few peers say their sub-secret:
           they are away, or do not have the shares
quorum     too few peers are here to settle a set
agreement  enough are here, and still no set is settled
answers    the others are ahead, and what they have opened does not come
"""

from dataclasses import dataclass
from enum import StrEnum


class Missing(StrEnum):
    """What a step lacks."""

    SHARES = "shares"
    QUORUM = "quorum"
    AGREEMENT = "agreement"
    ANSWERS = "answers"


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A step that does not go on."""

    what: Missing
    step: int
    round: int
    since: float
    """When the step came to the point where it waits."""
    needed: int
    """Of how many peers an answer is needed."""
    away: tuple[int, ...]
    """Who was not heard from lately."""
    lacking: tuple[int, ...] = ()
    """Who was heard from, this peer perhaps, and does not have the shares, or does not answer."""
    differing: tuple[int, ...] = ()
    """Who said in this step that it holds another model."""
