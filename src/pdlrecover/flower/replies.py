"""Reads what an app answers: arrays with their number of examples, or how good a model is.

Rules, which are those of Flower's own FedAvg:

- A reply to `train` has exactly one record of arrays, and one of metrics with `num-examples`.
- A reply to `evaluate` has one record of metrics with `num-examples`. Its accuracy and loss have
  the names that Flower's documentation uses, or those that the caller says.
- A `NumPyClient` (`client_fn`) answers in the records of Flower's earlier protocol, which Flower's
  own converters read.

Errors here say what is wrong with a reply, and not whose it is: the caller knows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdlrecover.errors import DataError, ModelError
from pdlrecover.learning.array_model import ArrayModel

EXAMPLES = "num-examples"
ACCURACY = ("eval_acc", "eval_accuracy", "accuracy", "acc")
LOSS = ("eval_loss", "loss")
"""What apps call these, the first that is there."""
MOST_EXAMPLES = 1 << 31


@dataclass(frozen=True, kw_only=True, eq=False)
class Trained:
    """What an app returned for a round of training."""

    weights: NDArray[np.float64]
    examples: int


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """What an app returned for an evaluation."""

    accuracy: float
    loss: float
    """The mean over the examples, in nats."""
    examples: int


def read_trained(reply: Any, model: ArrayModel, *, legacy: bool) -> Trained:
    """Return the arrays of a reply as one vector, and its number of examples."""
    content = _content(reply)
    if legacy:
        from flwr.common import parameters_to_ndarrays
        from flwr.compat.common.recorddict_compat import recorddict_to_fitres

        result = recorddict_to_fitres(content, keep_input=True)
        _check_status(result.status, "fit")
        found = parameters_to_ndarrays(result.parameters)
        if len(found) != len(model.shapes):
            raise ModelError(
                f"fit returned {len(found)} arrays, and the model has {len(model.shapes)}; return "
                "all of them, in the order of the model's"
            )
        arrays = dict(zip(model.shapes, map(np.asarray, found), strict=True))
        examples = whole_examples(result.num_examples)
    else:
        records = list(content.array_records.values())
        if len(records) != 1:
            raise ModelError(
                f"its reply to train has {len(records)} records of arrays, where one is expected: "
                "the trained model"
            )
        arrays = {name: array.numpy() for name, array in records[0].items()}
        examples = whole_examples(_metrics(content, "train").get(EXAMPLES))
    weights = model.flat(arrays)
    if not np.isfinite(weights).all():
        name = next(name for name, array in arrays.items() if not np.isfinite(array).all())
        raise ModelError(
            f"{name} is not finite after its training: it has diverged; lower its learning rate"
        )
    return Trained(weights=weights, examples=examples)


def read_evaluated(
    reply: Any, *, legacy: bool, accuracy: str | None = None, loss: str | None = None
) -> Evaluated:
    """Return how good an app finds a model, by its metrics of these names, or the usual ones."""
    content = _content(reply)
    if legacy:
        from flwr.compat.common.recorddict_compat import recorddict_to_evaluateres

        result = recorddict_to_evaluateres(content)
        _check_status(result.status, "evaluate")
        metrics = {"loss": result.loss, **result.metrics, EXAMPLES: result.num_examples}
    else:
        metrics = dict(_metrics(content, "evaluate"))
    examples = whole_examples(metrics.pop(EXAMPLES, None))
    right = _number(metrics, (accuracy,) if accuracy else ACCURACY, "accuracy")
    if not 0 <= right <= 1:
        raise DataError(f"its accuracy is {right}, and must be a share from 0 to 1")
    mean = _number(metrics, (loss,) if loss else LOSS, "loss")
    if mean < 0:
        raise DataError(f"its loss is {mean}; losses that are added up must be at least 0")
    return Evaluated(accuracy=right, loss=mean, examples=examples)


def whole_examples(value: Any) -> int:
    """Return a number of examples, from 1 on."""
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if not real or not 1 <= value <= MOST_EXAMPLES or value != int(value):
        got = "is not there" if value is None else f"is {value!r:.40}"
        raise DataError(
            f"its {EXAMPLES} {got}, and must be the whole number of its samples, at least 1: "
            "updates are weighted by it"
        )
    return int(value)


def _content(reply: Any) -> Any:
    from flwr.app import Message

    if not isinstance(reply, Message):
        raise DataError(f"it returned a {type(reply).__name__}, and must return a Message")
    if reply.has_error():
        raise DataError(f"it replied with error {reply.error.code}: {reply.error.reason}")
    return reply.content


def _metrics(content: Any, to: str) -> dict[str, Any]:
    records = list(content.metric_records.values())
    if len(records) != 1:
        raise DataError(
            f"its reply to {to} has {len(records)} records of metrics, where one is expected, with "
            f"{EXAMPLES}"
        )
    return dict(records[0])


def _check_status(status: Any, what: str) -> None:
    from flwr.common import Code

    if status.code != Code.OK:
        raise DataError(f"its {what} ended with {status.code.name}: {status.message}")


def _number(metrics: dict[str, Any], names: Sequence[str], what: str) -> float:
    name = next((name for name in names if name in metrics), None)
    if name is None:
        there = ", ".join(metrics) or "no other metrics"
        raise DataError(
            f"its evaluation has no {' or '.join(names)}, but {there}; say what the {what} is "
            f'called ({what}="…")'
        )
    value = metrics[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(f"its {name} is {value!r:.40}, and must be one number")
    return float(value) if math.isfinite(value) else math.inf if what == "loss" else math.nan
