"""Many experiments, each run once: cached by config and by version, resumable, on all cores.

Rules:

- A cell is one config. Its result is kept in `cache/<digest>`, where the digest is of the config
  without its methods, and of the code of everything that results depend on: its files may be moved,
  formatted and documented otherwise. So a cell is run again when either has changed, and more
  methods can be added to one that is there.
- What is recorded (`recorded`) is not run, and is not put into the cache.
- A cache belongs to one data folder: what the files contain is not looked at.
- An entry that cannot be read, is of another config, or is not complete is not trusted: it is run
  again, or continued. Anything else that fails, a full disk, a method with a mistake in it or a
  process that was killed, deletes nothing; the other cells are run, and then the error names it.
- Of two commands with one cache, the second waits for a cell that the first is running.
- Retraining knows nothing of the attack: it computes with the kept peers, from the first model.
  So where an attack without a trigger is removed, what the same removal of honest leavers has
  found is copied; the entry says so in `borrowed_from`.
- As many cells as there are cores run at a time, each in a process of its own with one thread, so
  the times of methods within one cell can be compared.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pdlrecover.adversary import ATTACKS
from pdlrecover.errors import HistoryError, PlanError
from pdlrecover.experiments.batch.pool import POLL_SECONDS, run_jobs
from pdlrecover.experiments.batch.recorded import Cell, Recorded
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.record import begin, is_done, model_file, stored
from pdlrecover.experiments.experiment.result import Result
from pdlrecover.files import alone, write_whole
from pdlrecover.recovery.methods import entry_of
from pdlrecover.source import source_digest

NOTHING = Recorded()
NAMED = 3
"""How many of the runs that failed for one reason are named."""


@dataclass(frozen=True, kw_only=True)
class Status:
    """How far a batch of cells is."""

    done: int
    total: int
    running: tuple[str, ...]
    """What each running cell is doing, in words."""


Watcher = Callable[[Status], None]


def run_cells(
    configs: Sequence[Config],
    folder: Path,
    *,
    recorded: Recorded = NOTHING,
    data_dir: Path | None = None,
    watcher: Watcher | None = None,
    workers: int | None = None,
) -> list[Result]:
    """Return the results of all configs, in their order; run what is not there yet."""
    rests = [rest for config in configs if (rest := recorded.rest(config)) is not None]
    missing = {
        key: cell for key, cell in _merged(rests).items() if _cached(cell, folder / key) is None
    }
    if missing:
        count = min(len(missing), workers or len(os.sched_getaffinity(0)))
        _run_missing(missing, folder, data_dir, count, watcher)
    return [result for result in cached(configs, folder, recorded) if result is not None]


def cached(
    configs: Sequence[Config], folder: Path, recorded: Recorded = NOTHING
) -> list[Result | None]:
    """Return what is recorded or in the cache; None where a run is missing or not done."""
    found = []
    for config in configs:
        rest = recorded.rest(config)
        run = None if rest is None else _cached(rest, folder / key_of(config))
        found.append(recorded.joined(config, run))
    return found


def key_of(config: Config) -> str:
    """Return the name of a config's place in the cache."""
    values = {**config.record(), "methods": None}
    text = json.dumps({"config": values, "source": source_digest()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _merged(cells: Sequence[Cell]) -> dict[str, Cell]:
    """Return each different cell once, with all that is asked of it."""
    merged: dict[str, Cell] = {}
    for cell in cells:
        key = key_of(cell.config)
        known = merged.get(key, Cell(config=replace(cell.config, methods=()), original=False))
        methods = tuple(dict.fromkeys((*known.config.methods, *cell.config.methods)))
        config = replace(cell.config, methods=methods)
        merged[key] = Cell(config=config, original=known.original or cell.original)
    return merged


def _cached(cell: Cell, place: Path) -> Result | None:
    """Return a result that is complete and of this config, with what is asked only, or None."""
    try:
        result = stored(cell.config, place)
    except (HistoryError, OSError):
        return None
    if result is None or not is_done(result, cell.config, original=cell.original):
        return None
    return replace(result, methods={name: result.methods[name] for name in cell.asked})


def _run_missing(
    cells: dict[str, Cell],
    folder: Path,
    data_dir: Path | None,
    workers: int,
    watcher: Watcher | None,
) -> None:
    """Run cells in processes of their own: those that can lend come first, then the longest."""
    folder.mkdir(parents=True, exist_ok=True)
    configs = {key: cell.config for key, cell in cells.items()}
    ordered = sorted(cells, key=lambda k: (_lender(configs[k]) is not None, -_effort(configs[k])))
    jobs = {key: partial(_run_one, cells[key], folder / key, data_dir) for key in ordered}

    def watch(done: int, running: Sequence[str]) -> None:
        if watcher:
            notes = tuple(_notes(folder / key for key in running))
            watcher(Status(done=done, total=len(jobs), running=notes))

    failed = run_jobs(jobs, workers, watch)
    if failed:
        who: dict[str, list[str]] = {}
        for key, reason in failed.items():
            who.setdefault(reason, []).append(_words(configs[key]))
        said = "; ".join(f"{reason} ({_listed(names)})" for reason, names in who.items())
        raise PlanError(f"{len(failed)} of {len(jobs)} runs failed, the others are kept: {said}")


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return " and ".join([*names[:NAMED], *([f"{more} more"] if more > 0 else [])])


def _words(config: Config) -> str:
    who = config.attack if config.attackers else "leavers"
    return f"{config.dataset}, {config.optimizer}, {who}, seed {config.seed}"


def _effort(config: Config) -> int:
    return config.rounds * config.peers * (1 + len(config.methods))


def _run_one(cell: Cell, place: Path, data_dir: Path | None) -> Result:
    """Run one cell; what is there and cannot be continued is deleted."""
    from pdlrecover.experiments.experiment.run import run  # with torch

    config = cell.config
    with alone(place):
        if (found := _cached(cell, place)) is not None:
            return found
        progress = _Note(place / "progress")
        begun = partial(run, config, place, original=cell.original, data_dir=data_dir)
        try:
            _borrow(config, place)
            result = begun(progress=progress)
        except HistoryError as error:
            if isinstance(error.__cause__, OSError):  # the disk is to blame, not what is on it
                raise
            shutil.rmtree(place, ignore_errors=True)
            result = begun(progress=progress)
        progress.path.unlink(missing_ok=True)
        return result


def _lender(config: Config) -> Config | None:
    """Return the cell in which as many honest peers leave, if retraining is the same there."""
    targeted = not ATTACKS[config.attack.partition(":")[0]].untargeted
    alike = config.malicious and not (config.undetected or config.accused or targeted)
    if not alike or config.held_out:  # with held-out data the original decides on further cycles
        return None
    return replace(config, malicious=0, leavers=config.malicious, attack=Config.attack)


def _borrow(config: Config, place: Path) -> None:
    """Begin a cell with what its lender has found, if that is done."""
    lender = _lender(config)
    if lender is None or (place / "result.json").exists():
        return
    alike = [name for name in config.methods if entry_of(name).sees in ("first model", "nothing")]
    names = tuple(name for name in alike if entry_of(name).rounds == "own")
    key = key_of(lender)
    lent = Cell(config=replace(lender, methods=names), original=False)
    found = _cached(lent, place.parent / key)
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


class _Note:
    """A progress that leaves a line in a file, for the process that watches."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._last = 0.0

    def start(self, name: str, rounds: int) -> None:
        self._rounds = rounds

    def step(self, name: str, round: int, accuracy: float | None) -> None:
        now = time.monotonic()
        if now - self._last >= POLL_SECONDS:
            self._last = now
            reached = "" if accuracy is None else f", accuracy {100 * accuracy:.1f}%"
            write_whole(self.path, f"{name} {round}/{self._rounds}{reached}")

    def end(self, name: str) -> None:
        pass


def _notes(places: Iterator[Path]) -> Iterator[str]:
    for place in places:
        try:
            yield (place / "progress").read_text()
        except OSError:
            continue
