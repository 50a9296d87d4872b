"""`pdlrecover peer run` with stopwatches, for `peers.py`.

What is called is the command itself; functions on its way are wrapped. When the peer stops, PROBE
in its folder has, for each step of each run: what kind it was, when it was begun and committed, the
bytes sent for it, how long each of its states lasted; and for each kind of step, and for each run,
the processor seconds by work.
Nested work is counted once, where it is done. What is in no wrapper is the network's: gRPC's
threads, TLS and the event loop.
"""

import functools
import json
import struct
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peers_folders import PROBE

from pdlrecover.cli import peer_run
from pdlrecover.engines.peers.identity.keyring import Keyring
from pdlrecover.engines.peers.operator.control import Control
from pdlrecover.engines.peers.protocol import codec, holdings, run_context, tasks
from pdlrecover.engines.peers.protocol.effects import Compute
from pdlrecover.engines.peers.protocol.run_protocol import RunProtocol
from pdlrecover.engines.peers.protocol.step import Step
from pdlrecover.engines.peers.runs import contribution
from pdlrecover.engines.peers.runs.archive import Archive
from pdlrecover.engines.peers.runs.driver import Driver
from pdlrecover.engines.peers.runs.run_session import RunSession
from pdlrecover.engines.peers.transport.network import Network

KIND, RUN, STEP = 5, slice(38, 70), slice(70, 78)
"""Where a message has its kind, its run and its step: see `codec`."""
NAMES = [body.__name__ for body in codec._BODIES]


class Stopwatch:
    """Seconds by kind of step and work; each second counts once, in the innermost work."""

    def __init__(self) -> None:
        self.cpu: dict[str, Counter[str]] = defaultdict(Counter)
        self.wall: dict[str, Counter[str]] = defaultdict(Counter)
        self.calls: dict[str, Counter[str]] = defaultdict(Counter)
        self.total: Counter[str] = Counter()
        self.runs: dict[str, Counter[str]] = defaultdict(Counter)
        """Processor seconds by run and work; "all" is the whole process."""
        self.kind = self.run = "start"
        self._inner = threading.local()
        self._since = time.process_time()

    def wrap(self, owner: Any, name: str, work: str) -> None:
        """Count what a function takes as this work."""
        function = getattr(owner, name)

        @functools.wraps(function)
        def timed(*arguments: Any, **named: Any) -> Any:
            stack: list[list[float]] = self._inner.__dict__.setdefault("stack", [])
            stack.append([0.0, 0.0])
            kind, run, cpu, wall = self.kind, self.run, time.thread_time(), time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
                inner = stack.pop()
                self.cpu[kind][work] += cpu - inner[0]
                self.runs[run][work] += cpu - inner[0]
                self.wall[kind][work] += wall - inner[1]
                self.calls[kind][work] += 1
                if stack:
                    stack[-1][0] += cpu
                    stack[-1][1] += wall

        setattr(owner, name, timed)

    def turn(self, kind: str, run: str) -> None:
        """Count what comes as a step of this kind and run."""
        now = time.process_time()
        self.total[self.kind] += now - self._since
        self.runs[self.run]["all"] += now - self._since
        self._since, self.kind, self.run = now, kind, run


class Probe:
    """What is written down of one peer."""

    def __init__(self) -> None:
        self.watch = Stopwatch()
        self.steps: list[dict[str, Any]] = []
        self.sent: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
        self.messages: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
        self._moves: list[tuple[str, float]] = []

    def install(self) -> None:
        """Wrap everything."""
        wrap = self.watch.wrap
        for owner, name, work in (
            (contribution.Contribution, "__call__", "gradient"),
            (tasks, "deal_vector", "dealing"),
            (tasks, "deal_masks", "dealing"),
            (Step, "_deal_to", "sealing"),
            (run_context.RunContext, "_signed", "encoding and signing"),
            (codec, "decode", "decoding"),
            (Keyring, "verify", "checking signatures"),
            (holdings.Holdings, "take_dealing", "checking dealings"),
            (holdings.Holdings, "take_receipt", "agreeing"),
            (Step, "_agree", "agreeing"),
            (Step, "_send_sub_secret", "sub-secret"),
            (Step, "_open_if_possible", "opening"),
            (Archive, "commit", "history: commit"),
            (Archive, "promise", "history: promises"),
            (Archive, "reserve", "history: reserve"),
            (Driver, "answer", "method"),
            (Control, "write_status", "status"),
            (RunSession, "receive", "other protocol"),
            (RunSession, "contribute", "other protocol"),
            (RunSession, "tick", "other protocol"),
            (Compute, "run", "dealing"),
        ):
            wrap(owner, name, work)
        self._after(RunProtocol, "begin", self._begun)
        self._after(Archive, "commit", self._committed)
        self._after(Step, "_move", self._moved)
        self._after(Network, "send", self._sends)

    def record(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        self.watch.turn("end", "end")
        for step in self.steps:
            place = step["run"], step["step"]
            step["bytes"], step["messages"] = self.sent[place], self.messages[place]
        watch = self.watch
        return {
            "steps": self.steps,
            "cpu": watch.cpu,
            "wall": watch.wall,
            "calls": watch.calls,
            "process_cpu": watch.total,
            "runs": watch.runs,
        }

    def _after(self, owner: Any, name: str, note: Callable[..., None]) -> None:
        function = getattr(owner, name)

        @functools.wraps(function)
        def noted(*arguments: Any, **named: Any) -> Any:
            if name == "begin":  # a step that is begun may be over before this returns
                note(*arguments)
                return function(*arguments, **named)
            result = function(*arguments, **named)
            note(*arguments)
            return result

        setattr(owner, name, noted)

    def _begun(self, protocol: RunProtocol, task: tasks.Task, *_: Any) -> None:
        self.watch.turn(type(task).__name__, protocol.context.run.hex())
        state = "COMPUTING" if task.kind else "OPENING"
        self._moves = [(state, time.monotonic())]

    def _moved(self, step: Step, _: Any) -> None:
        self._moves.append((step.state.name, time.monotonic()))

    def _committed(self, archive: Archive, run: bytes, *__: Any) -> None:
        if archive.founds(run):
            return
        now, states = time.monotonic(), Counter[str]()
        ends = [at for _, at in self._moves[1:]] + [now]
        for (state, at), end in zip(self._moves, ends, strict=True):
            states["HISTORY" if state == "OPENED" else state] += end - at
        step = sum(other["run"] == run.hex() for other in self.steps)
        kind, begun = self.watch.kind, self._moves[0][1] if self._moves else now
        self.steps.append(
            {"run": run.hex(), "step": step, "kind": kind, "begun": begun, "at": now}
            | {"states": states}
        )

    def _sends(self, _: Network, __: int, data: bytes) -> None:
        place = data[RUN].hex(), struct.unpack("<Q", data[STEP])[0]
        self.sent[place][NAMES[data[KIND]]] += len(data)
        self.messages[place][NAMES[data[KIND]]] += 1


def main(federation: str, folder: str) -> None:
    probe = Probe()
    probe.install()
    try:
        peer_run.run(Path(federation), Path(folder), json_logs=True)
    finally:
        (Path(folder) / PROBE).write_text(json.dumps(probe.record()))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
