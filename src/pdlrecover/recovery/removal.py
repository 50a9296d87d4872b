"""Which removals are possible, and which are refused: the same rules in every engine.

- Removal can be differenced: the sum over all peers, opened in training, minus the sum over the
  kept ones, opened in recovery, is the removed peers' sum. If one honest peer leaves, that is its
  own update; and c colluders among the leavers can subtract their own parts. So removing fewer than
  c + 2 leavers is refused unless the caller accepts it by name, and so is a second recovery whose
  kept peers differ by fewer. (In a simulation nobody colludes, and two leavers are enough.)
- More generally, no single honest peer's part may follow from the sums that were opened and what c
  colluders know: no combination of their 0/1 vectors has 1 to c + 1 non-zero entries, the columns
  of peers declared malicious left out. `check_differences` enforces that, round by round where
  peers were absent.
- For the same reason at least c + 2 peers take part in every sum: `check_peers_in_sum`.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import comb
from typing import Literal, get_args

from pdlrecover.errors import PlanError
from pdlrecover.sharing import Tolerance

MAX_COMBINATIONS = 10_000
"""How many combinations of a round's sums are examined at most; more are refused."""

Reason = Literal["left", "malicious"]


def check_removal(
    remove: Sequence[int],
    *,
    peers: int,
    tolerance: Tolerance,
    reason: str,
    accept_differencing: bool,
    earlier: Iterable[frozenset[int]] = (),
    colluders: int = 0,
) -> list[int]:
    """Check that these peers of a federation of `peers` can be removed; return who is kept.

    `earlier` has the kept peers of earlier recoveries; up to `colluders` of the leavers may
    collude.
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
            _check_difference(before ^ kept, colluders)
    return sorted(kept)


def check_differences(
    kept: frozenset[int],
    *,
    rounds: Iterable[tuple[frozenset[int], frozenset[frozenset[int]]]],
    colluders: int,
    malicious: frozenset[int] = frozenset(),
    now_malicious: frozenset[int] = frozenset(),
) -> None:
    """Refuse sums over the kept peers that would reveal an honest peer's part to `colluders` peers.

    `rounds` has, for each training round that the recovery opens a sum of, who dealt in it and the
    kept peers of the other recoveries that open one of it. The parts of `malicious` peers need not
    be hidden; `now_malicious` are those that this removal declares so. What already follows from
    the others' sums is not refused.
    """
    hidden = malicious | now_malicious
    for present, others in set(rounds):
        before = [present, *(present & other for other in others)]
        known = exposed([each - malicious for each in before], colluders)
        found = exposed([each - hidden for each in (*before, present & kept)], colluders)
        new = [some for some in found if not any(old <= some for old in known)]
        if new:
            fewest = min((sorted(some) for some in new), key=lambda some: (len(some), some))
            whose = f"one of peers {fewest}, to the others of them," if fewest[1:] else ""
            raise PlanError(
                f"this would reveal the updates of {whose or f'peer {fewest[0]}'}: they follow "
                "from the sums without the removed peers and those that were opened before, in "
                f"rounds where {len(present)} peers took part, and {colluders} may collude. Remove "
                "others as well, accept it (accept_differencing, --accept-differencing), or "
                "retrain by another method"
            )


def exposed(sums: Iterable[frozenset[int]], colluders: int) -> frozenset[frozenset[int]]:
    """Return the sets of at most c + 1 peers whose parts alone make up some combination of sums.

    All but one of such a set may collude, and then know the part of that one. Every minimal set is
    returned. Peers that are in the same sums are indistinguishable: each such group is one column
    of the sums' table. A combination with the fewest columns is, up to a factor, the only one that
    is zero in some r − 1 columns, r being the rank.
    """
    table = [each for each in set(sums) if each]
    groups: dict[tuple[bool, ...], list[int]] = {}
    for peer in sorted(frozenset().union(*table)):
        groups.setdefault(tuple(peer in each for each in table), []).append(peer)
    rows = _independent([[int(pattern[i]) for pattern in groups] for i in range(len(table))])
    if comb(len(groups), max(0, len(rows) - 1)) > MAX_COMBINATIONS:
        raise PlanError(
            f"{len(table)} sums of one round are too many to check what follows from them; accept "
            "it (accept_differencing, --accept-differencing), or retrain by another method"
        )
    members = list(groups.values())
    found = set()
    for row in _combinations(rows):
        about = [peer for group, x in zip(members, row, strict=True) if x for peer in group]
        if len(about) < colluders + 2:
            found.add(frozenset(about))
    return frozenset(found)


Row = list[int]


def _independent(table: Sequence[Row]) -> list[Row]:
    """Return rows that span what these do, and none of which follows from the others."""
    found: list[tuple[int, Row]] = []
    for row in table:
        for place, earlier in found:
            row = _without(row, place, earlier)
        if any(row):
            found.append((next(i for i, x in enumerate(row) if x), row))
    return [row for _, row in found]


def _combinations(rows: list[Row], first: int = 0) -> Iterator[Row]:
    """Yield what is left when one column after the other is made zero, until one row is left."""
    if len(rows) == 1:
        yield rows[0]
        return
    for place in range(first, len(rows[0]) if rows else 0):
        pivot = next((i for i, row in enumerate(rows) if row[place]), None)
        if pivot is not None:
            others = rows[:pivot] + rows[pivot + 1 :]
            yield from _combinations(
                [_without(row, place, rows[pivot]) for row in others], place + 1
            )


def _without(row: Row, place: int, pivot: Row) -> Row:
    """Return a multiple of a row minus a multiple of another one, with a zero in this place."""
    return [pivot[place] * x - row[place] * y for x, y in zip(row, pivot, strict=True)]


def check_peers_in_sum(count: int, tolerance: Tolerance) -> None:
    """Check that at least c + 2 peers take part in a sum, which hides each from c colluders."""
    colluders = tolerance.colluders
    if count < colluders + 2:
        raise PlanError(
            f"{colluders} colluders who take their own part out of a sum over {count} peers "
            f"would know a single other's; keep at least {colluders + 2}, or tolerate fewer"
        )


def _check_difference(between: frozenset[int], colluders: int) -> None:
    """Refuse two sums that differ by fewer peers than hide each of them."""
    least = colluders + 2
    if not 0 < len(between) < least:
        return
    if len(between) == 1:
        what = (
            f"removing peer {min(between)} alone would reveal its updates: the sum with it, which "
            "was opened before, minus the sum without it is its own"
        )
    else:
        what = (
            f"removing {len(between)} peers ({', '.join(map(str, sorted(between)[:5]))}"
            f"{', …' if len(between) > 5 else ''}) would reveal the updates of one of them to the "
            "others: the sum with them, which was opened before, minus the sum without them is "
            f"theirs, and {colluders} peers may collude and take their own part out"
        )
    raise PlanError(
        f"{what}. At least {least} leavers go at once, two more than may collude: wait for others, "
        "recover from a fresh start (start=fresh, --fresh-start), accept it (accept_differencing, "
        "--accept-differencing), or say that they were malicious"
    )
