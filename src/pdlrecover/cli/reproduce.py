"""`pdlrecover reproduce`: a table or figure by name."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from pdlrecover.errors import PlanError
from pdlrecover.experiments.bound import BOUND, as_record, measure_bound
from pdlrecover.experiments.figures import draw_bound

SEEDS = (0, 1, 2)


def reproduce(
    name: Annotated[str, typer.Argument(help="bound: Theorem 1, measured.")],
    out: Annotated[Path | None, typer.Option(help="Where the record and the figure go.")] = None,
) -> None:
    """Reproduce a result of the paper, or one of ours, by its name."""
    if name not in REPRODUCTIONS:
        raise PlanError(f"nothing here is called {name!r}; known are {', '.join(REPRODUCTIONS)}")
    folder = out or Path("out") / name
    folder.mkdir(parents=True, exist_ok=True)
    REPRODUCTIONS[name](folder)


def _bound(out: Path) -> None:
    console = Console()
    bounds = [
        measure_bound(BOUND.with_seed(seed))
        for seed in track(SEEDS, description="training and recovering", console=console)
    ]
    record = as_record(bounds, BOUND)
    (out / "result.json").write_text(json.dumps(record))
    figure = draw_bound(record, out / "bound.svg")
    for bound in bounds:
        verdict = "holds" if bound.holds() else "is broken"
        console.print(
            f"seed {bound.seed}: at the end ‖recovered − retrained‖ = {bound.distance[-1]:.4f}, "
            f"Z = {bound.z:.4f}, bound {bound.bound[-1]:.4f}; Theorem 1 {verdict}"
        )
    console.print(f"Figure: {figure}\nRecord: {out / 'result.json'}", soft_wrap=True)


REPRODUCTIONS = {"bound": _bound}
