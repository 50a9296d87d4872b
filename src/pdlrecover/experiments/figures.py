"""Figures of result records, as SVG files."""

from pathlib import Path
from typing import Any

from pdlrecover.experiments.document import Figure

ORIGINAL = "poisoned"


def draw_curves(result: dict[str, Any], path: Path) -> Path:
    """Draw accuracy, and backdoor success where there is one, of every method by rounds."""
    plot = _pyplot()
    methods = result["methods"]
    backdoor = any(entry["attack_success"] is not None for entry in methods.values())
    figure, axes = plot.subplots(
        1, 2 if backdoor else 1, figsize=(11 if backdoor else 6, 4), squeeze=False
    )
    panels = [("accuracy", "accuracy (%)")] + [
        ("attack_success", "backdoor success (%)")
    ] * backdoor
    for axis, (key, label) in zip(axes[0], panels, strict=True):
        for name, entry in methods.items():
            curve = entry["curve"]
            values = [None if v is None else 100 * v for v in curve[key]]
            style = {"lw": 2.4} if name in ("pdlrecover", "retrain", ORIGINAL) else {"lw": 1.1}
            axis.plot(curve["round"], values, label=name, **style)
        axis.set(xlabel="round", ylabel=label, ylim=(0, 100))
        axis.grid(alpha=0.3)
    axes[0][0].legend(fontsize=7, loc="lower right")
    return _save(figure, path)


def draw_panels(figures: list[Figure], path: Path) -> Path:
    """Draw figures of one kind side by side, with one legend."""
    plot = _pyplot()
    drawing, axes = plot.subplots(
        1, len(figures), figsize=(1 + 4 * len(figures), 3.8), squeeze=False
    )
    names = list(dict.fromkeys(s.name for figure in figures for s in figure.series))
    colours = {name: f"C{i % 10}" for i, name in enumerate(names)}
    for axis, figure in zip(axes[0], figures, strict=True):
        for series in figure.series:
            y = [float("nan") if v is None else v for v in series.y]
            dashed = names.index(series.name) >= 10  # the ten colours are used up
            style = "o" if series.points else "--" if dashed else "-"
            colour = colours[series.name]
            axis.plot(series.x, y, style, label=series.name, color=colour, lw=1.3, ms=3.5)
            if series.spread is not None and not series.points:
                spread = [0.0 if v is None else v for v in series.spread]
                low = [a - b for a, b in zip(y, spread, strict=True)]
                high = [a + b for a, b in zip(y, spread, strict=True)]
                axis.fill_between(series.x, low, high, color=colour, alpha=0.15, lw=0)
        axis.set(xlabel=figure.x, ylabel=figure.y)
        axis.set_title(figure.title.split(":")[0], fontsize=9)
        axis.grid(alpha=0.3)
        if figure.log:
            axis.set_yscale("log")
    axes[0][0].legend(fontsize=6)
    return _save(drawing, path)


def _pyplot() -> Any:
    """Return matplotlib, which is slow to import, set up for files without a screen."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "pdlrecover"
    mpl.rcParams["svg.fonttype"] = "none"
    import matplotlib.pyplot as plot

    return plot


def _save(figure: Any, path: Path) -> Path:
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    _pyplot().close(figure)
    return path
