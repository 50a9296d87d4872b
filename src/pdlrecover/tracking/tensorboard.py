"""Curves as TensorBoard's event files: `tensorboard --logdir runs`.

    runs/training/       the training
    runs/auto/           a recovery by that method
    runs/auto-2/         the next one
    runs/mnist/…         the same of an experiment

Rules:

- A run is a folder, so that TensorBoard draws the curves of all of them in one chart. `run.json` in
  it has the run's identity; a run that goes on finds its folder by that.
- A point is written once: what the folder's files have of a curve is looked up first, and a run
  that is taken up again goes on behind that, in a file of its own.
- Settings are there as text (`settings`) and for the HPARAMS page; so are the last numbers, as
  `final/…`.
- Records of the format TFRecord are written by the tensorboard package itself, without TensorFlow,
  in the thread of the run: an error is the caller's, and nothing is left behind that waits.
"""

import itertools
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO
from weakref import WeakKeyDictionary

from pdlrecover.engines.events import Ended, Event, Follow, Plain, Run
from pdlrecover.extras import extra
from pdlrecover.files import write_json

FLUSH_SECONDS = 5.0
"""A viewer sees what is older."""
FILES = "events.out.tfevents"
IDENTITY = "run.json"
_NUMBERS = itertools.count()


class TensorBoard:
    """An observer that writes event files for TensorBoard.

    The folder is what `tensorboard --logdir` is given; it need not exist.
    """

    def __init__(self, folder: Path | str) -> None:
        """Raise an `ExtraError` if the tensorboard package is not installed."""
        with extra("tensorboard", "writing TensorBoard's files"):
            import tensorboard.summary.writer.record_writer  # noqa: F401 (is it there?)
        self.folder = Path(folder)
        self._places: WeakKeyDictionary[Run, Path] = WeakKeyDictionary()

    def begin(self, run: Run) -> Follow:
        """Begin a folder for a run, or go on in its own."""
        parent = self.folder if run.parent is None else self._places.get(run.parent, self.folder)
        place = self._places[run] = _place(parent, run)
        events = _EventFile(place)
        events.begin(run)
        return events.take


def _place(parent: Path, run: Run) -> Path:
    """Return a run's folder, which is there."""
    name = run.name.replace("/", "-").strip(". ") or "run"
    parent.mkdir(parents=True, exist_ok=True)
    if run.continues and run.identity:
        there = itertools.takewhile(Path.exists, _places(parent, name))
        if of_this := [each for each in there if _identity(each) == run.identity]:
            return of_this[-1]
    for place in _places(parent, name):
        with suppress(FileExistsError):
            place.mkdir()
            break
    write_json(place / IDENTITY, {"run": run.identity})
    return place


def _places(parent: Path, name: str) -> Iterator[Path]:
    """Yield the folders that runs of this name may have, in their order, without end."""
    yield parent / name
    yield from (parent / f"{name}-{number}" for number in itertools.count(2))


