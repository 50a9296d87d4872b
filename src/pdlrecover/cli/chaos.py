"""`pdlrecover peer chaos`: real peers on this machine, under faults and cheats."""

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pdlrecover.cli.common import exit_when_terminated
from pdlrecover.errors import PlanError, RecordError
from pdlrecover.files import make_folder, write_json

if TYPE_CHECKING:
    from pdlrecover.experiments.chaos.verdict import ChaosVerdict

FAILED = 1
"""The exit code of a run with problems."""


def chaos(
    peers: Annotated[int, typer.Option(help="How many peers there are.")] = 5,
    seed: Annotated[int, typer.Option(help="It decides which faults come, and when.")] = 0,
    duration: Annotated[
        float, typer.Option(min=0, help="New federations are begun for this many seconds.")
    ] = 60.0,
    rounds: Annotated[int, typer.Option(help="Rounds of each training.")] = 120,
    beyond: Annotated[
        bool,
        typer.Option(
            "--beyond", help="Faults beyond the tolerance, too: outages and lost histories."
        ),
    ] = False,
    cheats: Annotated[
        str, typer.Option(help="Cheats that play, separated by commas; all: each in its turn.")
    ] = "",
    keep: Annotated[
        Path | None, typer.Option(help="A folder for all files, which stay there.")
    ] = None,
    write: Annotated[
        Path | None, typer.Option("--record", help="Write the verdict to this file, as JSON.")
    ] = None,
) -> None:
    """Kill, freeze and restart real peers on this machine while they train and recover.

    Ends by itself: with 0 if all ended with one model and nothing was lost, with 1 if not.
    """
    from pdlrecover.experiments.chaos.campaign import named_cheats, record, unleash
    from pdlrecover.experiments.chaos.scenario import Scenario
    from pdlrecover.experiments.experiment.record import commit

    exit_when_terminated()
    chosen = named_cheats(cheats)
    scenario = Scenario(peers=peers, rounds=rounds, cheating=bool(chosen))
    began = time.monotonic()

    def say(text: str) -> None:
        typer.echo(f"{time.monotonic() - began:7.1f} s  {text}")

    def run(place: Path) -> "ChaosVerdict":
        return unleash(
            place, scenario, seed=seed, seconds=duration, say=say, beyond=beyond, cheats=chosen
        )

    if keep is None:
        with tempfile.TemporaryDirectory(prefix="chaos-") as place:
            verdict = run(Path(place))
    else:
        make_folder(keep, PlanError)
        verdict = run(keep)
    if write is not None:
        write_json(write, {"commit": commit(), **record(verdict)}, RecordError)
    _show(verdict)
    if verdict.problems:
        raise typer.Exit(FAILED)


def _show(verdict: "ChaosVerdict") -> None:
    faults = sum(sum(trial.faults.values()) for trial in verdict.trials)
    endings = [ending for trial in verdict.trials for ending in trial.endings]
    whole = sum(ending.weights is not None for ending in endings)
    typer.echo(
        f"{len(verdict.trials)} federations of {verdict.peers} peers, {faults} faults: "
        f"{whole} of {len(endings)} runs ended with one model"
    )
    for trial in verdict.trials:
        for name, deeds in trial.named.items():
            cheat = trial.cheats.get(name, "honest")
            typer.echo(f"{name} ({cheat}) was named: {'; '.join(deeds)}")
        for ending in trial.endings:
            if ending.weights is None:
                typer.echo(f"{ending.run} did not end: {ending.statement or 'nobody said why'}")
    for problem in verdict.problems:
        typer.echo(f"problem: {problem}")
    typer.echo("it does not hold" if verdict.problems else "it holds")
