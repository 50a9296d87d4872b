"""How many peers took part in each sum of a run; some may have been away."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pdlrecover.engines.ledger import Ledger, LedgerRecord


@dataclass(frozen=True, kw_only=True)
class PeerLedgerRecord(LedgerRecord):
    """The ledger of a run between peers, with who really was in the sums. Nobody has timed it.

    Bytes stay those of the plan: of all peers, and all exact rounds.
    """

    exact_rounds_from_history: int


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
        self.withheld: Counter[int] = Counter()
        """How many dealings of each peer did not come here, though others' of the step did."""
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
        """Count a sum of `size` peers; kinds are those of the ledger."""
        least, most = self._sizes.get(kind, (size, size))
        self._sizes[kind] = min(least, size), max(most, size)

    def record(self, ledger: Ledger) -> PeerLedgerRecord:
        """Return the ledger's totals, with who really was in the sums."""
        totals = ledger.totals()
        opened = dict(totals.opened)
        for kind, (least, most) in self._sizes.items():
            if kind in opened:
                count = f"{least}" if least == most else f"{least} to {most}"
                opened[kind] = replace(opened[kind], of=f"{count} kept peers together")
        updates = self.dealt.total()
        steps = totals.gradient_evaluations // max(1, totals.updates)
        corrected = {
            "updates": updates,
            "gradient_evaluations": updates * steps,
            "opened": opened,
        }
        return PeerLedgerRecord(
            **{**vars(totals), **corrected}, exact_rounds_from_history=self.from_history
        )
