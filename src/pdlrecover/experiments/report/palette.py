"""How series look, on the page and in the docs: one palette, by the method's name.

1. Ours, retraining and the original have looks of their own.
2. Every other method of the registry has a place, in the registry's order. A place's hue is its
   remainder by the number of hues; dashes and shapes advance with it, and by one more each time
   the hues are used up, so that places of one hue, and neighbours, differ in them.
3. A variant (`auto:period=9`) looks like its method if no other series of the figure does.
4. Every other series takes the first place that no series of the figure has.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pdlrecover.experiments.experiment.result import POISONED, TRAINED
from pdlrecover.recovery.methods import METHODS, OURS, REFERENCE

Pair = tuple[str, str]
"""A colour on light paper, and on dark."""
NAMED: dict[str, Pair] = {
    "ours": ("#2a7fd2", "#5aaeff"),
    "ink": ("#1d2125", "#e6e7e4"),
    "alarm": ("#bd4308", "#ff8b59"),
    "muted": ("#5d656d", "#9ba3aa"),
    "line": ("#e3e4df", "#2d3238"),
    "card": ("#ffffff", "#1b1f23"),
}
"""Colours that the page's style and the charts both use."""
HUES: tuple[Pair, ...] = (
    ("#00694e", "#8ceca5"),
    ("#d36fb0", "#e5a9dd"),
    ("#72431e", "#a4704d"),
    ("#813f98", "#9f6bbc"),
    ("#828d4b", "#73810e"),
    ("#0a9aa6", "#2fc9c4"),
    ("#685775", "#688996"),
    ("#b88a00", "#f2cf4d"),
    ("#c4164f", "#ff5c86"),
    ("#3a2fa3", "#8584ff"),
)
DASHES: tuple[tuple[int, ...], ...] = ((), (7, 4), (2, 4), (9, 4, 2, 4), (12, 3))
CIRCLE = "M-.8,0A.8,.8,0,1,1,.8,0A.8,.8,0,1,1,-.8,0Z"
SHAPES = (
    CIRCLE,
    "M-.7,-.7H.7V.7H-.7Z",
    "M0,-1L.96,.72H-.96Z",
    "M0,-1L1,0L0,1L-1,0Z",
    "M0,1L.96,-.72H-.96Z",
    "M0,-.4L.56,-.96L.96,-.56L.4,0L.96,.56L.56,.96L0,.4L-.56,.96L-.96,.56L-.4,0L-.96,-.56L-.56,-.96Z",
)
"""The shapes of points: SVG paths between -1 and 1."""


@dataclass(frozen=True)
class Look:
    """The look of a series."""

    colour: Pair
    dash: tuple[int, ...] = ()
    """Strokes and gaps in turn; nothing for a solid line."""
    shape: str = CIRCLE
    """Of its points."""


KNOWN = {
    OURS: Look(NAMED["ours"]),
    REFERENCE: Look(NAMED["ink"], dash=(1, 6)),
    POISONED: Look(NAMED["alarm"]),
    TRAINED: Look(NAMED["muted"]),
}
PLACES = tuple(name for name in METHODS if name not in KNOWN)


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Return the looks of the series of one figure: no two of them are the same."""
    wanted = dict.fromkeys(names)
    taken: dict[str | int, str] = {}

    def spot(name: str) -> str | int | None:
        return name if name in KNOWN else PLACES.index(name) if name in PLACES else None

    for base in (str.lower, lambda name: name.lower().partition(":")[0]):
        for name in wanted:
            place = spot(base(name))
            if name not in taken.values() and place is not None:
                taken.setdefault(place, name)
    free = iter(place for place in range(len(PLACES) + len(wanted)) if place not in taken)
    for name in wanted:
        if name not in taken.values():
            taken[next(free)] = name
    return {name: _look(place) for place, name in taken.items()}


def is_ours(name: str) -> bool:
    """Say whether a series or a row is of our method, or a variant of it."""
    return name.lower().startswith(OURS)


def css(colour: Pair) -> str:
    """Return a colour that follows the page's theme."""
    return f"light-dark({colour[0]},{colour[1]})"


def style() -> str:
    """Return the named colours as variables of a page's style."""
    variables = (f"--{name}: {css(colour)};" for name, colour in NAMED.items())
    return f":root {{ {' '.join(variables)} }}\n"


def _look(place: str | int) -> Look:
    if isinstance(place, str):
        return KNOWN[place]
    turn = place % len(HUES) + place // len(HUES)
    return Look(HUES[place % len(HUES)], DASHES[turn % len(DASHES)], SHAPES[turn % len(SHAPES)])
