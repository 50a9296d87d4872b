"""A peer: the process that an organisation runs.

1. It trains with the others until the agreed rounds are done; the model goes to
   `trained.safetensors`, and what was opened for it to `trained.json`.
2. It waits for removals. Once one has passed, it recovers the model with the other kept peers; the
   model goes to `recovered-….safetensors`, and what was opened for it to `recovered-….json`.

Started again after a crash it goes on where its store ends, and fetches what is public of the rest.
What goes wrong in a run ends that run; a store that cannot be used, such as a full disk, ends the
peer, between two steps.
Recoveries do not wait for each other. All of the protocol happens in one task; only updates are
computed elsewhere, in a thread.
"""

import asyncio
import json
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
from pdlrecover.engines.peers.terms import Disagreement
from pdlrecover.errors import CodecError, HistoryError, PDLRecoverError
from pdlrecover.field import one_blas_thread

LOG = logging.getLogger("pdlrecover.peer")
GOSSIP_SECONDS = 2.0
STATUS_SECONDS = 1.0
KEPT_BLAMES = 200
KEPT_EVIDENCE = 1000
"""So many pieces of evidence are written to disk."""
CONTROL = "control"
"""The local socket, in the peer's folder."""
_CAUGHT = "caught"


class Peer:
    """One peer of a federation, on a network."""

    def __init__(
        self,
        runs: Runs,
        *,
        tls: Tls,
        limits: Limits | None = None,
        listen: str | None = None,
        metrics_port: int | None = None,
    ) -> None:
        """`listen` is where this peer listens, if not at the address that the others know.

        Metrics are served on a port of this machine if one is given.
        """
        one_blas_thread()
        runs.folder.mkdir(parents=True, exist_ok=True)
        members, deadlines = runs.membership.peers, runs.membership.deadlines
        limits = limits or Limits(message_bytes=runs.largest_message, deadline=deadlines.message)
        self.runs, self.folder = runs, runs.folder
        self.names = [peer.name for peer in members]
        circle = runs.circle(NOTHING, range(runs.peers))
        recovery = runs.membership.recovery
        self.council = Council(circle, runs.store, recovery.min_removed, recovery.told())
        self.disagreement = Disagreement(circle, runs.membership)
        self.network = Network(
            me=runs.me,
            addresses=[peer.address for peer in members],
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
        self.caught: dict[tuple[int, str], float] = self._recall_caught()
        """Who was proven to have cheated, how, and when first."""
        self.counts: Counter[str] = Counter()
        self.desk = Desk(self)
        self._metrics_port = metrics_port
        self._room = [asyncio.Semaphore(limits.waiting_messages) for _ in members]
        self._events: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._threads = ThreadPoolExecutor(1, "pdlrecover-update")
        self._strange: set[tuple[int, bytes]] = set()
        self._gossip_at = self._status_at = 0.0
        self._told_round: dict[bytes, int] = {}
        self._stopping = False
        self._failure: PDLRecoverError | None = None

    async def run(self) -> None:
        """Work until told to stop; raise if there is no going on for this peer."""
        servers = []
        try:
            await self.network.start()
            servers.append(await serve_control(self.folder / CONTROL, self.desk.command))
            if self._metrics_port is not None:
                servers.append(await serve_metrics(self._metrics_port, self.desk.metrics))
            numbered = ", ".join(f"{i} {name}" for i, name in enumerate(self.names))
            LOG.info("peer %s of %s", self.runs.me, numbered)
            self._begin(self.runs.training, self.runs.trainer())
            while not self._stopping:
                await self._turn()
        finally:
            for server in servers:
                server.close()
            (self.folder / CONTROL).unlink(missing_ok=True)
            self._write_status()
            await self.network.stop()
            self._threads.shutdown(wait=False, cancel_futures=True)
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Stop soon; what is committed is kept."""
        self._stopping = True
        self._events.put_nowait(("stop", None))

    def title(self, run: bytes) -> str:
        """Return what a run is called in messages."""
        return "training" if run == self.runs.training else f"recovery {run.hex()[:16]}"

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
            self._write_status()

    async def _receive(self, source: int, data: bytes) -> None:
        await self._room[source].acquire()
        self._events.put_nowait(("message", (source, data)))

    def _message(self, source: int, data: bytes, now: float) -> None:
        self.heard[source] = now
        self.counts["messages"] += 1
        run = codec.peek_run(data)
        if self.disagreement.concerns(data):
            self._carry(NOTHING, self.disagreement.receive(data, source, now))
        elif run in self.parts:
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
                "%s speaks of run %s, which is not known here (yet): a removal whose "
                "approvals are on their way, or another model than this peer's",
                self.names[source],
                run.hex()[:16],
            )

    def _begin(self, run: bytes, participant: Participant) -> None:
        self.parts[run] = participant
        self._do(run, lambda p: p.start(time.monotonic()))

    def _do(self, run: bytes, act: Callable[[Participant], list[Outcome]]) -> None:
        """Let a run act; what goes wrong in it ends this run at this peer, and no other.

        A store that cannot be written or read any more ends the peer.
        """
        participant = self.parts[run]
        try:
            self._carry(run, act(participant))
            self._tell_progress(run, participant)
            if participant.finished and run not in self.ended:
                self._finish(run, participant)
        except HistoryError as error:
            self._end(run, f"stopped: {error}")
            self._failure = error
            self.stop()
        except PDLRecoverError as error:
            self._end(run, f"stopped: {error}")

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
        LOG.warning("%s %s", self.names[peer], what, extra={"facts": facts})
        if evidence and (peer, what) not in self.caught and len(self.caught) < KEPT_BLAMES:
            self.caught[peer, what] = time.time()
            told = [[*key, at] for key, at in self.caught.items()]
            self.runs.store.remember(_CAUGHT, json.dumps(told).encode())
        place = self.folder / "evidence"
        for i, part in enumerate(evidence):
            self.counts["evidence"] += 1
            if self.counts["evidence"] <= KEPT_EVIDENCE:
                place.mkdir(exist_ok=True)
                name = f"{int(time.time())}-{self.counts['blames']}-peer-{peer}-{i}.bin"
                (place / name).write_bytes(part)

    def _recall_caught(self) -> dict[tuple[int, str], float]:
        saved = self.runs.store.recall(_CAUGHT)
        return {(peer, what): at for peer, what, at in json.loads(saved)} if saved else {}

    def _tell_progress(self, run: bytes, participant: Participant) -> None:
        """Say about twenty times how far a run is."""
        done, rounds = participant.driver.round, self.runs.rounds
        told = self._told_round.get(run, 0)
        if done >= told + max(1, rounds // 20) or (done == rounds and told < rounds):
            self._told_round[run] = done
            facts = {"run": run.hex()[:16], "round": done, "rounds": rounds}
            LOG.info("%s: round %s of %s", self.title(run), done, rounds, extra={"facts": facts})

    def _write_status(self) -> None:
        try:
            self.desk.write_status()
        except OSError as error:
            LOG.warning("the status file cannot be written: %s", error.strerror)

    def _end(self, run: bytes, how: str) -> None:
        if run not in self.ended:
            self.ended[run] = how
            facts = {"run": run.hex()[:16]}
            LOG.info("%s: %s", self.title(run), how, extra={"facts": facts})
            self._write_status()

    def _finish(self, run: bytes, participant: Participant) -> None:
        if run == self.runs.training:
            self.runs.write_trained(participant)
            self._end(run, "done")
            self.council.about(participant.machine.log, self.runs.dealers())
            self._start_recoveries()
        else:
            self.runs.write_recovered(participant, self.council.removals[run])
            self._end(run, "done")

    def _start_recoveries(self) -> None:
        for removal in self.council.passed():
            run = removal.proposal.digest
            if run in self.parts or run in self.ended or self.runs.me not in removal.kept:
                continue
            LOG.info("removal %s has passed, the recovery begins", run.hex()[:16])
            try:
                self._begin(run, self.runs.recoverer(removal))
            except PDLRecoverError as error:
                self._end(run, f"stopped: {error}")
