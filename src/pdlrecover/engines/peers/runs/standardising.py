"""How peers bring their inputs to one scale before they train: a run of two steps.

1. After the founding, and before round 0, every peer deals Σ x of its samples and their number;
   then, at the public mean, Σ (x − m)² and the number (see `recovery.standardisation`). Each set of
   dealings is voted on as in any step, survives crashes, and is opened as one sum.
2. The run's name follows from the training's, which has the epoch in it. Its log is what m and s
   follow from, so a peer that was away fetches it as any log, and has the same bits.
3. What honest peers cannot have dealt is void. Then there is no scale and no training: the peers
   say why, in log and status, and wait for people.

The scale is kept for good, whoever is removed later: sums over the kept peers, beside these, would
tell the removed peers' own.
"""

import hashlib

from pdlrecover.engines.peers.protocol.contracts import Store
from pdlrecover.engines.peers.protocol.run_context import RunContext
from pdlrecover.engines.peers.runs.driver import Driver, Statistics
from pdlrecover.engines.peers.runs.run_session import RunSession
from pdlrecover.field import FixedPoint
from pdlrecover.recovery.standardisation import STEPS, standardising


def standardising_run(training: bytes) -> bytes:
    """Return the name of the run in which the scale of inputs is agreed on, before a training."""
    return hashlib.sha256(b"pdlrecover standardising" + training).digest()


def standardiser(context: RunContext, store: Store, statistics: Statistics) -> RunSession:
    """Return one peer's part in the run of this context."""
    groups = statistics.terms.groups
    driver = Driver(
        context=context,
        method=standardising(groups),
        code=FixedPoint(peers=len(context.peers), bound=2.0, length=groups + 1),
        store=store,
        contribute=None,
        statistics=statistics,
        rounds=STEPS,
    )
    return RunSession(driver, store)


def why_not(session: RunSession) -> str:
    """Say why there is no scale, and what to do; nothing if there is one."""
    if not session.driver.void:
        return ""
    return (
        f"the statistics of inputs are void ({session.driver.void[0].why}), so nothing is trained; "
        "agree on another federation file, without the peer that is to blame or without "
        "[standardise], and start over"
    )
