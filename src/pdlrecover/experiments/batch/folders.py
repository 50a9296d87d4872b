"""Several experiments, each into a folder that the user has named, with what `run` writes there.

Rules:

- A folder has `result.json` and the models, as after a single run, and is continued like one. What
  is in it and belongs to another config is refused before anything is run; nothing is deleted.
"""

from collections.abc import Mapping
from pathlib import Path

from pdlrecover.cluster import LOCAL
from pdlrecover.errors import HistoryError, PlanError
from pdlrecover.experiments.batch.cache import Watcher, run_errands
from pdlrecover.experiments.batch.errand import Errand, kept
from pdlrecover.experiments.batch.nodes import crew_for
from pdlrecover.experiments.batch.recorded import Cell
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.record import stored
from pdlrecover.experiments.experiment.result import Result
from pdlrecover.files import make_folder


def run_into(
    runs: Mapping[Path, Config],
    *,
    data_dir: Path | None = None,
    watcher: Watcher | None = None,
    workers: int | None = None,
    on: str = LOCAL,
    mixed_processors: bool = False,
) -> list[Result]:
    """Run each config into its folder, and return the results in this order.

    Where they are run, and how many at a time, is said as to `run_cells`. If some fail, the others
    are run, and then a PlanError names those that have.
    """
    places = [place.absolute() for place in runs]
    if len(set(places)) < len(places):
        raise PlanError("two runs cannot be in one folder; give each a folder of its own")
    for place, config in runs.items():
        make_folder(place, HistoryError)
        stored(config, place)
    errands = [
        Errand(cell=Cell(config=config), place=place, data_dir=data_dir, users=True)
        for place, config in runs.items()
    ]
    left = [errand for errand in errands if not errand.is_done()]
    if left:
        with crew_for(left, on, workers=workers, mixed_processors=mixed_processors) as crew:
            run_errands(left, crew, watcher, before=len(errands) - len(left))
    return [result for result in (kept(each.cell, each.place) for each in errands) if result]
