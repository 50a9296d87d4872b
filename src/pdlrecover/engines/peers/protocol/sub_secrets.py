"""Collects the sub-secrets of one step, and opens them once enough agree.

Rules: a sub-secret counts for the set of dealings that it names, the first one of each sender. Of
one sender a few sets are kept, no more: who lies may name many.
"""

from collections.abc import Iterable

from pdlrecover.engines.peers.protocol.tasks import Opened, Task
from pdlrecover.field import Elements

MAX_CHOICES = 4
"""Sub-secrets of one peer for this many different sets are kept."""


class SubSecrets:
    """Everybody's sub-secrets of one step, by the choice that they are for."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._parts: dict[bytes, dict[int, Elements]] = {}

    def __len__(self) -> int:
        return len(self._parts)

    def may_take(self, sender: int, choice: bytes) -> bool:
        """Say whether to look at a sub-secret: one sender may name a few sets, no more."""
        named = [known for known, parts in self._parts.items() if sender in parts]
        return choice in named or len(named) < MAX_CHOICES

    def take(self, sender: int, choice: bytes, values: Elements) -> None:
        """Take a sub-secret, unless there is one of this sender for this choice."""
        self._parts.setdefault(choice, {}).setdefault(sender, values)

    def missing(self, choice: bytes, peers: Iterable[int]) -> list[int]:
        """Return whose sub-secrets for a choice are not here, or lack what too few have."""
        parts = self._parts.get(choice, {})
        lacking = self._task.lacking(parts)
        return [peer for peer in peers if peer not in parts or peer in lacking]

    def open(self, choice: bytes) -> Opened | None:
        """Return what opens, and who lied; None if that takes more sub-secrets."""
        return self._task.open(self._parts.get(choice, {}))
