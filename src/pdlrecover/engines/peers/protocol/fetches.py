"""How much of the log a peer is sent: all of it once, and again as far as it may have been lost.

Asking costs a few hundred bytes, and an answer may have millions. Rules, for each asker:

- One answer is under way at a time. It has arrived when its asker asks for something later in the
  log, and is taken for lost after a message's deadline. What is asked for meanwhile is passed over.
- An entry that is sent for the first time is free: all of them together are the log.
- An entry that is sent again is paid from a budget: the asker's process may have been lost, or what
  it was sent. With B bytes sent for the first time, or `SMALL` if that is more, the budget is
  `AGAIN`·B, and B are added every `REFILL` seconds. An asker that has spent it is not answered.
- Whoever asks on with nothing left, or more often than an honest peer's waits allow while an answer
  is under way, has asked again for what it was sent and could not have lost. It is named.

So with a log of B bytes an asker gets at most (1 + AGAIN + t / REFILL)·B in t seconds, and one
answer more.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from pdlrecover.engines.peers.protocol.deadlines import Deadlines
from pdlrecover.engines.peers.protocol.effects import Blame, Effect, Serve
from pdlrecover.engines.peers.protocol.messages import LogEntry

AGAIN, REFILL = 3, 600.0
SMALL = 1 << 20
TOO_OFTEN = 32
"""So many requests may come besides those that an honest peer's waits allow: some come twice."""
HELD_BYTES = 34
"""A dealer and the digest of its dealing, in an entry."""
WHAT = "asks again and again for answers that it was sent"


@dataclass(kw_only=True)
class _Asker:
    """What one peer was sent."""

    first: int = -1
    """Where its last answer began,"""
    sent_at: float = -float("inf")
    """and when it was sent."""
    reached: int = 0
    """Entries before this one were sent; earlier ones count as sent, too."""
    new: int = 0
    """Bytes of entries that were sent for the first time,"""
    again: float = 0.0
    """and of those that were sent again, less what was added to the budget since."""
    looked_at: float = 0.0
    passed_over: int = 0
    """Requests that came while the last answer was under way."""
    named_at: float = -float("inf")


class Fetches:
    """Who has fetched what of one run's log."""

    def __init__(self, deadlines: Deadlines) -> None:
        self._wait = deadlines.message
        self._often = TOO_OFTEN + deadlines.message / deadlines.behind
        self._askers: defaultdict[int, _Asker] = defaultdict(_Asker)

    def ask(self, peer: int, first: int, now: float) -> list[Effect]:
        """Take a request for entries from `first` on: serve it, pass over it, or name the peer."""
        asker = self._askers[peer]
        unit = max(asker.new, SMALL)
        asker.again = max(0.0, asker.again - unit * (now - asker.looked_at) / REFILL)
        asker.looked_at = now
        under_way = first <= asker.first and now < asker.sent_at + self._wait
        spent = first < asker.reached and asker.again >= AGAIN * unit
        if not under_way and not spent:
            asker.first, asker.sent_at, asker.passed_over = first, now, 0
            return [Serve(to=peer, first=first)]
        asker.passed_over += under_way
        honest = under_way and asker.passed_over <= self._often
        if honest or now < asker.named_at + self._wait:
            return []
        asker.named_at = now
        return [Blame(peer=peer, what=WHAT)]

    def sent(self, peer: int, first: int, entries: Sequence[LogEntry]) -> None:
        """Take note of an answer."""
        asker = self._askers[peer]
        for step, entry in enumerate(entries, start=first):
            size = entry.values.nbytes + HELD_BYTES * len(entry.dealers)
            if step < asker.reached:
                asker.again += size
            else:
                asker.new += size
        asker.reached = max(asker.reached, first + len(entries))
