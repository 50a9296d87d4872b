"""Writes `docs/results.md` and its figures from the committed documents: `make docs`.

The documents are what `pdlrecover reproduce` wrote, in `results/reproductions`. A method's figure
goes into its page in `docs/methods` as well, between `<!-- figure: method -->` and `<!-- end -->`;
nothing stands there as long as it has none. With `--check` nothing is written, and the exit code
says whether the pages and the drawings are up to date.
"""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

from pdlrecover.experiments.analysis.document import Document, Figure, Series, Table
from pdlrecover.experiments.analysis.format import listed
from pdlrecover.experiments.experiment.result import POISONED
from pdlrecover.experiments.report.figures import SHOWN_POINTS, draw_panels, fresh
from pdlrecover.experiments.report.palette import KNOWN, NAMED, Look
from pdlrecover.experiments.reproductions import REPRODUCTIONS
from pdlrecover.experiments.reproductions.attacks import JUDGED
from pdlrecover.recovery.methods import DEFAULT, REFERENCE

ROOT = Path(__file__).parents[1]
DOCUMENTS = ROOT / "results" / "reproductions"
FIGURES = ROOT / "docs" / "figures"
PAGE = ROOT / "docs" / "results.md"
METHOD_PAGES = ROOT / "docs" / "methods"
LONGEST = 70
"""Rows of a table; longer ones are cut down to the methods that are judged."""
FOLDED = 50
"""Rows of a table; longer ones are folded."""
PANELS = (
    "accuracy (%) by",
    "backdoor success (%) by",
    "backdoor above retrain (points) by",
    "remembered by exact",
    "Milliseconds of a round",
    "Distance to retraining",
)
"""Figures whose titles have one of these are drawn, all datasets of a kind side by side."""
COMPARED = (POISONED, REFERENCE)
FRONT = "front.svg"
"""The drawing on the front page: what a recovery is, on one dataset."""
FRONT_DATASET, FRONT_ROUNDS = "mnist", 201
"""What the front page shows, and up to which round."""
FRONT_NAMES = {
    POISONED: "with the attackers",
    REFERENCE: "retrained without",
    DEFAULT: "recovered without",
}
FRONT_STYLES = {
    FRONT_NAMES[POISONED]: KNOWN[POISONED],
    FRONT_NAMES[REFERENCE]: Look(NAMED["ink"], dash=(2, 4)),
    FRONT_NAMES[DEFAULT]: Look(NAMED["ours"]),
}
STYLES = {FRONT: FRONT_STYLES}
"""Drawings whose series are not called like methods, and how they look."""
HEAD = """# Results

What `pdlrecover reproduce all` found; everything below is written from the documents in
`results/reproductions` by `make docs`. The same as a page to point and click at:
`pdlrecover report results/reproductions`.
[Where our setting differs from the paper's, and why](reproduction.md).
"""


def documents() -> list[Document]:
    """Return what is there, in the order of the reproductions."""
    paths = [DOCUMENTS / f"{name}.json" for name in REPRODUCTIONS]
    return [Document.from_record(json.loads(p.read_text())) for p in paths if p.exists()]


def page(found: list[Document]) -> str:
    """Return the whole page."""
    parts = [HEAD]
    missing = [name for name in REPRODUCTIONS if name not in {d.name for d in found}]
    if missing:
        parts.append(f"Not run in full yet: {', '.join(missing)}.\n")
    parts += [*(f"- [{document.title}](#{anchor(document.title)})" for document in found), ""]
    for document in found:
        parts += [f"## {document.title}\n", *(f"- {line}" for line in document.summary), ""]
        for name, figures in panels(document).items():
            parts.append(f"![{document.title}](figures/{name})\n")
            if figures[0].y.startswith("accuracy") and any(s.points for s in figures[0].series):
                parts.append(
                    f"What is more than {SHOWN_POINTS} points under the best is not shown.\n"
                )
        for table in document.tables:
            parts += [*markdown(table), ""]
        parts += [document.note, ""] if document.note else []
        commands = {part.command for part in (*document.tables, *document.figures)}
        parts += [f"`{command}`" for command in sorted(commands)] + [""]
    return "\n".join(parts)


