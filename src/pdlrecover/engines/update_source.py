"""Where a simulation's updates come from: peers that it computes, or programs of somebody else.

`SimulatedPeers` computes them from data that are here, and satisfies this; `FlowerPeers` asks a
Flower app. Training and the recoveries that open sums of updates need nothing else. What looks at
samples (losses, sums over whole data, statistics of inputs) needs `SimulatedPeers` itself.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from pdlrecover.adversary import Phase
from pdlrecover.engines.events import Plain
from pdlrecover.field import FixedPoint, Integers
from pdlrecover.learning import FlatModel
from pdlrecover.learning.array_model import ArrayModel
from pdlrecover.recovery.requests import Individuals, LocalSteps, Teacher, Vector


class Dealing(Protocol):
    """Some peers of a federation, or one, numbered from 0 here: what they deal."""

    @property
    def code(self) -> FixedPoint:
        """How updates with their weights are encoded."""

    def sums(
        self,
        round: int,
        at: Vector,
        groups: Sequence[Sequence[int]],
        phase: Phase = "training",
        *,
        stream: int = 0,
        local: LocalSteps | None = None,
        teacher: Teacher | None = None,
    ) -> Integers:
        """Return each group's sum of rounded updates and weights, as (groups, d + 1) integers."""

    def tally(self, at: Vector, peers: Sequence[int], phase: Phase = "training") -> Integers:
        """Return the sum of the three integers that each of these peers deals in an evaluation."""


class UpdateSource(Dealing, Protocol):
    """All peers of a federation: what they deal, and what is public of them."""

    clipped: int
    """How many updates the L2 bound has shortened so far."""

    @property
    def peers(self) -> int:
        """How many peers there are."""

    @property
    def model(self) -> FlatModel | ArrayModel:
        """The model, as a flat vector."""

    @property
    def local(self) -> LocalSteps:
        """How a peer comes to its update."""

    @property
    def usual_rate(self) -> float | None:
        """The learning rate of SGD with which a step is the mean of the peers' models, if any."""

    @property
    def seed(self) -> int:
        """What everything that is drawn follows from."""

    @property
    def batch_size(self) -> int:
        """How many samples an update is of, at least."""

    @property
    def most_held_out(self) -> int:
        """How many samples a peer evaluates models on at most; 0 if nobody evaluates."""

    def facts(self) -> dict[str, Any]:
        """Return what makes a run of these peers what it is, as JSON has it."""

    def settings(self) -> dict[str, Plain]:
        """Return how they were set up, as far as it is plain, for those who follow."""

    def about(self) -> tuple[tuple[str, str], ...]:
        """Return what there is to say of them in a summary, line by line."""

    def individuals(
        self, round: int, at: Vector, peers: Sequence[int], phase: Phase, among: Sequence[int]
    ) -> Individuals:
        """Return what these peers deal at a model, each for itself, `among` those taking part."""
