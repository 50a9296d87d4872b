"""Results as tables in the terminal."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from pdlrecover.experiments.seeds import Runs
from pdlrecover.experiments.summary import divergences
from pdlrecover.experiments.words import percent, readable


def results_table(result: dict[str, Any]) -> Table:
    """Return what each method reached and what it cost, from a result record.

    Below it stands which methods diverged, if any did.
    """
    config = result["config"]
    what = (
        f"{config['malicious']} malicious"
        if config["malicious"]
        else f"{config['leavers']} leavers"
    )
    if config.get("undetected"):
        what += f", {config['undetected']} undetected"
    mode = "in the clear" if config["clear"] else "on shares"
    table = Table(
        title=f"{config['dataset']}, {config['peers']} peers, {what}, "
        f"{config['rounds']} rounds, {mode}",
        title_justify="left",
        caption=Text("\n".join(divergences(Runs([result])))) or None,
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    guarded = any(entry["fallback_rounds"] for entry in result["methods"].values())
    table.add_column("method", no_wrap=True)
    extra = ["by the\nguard"] if guarded else []
    columns = ["accu-\nracy", "back-\ndoor", "remem-\nbered", "exact\nrounds", *extra]
    for name in [*columns, "sec-\nonds", "sent\nby each"]:
        table.add_column(name, justify="right", no_wrap=True)
    for name, entry in result["methods"].items():
        table.add_row(
            name,
            percent(entry["accuracy"]),
            percent(entry["attack_success"]),
            ratio(entry["remembered"]),
            str(entry["exact_rounds"]),
            *([str(entry["fallback_rounds"])] if guarded else []),
            f"{entry['seconds']['total']:.1f}",
            readable(entry["bytes_per_peer"]),
            style="bold" if name == "pdlrecover" else None,
        )
    return table


def ratio(value: float | None) -> str:
    """Return a ratio to two places, or a dash."""
    return "–" if value is None else f"{value:.2f}"
