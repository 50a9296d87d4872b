"""Which rounds of a recovery are exact, and the guard that asks for more of them."""

import math
import statistics
from collections import deque
from dataclasses import dataclass, field
from typing import Self

from pdlrecover.errors import PlanError, Setting
from pdlrecover.recovery.requests import Vector
from pdlrecover.recovery.same_bits import norm

MAX_BUFFER = 16
"""How many pairs engines keep at hand; more have never been of use."""


def usual_phase(rounds: int) -> int:
    """Return T_p and T_f for a run of this many rounds, where they are not stated.

    The paper's 25 for its 1000 rounds; 16 for a few hundred, which were as good there; an eighth of
    a short run.
    """
    return max(2, min(25, max(min(16, rounds // 8), rounds // 40)))


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """T_p exact rounds first, one in every T_r after, T_f at the end; s pairs of curvature."""

    preparation: int = 25
    """T_p: exact rounds at the start, which also fill the buffer."""
    period: int = 30
    """T_r: after the preparation, one round in this many is exact."""
    final: int = 25
    """T_f: exact rounds at the end."""
    buffer: int = 4
    """s: how many pairs of curvature are kept."""

    def __post_init__(self) -> None:
        for name, least in (("preparation", 2), ("period", 1), ("final", 0), ("buffer", 1)):
            if getattr(self, name) < least:
                raise PlanError(
                    Setting(name), f" must be at least {least}, got {getattr(self, name)}"
                )
        if self.buffer > MAX_BUFFER:
            raise PlanError(Setting("buffer"), f" must be at most {MAX_BUFFER}, got {self.buffer}")

    @classmethod
    def usual(cls, rounds: int) -> Self:
        """Return the schedule of a run of this many rounds where nothing else is stated."""
        short = usual_phase(rounds)
        return cls(preparation=short, final=short)

    def check(self, rounds: int) -> None:
        """Check that a run of `rounds` rounds has room for this schedule."""
        if self.preparation + self.final > rounds:
            least = max(2, rounds // 4)
            fits = rounds >= 2 * least
            names = ["lower ", Setting("preparation"), " and ", Setting("final")]
            lower = [*names, f" to {least} each, or retrain"] if fits else ["retrain"]
            raise PlanError(
                f"{self.preparation} preparation and {self.final} final rounds do not fit a run of "
                f"{rounds}; ",
                *lower,
            )

    def is_exact(self, t: int, rounds: int) -> bool:
        """Say whether round t of `rounds` is planned to be exact."""
        periodic = t >= self.preparation and (t - self.preparation + 1) % self.period == 0
        return t < self.preparation or t >= rounds - self.final or periodic

    def block(self, start: int, rounds: int, size: int) -> range:
        """Return the rounds from `start` on that are estimated together, at most `size`."""
        end = start + 1
        while end < start + size and not self.is_exact(end, rounds):
            end += 1
        return range(start, end)

    def exact_rounds(self, rounds: int) -> int:
        """Return how many rounds are planned to be exact."""
        return sum(self.is_exact(t, rounds) for t in range(rounds))


@dataclass(kw_only=True, eq=False)
class Guard:
    """Refuse an estimate whose norm exceeds `factor` times the median of the last exact ones."""

    factor: float = 2.0
    memory: int = 8
    trips: int = 0
    _norms: deque[float] = field(default_factory=deque)

    def learn(self, mean: Vector) -> None:
        """Remember the norm of an exact mean update."""
        self._norms.append(norm(mean))
        if len(self._norms) > self.memory:
            self._norms.popleft()

    def accepts(self, mean: Vector | None) -> bool:
        """Say whether an estimated mean update is there and may be used; count it if not."""
        size = math.inf if mean is None else norm(mean)
        fine = math.isfinite(size) and size <= self.factor * statistics.median(self._norms)
        self.trips += not fine
        return fine
