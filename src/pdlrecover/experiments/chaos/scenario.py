"""What the peers of a chaos run agree on: enough tolerance for its faults, and a small model.

Rules, for n peers, c = 1 colluder and e liars:

- e is 0 if nobody cheats, else 1, and 2 from ten peers on: as many cheat at once.
- D is the most that lets a quorum go on without D peers, quorum = max(⌊(n + e)/2⌋ + 1, 2 + 2e).
- The last max(1, e) peers are removed in the end: the cheats, or one that plants a backdoor. A peer
  that is removed is one of the D, so at most D − max(1, e) are away at once.
- Recovery by PDLRecover has a schedule that leaves most rounds to be estimated.
"""

from dataclasses import dataclass
from typing import Any

from pdlrecover.engines.peers.federation.plan import Model, Recovery, Training
from pdlrecover.engines.peers.protocol.deadlines import Deadlines
from pdlrecover.errors import PlanError
from pdlrecover.sharing import Tolerance

FIRST = ("ash", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine")
TREES = (*FIRST, "rowan", "sloe", "teak", "yew")
FEWEST, LEAST_ROUNDS = 5, 40
METHODS = ("accelerated-retrain", "pdlrecover")
"""One that starts afresh, and one that needs the history."""
COLLUDERS = 1


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Who takes part, and for how many rounds they train."""

    peers: int = 5
    rounds: int = 120
    cheating: bool = False

    def __post_init__(self) -> None:
        if not FEWEST <= self.peers <= len(TREES):
            raise PlanError(
                f"a chaos run has {FEWEST} to {len(TREES)} peers, got {self.peers}: with fewer "
                "nobody can be away while another is removed"
            )
        if self.rounds < LEAST_ROUNDS:
            raise PlanError(
                f"a chaos run trains at least {LEAST_ROUNDS} rounds, got {self.rounds}: with fewer "
                "there is nothing to estimate"
            )

    @property
    def liars(self) -> int:
        """e: how many cheat at once."""
        return 0 if not self.cheating else 1 if self.peers < 10 else 2

    @property
    def names(self) -> tuple[str, ...]:
        """What the peers are called."""
        return TREES[: self.peers]

    @property
    def removed(self) -> tuple[str, ...]:
        """Who is removed in the end."""
        return self.names[-max(1, self.liars) :]

    @property
    def kept(self) -> tuple[str, ...]:
        """Who is not."""
        return self.names[: -len(self.removed)]

    @property
    def most_away(self) -> int:
        """How many may be away at once."""
        return self.tolerance.dropouts - len(self.removed)

    def quorum(self, peers: int) -> int:
        """Return how many of these peers a step takes."""
        packed = self.tolerance.quorums(self.peers).dot
        return max((peers + self.liars) // 2 + 1, packed)

    @property
    def tolerance(self) -> Tolerance:
        """What the federation survives."""
        quorum = max((self.peers + self.liars) // 2 + 1, COLLUDERS + 1 + 2 * self.liars)
        return Tolerance(colluders=COLLUDERS, dropouts=self.peers - quorum, liars=self.liars)

    def agreed(self) -> dict[str, Any]:
        """Return what the federation file says."""
        return {
            "tolerance": self.tolerance,
            "model": Model(name="mlp-16", shape=(1, 8, 8), classes=10),
            "training": Training(
                rounds=self.rounds, samples=400, batch_size=32, learning_rate=0.3, seed=1
            ),
            "recovery": Recovery(preparation=6, period=10, final=4, buffer=2, stalled_after=20.0),
            "deadlines": Deadlines(
                message=5.0, dealing=3.0, receipts=1.0, view=2.0, resend=0.7, behind=0.4
            ),
        }
