"""The report page in a real browser."""

import json
from dataclasses import replace
from pathlib import Path

import browser
import pytest
import simulated

from pdlrecover.experiments.analysis.document import Document, Figure, Series, Table
from pdlrecover.experiments.report.html import write_report
from pdlrecover.experiments.report.ledger_picture import LANES, lane_of
from pdlrecover.experiments.report.load import read_documents
from pdlrecover.experiments.report.palette import looks
from pdlrecover.recovery.methods import METHODS

RESULTS = Path(__file__).parents[3] / "results" / "backdoor"
NASTY = "</script><img src=x onerror=window.hurt=1>"

pytestmark = pytest.mark.skipif(
    browser.find() is None,
    reason="Chromium is not installed; `tests/chromium.sh` as root installs it on Debian",
)


def plans():
    """Return more series of points than there are colours; of each, two at the same place."""
    names = ["pdlrecover", "retrain", *(f"rival {i}" for i in range(20))]
    return [
        Series(
            name=name, x=[1, 1, i + 2], y=[1, 2, i], points=True, labels=["k=1", NASTY, f"k={i}"]
        )
        for i, name in enumerate(names)
    ]


def by_hand():
    """Return a document with all that the real one lacks: spread, gaps, points, a log axis."""
    x = [1.0, 2.0, 3.0, 4.0, 5.0]
    lines = [
        Series(name="pdlrecover", x=x, y=[10, 20, 30, 40, 50], spread=[1, 2, 3, 4, 5]),
        Series(name=NASTY, x=x, y=[5, 15, None, 35, 45]),
        Series(name="points", x=x, y=[1, 2, 3, 4, 5], points=True, labels=list("vwxyz")),
        Series(name="once", x=[5.0], y=[30.0]),
    ]
    errors = [Series(name="error", x=x, y=[1e-6, 1e-3, 0.0, 1.0, 100.0])]
    everybody = simulated.openings(81, 6440391, "160 kept peers together")
    return Document(
        name="hand",
        title=NASTY,
        summary=[NASTY, "A" * 300],
        figures=[
            Figure(title="Spread", x="round", y="accuracy (%)", series=lines, command="run " * 40),
            Figure(title="Log", x="round", y="error", series=errors, command="run it", log=True),
            Figure(title="Plans", x="rounds", y="accuracy", series=plans(), command="run it"),
        ],
        tables=[
            Table(
                title="Mixed",
                columns=simulated.columns("method", "seconds"),
                rows=[["b", 10], ["a", 9.5], ["c", None], ["d", 100]],
                command="run it",
            )
        ],
        ledger={
            "pdlrecover": {"fresh sums": everybody},
            "rival": {
                "removed sums": replace(everybody, of="the removed peers together"),
                "individual": simulated.openings(160, 12721760, "one peer"),
            },
            "certified-removal": {
                "head sums (all)": simulated.openings(7, 70, "all 200 peers together"),
                "fresh sums": simulated.openings(3, 30, "whoever was there"),
            },
        },
    )


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser.Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    documents = [*read_documents([RESULTS / "mnist-clear-0.json"]), by_hand()]
    return write_report(documents, tmp_path_factory.mktemp("page") / "report.html")


DRAW = """(async () => {
  const drawn = '.canvas svg:not(.still)';
  for (const figure of document.querySelectorAll('figure')) {
    figure.scrollIntoView();
    while (!figure.querySelector(drawn)) await new Promise(requestAnimationFrame);
  }
  scrollTo(0, 0);
})()"""
"""Charts are drawn when they come into view: brings all of them there."""


def drawn(chromium, documents, path):
    """Show a page of documents, with all of its charts drawn."""
    chromium.open(write_report(documents, path))
    chromium.run(DRAW)


@pytest.fixture
def page(chromium, path):
    chromium.open(path)
    chromium.run(DRAW)
    yield chromium
    assert chromium.complaints() == []
    assert chromium.run("window.hurt") is None
    assert chromium.requests() == [path.as_uri()]


