"""`pdlrecover peer propose-removal | approve | recover`: decisions of an operator."""

import time
from pathlib import Path
from typing import Annotated

import typer

from pdlrecover.cli.common import INTERRUPTED, Folder
from pdlrecover.cli.peer_status import command, current_status
from pdlrecover.engines.peers.folder import recovered_name
from pdlrecover.engines.peers.operator import status as s
from pdlrecover.engines.peers.operator.control import one_removal
from pdlrecover.errors import PlanError
from pdlrecover.recovery.methods import DEFAULT
from pdlrecover.suspects import SIGN, read_suspects

STOPPED = 1
"""The exit code after a recovery that stopped."""
LOOK_SECONDS = 0.5


def propose_removal(
    folder: Folder,
    peers: Annotated[
        str,
        typer.Option(
            help="Names of those to remove, with commas; or @suspects.json, a file that names them."
        ),
    ] = "",
    reason: Annotated[str, typer.Option(help="left or malicious.")] = "",
    method: Annotated[
        str,
        typer.Option(
            help=f"How to recover: {DEFAULT}, unless given; with --replace the federation's "
            "fallback."
        ),
    ] = "",
    accept_differencing: Annotated[
        bool,
        typer.Option(
            "--accept-differencing", help="Remove few leavers although it may reveal one."
        ),
    ] = False,
    replace: Annotated[
        str,
        typer.Option(
            help="The removal whose recovery this one takes the place of; peers and reason are "
            "then those of that one, unless they are given."
        ),
    ] = "",
) -> None:
    """Propose to remove peers and recover the model without them; this peer approves."""
    names = _named(peers)
    if not replace and not (names and reason):
        raise PlanError(
            "say who is to be removed and why, by --peers and --reason; or which stalled removal "
            "this one takes the place of, by --replace"
        )
    order = {"removed": names, "reason": reason, "method": method, "replace": replace}
    answer = command(
        folder,
        s.Proposed,
        **{
            "do": "propose-removal",
            "accept_differencing": accept_differencing,
            **{key: value for key, value in order.items() if value},
        },
    )
    name = answer.removal[:16]
    typer.echo(name)
    if answer.outcome == s.DONE:
        typer.echo(f"already recovered: {_model(folder, answer.removal)}", err=True)
    elif answer.outcome is not None:
        typer.echo(f"It has passed; see `pdlrecover peer recover {folder} {name}`", err=True)
    else:
        typer.echo(f"The others approve by: pdlrecover peer approve FOLDER {name}", err=True)


def _named(peers: str) -> list[int | str]:
    """Return the peers that `--peers` names, by themselves or in a file."""
    if peers.startswith(SIGN):
        return read_suspects(Path(peers.removeprefix(SIGN)))
    return [name.strip() for name in peers.split(",") if name.strip()]


def approve(
    folder: Folder,
    removal: Annotated[str, typer.Argument(help="The removal's name, or how it begins.")],
) -> None:
    """Approve a removal; with enough approvals the recovery begins at every kept peer."""
    name = command(folder, s.Approved, do="approve", removal=removal).approved
    status = command(folder, s.PeerStatus, do="status")
    chosen = next(each for each in status.removals if each.removal == name)
    typer.echo(f"approved; {len(chosen.approvals)} of {chosen.needed} approvals are here")


def recover(
    folder: Folder,
    removal: Annotated[
        str | None, typer.Argument(help="Which removal; not needed if there is only one.")
    ] = None,
    wait: Annotated[bool, typer.Option(help="Wait until it is done.")] = True,
) -> None:
    """Follow the recovery of an approved removal, until the model is there.

    A running peer begins a recovery, or goes on with one, by itself; this shows how far it is.
    """
    last = ""
    while True:
        status, running = current_status(folder)
        chosen = _chosen(status, removal)
        if status.peer in chosen.removed:
            raise PlanError(f"{status.peer} is to be removed, and takes no part in the recovery")
        if chosen.replaced_by is not None:
            typer.echo(f"{chosen.removal[:16]} was replaced by removal {chosen.replaced_by[:16]}")
            removal = chosen.replaced_by
            continue
        run = status.runs.get(chosen.removal[:16])
        text = _progress(chosen, run)
        if text != last:
            typer.echo(text)
            last = text
        if run is not None and run.outcome == s.DONE:
            typer.echo(f"recovered: {_model(folder, chosen.removal)}")
            return
        if run is not None and run.outcome != s.RUNNING:
            raise typer.Exit(STOPPED)
        if not running:
            raise PlanError(
                f"the peer in {folder} is not running; start it by `pdlrecover peer run FEDERATION "
                f"{folder}`, and it goes on with the recovery"
            )
        if not wait:
            return
        try:
            time.sleep(LOOK_SECONDS)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None


def _chosen(status: s.PeerStatus, removal: str | None) -> s.RemovalStatus:
    known = {each.removal: each for each in status.removals}
    standing = [name for name, each in known.items() if removal or not each.replaced_by]
    return known[one_removal(standing, removal or "")]


def _model(folder: Path, removal: str) -> Path:
    return folder / f"{recovered_name(removal)}.safetensors"


def _progress(chosen: s.RemovalStatus, run: s.RunStatus | None) -> str:
    if run is not None:
        waits = f"; {run.waits}" if run.waits else ""
        return f"round {run.round} of {run.rounds}: {run.outcome}{waits}"
    if len(chosen.approvals) >= chosen.needed:
        return "approved; the recovery is about to begin"
    return f"waiting for approvals: {len(chosen.approvals)} of {chosen.needed}"
