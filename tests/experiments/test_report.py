import importlib
import json
import re
import shlex
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from pdlrecover import cli
from pdlrecover.cli.tables import results_table
from pdlrecover.errors import RecordError
from pdlrecover.experiments.config import Config
from pdlrecover.experiments.document import Document, Figure, Series, Table
from pdlrecover.experiments.records import read_documents
from pdlrecover.experiments.report import embedded, render
from pdlrecover.experiments.results import command, documents_from_result

RESULTS = Path(__file__).parents[2] / "results" / "backdoor"
NASTY = "</script><img src=x onerror=alert(1)>&\"'\u2028<!--"


def entry(accuracy, success=None, *, exact=10, opened=None, **more):
    return {
        "accuracy": accuracy,
        "attack_success": success,
        "distance_to_retrain": None,
        "exact_rounds": exact,
        "fallback_rounds": 0,
        "gradient_evaluations": 8 * exact,
        "bytes_per_peer": 1_000_000 * exact,
        "seconds": {"total": 0.5 * exact},
        "opened": opened
        or {"fresh sums": {"openings": exact, "numbers": 9 * exact, "of": "8 kept peers together"}},
        "curve": {
            "round": [1, 40],
            "accuracy": [0.1, accuracy],
            "attack_success": [success, success],
        },
        **more,
    }


def result(methods, **settings):
    names = [name for name in methods if name != "poisoned"]
    config = Config(
        **{"peers": 10, "malicious": 2, "rounds": 40, "methods": tuple(names), **settings}
    )
    return {
        "format": 1,
        "config": config.record(),
        "seed": config.seed,
        "commit": "abc",
        "versions": {"pdlrecover": "9.9", "python": "3.11"},
        "methods": methods,
    }


POISONED = {
    "poisoned": entry(0.9, 0.995, exact=40),
    "retrain": entry(0.905, 0.013, exact=40),
    "pdlrecover": entry(0.904, 0.014),
}


def only(documents):
    assert len(documents) == 1
    return documents[0]


def texts(page):
    """Return the page's elements by tag, and the text inside of each kind."""

    class Reader(HTMLParser):
        def __init__(self):
            super().__init__()
            self.stack, self.tags, self.text = [], [], {}

        def handle_starttag(self, tag, attrs):
            self.tags.append((tag, dict(attrs)))
            if tag not in ("meta", "img"):
                self.stack.append(tag)

        def handle_endtag(self, tag):
            assert self.stack.pop() == tag

        def handle_data(self, data):
            self.text.setdefault(self.stack[-1] if self.stack else "", []).append(data)

    reader = Reader()
    reader.feed(page)
    reader.close()
    assert not reader.stack
    return reader


def test_the_summary_says_what_the_numbers_say():
    document = only(documents_from_result(result(POISONED)))
    assert (
        "PDLRecover reached 90.4% against 90.5% of retraining, with 10 of 40 exact rounds; the "
        "backdoor fell from 99.5% to 1.4%." in document.summary
    )
    assert [fact.value for fact in document.facts] == ["90.4%", "1.4%", "10", "0"]
    assert "nobody’s own update was seen" in document.summary[-1]


def test_the_committed_record_is_summed_up():
    record = json.loads((RESULTS / "mnist-clear-0.json").read_text())
    document = only(documents_from_result(record))
    ours, theirs = (record["methods"][name]["accuracy"] for name in ("pdlrecover", "retrain"))
    told = f"reached {100 * ours:.1f}% against {100 * theirs:.1f}% of retraining"
    assert any(told in sentence for sentence in document.summary)
    assert any("stayed after fine-tune-k (99.1%)" in sentence for sentence in document.summary)
    assert [len(figure.series) for figure in document.figures] == [9, 9]
    table = document.tables[0]
    ours = dict(
        zip(table.columns, next(r for r in table.rows if r[0] == "pdlrecover"), strict=True)
    )
    kept = record["methods"]["pdlrecover"]
    assert ours["accuracy (%)"] == pytest.approx(100 * kept["accuracy"])
    assert (ours["exact rounds"], ours["gradient evaluations"]) == (81, 81 * 160)
    assert ours["MB sent per peer"] == pytest.approx(kept["bytes_per_peer"] / 1e6)
    assert document.ledger["pdlrecover"] == kept["opened"]


