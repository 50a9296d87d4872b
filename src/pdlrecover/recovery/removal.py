"""Which removals are possible at all; whether one tells too much is the guard's to say (`privacy`).

Removal can be differenced: the sum over all peers, opened in training, minus the sum over the kept
ones, opened in recovery, is the removed peers' sum. If one honest peer leaves, that is its own
update; and c colluders among the leavers can subtract their own parts. So removing fewer than c + 2
leavers is refused unless the caller accepts it by name. (In a simulation nobody colludes, and two
leavers are enough.)
"""

from collections.abc import Sequence
from typing import Literal, get_args

from pdlrecover.errors import PlanError, Setting
from pdlrecover.sharing import Tolerance

Reason = Literal["left", "malicious"]


def check_removal(
    remove: Sequence[int], *, peers: int, tolerance: Tolerance, reason: str
) -> list[int]:
    """Check that these peers of a federation of `peers` can be removed; return who is kept."""
    removed = set(remove)
    if reason not in get_args(Reason):
        raise PlanError(f"the reason is one of {', '.join(get_args(Reason))}, got {reason!r}")
    if unknown := sorted(p for p in removed if not 0 <= p < peers):
        raise PlanError(f"peers are numbered 0 to {peers - 1}; there is no peer {unknown[0]}")
    if len(removed) == peers:
        raise PlanError(f"all {peers} peers would be removed, and nobody is left to recover")
    if len(removed) > tolerance.dropouts:
        who = "1 peer is" if len(removed) == 1 else f"{len(removed)} peers are"
        fewer = "remove fewer, or " if tolerance.dropouts else ""
        raise PlanError(
            f"{who} to be removed and the federation was set up to survive "
            f"{tolerance.dropouts} dropouts; {fewer}set it up with ",
            Setting("dropouts", str(len(removed))),
        )
    return sorted(set(range(peers)) - removed)


def unprotected(removed: Sequence[int], reason: str, *, accepted: bool) -> frozenset[int]:
    """Return whose updates need not be hidden: the malicious, and who accepts differencing."""
    return frozenset(removed) if accepted or reason == "malicious" else frozenset()
