import importlib
import json
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from simulated import POISONED, columns, entry, openings, record, result
from typer.testing import CliRunner

from pdlrecover import cli
from pdlrecover.errors import RecordError
from pdlrecover.experiments.analysis.comparison import first
from pdlrecover.experiments.analysis.document import Document, Figure, Series, Table
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.run import run
from pdlrecover.experiments.report.figures import coincident, runtime
from pdlrecover.experiments.report.html import embedded, render
from pdlrecover.experiments.report.load import read_documents
from pdlrecover.experiments.report.simulation_document import command, documents_from_result

RESULTS = Path(__file__).parents[3] / "results" / "backdoor"
NASTY = "</script><img src=x onerror=alert(1)>&\"'\u2028<!--"


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
    words = shlex.split(command(config))
    assert words[:2] == ["pdlrecover", "simulate"]
    done = CliRunner().invoke(cli.app, words[1:])
    assert done.exit_code == 0, done.output
    assert ran == [config]


def nasty_document():
    line = Series(name=NASTY, x=[0, 1], y=[float("nan"), float("inf")])
    figure = Figure(title=NASTY, x=NASTY, y=NASTY, series=[line], command=NASTY, note=NASTY)
    table = Table(title=NASTY, columns=columns(NASTY), rows=[[NASTY]], command=NASTY, note=NASTY)
    opened = {NASTY: openings(1, of=NASTY)}
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
    assert [tag for tag, _ in reader.tags].count("script") == 3
    assert not any(name.startswith("on") for _, attributes in reader.tags for name in attributes)
    assert NASTY in "".join(reader.text["p"])


def test_the_embedded_json_is_what_was_given():
    page = render([nasty_document()])
    inside = re.search(r'<script type="application/json" id="charts">(.*?)</script>', page)[1]
    assert not set("<>&\u2028") & set(inside)
    (chart,) = json.loads(inside)["charts"]
    assert chart["title"]["text"] == chart["encoding"]["x"]["title"] == NASTY
    assert chart["data"]["values"][0]["name"] == NASTY
    assert chart["data"]["values"][0]["y"] == [None, None]
    assert json.loads(embedded({"a": [1.5, NASTY]})) == {"a": [1.5, NASTY]}


def test_the_page_loads_nothing():
    page = render(read_documents([RESULTS / "mnist-clear-0.json"]))
    assert page.count(runtime()) == 1
    page = page.replace(runtime(), "")  # it could load data, but the policy lets it not
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


def test_charts_are_there_without_the_script(monkeypatch):
    documents = read_documents([RESULTS / "mnist-clear-0.json"])
    page = render(documents)
    figures = re.findall("<figure>.*?</figure>", page)
    assert len(figures) == sum(1 for figure in documents[0].figures if figure.series)
    for drawn, figure in zip(figures, documents[0].figures, strict=False):
        (chart,) = re.findall('aria-label="[^"]*"><svg [^>]*class="still".*</svg></div>', drawn)
        assert "<path" in chart
        assert f">{figure.y}<" in chart
        legend = re.findall("<span><svg .*?</svg>(.*?)</span>", drawn)
        assert legend == [series.name for series in figure.series]
    monkeypatch.setattr("pdlrecover.experiments.report.html.ROOM", len(page.encode()) - 1)
    small = render(documents)
    assert 'class="still"' not in small
    assert small.count("<noscript>") == len(figures)


def test_a_page_of_several_begins_with_what_each_says_first(tmp_path):
    for name in ("ledger", "table-3", "bound"):
        made = Document(name=name, title=f"On {name}", summary=[f"{name} in short.", "More."])
        (tmp_path / f"{name}.json").write_text(json.dumps(made.record()))
    documents = read_documents([tmp_path])
    assert [document.name for document in documents] == ["table-3", "bound", "ledger"]
    (nav,) = re.findall("<nav.*?</nav>", render(documents))
    assert re.findall("<p>(.*?)</p>", nav) == [f"{d.name} in short." for d in documents]
    assert '<h2 id="short">In short</h2>' in nav
    assert re.findall('href="(.*?)"', nav) == [f"#document-{i}" for i in range(3)]
    assert "<nav" not in render(documents[:1])


