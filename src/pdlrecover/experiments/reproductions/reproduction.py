"""What a reproduction is: the cells it needs, and the document it makes of their results."""

from collections.abc import Callable
from dataclasses import dataclass

from pdlrecover.experiments.analysis.results import Results
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.report.document import Document
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
