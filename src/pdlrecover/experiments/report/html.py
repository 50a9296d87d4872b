"""The report page: documents as one HTML file that needs nothing else, and no network.

Rules:

- Everything written in a record is text: it is escaped here, and the script only ever sets text.
- Text, tables and the ledger are plain HTML, so that they are there without the script; it draws
  the charts, whose specifications are embedded as JSON, sorts, and switches.
- Charts are there without it too, as they were drawn beforehand, unless that makes the page larger
  than `ROOM`; the script replaces them.
- A content security policy allows the page's own style and scripts, by their digests, and nothing
  else: no request can leave it, and no text becomes code.
"""

import base64
import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from pdlrecover.errors import RecordError
from pdlrecover.experiments.analysis.cells import numeric, places, shown, without_gaps
from pdlrecover.experiments.analysis.cells import value as number
from pdlrecover.experiments.analysis.comparison import standing_out
from pdlrecover.experiments.analysis.document import Cell, Document, Fact, Figure, Row, Table
from pdlrecover.experiments.analysis.format import listed
from pdlrecover.experiments.report.figures import (
    coincident,
    config,
    page_chart,
    runtime,
    still,
    swatches,
)
from pdlrecover.experiments.report.ledger_picture import picture
from pdlrecover.experiments.report.palette import is_ours, style
from pdlrecover.files import make_folder, write_whole

SCRIPTS = ("chart.js", "table.js", "page.js")
SEVERAL = "PDLRecover report"
"""The title of a page with more than one document."""
METHOD = "method"
"""The key of columns that name methods."""
LEDGER = {
    True: ("Who saw what", "Everything that was opened, and so seen by all peers."),
    False: (
        "Who would see what",
        "Nothing was shared in what is shown here (--clear): this is what would be opened on "
        "shares, and so seen by all peers.",
    ),
}
"""The title and the first words of the ledger, by whether anything was shared."""
LONG = 40
"""Tables of more rows are folded."""
ROOM = 2_500_000
"""Bytes of a page; one that is larger has no charts that were drawn beforehand."""
HELD = 5
"""The most columns that stay in place when a table is scrolled; the style knows no more."""


def write_report(documents: Sequence[Document], path: Path) -> Path:
    """Write the page of these documents; return where it is."""
    page = render(documents)
    make_folder(path.parent, RecordError)
    write_whole(path, page, RecordError)
    return path


def render(documents: Sequence[Document]) -> str:
    """Return the page of these documents."""
    page = _page(documents, iter(()))
    stills, room = [], ROOM - len(page.encode())
    for figure in [figure for document in documents for figure in _drawn(document)]:
        stills.append(still(figure))
        room -= len(stills[-1].encode())
        if room < 0:
            return page
    whole = _page(documents, iter(stills))
    return whole if len(whole.encode()) <= ROOM else page


def _page(documents: Sequence[Document], stills: Iterator[str]) -> str:
    """Return the page, with the charts that were drawn beforehand in turn, if there are any."""
    styles = style() + _part("page.css")
    script = "\n".join(['"use strict";', *map(_part, SCRIPTS)])
    title = documents[0].title if len(documents) == 1 else SEVERAL
    return Template(_part("page.html")).substitute(
        title=escape(title),
        style=styles,
        style_digest=_digest(styles),
        runtime=runtime(),
        runtime_digest=_digest(runtime()),
        script=script,
        script_digest=_digest(script),
        contents=_contents(documents) if len(documents) > 1 else "",
        body="\n".join(_section(d, i, len(documents) > 1, stills) for i, d in enumerate(documents)),
        charts=embedded(_charts([f for document in documents for f in _drawn(document)])),
    )


