"""The ledger as a picture: a table with a lane for sums over many peers, and one for single ones.

Peers in a ring are seen only together; peers without a ring are seen one by one. The picture is
HTML, with drawings in SVG, so that it needs no script: lanes lie side by side, and on a phone
every method is a block of its own.
"""

import math
import re
from collections import Counter
from html import escape
from typing import NamedTuple

from pdlrecover.engines.ledger import Openings
from pdlrecover.experiments.report.palette import is_ours

KINDS = ("fresh sums", "stored sums", "directions", "dot products", "removed sums", "individual")
LANES = {
    "kept": "One sum over all kept peers",
    "all": "Sum over all peers",
    "removed": "Sum over removed peers",
    "other": "Others: see the table",
    "single": "Single peers’ updates",
}
WORDINGS = {
    r"one peer.*": "single",
    r"\d+( to \d+)? kept peers together": "kept",
    r"all \d+ peers together": "all",
    r"the removed peers together": "removed",
}
"""How a ledger says whose values an opening is of."""
DENSE = 7
"""With more columns than this the picture leaves out what the table below it says as well."""


class Column(NamedTuple):
    """A kind of openings, of the peers of a lane."""

    lane: str
    kind: str

    def order(self) -> tuple[int, int, str]:
        """Return where it stands: by lanes, then by kinds, those that are not in KINDS last."""
        place = KINDS.index(self.kind) if self.kind in KINDS else len(KINDS)
        return list(LANES).index(self.lane), place, self.kind

    def title(self) -> str:
        """Return its heading, without the peers, whom the lane names."""
        own = self.kind == "individual"
        return "own updates" if own else re.sub(r" \((kept|all|removed)\)$", "", self.kind)


def lane_of(of: str) -> str:
    """Return the lane of an opening, by whose values it is of; unknown wordings have their own."""
    return next((lane for said, lane in WORDINGS.items() if re.fullmatch(said, of)), "other")


def picture(ledger: dict[str, dict[str, Openings]]) -> str:
    """Return the picture of a ledger: methods down, kinds of openings across."""
    found = {Column("single", "individual")} | {
        Column(lane_of(entry.of), kind)
        for opened in ledger.values()
        for kind, entry in opened.items()
    }
    columns = sorted(found, key=Column.order)
    heads = "".join(
        f'<th scope="colgroup" class="lane {lane}" colspan="{count}">{_meaning(lane)}'
        f"<span>{LANES[lane]}</span></th>"
        for lane, count in Counter(column.lane for column in columns).items()
    )
    kinds = "".join(f'<th scope="col" class="{c.lane}">{escape(c.title())}</th>' for c in columns)
    rows = "".join(_method(name, opened, columns) for name, opened in ledger.items())
    dense = " dense" if len(columns) > DENSE else ""
    return (
        f'<div class="wide"><table class="picture{dense}"><thead>'
        f"<tr><td></td>{heads}</tr><tr><td></td>{kinds}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _method(name: str, opened: dict[str, Openings], columns: list[Column]) -> str:
    kept = (re.match(r"(\d+) kept", entry.of) for entry in opened.values())
    peers = next((f"{int(found[1]):,} peers" for found in kept if found), "")
    head = f'<th scope="row">{escape(name)}<small>{peers}</small></th>'
    ours = ' class="ours"' if is_ours(name) else ""
    return f"<tr{ours}>{head}{''.join(_cell(opened, column) for column in columns)}</tr>"


def _cell(opened: dict[str, Openings], column: Column) -> str:
    """Return a drawing and counts; for nothing a dash, and words if it is no single update."""
    entry = opened.get(column.kind)
    title = f' data-kind="{escape(column.title())}"'
    if entry is None or not entry.openings or lane_of(entry.of) != column.lane:
        nothing = "none" if column.lane == "single" else "–"
        return f'<td class="{column.lane} nothing"{title}><small>{nothing}</small></td>'
    return (
        f'<td class="{column.lane}"{title}><div>{_peers(column.lane, entry.openings)}'
        f'<span><b class="count {column.lane}">{entry.openings:,}</b>'
        f'<small>{_compact(entry.numbers)}<span class="unit"> numbers</span></small>'
        "</span></div></td>"
    )


def _peers(lane: str, count: int) -> str:
    """Return seven peers: in a ring if seen together, apart if not; larger for more openings."""
    radius = min(17, 7 + 2.1 * math.log10(max(1, count)))
    ring = "" if lane == "single" else '<circle class="ring" r="6.5"/>'
    reach = 5.2 if lane == "single" else 3.6
    turns = (math.pi * k / 3 for k in range(6))
    around = [(reach * math.cos(turn), reach * math.sin(turn)) for turn in turns]
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1"/>' for x, y in [(0, 0), *around])
    size = f'width="{2 * radius:.0f}" height="{2 * radius:.0f}"'
    return f'<svg viewBox="-7 -7 14 14" {size} aria-hidden="true">{ring}{dots}</svg>'


def _meaning(lane: str) -> str:
    """Return what a lane means: peers, how their updates flow, and the eye that sees them."""
    single = lane == "single"
    parts = []
    for y in (-15, -5, 5, 15):
        to = f"L68,{y * 0.45:.1f}" if single else f"C28,{y} 24,0 34,0"
        parts.append(f'<circle cx="5" cy="{y}" r="2.6"/><path d="M9,{y}{to}"/>')
    if not single:
        parts.append('<circle class="ring" cx="45" r="11"/><text x="45" y="5.5">Σ</text>')
        parts.append('<path d="M57,0H68"/>')
    parts.append('<path d="M72,0Q83,-12 94,0M72,0Q83,12 94,0"/><circle cx="83" r="3.2"/>')
    size = 'width="96" height="36"'
    return f'<svg viewBox="0 -18 96 36" {size} aria-hidden="true">{"".join(parts)}</svg>'


def _compact(number: int) -> str:
    """Return a count in short: 6.4M."""
    power = min(4, (len(str(number)) - 1) // 3)
    return f"{number / 1000**power:.1f}".removesuffix(".0") + " KMBT"[power].strip()
