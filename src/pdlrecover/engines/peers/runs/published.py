"""Decides what of this peer's runs its own observers are told: what is public between peers.

Rules:

- Told are trainings and recoveries. What is told of them is a function of the federation file, of
  removals, and of the public log: opened sums (their norm), opened evaluations, how many dealt, and
  counts of the ledger. Besides these there is one thing that this peer has measured: how long a
  round took.
- Never told is what only this peer knows: its data and where they are, its gradients, dealings and
  shares, its own loss or accuracy, what it has stored, its keys. Nothing of that reaches this file.
- Steps that are stored are told again after a restart, without seconds; see `engines.events`.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict

from pdlrecover.engines.events import Ended, Follow, Observer, Plain, Run
from pdlrecover.engines.following import Meter, Say, begin, numbers_of
from pdlrecover.engines.peers.federation.membership import Membership
from pdlrecover.engines.peers.protocol.messages import RemovalProposal
from pdlrecover.engines.peers.runs.driver import Driver


class Published:
    """Who follows the runs of one peer."""

    def __init__(
        self, observers: Sequence[Observer], membership: Membership, me: int, say: Say
    ) -> None:
        self._observers, self._membership, self._say = observers, membership, say
        self._me = membership.peers[me].name
        self._under_way: dict[bytes, tuple[Follow, Driver]] = {}

    def begin(self, run: bytes, driver: Driver, proposal: RemovalProposal | None = None) -> None:
        """Tell that a training begins, or the recovery that was proposed."""
        described = Run(
            name="training" if proposal is None else f"recovery-{run.hex()[:16]}",
            kind="training" if proposal is None else "recovery",
            identity=f"{run.hex()} at {self._me}",
            continues=True,
            settings={**self._of_recovery(proposal), **self._of_federation()},
            whose=self._me,
        )
        follow = begin(self._observers, described, self._say)
        if follow is not None:
            self._under_way[run] = follow, driver
            driver.meter = Meter(driver.ledger, follow, time.monotonic)
            driver.meter.replays = True

    def go_live(self, run: bytes) -> None:
        """Take note that what was stored of a run is gone through."""
        if run in self._under_way:
            _, driver = self._under_way[run]
            if driver.meter is not None:
                driver.meter.go_live()

    def end(self, run: bytes, why: str = "") -> None:
        """Tell that a run is done, or why it has stopped."""
        if run in self._under_way:
            follow, driver = self._under_way.pop(run)
            totals = driver.participation.record(driver.ledger)
            follow(
                Ended(
                    outcome="failed" if why else "finished",
                    why=why,
                    numbers=numbers_of(totals),
                    records={"ledger.json": asdict(totals)},
                )
            )
            driver.meter = None

    def interrupt(self) -> None:
        """Tell that this peer is stopped, and will go on with its runs."""
        for follow, driver in self._under_way.values():
            follow(Ended(outcome="stopped", why="the peer was stopped"))
            driver.meter = None
        self._under_way.clear()

    def _of_recovery(self, proposal: RemovalProposal | None) -> dict[str, Plain]:
        if proposal is None:
            return {}
        names = [self._membership.peers[p].name for p in sorted(proposal.removed)]
        return {
            "method": proposal.method,
            "removed": ", ".join(names),
            "reason": proposal.reason,
        }

    def _of_federation(self) -> dict[str, Plain]:
        """Return what all peers have agreed on, and signed."""
        agreed, training = self._membership, self._membership.training
        return {
            "federation": agreed.name,
            "peers": len(agreed.peers),
            "model": agreed.model.name,
            **vars(agreed.scheme.quorums.tolerance),
            **{name: x for name, x in vars(training).items() if isinstance(x, Plain)},
            "held_out": agreed.evaluation.held_out,
            "evaluate_every": agreed.evaluation.every,
        }