def _identity(place: Path) -> str | None:
    """Return whose folder this is; None if it is not known."""
    try:
        return str(json.loads((place / IDENTITY).read_bytes())["run"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


class _EventFile:
    """One more file of events in a run's folder, made once there is something to write."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._is_new = not any(_files(folder))
        self._file: BinaryIO | None = None
        self._written: dict[str, int] | None = {} if self._is_new else None
        self._flushed = time.monotonic()
        self._last, self._is_done = 0, False

    def begin(self, run: Run) -> None:
        """Write the settings, unless they are there."""
        if self._is_new:
            self._write(step=0, summary=_text("settings", _table(run.settings)))
            self._write(step=0, summary=_hyperparameters(run))
            self._flush()

    def take(self, event: Event) -> None:
        """Write an event's points; close the file if that fails."""
        if self._is_done:
            return
        try:
            self._take(event)
        except OSError:
            if self._file is not None:
                with suppress(OSError):  # what cannot be written now could not be before
                    self._file.close()
            raise

    def _take(self, event: Event) -> None:
        if isinstance(event, Ended):
            self._end(event)
            return
        self._last = max(self._last, event.round)
        self._points(event.scalars, event.round)
        if time.monotonic() >= self._flushed + FLUSH_SECONDS:
            self._flush()

    def _end(self, event: Ended) -> None:
        """Write what a run came to, unless nothing is new in it."""
        self._is_done = True
        try:
            self._points(event.scalars, self._last)
            if self._file is None:
                return
            if event.outcome != "stopped":
                self._write(step=self._last, summary=_session_end(event))
            for name, value in event.records.items():
                text = f"```json\n{json.dumps(value, indent=2)}\n```"
                self._write(step=self._last, summary=_text(name, text))
            if event.why:
                self._write(step=self._last, summary=_text(event.outcome, event.why))
        finally:
            if self._file is not None:
                self._file.close()

    def _points(self, scalars: Mapping[str, float], step: int) -> None:
        """Write those points of curves that are not written yet."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        if self._written is None:  # which takes a while after a long run
            self._written = _steps_in(self._folder)
        new = {tag: x for tag, x in scalars.items() if self._written.get(tag, -1) < step}
        if new:
            values = [Summary.Value(tag=tag, simple_value=x) for tag, x in new.items()]
            self._write(step=step, summary=Summary(value=values))
            self._written.update(dict.fromkeys(new, step))

    def _write(self, **parts: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event as Record
        from tensorboard.summary.writer.record_writer import RecordWriter

        if self._file is None:
            self._file = _new_file(self._folder)
            self._write(file_version="brain.Event:2")
        RecordWriter(self._file).write(Record(wall_time=time.time(), **parts).SerializeToString())

    def _flush(self) -> None:
        if self._file is not None:
            self._file.flush()
        self._flushed = time.monotonic()


def _new_file(folder: Path) -> BinaryIO:
    """Open a file of a name that TensorBoard reads after those that are there.

    It sorts names as texts: they begin with a second, and no two files here have the same.
    """
    seconds = [path.name.removeprefix(f"{FILES}.").partition(".")[0] for path in _files(folder)]
    after = max((int(each) + 1 for each in seconds if each.isdecimal()), default=0)
    second = max(round(time.time()), after)
    name = f"{FILES}.{second}.{socket.gethostname()}.{os.getpid()}.{next(_NUMBERS)}"
    return (folder / name).open("xb")


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{FILES}.*"))


def _steps_in(folder: Path) -> dict[str, int]:
    """Return up to which step each curve in a folder is written."""
    found: dict[str, int] = {}
    for event in _events_in(folder):
        for value in event.summary.value:
            found[value.tag] = max(found.get(value.tag, -1), event.step)
    return found


def _events_in(folder: Path) -> Iterator[Any]:
    """Yield the events of all files in a folder; a torn record ends its file."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    for path in _files(folder):
        yield from EventFileLoader(str(path)).Load()


def _table(settings: Mapping[str, Plain]) -> str:
    """Return settings as TensorBoard shows a table."""
    rows = [f"| {name} | {value} |" for name, value in settings.items()]
    return "\n".join(["| setting | value |", "|---|---|", *rows])


def _text(tag: str, text: str) -> Any:
    """Return a text as a summary."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING
    from tensorboard.plugins.text.metadata import create_summary_metadata

    metadata = create_summary_metadata(display_name="", description="")
    tensor = TensorProto(dtype=DT_STRING, string_val=[text.encode()])
    return Summary(value=[Summary.Value(tag=tag, metadata=metadata, tensor=tensor)])


def _hyperparameters(run: Run) -> Any:
    """Return what the HPARAMS page compares runs by."""
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb

    return hparams_pb({"run": run.name, **run.settings}, trial_id=run.identity or None)


def _session_end(event: Ended) -> Any:
    """Return what tells the HPARAMS page that a run has ended, and how."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

    status = api_pb2.STATUS_SUCCESS if event.outcome == "finished" else api_pb2.STATUS_FAILURE
    end = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=time.time())
    content = plugin_data_pb2.HParamsPluginData(session_end_info=end)
    value = Summary.Value(
        tag=metadata.SESSION_END_INFO_TAG, metadata=metadata.create_summary_metadata(content)
    )
    return Summary(value=[value])
