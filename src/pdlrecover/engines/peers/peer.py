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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from pdlrecover.engines.peers.circle import Circle
from pdlrecover.engines.peers.codec import peek_run
from pdlrecover.engines.peers.contracts import Crypto, Store
from pdlrecover.engines.peers.contribution import Contribution
from pdlrecover.engines.peers.council import Council, Removal
from pdlrecover.engines.peers.driver import Driver
from pdlrecover.engines.peers.effects import Blame, Compute, Deadlines, Halt, Note, Send
from pdlrecover.engines.peers.messages import NOTHING, RemovalProposal
from pdlrecover.engines.peers.network import Limits, Network, Tls
from pdlrecover.engines.peers.participant import Outcome, Participant
from pdlrecover.engines.peers.plan import Plan
from pdlrecover.engines.peers.report import serve_control, serve_metrics, write_json
from pdlrecover.errors import PDLRecoverError, PlanError
from pdlrecover.field import one_blas_thread
from pdlrecover.learning import FlatModel
from pdlrecover.recovery import methods
from pdlrecover.recovery.requests import Original, Vector
from pdlrecover.recovery.retrain import train

LOG = logging.getLogger("pdlrecover.peer")
GOSSIP_SECONDS = 2.0
STATUS_SECONDS = 1.0
KEPT_BLAMES = 200


