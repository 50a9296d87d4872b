"""Theorem 1, measured: see `theorem1`."""

from dataclasses import replace
from importlib.metadata import version

from pdlrecover.experiments.analysis.results import Results
from pdlrecover.experiments.report.document import Series
from pdlrecover.experiments.reproductions.reproduction import Draft, Reproduction
from pdlrecover.experiments.reproductions.theorem1 import BOUND, measure_bound

SEEDS = (0, 1, 2)


def _write(draft: Draft, results: Results) -> None:
    bounds = [measure_bound(replace(BOUND, seed=seed)) for seed in SEEDS]
    distances, errors = [], []
    held = sum(found.holds() for found in bounds)
    draft.summary = [f"Theorem 1 holds with {held} of {len(bounds)} seeds."]
    for found in bounds:
        rounds = [float(t) for t in range(len(found.distance))]
        seed = f"seed {found.seed}"
        distances.append(Series(name=f"measured, {seed}", x=rounds, y=list(found.distance)))
        distances.append(Series(name=f"bound, {seed}", x=rounds, y=list(found.bound)))
        errors.append(Series(name=seed, x=rounds[1:], y=list(found.error)))
        draft.summary.append(
            f"Seed {found.seed}: at the end ‖recovered − retrained‖ = {found.distance[-1]:.4f} and "
            f"the bound is {found.bound[-1]:.4f}, with Z = {found.z:.4f}, the largest error of an "
            f"estimated mean gradient; Theorem 1 {'holds' if found.holds() else 'is broken'}."
        )
    draft.figure(
        "Distance to retraining, and the bound",
        "round",
        "‖recovered − retrained‖",
        distances,
        log=True,
    )
    title = "Error of each step, whose maximum is Z"
    draft.figure(title, "round", "‖estimated − true mean gradient‖", errors)
    versions = ", ".join(f"{name} {version(name)}" for name in ("pdlrecover", "torch", "numpy"))
    draft.note = f"Seeds {', '.join(map(str, SEEDS))}; {versions}."


REPRODUCTION = Reproduction(
    name="bound",
    title="Theorem 1: how far recovery may end from retraining",
    cells=lambda scale: [],  # it measures along the way, which no result record holds
    write=_write,
)
