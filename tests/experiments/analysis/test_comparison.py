"""The comparison of methods: its order, its caption, and how the terminal shows it."""

import re
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console
from simulated import POISONED, entry, only, openings, result, seconds

from pdlrecover.cli.tables import results_table
from pdlrecover.experiments.analysis.cells import places
from pdlrecover.experiments.analysis.cells import shown as shown_cell
from pdlrecover.experiments.analysis.comparison import compared
from pdlrecover.experiments.analysis.document import Table
from pdlrecover.experiments.report.simulation_document import documents_from_result


def printed(record, width):
    """Return what the terminal shows, which is no wider than it."""
    console = Console(width=width, file=StringIO())
    console.print(results_table(record))
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert not set("…\x1b") & set(text)
    return text


def shown(record, width=80):
    """Return the rows of the terminal's table, by method."""
    return {
        words[0]: words for words in map(str.split, printed(record, width).splitlines()) if words
    }


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_the_terminals_table_cuts_nothing_and_fits(width):
    more = {"bytes_per_peer": 345_600_000_000, "seconds": seconds(12_345.0), "excess_error": 0.02}
    methods = {
        name: entry(1.0, success, exact=1000, fallback_rounds=112, excess=value, **more)
        for name, success, value in [
            ("poisoned", 1.0, 0.5),
            ("retrain", 0.013, 0.0),
            ("accelerated-retrain", 0.01, 0.05),
            ("accelerated-retrain:rounds=15+local_steps=4", 0.01, 0.05),
        ]
    }
    text = printed(result(methods), width)
    rows = shown(result(methods), width)
    assert rows["accelerated-retrain"][1] == "kept"
    assert "0.10\u00a0±\u00a00.04" in text
    assert "345,600" in text or "On the page only:" in text
    name = re.sub(r"(?<=[:+])\s.*\n", "", text)
    assert "accelerated-retrain:" in name
    assert list(rows).index("retrain") < list(rows).index("poisoned")
    assert "Remembered, of the data" in " ".join(text.split())


def test_methods_stand_in_the_order_that_the_caption_says():
    methods = {
        **POISONED,
        "historical": entry(0.5, 0.01, exact=0),
        "fine-tune-k": entry(0.99, 0.9),
        "delta-grad": entry(0.98, 0.01, diverged="it is not finite"),
        "auto": entry(0.96, 0.01),
        "crab": entry(0.96, 0.01, exact=5, opened={"individual": openings(9, of="one peer")}),
        "fed-eraser": entry(0.85, 0.01),
    }
    table = only(documents_from_result(result(methods, clear=True))).comparison
    told = {row["method"]: row["promises"] for row in table.by_key()}
    assert list(told.items()) == [
        ("retrain", "reference"),
        ("crab", "kept"),
        ("auto", "kept"),
        ("pdlrecover", "kept"),
        ("fed-eraser", "broken"),
        ("historical", "broken"),
        ("fine-tune-k", "backdoor stayed"),
        ("delta-grad", "diverged"),
        ("poisoned", "original"),
    ]
    assert table.note.startswith(
        "After retraining, the reference, those that keep the promises, then those that do "
        "not, then those after which the backdoor stayed, then those that diverged; of each the "
        "more accurate first, and the original model last."
    )
    alone = [row["method"] for row in table.by_key() if row["individual"]]
    assert alone == ["crab"]
    assert "single peers’ updates cannot run on shares" in table.note
    del methods["retrain"]
    table = only(documents_from_result(result(methods, clear=True))).comparison
    assert [row["promises"] for row in table.by_key()][:1] == [None]
    assert "Promised" not in table.note


def test_over_several_settings_the_share_of_promises_kept_counts_first():
    def run(rounds, ours, theirs, **more):
        models = {"pdlrecover": entry(ours, 0.01), "auto": entry(theirs, 0.01), **more}
        return result({**POISONED, **models}, rounds=rounds, clear=True)

    rare = {"crab": entry(0.99, 0.01)}
    table = compared([run(40, 0.91, 0.99, **rare), run(50, 0.91, 0.8)], "")
    rows = {row["method"]: row for row in table.by_key()}
    assert list(rows) == ["retrain", "pdlrecover", "crab", "auto", "poisoned"]
    assert [row["settings"] for row in rows.values()] == [2, 2, 1, 2, 2]
    assert [row["kept"] for row in rows.values()] == [None, "2 of 2", "1 of 1", "1 of 2", None]
    assert (rows["auto"]["minus_retrain"], rows["auto"]["worst"]) == (-1.0, -10.5)
    table = compared([run(40, 0.91, 0.99), run(50, 0.91, 0.8)], "")
    assert "settings" not in table.keys
    assert table.note.startswith("Over 2 settings. ")
    short = compared([run(40, 0.91, 0.99), run(50, 0.91, 0.8)], "", judged=False)
    assert {row["kept"] for row in short.by_key()} == {None}


def test_the_terminal_says_what_diverged():
    methods = dict(POISONED)
    console = Console(width=100, record=True, file=StringIO())
    console.print(results_table(result(methods)))
    assert "diverged" not in console.export_text()
    wild = replace(methods["pdlrecover"], diverged="[red]row 3[/red] is not finite")
    methods["pdlrecover"] = wild
    console.print(results_table(result(methods)))
    shown = " ".join(console.export_text().split())
    assert "pdlrecover diverged, and its numbers are of" in shown
    assert "[red]row 3[/red] is not finite." in shown


def test_a_retraining_that_diverged_is_held_against_nobody():
    lost = {"retrain": entry(0.1, 1.0, diverged="it is not finite")}
    methods = {**POISONED, **lost, "fine-tune-k": entry(0.99, 0.97)}
    table = compared([result(methods)], "")
    told = {row["method"]: row["promises"] for row in table.by_key()}
    assert list(told) == ["retrain", "pdlrecover", "fine-tune-k", "poisoned"]
    assert told["fine-tune-k"] == "backdoor stayed"
    assert table.note.startswith(
        "After retraining, the reference, which diverged, those of which nothing is told, then "
        "those after which the backdoor stayed; of each the more accurate first, and "
        "the original model last."
    )
    rows = compared([result(methods), result(POISONED, rounds=50)], "").by_key()
    (ours,) = (row for row in rows if row["method"] == "pdlrecover")
    assert (ours["settings"], ours["kept"], ours["minus_retrain"]) == (2, "1 of 1", -0.1)


def test_where_no_promise_is_judged_the_more_accurate_stands_first():
    methods = {**POISONED, "auto": entry(0.96, 0.09), "fine-tune-k": entry(0.99, 0.9)}
    for judged, names in ((True, ["pdlrecover", "auto"]), (False, ["auto", "pdlrecover"])):
        table = compared([result(methods)], "", judged=judged)
        order = [row["method"] for row in table.by_key()]
        assert order == ["retrain", *names, "fine-tune-k", "poisoned"]
    assert "those of which nothing is told, then those after which the backdoor" in table.note


def test_small_numbers_are_not_shown_as_zero():
    table = Table.from_rows("", [{"error": 5e-05}, {"error": 3e-05}], {}, "")
    assert [shown_cell(row[0], places(table, 0)) for row in table.rows] == ["0.00005", "0.00003"]
