"""Runs in MLflow: on a server, in a database, or in a folder.

    MLflow("http://127.0.0.1:5000")       a tracking server
    MLflow("sqlite:///mlflow.db")         a database; needs what `pip install mlflow` brings
    MLflow("mlruns")                      a folder, in the form of MLflow's file store

Rules:

- A training or a recovery is a run, below that of its experiment if it is part of one: settings are
  parameters, curves are metrics by round, the last numbers are metrics `final/…`, the ledger and
  files are artifacts.
- Nothing waits for a server but the end of a run: what is to be sent goes to a thread, in order,
  and as much at once as has come together. Only the end waits for the rest, for `wait` seconds.
- What cannot be sent is raised by the next call, so that it is said once; nothing more of that run
  is sent.
- Credentials in an address (user:password@) are in no error: those go to logs. MLflow's own
  variables are the better place for them.
- A run is known again by its tag `pdlrecover.run`. If it goes on, those points are sent that a
  metric does not have.
- The file store needs nothing besides mlflow-skinny, but MLflow warns of it, and newer versions
  refuse it unless MLFLOW_ALLOW_FILE_STORE is set. Who names a folder wants it: while the store is
  made that is set, and the warning is not shown.
"""

import contextlib
import importlib.util
import os
import time
import warnings
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from threading import Condition, Thread
from threading import Event as Flag
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from pdlrecover.engines.events import Ended, Event, Follow, Run
from pdlrecover.errors import PlanError
from pdlrecover.extras import extra

WAIT = 60.0
MOST_METRICS = 1000
"""MLflow takes no more of them at once,"""
MOST_PARAMETERS = 100
"""nor more of these."""
MOST_TEXT = 500
"""Older servers take no longer values."""
MOST_WAITING = 100_000
"""A run with more events than these waiting is too fast for its server."""
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
FILE_STORE = "MLFLOW_ALLOW_FILE_STORE"
TAG = "pdlrecover.run"
STATUS = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}


class MLflow:
    """An observer that sends runs to MLflow.

    `uri` is a server's address, a database, or a folder; by default what MLFLOW_TRACKING_URI says.
    `experiment` is the MLflow experiment that the runs are in. The end of a run waits at most
    `wait` seconds for what is not sent yet; without waiting, call `close` before the process ends.
    """

    def __init__(
        self, uri: Path | str | None = None, *, experiment: str = "pdlrecover", wait: float = WAIT
    ) -> None:
        """Raise an `ExtraError` if there is no MLflow, a `PlanError` if the uri is none for it."""
        with extra("mlflow", "sending runs to MLflow"):
            from mlflow import MlflowClient
        self.uri, self._experiment, self._wait = _uri(uri), experiment, wait
        with _file_store(self.uri):
            self._client = MlflowClient(tracking_uri=self.uri)
        self._runs: WeakKeyDictionary[Run, _Sent] = WeakKeyDictionary()
        self._sender = _Sender()

    def begin(self, run: Run) -> Follow:
        """Begin a run, or take one up again."""
        parent = None if run.parent is None else self._runs.get(run.parent)
        sent = self._runs[run] = _Sent(self._client, self._experiment, run, parent, self.uri)

        def follow(event: Event) -> None:
            if sent.error is not None:
                raise sent.error
            self._sender.put(sent, event)
            if isinstance(event, Ended) and self._wait:
                self._finish(sent)

        self._sender.put(sent, None)
        return follow

    def _finish(self, sent: "_Sent") -> None:
        if not sent.done.wait(self._wait):
            shown = _without_credentials(self.uri, self.uri)
            raise TimeoutError(
                f"{shown} has not taken everything within {self._wait:g} s; what is left is "
                "sent for as long as this process goes on"
            )
        if sent.error is not None:
            raise sent.error

    def close(self, wait: float = 5.0) -> bool:
        """Wait until everything is sent, for some seconds at most; say whether it is."""
        return self._sender.drain(wait)


def _uri(given: Path | str | None) -> str:
    """Return where runs go as MLflow writes it; refuse what cannot be used here."""
    if given is None:
        given = os.environ.get("MLFLOW_TRACKING_URI", "")
        if not given:
            raise PlanError(
                "MLflow needs to know where runs go, and MLFLOW_TRACKING_URI is not set; give a "
                'server such as "http://127.0.0.1:5000", or a folder such as "mlruns"'
            )
    text = str(given)
    scheme = urlsplit(text).scheme.partition("+")[0]
    if not scheme and not text.startswith("databricks"):
        return Path(text).resolve().as_uri()
    if scheme in DATABASES and importlib.util.find_spec("sqlalchemy") is None:
        shown = _without_credentials(text, text)
        raise PlanError(
            f"{shown} is a database, which MLflow reads by sqlalchemy, and that is not installed; "
            "pip install mlflow, which brings it, or give a server or a folder"
        )
    return text


def _without_credentials(text: str, uri: str) -> str:
    """Return a text without the credentials of this uri."""
    secret = urlsplit(uri).netloc.rpartition("@")[0]
    return text.replace(f"{secret}@", "…@") if secret else text


@contextlib.contextmanager
def _file_store(uri: str) -> Iterator[None]:
    """Let MLflow make a file store within this, if that is what the uri asks for."""
    if not uri.startswith("file:"):
        yield
        return
    is_set = FILE_STORE in os.environ
    os.environ.setdefault(FILE_STORE, "true")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The filesystem ", FutureWarning)
            yield
    finally:
        if not is_set:
            del os.environ[FILE_STORE]