def test_the_sentence_that_says_most_stands_out():
    first = Document(name="a", title="a", summary=["Most.", "More."])
    simulated = documents_from_result(result(POISONED))[0]
    for document, place in [(first, 0), (simulated, 1)]:
        (said,) = re.findall("<p class=key>(.*?)</p>", render([document]))
        assert said == document.summary[place]
        (nav,) = re.findall("<nav.*?</nav>", render([document, first]))
        assert re.findall("<p>(.*?)</p>", nav) == [document.summary[place], "Most."]
    assert "PDLRecover reached" in simulated.summary[1]
    alone = {"poisoned": POISONED["poisoned"]}
    assert documents_from_result(result(alone))[0].key == 0
    with pytest.raises(RecordError, match="'a' has no sentence 2, counted from 0"):
        Document.from_record({**first.record(), "key": 2})


def test_numbers_are_not_shown_finer_than_they_were_given():
    rows = [["a", 0.03], ["b", -0.05], ["c", 0.1]]
    table = Table(title="T", columns=columns("", "points"), rows=rows, command="")
    page = render([Document(name="d", title="d", summary=[], tables=[table])])
    assert re.findall('<td class="number"[^>]*>(.*?)<', page) == ["0.03", "-0.05", "0.10"]


def test_numbers_in_tables_keep_their_value():
    table = Table(
        title="t",
        columns=columns("m", "s"),
        rows=[["a", 1234.5], ["b", None], ["c", 2]],
        command="",
    )
    page = render([Document(name="x", title="x", summary=[], tables=[table])])
    assert '<td class="number" data-value="1234.5">' in page
    assert '<td class="number">–</td>' in page


def test_a_column_of_nothing_and_a_figure_of_nothing_are_left_out():
    rows = [["a", None, float("nan"), 1], ["b", None, None, None]]
    headings = columns("method", "nothing", "no number", "some")
    table = Table(title="t", columns=headings, rows=rows, command="")
    line = Series(name="a", x=[1, 2], y=[1, 2])
    empty, there = (
        Figure(title=title, x="round", y="y", series=series, command="")
        for title, series in [("Empty", []), ("There", [line])]
    )
    document = Document(name="d", title="d", summary=[], figures=[empty, there], tables=[table])
    page = render([document])
    assert re.findall('<button type="button">(method|nothing|no number|some)<', page) == (
        ["method", "some"]
    )
    assert re.findall("<figcaption><h3>(.*?)</h3>", page) == ["There"]
    assert len(re.findall('"title":{"text":"y"}', page)) == 1
    console = Console(width=80, file=StringIO())
    importlib.import_module("pdlrecover.cli.reproduce")._print(document, console)
    assert "nothing" not in console.file.getvalue()


def test_a_command_that_all_share_stands_there_once():
    document = documents_from_result(result(POISONED))[0]
    assert len(document.figures) == 2
    page = render([document])
    assert page.count("<code>pdlrecover simulate") == 1
    assert page.index("Run it again") > page.index("Who saw what")
    other = replace(document, figures=[replace(document.figures[0], command="mine.py")])
    assert render([other]).count('<div class="command">') == 3, "each its own, if they differ"


def test_lines_that_lie_on_others_are_named():
    methods = {**POISONED, "auto": entry(0.96, 0.01), "accelerated-retrain": entry(0.96, 0.01)}
    page = render(documents_from_result(result(methods)))
    said = re.findall('<p class="note coincident">(.*?)</p>', page)
    assert "accelerated-retrain on auto" in said[0]
    x = [1.0, 2.0, 3.0]
    lines = [
        Series(name="under", x=x, y=[1.0, 10.0, 100.0]),
        Series(name="short", x=x[:2], y=[1.0, 10.0]),
        Series(name="apart", x=x, y=[1.0, 12.0, 100.0]),
        Series(name="points", x=x, y=[1.0, 10.0, 100.0], points=True),
    ]
    figure = Figure(title="t", x="round", y="y", series=lines, command="")
    assert coincident(figure) == {"under": ["short"]}
    assert coincident(replace(figure, series=lines[2:])) == {}
    near = replace(lines[2], y=[1.0, 10.5, 100.0])
    assert coincident(replace(figure, series=[lines[0], near])) == {"under": ["apart"]}
    assert coincident(replace(figure, series=[lines[0], near], log=True)) == {}


