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
  the times of methods within one cell can be compared. They are this machine's cores, or those of
  the nodes of a Ray cluster (`nodes`); only this process writes into the cache then.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pdlrecover.cluster import LOCAL
from pdlrecover.errors import PlanError
from pdlrecover.experiments.batch.errand import Errand, kept, key_of, lender_of, note_of
from pdlrecover.experiments.batch.nodes import crew_for
from pdlrecover.experiments.batch.pool import Crew, run_jobs
from pdlrecover.experiments.batch.recorded import Cell, Recorded
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.result import Result

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
    on: str = LOCAL,
    mixed_processors: bool = False,
) -> list[Result]:
    """Return the results of all configs, in their order; run what is not there yet.

    They are run `on` this machine ("local") or on the nodes of a Ray cluster, which is "auto" or
    HOST:PORT; `workers` at a time, by default one for each core. Nodes with another processor
    capability than this machine's are refused, unless `mixed_processors` are accepted.
    """
    rests = [rest for config in configs if (rest := recorded.rest(config)) is not None]
    missing = {
        key: cell for key, cell in _merged(rests).items() if kept(cell, folder / key) is None
    }
    if missing:
        errands = _errands(missing, folder, data_dir)
        with crew_for(errands, on, workers=workers, mixed_processors=mixed_processors) as crew:
            run_errands(errands, crew, watcher)
    return [result for result in cached(configs, folder, recorded) if result is not None]


def cached(
    configs: Sequence[Config], folder: Path, recorded: Recorded = NOTHING
) -> list[Result | None]:
    """Return what is recorded or in the cache; None where a run is missing or not done."""
    found = []
    for config in configs:
        rest = recorded.rest(config)
        run = None if rest is None else kept(rest, folder / key_of(config))
        found.append(recorded.joined(config, run))
    return found


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


def _errands(cells: dict[str, Cell], folder: Path, data_dir: Path | None) -> list[Errand]:
    """Return cells as work to do: those that can lend come first, then the longest."""
    folder.mkdir(parents=True, exist_ok=True)
    configs = {key: cell.config for key, cell in cells.items()}
    ordered = sorted(cells, key=lambda k: (lender_of(configs[k]) is not None, -_effort(configs[k])))
    return [Errand(cell=cells[key], place=folder / key, data_dir=data_dir) for key in ordered]


def run_errands(
    errands: Sequence[Errand], crew: Crew, watcher: Watcher | None = None, before: int = 0
) -> None:
    """Run cells by a crew, begun in their order; raise PlanError, in the end, if some failed.

    The watcher is told of so many others as well, which were done `before`.
    """
    jobs = {str(errand.place): errand for errand in errands}
    configs = {name: errand.cell.config for name, errand in jobs.items()}

    def watch(done: int, running: Sequence[str]) -> None:
        if watcher:
            notes = [note_of(jobs[name].place) for name in running]
            said = tuple(note for note in notes if note)
            watcher(Status(done=before + done, total=before + len(jobs), running=said))

    if failed := run_jobs(jobs, crew, watch):
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
