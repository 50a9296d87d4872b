"""Reads the numbers that are served for monitoring off a running peer (see `metrics`)."""

import math
import os
import time
from typing import TYPE_CHECKING

from cryptography import x509

from pdlrecover import descriptors
from pdlrecover.engines.peers.folder import HISTORY
from pdlrecover.engines.peers.greeting import greeting
from pdlrecover.engines.peers.operator import status as s
from pdlrecover.engines.peers.operator.control import shown
from pdlrecover.engines.peers.operator.metrics import counted, labelled

if TYPE_CHECKING:
    from pdlrecover.engines.peers.peer import Peer

REPLACED = "stopped: replaced"
"""How a recovery ended that another takes the place of."""


class Numbers:
    """The numbers of one peer."""

    def __init__(self, peer: "Peer") -> None:
        self._peer, self._started = peer, time.time()
        self._steps: dict[bytes, tuple[int, float]] = {}
        """The step of each run, and since when it was seen."""
        self._expires = min(
            x509.load_der_x509_certificate(member.certificate).not_valid_after_utc.timestamp()
            for member in peer.runs.membership.peers
        )

    def look(self) -> None:
        """Take note of where the runs are; called now and then, so that their pace is known."""
        now = time.monotonic()
        for run, session in self._peer.sessions.items():
            step = session.protocol.step
            if run not in self._steps or self._steps[run][0] != step:
                self._steps[run] = step, now

    def read(self) -> dict[str, float]:
        """Return all numbers, by the name of their series."""
        self.look()
        peer = self._peer
        found = counted(peer.counts + peer.misconduct.counts, peer.network.counts)
        return found | self._of_process() | self._of_peers() | self._of_runs()

    def _of_process(self) -> dict[str, float]:
        peer = self._peer
        said, disk = greeting(peer.runs.membership.digest), os.statvfs(peer.folder / HISTORY)
        info = labelled(
            "info",
            federation=peer.runs.membership.name,
            peer=peer.names[peer.runs.me],
            version=said.version,
            torch=said.torch,
            processor=said.processor,
            file=said.federation[:16],
        )
        return {
            info: 1.0,
            "time_seconds": said.time,
            "start_time_seconds": self._started,
            "history_bytes": float(peer.runs.store.size),
            "disk_free_bytes": float(disk.f_bavail * disk.f_frsize),
            "descriptors": float(descriptors.limit()),
            "descriptors_in_use": float(descriptors.in_use()),
            "certificate_expires_seconds": self._expires,
        }

    def _of_peers(self) -> dict[str, float]:
        peer = self._peer
        membership, me, removals = peer.runs.membership, peer.runs.me, peer.removals
        since = time.monotonic() - s.PRESENT_SECONDS
        others = [p for p in range(len(peer.names)) if p != me]
        heard = [float(peer.heard.get(p, -math.inf) > since) for p in others]
        each_heard = {
            labelled("peer_heard", peer=peer.names[p]): is_heard
            for p, is_heard in zip(others, heard, strict=True)
        }
        replaced = removals.replaced()
        waiting = [
            each
            for digest, each in removals.known.items()
            if digest not in replaced
            and me not in each.approvals
            and len(each.approvals) < removals.needed
        ]
        return each_heard | {
            "peers": float(len(heard)),
            "peers_heard": float(sum(heard)),
            "peers_needed": float(len(heard) - membership.tolerance.dropouts),
            "other_files": float(len(peer.disagreement.found)),
            "started_over": float(bool(peer.lives.started_over)),
            "removals_waiting": float(len(waiting)),
            "caught": float(len({p for p, _ in peer.misconduct.caught})),
            "named": float(len({p for p, _ in peer.misconduct.named})),
        }

    def _has_failed(self, run: bytes, outcome: str) -> bool:
        """Say whether a run came to nothing, and nothing takes its place."""
        runs = self._peer.runs
        if run == runs.standardising and outcome == s.DONE:
            return not runs.standardised  # its sums were void
        return outcome not in (s.RUNNING, s.DONE) and not outcome.startswith(REPLACED)

    def _of_runs(self) -> dict[str, float]:
        peer, found, now = self._peer, dict[str, float](), time.monotonic()
        for run in shown(peer):
            session, outcome = peer.sessions[run], peer.ended.get(run, s.RUNNING)
            driver, runs = session.driver, outcome == s.RUNNING
            last, points = driver.participation.last, driver.evaluations.points
            accuracy = points[-1].accuracy if points else None
            numbers = {
                "running": runs,
                "failed": self._has_failed(run, outcome),
                "waiting": bool(peer.stalls.waits.get(run)),
                "step": session.protocol.step,
                "step_age_seconds": now - self._steps[run][1] if runs else 0.0,
                "round": driver.round,
                "rounds": driver.rounds,
                "absent": len(frozenset(driver.context.peers) - last) if last else 0,
                "void_rounds": len(driver.void),
                "accuracy": math.nan if accuracy is None else accuracy,
            }
            for name, number in numbers.items():
                series = labelled(name, run=run.hex()[:16], kind=peer.kind(run))
                found[series] = float(number)
        return found
