"""`pdlrecover simulate`: one experiment, by flags or from a TOML file, or several of them."""

import ast
import inspect
import shlex
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from inspect import Parameter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from pdlrecover.adversary import ATTACKS
from pdlrecover.cli.common import (
    INTERRUPTED,
    DataDir,
    MixedProcessors,
    MLflowPlace,
    On,
    TensorBoardFolder,
    console_of_work,
    observers,
)
from pdlrecover.cluster import LOCAL
from pdlrecover.engines.shards.sharding import Sharding
from pdlrecover.errors import PlanError, Setting
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.record import model_file
from pdlrecover.experiments.experiment.result import POISONED, shown_name
from pdlrecover.extras import has
from pdlrecover.recovery.methods import METHODS, OURS, entry_of
from pdlrecover.recovery.schedule import Schedule

if TYPE_CHECKING:
    from pdlrecover.engines.events import Observer
    from pdlrecover.experiments.experiment.result import Result

FIRST = "To begin with"
LARGE = "Large simulations"
FIRST_FIELDS = (
    *("dataset", "model", "peers", "malicious", "leavers", "attack"),
    *("rounds", "learning_rate", "methods", "clear"),
)
"""What nearly everybody sets; the help shows it first."""
PANELS = {
    "dataset": "Data and model",
    "peers": "Peers and attack",
    "rounds": "Training",
    "methods": "Recovery",
    "colluders": "Secret sharing",
}
"""The other groups of the help, each with the first field that belongs to it."""
KNOWN = {"attack": tuple(ATTACKS), "methods": tuple(METHODS)}
"""Fields of which the help lists the names that are known."""


def simulate(
    context: typer.Context,
    config: Annotated[
        list[Path] | None,
        typer.Option(help="A TOML file with these same keys; given more than once, each is run."),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            help="Where result.json, the report, curves and models go; of several runs, each has a "
            "folder in it."
        ),
    ] = Path("out/simulation"),
    data_dir: DataDir = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="Run once with each of these seeds, such as 0,1,2 or 0-9.",
            rich_help_panel="Several runs",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How many of several runs at a time; as many as cores.",
            rich_help_panel="Several runs",
        ),
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Have so many processes compute for the peers of a single large run, a core each, "
            "on this machine or where --on says. Models are the same to the bit.",
            rich_help_panel=LARGE,
        ),
    ] = None,
    deal_on_shards: Annotated[
        bool,
        typer.Option(
            "--deal-on-shards",
            help="Have the shards multiply by the dealing matrix, too; the history stays here.",
            rich_help_panel=LARGE,
        ),
    ] = False,
    on: On = LOCAL,
    mixed_processors: MixedProcessors = False,
    tensorboard: TensorBoardFolder = None,
    mlflow: MLflowPlace = None,
    **values: Any,
) -> None:
    """Train, poison and recover a federation, by one method or by all.

    You can interrupt it at any time: the same command continues where it stopped.
    """
    given = {
        name: value
        for name, value in values.items()
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    }
    files = config or []
    chosen = {file.stem: _checked(Config.from_toml(file, given), given) for file in files} or {
        "": _checked(Config.from_values(given), given)
    }
    if len(chosen) < len(files):
        raise PlanError("two config files have one name, and would have one folder; rename one")
    if shards is not None:
        if seeds is not None or len(chosen) > 1 or workers is not None:
            raise PlanError(
                Setting("shards"), " are for a single large run; leave them out to run several"
            )
        (only,) = chosen.values()
        sharding = Sharding(
            shards=shards,
            on=on,
            deal_on_shards=deal_on_shards,
            mixed_processors=mixed_processors,
        )
        run_and_show(only, out, data_dir, observers(tensorboard, mlflow), sharding)
        return
    if deal_on_shards:
        raise PlanError(
            Setting("deal_on_shards", "True"), " needs shards: give ", Setting("shards"), " as well"
        )
    if seeds is None and len(chosen) == 1 and on == LOCAL:
        if workers is not None:
            raise PlanError(
                Setting("workers"), " is for several runs; give ", Setting("seeds"), " as well"
            )
        (only,) = chosen.values()
        run_and_show(only, out, data_dir, observers(tensorboard, mlflow))
        return
    if seeds is not None and "seed" in given:
        raise PlanError("give one of ", Setting("seed"), " and ", Setting("seeds"))
    for name, value in (("tensorboard", tensorboard), ("mlflow", mlflow)):
        if value is not None:
            raise PlanError(
                Setting(name),
                " follows a run of this process, and several, or those on a cluster, are run by "
                "others; leave it out, or run one seed at a time",
            )
    from pdlrecover.cli.simulate_many import planned, run_many, seeds_of

    runs = planned(chosen, None if seeds is None else seeds_of(seeds), out)
    run_many(
        runs,
        out,
        data_dir=data_dir,
        workers=workers,
        on=on,
        mixed_processors=mixed_processors,
    )


def _checked(config: Config, given: dict[str, Any]) -> Config:
    """Return a config, unless an attack was asked for with nobody to attack."""
    if given.get("attack", "none") != "none" and not config.attackers:
        raise PlanError(
            Setting("attack", config.attack),
            " needs attackers: give ",
            Setting("malicious"),
            ", or ",
            Setting("undetected"),
        )
    return config


