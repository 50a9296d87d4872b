"""Figures of result records, as SVG files.

A drawing carries a digest of what it was drawn from, the numbers and this file, so that `fresh` can
say whether it is up to date without drawing it again.
"""

import hashlib
import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pdlrecover.experiments.report.document import Figure
from pdlrecover.experiments.report.palette import Look, looks, palette

ORIGINAL = "poisoned"
MARKERS = "os^DvX"
"""The shapes of points."""
SHOWN_POINTS = 12
"""Of accuracies drawn as points, what lies so many points under the best, or less, is shown."""


def draw_curves(result: dict[str, Any], path: Path) -> Path:
    """Draw accuracy, and backdoor success where there is one, of every method by rounds."""
    plot = _pyplot()
    methods = result["methods"]
    backdoor = any(entry["attack_success"] is not None for entry in methods.values())
    figure, axes = plot.subplots(
        1, 2 if backdoor else 1, figsize=(11 if backdoor else 6, 4), squeeze=False
    )
    styles = looks(methods)
    panels = [("accuracy", "accuracy (%)")] + [
        ("attack_success", "backdoor success (%)")
    ] * backdoor
    for axis, (key, label) in zip(axes[0], panels, strict=True):
        for name, entry in methods.items():
            curve = entry["curve"]
            values = [math.nan if v is None else 100 * v for v in curve[key]]
            width = 2.4 if name in ("pdlrecover", "retrain", ORIGINAL) else 1.1
            axis.plot(
                curve["round"], values, label=name, lw=width, ms=5, **drawn(styles[name], values)
            )
        axis.set(xlabel="round", ylabel=label, ylim=(0, 100))
        axis.grid(alpha=0.3)
    axes[0][0].legend(fontsize=7, loc="lower right")
    return _save(figure, path)


def draw_panels(figures: list[Figure], path: Path) -> Path:
    """Draw figures of one kind side by side, with one legend beside them."""
    plot = _pyplot()
    drawing, axes = plot.subplots(
        1, len(figures), figsize=(2.5 + 4 * len(figures), 3.8), squeeze=False
    )
    styles = looks(s.name for figure in figures for s in figure.series)
    legend: dict[str, Any] = {}
    for axis, figure in zip(axes[0], figures, strict=True):
        for series in figure.series:
            y = [math.nan if v is None or (figure.log and v <= 0) else v for v in series.y]
            style = drawn(styles[series.name], y, points=series.points)
            (line,) = axis.plot(series.x, y, lw=1.3, ms=3.5, **style)
            legend.setdefault(series.name, line)
            if series.spread is not None and not series.points:
                spread = [0.0 if v is None else v for v in series.spread]
                low = [a - b for a, b in zip(y, spread, strict=True)]
                high = [a + b for a, b in zip(y, spread, strict=True)]
                axis.fill_between(series.x, low, high, color=style["color"], alpha=0.15, lw=0)
        axis.set(xlabel=figure.x, ylabel=figure.y)
        axis.set_title(figure.title.split(":")[0], fontsize=9)
        axis.grid(alpha=0.3)
        if figure.log:
            axis.set_yscale("log")
        if figure.y.endswith("(%)"):  # a band may be wider than what can be
            low, high = axis.get_ylim()
            axis.set_ylim(max(low, -2), min(high, 102))
        values = [v for s in figure.series if s.points for v in s.y if v is not None]
        if figure.y.startswith("accuracy") and values:
            axis.set_ylim(max(axis.get_ylim()[0], max(values) - SHOWN_POINTS), max(values) + 1)
    beside = {"loc": "upper left", "bbox_to_anchor": (1.02, 1), "borderaxespad": 0}
    axes[0][-1].legend(legend.values(), legend.keys(), fontsize=7, **beside)
    return _save(drawing, path, digest(figures))


def drawn(look: Look, y: list[float], *, points: bool = False) -> dict[str, Any]:
    """Return how matplotlib draws a series of this look.

    A line shows nothing of a value that has no neighbour, so those get a marker.
    """
    marker = MARKERS[look.shape]
    style: dict[str, Any] = {"color": look.colour[0]}
    if points:
        return {**style, "ls": "", "marker": marker}
    style |= {"ls": (0, look.dash) if look.dash else "-", "dash_capstyle": "round"}
    around = [math.nan, *y, math.nan]
    lone = [i for i in range(len(y)) if _alone(*around[i : i + 3])]
    return {**style, "marker": marker, "markevery": lone} if lone else style


def _alone(before: float, value: float, after: float) -> bool:
    return not math.isnan(value) and math.isnan(before) and math.isnan(after)


def digest(figures: list[Figure]) -> str:
    """Return what a drawing of these figures by this file, in these colours, is known by."""
    values = json.dumps([asdict(figure) for figure in figures], sort_keys=True)
    return hashlib.sha256(
        (values + Path(__file__).read_text() + json.dumps(palette())).encode()
    ).hexdigest()


def fresh(figures: list[Figure], path: Path) -> bool:
    """Say whether the drawing in a file is the one that `draw_panels` would make of these."""
    return path.exists() and f"<dc:description>{digest(figures)}<" in path.read_text()


def _pyplot() -> Any:
    """Return matplotlib, which is slow to import, set up for files without a screen."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "pdlrecover"
    mpl.rcParams["svg.fonttype"] = "none"
    import matplotlib.pyplot as plot

    return plot


def _save(figure: Any, path: Path, description: str | None = None) -> Path:
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None, "Description": description})
    _pyplot().close(figure)
    return path
