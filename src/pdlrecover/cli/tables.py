"""Results as tables in the terminal."""

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from pdlrecover.experiments.analysis.promises import above
from pdlrecover.experiments.analysis.results import Mean
from pdlrecover.experiments.analysis.seeds import SeedResults
from pdlrecover.experiments.analysis.summary import divergences
from pdlrecover.experiments.experiment.result import Result
from pdlrecover.experiments.report.format import percent, readable
from pdlrecover.recovery.methods import OURS

ABOVE_RETRAIN, WOULD = "above\nretrain", "would\nsend"
REMEMBERED = "remembered: 1 the original, 0 what never saw the data; ± one standard error"
ABOVE = "above retrain: points by which the backdoor works more often than after retraining"
WOULD_SEND = "would send: what each peer sends where it is shared; in the clear nothing is sent"
CROWDED = 8
"""From this many columns of numbers on, they stand closer together."""


def plain_table(title: str, padding: int) -> Table:
    """Return a table without columns and edges, with this many blanks after a cell."""
    return Table(
        title=Text(title),
        title_justify="left",
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, padding, 0, 0),
        pad_edge=False,
        show_edge=False,
    )


def results_table(result: Result) -> Table:
    """Return what each method reached and what it cost.

    Below it stands what its headings mean, and which methods diverged, if any did. It fits
    into 80 columns: where it is narrower still, or a method's name is long, names are folded and
    numbers are not cut.
    """
    runs = SeedResults([result])
    columns = _columns(runs)
    explained = {"remembered": REMEMBERED, ABOVE_RETRAIN: ABOVE, WOULD: WOULD_SEND}
    notes = [text for name, text in explained.items() if name in columns] + divergences(runs)
    config = result.config
    what = f"{config.malicious} malicious" if config.malicious else f"{config.leavers} leavers"
    if config.undetected:
        what += f", {config.undetected} undetected"
    mode = "in the clear" if config.clear else "on shares"
    table = plain_table(
        f"{config.dataset}, {config.peers} peers, {what}, {config.rounds} rounds, {mode}",
        padding=1 if len(columns) < CROWDED else 0,
    )
    table.caption = Text("\n".join(notes)) or None
    table.add_column("method", overflow="fold")
    for heading in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for name in runs.methods:
        table.add_row(
            Text(name),
            *(cells[name] for cells in columns.values()),
            style="bold" if name == OURS else None,
        )
    return table


def _columns(runs: SeedResults) -> dict[str, dict[str, str]]:
    """Return the columns by their headings, and in each what stands in the row of a method.

    The backdoor's columns are there if there is one, what is remembered if it is known, and the
    guard's if it asked for a round.
    """
    entries = {name: runs[0].methods[name] for name in runs.methods}
    opened = {name: runs.held_out_accuracy(name) for name in entries}
    success = {name: entry.attack_success for name, entry in entries.items()}
    columns = {"acc.": {name: percent(e.accuracy) for name, e in entries.items()}}
    if any(opened.values()):
        columns["by\npeers"] = {n: percent(m.value if m else None) for n, m in opened.items()}
    if any(value is not None for value in success.values()):
        columns["back\ndoor"] = {name: percent(success[name]) for name in entries}
        columns[ABOVE_RETRAIN] = {name: _shown(above(runs, name), 100, "+z.1f") for name in entries}
    remembered = {name: runs.remembered(name) for name in entries}
    if any(remembered.values()):
        columns["remembered"] = {name: str(found or "–") for name, found in remembered.items()}
    columns["exact\nrounds"] = {
        name: _shown(runs.exact_rounds(name), 1, ",.0f") for name in entries
    }
    if any(entry.fallback_rounds for entry in entries.values()):
        columns["by\nguard"] = {n: str(e.fallback_rounds) for n, e in entries.items()}
    columns["time\n(s)"] = {name: _seconds(runs.seconds(name)) for name in entries}
    columns[WOULD if runs.config.clear else "sent\nby each"] = {
        n: readable(e.bytes_per_peer) for n, e in entries.items()
    }
    if len(columns) >= CROWDED and "remembered" in columns:
        close = {name: cell.replace(" ", "") for name, cell in columns["remembered"].items()}
        columns["remembered"] = close
    return columns


def _seconds(spent: Mean | None) -> str:
    return _shown(spent, 1, ".1f" if spent is not None and spent.value < 100 else ".0f")


def _shown(mean: Mean | None, factor: float, form: str) -> str:
    """Return a number, or a dash."""
    return "–" if mean is None else format(factor * mean.value, form)
