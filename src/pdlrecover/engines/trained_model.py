"""A trained or recovered model, as the user sees it."""

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from pdlrecover.adversary import Attack, attack_success
from pdlrecover.engines.classifier import Classifier, weights_digest, write_model
from pdlrecover.engines.evaluations import EvaluationPoint
from pdlrecover.engines.ledger import Ledger
from pdlrecover.engines.summary import Summary, counted
from pdlrecover.errors import PlanError
from pdlrecover.learning import FlatModel, Weights
from pdlrecover.learning.array_model import ArrayModel
from pdlrecover.learning.classes import Classes
from pdlrecover.learning.input_scale import InputScale
from pdlrecover.learning.intake import Columns, samples_and_labels

TRAINING = "training"
HUGE = 1e4
"""Weights beyond this are no model: the training has diverged."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """How a model came about."""

    method: str = TRAINING
    """The recovery method, or `training`."""
    rounds: int = 0
    """How many rounds the training had."""
    removed: tuple[str, ...] = ()
    """The names or numbers of the peers that it was recovered without."""
    clear: bool = False
    """Whether nothing was shared."""

    @property
    def is_recovered(self) -> bool:
        """Whether a recovery made it."""
        return self.method != TRAINING


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TrainedModel:
    """A trained or recovered model, and what it took.

    `print` it for a few lines on how it came about and what was opened for it.
    """

    weights: Weights
    """The weights as one flat vector, in float64."""
    ledger: Ledger
    """What was opened, of whom, and what that cost."""
    evaluations: tuple[EvaluationPoint, ...] = ()
    """How good the peers found it on what they hold out, round by round."""
    continued: tuple[str, ...] = ()
    """Why a recovery went on for another cycle, if it did."""
    origin: Origin = Origin()
    """The method, who was removed, and how long the training was."""
    known: Classes | None = None
    columns: Columns | None = None
    """The columns of the tables that it was trained on, if these were tables."""
    _flat: FlatModel | ArrayModel

    @property
    def model(self) -> torch.nn.Module:
        """A copy of your module with these weights; if inputs are standardised, it takes them so.

        See `inputs`; `predict`, `accuracy` and `load_model` take samples as they are.
        """
        return self._flat.module_with(self.weights)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The weights as arrays, by their names in the model."""
        return self._flat.arrays(self.weights)

    @property
    def inputs(self) -> InputScale | None:
        """The scale that samples are brought to (`.mean`, `.std`), if inputs are standardised."""
        return self._flat.inputs

    @property
    def classes(self) -> tuple[Hashable, ...]:
        """The labels, in the order of the model's outputs; none where only an app knows them."""
        return self._classes.names if self._classes else ()

    def predict(self, x: Any) -> NDArray[Any]:
        """Return the label that the model gives to each sample, of the kind it was trained with.

        `x` is a tensor, an array, a list or a table of pandas, with one row for each sample.
        """
        return self._classifier.predict(x)

    def accuracy(self, x: Any, y: Any) -> float:
        """Return the share of these samples, from 0 to 1, that get their own label.

        Samples and labels are taken in the forms that `Federation.simulate` takes.
        """
        return self._classifier.accuracy(x, y)

    def attack_success(self, x: Any, y: Any, attack: Attack) -> float | None:
        """Return how often the attack's trigger, stamped on these samples, gets its answer.

        Samples that are of the target class anyway do not count. None: the attack has no trigger.
        """
        if not hasattr(attack, "corrupt"):
            raise PlanError(
                f"attack_success needs the attack, such as Backdoor(…), got {type(attack).__name__}"
            )
        samples, labels = samples_and_labels(x, y)
        flat = self._flat
        if isinstance(flat, ArrayModel):
            flat = flat.classifying(tuple(samples.shape[1:]))
        known = self._classes or Classes.numbered(flat.classes)
        numbers = known.numbers(labels, "the labels")
        return attack_success(flat, self.weights, samples, numbers, attack)

    def save(self, path: Path | str) -> None:
        """Write the model to a `.safetensors` file, as real peers do, with its classes.

        `pdlrecover.load_model(path, module)` reads it; so does any program that reads safetensors.
        """
        more = {"weights_sha256": weights_digest(self.weights), "made_by": self._in_one_line()}
        write_model(path, self._classifier, more)

    @property
    def _classes(self) -> Classes | None:
        count = self._flat.classes
        return self.known or (None if count is None else Classes.numbered(count))

    @property
    def _classifier(self) -> Classifier:
        return Classifier(
            model=self.model,
            known=self._classes,
            shape=None if isinstance(self._flat, ArrayModel) else self._flat.example_shape,
            columns=self.columns,
            inputs=self.inputs,
        )

    def _in_one_line(self) -> str:
        exact, origin = self.ledger.exact_rounds, self.origin
        if not origin.is_recovered:
            return f"trained by {counted(self.ledger.kept, 'peer')} in {counted(exact, 'round')}"
        return (
            f"recovered by {origin.method} without {_peers(origin.removed)}, in "
            f"{counted(exact, 'exact round')}"
        )

    def summary(self) -> Summary:
        """Return what there is to say in a few lines."""
        origin, ledger = self.origin, self.ledger
        everybody = ledger.kept + ledger.removed
        rows = []
        if origin.is_recovered:
            rows = [
                ("method", origin.method),
                ("removed", f"{_peers(origin.removed)}; {ledger.kept} of {everybody} are kept"),
                ("exact rounds", _of_rounds(ledger.exact_rounds, origin.rounds)),
            ]
        else:
            rows = [
                ("peers", str(ledger.kept)),
                ("exact rounds", str(ledger.exact_rounds)),
            ]
        rows.append(("opened", ledger.in_words(clear=origin.clear)))
        if ledger.liars:
            rows.append(("wrong shares", f"from peers {', '.join(map(str, sorted(ledger.liars)))}"))
        rows += [("went on", why) for why in self.continued]
        if (largest := float(abs(self.weights).max())) > HUGE:
            rows.append(("diverged", f"weights reach {largest:.2g}; lower the learning rate"))
        rows += [("held-out data", str(point)) for point in self.evaluations[-1:]]
        title = "Recovered model" if origin.is_recovered else "Trained model"
        return Summary(title=title, rows=tuple(rows))

    def __repr__(self) -> str:
        return f"<TrainedModel: {self._in_one_line()}>"

    def __str__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary().html()


def _peers(removed: tuple[str, ...]) -> str:
    """Return who was removed, in a few words."""
    if not removed:
        return "nobody"
    names = list(removed[:8]) + ([f"{len(removed) - 8} more"] if len(removed) > 8 else [])
    listed = ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else names[0]
    return f"peer{'s' if len(removed) > 1 else ''} {listed}"


def _of_rounds(exact: int, rounds: int) -> str:
    return f"{exact}, where the training had {rounds}" if rounds else str(exact)
