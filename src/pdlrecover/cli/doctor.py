"""`pdlrecover peer doctor`: what keeps a peer from working, and what to do about it."""

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pdlrecover.engines.peers.doctor.finding import Report, Verdict

if TYPE_CHECKING:
    from rich.table import Table

EPILOG = "It ends with 0 if all is well, 1 after warnings, and 2 after problems. "
COLOURS = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.PROBLEM: "red"}
CODES = {Verdict.OK: 0, Verdict.WARNING: 1, Verdict.PROBLEM: 2}


def doctor(
    folder: Annotated[Path, typer.Argument(help="The peer's own folder.")] = Path("."),
    federation: Annotated[
        Path | None,
        typer.Option(help="The federation file; else federation.toml in, beside or here."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="So long another peer may take to answer.")
    ] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
) -> None:
    """Look at keys, files, ports, clock, disk, limits, versions, and whether others can be reached.

    It may run while the peer runs, and while it does not; nothing is changed.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what it would say of handshakes is said here
    from rich.console import Console

    from pdlrecover.engines.peers.doctor.examination import examine

    aside = Console(stderr=True)
    with aside.status("looking") as status:
        report = examine(
            folder, federation, seconds=seconds, say=lambda what: status.update(f"{what} …")
        )
    if as_json:
        typer.echo(json.dumps(_record(report), indent=2))
    else:
        Console().print(*_shown(report), sep="\n")
    raise typer.Exit(CODES[report.verdict])


def _shown(report: Report) -> tuple["Table", str]:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for each in report.findings:
        text = escape(each.what)
        if each.remedy:
            text += f"\n[bold]→ {escape(each.remedy)}[/bold]"
        verdict = f"[{COLOURS[each.verdict]}]{each.verdict.value}[/]"
        table.add_row(verdict, each.check, text)
    count = Counter(each.verdict for each in report.findings)
    parts = [_counted(count[verdict], verdict) for verdict in Verdict if count[verdict]]
    state = "runs" if report.running else "does not run"
    return table, f"\n{escape(report.peer)} {state}: {', '.join(parts)}"


def _counted(number: int, verdict: Verdict) -> str:
    return f"{number} {verdict.value}{'s' if number > 1 and verdict is not Verdict.OK else ''}"


def _record(report: Report) -> dict[str, object]:
    return {
        "peer": report.peer,
        "running": report.running,
        "time": time.time(),
        "verdict": report.verdict.value,
        "findings": [
            {
                "check": each.check,
                "verdict": each.verdict.value,
                "what": each.what,
                "remedy": each.remedy,
            }
            for each in report.findings
        ],
    }