def canvas(figure):
    return f"document.querySelectorAll('figure')[{figure}].querySelector('.canvas')"


def marks(layer):
    """Return the selector of what a layer of a chart draws; each says its series' name."""
    return f".{layer}_marks path"


def paths(page, figure):
    lines = f"[...{canvas(figure)}.querySelectorAll('{marks('lines')}')]"
    return page.run(f"{lines}.map(p => p.getAttribute('d')).filter(d => d.includes('L'))")


def names(page, figure):
    lines = f"[...{canvas(figure)}.querySelectorAll('{marks('lines')}')]"
    seen = "filter(p => p.getAttribute('d')).map(p => p.getAttribute('aria-label'))"
    return page.run(f"{lines}.{seen}")


def test_every_figure_has_its_series(page):
    record = json.loads((RESULTS / "mnist-clear-0.json").read_text())
    for figure in (0, 1):
        assert sorted(names(page, figure)) == sorted(record["methods"])
        lines = paths(page, figure)
        assert len(lines) == len(record["methods"])
        assert all("NaN" not in line and "Infinity" not in line for line in lines)
    longest = len(record["methods"]["retrain"]["curve"]["round"])
    assert max(line.count("L") + 1 for line in paths(page, 0)) == longest


def test_gaps_bands_points_and_logarithms_are_drawn(page):
    lines = paths(page, 2)
    assert [line.count("M") for line in lines] == [2, 1], "the line with a gap, and ours above it"
    count = f"{canvas(2)}.querySelectorAll('{{}}').length"
    assert page.run(count.format(marks("bands"))) == 1
    assert page.run(count.format(marks("points") + "[aria-label=points]")) == 5
    ends = f"[...{canvas(3)}.querySelectorAll('{marks('points')}')]"
    low, high = page.run(f"{ends}.map(p => p.getBoundingClientRect().top)")
    assert high < low
    labels = page.run(f"[...{canvas(3)}.querySelectorAll('text')].map(t => t.textContent)")
    assert {"0.01", "100", "10⁻⁶"} <= set(labels)