def embedded(value: Any) -> str:
    """Return JSON that may stand inside a script element: `<`, `>` and `&` are written as escapes.

    JSON knows no infinity and no nan: they become null.
    """
    text = json.dumps(_finite(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _charts(figures: Sequence[Figure]) -> dict[str, Any]:
    """Return the charts of the page; layers, of which there are few, stand there once."""
    layers: list[Any] = []
    charts = [page_chart(figure) for figure in figures]
    for chart in charts:
        if chart["layer"] not in layers:
            layers.append(chart["layer"])
        chart["layer"] = layers.index(chart["layer"])
    return {"config": config(), "layers": layers, "charts": charts}


def _contents(documents: Sequence[Document]) -> str:
    """Return the page in short: what each document says first, with a link to the rest of it."""
    links = "".join(
        f'<li><a href="#document-{i}">{escape(document.title)}</a>'
        + "".join(f"<p>{escape(s)}</p>" for s in document.summary[document.key :][:1])
        + "</li>"
        for i, document in enumerate(documents)
    )
    return f'<nav aria-labelledby="short"><h2 id="short">In short</h2><ol>{links}</ol></nav>'


def _section(document: Document, index: int, titled: bool, stills: Iterator[str]) -> str:
    parts = _tables(document)
    every = [part.command for part in parts] + [figure.command for figure in _drawn(document)]
    commands = dict.fromkeys(command for command in every if command)
    once = len(commands) == 1
    figures = "".join(
        _figure(figure, next(stills, ""), commanded=not once) for figure in _drawn(document)
    )
    best = None if document.comparison is None else standing_out(document.comparison)
    tables = [_table(table, best, commanded=not once) for table in parts]
    first = tables[: document.comparison is not None]
    made = [
        f'<section class="document" id="document-{index}">',
        f"<h2>{escape(document.title)}</h2>" if titled else "",
        '<div class="summary">',
        *(
            f"{'<p class=key>' if i == document.key else '<p>'}{escape(sentence)}</p>"
            for i, sentence in enumerate(document.summary)
        ),
        "</div>",
        f'<dl class="facts">{"".join(map(_fact, document.facts))}</dl>' if document.facts else "",
        *first,
        f'<div class="figures">{figures}</div>' if figures else "",
        *tables[len(first) :],
        _ledger(document, best) if document.ledger else "",
        f"<div><h3>Run it again</h3>{_command(*commands)}</div>" if once else "",
        f'<p class="origin">{escape(document.note)}</p>' if document.note else "",
        "</section>",
    ]
    return "\n".join(part for part in made if part)


def _drawn(document: Document) -> list[Figure]:
    """Return the figures of a document in which there is anything."""
    return [figure for figure in document.figures if figure.series]


def _tables(document: Document) -> list[Table]:
    """Return all tables of a document, the comparison first."""
    return [*([document.comparison] if document.comparison else []), *document.tables]


def _fact(fact: Fact) -> str:
    note = f"<dd>{escape(fact.note)}</dd>" if fact.note else ""
    return (
        f'<div><dt>{escape(fact.label)}</dt><dd class="value">{escape(fact.value)}</dd>{note}</div>'
    )


def _figure(figure: Figure, drawn: str, *, commanded: bool) -> str:
    legend = "".join(f"<span>{swatch}{escape(name)}</span>" for swatch, name in swatches(figure))
    scale = '<button type="button" aria-pressed="false">Logarithmic rounds</button>'
    # A logarithm may help with lines by round, where some end long before others.
    lines = "round" in figure.x.split() and not all(series.points for series in figure.series)
    label = escape(f"{figure.title}: {figure.y} by {figure.x}. Arrow keys read the values.")
    return (
        f"<figure><figcaption><h3>{escape(figure.title)}</h3></figcaption>"
        '<div class="legend" role="group" aria-label="Series">'
        f"{legend if drawn else ''}</div>"
        f"{_hidden(figure)}"
        f'<div class="plot"><div class="canvas" tabindex="0" role="img" aria-label="{label}">'
        f"{drawn or '<noscript>Curves are drawn by a script.</noscript>'}</div>"
        '<div class="tip" role="status"></div></div>'
        f'<div class="scales">{scale if lines else ""}</div>'
        f"{_note(figure.note)}{_command(figure.command) if commanded else ''}</figure>"
    )


def _hidden(figure: Figure) -> str:
    """Say which lines cannot be seen, because they lie on others all along."""
    found = [f"{listed(above)} on {under}" for under, above in coincident(figure).items()]
    return (
        f'<p class="note coincident">On top of each other: {escape("; ".join(found))}.</p>'
        if found
        else ""
    )


def _table(table: Table, best: str | None, *, folded: bool = True, commanded: bool = True) -> str:
    table = without_gaps(table)
    decimals = [places(table, column) for column in range(len(table.columns))]
    held = _held(table)
    kinds = [_kind(table, column, held) for column in range(len(table.columns))]
    head = "".join(
        f'<th scope="col" aria-sort="none"{kind}><button type="button">{escape(name)}</button></th>'
        for name, kind in zip(table.headings, kinds, strict=True)
    )
    body = "".join(_row(row, decimals, kinds, _stands_out(table, row, best)) for row in table.rows)
    made = (
        '<div class="sideways"><p class="hint">Scroll sideways for more columns →</p>'
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(table.title)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></div>"
    )
    if folded and len(table.rows) > LONG:
        size = f"{len(table.rows):,} rows of {len(table.columns)} columns"
        made = f'<details class="fold"><summary>{size}</summary>{made}</details>'
    return (
        f'<div class="table"><h3>{escape(table.title)}</h3>{made}'
        f"{_note(table.note)}{_command(table.command) if commanded else ''}</div>"
    )


def _held(table: Table) -> int:
    """Return how many columns say what a row is: those up to the method, or the first."""
    place = table.keys.index(METHOD) if METHOD in table.keys else 0
    return place + 1 if place < HELD else 1


def _stands_out(table: Table, row: Sequence[Cell], best: str | None) -> bool:
    """Say whether a row is of the best method, or of ours where none is known to be the best."""
    return any(
        key == METHOD and isinstance(cell, str) and (cell == best if best else is_ours(cell))
        for key, cell in zip(table.keys, row, strict=True)
    )


def _row(row: Sequence[Cell], decimals: Sequence[int], kinds: Sequence[str], best: bool) -> str:
    cells = []
    for column, (cell, digits, kind) in enumerate(zip(row, decimals, kinds, strict=True)):
        tag = 'th scope="row"' if column == 0 else "td"
        text = escape(shown(cell, digits))
        exact = number(cell) if "number" in kind else None
        there = "" if exact is None or text == str(exact) else f' data-value="{exact}"'
        cells.append(f"<{tag}{kind}{there}>{text}</{tag[:2]}>")
    mark = ' class="best"' if best else ""
    return f"<tr{mark}>{''.join(cells)}</tr>"


def _ledger(document: Document, best: str | None) -> str:
    rows: list[Row] = [
        {METHOD: method, "opened": kind, **vars(entry)}
        for method, opened in document.ledger.items()
        for kind, entry in opened.items()
    ]
    table = Table.from_rows("Openings", rows, {}, "")
    title, told = LEDGER[document.shared]
    return (
        f'<div class="ledger"><h3>{title}</h3><p>{told} A sum over many peers hides each '
        "of them; a single peer’s update shows what its data did.</p>"
        f"{picture(document.ledger)}"
        f"<details><summary>The same as a table</summary>{_table(table, best, folded=False)}"
        "</details></div>"
    )


def _command(command: str) -> str:
    if not command:
        return ""
    return (
        f'<div class="command"><pre><code>{escape(command)}</code></pre>'
        '<button type="button" class="copy">Copy</button></div>'
    )


def _note(note: str) -> str:
    return f'<p class="note">{escape(note)}</p>' if note else ""


def _kind(table: Table, column: int, held: int) -> str:
    """Return the class of a column's cells: a number, and held in place, the last at the edge."""
    kinds = ["number"] * numeric(table, column) + ["held"] * (column < held)
    kinds += ["edge"] * (column == held - 1)
    return f' class="{" ".join(kinds)}"' if kinds else ""


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: _finite(each) for key, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
        case _:
            return value


def _part(name: str) -> str:
    return files("pdlrecover.experiments.report").joinpath("page", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
