"""`pdlrecover plan`: what a federation needs and costs before it is set up."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from pdlrecover.engines.traffic import Traffic
from pdlrecover.experiments.analysis.format import readable
from pdlrecover.sharing import Tolerance


def plan(
    peers: Annotated[int, typer.Option(help="How many peers take part.")],
    colluders: Annotated[int, typer.Option(help="How many together must learn nothing.")],
    dropouts: Annotated[int, typer.Option(help="How many may be absent or removed.")] = 0,
    liars: Annotated[int, typer.Option(help="How many may send wrong shares.")] = 0,
    parameters: Annotated[int, typer.Option(help="Numbers in the model.")] = 79_510,
    rounds: Annotated[int, typer.Option(help="Rounds of training whose history is kept.")] = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """Say what a federation needs and costs before it is set up, or why it cannot be had."""
    quorums = Tolerance(colluders=colluders, dropouts=dropouts, liars=liars).quorums(peers)
    traffic = Traffic(quorums=quorums, parameters=parameters, rounds=rounds)
    if as_json:
        typer.echo(json.dumps(_plan_record(traffic), indent=2))
    else:
        Console().print(_plan_table(traffic))


def _plan_record(traffic: Traffic) -> dict[str, int | bool]:
    quorums = traffic.quorums
    return {
        "peers": quorums.peers,
        **vars(quorums.tolerance),
        "parameters": traffic.parameters,
        "rounds": traffic.rounds,
        "packing": quorums.packing,
        "quorum_vector": quorums.vector,
        "quorum_dot": quorums.dot,
        "quorum_product": quorums.product,
        "product_possible": quorums.product <= quorums.peers - quorums.tolerance.dropouts,
        "share_bytes": traffic.share_bytes,
        "exact_round_bytes": traffic.exact_round_bytes,
        "estimated_round_bytes": traffic.estimated_round_bytes,
        "pair_bytes": traffic.pair_bytes,
        "history_bytes": traffic.history_bytes,
    }


def _plan_table(traffic: Traffic) -> Table:
    quorums, tolerance = traffic.quorums, traffic.quorums.tolerance
    answering = quorums.peers - tolerance.dropouts
    table = Table(
        title=f"{quorums.peers} peers, surviving {tolerance}",
        title_justify="left",
        show_header=False,
    )
    table.add_column("")
    table.add_column("", justify="right")
    table.add_column("", style="dim")
    table.add_row("packing", str(quorums.packing), "numbers carried by one polynomial")
    for name, needed, note in (
        ("a shared vector", quorums.vector, "training, and every estimated round"),
        ("a dot product with a public vector", quorums.dot, "curvature in recovery"),
        ("a dot product of two shared vectors", quorums.product, "detectors only"),
    ):
        if needed > answering:
            note += f": not possible, {answering} may be left"
        table.add_row(f"to open {name}", f"{needed} peers", note)
    table.add_section()
    for name, size, note in (
        ("exact round", traffic.exact_round_bytes, "sent per peer, and as much received"),
        ("estimated block", traffic.estimated_round_bytes, "sent per peer for up to 5 rounds"),
        ("new curvature pair", traffic.pair_bytes, "sent per peer, and as much received"),
        ("history", traffic.history_bytes, f"on each peer's disk after {traffic.rounds:,} rounds"),
    ):
        table.add_row(name, readable(size), note)
    return table
