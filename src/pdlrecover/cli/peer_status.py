"""`pdlrecover peer status`, and how commands reach a running peer. Nothing heavy is imported."""

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer

from pdlrecover.cli.common import Folder
from pdlrecover.decode import convert
from pdlrecover.engines.evaluations import EvaluationPoint
from pdlrecover.engines.peers.folder import CONTROL, STATUS
from pdlrecover.engines.peers.operator.local_socket import NoPeerError, ask
from pdlrecover.engines.peers.operator.status import PRESENT_SECONDS, PeerStatus
from pdlrecover.errors import PlanError, Setting
from pdlrecover.files import about, read_json

T = TypeVar("T")
NOT_RUNNING = 1
"""The exit code for a peer that should be running."""
SHOWN = 5
"""Of so many of the last evaluations and void rounds of a run the status has a line; all are in its
JSON."""


def status(
    folder: Folder,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
    require_running: Annotated[
        bool, typer.Option("--require-running", help="End with 1 if the peer does not run.")
    ] = False,
) -> None:
    """Show rounds, size, who is present, removals, and who was caught lying."""
    found, running = current_status(folder)
    if as_json:
        typer.echo(json.dumps({"running": running, **msgspec.to_builtins(found)}, indent=2))
    else:
        for line in _lines(found, running):
            typer.echo(line)
    if require_running and not running:
        raise typer.Exit(NOT_RUNNING)


def command(folder: Path, answer: type[T], **fields: Any) -> T:
    """Give the running peer a command, and return its answer; raise if that is an error."""
    found = asyncio.run(ask(folder / CONTROL, fields))
    if "error" in found:
        parts = found.get("parts", [found["error"]])
        raise PlanError(*(Setting(**each) if isinstance(each, dict) else each for each in parts))
    return _converted(found, answer, f"the peer in {folder} runs another version")


def current_status(folder: Path) -> tuple[PeerStatus, bool]:
    """Return a peer's status, and whether it is running now; of a stopped one, its last."""
    try:
        return command(folder, PeerStatus, do="status"), True
    except NoPeerError:
        path = folder / STATUS
    start = "start the peer by `pdlrecover peer run FEDERATION FOLDER`, or name its folder"
    with about(f"no peer is running in {folder}", PlanError):
        values = read_json(path, PlanError, missing=start, damaged=start)
        return _converted(values, PeerStatus, f"{path} was written by another version"), False


def _converted(values: Any, answer: type[T], what: str) -> T:
    try:
        return convert(answer, values)
    except msgspec.ValidationError as error:
        raise PlanError(
            f"{what} of the software ({error}); use the version that it was started with"
        ) from error


def _lines(status: PeerStatus, running: bool) -> list[str]:
    ago = time.time() - status.time
    state = "running" if running else f"not running; as it was {ago:.0f} s ago"
    lines = [f"{status.peer} of {status.federation}: {state}"]
    for name, run in status.runs.items():
        title = run.kind if run.kind != "recovery" else f"{run.kind} {name}"
        where = f"round {run.round} of {run.rounds}, step {run.step}"
        where = "the peers agree on an epoch" if run.kind == "founding" else where
        if run.kind == "standardisation":
            where = f"step {run.step} of {run.rounds}"
        lines.append(f"  {title}: {where}, {run.outcome}")
        if run.waits:
            lines.append(f"    WARNING: {run.waits}")
        rounds = run.exact_rounds
        if away := [f"{who} {rounds - n}" for who, n in run.dealt.items() if n < rounds]:
            lines.append(f"    of {rounds} exact rounds, done without: {', '.join(away)}")
        if run.withheld:
            few = ", ".join(f"{who} {count}" for who, count in run.withheld.items())
            lines.append(f"    dealings that others got and this peer did not: {few}")
        lines += [f"    {line}" for line in _evaluated(run.evaluations)]
        lines += [f"    {each}" for each in run.void[-SHOWN:]]
        if run.named:
            lines.append(f"    named: {', '.join(run.named)}; a removal can be proposed now")
    if status.inputs:
        lines.append(f"  inputs: {status.inputs}")
    for removal in status.removals:
        lines.append(
            f"  removal {removal.removal[:16]} of {', '.join(removal.removed)} "
            f"({removal.reason}): {len(removal.approvals)} of {removal.needed} approvals"
            f" ({', '.join(removal.approvals)})"
        )
        if removal.replaces:
            lines.append(f"    it takes the place of removal {removal.replaces[:16]}")
        if removal.replaced_by:
            lines.append(f"    replaced by removal {removal.replaced_by[:16]}")
    heard = status.last_heard_seconds
    present = [p for p, s in heard.items() if s is not None and s < PRESENT_SECONDS]
    absent = [p for p in heard if p not in present]
    if running:
        heard_of = ", ".join(present) or "nobody"
        lines.append(f"  others heard in the last {PRESENT_SECONDS:.0f} s: {heard_of}")
        lines.append(f"  not heard for {PRESENT_SECONDS:.0f} s: {', '.join(absent) or 'nobody'}")
    for name, what in status.other_files.items():
        lines.append(f"  {name} has another federation file: {'; '.join(what)}")
    if status.started_over:
        lines.append(f"  WARNING: {status.started_over}")
    for title, misdeeds in (
        ("caught lying", status.caught),
        ("named, without proof to others", status.named),
    ):
        who = [f"{each.peer} ({each.what})" for each in misdeeds]
        lines.append(f"  {title}: {', '.join(who) or 'nobody'}")
    lines.append(f"  history: {status.history_bytes / 1e6:.1f} MB")
    return lines


def _evaluated(points: Sequence[EvaluationPoint]) -> list[str]:
    """Return the last few evaluations, one a line."""
    shown = [*(p for p in points if p.original), *[p for p in points if not p.original][-SHOWN:]]
    return [f"{p}, on {p.samples} held-out samples of {p.peers} peers" for p in shown]