class Peer:
    """One peer of a federation, on a network."""

    def __init__(
        self,
        *,
        me: int,
        federation: bytes,
        plan: Plan,
        module: torch.nn.Module,
        x: torch.Tensor,
        y: torch.Tensor,
        crypto: Crypto,
        store: Store,
        addresses: Sequence[str],
        tls: Tls,
        folder: Path,
        deadlines: Deadlines | None = None,
        limits: Limits | None = None,
        metrics_port: int | None = None,
    ) -> None:
        """`federation` is the digest of what the members signed, `addresses` where each listens."""
        one_blas_thread()
        folder.mkdir(parents=True, exist_ok=True)
        self.me, self.folder, self._plan, self._federation = me, folder, plan, federation
        self._flat = FlatModel(module, tuple(x.shape[1:]))
        self._contribution = Contribution(
            peer=me,
            peers=plan.peers,
            model=self._flat,
            x=x,
            y=y,
            size_bound=plan.size_bound,
            batch_size=plan.batch_size,
            seed=plan.seed,
            bound=plan.bound,
            l2=plan.l2,
            fraction_bits=plan.fraction_bits,
        )
        self._crypto, self._store, self._scheme = crypto, store, plan.scheme
        self._deadlines, self._limits = deadlines or Deadlines(), limits or Limits()
        self._metrics_port = metrics_port
        self._training = plan.run(federation, self._flat)
        everybody = range(plan.peers)
        self._council = Council(self._circle(NOTHING, everybody), store)
        self._runs: dict[bytes, Participant] = {}
        self._ended: dict[bytes, str] = {}
        """How each run came out: `done`, or why it stopped."""
        self._network = Network(
            me=me, addresses=addresses, tls=tls, receive=self._receive, limits=self._limits
        )
        self._room = [asyncio.Semaphore(self._limits.waiting_messages) for _ in everybody]
        self._events: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._threads = ThreadPoolExecutor(1, "pdlrecover-update")
        self._heard: dict[int, float] = {}
        self._blames: deque[dict[str, object]] = deque(maxlen=KEPT_BLAMES)
        self._counts: Counter[str] = Counter()
        self._gossip_at = self._status_at = 0.0
        self._stopping = False

    async def run(self) -> None:
        """Work until told to stop."""
        await self._network.start()
        servers = [await serve_control(self.folder / "control", self._command)]
        if self._metrics_port is not None:
            servers.append(await serve_metrics(self._metrics_port, self._metrics))
        try:
            self._begin(self._training, self._trainer())
            while not self._stopping:
                await self._turn()
        finally:
            for server in servers:
                server.close()
            self._write_status()
            await self._network.stop()
            self._threads.shutdown(wait=False, cancel_futures=True)

    def stop(self) -> None:
        """Stop soon; what is committed is kept."""
        self._stopping = True
        self._events.put_nowait(("stop", None))

    async def _turn(self) -> None:
        """Wait for what comes next, and deal with it."""
        alarms = [p.machine.wake_at for run, p in self._runs.items() if run not in self._ended]
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
        for run, participant in list(self._runs.items()):
            if participant.machine.wake_at <= now and run not in self._ended:
                self._do(run, lambda p: p.tick(now))
        if now >= self._gossip_at:
            self._gossip_at = now + GOSSIP_SECONDS
            self._carry(NOTHING, self._council.again())
        if now >= self._status_at:
            self._status_at = now + STATUS_SECONDS
            self._write_status()

    async def _receive(self, source: int, data: bytes) -> None:
        await self._room[source].acquire()
        self._events.put_nowait(("message", (source, data)))

    def _message(self, source: int, data: bytes, now: float) -> None:
        self._heard[source] = now
        self._counts["messages"] += 1
        run = peek_run(data)
        if run in self._runs:
            self._do(run, lambda p: p.receive(data, source, now))
        elif run == NOTHING:
            self._carry(NOTHING, self._council.receive(data, source))
            self._start_recoveries()
        else:
            self._counts["unknown_run"] += 1  # perhaps a removal whose approvals are on their way

    def _begin(self, run: bytes, participant: Participant) -> None:
        self._runs[run] = participant
        self._do(run, lambda p: p.start(time.monotonic()))

    def _do(self, run: bytes, act: Any) -> None:
        """Let a run act; what goes wrong in it ends this run at this peer, and no other."""
        participant = self._runs[run]
        try:
            outcomes: list[Outcome] = act(participant)
        except PDLRecoverError as error:
            self._end(run, f"stopped: {error}")
            return
        self._carry(run, outcomes)
        if participant.finished and run not in self._ended:
            self._finish(run, participant)

    def _carry(self, run: bytes, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            match outcome:
                case Send(to=to, data=data):
                    self._network.send(to, data)
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
        self._counts["blames"] += 1
        facts: dict[str, object] = {"peer": peer, "what": what, "proven": bool(evidence)}
        self._blames.append({**facts, "time": time.time()})
        LOG.warning("peer %s %s", peer, what, extra={"facts": facts})
        if evidence:
            place = self.folder / "evidence"
            place.mkdir(exist_ok=True)
            for i, part in enumerate(evidence):
                name = f"{self._counts['blames']}-peer-{peer}-{i}.bin"
                (place / name).write_bytes(part)

    def _end(self, run: bytes, how: str) -> None:
        if run not in self._ended:
            self._ended[run] = how
            LOG.info("run %s: %s", run.hex()[:16], how, extra={"facts": {"run": run.hex()[:16]}})
            self._write_status()

    def _finish(self, run: bytes, participant: Participant) -> None:
        model = participant.driver.model
        if model is None:
            raise AssertionError("a finished run has a model")
        if run == self._training:
            self._save("trained", model)
            self._end(run, "done")
            self._council.about(participant.machine.log)
            self._start_recoveries()
            return
        name = f"recovered-{run.hex()[:16]}"
        self._save(name, model)
        removal = self._council.removals[run].proposal
        told = {
            "removed": sorted(removal.removed),
            "reason": removal.reason,
            "method": removal.method,
            "log": participant.machine.log.hex(),
            "ledger": participant.driver.ledger.record(),
        }
        write_json(self.folder / f"{name}.json", told)
        self._end(run, "done")

    def _save(self, name: str, model: Vector) -> None:
        """Write a model by the names of its parameters."""
        state = self._flat.module_with(model).state_dict()
        tensors = {key: value.contiguous() for key, value in state.items()}
        part = self.folder / f"{name}.part"
        safetensors.torch.save_file(tensors, part)
        part.rename(self.folder / f"{name}.safetensors")

    def _circle(self, run: bytes, peers: Sequence[int]) -> Circle:
        return Circle(
            me=self.me,
            peers=tuple(peers),
            scheme=self._scheme,
            crypto=self._crypto,
            federation=self._federation,
            run=run,
            deadlines=self._deadlines,
        )

    def _trainer(self) -> Participant:
        method = train(self._flat.initial, self._plan.optimizer, range(self._plan.rounds))
        circle = self._circle(self._training, range(self._plan.peers))
        driver = Driver(
            circle=circle,
            method=method,
            code=self._contribution.code,
            store=self._store,
            contribute=self._contribution,
        )
        return Participant(driver, self._store)

    def _start_recoveries(self) -> None:
        for removal in self._council.passed():
            run = removal.proposal.digest
            if run not in self._runs and self.me in removal.kept:
                LOG.info("removal %s has passed", run.hex()[:16])
                try:
                    self._begin(run, self._recoverer(removal))
                except PDLRecoverError as error:
                    self._end(run, f"stopped: {error}")

    def _recoverer(self, removal: Removal) -> Participant:
        trained = self._runs[self._training].driver
        if trained.model is None:
            raise PlanError("there is nothing to recover yet: the training has not ended here")
        original = Original(
            models=[*trained.models, trained.model],
            optimizer=self._plan.optimizer,
            code=self._contribution.code,
        )
        driver = Driver(
            circle=self._circle(removal.proposal.digest, removal.kept),
            method=methods.start(removal.proposal.method, original, self._plan.settings),
            code=self._contribution.code,
            store=self._store,
            contribute=self._contribution,
            history=self._training,
        )
        return Participant(driver, self._store)

    def _command(self, command: dict[str, Any]) -> dict[str, Any]:
        """Do what the operator asks on the local socket."""
        match command:
            case {"do": "status"}:
                return self.status()
            case {"do": "stop"}:
                self.stop()
                return {"done": "stopping"}
            case {"do": "propose-removal", "removed": list(removed)}:
                proposal = RemovalProposal(
                    removed=tuple(sorted({int(p) for p in removed})),
                    reason=str(command.get("reason", "left")),
                    method=str(command.get("method", "pdlrecover")),
                    accept_differencing=bool(command.get("accept_differencing", False)),
                    after=self._runs[self._training].machine.log,
                )
                self._check_trained()
                self._carry(NOTHING, self._council.propose(proposal))
                self._start_recoveries()
                return {"removal": proposal.digest.hex()}
            case {"do": "approve", "removal": str(name)}:
                self._check_trained()
                found = [d for d in self._council.removals if d.hex().startswith(name) and name]
                if len(found) != 1:
                    raise PlanError(f"no single removal is called {name!r} here; see the status")
                self._carry(NOTHING, self._council.approve(found[0]))
                self._start_recoveries()
                return {"approved": found[0].hex()}
            case _:
                raise PlanError(
                    "commands are status, propose-removal (removed, reason, method, "
                    "accept_differencing), approve (removal) and stop"
                )

    def _check_trained(self) -> None:
        if not self._runs[self._training].finished:
            raise PlanError("there is nothing to recover yet: the training has not ended here")

    def status(self) -> dict[str, Any]:
        """Return where this peer is, for people and for scripts."""
        now = time.monotonic()
        return {
            "peer": self.me,
            "time": time.time(),
            "runs": {run.hex()[:16]: self._run_status(run) for run in self._runs},
            "removals": [
                {
                    "removal": digest.hex(),
                    "removed": list(removal.proposal.removed),
                    "reason": removal.proposal.reason,
                    "method": removal.proposal.method,
                    "approvals": sorted(removal.approvals),
                    "needed": self._council.needed,
                }
                for digest, removal in self._council.removals.items()
            ],
            "last_heard_seconds": {p: round(now - at, 1) for p, at in self._heard.items()},
            "blames": list(self._blames),
            "network": dict(self._network.counts),
        }

    def _run_status(self, run: bytes) -> dict[str, Any]:
        participant = self._runs[run]
        slot = participant.machine.slot
        return {
            "kind": "training" if run == self._training else "recovery",
            "outcome": self._ended.get(run, "running"),
            "step": participant.machine.step,
            "round": participant.driver.round,
            "rounds": self._plan.rounds,
            "state": slot.state.name if slot else None,
            "log": participant.machine.log.hex(),
        }

    def _metrics(self) -> dict[str, float]:
        found = {f"network_{name}_total": float(n) for name, n in self._network.counts.items()}
        found |= {f"{name}_total": float(n) for name, n in self._counts.items()}
        for run in self._runs:
            told, label = self._run_status(run), f'{{run="{run.hex()[:16]}"}}'
            found[f"step{label}"] = told["step"]
            found[f"round{label}"] = told["round"]
        return found

    def _write_status(self) -> None:
        write_json(self.folder / "status.json", self.status())
