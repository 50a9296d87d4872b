"""One peer in one run: the protocol core, the method, and the store, still without a network.

What is left for the outside to do is sent, computed, or told. A participant that is made again on
the same store goes on where its log ends.
"""

from collections.abc import Sequence

from pdlrecover.engines.peers.circle import Task
from pdlrecover.engines.peers.codec import MAX_ENTRIES
from pdlrecover.engines.peers.contracts import Store
from pdlrecover.engines.peers.dealing import Dealt
from pdlrecover.engines.peers.driver import Driver
from pdlrecover.engines.peers.effects import (
    Blame,
    Compute,
    Effect,
    Halt,
    Note,
    Opened,
    Remember,
    Send,
    Serve,
)
from pdlrecover.engines.peers.machine import ANSWER_BYTES, Machine
from pdlrecover.engines.peers.messages import Entry
from pdlrecover.engines.peers.said import Promise, recalled

Outcome = Send | Compute | Blame | Note | Halt


class Participant:
    """Joins the machine, the driver and the store of one run."""

    def __init__(self, driver: Driver, store: Store) -> None:
        self.driver, self.machine = driver, Machine(driver.circle, driver.longest)
        self._store, self._run = store, driver.circle.run
        self.task: Task | None = None

    @property
    def finished(self) -> bool:
        """Whether the method has come to its model."""
        return self.driver.model is not None

    def start(self, now: float) -> list[Outcome]:
        """Go through what the store has, and begin the first step that it has not."""
        self.task = self.driver.start()
        log = self._store.log(self._run)
        for step, entry in enumerate(log):
            if step == len(log) - 1:
                self._recall_said(entry)
            self.machine.replay(entry)
            self.task = self.driver.answer(entry)
        self._keep_model()
        step = self.machine.step
        return self._begin(now, self._recall("step", step), self._recall("rows", step))

    def contribute(self, step: int, dealt: Dealt, now: float) -> list[Outcome]:
        """Take what a `Compute` came to."""
        return self._carry_out(self.machine.contribute(step, dealt, now), now)

    def receive(self, data: bytes, source: int, now: float) -> list[Outcome]:
        """Take a message."""
        return self._carry_out(self.machine.receive(data, source, now), now)

    def tick(self, now: float) -> list[Outcome]:
        """Do what is due by the clock."""
        return self._carry_out(self.machine.tick(now), now)

    def _name(self, part: str) -> str:
        return f"{part}-{self._run.hex()[:32]}"

    def _recall(self, part: str, step: int) -> bytes | None:
        """Return what is remembered of a step, if it is of this one."""
        memory = self._store.recall(self._name(part))
        if not memory or int.from_bytes(memory[:8], "little") != step:
            return None
        return memory[8:]

    def _recall_said(self, entry: Entry) -> None:
        """Find again what this peer said in the last step that the store has."""
        machine, task, kept = self.machine, self.task, None
        if task is None:
            return
        if memory := self._recall("step", machine.step):
            kept = Promise.restored(memory).now
        elif memory := self._recall("step", machine.step + 1):
            kept = Promise.restored(memory).before
        place = machine.circle.place(machine.step, machine.log, task.asked, task.round)
        machine.said = recalled(self._store, machine.circle, task, place, entry, kept)

    def _begin(
        self, now: float, memory: bytes | None = None, rows: bytes | None = None
    ) -> list[Outcome]:
        if self.task is None:
            self.machine.end()
            return []
        self._store.reserve(self._run)
        return self._carry_out(self.machine.begin(self.task, now, memory, rows), now)

    def _carry_out(self, effects: Sequence[Effect], now: float) -> list[Outcome]:
        out: list[Outcome] = []
        opened = False
        for effect in effects:
            match effect:
                case Remember(step=step, value=value, part=part):
                    self._store.remember(self._name(part), step.to_bytes(8, "little") + value)
                case Opened(entry=entry, shares=shares):
                    self._store.commit(self._run, entry, shares, self.driver.at)
                    self.task = self.driver.answer(entry)
                    self._keep_model()
                    opened = True
                case Serve(to=to, first=first):
                    out.append(self.machine.answers(to, first, self._entries(first)))
                case _:
                    out.append(effect)
        return [*out, *self._begin(now)] if opened else out

    def _keep_model(self) -> None:
        """Keep what the method came to, if it has; what was promised in its steps is done with."""
        if self.driver.model is not None:
            self._store.finish(self._run, self.driver.model)
            if self._store.recall(self._name("rows")):
                self._store.remember(self._name("rows"), b"")

    def _entries(self, first: int) -> list[Entry]:
        """Return entries from a step on, as many as one message should hold."""
        log = self._store.log(self._run)
        chosen: list[Entry] = []
        size = 0
        while first + len(chosen) < len(log) and len(chosen) < MAX_ENTRIES and size < ANSWER_BYTES:
            chosen.append(log[first + len(chosen)])
            size += chosen[-1].values.nbytes
        return chosen
