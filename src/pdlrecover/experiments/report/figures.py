"""Charts: one Vega-Lite specification of a figure, for the report page and for the docs.

- `page_chart` is for the page, which draws it in the browser: it is as large as its holder, takes
  its colours from the page's theme, and has two signals. `hidden` names the series that are
  switched off, `place` is the x whose values are being read.
- `still` is that chart as an SVG, which the page shows until it is drawn, or without scripts.
- `draw_panels` writes figures side by side, with a legend, as an SVG file on white. The file holds
  a digest of its specification, so that `fresh` can tell whether it is up to date without drawing.

Both are made of the same layers, and of the same rows: one for each series, with its values and its
look. A line shows nothing of a value that has no neighbour, so every line ends in a dot.
"""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pdlrecover.experiments.analysis.document import Figure, Series
from pdlrecover.experiments.report.palette import NAMED, Look, Pair, css, is_ours, looks
from pdlrecover.extras import extra
from pdlrecover.recovery.methods import REFERENCE

Spec = dict[str, Any]
VEGA_LITE = "6.4"
DRAWING = "drawing charts"
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
"""The first is part of vl-convert: texts are measured alike on every machine."""
SHOWN_POINTS = 12
"""In the docs, accuracies drawn as points are shown down to this many points below the best."""
SIZE = (300, 230)
"""Width and height of a panel in the docs."""
STILL = (548, 340)
"""Width and height of a chart on the page that is drawn beforehand: as the largest there."""
ROW = 17
"""Height of a legend's row in the docs."""
VALUES = {"x": "x", "y": "value", "spread": "spread", "dot": "dot"}
"""What a row has for each value of a series, and what it is called once the row is unfolded."""
NUMBER: Spec = {"type": "quantitative"}
Y: Spec = {"y": {"field": "y", **NUMBER}}
BAND: Spec = {"y": {"field": "low", **NUMBER}, "y2": {"field": "high"}}
LINE: Spec = {"type": "line", "strokeCap": "round", "strokeJoin": "round"}
POINT: Spec = {"type": "point", "filled": True, "opacity": 1}
NEAR = 0.01
"""Lines that are closer than this, as a share of the chart's height, cannot be told apart."""
DIGITS = 6
"""Values are rounded to this many: nobody sees more, and the page is a good deal smaller."""


def page_chart(figure: Figure) -> Spec:
    """Return the chart of a figure for the page; `config` apart, which all charts share."""
    # A hidden series stays, without values: its place among the others is kept.
    seen = "indexof(hidden, datum.name) < 0 ? datum.value : null"
    chart = _panel(figure, looks(s.name for s in figure.series), css, seen=seen)
    chart["encoding"]["x"]["axis"]["tickCount"] = {"expr": "ceil(width / 80)"}
    here = [{"filter": "datum.x === place"}]
    rule = {"type": "rule", "color": css(NAMED["muted"]), "strokeDash": [2, 3], "aria": False}
    ring = {"type": "point", "fill": css(NAMED["card"]), "strokeWidth": 2, "size": 55, "opacity": 1}
    chart["layer"] += [
        {"name": "cursor", "transform": here, "mark": rule},
        {"name": "read", "transform": here, "mark": ring, "encoding": Y | _looking("shape")},
    ]
    return chart | {
        "params": [{"name": "hidden", "value": []}, {"name": "place", "value": None}],
        "title": {"text": figure.y},
        **dict.fromkeys(("width", "height"), "container"),
        "autosize": {"type": "fit", "contains": "padding"},
    }


def still(figure: Figure) -> str:
    """Return a figure for the page as an SVG element, for as long as no script has drawn it."""
    with extra("reports", DRAWING):
        import vl_convert

    width, height = STILL
    spec = page_chart(figure) | {"config": config(), "width": width, "height": height}
    drawn = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE)
    return drawn.replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "").replace(
        ' class="marks"', ' class="still"', 1
    )


