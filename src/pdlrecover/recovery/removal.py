"""Which removals are possible, and which are refused: the same rules in every engine.

- Removal can be differenced: the sum over all peers, opened in training, minus the sum over the
  kept ones, opened in recovery, is the removed peers' sum. Of one honest leaver, that is its own
  update. So a removal of fewer than `MIN_LEAVERS` honest peers is refused unless accepted by name,
  and so are two recoveries whose kept peers differ by one.
- More generally, no single honest peer's part may follow from the sums that were opened: no vector
  with one non-zero entry is a combination of their 0/1 vectors, the columns of peers declared
  malicious left out. `check_differences` holds that, round by round where peers were absent.
- Colluders know their own part of a sum, so at least two more peers than they are take part in it.
"""

from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction
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


def check_differences(
    kept: frozenset[int],
    *,
    earlier: Collection[frozenset[int]],
    rounds: Iterable[frozenset[int]],
    malicious: frozenset[int] = frozenset(),
    now_malicious: frozenset[int] = frozenset(),
) -> None:
    """Refuse sums over the kept peers that would single out an honest one.

    `earlier` has the kept peers of recoveries that were run before, `rounds` who dealt in each
    round of the training, `malicious` those whose part need not be hidden, `now_malicious` those
    of whom that is said with this removal. What follows from earlier sums already is not refused.
    """
    for present in set(rounds):
        before = [present, *(present & others for others in earlier)]
        known = singled_out([each - malicious for each in before])
        hidden = malicious | now_malicious
        if found := singled_out([each - hidden for each in (*before, present & kept)]) - known:
            raise PlanError(
                f"this would reveal the updates of peer {min(found)}: they follow from the sums "
                "without the removed peers and those that were opened before, in rounds where "
                f"{len(present)} peers took part. Remove others as well, accept it "
                "(accept_differencing, --accept-differencing), or retrain by another method"
            )


def singled_out(sums: Sequence[frozenset[int]]) -> frozenset[int]:
    """Return the peers whose own part is a linear combination of these sums.

    Peers that are in the same sums cannot be told apart: each such group is one column. A reduced
    row echelon form has a row with a single entry wherever there is such a combination.
    """
    groups: dict[tuple[bool, ...], list[int]] = {}
    for peer in sorted(frozenset().union(*sums)):
        groups.setdefault(tuple(peer in each for each in sums), []).append(peer)
    table = [[Fraction(pattern[i]) for pattern in groups] for i in range(len(sums))]
    done = 0
    for column in range(len(groups)):
        pivot = next((i for i in range(done, len(table)) if table[i][column]), None)
        if pivot is None:
            continue
        table[done], table[pivot] = table[pivot], table[done]
        top = [x / table[done][column] for x in table[done]]
        table = [
            top if i == done else [x - row[column] * y for x, y in zip(row, top, strict=True)]
            for i, row in enumerate(table)
        ]
        done += 1
    members = list(groups.values())
    alone = [[m for m, x in zip(members, row, strict=True) if x] for row in table]
    return frozenset(each[0][0] for each in alone if len(each) == 1 and len(each[0]) == 1)


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
