"""What was read: samples, their labels as they were written, and where each of them stands."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pdlrecover.learning.classes import Labels

LOG = logging.getLogger("pdlrecover.data")
OFTEN = 5.0
"""Reading that takes longer has a line every so many seconds."""


def row(number: int) -> str:
    """Return where a sample stands in a table, counted from 1."""
    return f"row {number + 1}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """Samples and labels from one place."""

    place: str
    """What was read, for messages."""
    samples: Any
    """An array, a tensor or a `Table`, as the library takes samples."""
    labels: Labels
    where: Callable[[int], str] = row
    """Where a sample stands in it."""
    by_number: bool = False
    """Whether whole numbers among the labels are class numbers where classes have names: arrays
    have nothing else, and a column of a table might have any code."""


class Watch:
    """Says in the log how far reading is, and how long it took."""

    def __init__(self, place: str, what: str = "rows") -> None:
        self._place, self._what = place, what
        self._began = self._said = time.monotonic()

    def step(self, count: int) -> None:
        """Note how many have been read, and say it if that was not said a moment ago."""
        if (now := time.monotonic()) - self._said >= OFTEN:
            self._said = now
            LOG.info("read %s %s of %s so far", f"{count:,}", self._what, self._place)

    def end(self, count: int) -> None:
        """Say how many have been read."""
        seconds = time.monotonic() - self._began
        LOG.info("read %s %s of %s in %.1f s", f"{count:,}", self._what, self._place, seconds)