def swatches(figure: Figure) -> list[tuple[str, str]]:
    """Return what stands in a figure's legend: an SVG of a line or a point, and the name."""
    known = looks(s.name for s in figure.series)
    return [(_swatch(_row(s, known[s.name], css, log=figure.log)), s.name) for s in figure.series]


def _swatch(row: Spec) -> str:
    dashes = " ".join(map(str, row["strokeDash"]))
    path = f'd="M1,5H21" stroke="{row["colour"]}" stroke-dasharray="{dashes}"'
    if "dotted" in row:
        place = "translate(11 5) scale(4)"
        path = f'd="{row["shape"]}" fill="{row["colour"]}" transform="{place}"'
    return f'<svg viewBox="0 0 22 10" aria-hidden="true"><path {path}/></svg>'


def config(colour: Callable[[Pair], str] = css) -> Spec:
    """Return how all charts look: in the colours of the page's theme, or in those given."""
    muted, line = colour(NAMED["muted"]), colour(NAMED["line"])
    size = {f"{part}FontSize": 11 for part in ("label", "title", "subtitle")}
    colours = {f"{part}Color": muted for part in ("label", "title", "tick", "domain", "subtitle")}
    plain = {"titleFontWeight": "normal", "gridColor": line}
    labelled = {"condition": {"test": "datum.label === ''", "value": 0}, "value": 1}
    number = {"labelExpr": _number("datum.value", "datum.label"), "gridOpacity": labelled}
    above = {"anchor": "start", "frame": "bounds", "offset": 10, "fontWeight": "normal"}
    return {
        **{"font": FONT, "background": None, "padding": 2, "view": {"stroke": None}},
        "axis": size | colours | plain | number,
        "axisX": {"grid": False, "titleAnchor": "end", "labelFlush": True},
        "axisY": {"domain": False, "ticks": False, "labelPadding": 6, "title": None},
        "title": size | colours | above | {"color": muted, "fontSize": 11},
    }


@cache
def runtime() -> str:
    """Return the script that draws charts in a browser: Vega, Vega-Lite and Vega-Embed."""
    with extra("reports", DRAWING):
        import vl_convert

    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)


def coincident(figure: Figure) -> dict[str, list[str]]:
    """Return the lines that lie on another all along, by the one that they lie on.

    They do if they have no place that the other lacks, and are nowhere further away from it than
    `NEAR` of the height of the chart. Of two that do, the first of the figure is the one below.
    """
    lines = [s for s in figure.series if not s.points and sum(v is not None for v in s.y) > 1]
    every = [v for s in figure.series for v in _heights(s, figure).values()]
    apart = NEAR * (max(every) - min(every)) if every else 0.0
    found: dict[str, list[str]] = {}
    hidden = set[str]()
    for under in lines:
        at = _heights(under, figure)
        for above in lines:
            if above is under or {above.name, under.name} & hidden:
                continue
            there = _heights(above, figure)
            if there.keys() <= at.keys() and all(abs(at[x] - y) <= apart for x, y in there.items()):
                found.setdefault(under.name, []).append(above.name)
                hidden.add(above.name)
    return found


def _heights(series: Series, figure: Figure) -> dict[float, float]:
    """Return where a series is drawn, by place: on a logarithmic axis by its logarithm."""
    there = {x: y for x, y in zip(series.x, series.y, strict=True) if y is not None}
    there = {x: y for x, y in there.items() if math.isfinite(y) and (y > 0 or not figure.log)}
    return {x: math.log10(y) if figure.log else y for x, y in there.items()}


def draw_panels(figures: list[Figure], path: Path, styles: dict[str, Look] | None = None) -> Path:
    """Draw figures of one kind side by side, with one legend beside them."""
    with extra("reports", DRAWING):
        import vl_convert

    spec = panels(figures, styles)
    head, end, rest = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE).partition(">")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{head}{end}<metadata>{_digest(spec)}</metadata>{rest}\n", encoding="utf-8")
    return path


