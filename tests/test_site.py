"""The documents as a site, and the links between them."""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from test_documents import script

import pdlrecover

ROOT = Path(__file__).parents[1]
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")
CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src"}
"""What a browser gets by itself when it shows a page."""


class Parts(HTMLParser):
    """The ids of a page, where its links lead, and what a browser gets for it."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.fetched = set(), set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.ids |= {values["id"]} if "id" in values else set()
        self.links |= {values["href"]} if tag == "a" and "href" in values else set()
        place = values.get(FETCHED.get(tag, ""))
        self.fetched |= {place} if place and values.get("rel") != "canonical" else set()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site") / "site"
    command = [sys.executable, ROOT / "docs" / "build_site.py", out]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return {
        page.relative_to(out).as_posix(): Parts(page.read_text("utf-8"))
        for page in out.glob("**/*.html")
    }, out


@pytest.mark.slow
def test_links_and_anchors_of_the_site_lead_somewhere(site):
    pages, out = site
    assert len(pages) > 70
    wrong = []
    for name, page in pages.items():
        for link in page.links:
            if name == "404.html" or re.match(r"\w+:", link):
                continue  # that page is shown anywhere, and its links begin at the root
            path, _, anchor = link.partition("#")
            target = (out / name).parent.joinpath(path).resolve() if path else out / name
            target = target / "index.html" if target.is_dir() else target
            goal = pages.get(target.relative_to(out.resolve()).as_posix())
            if not target.is_file() or (anchor and goal and anchor not in goal.ids):
                wrong.append((name, link))
    assert wrong == []


@pytest.mark.slow
def test_the_site_gets_nothing_from_elsewhere(site):
    pages, _ = site
    assert {place for page in pages.values() for place in page.fetched if "//" in place} == set()


@pytest.mark.slow
def test_everything_that_can_be_imported_is_in_the_reference(site):
    pages, _ = site
    ids = {name.rpartition(".")[2] for name in pages["reference/api.html"].ids}
    assert set(pdlrecover.__all__) - {"__version__"} <= ids


@pytest.fixture
def builder(tmp_path, monkeypatch):
    """Return the script that builds the site, at work on documents of its own."""
    module = script("build_site")
    docs = tmp_path / "docs"
    (docs / "decisions").mkdir(parents=True)
    for name in module.ALSO_PAGES:
        (tmp_path / name).write_text("# A page\n")
    (docs / "README.md").write_text("# Home\n\n[Data](../data.json), [why](decisions/)\n")
    (docs / "decisions" / "README.md").write_text("# Why\n\n[How](../../CONTRIBUTING.md#how)\n")
    (docs / "decisions" / "0001.md").write_text("# First\n")
    (tmp_path / "data.json").write_text("{}")
    (tmp_path / "mkdocs.yml").write_text(
        "nav:\n  - README.md\n  - decisions/README.md\n  - decisions/*\n"
    )
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "DOCS", docs)
    monkeypatch.setattr(module, "CONFIG", tmp_path / "mkdocs.yml")
    return module


def test_links_out_of_the_docs_lead_to_copies_and_pages(builder, tmp_path):
    builder.stage(tmp_path / "out")
    copy = tmp_path / "out" / "docs"
    assert "(repository/data.json), [why](decisions/README.md)" in (copy / "README.md").read_text()
    assert (copy / "repository" / "data.json").read_text() == "{}"
    assert "(../CONTRIBUTING.md#how)" in (copy / "decisions" / "README.md").read_text()
    nav = (tmp_path / "out" / "mkdocs.yml").read_text()
    assert nav.count("  - decisions/README.md\n  - decisions/0001.md") == 1


def test_a_page_that_is_not_in_the_menu_is_an_error(builder, tmp_path):
    (builder.DOCS / "lost.md").write_text("# Lost\n")
    with pytest.raises(SystemExit, match=r"not in the nav of mkdocs.yml: lost.md"):
        builder.stage(tmp_path / "out")


def test_a_link_that_leads_nowhere_is_an_error(builder, tmp_path):
    (builder.DOCS / "README.md").write_text("[Gone](gone.md)\n")
    with pytest.raises(SystemExit, match=r"README.md links to gone.md, which is not there"):
        builder.stage(tmp_path / "out")


def test_every_page_is_in_the_menu(tmp_path):
    script("build_site").stage(tmp_path)
    shutil.rmtree(tmp_path)


def anchors(text):
    """Return the names of a page's headings, as GitHub and the site make them."""
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", each) for each in HEADING.findall(text))
    return {re.sub(r"[^\w\- ]", "", each.strip().lower()).replace(" ", "-") for each in plain}


def test_links_with_an_anchor_lead_to_a_heading():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    texts = {page.resolve(): CODE.sub("", page.read_text("utf-8")) for page in pages}
    wrong, seen = [], 0
    for page, text in texts.items():
        for path, anchor in LINK.findall(text):
            target = page.parent.joinpath(path).resolve() if path else page
            if anchor and target in texts:
                seen += 1
                if anchor not in anchors(texts[target]):
                    wrong.append(f"{page.name}: {path}#{anchor}")
    assert wrong == []
    assert seen > 50
