"""A method's curve of accuracy, measured while it runs."""

from typing import Protocol

from pdlrecover.engines.events import Follow, Measured
from pdlrecover.experiments.experiment.result import Curve, shown_name
from pdlrecover.experiments.experiment.world import World, measure
from pdlrecover.recovery.requests import Stepped, Vector


class Progress(Protocol):
    """Something that shows how far a run is; the command line has one, tests need none."""

    def start(self, name: str, rounds: int) -> None:
        """Show that a method has begun."""

    def step(self, name: str, round: int, accuracy: float | None) -> None:
        """Show that a round is done; the accuracy is the latest measured."""

    def end(self, name: str) -> None:
        """Show that a method is done."""


class CurveObserver:
    """Observes a method: measures the model now and then, and reports the progress.

    It counts the method's own steps: one that starts over goes on counting.
    """

    def __init__(
        self,
        world: World,
        name: str,
        progress: Progress | None,
        follow: Follow | None = None,
        *,
        measured: bool = True,
    ) -> None:
        self._world, self._progress, self.follow = world, progress, follow
        self._name = shown_name(name, world.config)
        self._measured = measured
        self._last = 0
        self.model: Vector = world.federation.simulated_peers.updates.model.initial
        """The latest."""
        self.curve = Curve(round=[], accuracy=[], attack_success=[])
        if progress:
            progress.start(self._name, world.config.rounds)

    def __call__(self, step: Stepped) -> None:
        """Take note of a round."""
        self._last += 1
        self.model = step.model
        if self._measured and (self._last - 1) % self._world.config.curve_every == 0:
            self.measure(self._last, step.model)
        if self._progress:
            latest = self.curve.accuracy[-1] if self.curve.accuracy else None
            self._progress.step(self._name, self._last, latest)

    def finish(self, model: Vector) -> None:
        """Take note of the last model."""
        if self.curve.round[-1:] != [self._last]:
            self.measure(self._last, model)
        if self._progress:
            self._progress.step(self._name, self._last, self.curve.accuracy[-1])
            self._progress.end(self._name)

    def measure(self, round: int, model: Vector) -> None:
        """Measure a model on the test part, without and with the trigger."""
        scores = measure(self._world, model)
        self.curve.round.append(round)
        self.curve.accuracy.append(scores.accuracy)
        self.curve.attack_success.append(scores.attack_success)
        if self.follow is not None:
            self.follow(Measured(round=round, on="test", **vars(scores)))
