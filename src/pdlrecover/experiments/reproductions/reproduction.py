"""What a reproduction is: the cells it needs, and the document it makes of their results."""

from collections.abc import Callable
from dataclasses import dataclass

from pdlrecover.experiments.analysis.results import Results
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.report.document import Column, Document
from pdlrecover.experiments.reproductions.scale import Scale

BLOCKS = (
    "After SGD PDLRecover estimates up to 5 rounds from one opening, where the paper opens "
    "something in every round."
)
"""A difference from the paper that tables of PDLRecover must tell."""
SHORT = (
    "A quick run shows that everything runs: the promises are about longer ones, and its verdicts "
    "mean nothing."
)
"""What to say of verdicts on quick runs."""
HEADINGS = {
    "accuracy": "accuracy (%)",
    "minus_retrain": "minus retrain (points)",
    "worst_seed": "worst seed (points)",
    "backdoor": "backdoor (%)",
    "above_retrain": "backdoor above retrain (points)",
    "megabytes": "MB sent per peer",
}
"""The headings of columns by their keys, where they are not the keys themselves."""


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A table or figure by name."""

    name: str
    title: str
    cells: Callable[[Scale], list[Config]]
    document: Callable[[Scale, Results], Document]


def command(name: str, scale: Scale) -> str:
    """Return what to type to get a reproduction."""
    return f"pdlrecover reproduce {name}{scale.flags}"


def columns(*keys: str, **headings: str) -> list[Column]:
    """Return columns with these keys, headed as given here, in `HEADINGS`, or by their keys."""
    known = {**HEADINGS, **headings}
    return [Column(key=key, heading=known.get(key, key.replace("_", " "))) for key in keys]