SHAPE = (
    "((p, size) => [p.getTotalLength(), ...(b => [b.x, b.y, b.width, b.height])(p.getBBox())]"
    ".map(n => (n / size).toFixed(1)).concat(getComputedStyle(p).fill).join())"
)
"""Of a point: how long its outline is, where it lies, and its colour as it is seen."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_points_of_more_series_than_colours_are_told_apart(page, scheme):
    page.run(f"document.documentElement.dataset.theme = '{scheme}'")
    points = f"[...{canvas(4)}.querySelectorAll('{marks('points')}')]"
    shapes = dict(page.run(f"{points}.map(p => [p.getAttribute('aria-label'), {SHAPE}(p, 4)])"))
    assert len(shapes) == len(set(shapes.values())) == len(plans())
    legend = page.run(
        "[...document.querySelectorAll('figure')[4].querySelectorAll('.legend button')].map(b => "
        f"[b.textContent, {SHAPE}(b.querySelector('path'), 1)])"
    )
    assert dict(legend) == shapes


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_follows_the_palette_and_no_two_lines_look_the_same(chromium, tmp_path, scheme):
    variants = ["auto:period=9", "Retrain-K", "accelerated-retrain:rounds=60", "somebody"]
    methods = ["poisoned", *METHODS, *variants]
    lines = [Series(name=name, x=[1, 2], y=[i, i + 1]) for i, name in enumerate(methods)]
    figure = Figure(title="All", x="round", y="accuracy", series=lines, command="")
    document = Document(name="d", title="d", summary=[], figures=[figure])
    drawn(chromium, [document], tmp_path / "report.html")
    chromium.run(f"document.documentElement.dataset.theme = '{scheme}'")
    found = chromium.run(
        f"[...document.querySelectorAll('{marks('lines')}')].map(p => ["
        "p.getAttribute('aria-label'), "
        "[getComputedStyle(p).stroke, p.getAttribute('stroke-dasharray') ?? '']])"
    )
    shade = ["light", "dark"].index(scheme)
    expected = {
        name: [
            "rgb({}, {}, {})".format(*bytes.fromhex(look.colour[shade][1:])),
            ",".join(map(str, look.dash)),
        ]
        for name, look in looks(methods).items()
    }
    assert dict(found) == expected
    assert len({tuple(look) for look in expected.values()}) == len(methods)


def test_rounds_can_be_seen_on_a_logarithmic_scale(page):
    figure = "document.querySelectorAll('figure')[2]"
    button = f"{figure}.querySelector('.scales button')"
    line = f"{figure}.querySelector('{marks('lines')}[aria-label=pdlrecover]')"
    places = f"[...{line}.getAttribute('d').matchAll(/([0-9.]+),/g)].map(m => Number(m[1]))"
    even = page.run(places)
    assert even[1] - even[0] == pytest.approx(even[4] - even[3], abs=0.2)
    assert page.run(f"({button}.click(), {button}.getAttribute('aria-pressed'))") == "true"
    uneven = page.run(places)
    assert (uneven[0], uneven[4]) == pytest.approx((even[0], even[4]), abs=0.2)
    assert uneven[1] - uneven[0] == pytest.approx(uneven[3] - uneven[1], abs=0.2), "1, 2 and 4"
    page.run(f"{button}.click()")
    assert page.run(places) == even
    assert page.run("document.querySelectorAll('figure')[4].querySelector('.scales button')") is (
        None
    ), "no points, and not by round"


def test_the_round_before_the_first_is_left_out_of_a_logarithmic_scale(chromium, tmp_path):
    line = Series(name="a", x=[0, 1, 10], y=[1, 2, 3])
    figure = Figure(title="t", x="round", y="y", series=[line], command="")
    document = Document(name="d", title="d", summary=[], figures=[figure])
    drawn(chromium, [document], tmp_path / "report.html")
    assert paths(chromium, 0)[0].count("L") == 2
    chromium.run("document.querySelector('.scales button').click()")
    assert paths(chromium, 0)[0].count("L") == 1
    assert "NaN" not in paths(chromium, 0)[0]


@pytest.mark.parametrize("width", [400, 1200])
def test_large_numbers_at_the_end_of_an_axis_are_not_cut(chromium, tmp_path, width):
    scaling = read_documents([RESULTS.parent / "reproductions" / "scaling.json"])
    drawn(chromium, scaling, tmp_path / "report.html")
    chromium.resize(width)
    edges = chromium.run(
        "[...document.querySelectorAll('.plot text')].map(t => [t.textContent, "
        "t.ownerSVGElement.getBoundingClientRect().right - t.getBoundingClientRect().right])"
    )
    chromium.resize(1280)
    assert "1,000,000" in dict(edges)
    assert [text for text, room in edges if room < 0] == []


def test_a_line_of_one_value_is_a_point_in_the_legend_too(page):
    figure = "document.querySelectorAll('figure')[2]"
    once = f"{figure}.querySelectorAll('{marks('points')}[aria-label=once]').length"
    assert page.run(once) == 1
    swatches = f"[...{figure}.querySelectorAll('.legend path')].map(p => p.hasAttribute('fill'))"
    assert page.run(swatches) == [False, False, True, True]


def test_a_series_is_switched_off_and_on_again(page):
    button = "document.querySelectorAll('figure')[0].querySelectorAll('.legend button')[3]"
    before = names(page, 0)
    assert page.run(f"{button}.textContent") == "pdlrecover"
    assert page.run(f"({button}.click(), {button}.getAttribute('aria-pressed'))") == "false"
    assert names(page, 0) == [name for name in before if name != "pdlrecover"]
    assert names(page, 1) == before, "the other figure keeps it"
    assert page.run(f"({button}.focus(), document.activeElement === {button})")
    for kind in ("keyDown", "keyUp"):
        page.call(
            "Input.dispatchKeyEvent",
            type=kind,
            key="Enter",
            code="Enter",
            text="\r",
            windowsVirtualKeyCode=13,
        )
    assert page.run(f"{button}.getAttribute('aria-pressed')") == "true"
    assert names(page, 0) == before


HOME = {"key": "Home", "code": "Home", "windowsVirtualKeyCode": 36}


def test_pointing_at_a_curve_shows_its_values(page):
    left, top, width, height = page.run(
        "(svg => (svg.scrollIntoView({block: 'center'}), (r => [r.left, r.top, r.width, r.height])"
        f"(svg.getBoundingClientRect())))({canvas(2)})"
    )
    page.call(
        "Input.dispatchMouseEvent", type="mouseMoved", x=left + width - 25, y=top + height / 2
    )
    tip = "document.querySelectorAll('.tip')[2].innerText"
    assert page.run(tip).startswith("round 5\n")
    assert "50 ± 5" in page.run(tip)
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
    assert page.run(tip) == ""
    assert page.run("getComputedStyle(document.querySelectorAll('.tip')[2]).display") == "none"
    page.run(f"{canvas(2)}.focus()")
    page.call("Input.dispatchKeyEvent", type="keyDown", **HOME)
    assert page.run(tip).startswith("round 1\n")
    assert page.run(tip).endswith("points\t1\nv")


def test_every_point_at_a_place_is_read_with_its_label(page):
    page.run(f"{canvas(4)}.focus()")
    page.call("Input.dispatchKeyEvent", type="keyDown", **HOME)
    labels = page.run("[...document.querySelectorAll('.tip .label')].map(l => l.textContent)")
    count = len(plans())
    assert labels == [NASTY] * count + ["k=1"] * count
    assert page.run(f"{canvas(4)}.querySelectorAll('{marks('read')}').length") == 2 * count
    assert page.run("document.documentElement.scrollWidth <= innerWidth")


def column(page, table, index):
    rows = f"document.querySelectorAll('main .document > .table table')[{table}].tBodies[0].rows"
    return page.run(f"[...{rows}].map(row => row.cells[{index}].textContent)")


def test_a_table_is_sorted_by_its_headings(page):
    head = "document.querySelectorAll('main .document > .table table')[2].tHead.rows[0].cells[{}]"
    press = f"({head}.querySelector('button').click(), {head}.getAttribute('aria-sort'))"
    assert column(page, 2, 0) == ["b", "a", "c", "d"]
    assert page.run(press.format(1, 1)) == "ascending"
    assert column(page, 2, 0) == ["a", "b", "d", "c"], "by number, and what is missing last"
    assert page.run(press.format(1, 1)) == "descending"
    assert column(page, 2, 0) == ["d", "b", "a", "c"]
    assert page.run(press.format(0, 0)) == "ascending"
    assert column(page, 2, 0) == ["a", "b", "c", "d"]
    assert page.run(f"{head.format(1)}.getAttribute('aria-sort')") == "none"


LONG = "document.querySelector('.fold')"


@pytest.fixture
def long(chromium, tmp_path):
    """Return a page with a table that is as long and as wide as the widest of ours."""
    columns = ["optimizer", "dataset", "attack", "method", *(f"number {i}" for i in range(14))]
    rows = [["adam", "fashion-mnist", "leavers", f"rival-{i}", *[1000 - i] * 14] for i in range(60)]
    short = Table(
        title="Short", columns=simulated.columns("method", "of"), rows=[["a", 1]] * 40, command=""
    )
    table = Table(title="Long", columns=simulated.columns(*columns), rows=rows, command="run it")
    document = Document(name="d", title="d", summary=[], tables=[short, table])
    chromium.open(write_report([document], tmp_path / "report.html"))
    yield chromium
    chromium.resize(1280)


def scrolled(page):
    """Return where the held headings begin in the table's window once it is scrolled."""
    return page.run(
        "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => {"
        f" const wide = {LONG}.querySelector('.wide'); wide.scrollLeft = 300;"
        " const at = e => Math.round(e.getBoundingClientRect().left"
        " - wide.getBoundingClientRect().left);"
        " const [body, head] = ['tbody tr', 'thead'].map(s => "
        " [...wide.querySelector(s).querySelectorAll('.held')].map(at));"
        " done([head, body, wide.querySelector('.edge').getBoundingClientRect().right"
        " - wide.getBoundingClientRect().left, wide.clientWidth]) })))"
    )


