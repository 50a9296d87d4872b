"""`pdlrecover simulate`: one experiment, by flags or from a TOML file."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from pdlrecover.adversary import ATTACKS, WAITING
from pdlrecover.cli.common import INTERRUPTED, DataDir
from pdlrecover.cli.progress import Bars
from pdlrecover.cli.tables import results_table
from pdlrecover.errors import PlanError
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.result import Result
from pdlrecover.experiments.experiment.run import run
from pdlrecover.experiments.report.figures import draw_curves
from pdlrecover.experiments.report.html import write_report
from pdlrecover.experiments.report.simulation_document import documents_from_result
from pdlrecover.recovery.methods import METHODS

# A flag that is not given leaves the file's value, or the default.
Text = str | None
Whole = int | None
Real = float | None
Switch = bool | None

DEFAULTS = {key: str(value) for key, value in Config().record().items()}


def simulate(
    config: Annotated[Path | None, typer.Option(help="A TOML file with these same keys.")] = None,
    out: Annotated[
        Path, typer.Option(help="Where result.json, the report, curves and models go.")
    ] = Path("out/simulation"),
    data_dir: DataDir = None,
    dataset: Annotated[
        Text,
        typer.Option(
            help="digits (bundled), mnist, fashion-mnist, har or har-inertial.",
            show_default=DEFAULTS["dataset"],
        ),
    ] = None,
    split: Annotated[
        Text,
        typer.Option(
            help="HAR's test part: random, or by subject.", show_default=DEFAULTS["split"]
        ),
    ] = None,
    validation: Annotated[
        Switch, typer.Option("--validation", help="Report on held-out training data: for tuning.")
    ] = None,
    model: Annotated[
        Text,
        typer.Option(
            help="logistic, mlp, mlp-HIDDEN, cnn or package.module:factory.",
            show_default=DEFAULTS["model"],
        ),
    ] = None,
    peers: Annotated[
        Whole, typer.Option(help="How many peers train together.", show_default=DEFAULTS["peers"])
    ] = None,
    malicious: Annotated[
        Whole,
        typer.Option(help="How many attack, and are removed.", show_default=DEFAULTS["malicious"]),
    ] = None,
    accused: Annotated[
        Whole,
        typer.Option(
            help="How many honest peers are removed with them.", show_default=DEFAULTS["accused"]
        ),
    ] = None,
    leavers: Annotated[
        Whole,
        typer.Option(help="How many honest peers leave instead.", show_default=DEFAULTS["leavers"]),
    ] = None,
    undetected: Annotated[
        Whole,
        typer.Option(help="How many more attack, and stay.", show_default=DEFAULTS["undetected"]),
    ] = None,
    attack: Annotated[
        Text,
        typer.Option(
            help=f"{', '.join(ATTACKS)}; or {WAITING}:ATTACK.", show_default=DEFAULTS["attack"]
        ),
    ] = None,
    attack_scale: Annotated[
        Real,
        typer.Option(
            help="The attack's strength: scale, or noise's std, trim's factor, trim-partial's "
            "deviations, lie's z."
        ),
    ] = None,
    rounds: Annotated[
        Whole, typer.Option(help="Rounds of training.", show_default=DEFAULTS["rounds"])
    ] = None,
    batch_size: Annotated[
        Whole,
        typer.Option(help="Samples of a peer's minibatch.", show_default=DEFAULTS["batch_size"]),
    ] = None,
    learning_rate: Annotated[
        Real,
        typer.Option(help="The server's learning rate.", show_default=DEFAULTS["learning_rate"]),
    ] = None,
    optimizer: Annotated[
        Text, typer.Option(help="sgd, momentum or adam.", show_default=DEFAULTS["optimizer"])
    ] = None,
    l2: Annotated[Real, typer.Option(help="L2 regularisation.")] = None,
    partition: Annotated[
        Text,
        typer.Option(help="iid, fang, dirichlet or subject.", show_default=DEFAULTS["partition"]),
    ] = None,
    degree: Annotated[
        Real, typer.Option(help="Fang's degree, or Dirichlet's α.", show_default=DEFAULTS["degree"])
    ] = None,
    seed: Annotated[
        Whole,
        typer.Option(help="The seed of data, weights and batches.", show_default=DEFAULTS["seed"]),
    ] = None,
    methods: Annotated[
        Text,
        typer.Option(help=f"Of {', '.join(METHODS)}; with commas.", show_default="the baselines"),
    ] = None,
    clear: Annotated[
        Switch, typer.Option("--clear", help="Skip dealing and opening: the same numbers, faster.")
    ] = None,
    preparation: Annotated[
        Whole, typer.Option(help="Exact rounds at the start; 25, or an eighth of a short run.")
    ] = None,
    period: Annotated[
        Whole, typer.Option(help="Then every so many-th is exact.", show_default=DEFAULTS["period"])
    ] = None,
    final: Annotated[
        Whole, typer.Option(help="Exact rounds at the end; 25, or an eighth of a short run.")
    ] = None,
    buffer: Annotated[
        Whole, typer.Option(help="Curvature pairs kept.", show_default=DEFAULTS["buffer"])
    ] = None,
    open_pairs: Annotated[
        Switch, typer.Option("--open-pairs", help="Open the curvature pairs.")
    ] = None,
    block: Annotated[
        Whole,
        typer.Option(
            help="Estimated rounds opened as one sum; 5 after plain SGD with shared pairs, else 1.",
        ),
    ] = None,
    accelerated_rounds: Annotated[
        Whole,
        typer.Option(
            help="Rounds of accelerated retraining.", show_default=DEFAULTS["accelerated_rounds"]
        ),
    ] = None,
    absent: Annotated[
        Whole,
        typer.Option(
            help="Kept peers that do not answer in recoveries.", show_default=DEFAULTS["absent"]
        ),
    ] = None,
    lying: Annotated[
        Whole,
        typer.Option(
            help="Kept peers that send wrong shares in recoveries.",
            show_default=DEFAULTS["lying"],
        ),
    ] = None,
    budget_gb: Annotated[
        Real,
        typer.Option(
            help="How much the history may take on disk.", show_default=DEFAULTS["budget_gb"]
        ),
    ] = None,
    colluders: Annotated[
        Whole,
        typer.Option(help="So many together learn nothing; a third of the peers if not said."),
    ] = None,
    dropouts: Annotated[
        Whole,
        typer.Option(
            help="So many may be absent or removed; 30% of the peers, or more, if not said."
        ),
    ] = None,
    liars: Annotated[
        Whole, typer.Option(help="So many may send wrong shares; one in 40 if not said.")
    ] = None,
    bound: Annotated[
        Real, typer.Option(help="The L2 bound of an update.", show_default=DEFAULTS["bound"])
    ] = None,
    accept_differencing: Annotated[
        Switch,
        typer.Option(
            "--accept-differencing", help="Remove few leavers although it may reveal one."
        ),
    ] = None,
) -> None:
    """Train, poison and recover a federation in this process, by one method or by all.

    Interrupt it as you like: the same command goes on where it was.
    """
    values: dict[str, Any] = dict(locals())
    for name in ("config", "out", "data_dir"):
        del values[name]
    given = {key: value for key, value in values.items() if value is not None}
    if methods is not None:
        given["methods"] = [name.strip() for name in methods.split(",") if name.strip()]
    chosen = Config.from_toml(config, given) if config else Config.from_values(given)
    if attack not in (None, "none") and not chosen.attackers:
        raise PlanError(f"--attack {attack} needs attackers: give --malicious, or --undetected")
    run_and_show(chosen, out, data_dir)


def run_and_show(config: Config, out: Path, data_dir: Path | None) -> Result:
    """Run an experiment with progress, then print its table and say where everything is."""
    console = Console()
    say = partial(console.print, soft_wrap=True, markup=False, highlight=False)
    if (out / "result.json").exists() or (out / "history").exists():
        say(f"Going on with what is in {out}; what is done there is not done again.")
    try:
        with Bars(console) as bars:
            result = run(config, out, data_dir=data_dir, progress=bars)
    except KeyboardInterrupt:
        say(f"\ninterrupted; what is done is in {out}, the same command goes on from there")
        raise typer.Exit(INTERRUPTED) from None
    figure = draw_curves(result, out / "curves.svg")
    console.print(results_table(result))
    if result.dataset_note:
        say(f"Note: {result.dataset_note}.")
    report = write_report(documents_from_result(result), out / "report.html")
    say(f"Report: {report}\nCurves: {figure}\nRecord: {out / 'result.json'}")
    return result
