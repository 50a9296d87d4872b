"""What computes sums over the peers of a simulation elsewhere than in its process."""

from collections.abc import Callable, Sequence
from typing import Protocol

from pdlrecover.adversary import Phase
from pdlrecover.field import Elements, Integers
from pdlrecover.recovery.requests import LocalSteps, Moments, Teacher, Vector
from pdlrecover.recovery.standardisation import StandardisationTerms


class Computing(Protocol):
    """What computes sums over peers elsewhere: see `engines.shards`."""

    deal: Callable[[Elements], Elements] | None
    """Multiplies by the dealing matrix, if that is done elsewhere, too."""

    @property
    def processor_seconds(self) -> float:
        """The processor time that was used elsewhere."""

    def sums(
        self,
        round: int,
        at: Vector,
        groups: Sequence[Sequence[int]],
        phase: Phase,
        *,
        stream: int,
        local: LocalSteps | None,
        teacher: Teacher | None,
    ) -> Integers:
        """Return each group's sum of updates and weights."""

    def tally(self, at: Vector, peers: Sequence[int], phase: Phase) -> Integers:
        """Return the sum of what peers deal in an evaluation."""

    def statistics(
        self, request: Moments, peers: Sequence[int], terms: StandardisationTerms
    ) -> Integers:
        """Return the sum of what peers deal for the scale of inputs."""