def _options() -> list[Parameter]:
    """Return an option for each field of the config, with its type, default and docstring."""
    options, panel, explained = {}, "", _docstrings(Config)
    for field in fields(Config):
        name, kind, default = field.name, field.type, field.default
        panel = PANELS.get(name, panel)
        text = explained[name]
        if name in KNOWN:
            text += f" Known are {', '.join(KNOWN[name])}."
        if isinstance(default, tuple):
            kind, default, text = str, ", ".join(default), f"{text} Separate them with commas."
        flags = [f"--{name.replace('_', '-')}"] if kind is bool else []
        place = FIRST if name in FIRST_FIELDS else panel
        option = typer.Option(*flags, help=text, rich_help_panel=place)
        annotation = Annotated[kind, option]  # type: ignore[valid-type] # it is known when this runs
        options[name] = Parameter(
            name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation
        )
    later = [option for name, option in options.items() if name not in FIRST_FIELDS]
    return [*(options[name] for name in FIRST_FIELDS), *later]


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


def run_and_show(
    config: Config,
    out: Path,
    data_dir: Path | None,
    observers: Sequence["Observer"] = (),
    sharding: Sharding | None = None,
) -> "Result":
    """Run an experiment with progress, then print its table and say where everything is.

    Every file is written before anything of the result is printed.
    """
    from pdlrecover.cli.progress import shown
    from pdlrecover.cli.tables import results_table
    from pdlrecover.experiments.experiment.followed import Followed
    from pdlrecover.experiments.experiment.run import run

    console = console_of_work()
    say = partial(console.print, soft_wrap=True, markup=False, highlight=False)
    going_on = (out / "result.json").exists() or (out / "history").exists()
    followed = Followed(observers, lambda text: say(f"Note: {text}"))
    first = f"Continuing from {out}; finished parts are not repeated." if going_on else ""
    try:
        with shown(console, first) as progress:
            result = run(
                config,
                out,
                data_dir=data_dir,
                progress=progress,
                followed=followed,
                sharding=sharding,
                say=lambda text: say(f"Note: {text}."),
            )
    except KeyboardInterrupt:
        say(f"\ninterrupted; results so far are in {out}; run the same command to continue")
        raise typer.Exit(INTERRUPTED) from None
    try:
        written, files = _report(result, out)
    except BaseException as error:
        followed.stop(error)
        raise
    followed.end(result, [out / "result.json", *files])
    console.print(results_table(result))
    for name, one in result.methods.items():
        for why in one.continued or ():
            say(f"{shown_name(name, result.config)} went on: {why}.")
    if phases := _phases(result.config):
        say(phases)
    if result.clipped_inputs:
        say(
            f"Note: {result.clipped_inputs} inputs are beyond ±{result.config.standardise_bound:g} "
            "and count as that much in means and deviations; --standardise-bound changes that."
        )
    if result.dataset_note:
        say(f"Note: {result.dataset_note}.")
    say(f"{written}\nRecord: {out / 'result.json'}")
    say(f"Models: {out / 'models'}; for one of them in Python:\n{_loading(result, out, data_dir)}")
    return result


def _report(result: "Result", out: Path) -> tuple[str, list[Path]]:
    """Write the page and the curves; say where they are, or why they are not, and return them."""
    from pdlrecover.experiments.report.figures import draw_panels
    from pdlrecover.experiments.report.html import write_report
    from pdlrecover.experiments.report.simulation_document import documents_from_result

    if not has("reports"):
        return (
            "Report: not written, since nothing here draws charts; "
            f"pip install 'pdlrecover[reports]', then pdlrecover report {shlex.quote(str(out))}",
            [],
        )
    documents = documents_from_result(result)
    figure = draw_panels(documents[0].figures, out / "curves.svg")
    report = write_report(documents, out / "report.html")
    return f"Report: {report}\nCurves: {figure}", [report, figure]


def _phases(config: Config) -> str:
    """Say which exact rounds a short run got by itself; nothing if that is the user's choice."""
    scheduled = any(entry_of(name).rounds == "scheduled" for name in config.methods)
    plan = config.schedule
    usual = plan.preparation == plan.final == Schedule.preparation
    if not scheduled or usual or None not in (config.preparation, config.final):
        return ""
    return (
        f"In a run of {config.rounds} rounds {OURS} has {plan.preparation} exact rounds first and "
        f"{plan.final} last; --preparation and --final change that."
    )


def _loading(result: "Result", out: Path, data_dir: Path | None) -> str:
    """Return the lines of Python that load a model, as they can be pasted."""
    config = result.config
    name = OURS if OURS in result.methods else next(iter([*config.methods, POISONED]))
    given = f"{config.dataset!r}"
    given += "" if data_dir is None else f", {str(data_dir)!r}"
    given += "" if config.split == "random" else f", split={config.split!r}"
    if config.standardise:
        return f"""    from pdlrecover import load_model
    from pdlrecover.learning import load, models
    data = load({given})
    module = models.build({config.model!r}, data.shape, data.classes, seed=0)
    model = load_model({str(model_file(out, name))!r}, module)  # it brings samples to one scale"""
    return f"""    from safetensors.torch import load_file
    from pdlrecover.learning import load, models
    data = load({given})
    module = models.build({config.model!r}, data.shape, data.classes, seed=0)
    module.load_state_dict(load_file({str(model_file(out, name))!r}))"""
