"""`pdlrecover peer run | status`: a peer at work."""

import asyncio
import gc
import json
import logging
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from pdlrecover.cli.common import BAD_INPUT
from pdlrecover.cli.peer_files import FederationFile, Folder
from pdlrecover.engines.peers.operator.local_socket import NoPeerError, ask
from pdlrecover.engines.peers.operator.logs import JsonLines
from pdlrecover.engines.peers.peer import CONTROL, Peer
from pdlrecover.engines.peers.startup import Enrolment
from pdlrecover.errors import PDLRecoverError, PlanError
from pdlrecover.files import about, read_json

LOG = logging.getLogger("pdlrecover.peer")

PRESENT_SECONDS = 30.0
"""Who was heard within so many seconds counts as present."""


def run(
    federation: FederationFile,
    folder: Folder,
    json_logs: Annotated[bool, typer.Option("--json-logs", help="One JSON object a line.")] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65535, help="Serve numbers for Prometheus on this port of 127.0.0.1."
        ),
    ] = None,
) -> None:
    """Run this peer: train with the others, then recover when a removal has passed.

    Interrupt it as you like; the same command goes on where it was.
    """
    _log_to_terminal(json_logs)
    try:
        _run(federation, folder, metrics_port)
    except PDLRecoverError as error:
        if not json_logs:
            raise
        LOG.error("%s", error)
        raise typer.Exit(BAD_INPUT) from error
    gc.freeze()  # with torch, a last collection takes a second of the processor


def _run(federation: Path, folder: Path, metrics_port: int | None) -> None:
    torch.set_num_threads(1)
    enrolment = Enrolment(federation, folder)
    ask_for_key = ask_passphrase if enrolment.has_history else ask_new_passphrase
    archive = enrolment.archive(enrolment.storage_key(ask_for_key if sys.stdin.isatty() else None))
    try:
        peer = enrolment.peer(archive, metrics_port=metrics_port)
        asyncio.run(_until_stopped(peer))
    finally:
        archive.close()
    LOG.info("stopped; the same command goes on from here")


def status(
    folder: Folder,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
) -> None:
    """Show rounds, size, who is present, removals, and who was caught lying."""
    told, running = current_status(folder)
    if as_json:
        typer.echo(json.dumps({"running": running, **told}, indent=2))
        return
    for line in _lines(told, running):
        typer.echo(line)


def command(folder: Path, **told: Any) -> dict[str, Any]:
    """Give the running peer a command; raise what it answers if that is an error."""
    answer = asyncio.run(ask(folder / CONTROL, told))
    if "error" in answer:
        raise PlanError(answer["error"])
    return answer


def current_status(folder: Path) -> tuple[dict[str, Any], bool]:
    """Return a peer's status, and whether it is running now; of a stopped one, its last."""
    try:
        return command(folder, do="status"), True
    except NoPeerError:
        path = folder / "status.json"
    start = "start the peer by `pdlrecover peer run FEDERATION FOLDER`, or name its folder"
    with about(f"no peer is running in {folder}", PlanError):
        return read_json(path, PlanError, missing=start, damaged=start), False


def _lines(told: dict[str, Any], running: bool) -> list[str]:
    ago = time.time() - told["time"]
    state = "running" if running else f"not running; as it was {ago:.0f} s ago"
    lines = [f"{told['peer']} of {told['federation']}: {state}"]
    for run_name, run_told in told["runs"].items():
        name = run_told["kind"] + ("" if run_told["kind"] == "training" else f" {run_name}")
        where = f"round {run_told['round']} of {run_told['rounds']}, step {run_told['step']}"
        lines.append(f"  {name}: {where}, {run_told['outcome']}")
        rounds, dealt = run_told.get("exact_rounds", 0), run_told.get("dealt", {})
        if away := [f"{who} {rounds - count}" for who, count in dealt.items() if count < rounds]:
            lines.append(f"    of {rounds} exact rounds, done without: {', '.join(away)}")
    for removal in told["removals"]:
        got = len(removal["approvals"])
        lines.append(
            f"  removal {removal['removal'][:16]} of {', '.join(removal['removed'])} "
            f"({removal['reason']}): {got} of {removal['needed']} approvals"
            f" ({', '.join(removal['approvals'])})"
        )
    heard = told["last_heard_seconds"]
    present = [p for p, s in heard.items() if s is not None and s < PRESENT_SECONDS]
    absent = [p for p in heard if p not in present]
    if running:
        lines.append(f"  present: {', '.join(present) or 'nobody'}")
        lines.append(f"  not heard for {PRESENT_SECONDS:.0f} s: {', '.join(absent) or 'nobody'}")
    for name, what in told["other_files"].items():
        lines.append(f"  {name} has another federation file: {'; '.join(what)}")
    for key, title in (("caught", "caught lying"), ("named", "named, without proof to others")):
        who = [f"{each['peer']} ({each['what']})" for each in told.get(key, [])]
        lines.append(f"  {title}: {', '.join(who) or 'nobody'}")
    lines.append(f"  history: {told['history_bytes'] / 1e6:.1f} MB")
    return lines


async def _until_stopped(peer: Peer) -> None:
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, peer.stop)
    await peer.run()


def ask_passphrase() -> str:
    """Ask for the passphrase of the history."""
    return str(typer.prompt("Passphrase of the history", hide_input=True, err=True))


def ask_new_passphrase() -> str:
    """Ask twice for the passphrase of a history that is to be made: a slip would lock it."""
    text = "Passphrase for the new history"
    return str(typer.prompt(text, hide_input=True, confirmation_prompt=True, err=True))


def _log_to_terminal(as_json: bool) -> None:
    handler = logging.StreamHandler()
    if as_json:
        handler.setFormatter(JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("pdlrecover")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