def test_what_a_row_is_stays_beside_it(long):
    long.run(f"{LONG}.open = true")
    head, body, right, width = scrolled(long)
    assert head == body
    assert head[0] == 0
    assert sorted(head) == head
    assert right < 0.6 * width
    long.resize(400)
    head, body, right, width = scrolled(long)
    assert head == body
    assert max(head[:3]) < 0, "on a phone only the method stays"
    assert head[3] == 0
    assert right < 0.6 * width


def test_a_long_table_is_folded_and_sorts(long):
    assert long.run("document.querySelectorAll('.fold').length") == 1
    assert long.run(f"[{LONG}.open, {LONG}.querySelector('summary').textContent]") == (
        [False, "60 rows of 18 columns"]
    )
    first = f"{LONG}.querySelector('tbody tr').cells[3].textContent"
    long.run(f"({LONG}.open = true, {LONG}.querySelectorAll('thead button')[9].click())")
    assert long.run(first) == "rival-59"
    long.run(f"{LONG}.open = false")
    long.run(f"addEventListener('beforeprint', () => {{ window.printed = {LONG}.open }})")
    long.call("Page.printToPDF")
    assert long.run(f"[window.printed, {LONG}.open]") == [True, False]


def test_a_table_says_that_it_goes_on_to_the_side(long):
    long.run(f"{LONG}.open = true")
    says = "[...document.querySelectorAll('.hint')].map(h => getComputedStyle(h).display)"
    scrolled(long)
    assert long.run(says) == ["none", "block"]
    shade = f"getComputedStyle({LONG}.querySelector('.sideways'), '::after').content"
    assert long.run(shade) == '""'
    assert long.run(f"{LONG}.querySelector('.sideways').classList.contains('right')")


