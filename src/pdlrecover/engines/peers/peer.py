"""A peer: the process that an organisation runs.

1. If the federation standardises inputs, it agrees with the others on their scale, which goes to
   `standardisation.json`. Then it trains with them until the agreed rounds are done; the model goes
   to `trained.safetensors`, and what was opened for it to `trained.json`. Who is removed meanwhile
   deals no more in it.
2. It waits for removals. Once one has passed, it recovers the model with the other kept peers; the
   model goes to `recovered-….safetensors`, and what was opened for it to `recovered-….json`.
3. When a round of either was void, it helps to find who made it so, in a run beside the others: who
   was found, and what was opened for that, goes to `naming-….json`.

Started again after a crash it goes on where its store ends, and fetches what is public of the rest.
What goes wrong in a run ends that run; a message that cannot be dealt with is passed over, whatever
is in it; a store that cannot be used, such as a full disk, ends the peer, between two steps.
Recoveries do not wait for each other. All of the protocol happens in one task; only updates are
computed elsewhere, in a thread, and stored logs are gone through in another.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pdlrecover.engines.events import Observer
from pdlrecover.engines.peers.federation.file_mismatch import Disagreement
from pdlrecover.engines.peers.folder import CONTROL
from pdlrecover.engines.peers.greeting import encode, greeting
from pdlrecover.engines.peers.operator.control import Control
from pdlrecover.engines.peers.operator.local_socket import serve_control
from pdlrecover.engines.peers.operator.metrics import serve_metrics
from pdlrecover.engines.peers.operator.misconduct import KEPT_BLAMES, Misconduct
from pdlrecover.engines.peers.operator.numbers import Numbers
from pdlrecover.engines.peers.operator.status import DONE
from pdlrecover.engines.peers.protocol import codec
from pdlrecover.engines.peers.protocol.effects import Blame, Compute, Halt, Note, Send
from pdlrecover.engines.peers.protocol.messages import NOTHING
from pdlrecover.engines.peers.removals.votes import Removals
from pdlrecover.engines.peers.runs.founding import Lives
from pdlrecover.engines.peers.runs.progress import Progress
from pdlrecover.engines.peers.runs.published import Published
from pdlrecover.engines.peers.runs.run_factory import RunFactory
from pdlrecover.engines.peers.runs.run_session import Outgoing, RunSession
from pdlrecover.engines.peers.runs.stalls import Stalls
from pdlrecover.engines.peers.runs.void_rounds import VoidRound, looked_into
from pdlrecover.engines.peers.transport.inbox import Inbox
from pdlrecover.engines.peers.transport.link import Limits, Tls
from pdlrecover.engines.peers.transport.network import Network
from pdlrecover.errors import CodecError, HistoryError, PDLRecoverError
from pdlrecover.field import one_blas_thread

LOG = logging.getLogger("pdlrecover.peer")
GOSSIP_SECONDS = 2.0
STATUS_SECONDS = 2.0


class Peer:
    """One peer of a federation, on a network."""

    def __init__(
        self,
        runs: RunFactory,
        *,
        tls: Tls,
        limits: Limits | None = None,
        listen: str | None = None,
        metrics_port: int | None = None,
        metrics_host: str = "127.0.0.1",
        replaces_stalled: bool = True,
        observers: Sequence[Observer] = (),
    ) -> None:
        """`listen` is where this peer listens, if not at the address that the others know.

        Metrics are served on a port of this machine, or of another host that it has, if one is
        given. Unless it `replaces_stalled` recoveries by itself, its operator decides on that.
        `observers` are told what is public of trainings and recoveries: see `runs.published`.
        """
        one_blas_thread()
        runs.folder.mkdir(parents=True, exist_ok=True)
        members, deadlines = runs.membership.peers, runs.membership.deadlines
        largest = runs.largest_message
        limits = limits or Limits(
            message_bytes=largest, queued_bytes=2 * largest, deadline=deadlines.message
        )
        self.runs, self.folder = runs, runs.folder
        self.names = [peer.name for peer in members]
        context = runs.context(NOTHING, range(runs.peers))
        self.removals = Removals(
            context, runs.store, runs.membership.training, runs.membership.recovery
        )
        self.stalls = Stalls(
            self.removals, self.names, runs.membership.recovery, by_itself=replaces_stalled
        )
        self.lives = Lives(context, self.removals, self.names)
        self.disagreement = Disagreement(context, runs.membership)
        self.network = Network(
            me=runs.me,
            addresses=[peer.address for peer in members],
            tls=tls,
            receive=self._receive,
            limits=limits,
            listen=listen,
            complain=self._refused,
            greet=lambda: encode(greeting(runs.membership.digest)),
        )
        self.listens_on = listen or members[runs.me].address
        self.sessions: dict[bytes, RunSession] = {}
        """This peer's part in each run that it has begun."""
        self.ended: dict[bytes, str] = {}
        """How each run came out: `done`, or why it stopped."""
        self.heard: dict[int, float] = {}
        self.misconduct = Misconduct(runs.store, runs.folder, self.names)
        self.counts: Counter[str] = Counter()
        self.control = Control(self)
        self.numbers = Numbers(self)
        self._metrics_port, self._metrics_host = metrics_port, metrics_host
        self._waiting = [Inbox(limits) for _ in members]
        self._events: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._threads = ThreadPoolExecutor(1, "pdlrecover-update")
        self._starting: dict[bytes, asyncio.Future[None]] = {}
        """Runs whose stored log is being gone through."""
        self._namings: dict[bytes, VoidRound] = {}
        """The runs that find who made a round void."""
        self._strange: set[tuple[int, bytes]] = set()
        self._refusals: set[str] = set()
        self._gossip_at = self._status_at = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        """When the next `time` event comes, by the clock of the loop: `time.monotonic`."""
        self._progress: dict[bytes, Progress] = {}
        self._published = Published(
            observers, runs.membership, runs.me, lambda text: LOG.warning("%s", text)
        )
        self._stopping = False
        self._failure: PDLRecoverError | None = None

    async def run(self) -> None:
        """Work until `stop` is called; raise if there is no going on for this peer."""
        servers = []
        try:
            await self.network.start()
            servers.append(await serve_control(self.folder / CONTROL, self.control.command))
            if self._metrics_port is not None:
                port, host = self._metrics_port, self._metrics_host
                servers.append(await serve_metrics(port, self.numbers.read, host))
            numbered = ", ".join(f"{i} {name}" for i, name in enumerate(self.names))
            text, facts = "this is %s; the peers are %s", {"event": "started"}
            LOG.info(text, self.names[self.runs.me], numbered, extra={"facts": facts})
            self._begin_runs()
            while not self._stopping:
                await self._turn()
        finally:
            self._silence()
            for server in servers:
                server.close()
            (self.folder / CONTROL).unlink(missing_ok=True)
            self._write_status()
            self._published.interrupt()
            await self.network.stop()
            self._threads.shutdown(wait=False, cancel_futures=True)
            await asyncio.gather(*self._starting.values())
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Stop soon; what is committed is kept."""
        if not self._stopping:
            text, facts = "stopping: this may take some seconds", {"event": "stopping"}
            LOG.info(text, extra={"facts": facts})
        self._stopping = True
        self._events.put_nowait(("stop", None))

    def title(self, run: bytes) -> str:
        """Return what a run is called in messages."""
        kind = self.kind(run)
        only = ("founding", "standardisation", "training")
        return kind if kind in only else f"{kind} {run.hex()[:16]}"

    def kind(self, run: bytes) -> str:
        """Return what a run is for.

        That is `founding`, `standardisation`, `training`, `recovery` or `naming`.
        """
        known = {
            self.runs.founding: "founding",
            self.runs.standardising: "standardisation",
            self.runs.training: "training",
        }
        return known.get(run, "naming" if run in self._namings else "recovery")

    def say(self, outcomes: Sequence[Outgoing]) -> None:
        """Carry out what was decided on removals, and begin the recoveries that have passed."""
        self._carry(NOTHING, outcomes)
        self._start_recoveries()

    async def _turn(self) -> None:
        """Wait for what comes next, and deal with it."""
        if self._events.empty():  # what waits is bounded, and comes before the network's turn
            self._set_alarm()
        event, value = await self._events.get()
        now = time.monotonic()
        if event == "message":
            source, data = value
            self._waiting[source].leave(len(data))
            self._message(source, data, now)
        elif event == "dealt":
            run, step, dealt = value
            self._do(run, lambda session: session.contribute(step, dealt, now))
        elif event == "begun":
            run, outcomes = value
            del self._starting[run]
            session = self.sessions[run]
            self._published.go_live(run)
            self._progress[run] = Progress(run, self.title(run), session, self.names)
            self._do(run, lambda _: outcomes)
            self._leave_out_removed()
        elif event == "failed":
            run, error = value
            self._starting.pop(run, None)
            self._fail(run, error)
        for run, session in list(self.sessions.items()):
            if self._is_under_way(run) and session.protocol.wake_at <= now:
                self._do(run, lambda session: session.tick(now))
        if now >= self._gossip_at:
            self._gossip_at = now + GOSSIP_SECONDS
            self._carry(NOTHING, self.removals.again())
        if now >= self._status_at:
            self._status_at = now + STATUS_SECONDS
            self._look_for_stalls(now)
            self._write_status()

    def _look_for_stalls(self, now: float) -> None:
        """Say which runs do not go on, and do about it what was agreed."""
        for run, session in list(self.sessions.items()):
            if self._is_under_way(run):
                waiting = session.protocol.waiting(now)
                if reactions := self.stalls.look(run, self.title(run), waiting, now):
                    self.say(reactions)

    def _set_alarm(self) -> None:
        """Make sure that there is an event when something is due; one that is early does no harm.

        What is due is looked for after every event, so the alarm is set only before waiting.
        """
        under_way = (each for run, each in self.sessions.items() if self._is_under_way(run))
        alarms = [session.protocol.wake_at for session in under_way]
        due = min([*alarms, self._gossip_at, self._status_at])
        if self._alarm is None or due < self._alarm.when():
            self._silence()
            self._alarm = asyncio.get_running_loop().call_at(due, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._events.put_nowait(("time", None))

    def _silence(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()

    async def _receive(self, source: int, data: bytes) -> None:
        await self._waiting[source].enter(len(data))
        self._events.put_nowait(("message", (source, data)))

    def _message(self, source: int, data: bytes, now: float) -> None:
        """Deal with a message; whatever goes wrong with it, others are dealt with after it."""
        self.heard[source] = now
        self.counts["messages"] += 1
        try:
            self._take(source, data, now)
        except HistoryError:
            raise
        except Exception as error:  # nobody's message is to end this peer
            text = f"a message of {self.names[source]} could not be dealt with, which is a bug"
            facts = {"event": "bug", "peer": source}
            self.misconduct.log(logging.ERROR, source, text, facts, error)

    def _take(self, source: int, data: bytes, now: float) -> None:
        run = codec.peek_run(data)
        if self.disagreement.concerns(data):
            self._carry(NOTHING, self.disagreement.receive(data, source, now))
        elif run in self.sessions:
            self._do(run, lambda session: session.receive(data, source, now))
        elif run == NOTHING:
            self.say(self.removals.receive(data, source))
            self._look_for_lives()
        else:
            self._stranger(source, run, data)

    def _stranger(self, source: int, run: bytes, data: bytes) -> None:
        """Pass over a message of a run that is not known here, and say so once."""
        self.counts["unknown_run"] += 1
        try:
            codec.decode(data)
        except CodecError as error:
            self._blame(source, str(error), ())
            return
        if (source, run) not in self._strange and len(self._strange) < KEPT_BLAMES:
            self._strange.add((source, run))
            LOG.info(
                "%s speaks of run %s, which is not known here (yet): a removal whose "
                "approvals are on their way, a void round that this peer has not come to, or "
                "another model than this peer's",
                self.names[source],
                run.hex()[:16],
                extra={"facts": {"event": "unknown-run", "peer": source, "run": run.hex()[:16]}},
            )

    def _is_under_way(self, run: bytes) -> bool:
        return run not in self.ended and run not in self._starting

    def _begin_runs(self) -> None:
        """Agree on an epoch, unless there is one, and go on from there."""
        if not self.runs.founded:
            self.removals.wait_for_training()
        if founder := self.runs.founder():
            self._begin(self.runs.founding, founder)
        if self.runs.founded:
            self._enter_training()

    def _enter_training(self) -> None:
        """Agree on the scale of inputs, if there is to be one, and train."""
        facts = {"event": "training", "run": self.runs.training.hex()[:16]}
        LOG.info("the training is run %s", facts["run"], extra={"facts": facts})
        self.removals.train(self.runs.training, self.runs.epoch_name)
        standardiser = self.runs.standardiser()
        if standardiser is None:
            self._train()
            return
        standardiser.protocol.leave_out(self.removals.removed_in_training())
        self._begin(self.runs.standardising, standardiser)

    def _train(self) -> None:
        try:
            session = self.runs.trainer()
        except Exception as error:  # what began it has ended well
            self._fail(self.runs.training, error)
            return
        session.protocol.leave_out(self.removals.removed_in_training())
        self._published.begin(self.runs.training, session.driver)
        self._begin(self.runs.training, session)
        self._start_recoveries()

    def _look_for_lives(self) -> None:
        """Join the training that enough others are in; say it if they are in another one."""
        if self.runs.founded:
            self.lives.compare(self.runs.training)
        elif (training := self.lives.agreed()) is not None:
            self.runs.join(training)
            self._end(self.runs.founding, "stopped: the others have founded the training")
            self._enter_training()

    def _begin(self, run: bytes, session: RunSession) -> None:
        """Go through what is stored of a run, in a thread: it may be long."""
        self.sessions[run] = session
        work = self._reporting(run, lambda: ("begun", (run, session.start(time.monotonic()))))
        self._starting[run] = asyncio.get_running_loop().run_in_executor(None, work)

    def _do(self, run: bytes, act: Callable[[RunSession], list[Outgoing]]) -> None:
        """Let a run act; what goes wrong in it ends this run at this peer, and no other.

        A run that is not there yet, or has stopped, is left alone; one that is done answers others.
        """
        if run in self._starting or self.ended.get(run, DONE) != DONE:
            return
        session = self.sessions[run]
        try:
            self._carry(run, act(session))
            self._progress[run].say()
            self._start_namings(session)
            if session.finished and run not in self.ended:
                self._finish(run, session)
        except Exception as error:  # one run's trouble is not to end the others
            self._fail(run, error)

    def _fail(self, run: bytes, error: Exception) -> None:
        """End a run; a store that cannot be written or read any more ends the peer."""
        text = str(error)
        if not isinstance(error, PDLRecoverError):
            facts = {"event": "bug", "run": run.hex()[:16]}
            said = "this should not have happened, and is a bug"
            LOG.error(said, exc_info=error, extra={"facts": facts})
            text = f"{type(error).__name__}: {error}"
        self._end(run, f"stopped: {text}")
        if isinstance(error, HistoryError):
            self._failure = error
            self.stop()

    def _carry(self, run: bytes, outcomes: Sequence[Outgoing]) -> None:
        for outcome in outcomes:
            match outcome:
                case Send(to=to, data=data):
                    self.network.send(to, data)
                case Compute():
                    self._compute(run, outcome)
                case Blame(peer=peer, what=what, evidence=evidence):
                    self._blame(peer, what, evidence, run)
                case Note(text=text, facts=facts):
                    facts = facts if run == NOTHING else {"run": run.hex()[:16], **facts}
                    if isinstance(source := facts.get("peer"), int):
                        self.misconduct.log(logging.INFO, source, text, facts)
                    else:
                        LOG.info("%s", text, extra={"facts": facts})
                case Halt(why=why):
                    self._end(run, f"stopped: {why}")

    def _compute(self, run: bytes, job: Compute) -> None:
        """Deal in the thread; the result comes back as an event."""
        self._threads.submit(self._reporting(run, lambda: ("dealt", (run, job.step, job.run()))))

    def _reporting(self, run: bytes, work: Callable[[], tuple[str, Any]]) -> Callable[[], None]:
        """Return what does this work in a thread, and makes an event of whatever comes of it."""
        loop = asyncio.get_running_loop()

        def report() -> None:
            try:
                event = work()
            except Exception as error:
                event = "failed", (run, error)
            loop.call_soon_threadsafe(self._events.put_nowait, event)

        return report

    def _blame(
        self, peer: int, what: str, evidence: tuple[bytes, ...], run: bytes = NOTHING
    ) -> None:
        step = self.sessions[run].protocol.step if run in self.sessions else 0
        self.misconduct.blame(peer, what, evidence, (run, step))

    def _refused(self, peer: int | None, what: str) -> None:
        """Name what the network has refused."""
        if peer is not None:
            self._blame(peer, what, ())
        elif what not in self._refusals and len(self._refusals) < KEPT_BLAMES:
            self._refusals.add(what)  # who calls again and again is named once
            LOG.warning("%s", what, extra={"facts": {"event": "caller-refused"}})

    def _write_status(self) -> None:
        self.numbers.look()
        try:
            self.control.write_status()
        except OSError as error:
            text, facts = "the status file cannot be written: %s", {"event": "cannot-write"}
            LOG.warning(text, error.strerror, extra={"facts": facts})

    def _end(self, run: bytes, how: str) -> None:
        if run not in self.ended:
            self.ended[run] = how
            self.stalls.forget(run)
            self._published.end(run, "" if how == DONE else how)
            facts = {"event": "ended", "run": run.hex()[:16], "outcome": how}
            LOG.info("%s: %s", self.title(run), how, extra={"facts": facts})
            self._write_status()

    def _finish(self, run: bytes, session: RunSession) -> None:
        if run == self.runs.founding:
            self._end(run, DONE)
            if not self.runs.founded:
                self.runs.settle_epoch(session.protocol.log)
                self._enter_training()
        elif run == self.runs.standardising:
            self.runs.settle_inputs(session)
            level = logging.INFO if self.runs.standardised else logging.WARNING
            facts = {"event": "inputs", "run": run.hex()[:16]}
            LOG.log(level, "inputs: %s", self.runs.inputs, extra={"facts": facts})
            self._end(run, DONE)
            if self.runs.standardised:
                self._train()
        elif run == self.runs.training:
            kept_from = self.runs.history.shares_from
            self.removals.training_ended(session.protocol.log, self.runs.dealers(), kept_from)
            self.runs.results.write_trained(session)  # who sees it may propose a removal at once
            self._end(run, DONE)
            self._start_recoveries()
        elif run in self._namings:
            self.runs.results.write_named(session, self._namings[run])
            self._end(run, DONE)
        else:
            self.runs.results.write_recovered(session, self.removals.known[run])
            self._end(run, DONE)

    def _leave_out_removed(self) -> None:
        """Let the training, and what comes before it, go on without those that were removed."""
        for run in (self.runs.standardising, self.runs.training):
            session = self.sessions.get(run)
            if session is None or not self._is_under_way(run):
                continue
            removed = self.removals.removed_in_training()
            if removed != session.protocol.left_out:
                session.protocol.leave_out(removed)
                who = ", ".join(self.names[peer] for peer in sorted(removed)) or "nobody"
                facts = {"event": "left-out", "run": run.hex()[:16]}
                text = "%s: goes on without %s, removed by a vote"
                LOG.info(text, self.title(run), who, extra={"facts": facts})

    def _end_replaced(self, run: bytes, by: bytes) -> None:
        """End a recovery that another takes the place of, or see to it that it does not begin."""
        if self.ended.get(run) != DONE:
            self._end(run, f"stopped: replaced by removal {by.hex()[:16]}")

    def _start_namings(self, session: RunSession) -> None:
        """Begin to look for who made a round void, in the first few that are; not in a founding."""
        if session is self.sessions.get(self.runs.founding):
            return
        trains = session is self.sessions.get(self.runs.training)
        removed = self.removals.removals_in_training() if trains else []
        for void in looked_into(session.driver.void_rounds, removed):
            if void.naming not in self._namings:
                self._namings[void.naming] = void
                self._begin(void.naming, self.runs.namer(void, session.driver.context.peers))

    def _start_recoveries(self) -> None:
        if not self.runs.founded:
            return
        self._leave_out_removed()
        if not self.runs.standardised:
            return  # what recoveries compute depends on the scale
        replaced = self.removals.replaced()
        for run, by in replaced.items():
            self._end_replaced(run, by)
        for removal in self.removals.passed():
            run = removal.proposal.digest
            if run in self.sessions or run in self.ended or self.runs.me not in removal.kept:
                continue
            name = run.hex()[:16]
            facts = {"event": "removal-passed", "run": name, "removal": name}
            text = "removal %s has passed, the recovery begins"
            LOG.info(text, name, extra={"facts": facts})
            try:
                closed = self.removals.closed_rounds(removal.proposal)
                session = self.runs.recoverer(removal, closed)
                self._published.begin(run, session.driver, removal.proposal)
                self._begin(run, session)
            except Exception as error:  # one recovery's trouble is not to end the others
                self._fail(run, error)
