"""One peer in one run: the protocol core, the method, and the store, still without a network.

What is left for the outside to do is sent, computed, or told. A participant that is made again on
the same store goes on where its log ends.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple, cast

import numpy as np

from pdlrecover.engines.peers.protocol.codec import MAX_ENTRIES
from pdlrecover.engines.peers.protocol.contracts import Store
from pdlrecover.engines.peers.protocol.dealing import Dealt
from pdlrecover.engines.peers.protocol.effects import (
    Blame,
    Commit,
    Compute,
    Effect,
    Halt,
    Keep,
    Note,
    Remember,
    Send,
    Serve,
)
from pdlrecover.engines.peers.protocol.messages import Held, LogEntry
from pdlrecover.engines.peers.protocol.rows import Row, restored, row_part
from pdlrecover.engines.peers.protocol.run_context import Task
from pdlrecover.engines.peers.protocol.run_protocol import ANSWER_BYTES, RunProtocol
from pdlrecover.engines.peers.protocol.step_memory import Promise, recall_previous
from pdlrecover.engines.peers.runs.driver import Driver
from pdlrecover.errors import HistoryError, PlanError
from pdlrecover.field import Elements
from pdlrecover.recovery.requests import Vector

OTHERWISE = (
    "what is stored of this run was asked for in another way than this version of the software "
    "asks; nothing is lost: go on with the version that began it"
)
_STEP = "step"
"""What the peer promised in a step is kept under this name."""
Outgoing = Send | Compute | Blame | Note | Halt


class RunSession:
    """Joins the machine, the driver and the store of one run."""

    def __init__(self, driver: Driver, store: Store) -> None:
        self.driver, self.protocol = driver, RunProtocol(driver.context, driver.longest)
        self._store, self._run = store, driver.context.run
        self.task: Task | None = None

    @property
    def finished(self) -> bool:
        """Whether the method has come to its model."""
        return self.driver.model is not None

    def start(self, now: float) -> list[Outgoing]:
        """Go through what the store has, and begin the first step that it has not."""
        self.task = self.driver.start()
        try:
            self._replay(self._store.log(self._run))
        except HistoryError:
            raise
        except (ValueError, IndexError) as error:
            raise PlanError(OTHERWISE) from error
        self._keep_model()
        step = self.protocol.step
        return self._begin(now, self._recall(_STEP, step), self._rows(step))

    def _replay(self, log: Sequence[LogEntry]) -> None:
        """Give the method what was opened; raise if it now asks otherwise than it did then.

        The last model that it asks at tells: it depends on everything before.
        """
        last: tuple[int, Vector] | None = None
        for step, entry in enumerate(log):
            if self.task is None:
                raise PlanError(OTHERWISE)
            if self.driver.at is not None:
                last = step, self.driver.at
            if step == len(log) - 1:
                self._recall_said(entry)
            self.protocol.replay(entry)
            self.task = self.driver.answer(entry)
        if last and not np.array_equal(self._store.asked_at(self._run, last[0]), last[1]):
            raise PlanError(OTHERWISE)

    def contribute(self, step: int, dealt: Dealt, now: float) -> list[Outgoing]:
        """Take what a `Compute` came to."""
        return self._carry_out(self.protocol.contribute(step, dealt, now), now)

    def receive(self, data: bytes, source: int, now: float) -> list[Outgoing]:
        """Take a message."""
        return self._carry_out(self.protocol.receive(data, source, now), now)

    def tick(self, now: float) -> list[Outgoing]:
        """Do what is due by the clock."""
        return self._carry_out(self.protocol.tick(now), now)

    def _rows(self, step: int) -> list[Row]:
        """Return the rows of a step that were kept."""
        notes = [self._recall(row_part(peer), step) for peer in self.protocol.context.peers]
        held = partial(self._store.held, self._run)
        return [row for note in notes if note and (row := restored(note, held))]

    def _recall(self, part: str, step: int) -> bytes | None:
        """Return what is kept of a step, if it is of this one."""
        memory = self._store.promised(self._run, part)
        if not memory or int.from_bytes(memory[:8], "little") != step:
            return None
        return memory[8:]

    def _recall_said(self, entry: LogEntry) -> None:
        """Find again what this peer said in the last step that the store has."""
        protocol, task, kept = self.protocol, self.task, None
        if task is None:
            return
        if memory := self._recall(_STEP, protocol.step):
            kept = Promise.restored(memory).now
        elif memory := self._recall(_STEP, protocol.step + 1):
            kept = Promise.restored(memory).before
        place = protocol.context.place(protocol.step, protocol.log, task.asked, task.round)
        protocol.said = recall_previous(self._store, protocol.context, task, place, entry, kept)

    def _begin(
        self, now: float, memory: bytes | None = None, rows: Sequence[Row] = ()
    ) -> list[Outgoing]:
        if self.task is None:
            self.protocol.end()
            return []
        self._store.reserve(self._run)
        return self._carry_out(self.protocol.begin(self.task, now, memory, rows), now)

    def _carry_out(self, effects: Sequence[Effect], now: float) -> list[Outgoing]:
        out: list[Outgoing] = []
        opened = False
        for effect in _together(effects):
            match effect:
                case _Write(values=values, shares=kept):
                    self._store.promise(self._run, values, kept)
                case Commit(entry=entry, shares=shares):
                    self._store.commit(self._run, entry, shares, self.driver.at)
                    self.task = self.driver.answer(entry)
                    self._keep_model()
                    opened = True
                case Serve(to=to, first=first):
                    out.append(self.protocol.answers(to, first, self._entries(first)))
                case _:
                    out.append(effect)
        return [*out, *self._begin(now)] if opened else out

    def _keep_model(self) -> None:
        """Keep what the method came to, if it has; what was promised in its steps is done with."""
        if self.driver.model is not None:
            if not np.array_equal(
                self._store.finish(self._run, self.driver.model), self.driver.model
            ):
                raise PlanError(OTHERWISE)
            parts = map(row_part, self.protocol.context.peers)
            if held := {part: b"" for part in parts if self._store.promised(self._run, part)}:
                self._store.promise(self._run, held, {})

    def _entries(self, first: int) -> list[LogEntry]:
        """Return entries from a step on, as many as one message should hold."""
        log = self._store.log(self._run)
        chosen: list[LogEntry] = []
        size = 0
        while first + len(chosen) < len(log) and len(chosen) < MAX_ENTRIES and size < ANSWER_BYTES:
            chosen.append(log[first + len(chosen)])
            size += chosen[-1].values.nbytes
        return chosen


class _Write(NamedTuple):
    """What is to be kept at once."""

    values: dict[str, bytes]
    shares: dict[Held, Elements]


def _together(effects: Sequence[Effect]) -> Iterator[Outgoing | Commit | Serve | _Write]:
    """Yield the effects, and what is to be kept before the next of them as one."""
    for keeps, some in groupby(effects, lambda effect: isinstance(effect, Remember | Keep)):
        if not keeps:
            yield from cast("Iterator[Outgoing | Commit | Serve]", some)
            continue
        write = _Write({}, {})
        for effect in some:
            if isinstance(effect, Remember):
                write.values[_STEP] = _of_step(effect.step, effect.value)
            elif isinstance(effect, Keep):
                for row in effect.rows:
                    note = row.saved(whole=not effect.stored)
                    write.values[row_part(row.held.dealer)] = _of_step(effect.step, note)
                    if effect.stored:
                        write.shares[row.held] = row.values
        yield write


def _of_step(step: int, value: bytes) -> bytes:
    return step.to_bytes(8, "little") + value
