"""Of how many peers a run's sums were: peers may be away, and the others go on without them."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from pdlrecover.engines.ledger import Ledger


class Participation:
    """Who dealt in a run, and of how many peers, at least and at most, each kind of sum was."""

    def __init__(self) -> None:
        self.rounds = 0
        """Exact rounds in which updates were computed and dealt."""
        self.dealt: Counter[int] = Counter()
        """In how many of them each peer's dealing counted."""
        self.last: frozenset[int] = frozenset()
        """Whose did in the last of them,"""
        self.since = 0
        """and from which round of the training on."""
        self.from_history = 0
        """Exact rounds that were answered from stored sums, at the models of the training."""
        self._sizes: dict[str, tuple[int, int]] = {}

    def deal(self, t: int, dealers: Iterable[int]) -> None:
        """Count an exact round."""
        before, self.last = self.last, frozenset(dealers)
        if self.last != before:
            self.since = t
        self.rounds += 1
        self.dealt.update(self.last)
        self.meet("fresh sums", len(self.last))

    def meet(self, kind: str, size: int) -> None:
        """Count a sum of so many peers; kinds are those of the ledger."""
        least, most = self._sizes.get(kind, (size, size))
        self._sizes[kind] = min(least, size), max(most, size)

    def told(self, ledger: Ledger) -> dict[str, Any]:
        """Return the ledger's record, with who really was in the sums. Nobody has timed it.

        Bytes stay those of the plan: of all peers, and all exact rounds.
        """
        record = ledger.record()
        del record["seconds"]
        record["gradient_evaluations"] = self.dealt.total()
        record["exact_rounds_from_history"] = self.from_history
        for kind, (least, most) in self._sizes.items():
            if kind in record["opened"]:
                count = f"{least}" if least == most else f"{least} to {most}"
                record["opened"][kind]["of"] = f"{count} kept peers together"
        return record
