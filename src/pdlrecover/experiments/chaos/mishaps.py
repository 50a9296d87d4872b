"""Carries out faults on running peers, and brings back whom they took away.

What happens is said as it happens. `away` are those that a fault has taken and that have not come
back: who was killed is back when it answers its operator again.
"""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pdlrecover.engines.peers.folder import HISTORY
from pdlrecover.engines.peers.protocol.ballot import leaders
from pdlrecover.errors import PlanError
from pdlrecover.experiments.chaos.faults import Fault, Faults
from pdlrecover.experiments.chaos.peer_processes import PeerProcesses
from pdlrecover.experiments.chaos.verdict import statement, unreached

PAST = 2
"""The others are past a step when they are this many further."""


@dataclass(frozen=True, kw_only=True)
class _Outage:
    """An outage that is under way, and where the logs of those that are left ended before it."""

    gone: tuple[str, ...]
    logged: dict[str, int]


class Mishaps:
    """The faults of one federation."""

    def __init__(
        self, processes: PeerProcesses, faults: Faults, say: Callable[[str], None]
    ) -> None:
        self._processes, self._faults, self._say = processes, faults, say
        self._back_at: dict[str, float] = {}
        self._returning: set[str] = set()
        self._lost: dict[str, int] = {}
        """Whose history is to be deleted, once the others are past this step."""
        self._outage: _Outage | None = None
        self._next = time.monotonic() + faults.pause()
        self.counts: Counter[str] = Counter()
        self.silent: list[str] = []
        """Outages in which nobody said who was missing."""

    @property
    def away(self) -> set[str]:
        """Who is away by a fault."""
        return {*self._back_at, *self._returning}

    def tick(self, peers: Sequence[str], quorum: int, losable: Sequence[str] = ()) -> None:
        """Do what is due: bring back whose time is over, and let the next fault happen.

        `quorum` of these peers can go on. The histories of `losable` may be lost.
        """
        now = time.monotonic()
        for name in [name for name, at in self._back_at.items() if at <= now]:
            self._bring_back(name)
        self._returning = {n for n in self._returning if not self._processes.answers(n)}
        if now < self._next:
            return
        self._next = now + self._faults.pause()
        fault = self._faults.draw(
            peers, away=self.away, leader=self._leader(peers), quorum=quorum, losable=losable
        )
        if fault is not None:
            self._carry_out(fault, peers)

    def soon(self) -> None:
        """Let the next fault come within a second: what is under way may be short."""
        self._next = time.monotonic() + min(self._faults.pause(), 1.0)

    def all_back(self) -> None:
        """Bring everybody back now; histories that were not deleted yet stay."""
        self._lost.clear()
        self._outage = None  # ended before its time: nobody may have noticed
        for name in list(self._back_at):
            self._back_at[name] = 0.0
            self._bring_back(name)

    def _carry_out(self, fault: Fault, peers: Sequence[str]) -> None:
        self.counts[fault.kind] += 1
        self._say(str(fault))
        now = time.monotonic()
        if fault.kind == "outage":
            left = [name for name in peers if name not in fault.peers]
            logged = {name: self._processes.log(name).stat().st_size for name in left}
            self._outage = _Outage(gone=fault.peers, logged=logged)
        for name in fault.peers:
            if fault.kind == "loss":
                self._lost[name] = self._step()
            if fault.kind == "freeze":
                self._processes.freeze(name)
            else:
                self._processes.kill(name)
            self._back_at[name] = now + fault.seconds

    def _bring_back(self, name: str) -> None:
        processes = self._processes
        if name in self._lost:
            if self._step() < self._lost[name] + PAST and not self._all_trained(name):
                return
            del self._lost[name]
            shutil.rmtree(processes.folder(name) / HISTORY)
            self._say(f"{name} has lost its history")
        if self._outage and name in self._outage.gone:
            self._judge_outage(self._outage)
            self._outage = None
        del self._back_at[name]
        if name in processes.frozen:
            processes.thaw(name)
            self._say(f"{name} goes on")
        else:
            processes.start(name)
            self._returning.add(name)
            self._say(f"{name} is started again")

    def _judge_outage(self, outage: _Outage) -> None:
        """Look whether those that were left said who is missing, or that they wait."""
        for name, after in outage.logged.items():
            missing = set(outage.gone) - set(unreached(self._processes, name, after))
            if missing and not statement(self._processes, [name], outage.logged):
                gone = ", ".join(sorted(missing))
                self.silent.append(f"{name} did not say in an outage that {gone} were missing")

    def _all_trained(self, but: str) -> bool:
        others = (name for name in self._processes.running if name != but)
        return all((self._processes.folder(name) / "trained.json").exists() for name in others)

    def _step(self) -> int:
        """Return the furthest step of the training that anybody who answers is in."""
        found = [-1]
        for name in self._processes.running:
            if not self._processes.answers(name):
                continue
            try:
                runs = self._processes.ask(name, do="status").get("runs", {}).values()
            except PlanError:
                continue  # busy, or on its way out
            found += [run["step"] for run in runs if run["kind"] == "training"]
        return max(found)

    def _leader(self, peers: Sequence[str]) -> str | None:
        """Return who leads the next step, as far as the last status tells; it may be over."""
        here = [name for name in peers if name not in self.away]
        runs = [
            run for name in here for run in self._processes.status(name).get("runs", {}).values()
        ]
        steps = [run["step"] for run in runs if run["outcome"] == "running"]
        if not steps:
            return None
        present = [peers.index(name) for name in here]
        return peers[leaders(range(len(peers)), present, max(steps) + 1)[0]]
