"""How series look, on the page and in drawings: one palette, by the method's name.

The palette is `page/palette.json`; the page's script (`looksOf` in svg.js) follows the same rules:

1. Ours, retraining and the original have looks of their own.
2. Every other method has a place. A place's hue is its rest by the number of hues; dashes and
   shapes go on with it, and one further each time the hues are used up, so that those of one hue,
   and neighbours, differ in them.
3. A variant (`auto:period=9`) looks like its method if no other series of the figure does.
4. Everybody else takes the first place that no series of the figure has.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Look:
    """The look of a series."""

    colour: tuple[str, str]
    """On light paper, and on dark."""
    dash: tuple[float, ...]
    """Strokes and gaps in turn; nothing for a solid line."""
    shape: int
    """Of its points."""


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Return the looks of the series of one figure: no two of them are the same."""
    known, places = palette()["known"], palette()["places"]
    wanted = dict.fromkeys(names)
    taken: dict[str | int, str] = {}

    def spot(name: str) -> str | int | None:
        return name if name in known else places.index(name) if name in places else None

    for base in (str.lower, lambda name: name.lower().partition(":")[0]):
        for name in wanted:
            place = spot(base(name))
            if name not in taken.values() and place is not None:
                taken.setdefault(place, name)
    free = iter(place for place in range(len(places) + len(wanted)) if place not in taken)
    for name in wanted:
        if name not in taken.values():
            taken[next(free)] = name
    return {name: _look(place) for place, name in taken.items()}


def style() -> str:
    """Return the colours for a page's style: by name, and the hues as `--series-0` and on."""
    colours = palette()["named"] | {f"series-{i}": hue for i, hue in enumerate(palette()["hues"])}
    lines = "".join(f"  --{name}: light-dark({', '.join(c)});\n" for name, c in colours.items())
    return f":root {{\n{lines}}}\n"


@cache
def palette() -> dict[str, Any]:
    """Return the palette as it is written down."""
    place = files("pdlrecover.experiments.report").joinpath("page", "palette.json")
    read: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
    return read


def _look(place: str | int) -> Look:
    made = palette()
    if isinstance(place, str):
        known = made["known"][place]
        return Look(tuple(made["named"][known["colour"]]), tuple(known["dash"]), 0)
    hues, dashes = made["hues"], made["dashes"]
    turn = place % len(hues) + place // len(hues)
    dash = tuple(dashes[turn % len(dashes)])
    return Look(tuple(hues[place % len(hues)]), dash, turn % made["shapes"])