def test_the_theme_follows_the_system_until_it_is_chosen(page, path):
    background = "getComputedStyle(document.body).backgroundColor"
    scheme = {"name": "prefers-color-scheme", "value": "dark"}
    light = page.run(background)
    page.call("Emulation.setEmulatedMedia", features=[scheme])
    dark = page.run(background)
    assert dark != light
    page.call("Emulation.setEmulatedMedia", features=[])
    assert page.run(f"(document.getElementById('theme').click(), {background})") == dark
    page.open(path)
    assert page.run(background) == dark, "remembered"
    assert page.run(f"(document.getElementById('theme').click(), {background})") == light


def test_the_ledger_tells_sums_from_single_updates(page):
    picture = "document.querySelectorAll('.picture')[{}]"
    assert page.run(f"{picture.format(0)}.querySelectorAll('.count.single').length") == 0
    assert page.run(f"{picture.format(1)}.querySelector('.count.single').textContent") == "160"
    assert page.run(f"{picture.format(1)}.querySelector('.count.kept').textContent") == "81"
    assert page.run(f"{picture.format(1)}.querySelectorAll('th.lane').length") == 5


def test_only_sums_over_kept_peers_are_said_to_be_such(page):
    counts = (
        "[...document.querySelectorAll('.picture')[1].querySelectorAll('.count')]"
        ".map(t => [t.classList[1], t.textContent])"
    )
    lanes = {"kept": "81", "removed": "81", "single": "160", "all": "7", "other": "3"}
    assert dict(page.run(counts)) == lanes
    assert len(page.run(counts)) == len(lanes)
    wording = {
        "160 kept peers together": "kept",
        "150 to 160 kept peers together": "kept",
        "all 200 peers together": "all",
        "the removed peers together": "removed",
        "one peer": "single",
        "peers that were kept and removed": "other",
    }
    assert {of: lane_of(of) for of in wording} == wording


