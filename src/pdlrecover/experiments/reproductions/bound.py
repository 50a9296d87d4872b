"""Theorem 1, measured: see `theorem1`."""

from importlib.metadata import version

from pdlrecover.experiments.analysis.results import Results
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.report.document import Document, Figure, Series
from pdlrecover.experiments.reproductions.reproduction import Reproduction, command
from pdlrecover.experiments.reproductions.scale import Scale
from pdlrecover.experiments.reproductions.theorem1 import BOUND, measure_bound

SEEDS = (0, 1, 2)
TITLE = "Theorem 1: how far recovery may end from retraining"


def _cells(scale: Scale) -> list[Config]:
    return []  # it measures along the way, which no result record holds


def _document(scale: Scale, results: Results) -> Document:
    bounds = [measure_bound(BOUND.with_seed(seed)) for seed in SEEDS]
    distances, errors, summary = [], [], []
    for found in bounds:
        rounds = [float(t) for t in range(len(found.distance))]
        seed = f"seed {found.seed}"
        distances.append(Series(name=f"measured, {seed}", x=rounds, y=list(found.distance)))
        distances.append(Series(name=f"bound, {seed}", x=rounds, y=list(found.bound)))
        errors.append(Series(name=seed, x=rounds[1:], y=list(found.error)))
        summary.append(
            f"Seed {found.seed}: at the end ‖recovered − retrained‖ = {found.distance[-1]:.4f} and "
            f"the bound is {found.bound[-1]:.4f}, with Z = {found.z:.4f}, the largest error of an "
            f"estimated mean gradient; Theorem 1 {'holds' if found.holds() else 'is broken'}."
        )
    held = sum(found.holds() for found in bounds)
    summary.insert(0, f"Theorem 1 holds with {held} of {len(bounds)} seeds.")
    said = command("bound", scale)
    figures = [
        Figure(
            title="Distance to retraining, and the bound",
            x="round",
            y="‖recovered − retrained‖",
            series=distances,
            command=said,
            log=True,
        ),
        Figure(
            title="Error of each step, whose maximum is Z",
            x="round",
            y="‖estimated − true mean gradient‖",
            series=errors,
            command=said,
        ),
    ]
    versions = ", ".join(f"{name} {version(name)}" for name in ("pdlrecover", "torch", "numpy"))
    note = f"Seeds {', '.join(map(str, SEEDS))}; {versions}."
    return Document(name="bound", title=TITLE, summary=summary, figures=figures, note=note)


REPRODUCTION = Reproduction(name="bound", title=TITLE, cells=_cells, document=_document)
