"""A peer: the process that an organisation runs.

1. It trains with the others until the plan's rounds are done; the model goes to
   `trained.safetensors`.
2. It waits for removals. Once one has passed, it recovers the model with the other kept peers; the
   model goes to `recovered-….safetensors`, and what was opened for it to `recovered-….json`.

Started again after a crash it goes on where its store ends, and fetches what is public of the rest.
Recoveries do not wait for each other. All of the protocol happens in one task; only updates are
computed elsewhere, in a thread.
"""

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pdlrecover.engines.peers import codec
from pdlrecover.engines.peers.council import Council
from pdlrecover.engines.peers.desk import Desk
from pdlrecover.engines.peers.effects import Blame, Compute, Halt, Note, Send
from pdlrecover.engines.peers.messages import NOTHING
from pdlrecover.engines.peers.network import Limits, Network, Tls
from pdlrecover.engines.peers.participant import Outcome, Participant
from pdlrecover.engines.peers.report import serve_control, serve_metrics
from pdlrecover.engines.peers.runs import Runs
from pdlrecover.errors import CodecError, PDLRecoverError
from pdlrecover.field import one_blas_thread

LOG = logging.getLogger("pdlrecover.peer")
GOSSIP_SECONDS = 2.0
STATUS_SECONDS = 1.0
KEPT_BLAMES = 200
KEPT_EVIDENCE = 1000
"""So many pieces of evidence are written to disk."""


