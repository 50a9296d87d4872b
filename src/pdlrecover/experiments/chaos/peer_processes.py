"""The processes of a federation on this machine: started, killed, frozen, asked, and ended.

Each is `pdlrecover peer run`, or a `cheating_peer` that plays one of the cheats. What it says goes
to PLACE/NAME.log, one JSON object a line. All are killed when the object is left, frozen ones too.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pdlrecover.engines.peers.folder import CONTROL, STATUS
from pdlrecover.engines.peers.operator.local_socket import ask

PLAIN = ("-m", "pdlrecover")
CHEATING = ("-m", "pdlrecover.experiments.chaos.cheating_peer")
END_SECONDS = 30.0
"""A process that was told to stop may take this long."""


class PeerProcesses:
    """The peers of one federation, by name."""

    def __init__(
        self, federation: Path, names: Sequence[str], cheats: Mapping[str, str] | None = None
    ) -> None:
        """`cheats` says who plays which of `cheats.CHEATS`."""
        self.federation, self.place, self.names = federation, federation.parent, tuple(names)
        self._cheats = dict(cheats or {})
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.frozen: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in list(self._running):
            self.kill(name)

    def folder(self, name: str) -> Path:
        """Return a peer's folder."""
        return self.place / name

    def log(self, name: str) -> Path:
        """Return where a peer's log goes."""
        return self.place / f"{name}.log"

    def pid(self, name: str) -> int:
        """Return the number of a peer's process."""
        return self._running[name].pid

    @property
    def running(self) -> list[str]:
        """Those that were started and not killed, frozen ones too, in order."""
        return [name for name in self.names if name in self._running]

    def answers(self, name: str) -> bool:
        """Say whether a peer is there: running, not frozen, and open to its operator."""
        running = name in self._running and name not in self.frozen
        return running and (self.folder(name) / CONTROL).exists()

    def start(self, name: str) -> None:
        """Start a peer, where it was if it has a history."""
        told = ["peer", "run", str(self.federation), str(self.folder(name)), "--json-logs"]
        cheat = self._cheats.get(name)
        command = [*PLAIN, *told] if cheat is None else [*CHEATING, cheat, *told]
        with self.log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(  # noqa: S603 (this interpreter, our modules)
                [sys.executable, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PDLRECOVER_THREADS": "1"},
            )

    def kill(self, name: str) -> None:
        """End a peer at once, as a power cut does."""
        process = self._running.pop(name)
        self.frozen.discard(name)
        process.kill()
        process.wait()
        (self.folder(name) / CONTROL).unlink(missing_ok=True)

    def freeze(self, name: str) -> None:
        """Stop a peer without ending it."""
        self.frozen.add(name)
        self._running[name].send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """Let a frozen peer go on."""
        self.frozen.discard(name)
        self._running[name].send_signal(signal.SIGCONT)

    def stop(self) -> dict[str, int]:
        """Stop all running peers as an operator does; return their exit codes."""
        for name in list(self.frozen):
            self.thaw(name)
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        codes = {}
        for name in self.running:
            try:
                codes[name] = self._running[name].wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                codes[name] = -signal.SIGKILL
                self.kill(name)
            else:
                del self._running[name]
        return codes

    def died(self) -> dict[str, int]:
        """Return the exit codes of those that ended by themselves."""
        codes = {name: process.poll() for name, process in self._running.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def ask(self, name: str, **command: Any) -> dict[str, Any]:
        """Give a running peer an operator's command; raise `PlanError` if it does not answer."""
        return asyncio.run(ask(self.folder(name) / CONTROL, command))

    def status(self, name: str) -> dict[str, Any]:
        """Return the last status that a peer wrote, empty if there is none."""
        try:
            found: dict[str, Any] = json.loads((self.folder(name) / STATUS).read_bytes())
        except (OSError, ValueError):
            return {}
        return found

    def told(self, name: str, after: int = 0) -> Iterator[dict[str, Any]]:
        """Yield what a peer logged, from a place in its log on.

        What is no JSON, such as a traceback, has no level but is given, too.
        """
        path = self.log(name)
        if not path.exists():
            return
        with path.open("rb") as log:
            log.seek(after)
            for line in log:
                try:
                    found = json.loads(line)
                except ValueError:
                    found = None  # cut off by a kill, or a traceback
                known = isinstance(found, dict) and "level" in found and "text" in found
                yield found if known else {"level": "", "text": line.decode("utf-8", "replace")}
