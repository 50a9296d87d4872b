"""What the documents show is run."""

import ast
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from simulated import columns

from pdlrecover.experiments.analysis.document import Document, Figure, Series, Table
from pdlrecover.experiments.reproductions import REPRODUCTIONS
from pdlrecover.experiments.reproductions.scale import FULL
from pdlrecover.recovery.methods import METHODS

ROOT = Path(__file__).parents[1]
MARKER = re.compile(r"<!-- figure: (\S+) -->(.*?)<!-- end -->", re.DOTALL)


@pytest.mark.slow
def test_the_story_of_lost_and_lying_peers_ends_well():
    story = ROOT / "examples" / "lost_and_lying.py"
    result = subprocess.run([sys.executable, story], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "the liar is peer 7" in result.stdout


def test_links_in_the_documents_lead_somewhere():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_method_has_a_place_for_its_figure_on_one_page():
    pages = [page.read_text() for page in ROOT.glob("docs/methods/*.md")]
    marked = [name for text in pages for name, _ in MARKER.findall(text)]
    assert sum(text.count("<!-- figure: ") for text in pages) == len(marked)
    assert sorted(marked) == sorted(set(METHODS) - {"retrain"}), "retrain is in every figure"


def test_the_table_of_simulated_rounds_has_what_the_benchmark_compares():
    tree = ast.parse((ROOT / "benchmarks" / "simulation.py").read_text())
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    (targets,) = [ast.literal_eval(x.value) for x in assigned if x.targets[0].id == "TARGETS"]
    assert tuple(targets) == script("tables").SIMULATED


def curves(*methods, top=0.9):
    """Return the document of the curves, as if it had been run with these methods."""
    series = [Series(name=m, x=[1, 2], y=[0.1, top]) for m in ("poisoned", "retrain", *methods)]
    figure = Figure(
        title="mnist: accuracy (%) by round", x="round", y="%", series=series, command="run it"
    )
    return Document(name="figure-attack-curves", title="Curves", summary=[], figures=[figure])


def script(name):
    """Return a script of the documents as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Return the script that writes the page of results, at work in a folder of its own."""
    module = script("results")
    for name in ("DOCUMENTS", "FIGURES", "METHOD_PAGES"):
        monkeypatch.setattr(module, name, tmp_path / name)
    monkeypatch.setattr(module, "PAGE", tmp_path / "results.md")
    for folder in (module.DOCUMENTS, module.METHOD_PAGES):
        folder.mkdir()
    (module.METHOD_PAGES / "crab.md").write_text(
        "# Crab\n\n<!-- figure: crab -->\n<!-- end -->\n\nMore.\n"
    )

    def record(document):
        (module.DOCUMENTS / f"{document.name}.json").write_text(json.dumps(document.record()))

    def run(*flags):
        monkeypatch.setattr(sys, "argv", ["results.py", *flags])
        module.main()

    module.record, module.run = record, run
    return module


def stale(results):
    """Return what the check complains of."""
    with pytest.raises(SystemExit) as ended:
        results.run("--check")
    return ended.value.code


def test_a_figure_of_earlier_numbers_does_not_pass(results):
    results.record(curves("auto"))
    assert "results.md" in stale(results)
    results.run()
    assert stale(results) == 0
    results.record(curves("auto", top=0.8))
    assert "method-auto.svg" in stale(results)
    results.run()
    assert stale(results) == 0
    (results.FIGURES / "method-auto.svg").unlink()
    assert stale(results) == "not up to date, run `make docs`: method-auto.svg"


def test_a_method_page_shows_its_figure_once_there_is_one(results):
    page = results.METHOD_PAGES / "crab.md"
    empty = page.read_text()
    results.run()
    assert page.read_text() == empty
    results.record(curves("crab"))
    assert "crab.md" in stale(results)
    results.run()
    (inside,) = [text for _, text in MARKER.findall(page.read_text())]
    assert "](../figures/method-crab.svg)" in inside
    assert "`run it`" in inside
    assert page.read_text().endswith("<!-- end -->\n\nMore.\n")
    page.write_text(page.read_text().replace("`run it`", "`run that`"))
    assert stale(results) == "not up to date, run `make docs`: crab.md"
    results.record(curves("auto"))
    results.run()
    assert page.read_text() == empty


def test_the_captions_of_the_front_figure_are_of_its_record():
    spec = importlib.util.spec_from_file_location("results", ROOT / "docs" / "results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    record = json.loads((module.DOCUMENTS / "figure-attack-curves.json").read_text())
    figures = module.front(Document.from_record(record))[module.FRONT]
    (curves,) = [f for f in record["figures"] if f["title"] == "mnist: accuracy (%) by round"]
    whole = {series["name"]: series["x"][-1] for series in curves["series"]}
    last = {s.name: s.x[-1] for figure in figures for s in figure.series}
    said = (
        f"MNIST, {FULL.peers} peers, {FULL.typical} of them with a backdoor, up to round "
        f"{last['with the attackers']:.0f} of {whole['poisoned']:.0f}"
    )
    done = f"he recovery is done after {last['recovered without']:.0f} rounds"
    for page in ("README.md", "docs/README.md"):
        text = " ".join((ROOT / page).read_text().split())
        assert said in text
        assert done in text
    curved, tabled = (REPRODUCTIONS[name] for name in ("figure-attack-curves", "table-3"))
    assert curved.cells(FULL) == tabled.cells(FULL), "the runs of the table below"


def test_the_front_page_has_its_figure_in_words(results):
    results.record(curves("crab"))
    results.run()
    assert not (results.FIGURES / "front.svg").exists(), "there is no recovery to show"
    results.record(curves("auto", "crab"))
    assert "front.svg" in stale(results)
    results.run()
    drawn = (results.FIGURES / "front.svg").read_text()
    assert "recovered without" in drawn
    assert "crab" not in drawn
    assert stale(results) == 0
    results.record(curves("auto", top=0.8))
    assert "front.svg" in stale(results)


def test_a_long_table_is_folded_and_every_document_linked(results):
    def table(rows):
        return Table(
            title=f"{rows} rows",
            columns=columns("n"),
            rows=[[n] for n in range(rows)],
            command="",
        )

    found = Document(
        name="bound", title="Theorem 1: how far?", summary=[], tables=[table(50), table(51)]
    )
    results.record(found)
    results.run()
    text = results.PAGE.read_text()
    assert "- [Theorem 1: how far?](#theorem-1-how-far)" in text
    assert "**50 rows**\n\n| n |" in text
    folded = text.partition("<details><summary><b>51 rows</b> (51 rows)</summary>\n\n| n |")[2]
    assert "\n| 50 |\n\n</details>" in folded


def test_tables_are_made_of_cells_by_key_and_of_their_numbers(tmp_path, monkeypatch):
    tables = script("tables")
    names = ("methods", "adam", "verdict", "hours", "shares")
    before = {name: tables.TABLES[name]() for name in names}
    shutil.copytree(ROOT / "results", tmp_path / "results")
    monkeypatch.setattr(tables, "RESULTS", tmp_path / "results")
    for path in (tmp_path / "results" / "reproductions").glob("*.json"):
        document = json.loads(path.read_text())
        for table in document["tables"]:
            for column in table["columns"]:
                column["heading"] = "something else"
        path.write_text(json.dumps(document))
    assert {name: tables.TABLES[name]() for name in names} == before
    path = tmp_path / "results" / "reproductions" / "table-3.json"
    document = json.loads(path.read_text())
    keys = [column["key"] for column in document["tables"][-1]["columns"]]
    document["tables"][-1]["rows"][0][keys.index("accuracy")] = "12.3"
    path.write_text(json.dumps(document))
    assert tables.TABLES["methods"]() != before["methods"]