def markdown(table: Table) -> list[str]:
    """Return a table; of a long one only the rows of the main methods."""
    rows, note = table.rows, table.note
    if len(rows) > LONGEST and "method" in table.keys:
        place = table.keys.index("method")
        rows = [row for row in rows if str(row[place]).split(":")[0] in JUDGED]
        note = f"{note} The rows of {', '.join(JUDGED)}; all are in the document.".strip()
    lines = [f"| {' | '.join(table.headings)} |"]
    lines.append("|---" * len(table.columns) + "|")
    lines += [f"| {' | '.join('–' if c is None else str(c) for c in row)} |" for row in rows]
    if len(rows) > FOLDED:
        title = f"<details><summary><b>{table.title}</b> ({len(rows)} rows)</summary>"
        return [title, "", *lines, *(["", note] if note else []), "", "</details>"]
    return [f"**{table.title}**", "", *lines, *(["", note] if note else [])]


def anchor(title: str) -> str:
    """Return the name by which a heading is linked to."""
    return "".join(c for c in title.lower() if c.isalnum() or c in " -").replace(" ", "-")


def panels(document: Document) -> dict[str, list[Figure]]:
    """Return the drawings of a document by file name: figures that differ in the dataset only."""
    groups: dict[str, list[Figure]] = {}
    for figure in document.figures:
        kind = next((part for part in PANELS if part in figure.title), None)
        if kind is None or "seconds" in figure.title:
            continue
        about = figure.title.split(":")[0].partition(", ")[2]
        words = f"{document.name} {about} {figure.title.split(': ')[-1]}"
        name = "-".join("".join(c if c.isalnum() else " " for c in words).lower().split())
        groups.setdefault(f"{name}.svg", []).append(figure)
    return groups


def methods(document: Document) -> dict[str, list[Figure]]:
    """Return for every method a drawing of its curves beside the original's and retraining's."""
    figures = [f for f in document.figures if PANELS[0] in f.title]
    names = dict.fromkeys(s.name for f in figures for s in f.series if s.name not in COMPARED)
    return {
        f"method-{name}.svg": [
            replace(f, series=[s for s in f.series if s.name in (*COMPARED, name)]) for f in figures
        ]
        for name in names
    }


def front(document: Document) -> dict[str, list[Figure]]:
    """Return the drawing of the front page, in words instead of names of methods."""

    def started(series: Series) -> Series:
        """Return the beginning of a line, under its name in words."""
        last = sum(x <= FRONT_ROUNDS for x in series.x)
        cut = {key: getattr(series, key)[:last] for key in ("x", "y")}
        return replace(series, name=FRONT_NAMES[series.name], spread=None, **cut)

    shown = [f for f in document.figures if f.title.startswith(f"{FRONT_DATASET}: ")]
    chosen = [[s for s in f.series if s.name in FRONT_NAMES] for f in shown]
    if not shown or any(len(series) < len(FRONT_NAMES) for series in chosen):
        return {}
    return {
        FRONT: [
            replace(f, title=f.title.upper(), x="round", series=[started(s) for s in series])
            for f, series in zip(shown, chosen, strict=True)
        ]
    }


def drawings(found: list[Document]) -> dict[str, list[Figure]]:
    """Return all drawings by file name."""
    every = {name: figures for d in found for name, figures in panels(d).items()}
    for curves in (d for d in found if d.name == "figure-attack-curves"):
        every |= methods(curves) | front(curves)
    return every


def with_figures(text: str, drawn: dict[str, list[Figure]]) -> str:
    """Return a method's page with its figures, those that there are."""

    def filled(found: re.Match[str]) -> str:
        method = found[1]
        figures = drawn.get(f"method-{method}.svg", [])
        lines = [f"<!-- figure: {method} -->"]
        if figures:
            beside = f"{method} beside {listed(list(COMPARED))}"
            lines += [
                f"![Accuracy by round: {beside}](../figures/method-{method}.svg)",
                "",
                f"Accuracy by round, {beside}: `{figures[0].command}`",
            ]
        return "\n".join([*lines, "<!-- end -->"])

    return re.sub(r"<!-- figure: (\S+) -->.*?<!-- end -->", filled, text, flags=re.DOTALL)


def main() -> None:
    """Write or check the pages and the drawings."""
    found = documents()
    drawn = drawings(found)
    texts = {PAGE: page(found)}
    texts |= {p: with_figures(p.read_text(), drawn) for p in sorted(METHOD_PAGES.glob("*.md"))}
    pages = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    stale = [
        name
        for name, figures in drawn.items()
        if not fresh(figures, FIGURES / name, STYLES.get(name))
    ]
    if "--check" in sys.argv:
        names = [*(path.name for path in pages), *stale]
        sys.exit(f"not up to date, run `make docs`: {', '.join(names)}" if names else 0)
    for path in pages:
        path.write_text(texts[path])
    for name in stale:
        draw_panels(drawn[name], FIGURES / name, STYLES.get(name))


if __name__ == "__main__":
    main()