def test_who_did_better_and_who_saw_single_updates_is_said():
    seen = {"individual": {"openings": 320, "numbers": 2880, "of": "one peer"}}
    rivals = {
        "auto": entry(0.96, 0.01, exact=1),
        "historical": entry(0.97, 0.9),
        "retrain-k": entry(0.5, 0.1, opened=seen),
    }
    told = " ".join(only(documents_from_result(result({**POISONED, **rivals}))).summary)
    assert "More accurate than that: auto (96.0% with 1 exact round)." in told
    assert "The backdoor stayed after historical (90.0%)." in told
    assert "Single peers’ updates were opened by retrain-k (320)" in told


def test_without_a_backdoor_there_is_no_word_of_one():
    methods = {name: entry(each["accuracy"]) for name, each in POISONED.items()}
    document = only(documents_from_result(result(methods, malicious=0, leavers=3)))
    assert [figure.title for figure in document.figures] == ["Accuracy"]
    assert "backdoor" not in render([document]).split("<script")[0]
    assert any("the original model had 90.0%" in sentence for sentence in document.summary)


@pytest.mark.parametrize(
    ("settings", "title", "told"),
    [
        (
            {"leavers": 3, "undetected": 3, "attack": "bad-unlearn"},
            "3 of 10 peers left, 3 attackers stayed undetected (bad-unlearn)",
            "3 of them left, and the 7 others forgot them; 3 of those who stayed attacked "
            "(bad-unlearn) and went undetected.",
        ),
        (
            {"leavers": 3},
            "3 of 10 peers left",
            "3 of them left, and the 7 others forgot them.",
        ),
        (
            {"undetected": 1, "attack": "sign-flip"},
            "nobody was removed, 1 attacker stayed undetected (sign-flip)",
            "nobody was removed; 1 of those who stayed attacked (sign-flip) and went undetected.",
        ),
        (
            {"malicious": 2, "undetected": 1, "accused": 1},
            "2 of 10 peers attacked (backdoor), 1 more stayed undetected",
            "2 of them planted a backdoor, 1 more stayed undetected, 1 honest one was removed by "
            "mistake, and the 7 kept peers repaired it.",
        ),
    ],
)
def test_who_attacked_and_stayed_is_said(settings, title, told):
    record = result(POISONED, **{"malicious": 0, **settings})
    document = only(documents_from_result(record))
    assert document.title == f"Recovery on digits: {title}"
    assert document.summary[0].endswith(f"rounds; {told}")


def test_a_method_that_diverged_is_said_to_have():
    wild = {**POISONED, "delta-grad": entry(0.1, 0.0, diverged="the update in row 3 is not finite")}
    document = only(documents_from_result(result(wild)))
    assert document.summary[-1] == (
        "delta-grad diverged, and its numbers are of the last model it had come to: the update in "
        "row 3 is not finite."
    )
    table = document.tables[0]
    column = table.columns.index("diverged")
    assert [row[column] for row in table.rows] == [None, None, None, "yes"]
    both = {**wild, "delta-grad": entry(0.9, 0.0)}
    document = only(documents_from_result(result(both), result(wild, seed=1)))
    assert document.summary[-1].startswith("delta-grad diverged with seed 1, and")
    assert document.tables[0].rows[-1][-1] == "1 of 2 seeds"
    assert "diverged" not in render(documents_from_result(result(POISONED))).split("<script")[0]


def test_our_own_divergence_stands_beside_its_first_number():
    wild = {**POISONED, "pdlrecover": entry(0.1, 0.0, diverged="it is not finite")}
    first = only(documents_from_result(result(wild))).facts[0]
    assert first.note == "it diverged; retraining: 90.5%"


def test_the_terminal_says_what_diverged():
    methods = {name: {**each, "remembered": None} for name, each in POISONED.items()}
    console = Console(width=100, record=True, file=StringIO())
    console.print(results_table(result(methods)))
    assert "diverged" not in console.export_text()
    methods["pdlrecover"]["diverged"] = "[red]row 3[/red] is not finite"
    console.print(results_table(result(methods)))
    shown = " ".join(console.export_text().split())
    assert "pdlrecover diverged, and its numbers are of" in shown
    assert "[red]row 3[/red] is not finite." in shown


def test_a_single_leaver_is_warned_of():
    record = result(POISONED, malicious=0, leavers=1, accept_differencing=True)
    assert any(
        "differs by its own updates" in s for s in only(documents_from_result(record)).summary
    )


