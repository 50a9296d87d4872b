"""Which removals are possible, and which are refused: the same rule in every engine.

Removal can be differenced: the sum over all peers, opened in training, minus the sum over the kept
ones, opened in recovery, is the removed peers' sum. Of one honest leaver, that is its own update.
So a removal of fewer than `MIN_LEAVERS` honest peers is refused unless accepted by name.
"""

from collections.abc import Sequence
from typing import Literal

from pdlrecover.errors import PlanError

MIN_LEAVERS = 2
"""Fewer honest leavers than this are not removed unless differencing is accepted."""

Reason = Literal["left", "malicious"]


def check_removal(
    remove: Sequence[int],
    *,
    peers: int,
    dropouts: int,
    reason: str,
    accept_differencing: bool,
) -> list[int]:
    """Check that these of so many peers can be removed; return who is kept."""
    removed = set(remove)
    if reason not in ("left", "malicious"):
        raise PlanError(f"peers are removed because they left or are malicious, got {reason!r}")
    if unknown := sorted(p for p in removed if not 0 <= p < peers):
        raise PlanError(f"peers are numbered 0 to {peers - 1}; there is no peer {unknown[0]}")
    if len(removed) == peers:
        raise PlanError(f"all {peers} peers would be removed, and nobody is left to recover")
    if len(removed) > dropouts:
        raise PlanError(
            f"{len(removed)} peers are to be removed and the federation was set up to survive "
            f"{dropouts} dropouts; remove fewer, or set it up with dropouts={len(removed)}"
        )
    if reason == "left" and 0 < len(removed) < MIN_LEAVERS and not accept_differencing:
        raise PlanError(
            f"removing peer {min(removed)} alone would reveal its updates: the sum over all "
            "minus the sum over the others is its own. Wait for another leaver and remove both "
            "at once, accept it (accept_differencing, --accept-differencing), or say that the "
            "peer was malicious"
        )
    return [p for p in range(peers) if p not in removed]