def test_a_number_and_its_error_are_one_cell_that_sorts_as_a_number():
    rows = [["a", "-0.31 ± 0.05"], ["b", "1.00 ± 0.00"], ["c", None]]
    table = Table(title="t", columns=columns("method", "remembered"), rows=rows, command="")
    page = render([Document(name="d", title="d", summary=[], tables=[table])])
    assert '<td class="number" data-value="-0.31">-0.31\u00a0±\u00a00.05</td>' in page
    words = replace(table, rows=[["a", "1 of 2"], ["b", "2,000 (diverged)"]])
    page = render([Document(name="d", title="d", summary=[], tables=[words])])
    assert "<td>1 of 2</td>" in page


def test_no_number_that_is_remembered_stands_without_its_error():
    found = []
    for document in read_documents([RESULTS.parent / "reproductions"]):
        for table in (document.comparison, *document.tables):
            found += [row.get("remembered") for row in table.by_key()] if table else []
        for figure in document.figures:
            assert figure.y != "remembered" or all(series.spread for series in figure.series)
    found = [cell for cell in found if cell is not None]
    assert found
    assert [cell for cell in found if not re.fullmatch(r"-?\d\.\d\d ± \d\.\d\d", cell)] == []


def test_the_best_of_every_committed_comparison_is_named_in_the_summary():
    documents = read_documents([RESULTS.parent / "reproductions"])
    compared = [document for document in documents if document.comparison]
    assert {d.name for d in documents} - {d.name for d in compared} == {"bound", "scaling"}
    for document in compared:
        best = first(document.comparison)["method"].partition(":")[0]
        assert best in " ".join(document.summary).lower(), document.name
        if best != "pdlrecover":
            assert not document.summary[document.key].startswith("PDLRecover"), document.name


def test_our_rows_are_marked_by_the_method_they_name():
    rows = [["mnist", "retrain"], ["pdlrecover", "retrain"], ["mnist", "PDLRecover"]]
    tables = [
        Table(title="t", columns=columns("dataset", heading), rows=rows, command="")
        for heading in ("method", "other")
    ]
    page = render([Document(name="x", title="x", summary=[], tables=tables)])
    marked = re.findall('<tr class="best">(.*?)</tr>', page)
    assert [re.findall(">([^<]+)<", row) for row in marked] == [["mnist", "PDLRecover"]]


def test_the_best_recovery_stands_out_where_there_is_a_comparison():
    methods = {**POISONED, "auto": entry(0.96, 0.01)}
    page = render(documents_from_result(result(methods)))
    rows = re.findall('<tr class="best">(.*?)</tr>', page)
    assert [re.findall(">([^<]+)<", row)[0] for row in rows] == ["auto", "auto", "auto"]
    wild = {"poisoned": methods["poisoned"], "auto": replace(methods["auto"], held_out_loss=1e9)}
    assert '<tr class="best">' not in render(documents_from_result(result(wild)))


def written(folder, name, content):
    folder.mkdir(exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / name).write_text(text)
    return folder


def test_folders_and_files_are_read(tmp_path):
    document = Document(name="d", title="By hand", summary=["Fine."])
    one = written(tmp_path / "one", "result.json", record(POISONED))
    two = written(tmp_path / "two", "document.json", document.record())
    written(two, "result.json", {"runs": []})
    three = written(tmp_path / "three", "any.json", record(POISONED, seed=1))
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
        ({**record(POISONED), "format": 7}, "another format: it is of format 7, and this reads 1"),
        ({**record(POISONED), "methods": {}}, "no method in it is done yet"),
        (
            {**record(POISONED), "methods": {"retrain": {}}},
            "another format: methods.retrain.accuracy is missing; give",
        ),
        ({**record(POISONED), "config": {}}, "another format: config.dataset is missing"),
        ({"figures": [], "tables": [], "summary": []}, "is a record of another format"),
        (
            {"name": "d", "title": 5, "summary": [], "figures": [], "tables": []},
            "is a record of another format: title must be a text, got 5; give",
        ),
        (
            record({**POISONED, "auto": entry(0.9, opened={"k": openings(1, of=1)})}),
            r"another format: methods.auto.opened.\S+ must be a text, got",
        ),
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
    one = written(tmp_path / "one", "result.json", record(POISONED))
    two = written(tmp_path / "two", "result.json", record(POISONED, rounds=41))
    done = CliRunner().invoke(cli.app, ["report", str(one), str(two)])
    assert done.exit_code == 0, done.output
    page = one / "report.html"
    assert f"Report: {page}" in done.output
    assert page.read_text() == render(read_documents([one, two]))
    for where in ("page.html", "two"):
        CliRunner().invoke(cli.app, ["report", str(one), "--out", str(tmp_path / where)])
    assert (tmp_path / "page.html").read_text() == (two / "report.html").read_text()