def fresh(figures: list[Figure], path: Path, styles: dict[str, Look] | None = None) -> bool:
    """Say whether the drawing in a file is the one that `draw_panels` would make of these."""
    expected = f"<metadata>{_digest(panels(figures, styles))}<"
    return path.exists() and expected in path.read_text(encoding="utf-8")


def panels(figures: Sequence[Figure], styles: dict[str, Look] | None = None) -> Spec:
    """Return figures of one kind side by side, with one legend beside them.

    Series look as their methods do everywhere, unless `styles` says how each of them looks.
    """
    series = {s.name: s for figure in figures for s in figure.series}
    styles = styles or looks(series)
    return {
        "config": config(_light) | {"background": "#ffffff", "padding": 10},
        "spacing": 24,
        "hconcat": [
            _panel(figure, styles, _light, name=f"panel-{i}-", shown=_shown(figure))
            | {"width": SIZE[0], "height": SIZE[1]}
            | {"title": {"text": figure.title.split(":")[0], "subtitle": figure.y}}
            for i, figure in enumerate(figures)
        ]
        + [_legend([_row(s, styles[s.name], _light) for s in series.values()])],
    }


def _light(colour: Pair) -> str:
    return colour[0]


def _panel(
    figure: Figure,
    styles: dict[str, Look],
    colour: Callable[[Pair], str],
    *,
    seen: str = "datum.value",
    name: str = "",
    shown: list[float] | None = None,
) -> Spec:
    """Return the layers of a figure, named for its panel; what is not to be shown is cut off."""
    # Ours above the others, and thin retraining above ours: where they meet both are seen.
    rows = [
        _row(s, styles[s.name], colour, log=figure.log) | {"place": i}
        for i, s in enumerate(figure.series)
    ]
    rows.sort(key=lambda row: 2 if row["name"] == REFERENCE else "ours" in row)
    whole = all(float(x).is_integer() for s in figure.series for x in s.x)
    ticks = {"tickCount": 5, "tickMinStep": 1} if whole else {"tickCount": 5}
    scale: Spec = {"type": "log"} if figure.log else {"zero": False}
    layers = {
        "bands": ({"type": "area", "opacity": 0.14}, _band(figure), BAND | _looking()),
        "lines": (LINE, [{"filter": "!datum.points"}], Y | _looking("strokeDash", "strokeWidth")),
        "points": (POINT, [{"filter": "datum.points || datum.dot"}], Y | _looking("shape", "size")),
    }
    across = {"zero": False, "nice": False, "padding": 8}
    return {
        "data": {"values": rows},
        "transform": [
            {"flatten": list(VALUES), "as": list(VALUES.values())},
            {"calculate": seen, "as": "y"},
        ],
        "encoding": {
            "x": {"field": "x", **NUMBER, "title": figure.x, "scale": across, "axis": ticks},
            "y": NUMBER
            | {
                "scale": scale | ({"domain": shown} if shown else {}),
                "axis": {"tickCount": 5},
            },
        },
        "layer": [
            {
                "name": f"{name}{kind}",
                "mark": mark | {"clip": bool(shown)},
                "transform": transform,
                "encoding": encoding,
            }
            for kind, (mark, transform, encoding) in layers.items()
        ],
    }


def _legend(rows: list[Spec]) -> Spec:
    """Return the legend of a drawing: a piece of each line or a point of it, and its name."""
    lines, points = [{"filter": "!datum.dotted"}], [{"filter": "datum.dotted"}]
    rule = {"type": "rule", "x": 0, "x2": 26, "strokeCap": "round"}
    text = {"type": "text", "align": "left", "x": 32, "color": _light(NAMED["ink"])}
    line, point = _looking("strokeDash", "strokeWidth"), _looking("shape", "size")
    return {
        "name": "legend",
        "data": {"values": rows},
        "width": 160,
        "height": {"step": ROW},
        "encoding": {"y": {"field": "name", "type": "nominal", "sort": None, "axis": None}},
        "layer": [
            {"transform": lines, "mark": rule, "encoding": line},
            {"transform": points, "mark": POINT | {"x": 13}, "encoding": point},
            {"mark": text, "encoding": {"text": {"field": "name"}}},
        ],
    }


