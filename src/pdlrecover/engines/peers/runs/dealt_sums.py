"""What was dealt in a training and in a run after it: what may be opened, and this peer's shares.

Rules:

- The guard (`recovery.privacy`) is asked before every opening. What it knows follows from the logs
  of the training and of this run, so that all peers come to the same.
- A stored sum is over those of the peers asked for that dealt in that round. A pair, fresh minus
  stored, is over those kept peers that dealt in both of its rounds.
- Where a share of a sum is gone there is None instead of it.
"""

from collections.abc import Hashable, Sequence

import numpy as np

from pdlrecover.engines.peers.protocol.contracts import Store
from pdlrecover.engines.peers.protocol.run_context import RunContext
from pdlrecover.engines.peers.runs.participation import Participation
from pdlrecover.engines.peers.runs.training_rounds import TrainingRounds
from pdlrecover.errors import PlanError
from pdlrecover.field import F61, Elements, FixedPoint, Integers
from pdlrecover.recovery.privacy import PrivacyGuard, trained_round
from pdlrecover.recovery.schedule import MAX_BUFFER
from pdlrecover.sharing import Shares


class DealtSums:
    """Sums of what peers have dealt, in the training and in one run after it."""

    def __init__(
        self,
        *,
        context: RunContext,
        store: Store,
        past: TrainingRounds,
        code: FixedPoint,
        unprotected: frozenset[int],
        participation: Participation,
    ) -> None:
        """`past` is the training; what `unprotected` peers dealt need not be hidden."""
        self._context, self._store, self._past = context, store, past
        self._length = code.length
        self._blocks = context.scheme.quorums.blocks(code.length)
        self._participation = participation
        colluders = context.scheme.quorums.tolerance.colluders
        self._guard = PrivacyGuard(colluders=colluders, unprotected=unprotected)
        self._fresh: dict[int, tuple[int, frozenset[int]]] = {}
        """By round: the step of its last fresh sum, and who dealt in it."""
        self._questions_of: dict[int, bytes] = {}
        """By step: the digest of the fresh updates that it asked for; none is asked for twice."""
        self._pairs: dict[int, Elements | None] = {}
        """By round: this peer's share of the pair, once it was used; the last few."""

    @property
    def kept(self) -> set[int]:
        """Who takes part in this run."""
        return set(self._context.peers)

    @property
    def removed(self) -> set[int]:
        """Who does not."""
        return set(range(self._context.scheme.quorums.peers)) - self.kept

    def ask(self, step: int, t: int, question: bytes) -> None:
        """Note that a step asks for fresh updates of a round; refuse to ask the same twice."""
        if question in self._questions_of.values():
            raise PlanError(
                f"this method asks for the same updates of round {t} twice, and who is "
                "away in one of the two sums would be exposed; choose another method"
            )
        self._questions_of[step] = question

    def deal(self, step: int, t: int, dealers: frozenset[int]) -> None:
        """Note who dealt in the step that asked for fresh updates of a round."""
        self._participation.deal(t, dealers)
        self._guard.note(self._questions_of[step], dealers)
        self._pairs.pop(t, None)
        self._fresh[t] = step, dealers

    def drop(self, t: int) -> None:
        """Forget the fresh sum of a round, which was void: there is no pair of it."""
        del self._fresh[t]

    def dealers(self, t: int) -> set[int]:
        """Return who dealt in a round of the training."""
        if not 0 <= t < (rounds := len(self._past)):
            raise PlanError(f"round {t} was asked for, and the history has {rounds}")
        return set(self._past.dealers(t))

    def dealings(self, rounds: Sequence[int], of: set[int]) -> int:
        """Return how many stored dealings of these peers are added up over these rounds."""
        return sum(len(self.dealers(t) & of) for t in rounds)

    def trained(self, rounds: Sequence[int]) -> Integers:
        """Return what the training opened in these rounds, added up."""
        opened = [F61.from_signed(self._past.opened(t)) for t in rounds]
        return F61.combine([1] * len(opened), opened)

    def reads_removed(self) -> bool:
        """Say whether removed peers' shares and a round's sum are less to read than kept peers'.

        A sum is as large as the shares of so many dealers as a block has secrets.
        """
        return len(self.removed) + self._context.scheme.quorums.packing < len(self.kept)

    def open_stored(self, rounds: Sequence[int], of: set[int]) -> None:
        """Ask the guard for the sums of what these peers dealt in these rounds of the training."""
        for t in rounds:
            dealers = frozenset(self.dealers(t))
            self._guard.note(trained_round(t), dealers)
            if some := dealers & of:
                self._guard.open(trained_round(t), some)

    def open_kept(self, rounds: Sequence[int], kind: str) -> None:
        """Ask the guard for the kept peers' stored sums of these rounds, and count them."""
        self.open_stored(rounds, self.kept)
        for t in rounds:
            self._participation.meet(kind, len(self.dealers(t) & self.kept))

    def may_use(self, b: int) -> bool:
        """Say whether the pair of round b hides everybody, given what is open of its two sums."""
        both = frozenset(self.both(b))
        return all(self._guard.allows(question, both) for question in self._questions(b))

    def open_pair(self, b: int, kind: str) -> None:
        """Ask the guard for the pair of round b, as if its two sums were opened by themselves."""
        both = frozenset(self.both(b))
        for question in self._questions(b):
            self._guard.open(question, both)
        self._participation.meet(kind, len(both))

    def both(self, b: int) -> set[int]:
        """Return who dealt in both rounds of the pair of round b."""
        if b not in self._fresh:
            raise PlanError(f"there is no pair of round {b}: ask for its update first")
        return self.dealers(b) & self._fresh[b][1] & self.kept

    def _questions(self, b: int) -> tuple[Hashable, Hashable]:
        """Return the two questions whose sums the pair of round b is made of."""
        self._guard.note(trained_round(b), frozenset(self.dealers(b)))
        return trained_round(b), self._questions_of[self._fresh[b][0]]

    def stored_total(self, rounds: Sequence[int], of: set[int]) -> Elements | None:
        """Return this peer's share of the stored sums of these rounds, added up.

        It is zero where none of these peers dealt.
        """
        dealt = [t for t in rounds if self.dealers(t) & of]
        if not dealt:
            return np.zeros(self._blocks, dtype=np.int64)
        return _combined([self.stored_share(t, of) for t in dealt], [1] * len(dealt))

    def stored_share(self, t: int, of: set[int]) -> Elements | None:
        """Return this peer's share of what these peers dealt in a round of the training."""
        dealers = sorted(self.dealers(t) & of)
        if not dealers:
            raise PlanError(f"none of the peers that this asks for dealt in round {t}")
        return self._past.shares(t, dealers)

    def direction(
        self, rounds: Sequence[int], pairs: Sequence[int], coefficients: Sequence[int]
    ) -> Elements | None:
        """Return this peer's share of a combination of stored sums of the kept peers and pairs."""
        stored = [self.stored_share(t, self.kept) for t in rounds]
        return _combined([*stored, *map(self._pair, pairs)], coefficients)

    def pair_shares(self, pairs: tuple[int, ...]) -> list[Shares] | None:
        """Return this peer's shares of these pairs."""
        rows = [self._pair(b) for b in pairs]
        found = [
            Shares(peers=(self._context.me,), values=row[None], length=self._length)
            for row in rows
            if row is not None
        ]
        return found if len(found) == len(rows) else None

    def _pair(self, b: int) -> Elements | None:
        """Return this peer's share of the pair of round b: fresh minus stored."""
        if b not in self._pairs:
            self._pairs[b] = self._read_pair(b)
            while len(self._pairs) > MAX_BUFFER:
                del self._pairs[next(iter(self._pairs))]
        return self._pairs[b]

    def _read_pair(self, b: int) -> Elements | None:
        both, step = self.both(b), self._fresh[b][0]
        fresh = self._store.shares(self._context.run, step, sorted(both))
        stored = self.stored_share(b, set(both))
        return None if fresh is None or stored is None else F61.subtract(fresh, stored)


def _combined(shares: Sequence[Elements | None], coefficients: Sequence[int]) -> Elements | None:
    found = [share for share in shares if share is not None]
    return F61.combine(coefficients, found) if len(found) == len(shares) else None
