"""The one guard for privacy: which sums of peers' vectors may be opened, given those that were.

A peer's vector belongs to a *question*: a model, a round and its minibatches. The same question
asked again gets the same vector again; so what was opened of one question, in whichever run, adds
up.

Every engine asks the guard before every opening, with the question and the set of peers whose
vectors are added up. A combination over several questions (a direction, a block of rounds, a pair)
counts as if its sum at each question were opened by itself: that tells more than the combination.

A sum is refused if some rational combination of the sums that are then open of its question, as
0/1 vectors over the peers, has 1 to c + 1 non-zero entries at protected peers: all of them but one
may collude, and would know that one's vector. `docs/privacy.md` has the theorem and its proof, and
what it does not cover.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from math import comb

from pdlrecover.errors import PlanError, Setting, Whom

MAX_COMBINATIONS = 10_000
"""How many combinations of a question's sums are examined at most; more are refused."""
MAX_SUMS = 24
"""At most so many different sums of a question: see the theorem."""

Peers = frozenset[int]


def trained_round(t: int) -> tuple[str, int]:
    """Return the question that a round of the training asked."""
    return "training", t


class PrivacyGuard:
    """Knows which sums of which question are opened, and refuses those that would expose a peer."""

    def __init__(
        self, *, colluders: int, least: int | None = None, unprotected: Peers = frozenset()
    ) -> None:
        """At least `least` peers are in every sum: c + 2 unless it is said."""
        self.colluders, self.unprotected = colluders, unprotected
        self._least = colluders + 2 if least is None else least
        self._opened: dict[Hashable, frozenset[Peers]] = {}

    def note(self, question: Hashable, *sums: Peers) -> None:
        """Take into account that sums over these peers are opened, or may be."""
        known = self._opened.get(question, frozenset())
        if not known.issuperset(sums):
            self._opened[question] = known.union(sums)

    def check(self, question: Hashable, peers: Peers, *, also: Peers = frozenset()) -> None:
        """Raise if a sum over these peers must not be opened; `also` are unprotected too."""
        if len(peers) < self._least and peers - self.unprotected - also:
            raise PlanError(_too_few(len(peers), self._least))
        before = self._opened.get(question, frozenset())
        if peers in before:
            return
        found = newly_exposed(before, peers, self.colluders, self.unprotected, also)
        if found is not None:
            raise PlanError(*_would_reveal(sorted(found), len(peers | found), self.colluders))

    def allows(self, question: Hashable, peers: Peers) -> bool:
        """Say whether a sum over these peers may be opened."""
        try:
            self.check(question, peers)
        except PlanError:
            return False
        return True

    def open(self, question: Hashable, peers: Peers, *, also: Peers = frozenset()) -> None:
        """Raise, or take into account that a sum over these peers is opened."""
        self.check(question, peers, also=also)
        self.note(question, peers)


@lru_cache(maxsize=4096)
def newly_exposed(
    before: frozenset[Peers], peers: Peers, colluders: int, unprotected: Peers, also: Peers
) -> Peers | None:
    """Return the fewest peers of whom one more sum would tell one's vector to the others.

    What already follows from the sums before is not new. It is the same for all rounds in which the
    same peers took part, so the normal case costs a look-up.
    """
    if len(before) >= MAX_SUMS:
        raise PlanError(*_too_many(len(before)))
    known = exposed([each - unprotected for each in before], colluders)
    hidden = unprotected | also
    found = exposed([each - hidden for each in (*before, peers)], colluders)
    new = [some for some in found if not any(old <= some for old in known)]
    return min(new, key=lambda some: (len(some), sorted(some)), default=None)


def exposed(sums: Iterable[Peers], colluders: int) -> frozenset[Peers]:
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
        raise PlanError(*_too_many(len(table)))
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
    least = len(rows) - 1  # so many columns are made zero
    for place in range(first, len(rows[0]) - least + 1 if rows else 0):
        pivot = next((i for i, row in enumerate(rows) if row[place]), None)
        if pivot is not None:
            others = rows[:pivot] + rows[pivot + 1 :]
            yield from _combinations(
                [_without(row, place, rows[pivot]) for row in others], place + 1
            )


def _without(row: Row, place: int, pivot: Row) -> Row:
    """Return a multiple of a row minus a multiple of another one, with a zero in this place."""
    return [pivot[place] * x - row[place] * y for x, y in zip(row, pivot, strict=True)]


def _too_few(count: int, least: int) -> str:
    """Say why a sum over so few peers is not opened."""
    return (
        f"{least - 2} colluders who take their own part out of a sum over {count} peers would know "
        f"a single other's; keep at least {least}, or tolerate fewer"
    )


FRESH = Setting("fresh_start", "True")
ACCEPT = Setting("accept_differencing", "True")


def _too_many(count: int) -> list[str | Setting]:
    return [
        f"{count} sums of one round are too many to check what follows from them; recover from a "
        "fresh start (",
        FRESH,
        "), or accept it (",
        ACCEPT,
        ")",
    ]


def _would_reveal(some: Sequence[int], present: int, colluders: int) -> list[str | Setting | Whom]:
    whom = Whom(tuple(some))
    whose = ["one of ", whom, ", to the others of them"] if some[1:] else [whom]
    who = (
        f"{colluders} peers may collude. At least {colluders + 2} honest peers leave at once"
        if colluders
        else "nobody is counted as colluding, as in every simulation. At least 2 honest peers "
        "leave at once (between real peers two more than may collude)"
    )
    return [
        "this would reveal the updates of ",
        *whose,
        ": they follow from the sum without the removed "
        f"peers and those that were opened before, in rounds where {present} peers or more took "
        f"part, and {who}, and removals are judged together: wait for others, recover from a fresh "
        "start (",
        FRESH,
        "), accept it (",
        ACCEPT,
        "), or say that they were malicious",
    ]
