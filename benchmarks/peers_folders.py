"""A federation of real peers on this machine: folders, keys, signed file, one process each.

The data are made here: ten classes of noisy images of MNIST's shape, `SAMPLES` for every peer. The
model is 784-100-10, 79,510 numbers.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from timing import progress

from pdlrecover.engines.peers.federation.federation_file import load_federation
from pdlrecover.engines.peers.federation.plan import Model, Recovery, Training
from pdlrecover.engines.peers.operator.local_socket import ask
from pdlrecover.experiments.chaos.local_federation import settle
from pdlrecover.sharing import Tolerance

HERE = Path(__file__).parent
SAMPLES, SHAPE, CLASSES = 300, (1, 28, 28), 10
PROBE = "probe.json"
"""What a peer's process leaves in its folder when it stops: see `peers_probe`."""


class PeerFolders:
    """A federation's folders, and its processes."""

    def __init__(self, place: Path, peers: int, tolerance: Tolerance, rounds: int) -> None:
        self.place, self.peers = place, peers
        place.mkdir(parents=True)
        self.federation = settle(
            place,
            [self.folder(me).name for me in range(peers)],
            {
                "tolerance": tolerance,
                "model": Model(name="mlp", shape=SHAPE, classes=CLASSES),
                "training": Training(
                    rounds=rounds, samples=SAMPLES, batch_size=32, learning_rate=0.1, seed=1
                ),
                "recovery": Recovery(),
            },
            source="own.npz",
        )
        self.membership = load_federation(self.federation)
        for me in range(peers):
            x, y = samples(me)
            np.savez(self.folder(me) / "own.npz", x=x, y=y)
        self._running: list[subprocess.Popen[bytes]] = []

    def folder(self, me: int) -> Path:
        """Return a peer's folder."""
        return self.place / f"peer-{me}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._running:
            process.kill()
            process.wait()

    def start(self, script: str, *arguments: str) -> None:
        """Start one process for each peer; it is given the federation file and its folder."""
        for me in range(self.peers):
            command = [sys.executable, str(HERE / script), str(self.federation)]
            with (self.place / f"{me}-{script}.log").open("ab") as log:
                process = subprocess.Popen(  # noqa: S603 (our own scripts)
                    [*command, str(self.folder(me)), *arguments],
                    stdout=log,
                    stderr=log,
                    env={**os.environ, "OMP_NUM_THREADS": "1", "PDLRECOVER_THREADS": "1"},
                )
            self._running.append(process)

    def have(self, peers: range, pattern: str, seconds: float) -> None:
        """Wait until all these peers have a file of this pattern in their folders."""
        end, told = time.monotonic() + seconds, time.monotonic()
        while not all(list(self.folder(me).glob(pattern)) for me in peers):
            self._check_alive()
            if time.monotonic() > end:
                raise SystemExit(f"{pattern} takes longer than {seconds:.0f} s, see {self.place}")
            if time.monotonic() > told + 10:
                told = time.monotonic()
                progress(f"  {self._where()}")
            time.sleep(0.1)

    def remove(self, removed: range, method: str, *, again: bool = False) -> str:
        """Let the peers remove some of them by a method; return how the recovery's files begin.

        The same ones may be removed `again`, which nobody with secrets would accept.
        """
        names = [self.folder(me).name for me in removed]
        told = {"removed": names, "reason": "malicious", "method": method}
        answer = self._ask(0, do="propose-removal", accept_differencing=again, **told)
        if "removal" not in answer:
            raise SystemExit(f"the removal is refused: {answer['error']}")
        removal = answer["removal"]
        for me in range(1, self.peers // 2 + 1):
            while "approved" not in self._ask(me, do="approve", removal=removal):
                time.sleep(0.2)
        return f"recovered-{removal[:16]}"

    def resident(self) -> list[dict[str, int]]:
        """Return what every running process has in memory, in bytes (Linux only).

        `most` is the largest resident size so far: it counts the pages of libraries and of the
        history that the system keeps at hand. `own` is what the process itself has now.
        """
        found = []
        for process in self._running:
            status = Path(f"/proc/{process.pid}/status").read_text()
            names = {"most": "VmHWM:", "own": "RssAnon:"}
            found.append(
                {k: 1024 * int(status.partition(name)[2].split()[0]) for k, name in names.items()}
            )
        return found

    def stop(self) -> None:
        """Stop all processes, and wait for them."""
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        self.end()

    def end(self, seconds: float = 120.0) -> None:
        """Wait until all processes have ended."""
        for process in self._running:
            if process.wait(seconds) != 0:
                raise SystemExit(f"a process failed, see the logs in {self.place}")
        self._running = []

    def probes(self) -> list[dict[str, Any]]:
        """Return what the stopped peers' probes have written."""
        return [json.loads((self.folder(me) / PROBE).read_text()) for me in range(self.peers)]

    def _ask(self, me: int, **command: Any) -> dict[str, Any]:
        return asyncio.run(ask(self.folder(me) / "control", command, timeout=120.0))

    def _check_alive(self) -> None:
        if any(process.poll() is not None for process in self._running):
            raise SystemExit(f"a peer has died, see the logs in {self.place}")

    def _where(self) -> str:
        try:
            runs = json.loads((self.folder(0) / "status.json").read_text())["runs"].values()
        except (OSError, ValueError):
            return "starting"
        return ", ".join(f"{run['kind']}: round {run['round']} of {run['rounds']}" for run in runs)


def samples(me: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a peer's samples: the class's image, and noise."""
    images = np.random.default_rng(0).normal(size=(CLASSES, *SHAPE))
    rng = np.random.default_rng([1, me])
    y = rng.integers(0, CLASSES, SAMPLES)
    x = images[y] + 3 * rng.normal(size=(SAMPLES, *SHAPE))
    return x.astype(np.float32) / 3, y
