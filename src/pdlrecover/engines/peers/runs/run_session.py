"""One peer in one run: the protocol core, the method, and the store, still without a network.

What is left for the outside to do is to send, to compute, and to say. A session that is made again
on the same store goes on where its log ends.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import NamedTuple, cast

import numpy as np

from pdlrecover.engines.peers.protocol import effects as e
from pdlrecover.engines.peers.protocol import step_memory as memory
from pdlrecover.engines.peers.protocol.contracts import Store
from pdlrecover.engines.peers.protocol.dealing import Dealt
from pdlrecover.engines.peers.protocol.messages import (
    MAX_ENTRIES,
    Held,
    LogEntry,
    SubSecret,
    choice_of,
)
from pdlrecover.engines.peers.protocol.previous_step import PreviousStep
from pdlrecover.engines.peers.protocol.run_protocol import ANSWER_BYTES, RunProtocol
from pdlrecover.engines.peers.protocol.single_dealings import SingleDealings
from pdlrecover.engines.peers.protocol.tasks import Task
from pdlrecover.engines.peers.runs.driver import Driver
from pdlrecover.errors import HistoryError, PlanError
from pdlrecover.field import Elements
from pdlrecover.recovery.requests import Vector

OTHERWISE = (
    "what is stored of this run was asked for in another way than this version of the software "
    "asks; nothing is lost: go on with the version that began it"
)
Outgoing = e.Send | e.Compute | e.Blame | e.Note | e.Halt


class RunSession:
    """Joins the protocol, the driver and the store of one run."""

    def __init__(self, driver: Driver, store: Store) -> None:
        self.driver, self.protocol = driver, RunProtocol(driver.context, driver.longest)
        self._store, self._run = store, driver.context.run
        self.task: Task | None = None
        self.named: set[int] = set()
        """Who made a round void, by what this run has opened."""

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
        promise = self._promise()
        if promise is not None and promise.step != self.protocol.step:
            promise = None
        return self._begin(now, promise, self._rows(self.protocol.step))

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
                self.protocol.previous = self._recall_previous(self.task, entry)
            self.protocol.replay(entry)
            self._named(entry)
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

    def _rows(self, step: int) -> list[memory.Row]:
        """Return the rows of a step that were kept."""
        saved = (
            self._store.promised(self._run, memory.row_name(p)) for p in self.protocol.context.peers
        )
        rows = [memory.KEPT_ROW.decode(data) for data in saved if data]
        staged = partial(self._store.held, self._run)
        return [row.restored(staged) for row in rows if row.step == step]

    def _promise(self) -> memory.Promise | None:
        """Return what this peer promised in the last step in which it did."""
        saved = self._store.promised(self._run, memory.PROMISE_NAME)
        return memory.PROMISE.decode(saved) if saved else None

    def _recall_previous(self, task: Task, entry: LogEntry) -> PreviousStep:
        """Return what this peer said in the last step of the store, as far as it can be had."""
        protocol, promise, spoken = self.protocol, self._promise(), None
        if promise and promise.step == protocol.step:
            spoken = promise.now
        elif promise and promise.step == protocol.step + 1:
            spoken = promise.before
        if task.kind is None:
            values = task.sub_secret({})
        elif not task.kind.stored:
            values = spoken.sub_secret if spoken else None
        else:
            dealers = [held.dealer for held in entry.dealers]
            total = self._store.shares(self._run, protocol.step, dealers)
            values = None if total is None else task.sub_secret({protocol.context.me: total})
        part = None if values is None else SubSecret(choice=choice_of(entry.dealers), values=values)
        place = protocol.context.place(protocol.step, protocol.log, task.asked, task.round)
        return PreviousStep(place=place, spoken=spoken, sub_secret=part)

    def _begin(
        self, now: float, memory: memory.Promise | None = None, rows: Sequence[memory.Row] = ()
    ) -> list[Outgoing]:
        if self.task is None:
            self.protocol.end()
            return []
        self._store.reserve(self._run)
        return self._carry_out(self.protocol.begin(self.task, now, memory, rows), now)

    def _carry_out(self, effects: Sequence[e.Effect], now: float) -> list[Outgoing]:
        out: list[Outgoing] = []
        opened = False
        for effect in _together(effects):
            match effect:
                case _Write(values=values, shares=kept):
                    self._store.promise(self._run, values, kept)
                case e.Commit(entry=entry, shares=shares, signed=signed):
                    out += self._named(entry, signed)
                    self._store.commit(self._run, entry, shares, self.driver.at)
                    if shares:
                        missing = {held.dealer for held in entry.dealers} - shares.keys()
                        self.driver.participation.withheld.update(missing)
                    self.task = self.driver.answer(entry)
                    self._keep_model()
                    opened = True
                case e.Serve(to=to, first=first):
                    out.append(self.protocol.answers(to, first, self._entries(first)))
                case _:
                    out.append(effect)
        return [*out, *self._begin(now)] if opened else out

    def _named(self, entry: LogEntry, signed: tuple[bytes, ...] = ()) -> list[e.Blame]:
        """Name who made a round void, if that is what was opened.

        Who has only fetched what was opened names it without proof.
        """
        if not isinstance(self.task, SingleDealings):
            return []
        found = self.task.named(entry.values)
        self.named.update(found)
        return [e.Blame(peer=peer, what=what, evidence=signed) for peer, what in found.items()]

    def _keep_model(self) -> None:
        """Keep what the method came to, if it has; what was promised in its steps is done with."""
        if self.driver.model is not None:
            if not np.array_equal(
                self._store.finish(self._run, self.driver.model), self.driver.model
            ):
                raise PlanError(OTHERWISE)
            names = map(memory.row_name, self.protocol.context.peers)
            if kept := {name: b"" for name in names if self._store.promised(self._run, name)}:
                self._store.promise(self._run, kept, {})

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


def _together(effects: Sequence[e.Effect]) -> Iterator[Outgoing | e.Commit | e.Serve | _Write]:
    """Yield the effects, and what is to be kept before the next of them as one."""
    for keeps, some in groupby(effects, lambda effect: isinstance(effect, e.Remember | e.Keep)):
        if not keeps:
            yield from cast("Iterator[Outgoing | e.Commit | e.Serve]", some)
            continue
        write = _Write({}, {})
        for effect in some:
            if isinstance(effect, e.Remember):
                write.values[memory.PROMISE_NAME] = memory.PROMISE.encode(effect.promise)
            elif isinstance(effect, e.Keep):
                for row in effect.rows:
                    kept = row
                    if effect.stored and row.values is not None:
                        write.shares[row.held], kept = row.values, replace(row, values=None)
                    write.values[memory.row_name(row.held.dealer)] = memory.KEPT_ROW.encode(kept)
        yield write
