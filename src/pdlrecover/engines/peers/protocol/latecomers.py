"""Whom a peer does not wait for: those whose dealings kept it waiting until the deadline.

A cheat that withholds its dealings, from everybody or from a rotating few, would make every step as
long as its deadline. So each peer keeps its own record of whom it waited for in vain:

- After the k-th time in a row it does not wait for that dealer in the next 2^(k−1) steps, up to
  `LONGEST`. A dealing that is there in time anyhow counts as always.
- A dealer is forgiven by half once it was in time in `LONGEST` steps: so it does not help a cheat
  to withhold from each peer in its turn, and to be in time for that one until then.

Nobody else needs to know: how long a peer waits before its receipt is its own affair.
"""

from collections.abc import Iterable
from dataclasses import dataclass

LONGEST = 64
"""Nobody is passed over in more steps than these, nor forgiven after fewer."""


@dataclass(kw_only=True)
class _Record:
    pause: int = 0
    """In how many steps the dealer is not waited for after it was late."""
    until: int = 0
    """The step from which on it is waited for again."""
    in_time: int = 0
    """In how many steps it was in time since."""


class Latecomers:
    """What one peer remembers of who kept it waiting, in one run."""

    def __init__(self) -> None:
        self._records: dict[int, _Record] = {}

    def passed_over(self, step: int) -> frozenset[int]:
        """Return who is not waited for in this step."""
        return frozenset(peer for peer, record in self._records.items() if step < record.until)

    def note(self, step: int, *, late: Iterable[int], in_time: Iterable[int]) -> None:
        """Take who was waited for in a step, in vain or not."""
        for peer in late:
            record = self._records.setdefault(peer, _Record())
            record.pause, record.in_time = min(2 * record.pause or 1, LONGEST), 0
            record.until = step + 1 + record.pause
        for peer in set(in_time) & self._records.keys():
            record = self._records[peer]
            record.in_time += 1
            if record.in_time >= LONGEST:
                record.pause, record.in_time = record.pause // 2, 0
            if record.pause == 0:
                del self._records[peer]
