"""One cell as a piece of work: it is run here, or sent to another machine and taken back.

Rules:

- What is sent along is what a cell needs to be continued; what comes back is its record and its
  models, also where it failed, so that it is continued from there. Whoever sent it has the folder
  to itself all the while, and is the only one who writes there.
- A cell of the cache takes what another has found if that is the same (`_borrow`), and deletes
  what cannot be continued. In a folder that a user has named nothing is deleted or borrowed.
"""

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from pdlrecover.adversary import ATTACKS
from pdlrecover.errors import HistoryError
from pdlrecover.experiments.batch.parcel import packed, unpacked
from pdlrecover.experiments.batch.pool import POLL_SECONDS
from pdlrecover.experiments.batch.recorded import Cell
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.record import begin, is_done, model_file, stored
from pdlrecover.experiments.experiment.result import Result
from pdlrecover.files import alone, write_whole
from pdlrecover.recovery.methods import entry_of
from pdlrecover.source import source_digest

RECORD, PROGRESS = "result.json", "progress"


@dataclass(frozen=True, kw_only=True)
class Errand:
    """A cell, and the folder that its result goes to."""

    cell: Cell
    place: Path
    data_dir: Path | None = None
    users: bool = False
    """Whether a user has named the folder."""
    _held: ExitStack = field(default_factory=ExitStack, compare=False, repr=False)

    def __call__(self) -> None:
        """Run it here."""
        run_one(self.cell, self.place, self.data_dir, users=self.users)

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_held": ExitStack()}  # a lock stays with the process that has it

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)

    def hold(self) -> bool:
        """Keep the folder for this process until `release`; False if another one has it now."""
        place = self.place
        if self.users:
            place.mkdir(parents=True, exist_ok=True)
            lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY)  # as `run` itself keeps it
        else:
            lock = os.open(place.with_name(f"{place.name}.lock"), os.O_RDWR | os.O_CREAT, 0o666)
        self._held.callback(os.close, lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._held.close()
            return False
        return True

    def release(self) -> None:
        """Let others have the folder."""
        with suppress(OSError):
            (self.place / PROGRESS).unlink(missing_ok=True)
        self._held.close()

    def is_done(self) -> bool:
        """Say whether its result is there."""
        return kept(self.cell, self.place) is not None

    def packed(self) -> bytes:
        """Return what is there to be continued, as an archive."""
        if not self.users:
            try:
                _borrow(self.cell.config, self.place)
            except HistoryError as error:
                if isinstance(error.__cause__, OSError):
                    raise
                shutil.rmtree(self.place, ignore_errors=True)
        return packed(self.place, history=True)

    def receive(self, content: bytes) -> None:
        """Put what has come back into its folder; the record, last, makes it count."""
        self.place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.place.parent, prefix=".arrived-") as name:
            arrived = Path(name)
            unpacked(content, arrived, history=False)
            result = stored(self.cell.config, arrived)
            if result is None:
                return
            (self.place / "models").mkdir(exist_ok=True)
            for model in (arrived / "models").glob("*"):
                os.replace(model, self.place / "models" / model.name)
            os.replace(arrived / RECORD, self.place / RECORD)
        if result.complete:
            shutil.rmtree(self.place / "history", ignore_errors=True)

    def note(self, text: str) -> None:
        """Leave a line for who watches."""
        self.place.mkdir(parents=True, exist_ok=True)
        write_whole(self.place / PROGRESS, text)


def key_of(config: Config) -> str:
    """Return the name of a config's place in the cache."""
    values = {**config.record(), "methods": None}
    text = json.dumps({"config": values, "source": source_digest()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def kept(cell: Cell, place: Path) -> Result | None:
    """Return a result that is complete and of this config, with what is asked only, or None."""
    try:
        result = stored(cell.config, place)
    except (HistoryError, OSError):
        return None
    if result is None or not is_done(result, cell.config, original=cell.original):
        return None
    return replace(result, methods={name: result.methods[name] for name in cell.asked})


def run_one(
    cell: Cell, place: Path, data_dir: Path | None = None, *, users: bool = False
) -> Result:
    """Run one cell; what is there and cannot be continued is deleted, unless it is a user's."""
    from pdlrecover.experiments.experiment.run import run  # with torch

    config = cell.config
    with nullcontext() if users else alone(place):
        if (found := kept(cell, place)) is not None:
            return found
        progress = Note(place / PROGRESS)
        begun = partial(run, config, place, original=cell.original, data_dir=data_dir)
        try:
            if not users:
                _borrow(config, place)
            result = begun(progress=progress)
        except HistoryError as error:
            if users or isinstance(
                error.__cause__, OSError
            ):  # the disk is to blame, not what is on it
                raise
            shutil.rmtree(place, ignore_errors=True)
            result = begun(progress=progress)
        progress.path.unlink(missing_ok=True)
        return result


def lender_of(config: Config) -> Config | None:
    """Return the cell in which as many honest peers leave, if retraining is the same there."""
    targeted = not ATTACKS[config.attack.partition(":")[0]].untargeted
    alike = config.malicious and not (config.undetected or config.accused or targeted)
    if not alike or config.held_out:  # with held-out data the original decides on further cycles
        return None
    return replace(config, malicious=0, leavers=config.malicious, attack=Config.attack)


def _borrow(config: Config, place: Path) -> None:
    """Begin a cell with what its lender has found, if that is done."""
    lender = lender_of(config)
    if lender is None or (place / RECORD).exists():
        return
    alike = [name for name in config.methods if entry_of(name).sees in ("first model", "nothing")]
    names = tuple(name for name in alike if entry_of(name).rounds == "own")
    key = key_of(lender)
    lent = Cell(config=replace(lender, methods=names), original=False)
    found = kept(lent, place.parent / key)
    if found is None:
        return
    models = [model_file(place.parent / key, name) for name in names]
    if not all(model.exists() for model in models):
        return
    (place / "models").mkdir(parents=True, exist_ok=True)
    for model in models:
        shutil.copy2(model, place / "models")
    methods = {name: replace(found.methods[name], borrowed_from=key) for name in names}
    begin(config, place, methods)


class Note:
    """A progress that leaves a line in a file, for the process that watches."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._last = 0.0

    def start(self, name: str, rounds: int) -> None:
        """Know how many rounds there are."""
        self._rounds = rounds

    def step(self, name: str, round: int, accuracy: float | None) -> None:
        """Leave a line, if that was not done a moment ago."""
        now = time.monotonic()
        if now - self._last >= POLL_SECONDS:
            self._last = now
            reached = "" if accuracy is None else f", accuracy {100 * accuracy:.1f}%"
            write_whole(self.path, f"{name} {round}/{self._rounds}{reached}")

    def end(self, name: str) -> None:
        """Leave the last line as it is."""


def note_of(place: Path) -> str | None:
    """Return what a cell that is run here is doing, if it has said so."""
    try:
        return (place / PROGRESS).read_text()
    except OSError:
        return None