class Peer:
    """One peer of a federation, on a network."""

    def __init__(
        self,
        runs: Runs,
        *,
        addresses: Sequence[str],
        tls: Tls,
        limits: Limits | None = None,
        listen: str | None = None,
        metrics_port: int | None = None,
    ) -> None:
        """`addresses` are where peers are reached, `listen` where this one listens if elsewhere.

        Metrics are served on a port of this machine if one is given.
        """
        one_blas_thread()
        runs.folder.mkdir(parents=True, exist_ok=True)
        limits = limits or Limits(message_bytes=runs.largest_message)
        self.runs, self.folder = runs, runs.folder
        self.council = Council(runs.circle(NOTHING, range(runs.plan.peers)), runs.store)
        self.network = Network(
            me=runs.me,
            addresses=addresses,
            tls=tls,
            receive=self._receive,
            limits=limits,
            listen=listen,
        )
        self.parts: dict[bytes, Participant] = {}
        """This peer's part in each run that it has begun."""
        self.ended: dict[bytes, str] = {}
        """How each run came out: `done`, or why it stopped."""
        self.heard: dict[int, float] = {}
        self.blames: deque[dict[str, object]] = deque(maxlen=KEPT_BLAMES)
        self.counts: Counter[str] = Counter()
        self.desk = Desk(self)
        self._metrics_port = metrics_port
        self._room = [asyncio.Semaphore(limits.waiting_messages) for _ in addresses]
        self._events: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._threads = ThreadPoolExecutor(1, "pdlrecover-update")
        self._strange: set[tuple[int, bytes]] = set()
        self._gossip_at = self._status_at = 0.0
        self._stopping = False

    async def run(self) -> None:
        """Work until told to stop."""
        servers = []
        try:
            await self.network.start()
            servers.append(await serve_control(self.folder / "control", self.desk.command))
            if self._metrics_port is not None:
                servers.append(await serve_metrics(self._metrics_port, self.desk.metrics))
            self._begin(self.runs.training, self.runs.trainer())
            while not self._stopping:
                await self._turn()
        finally:
            for server in servers:
                server.close()
            self.desk.write_status()
            await self.network.stop()
            self._threads.shutdown(wait=False, cancel_futures=True)

    def stop(self) -> None:
        """Stop soon; what is committed is kept."""
        self._stopping = True
        self._events.put_nowait(("stop", None))

    def say(self, outcomes: Sequence[Outcome]) -> None:
        """Carry out what the council wants, and begin what it has passed."""
        self._carry(NOTHING, outcomes)
        self._start_recoveries()

    async def _turn(self) -> None:
        """Wait for what comes next, and deal with it."""
        alarms = [p.machine.wake_at for run, p in self.parts.items() if run not in self.ended]
        wait = min([*alarms, self._gossip_at, self._status_at]) - time.monotonic()
        try:
            event, value = await asyncio.wait_for(self._events.get(), max(0.0, wait))
        except TimeoutError:
            event, value = "time", None
        now = time.monotonic()
        if event == "message":
            source, data = value
            self._room[source].release()
            self._message(source, data, now)
        elif event == "dealt":
            run, step, dealt = value
            self._do(run, lambda p: p.contribute(step, dealt, now))
        elif event == "failed":
            run, why = value
            self._end(run, f"stopped: {why}")
        for run, participant in list(self.parts.items()):
            if participant.machine.wake_at <= now and run not in self.ended:
                self._do(run, lambda p: p.tick(now))
        if now >= self._gossip_at:
            self._gossip_at = now + GOSSIP_SECONDS
            self._carry(NOTHING, self.council.again())
        if now >= self._status_at:
            self._status_at = now + STATUS_SECONDS
            self.desk.write_status()

    async def _receive(self, source: int, data: bytes) -> None:
        await self._room[source].acquire()
        self._events.put_nowait(("message", (source, data)))

    def _message(self, source: int, data: bytes, now: float) -> None:
        self.heard[source] = now
        self.counts["messages"] += 1
        run = codec.peek_run(data)
        if run in self.parts:
            self._do(run, lambda p: p.receive(data, source, now))
        elif run == NOTHING:
            self.say(self.council.receive(data, source))
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
                "peer %s speaks of run %s, which is not known here (yet): a removal whose "
                "approvals are on their way, or another plan or model than this peer's",
                source,
                run.hex()[:16],
            )

    def _begin(self, run: bytes, participant: Participant) -> None:
        self.parts[run] = participant
        self._do(run, lambda p: p.start(time.monotonic()))

    def _do(self, run: bytes, act: Callable[[Participant], list[Outcome]]) -> None:
        """Let a run act; what goes wrong in it ends this run at this peer, and no other."""
        participant = self.parts[run]
        try:
            self._carry(run, act(participant))
        except PDLRecoverError as error:
            self._end(run, f"stopped: {error}")
            return
        if participant.finished and run not in self.ended:
            self._finish(run, participant)

    def _carry(self, run: bytes, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            match outcome:
                case Send(to=to, data=data):
                    self.network.send(to, data)
                case Compute():
                    self._compute(run, outcome)
                case Blame(peer=peer, what=what, evidence=evidence):
                    self._blame(peer, what, evidence)
                case Note(text=text, facts=facts):
                    LOG.info(text, extra={"facts": {"run": run.hex()[:16], **facts}})
                case Halt(why=why):
                    self._end(run, f"stopped: {why}")

    def _compute(self, run: bytes, job: Compute) -> None:
        """Deal in the thread; the result comes back as an event."""
        loop = asyncio.get_running_loop()

        def work() -> None:
            try:
                event: tuple[str, Any] = "dealt", (run, job.step, job.run())
            except PDLRecoverError as error:
                event = "failed", (run, str(error))
            loop.call_soon_threadsafe(self._events.put_nowait, event)

        self._threads.submit(work)

    def _blame(self, peer: int, what: str, evidence: tuple[bytes, ...]) -> None:
        self.counts["blames"] += 1
        facts: dict[str, object] = {"peer": peer, "what": what, "proven": bool(evidence)}
        self.blames.append({**facts, "time": time.time()})
        LOG.warning("peer %s %s", peer, what, extra={"facts": facts})
        place = self.folder / "evidence"
        for i, part in enumerate(evidence):
            self.counts["evidence"] += 1
            if self.counts["evidence"] <= KEPT_EVIDENCE:
                place.mkdir(exist_ok=True)
                name = f"{int(time.time())}-{self.counts['blames']}-peer-{peer}-{i}.bin"
                (place / name).write_bytes(part)

    def _end(self, run: bytes, how: str) -> None:
        if run not in self.ended:
            self.ended[run] = how
            LOG.info("run %s: %s", run.hex()[:16], how, extra={"facts": {"run": run.hex()[:16]}})
            self.desk.write_status()

    def _finish(self, run: bytes, participant: Participant) -> None:
        if run == self.runs.training:
            self.runs.write_trained(participant)
            self._end(run, "done")
            self.council.about(participant.machine.log)
            self._start_recoveries()
        else:
            self.runs.write_recovered(participant, self.council.removals[run])
            self._end(run, "done")

    def _start_recoveries(self) -> None:
        for removal in self.council.passed():
            run = removal.proposal.digest
            if run in self.parts or run in self.ended or self.runs.me not in removal.kept:
                continue
            LOG.info("removal %s has passed", run.hex()[:16])
            try:
                trained = self.parts[self.runs.training].driver
                self._begin(run, self.runs.recoverer(removal, trained))
            except PDLRecoverError as error:
                self._end(run, f"stopped: {error}")
