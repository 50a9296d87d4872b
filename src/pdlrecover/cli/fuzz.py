"""`pdlrecover peer fuzz`: mutated messages at the decoder, and signed ones at a live peer."""

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from pdlrecover.cli.common import exit_when_terminated
from pdlrecover.errors import RecordError
from pdlrecover.files import write_json

FAILED = 1
"""The exit code of a run with problems."""


def fuzz(
    messages: Annotated[
        int, typer.Option(min=0, help="Mutated messages at the decoder.")
    ] = 1_000_000,
    signed: Annotated[
        int, typer.Option(min=0, help="Odd messages, validly signed, at a live peer.")
    ] = 100_000,
    seed: Annotated[int, typer.Option(help="It decides what is drawn and mutated.")] = 0,
    write: Annotated[
        Path | None, typer.Option("--record", help="Write the verdict to this file, as JSON.")
    ] = None,
) -> None:
    """Send mutated messages to the decoder, and signed odd ones to a live peer in training.

    Ends by itself: with 0 if only the errors came that should, and memory stayed bounded; else 1.
    """
    from pdlrecover.experiments.chaos.fuzz_decoder import fuzz_decoder
    from pdlrecover.experiments.chaos.fuzz_peer import fuzz_peer

    exit_when_terminated()
    found: dict[str, Any] = {"seed": seed}
    if messages:
        found["decoder"] = asdict(fuzz_decoder(messages, seed, typer.echo))
    if signed:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
            found["peer"] = asdict(fuzz_peer(Path(place) / "federation", signed, seed, typer.echo))
    parts = {name: part for name, part in found.items() if isinstance(part, dict)}
    for name, part in parts.items():
        grown = part["grown_bytes"] / 1e6
        typer.echo(f"{name}: {part['messages']:,} messages, memory has grown by {grown:.1f} MB")
        for problem in part["problems"]:
            typer.echo(f"problem: {problem}")
    holds = not any(part["problems"] for part in parts.values())
    if write is not None:
        write_json(write, {**found, "holds": holds}, RecordError)
    typer.echo("it holds" if holds else "it does not hold")
    if not holds:
        raise typer.Exit(FAILED)