def test_a_ledger_of_many_kinds_is_not_cut(chromium, tmp_path):
    ledger = read_documents([RESULTS.parent / "reproductions" / "ledger.json"])
    chromium.open(write_report(ledger, tmp_path / "report.html"))
    texts = chromium.run(
        "[...document.querySelectorAll('.picture :is(th, td)')].map(t => [t.innerText, "
        "t.getBoundingClientRect().right, t.closest('.wide').getBoundingClientRect().right])"
    )
    titles = {text.removeprefix("Σ").strip() for text, *_ in texts}
    assert set(LANES.values()) - {LANES["other"]} <= titles
    assert [text for text, right, edge in texts if right > edge + 1] == []


def test_the_command_is_copied(page):
    for name in ("clipboard-write", "clipboard-read"):
        page.call("Browser.setPermission", permission={"name": name}, setting="granted")
    says = (
        "new Promise(done => { const copy = document.querySelector('.copy');"
        " new MutationObserver(() => done(copy.textContent)).observe(copy, {childList: true});"
        " copy.click() })"
    )
    assert page.run(says) == "Copied"
    assert page.run("navigator.clipboard.readText()").startswith("pdlrecover simulate --dataset")


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_is_wider_than_the_window(page, width):
    page.resize(width)
    page.run(DRAW)
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    outside = (
        "[...document.querySelectorAll('main *, header *')].filter(e => !e.closest('.wide, pre'))"
        ".filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML)"
    )
    assert page.run(outside) == []
    box = "getBoundingClientRect()"
    cut = (
        f"[...document.querySelectorAll('main svg text')].map(t => [t, t.ownerSVGElement.{box}])"
        f".filter(([t, svg]) => t.{box}.right > svg.right + 1 || t.{box}.left < svg.left - 1)"
        ".map(([t]) => t.textContent)"
    )
    assert page.run(cut) == []


@pytest.mark.parametrize("width", [390, 1280])
def test_every_column_of_every_table_can_be_reached(page, width):
    page.resize(width)
    page.run("document.querySelectorAll('details').forEach(d => (d.open = true))")
    hidden = page.run(
        "[...document.querySelectorAll('.wide')].map(wide => {"
        " wide.scrollLeft = wide.scrollWidth;"
        " const edge = e => e.getBoundingClientRect().right;"
        " const ends = [...wide.querySelectorAll('tr')].filter(r => r.offsetWidth)"
        "   .map(r => edge(r.lastElementChild));"
        " return [wide.innerText.slice(0, 40), Math.max(...ends) - edge(wide), edge(wide)] })"
        f".filter(([, over, right]) => over > 1 || right > {width})"
    )
    assert hidden == []
    assert page.run("document.documentElement.scrollWidth <= innerWidth")