def _looking(*channels: str) -> Spec:
    """Return encodings that take the colour, and these channels, from a row as they are there."""
    made: Spec = {"detail": {"field": "name"}, "description": {"field": "name"}}
    for channel, field in [("color", "colour"), *((each, each) for each in channels)]:
        kind = "quantitative" if channel in ("strokeWidth", "size") else "nominal"
        made[channel] = {"field": field, "type": kind, "scale": None}
    return made


def _row(series: Series, look: Look, colour: Callable[[Pair], str], *, log: bool = False) -> Spec:
    """Return a series: its look, and its lists of VALUES, None where it has no value."""
    y = [v if v is not None and math.isfinite(v) and (v > 0 or not log) else None for v in series.y]
    ends = [int(v is not None and then is None) for v, then in zip(y, [*y[1:], None], strict=True)]
    ours, alone = is_ours(series.name), series.points or sum(v is not None for v in series.y) == 1
    banded = series.spread is not None and not series.points
    kinds = {"ours": ours, "points": series.points, "dotted": alone, "banded": banded}
    return {kind: True for kind, has in kinds.items() if has} | {
        "name": series.name,
        "colour": colour(look.colour),
        "strokeDash": list(look.dash),
        "strokeWidth": 3.6 if ours else 1.6,
        "shape": look.shape,
        "size": 64 if alone or ours else 40,
        "x": series.x,
        "y": _rounded(y),
        "spread": _rounded(series.spread or []),
        "dot": [] if series.points else ends,
        "labels": series.labels or [],
    }


def _rounded(values: list[float | None]) -> list[float | None]:
    return [v if v is None else float(f"{v:.{DIGITS}g}") for v in values]


def _band(figure: Figure) -> list[Spec]:
    """Return the ends of bands, within what values can be: above 0 for a logarithm, 0 to 100%."""
    low, high = "datum.y - datum.spread", "datum.y + datum.spread"
    if figure.log:
        low = f"datum.y > datum.spread ? {low} : datum.y"
    elif "%" in figure.y:
        low, high = f"max({low}, min(0, datum.y))", f"min({high}, max(100, datum.y))"
    return [
        {"filter": "datum.banded"},
        {"calculate": f"isValid(datum.y) ? {low} : null", "as": "low"},
        {"calculate": f"isValid(datum.y) ? {high} : null", "as": "high"},
    ]


def _shown(figure: Figure) -> list[float] | None:
    """Return which accuracies drawn as points are shown in the docs; None for all."""
    values = [v for s in figure.series if s.points for v in s.y if v is not None]
    if not values or not figure.y.startswith("accuracy"):
        return None
    return [max(min(values) - 1, max(values) - SHOWN_POINTS), max(values) + 1]


def _number(value: str, plain: str) -> str:
    """Return the expression of a number: powers of ten for the very large and the very small."""
    factor, power = (f"split(format({value}, '.2~e'), 'e')[{i}]" for i in range(2))
    size, digits = f"abs(toNumber({power}))", "'⁰¹²³⁴⁵⁶⁷⁸⁹'"
    raised = f"({power} < 0 ? '⁻' : '') + ({size} > 9 ? {digits}[floor({size} / 10)] : '')"
    raised += f" + {digits}[{size} % 10]"
    extreme = f"{value} && (abs({value}) < 1e-3 || abs({value}) >= 1e7)"
    return f"{extreme} ? ({factor} == '1' ? '' : {factor} + '·') + '10' + {raised} : {plain}"


def _digest(spec: Spec) -> str:
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()
