"""Figures of result records, as SVG files."""

from pathlib import Path
from typing import Any

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


def _pyplot() -> Any:
    """Return matplotlib, which is slow to import, set up for files without a screen."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plot

    return plot


def _save(figure: Any, path: Path) -> Path:
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    _pyplot().close(figure)
    return path
