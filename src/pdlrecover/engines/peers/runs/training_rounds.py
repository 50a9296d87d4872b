"""A training by its rounds, read from the steps that a peer has stored of it.

Without evaluations every step is a round. With one after every k rounds and one at the end, round t
is step t + ⌊t/k⌋, and the steps between are evaluations, which have no model and no stored shares.
"""

from collections.abc import Container, Sequence
from typing import overload

import numpy as np

from pdlrecover.engines.bounds import Bounds
from pdlrecover.engines.peers.protocol.contracts import Store
from pdlrecover.errors import RangeError
from pdlrecover.field import Elements, Integers
from pdlrecover.recovery.evaluation import EvaluationTerms
from pdlrecover.recovery.requests import Vector


class TrainingRounds:
    """What one peer has stored of a training, round by round."""

    def __init__(
        self,
        store: Store,
        run: bytes,
        *,
        rounds: int | None = None,
        terms: EvaluationTerms | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        """Read this run; `rounds` is how many it has in all, needed if it is evaluated.

        Without the bounds of its sums, no round counts as void.
        """
        self.run = run
        self._bounds, self._known_void = bounds, dict[int, bool]()
        self._store, self._rounds, self._terms = store, rounds, terms

    def __len__(self) -> int:
        """Return how many rounds are stored."""
        return self._before(len(self._store.log(self.run)))

    @property
    def finished(self) -> bool:
        """Whether the training has come to its model."""
        return self._store.finished(self.run)

    @property
    def models(self) -> "RoundModels":
        """w̄_0, w̄_1, …: one for each round, and the last one when the training is finished."""
        return RoundModels(self)

    @property
    def void(self) -> "VoidRounds":
        """The rounds that changed nothing."""
        return VoidRounds(self)

    @property
    def shares_from(self) -> int:
        """The first round from which on shares are kept; those of round 0 are, too."""
        return self._before(self._store.shares_from(self.run))

    def model(self, t: int) -> Vector:
        """Return the model that round t started from; of the round after the last, the end's."""
        if t == len(self):
            return self._store.models(self.run)[-1]
        return self._store.asked_at(self.run, self._step(t))

    def dealers(self, t: int) -> tuple[int, ...]:
        """Return who dealt in round t."""
        return self._store.dealers(self.run, self._step(t))

    def opened(self, t: int) -> Integers:
        """Return the sum that was opened in round t."""
        return self._store.log(self.run)[self._step(t)].values

    def is_void(self, t: int) -> bool:
        """Say whether round t was void.

        Nearly always it is enough to see that the model changed in it; else its sum tells.
        """
        if self._bounds is None or not 0 <= t < len(self):
            return False
        if t not in self._known_void:
            at_end = t + 1 == len(self) and not self.finished
            changed = not at_end and not np.array_equal(self.model(t), self.model(t + 1))
            self._known_void[t] = not changed and self._sum_is_void(self._bounds, t)
        return self._known_void[t]

    def _sum_is_void(self, bounds: Bounds, t: int) -> bool:
        try:
            bounds.check(self.opened(t), len(self.dealers(t)))
        except RangeError:
            return True
        return False

    def shares(self, t: int, dealers: Sequence[int]) -> Elements | None:
        """Return the sum of this peer's shares of these dealers in round t; None if one is gone."""
        return self._store.shares(self.run, self._step(t), dealers)

    def _step(self, t: int) -> int:
        return self._terms.step_of(t) if self._terms else t

    def _before(self, step: int) -> int:
        """Return how many rounds come before a step."""
        if self._terms is None:
            return step
        whole, rest = divmod(step, self._terms.every + 1)
        found = whole * self._terms.every + min(rest, self._terms.every)
        return found if self._rounds is None else min(found, self._rounds)


class VoidRounds(Container[int]):
    """Which rounds of a training were void, each looked at when it is asked for."""

    def __init__(self, rounds: TrainingRounds) -> None:
        self._rounds = rounds

    def __contains__(self, t: object) -> bool:
        return isinstance(t, int) and self._rounds.is_void(t)


class RoundModels(Sequence[Vector]):
    """The models of a training, each read when it is asked for."""

    def __init__(self, rounds: TrainingRounds) -> None:
        self._rounds = rounds

    def __len__(self) -> int:
        return len(self._rounds) + self._rounds.finished

    @overload
    def __getitem__(self, index: int) -> Vector: ...
    @overload
    def __getitem__(self, index: slice) -> list[Vector]: ...
    def __getitem__(self, index: int | slice) -> Vector | list[Vector]:
        """Return a model, or a list of models."""
        if isinstance(index, slice):
            return [self._rounds.model(t) for t in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"there are {len(self)} models, got index {index}")
        return self._rounds.model(index % len(self))