class _Sender:
    """A thread that sends what is put, in order, and as much at once as there is."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[_Sent, Event | None, float]] = deque()
        self._change = Condition()
        self._busy = False
        self._thread: Thread | None = None

    def put(self, sent: "_Sent", event: Event | None) -> None:
        """Take what is to be sent of a run; None is its beginning."""
        with self._change:
            if len(self._waiting) >= MOST_WAITING and not isinstance(event, Ended):
                raise BufferError(f"{MOST_WAITING} events wait to be sent: the server is too slow")
            self._waiting.append((sent, event, time.time()))
            if self._thread is None:
                self._thread = Thread(target=self._work, name="pdlrecover-mlflow", daemon=True)
                self._thread.start()
            self._change.notify_all()

    def drain(self, wait: float) -> bool:
        """Wait until nothing is left; say whether nothing is."""
        with self._change:
            return self._change.wait_for(lambda: not (self._waiting or self._busy), wait)

    def _work(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._waiting)
                taken, self._busy = list(self._waiting), True
                self._waiting.clear()
            for sent in dict.fromkeys(each for each, _, _ in taken):
                sent.send([(event, at) for each, event, at in taken if each is sent])
            with self._change:
                self._busy = False
                self._change.notify_all()


class _Sent:
    """One run as MLflow has it; but for `error` and `done`, only the sending thread uses it."""

    def __init__(
        self, client: Any, experiment: str, run: Run, parent: "_Sent | None", uri: str
    ) -> None:
        self._client, self._experiment, self._run, self._parent = client, experiment, run, parent
        self._uri = uri
        self.id = ""
        self.error: Exception | None = None
        self.done = Flag()
        """Whether its end was sent, or will not be."""
        self._goes_on = False
        self._steps: dict[str, int] = {}
        self._last = 0

    def send(self, events: list[tuple[Event | None, float]]) -> None:
        """Send what has come together."""
        if self.error is not None:
            return
        try:
            metrics: list[Any] = []
            for event, at in events:
                if event is None:
                    self._begin()
                elif isinstance(event, Ended):
                    self._send(metrics + self._metrics(event, self._last, at))
                    metrics = []
                    self._end(event)
                else:
                    self._last = max(self._last, event.round)
                    metrics += self._metrics(event, event.round, at)
            self._send(metrics)
        except Exception as error:
            said = _without_credentials(str(error), self._uri)
            self.error = error if said == str(error) else ConnectionError(said)
            self.done.set()

    def _begin(self) -> None:
        from mlflow.entities import Param

        experiment = self._experiment_id()
        found = self._found(experiment) if self._run.continues else None
        if found is None:
            found = self._client.create_run(
                experiment, tags=self._tags(), run_name=_name(self._run)
            )
        else:
            self._goes_on = True
            self._client.update_run(found.info.run_id, status="RUNNING")
        self.id = found.info.run_id
        given = [
            Param(name, str(value)[:MOST_TEXT])
            for name, value in self._run.settings.items()
            if name not in found.data.params
        ]
        for first in range(0, len(given), MOST_PARAMETERS):
            self._client.log_batch(self.id, params=given[first : first + MOST_PARAMETERS])

    def _experiment_id(self) -> str:
        from mlflow.exceptions import MlflowException

        found = self._client.get_experiment_by_name(self._experiment)
        if found is None:
            try:
                return str(self._client.create_experiment(self._experiment))
            except MlflowException:  # somebody else has made it just now
                found = self._client.get_experiment_by_name(self._experiment)
                if found is None:
                    raise
        return str(found.experiment_id)

    def _found(self, experiment: str) -> Any:
        """Return the latest run of this identity; None if there is none."""
        same = f"tags.`{TAG}` = '{self._run.identity}'"
        order = ["attributes.start_time DESC"]
        runs = self._client.search_runs([experiment], same, order_by=order, max_results=1)
        return runs[0] if runs else None

    def _tags(self) -> dict[str, str]:
        tags = {TAG: self._run.identity, "pdlrecover.kind": self._run.kind}
        tags |= {"mlflow.source.name": "pdlrecover"}
        if self._run.whose:
            tags["pdlrecover.peer"] = self._run.whose
        if self._parent is not None and self._parent.id:
            tags["mlflow.parentRunId"] = self._parent.id
        return {name: value for name, value in tags.items() if value}

    def _metrics(self, event: Event, step: int, at: float) -> list[Any]:
        """Return those points of curves that MLflow does not have."""
        from mlflow.entities import Metric

        new = []
        for name, value in event.scalars.items():
            if self._latest(name) < step:
                self._steps[name] = step
                new.append(Metric(name, value, int(1000 * at), step))
        return new

    def _latest(self, name: str) -> int:
        """Return up to which step a metric is there."""
        if name not in self._steps:
            points = self._client.get_metric_history(self.id, name) if self._goes_on else ()
            self._steps[name] = max((point.step for point in points), default=-1)
        return self._steps[name]

    def _send(self, metrics: list[Any]) -> None:
        for first in range(0, len(metrics), MOST_METRICS):
            self._client.log_batch(self.id, metrics=metrics[first : first + MOST_METRICS])

    def _end(self, event: Ended) -> None:
        """Keep files, and say how the run ended, also if they cannot be kept."""
        try:
            for name, value in event.records.items():
                self._client.log_dict(self.id, value, name)
            for path in event.files:
                self._client.log_artifact(self.id, str(path))
            if event.why:
                self._client.set_tag(self.id, "pdlrecover.why", event.why[:MOST_TEXT])
        finally:
            self._client.set_terminated(self.id, STATUS[event.outcome])
        self.done.set()


def _name(run: Run) -> str:
    return f"{run.whose}: {run.name}" if run.whose else run.name
