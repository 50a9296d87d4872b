"""A Flower app, called in this process as Flower's runtime would call it.

Rules:

- Messages, records and contexts are made by Flower's own classes, with what FedAvg sends: the
  model's arrays, and a config with `server-round`, from 1 on. An app made with a `client_fn` gets
  the records of Flower's earlier protocol, by Flower's own converters.
- Its context has `partition-id` and `num-partitions` in `node_config`, and the run's `run_config`.
- A round must depend on the model, the peer and the round alone, or it could not be computed again:
  every call starts with the same `context.state`, which is empty, and an app that keeps something
  there is refused.
- What an app draws from the global generators is a function of seed, peer and round (`seeding`).
"""

import importlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pdlrecover.errors import DataError, PDLRecoverError, PlanError, Whom
from pdlrecover.extras import extra
from pdlrecover.flower.replies import Evaluated, Trained, read_evaluated, read_trained
from pdlrecover.flower.seeding import seeded
from pdlrecover.learning.array_model import ArrayModel, Arrays

Config = Mapping[str, bool | float | int | str]
CONFIG = "config"
ARRAYS = "arrays"
"""What FedAvg calls its records."""
_RUN = 1
"""The number that every run has: there is no server to count them."""
MOST_SAID = 300
"""So many characters of an error of the app's own are shown."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What all calls of an app have in common."""

    seed: int = 0
    partitions: int
    """How many partitions the data have."""
    run_config: Config = field(default_factory=dict)
    train_config: Config = field(default_factory=dict)
    """What is sent with the model, as `FedAvg.start(train_config=…)` sends it."""
    accuracy: str | None = None
    loss: str | None = None
    """What the app calls these, if not as Flower's documentation does."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FlowerApp:
    """An app and how it is called."""

    app: Any
    """A `ClientApp`."""
    name: str
    """Where it was imported from; empty if it was not."""
    terms: Terms

    @property
    def title(self) -> str:
        """What it is called in messages."""
        return f"the Flower app {self.name}".rstrip()

    @property
    def legacy(self) -> bool:
        """Whether it was made with a `client_fn`."""
        return self.app._call is not None

    def evaluates(self, arrays: Arrays, *, peer: int, partition: int) -> bool:
        """Say whether it has an evaluate function; one with a `client_fn` is called for that."""
        if not self.legacy:
            return "evaluate.default" in self.app._registered_funcs
        from flwr.common import Code

        try:
            reply = self._called("evaluate", arrays, peer, partition, 0, 0)
        except PDLRecoverError as error:
            raise self._about(peer, error) from error
        status = reply.content.config_records["evaluateres.status"]
        return bool(status["code"] != Code.EVALUATE_NOT_IMPLEMENTED.value)

    def train(
        self,
        model: ArrayModel,
        arrays: Arrays,
        *,
        peer: int,
        partition: int,
        round: int,
        stream: int,
    ) -> Trained:
        """Return what the app makes of a model in a round."""
        try:
            reply = self._called("train", arrays, peer, partition, round, stream)
            return read_trained(reply, model, legacy=self.legacy)
        except PDLRecoverError as error:
            raise self._about(peer, error) from error

    def evaluate(self, arrays: Arrays, *, peer: int, partition: int) -> Evaluated:
        """Return how good the app finds a model on its own data."""
        terms = self.terms
        try:
            reply = self._called("evaluate", arrays, peer, partition, 0, 0)
            return read_evaluated(
                reply, legacy=self.legacy, accuracy=terms.accuracy, loss=terms.loss
            )
        except PDLRecoverError as error:
            raise self._about(peer, error) from error

    def _called(
        self, what: str, arrays: Arrays, peer: int, partition: int, round: int, stream: int
    ) -> Any:
        """Return the app's reply."""
        from flwr.app import (
            DEFAULT_TTL,
            Array,
            ArrayRecord,
            ConfigRecord,
            Context,
            Message,
            Metadata,
            RecordDict,
        )

        record = ArrayRecord({name: Array(array) for name, array in arrays.items()})
        config = {**self.terms.train_config, "server-round": round + 1}
        if self.legacy:
            content = _earlier(what, record, config)
        else:
            content = RecordDict({ARRAYS: record, CONFIG: ConfigRecord(config)})
        metadata = Metadata(
            run_id=_RUN,
            message_id="",
            src_node_id=0,
            dst_node_id=partition + 1,
            reply_to_message_id="",
            group_id=str(round + 1),
            created_at=time.time(),
            ttl=DEFAULT_TTL,
            message_type=what,
        )
        message = Message(content=content, metadata=metadata)
        partitions = self.terms.partitions
        context = Context(
            run_id=_RUN,
            node_id=partition + 1,
            node_config={"partition-id": partition, "num-partitions": partitions},
            state=RecordDict(),
            run_config=dict(self.terms.run_config),
        )
        try:
            with seeded("pdlrecover flower", self.terms.seed, peer, round, stream, what):
                reply = self.app(message, context)
        except Exception as error:  # it is the user's own code
            raise DataError(f"its {what} raised {_said(error)}") from error
        if context.state:
            raise PlanError(
                f"it keeps {next(iter(context.state))!r} in context.state, so a round would depend "
                "on the rounds before and could not be repeated; make it a function of the model"
            )
        return reply

    def _about(self, peer: int, error: PDLRecoverError) -> PDLRecoverError:
        """Return an error with the peer that it is about."""
        return type(error)(f"{self.title}, as ", Whom((peer,)), ": ", error)


def find_app(given: Any, terms: Terms) -> FlowerApp:
    """Return an app, given as a `ClientApp` or as `package.module:app`, which is imported."""
    with extra("flower", "a Flower app"):
        from flwr.clientapp import ClientApp
    app, name = given, ""
    if isinstance(given, str):
        module_name, _, attribute = (name := given).partition(":")
        if not module_name or not attribute:  # so that nothing is imported that has no such name
            raise DataError(f"a Flower app is named as package.module:app, got {given!r}")
        try:
            app = getattr(importlib.import_module(module_name), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise DataError(
                f"cannot import {given!r} ({error}); a Flower app is named as package.module:app, "
                "as in its pyproject.toml, with the package installed or on PYTHONPATH"
            ) from error
    if not isinstance(app, ClientApp):
        raise DataError(
            f"a Flower app must be a ClientApp, or the package.module:app of one, got a "
            f"{type(app).__name__}"
        )
    return FlowerApp(app=app, name=name, terms=terms)


def _earlier(what: str, record: Any, config: dict[str, Any]) -> Any:
    """Return what a `client_fn` is sent."""
    from flwr.common import EvaluateIns, FitIns
    from flwr.compat.common.recorddict_compat import (
        arrayrecord_to_parameters,
        evaluateins_to_recorddict,
        fitins_to_recorddict,
    )

    parameters = arrayrecord_to_parameters(record, keep_input=True)
    if what == "train":
        return fitins_to_recorddict(FitIns(parameters, config), keep_input=True)
    return evaluateins_to_recorddict(EvaluateIns(parameters, config), keep_input=True)


def _said(error: Exception) -> str:
    """Return what an app's own error says in one line, and where a key that it lacks comes from."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    if isinstance(error, KeyError):
        text += "; if that is a setting, give it in run_config or train_config"
    return text if len(text) <= MOST_SAID else f"{text[:MOST_SAID]} …"
