"""`pdlrecover simulate`: one experiment, by flags or from a TOML file."""

import ast
import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from inspect import Parameter
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console

from pdlrecover.adversary import ATTACKS
from pdlrecover.cli.common import INTERRUPTED, DataDir
from pdlrecover.cli.progress import Bars
from pdlrecover.cli.tables import results_table
from pdlrecover.errors import PlanError
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.result import Result
from pdlrecover.experiments.experiment.run import run
from pdlrecover.experiments.report.figures import draw_panels
from pdlrecover.experiments.report.html import write_report
from pdlrecover.experiments.report.simulation_document import documents_from_result
from pdlrecover.recovery.methods import METHODS

PANELS = {
    "dataset": "Data and model",
    "peers": "Peers and attack",
    "rounds": "Training",
    "methods": "Recovery",
    "clear": "Secret sharing",
}
"""The groups of the help, each with the first field that belongs to it."""
KNOWN = {"attack": tuple(ATTACKS), "methods": tuple(METHODS)}
"""Fields of which the help lists the names that are known."""


def simulate(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option(help="A TOML file with these same keys.")] = None,
    out: Annotated[
        Path, typer.Option(help="Where result.json, the report, curves and models go.")
    ] = Path("out/simulation"),
    data_dir: DataDir = None,
    **values: Any,
) -> None:
    """Train, poison and recover a federation in this process, by one method or by all.

    You can interrupt it at any time: the same command continues where it stopped.
    """
    given = {
        name: value
        for name, value in values.items()
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    }
    chosen = Config.from_toml(config, given) if config else Config.from_values(given)
    if given.get("attack", "none") != "none" and not chosen.attackers:
        raise PlanError(
            f"--attack {chosen.attack} needs attackers: give --malicious, or --undetected"
        )
    run_and_show(chosen, out, data_dir)


def _options() -> list[Parameter]:
    """Return an option for each field of the config, with its type, default and docstring."""
    options, panel, explained = [], "", _docstrings(Config)
    for field in fields(Config):
        name, kind, default = field.name, field.type, field.default
        panel = PANELS.get(name, panel)
        text = explained[name]
        if name in KNOWN:
            text += f" Known are {', '.join(KNOWN[name])}."
        if isinstance(default, tuple):
            kind, default, text = str, ", ".join(default), f"{text} Separate them with commas."
        flags = [f"--{name.replace('_', '-')}"] if kind is bool else []
        option = typer.Option(*flags, help=text, rich_help_panel=panel)
        annotation = Annotated[kind, option]  # type: ignore[valid-type] # it is known when this runs
        options.append(
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        )
    return options


def _docstrings(kind: type) -> dict[str, str]:
    """Return the docstring under each field of a dataclass, by the field's name."""
    (tree,) = ast.parse(inspect.getsource(kind)).body
    found = {}
    for field, text in pairwise(cast(ast.ClassDef, tree).body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            found[ast.unparse(field.target)] = " ".join(ast.literal_eval(text.value).split())
    return found


def _with_options(command: Callable[..., None]) -> None:
    """Put the options of the config in the place of a command's `**values`, for Typer to read."""
    signature = inspect.signature(command)
    own = list(signature.parameters.values())[:-1]
    command.__signature__ = signature.replace(parameters=[*own, *_options()])  # type: ignore[attr-defined]


_with_options(simulate)


def run_and_show(config: Config, out: Path, data_dir: Path | None) -> Result:
    """Run an experiment with progress, then print its table and say where everything is."""
    console = Console()
    say = partial(console.print, soft_wrap=True, markup=False, highlight=False)
    if (out / "result.json").exists() or (out / "history").exists():
        say(f"Continuing from {out}; finished parts are not repeated.")
    try:
        with Bars(console) as bars:
            result = run(config, out, data_dir=data_dir, progress=bars)
    except KeyboardInterrupt:
        say(f"\ninterrupted; results so far are in {out}; run the same command to continue")
        raise typer.Exit(INTERRUPTED) from None
    documents = documents_from_result(result)
    figure = draw_panels(documents[0].figures, out / "curves.svg")
    console.print(results_table(result))
    for name, one in result.methods.items():
        for why in one.continued or ():
            say(f"{name} went on: {why}.")
    if result.dataset_note:
        say(f"Note: {result.dataset_note}.")
    report = write_report(documents, out / "report.html")
    say(f"Report: {report}\nCurves: {figure}\nRecord: {out / 'result.json'}")
    return result
