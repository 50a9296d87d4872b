"""What a reproduction is: the cells it needs, and the document it makes of their results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from pdlrecover.engines.ledger import Openings
from pdlrecover.experiments.analysis.comparison import compared, first
from pdlrecover.experiments.analysis.document import Cell, Document, Figure, Row, Series, Table
from pdlrecover.experiments.analysis.promises import above, gap, gaps, points
from pdlrecover.experiments.analysis.results import Results, number, percent
from pdlrecover.experiments.experiment.config import Config
from pdlrecover.experiments.experiment.result import RateName
from pdlrecover.experiments.reproductions.scale import LEAVERS, Scale
from pdlrecover.recovery.methods import OURS

BLOCKS = (
    "After SGD PDLRecover estimates up to 5 rounds from one opening, where the paper opens "
    "something in every round."
)
"""A difference from the paper that tables of PDLRecover must mention."""
SHORT = (
    "A quick run shows that everything runs: the promises are about longer ones, and its verdicts "
    "mean nothing."
)
"""What to say of verdicts on quick runs."""
ROUNDING = 1e-4
"""How much a mean of recorded rates may be off, in percent."""
HEADINGS = {
    "accuracy": "accuracy (%)",
    "minus_retrain": "minus retrain (points)",
    "worst_seed": "worst seed (points)",
    "backdoor": "backdoor (%)",
    "above_retrain": "backdoor above retrain (points)",
    "megabytes": "MB sent per peer",
}
"""The headings of columns by their keys, where they are not the keys themselves."""
MEASURES: dict[str, Callable[[Results, str], Cell]] = {
    "accuracy": Results.accuracy,
    "minus_retrain": lambda of, method: points(gap(of, method)),
    "worst_seed": lambda of, method: points(min(gaps(of, method), default=None)),
    "backdoor": lambda of, method: percent(of.mean(method, "attack_success")),
    "above_retrain": lambda of, method: points(above(of, method), 1),
    "remembered": lambda of, method: str(of.remembered(method) or "") or None,
    "exact_rounds": lambda of, method: number(of.mean(method, "exact_rounds"), 1),
}
"""What rows say of a method, by key."""


@dataclass(kw_only=True)
class Draft:
    """A document that is being written: every figure and table gets the command that makes it."""

    name: str
    title: str
    scale: Scale
    summary: list[str] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    ledger: dict[str, dict[str, Openings]] = field(default_factory=dict)
    note: str = ""
    earlier: Document | None = None
    """What an earlier command wrote, for curves that are not recorded."""

    def figure(
        self, title: str, x: str, y: str, series: list[Series], *, note: str = "", log: bool = False
    ) -> None:
        """Add a figure."""
        said = command(self.name, self.scale)
        self.figures.append(
            Figure(title=title, x=x, y=y, series=series, command=said, note=note, log=log)
        )

    def curve(self, of: Results, method: str, rate: RateName, title: str) -> Series | None:
        """Return a method's curve, or the earlier one if it ends where these results do."""
        found, end = of.curve(method, rate), of.mean(method, rate)
        if found is not None or end is None or self.earlier is None:
            return found
        lines = [s for f in self.earlier.figures if f.title == title for s in f.series]
        return next((s for s in lines if s.name == method and _ends_at(s, 100 * end.value)), None)

    def table(self, title: str, rows: Sequence[Row], *, note: str = "", **headings: str) -> None:
        """Add a table of rows by key; its columns are headed as given here, or in `HEADINGS`."""
        said = command(self.name, self.scale)
        self.tables.append(Table.from_rows(title, rows, {**HEADINGS, **headings}, said, note))


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A table or figure by name."""

    name: str
    title: str
    cells: Callable[[Scale], list[Config]]
    write: Callable[[Draft, Results], None]
    """Writes what the results of the cells show."""

    compares: bool = True
    """Whether its runs are about how good methods are, so that all of them are compared."""

    def document(self, scale: Scale, results: Results, earlier: Document | None = None) -> Document:
        """Return the document of these results; curves that they lack are the earlier one's.

        Where no sentence of it names the method that stands first in its comparison, one is added:
        before the others if they begin with ours.
        """
        draft = Draft(name=self.name, title=self.title, scale=scale, earlier=earlier)
        self.write(draft, results)
        made = {key: value for key, value in vars(draft).items() if key not in ("scale", "earlier")}
        document = Document(**made, shared=not results or any(not r.config.clear for r in results))
        if not results or not self.compares:
            return document
        table = compared(results, command(self.name, scale), judged=scale.promised)
        best, told = first(table), document.summary
        if best is not None and _family(best) not in " ".join(told).lower():
            ours = bool(told) and OURS in told[0].lower()
            told = [_does_best(best), *told] if ours else [*told, _does_best(best)]
        return replace(document, comparison=table, summary=told)


def _family(row: Row) -> str:
    """Return the method of which a row is, or is a variant."""
    return str(row["method"]).partition(":")[0]


def _does_best(row: Row) -> str:
    """Say which method stands first in a comparison, and with what."""
    gap, kept, rounds = (row.get(key) for key in ("minus_retrain", "kept", "exact_rounds"))
    told = [f"{row['accuracy']}%"] if "accuracy" in row else []
    told += [] if gap is None else [f"{gap:+g} points from retraining on average"]
    told += [] if rounds is None else [f"{rounds:,g} exact rounds"]
    told += [] if kept is None else [f"the promises kept in {kept} settings"]
    return f"Best of all that were run here is {row['method']}: {', '.join(told)}."


def _ends_at(line: Series, value: float) -> bool:
    """Say whether a line ends at a mean of recorded rates, in percent, which are rounded."""
    return bool(line.y) and line.y[-1] is not None and abs(line.y[-1] - value) < ROUNDING


def command(name: str, scale: Scale) -> str:
    """Return what to type to get a reproduction."""
    return f"pdlrecover reproduce {name}{scale.flags}"


def measured(of: Results, method: str, *keys: str) -> Row:
    """Return these of the `MEASURES` of a method."""
    return {key: MEASURES[key](of, method) for key in keys}


def rates(attack: str) -> dict[RateName, str]:
    """Return which rates are drawn, with their labels: leavers have no backdoor."""
    shown: dict[RateName, str] = {"accuracy": "accuracy (%)"}
    return shown if attack == LEAVERS else {**shown, "attack_success": "backdoor success (%)"}