CONTRAST = """(() => {
  const part = c => (c /= 255, c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const rgb = text => text.match(/[0-9.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const found = rgb(getComputedStyle(e).backgroundColor);
      if (found.length < 4 || found[3] > 0) return found;
    }
  };
  const said = e => [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  return [...document.querySelectorAll('body *:not(script, style, noscript, svg *)')]
    .filter(e => said(e) && e.offsetWidth).map(e => {
      const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))];
      const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      return [e.className, e.textContent.slice(0, 30), contrast];
    }).filter(([, , contrast]) => contrast < 4.5);
})()"""
"""The texts that stand out less from what is behind them than WCAG asks for (AA)."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(page, scheme):
    page.call(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
    )
    found = page.run(CONTRAST)
    page.call("Emulation.setEmulatedMedia", features=[])
    assert found == []


@pytest.mark.parametrize("width", [390, 1280])
def test_no_legend_is_taller_than_its_chart(chromium, tmp_path, width):
    names = [f"accelerated-retrain:optimizer=adam+rounds={i}" for i in range(24)]
    lines = [Series(name=name, x=[1, 2], y=[i, i + 1]) for i, name in enumerate(names)]
    figure = Figure(title="All", x="round", y="accuracy", series=lines, command="")
    document = Document(name="d", title="d", summary=[], figures=[figure] * 2)
    chromium.open(write_report([document], tmp_path / "report.html"), width=width)
    chromium.run(DRAW)
    legend, chart, _, inside = chromium.run(
        "(f => [f.querySelector('.legend').offsetHeight, f.querySelector('.canvas').offsetHeight,"
        " (f.querySelector('.legend button:last-child').scrollIntoView(), 0),"
        " f.querySelector('.legend button:last-child').getBoundingClientRect().bottom"
        " <= f.querySelector('.legend').getBoundingClientRect().bottom + 1])"
        "(document.querySelector('figure'))"
    )
    chromium.resize(1280)
    assert 0 < legend < chart
    assert inside, "the last name can be reached"


def test_on_paper_all_series_are_there_and_no_buttons(page):
    before = names(page, 0)
    page.run("document.querySelector('.legend button').click()")
    assert len(names(page, 0)) == len(before) - 1
    count = f"{canvas(0)}.querySelectorAll('{marks('lines')}:not([d=\"\"])').length"
    page.run(f"addEventListener('beforeprint', () => {{ window.printed = {count} }})")
    page.call("Page.printToPDF")
    assert page.run("window.printed") == len(before)
    assert len(names(page, 0)) == len(before) - 1, "as it was"
    page.call("Emulation.setEmulatedMedia", media="print")
    for selector in ("#theme", ".copy"):
        shown = f"getComputedStyle(document.querySelector('{selector}')).display"
        assert page.run(shown) == "none"
    legend = "getComputedStyle(document.querySelector('.legend button')).borderStyle"
    assert page.run(legend) == "none"
    page.call("Emulation.setEmulatedMedia", media="")


@pytest.mark.parametrize("beforehand", [True, False])
def test_charts_are_drawn_when_they_come_near_or_are_printed(
    chromium, tmp_path, monkeypatch, beforehand
):
    if not beforehand:
        monkeypatch.setattr("pdlrecover.experiments.report.html.ROOM", 0)
    line = Series(name="a", x=[1, 2], y=[1, 2])
    figure = Figure(title="t", x="round", y="y", series=[line], command="")
    document = Document(name="d", title="d", summary=[], figures=[figure] * 30)
    chromium.open(write_report([document], tmp_path / "report.html"))
    drawn = "document.querySelectorAll('.canvas svg:not(.still)').length"
    there = "document.querySelectorAll('.canvas:has(svg)').length"
    chromium.run("new Promise(requestAnimationFrame)")
    assert 0 < chromium.run(drawn) < 30
    assert (chromium.run(there) == 30) == beforehand
    chromium.run(f"addEventListener('beforeprint', () => {{ window.printed = {there} }})")
    chromium.call("Page.printToPDF")
    assert chromium.run("window.printed") == 30
    assert (chromium.run(drawn) < 30) == beforehand
    assert chromium.complaints() == []


def test_the_policy_lets_the_page_fetch_nothing_and_make_no_code(chromium, path):
    chromium.open(path)
    assert chromium.run("fetch('data:,x').then(() => 'fetched', () => 'refused')") == "refused"
    made = "(() => { try { return new Function('return 1')() } catch (e) { return e.name } })()"
    assert chromium.run(made) == "EvalError"
