"""A training by its rounds, read from the steps that a peer has stored of it.

Without evaluations every step is a round. With one after every k rounds and one at the end, round t
is step t + ⌊t/k⌋, and the steps between are evaluations, which have no model and no stored shares.
"""

from collections.abc import Sequence
from typing import overload

from pdlrecover.engines.peers.protocol.contracts import Store
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
    ) -> None:
        """Read this run; `rounds` is how many it has in all, needed if it is evaluated."""
        self.run = run
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
