"""How peers agree on an epoch before they train, so that no two trainings have one name.

1. Before the first round every peer deals a number that tells nothing, its weight 1, in a run whose
   name follows from the federation alone. The set of dealings is voted on as in any step.
2. The *epoch* is the digest of that run's log. It depends on the commitments in the dealings, which
   are hashes with fresh randomness of the operating system: it is new if one dealer is honest, and
   the same at all peers, since the set is.
3. The training is named by the digest of the federation, its first model and the epoch. The name is
   in everything that is signed in it, and in every removal.

So if all peers move their histories away and start over, what they signed before is of another run.
Only in the founding run itself may honest peers contradict what they signed in an earlier life:
nothing that is signed there counts as evidence, and nobody is left out because of it.

A sum that a cheat has spoilt does no harm here, and nobody looks for who did: only the log counts.

Whoever is late takes the epoch from those that have it. To be believed they must be more than may
collude or lie, and so many that no quorum can be found without those of them that are honest, since
a liar can say one thing and found another: while a quorum could still found a new training, a few
that have kept an old one do not hold it up.
"""

import hashlib
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pdlrecover.engines.peers.protocol.contracts import Store
from pdlrecover.engines.peers.protocol.messages import NOTHING
from pdlrecover.engines.peers.protocol.run_context import RunContext
from pdlrecover.engines.peers.removals.votes import Removals
from pdlrecover.engines.peers.runs.driver import Driver
from pdlrecover.engines.peers.runs.run_session import RunSession
from pdlrecover.field import FixedPoint, Integers
from pdlrecover.recovery.requests import Method, Update, Vector

LOG = logging.getLogger("pdlrecover.peer")
NUMBERS = 2
"""What is dealt: a zero, and the weight."""
_NAME = "training"


class FoundingContext(RunContext):
    """The peers of a founding run, where nothing is evidence and few are not believed."""

    @property
    def trusted(self) -> int:
        """How many are believed: there is no quorum without those of them that do not lie."""
        liars = self.scheme.quorums.tolerance.liars
        return max(super().trusted, len(self.peers) - self.quorum + 1 + liars)


def epoch_named(training: bytes, epoch: bytes) -> bytes:
    """Return the name of a training in an epoch; `training` is the digest of all else."""
    return hashlib.sha256(b"pdlrecover training in epoch" + training + epoch).digest()


def found(context: RunContext, store: Store) -> RunSession:
    """Return one peer's part in the founding run of this context."""
    deadlines = context.deadlines
    founding = FoundingContext(
        **{
            **vars(context),
            "deadlines": replace(deadlines, dealing=deadlines.receipts),
            "proves": False,
        }
    )
    code = FixedPoint(peers=len(context.peers), bound=2.0, length=NUMBERS)
    return RunSession(
        Driver(
            context=founding,
            method=_one_sum(),
            code=code,
            store=store,
            contribute=lambda _: _weight(code),
        ),
        store,
    )


def _one_sum() -> Method:
    nothing: Vector = np.zeros(NUMBERS - 1)
    yield Update(round=0, at=nothing)
    return nothing


def _weight(code: FixedPoint) -> Integers:
    return np.array([0, int(code.scale)], dtype=np.int64)


def recall_name(store: Store) -> bytes | None:
    """Return the name of the training that this peer takes part in, if it is known."""
    return store.recall(_NAME)


def remember_name(store: Store, name: bytes) -> None:
    """Keep the name of the training."""
    store.remember({_NAME: name})


class Lives:
    """Which training the others say that they take part in."""

    def __init__(self, context: RunContext, removals: Removals, names: Sequence[str]) -> None:
        self._context, self._founding = context, FoundingContext(**vars(context))
        self._names = names
        self._announced = removals.trainings
        self._said: set[bytes] = set()
        self.started_over = ""
        """What happened, if others take part in another training than this peer."""

    def agreed(self) -> bytes | None:
        """Return the training that enough others take part in."""
        counts = Counter(name for name in self._announced.values() if name != NOTHING)
        found = [name for name, count in counts.items() if count >= self._founding.trusted]
        return found[0] if len(found) == 1 else None

    def compare(self, mine: bytes) -> None:
        """Say, once for each, that others take part in another training than this peer.

        They must be more than may collude or lie: a single peer may say anything.
        """
        others: dict[bytes, list[str]] = {}
        for peer, name in sorted(self._announced.items()):
            if name not in (mine, NOTHING):
                others.setdefault(name, []).append(self._names[peer])
        others = {name: who for name, who in others.items() if len(who) >= self._context.trusted}
        told = [
            f"{', '.join(who)} train in run {name.hex()[:16]}, this peer in {mine.hex()[:16]}"
            for name, who in others.items()
        ]
        self.started_over = (
            f"{'; '.join(told)}: one side has started over with an empty history. To join the "
            "others, stop this peer, move its history away and start it again; to go on with the "
            "training of before, the others put theirs back"
            if told
            else ""
        )
        if new := others.keys() - self._said:
            self._said |= new
            LOG.warning("%s", self.started_over, extra={"facts": {"event": "started-over"}})