@pytest.mark.parametrize("name", ["a[/b].html", "a[red]b.html"])
def test_brackets_in_a_path_are_only_brackets(tmp_path, name):
    one = written(tmp_path / "one", "result.json", record(POISONED))
    page = tmp_path / name
    done = CliRunner().invoke(cli.app, ["report", str(one), "--out", str(page)])
    assert done.exit_code == 0, done.exception
    assert done.output == f"Report: {page}\n"
    assert page.exists()


def test_brackets_in_a_document_are_only_brackets():
    module = importlib.import_module("pdlrecover.cli.reproduce")
    console = Console(width=80, file=StringIO())
    rows = [["[/b]", "[red]"]]
    tables = [
        Table(title="[/t]", columns=columns("[/c]", "[red]"), rows=rows * count, command="")
        for count in (1, module.SHOWN_ROWS + 1)
    ]
    document = Document(name="x", title="[/x]", summary=["[/s]"], tables=tables)
    module._print(document, console)
    shown = console.file.getvalue()
    for text in ("[/x]", "[/s]", "[/t]", "[/c]", "[/b]", "[red]", "[/t]: 41 rows"):
        assert text in shown


def test_the_terminal_cuts_no_word_and_leaves_wide_tables_to_the_page():
    module = importlib.import_module("pdlrecover.cli.reproduce")
    names = ["accelerated-retrain:rounds=60", "fedrecovery-noise"]
    headings = ["dataset", "method", "accuracy (%)", "of whom it was opened, and why"]
    rows = [["fashion-mnist", name, 93.7, "sums over all the kept peers"] for name in names]
    for more, fits in [(0, True), (5, False)]:
        console = Console(width=80, file=StringIO())
        table = Table(
            title="t",
            columns=columns(*headings, *(f"backdoor {i}" for i in range(more))),
            rows=[[*row, *[0] * more] for row in rows],
            command="",
        )
        module._print(Document(name="x", title="x", summary=[], tables=[table]), console)
        told = console.file.getvalue()
        assert "…" not in told
        parts = [part for name in names for part in re.split("(?<=:)", name)]
        assert all((part in told) is fits for part in parts)
        assert ("2 rows of 9 columns, on the page" in told) is not fits
        assert max(map(len, told.splitlines())) <= 80


def test_a_page_that_cannot_be_written_is_one_sentence(tmp_path):
    one = written(tmp_path / "one", "result.json", record(POISONED))
    done = CliRunner().invoke(
        cli.app, ["report", str(one), "--out", str(one / "result.json" / "x")]
    )
    assert isinstance(done.exception, RecordError)
    assert "cannot be written" in str(done.exception)


def test_the_page_of_all_committed_records_is_small_enough_to_send():
    page = render(read_documents([RESULTS.parent / "reproductions"]))
    assert len(page.encode()) < 3_000_000


def test_a_result_that_was_changed_is_not_shown(tmp_path):
    config = Config(peers=8, malicious=2, rounds=20, model="mlp-8", methods=("retrain",))
    run(config, tmp_path)
    path = tmp_path / "result.json"
    assert read_documents([path])
    record = json.loads(path.read_text())
    record["methods"]["retrain"]["accuracy"] = 0.999
    path.write_text(json.dumps(record))
    with pytest.raises(RecordError, match="its digest is not of what it says"):
        read_documents([path])
