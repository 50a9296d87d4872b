"""Several simulations by one command: over seeds, over config files, or on several machines."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import typer
from rich.live import Live

from pdlrecover.cli.common import INTERRUPTED, console_of_work
from pdlrecover.cli.progress import watcher_of_runs
from pdlrecover.cli.tables import results_table
from pdlrecover.errors import PDLRecoverError, PlanError, Setting
from pdlrecover.experiments.analysis.seeds import by_experiment
from pdlrecover.experiments.batch.folders import run_into
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.record import stored
from pdlrecover.experiments.experiment.result import Result
from pdlrecover.experiments.report.html import write_report
from pdlrecover.experiments.report.simulation_document import documents_from_result
from pdlrecover.extras import has

MOST_SEEDS = 10_000


def seeds_of(text: str) -> list[int]:
    """Return the seeds of a list such as 0,1,2 or 0-9, in its order."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = (word.strip() for word in part.partition("-"))
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise PlanError(
                Setting("seeds"), f" must be numbers such as 0,1,2 or 0-9, got {text!r}"
            )
        end = int(last or first)
        if not 0 <= end - int(first) < MOST_SEEDS:
            raise PlanError(
                Setting("seeds"),
                f": {part.strip()!r} must go from a number to a larger one, and have at most "
                f"{MOST_SEEDS:,} seeds",
            )
        found += range(int(first), end + 1)
    if len(set(found)) < len(found):
        raise PlanError(Setting("seeds"), f" must be different ones, got {text!r}")
    return found


def planned(
    configs: Mapping[str, Config], seeds: Sequence[int] | None, out: Path
) -> dict[Path, Config]:
    """Return the runs by their folders: `out`, in it one for each config, and one for each seed.

    There is no folder for what there is only one of, unless it was listed.
    """
    runs: dict[Path, Config] = {}
    for name, config in configs.items():
        place = out / name if len(configs) > 1 else out
        if seeds is None:
            runs[place] = config
        else:
            runs |= {place / f"seed-{seed}": replace(config, seed=seed) for seed in seeds}
    return runs


def run_many(
    runs: Mapping[Path, Config],
    out: Path,
    *,
    data_dir: Path | None,
    workers: int | None,
    on: str,
    mixed_processors: bool,
) -> None:
    """Run them all, then print a table for those that differ in their seeds only."""
    console = console_of_work()
    say = partial(console.print, soft_wrap=True, markup=False, highlight=False)
    failed: PDLRecoverError | None = None
    with Live(console=console, transient=True) as live:
        try:
            run_into(
                runs,
                data_dir=data_dir,
                watcher=watcher_of_runs("simulate", live, console),
                workers=workers,
                on=on,
                mixed_processors=mixed_processors,
            )
        except PDLRecoverError as error:
            failed = error
        except KeyboardInterrupt:
            live.stop()
            say(f"\ninterrupted; what is done is in {out}; run the same command to continue")
            raise typer.Exit(INTERRUPTED) from None
    results = {} if failed and not isinstance(failed, PlanError) else _complete(runs)
    experiments = by_experiment(results.values())
    for some in experiments:
        place = next(place for place, result in results.items() if result is some[0])
        name = place.relative_to(out).parts[0] if len(experiments) > 1 else ""
        console.print(results_table(*some, name=name))
    if results:
        say(_report([*results.values()], out))
        say(
            f"Records and models: {', '.join(str(place) for place in [*runs][:3])}"
            f"{' …' if len(runs) > 3 else ''}"
        )
    if failed:
        raise failed


def _complete(runs: Mapping[Path, Config]) -> dict[Path, Result]:
    found = {place: stored(config, place) for place, config in runs.items()}
    return {place: result for place, result in found.items() if result and result.complete}


def _report(results: Sequence[Result], out: Path) -> str:
    """Write one page of all results; say where it is, or why there is none."""
    if not has("reports"):
        return (
            "Report: not written, since nothing here draws charts; "
            "pip install 'pdlrecover[reports]'"
        )
    return f"Report: {write_report(documents_from_result(*results), out / 'report.html')}"
