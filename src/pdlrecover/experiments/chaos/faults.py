"""Which fault comes next, and when: a seeded schedule.

Rules:

- A *fault* takes peers away and says for how long: `kill` ends processes as a power cut does, and
  `freeze` stops them without ending them. `leader` kills whoever is about to lead the next step.
- *Within the tolerance*, never more peers are away at once than the tolerated dropouts less those
  that are removed in the end, since a removed peer is one that is absent for good. Who is killed is
  away until it answers its operator again. Nobody is kept away longer than `LONGEST` seconds.
- *Beyond it*, there are four more. `majority` kills more than half at once and `all` everybody;
  they are started again at once. `outage` takes so many away that the others cannot go on, for
  `OUTAGE` seconds. `loss` kills one peer, and deletes its history once the others are past the step
  in which it was killed, so that the shares in it are gone for good.
- Who and when follows from the seed. At which place of the protocol a signal comes does not:
  processes run as the machine lets them.
"""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["kill", "freeze", "leader", "majority", "all", "outage", "loss"]
WITHIN: dict[Kind, int] = {"kill": 4, "freeze": 3, "leader": 2}
"""How often each kind comes, against the others."""
BEYOND: dict[Kind, int] = {**WITHIN, "majority": 2, "all": 2, "outage": 1, "loss": 4}
PAUSE = (1.0, 8.0)
"""From one fault to the next, in seconds."""
LONGEST = 6.0
OUTAGE = 45.0


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault."""

    kind: Kind
    peers: tuple[str, ...]
    seconds: float
    """How long they are away."""

    def __str__(self) -> str:
        return f"{self.kind} {', '.join(self.peers)} for {self.seconds:.1f} s"


class Faults:
    """Draws faults, one after the other."""

    def __init__(self, seed: str, *, most: int, beyond: bool = False) -> None:
        """`most` peers may be away at once, within the tolerance."""
        self._random = random.Random(seed)  # noqa: S311 (to be repeated, not to be secret)
        self._most, self._kinds = most, BEYOND if beyond else WITHIN

    def pause(self) -> float:
        """Return how long to wait before the next fault."""
        return self._random.uniform(*PAUSE)

    def draw(
        self,
        peers: Sequence[str],
        *,
        away: Collection[str],
        leader: str | None,
        quorum: int,
        losable: Collection[str] = (),
    ) -> Fault | None:
        """Return the next fault among these peers; None if the one drawn would be too much.

        `quorum` of them must be there for anything to go on. The histories of `losable` may be
        deleted.
        """
        kind = self._random.choices(list(self._kinds), list(self._kinds.values()))[0]
        seconds = self._random.uniform(0.0, LONGEST)
        order = self._random.sample(list(peers), len(peers))
        here = [name for name in order if name not in away]
        room = self._most - len(set(away) & set(peers))
        match kind:
            case "kill" | "freeze" if room > 0 and here:
                return Fault(kind=kind, peers=(here[0],), seconds=seconds)
            case "leader" if room > 0 and leader in here:
                return Fault(kind=kind, peers=(leader,), seconds=seconds)
            case "majority" if not away:
                return Fault(kind=kind, peers=tuple(here[: len(peers) // 2 + 1]), seconds=0.0)
            case "all" if not away:
                return Fault(kind=kind, peers=tuple(here), seconds=0.0)
            case "outage" if not away:
                gone = here[: len(peers) - quorum + 1]
                return Fault(kind=kind, peers=tuple(gone), seconds=OUTAGE)
            case "loss" if room > 0 and (lost := [name for name in here if name in losable]):
                return Fault(kind=kind, peers=(lost[0],), seconds=LONGEST)
        return None