def test_what_is_remembered_is_shown_where_it_is_known():
    known = {name: {**each, "remembered": 0.25} for name, each in POISONED.items()}
    known["retrain"]["remembered"] = None
    table = only(documents_from_result(result(known))).tables[0]
    column = table.columns.index("remembered")
    assert [row[column] for row in table.rows] == [0.25, None, 0.25]
    assert "remembered" not in only(documents_from_result(result(POISONED))).tables[0].columns


def test_seeds_are_put_together_with_their_spread():
    other = {**POISONED, "pdlrecover": entry(0.884, 0.034, exact=12)}
    first, second = result(POISONED), result(other, seed=1)
    document = only(documents_from_result(first, second))
    line = next(s for s in document.figures[0].series if s.name == "pdlrecover")
    assert line.y[-1] == pytest.approx(89.4)
    assert line.spread[-1] == pytest.approx(2**0.5)
    assert any(
        s.startswith("On average over 2 seeds, PDLRecover reached 89.4%") for s in document.summary
    )
    assert document.ledger["pdlrecover"]["fresh sums"]["openings"] == 11
    assert len(documents_from_result(first, first)) == 2
    assert len(documents_from_result(first, result(other, rounds=41))) == 2


def test_methods_that_are_not_done_are_named():
    record = result(POISONED)
    del record["methods"]["pdlrecover"]
    document = only(documents_from_result(record))
    assert document.summary[-1] == "Not finished: pdlrecover."
    assert not document.facts


@pytest.mark.parametrize(
    "config",
    [
        Config(),
        Config(malicious=4, clear=True, seed=7, attack_scale=2.5, methods=("retrain",), block=2),
        Config(leavers=1, accept_differencing=True, open_pairs=True, model="some.module:make it"),
        Config.from_toml(RESULTS / "har.toml"),
    ],
)
def test_the_command_runs_the_same_config(monkeypatch, config):
    ran = []
    module = importlib.import_module("pdlrecover.cli.simulate")
    monkeypatch.setattr(module, "run_and_show", lambda config, *_: ran.append(config))
    words = shlex.split(command(config.record()))
    assert words[:2] == ["pdlrecover", "simulate"]
    done = CliRunner().invoke(cli.app, words[1:])
    assert done.exit_code == 0, done.output
    assert ran == [config]


def nasty_document():
    line = Series(name=NASTY, x=[0, 1], y=[float("nan"), float("inf")])
    figure = Figure(title=NASTY, x=NASTY, y=NASTY, series=[line], command=NASTY, note=NASTY)
    table = Table(title=NASTY, columns=[NASTY], rows=[[NASTY]], command=NASTY, note=NASTY)
    opened = {NASTY: {"openings": 1, "numbers": 1, "of": NASTY}}
    return Document(
        name=NASTY,
        title=NASTY,
        summary=[NASTY],
        figures=[figure],
        tables=[table],
        ledger={NASTY: opened},
        note=NASTY,
    )


def test_text_stays_text_wherever_it_comes_from():
    page = render([nasty_document(), nasty_document()])
    reader = texts(page)
    assert "img" not in [tag for tag, _ in reader.tags]
    assert [tag for tag, _ in reader.tags].count("script") == 2
    assert not any(name.startswith("on") for _, attributes in reader.tags for name in attributes)
    assert NASTY in "".join(reader.text["p"])


def test_the_embedded_json_is_what_was_given():
    page = render([nasty_document()])
    inside = re.search(r'<script type="application/json" id="documents">(.*?)</script>', page)[1]
    assert not set("<>&\u2028") & set(inside)
    (document,) = json.loads(inside)
    assert document["title"] == NASTY
    assert document["figures"][0]["series"][0]["y"] == [None, None]
    assert json.loads(embedded({"a": [1.5, NASTY]})) == {"a": [1.5, NASTY]}


