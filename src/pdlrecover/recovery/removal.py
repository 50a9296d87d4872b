"""Which removals are possible, and which are refused: the same rules in every engine.

- Removal can be differenced: the sum over all peers, opened in training, minus the sum over the
  kept ones, opened in recovery, is the removed peers' sum. Of one honest leaver, that is its own
  update. So a removal of fewer than `MIN_LEAVERS` honest peers is refused unless accepted by name,
  and so are two recoveries whose kept peers differ by one.
- Colluders know their own part of a sum, so at least two more peers than they are take part in it.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from pdlrecover.errors import PlanError
from pdlrecover.sharing import Tolerance

MIN_LEAVERS = 2
"""Fewer honest leavers than this are not removed unless differencing is accepted."""

Reason = Literal["left", "malicious"]


def check_removal(
    remove: Sequence[int],
    *,
    peers: int,
    tolerance: Tolerance,
    reason: str,
    accept_differencing: bool,
    earlier: Iterable[frozenset[int]] = (),
) -> list[int]:
    """Check that these of so many peers can be removed; return who is kept.

    `earlier` has the kept peers of recoveries that were run before.
    """
    removed = set(remove)
    if reason not in get_args(Reason):
        raise PlanError(f"the reason is one of {', '.join(get_args(Reason))}, got {reason!r}")
    if unknown := sorted(p for p in removed if not 0 <= p < peers):
        raise PlanError(f"peers are numbered 0 to {peers - 1}; there is no peer {unknown[0]}")
    if len(removed) == peers:
        raise PlanError(f"all {peers} peers would be removed, and nobody is left to recover")
    if len(removed) > tolerance.dropouts:
        raise PlanError(
            f"{len(removed)} peers are to be removed and the federation was set up to survive "
            f"{tolerance.dropouts} dropouts; remove fewer, or set it up with "
            f"dropouts={len(removed)}"
        )
    everybody = frozenset(range(peers))
    kept = everybody - removed
    if reason == "left" and not accept_differencing:
        for before in (everybody, *earlier):
            _check_difference(before ^ kept)
    return sorted(kept)


def check_company(together: int, tolerance: Tolerance) -> None:
    """Check that a sum over so many peers hides each of them from the tolerated colluders."""
    colluders = tolerance.colluders
    if together < colluders + 2:
        raise PlanError(
            f"{colluders} colluders who take their own part out of a sum over {together} peers "
            f"would know a single other's; keep at least {colluders + 2}, or tolerate fewer"
        )


def _check_difference(between: frozenset[int]) -> None:
    """Refuse two sums that differ by a single honest peer."""
    if 0 < len(between) < MIN_LEAVERS:
        raise PlanError(
            f"removing peer {min(between)} alone would reveal its updates: the sum with it, which "
            "was opened before, minus the sum without it is its own. Wait for another leaver and "
            "remove both at once, accept it (accept_differencing, --accept-differencing), or say "
            "that the peer was malicious"
        )