def test_the_page_loads_nothing():
    page = render(read_documents([RESULTS / "mnist-clear-0.json"]))
    reader = texts(page)
    loading = {"src", "srcset", "data", "action", "poster", "background"}
    for tag, attributes in reader.tags:
        assert not loading & set(attributes)
        assert tag not in ("link", "iframe", "object", "embed", "base")
        assert attributes.get("href", "#").startswith("#")
    addresses = set(re.findall(r"[a-z]+://[^\s\"'`)]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}, "the name of SVG, which nobody fetches"
    assert not re.search(r"@import|url\((?!#)|\bfetch\(|XMLHttpRequest|\bimport\b *\(", page)
    assert "default-src 'none'" in page


def test_a_page_of_several_begins_with_what_each_says_first(tmp_path):
    for name in ("ledger", "table-3", "bound"):
        made = Document(name=name, title=f"On {name}", summary=[f"{name} in short.", "More."])
        (tmp_path / f"{name}.json").write_text(json.dumps(made.record()))
    documents = read_documents([tmp_path])
    assert [document.name for document in documents] == ["table-3", "bound", "ledger"]
    (nav,) = re.findall("<nav.*?</nav>", render(documents))
    assert re.findall("<p>(.*?)</p>", nav) == [f"{d.name} in short." for d in documents]
    assert "<nav" not in render(documents[:1])


def test_numbers_are_not_shown_finer_than_they_were_given():
    rows = [["a", 0.03], ["b", -0.05], ["c", 0.1]]
    table = Table(title="T", columns=["", "points"], rows=rows, command="")
    page = render([Document(name="d", title="d", summary=[], tables=[table])])
    assert re.findall('data-value="-?[0-9.]+">(.*?)<', page) == ["0.03", "-0.05", "0.10"]


def test_numbers_in_tables_keep_their_value():
    table = Table(
        title="t", columns=["m", "s"], rows=[["a", 1234.5], ["b", None], ["c", 2]], command=""
    )
    page = render([Document(name="x", title="x", summary=[], tables=[table])])
    assert '<td class="number" data-value="1234.5">' in page
    assert '<td class="number">–</td>' in page


def written(folder, name, content):
    folder.mkdir(exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / name).write_text(text)
    return folder


def test_folders_and_files_are_read(tmp_path):
    document = Document(name="d", title="By hand", summary=["Fine."])
    one = written(tmp_path / "one", "result.json", result(POISONED))
    two = written(tmp_path / "two", "document.json", document.record())
    written(two, "result.json", {"runs": []})
    three = written(tmp_path / "three", "any.json", result(POISONED, seed=1))
    found = read_documents([two, one, three / "any.json"])
    assert found[1] == document
    assert found[0].note.startswith("Seeds 0 and 1; ")
    assert read_documents([three])[0].note.startswith("Seed 1; ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"has no document.json or result.json; run `pdlrecover simulate --out"),
        ('{"format": 1,', r"result.json is damaged: .*; make it again, or leave it out"),
        ("[1, 2]", "is a record of another format: .* but nothing"),
        ({"config": {}, "runs": []}, "is a record of another format: .* but config, runs"),
        ({**result(POISONED), "format": 7}, "another format: it is of format 7, and this reads 1"),
        ({**result(POISONED), "methods": {}}, "no method in it is done yet"),
        ({**result(POISONED), "methods": {"retrain": {}}}, "is a record of another format"),
        ({**result(POISONED), "config": {}}, "another format: '.*' is missing"),
        ({"figures": [], "tables": [], "summary": []}, "is a record of another format"),
        (
            {
                "figures": [],
                "tables": [{"title": "t", "columns": ["a"], "rows": [[]], "command": ""}],
                "summary": [],
                "name": "",
                "title": "",
            },
            "a row of 't' does not have 1 cells",
        ),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path, content, message):
    folder = tmp_path / "out"
    folder.mkdir()
    if content is not None:
        written(folder, "result.json", content)
    with pytest.raises(RecordError, match=message) as raised:
        read_documents([folder])
    assert str(folder) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_folder_that_is_not_there_is_said(tmp_path):
    with pytest.raises(RecordError, match="does not exist"):
        read_documents([tmp_path / "none"])


def test_the_command_writes_the_page_and_says_where(tmp_path):
    one = written(tmp_path / "one", "result.json", result(POISONED))
    two = written(tmp_path / "two", "result.json", result(POISONED, rounds=41))
    done = CliRunner().invoke(cli.app, ["report", str(one), str(two)])
    assert done.exit_code == 0, done.output
    page = one / "report.html"
    assert f"Report: {page}" in done.output
    assert page.read_text() == render(read_documents([one, two]))
    for where in ("page.html", "two"):
        CliRunner().invoke(cli.app, ["report", str(one), "--out", str(tmp_path / where)])
    assert (tmp_path / "page.html").read_text() == (two / "report.html").read_text()


def test_a_page_that_cannot_be_written_is_one_sentence(tmp_path):
    one = written(tmp_path / "one", "result.json", result(POISONED))
    done = CliRunner().invoke(
        cli.app, ["report", str(one), "--out", str(one / "result.json" / "x")]
    )
    assert isinstance(done.exception, RecordError)
    assert "cannot be written" in str(done.exception)
