"""Jobs in processes of their own, each with one thread; those of other machines are in `nodes`.

Rules:

- What a job raises is its own failure: the others go on, and the reasons are returned in words.
- A process that dies, as when memory runs out, takes only its own job with it. That is tried once
  more after the others, in a new process; if that dies too, the job has failed.
- Whatever interrupts the caller ends the processes at once, and no further job is begun. They do
  not see ctrl-C themselves, which a terminal sends to all: the caller decides.
"""

import os
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.resource_tracker import ensure_running
from pathlib import Path
from typing import Any, Protocol, cast

from pdlrecover.errors import PDLRecoverError

Job = Callable[[], object]
ProgressCallback = Callable[[int, Sequence[str]], None]
"""Gets how many jobs are done, and which are running."""

POLL_SECONDS = 1.0
TRIES = 2
DIED = f"its process died {TRIES} times, as happens when memory runs out; run fewer at a time"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What has become of a job."""

    name: str
    reason: str | None = None
    """Why it failed, or None."""
    lost: bool = False
    """Whether who did it is gone: it is to be done again."""
    guiltless: bool = False
    """Whether the job had certainly no part in that."""


class Crew(Protocol):
    """Who does jobs: processes here, or on other machines."""

    def free(self, wanted: int) -> bool:
        """Say whether somebody can begin a job now; so many are waiting."""

    def begin(self, name: str, job: Any) -> bool:
        """Begin a job, having been free; False if it has to wait for somebody else's."""

    def answers(self, seconds: float) -> list[Answer]:
        """Wait, at most so long, until jobs are done, and return what has become of them."""

    def running(self) -> list[str]:
        """Return the names of the jobs that are being done."""

    def end(self) -> None:
        """Drop all jobs at once."""


def run_jobs(jobs: Mapping[str, Any], crew: Crew, watch: ProgressCallback) -> dict[str, str]:
    """Run all jobs, begun in their order, and end the crew; return why some failed, by name."""
    waiting, done = list(jobs), 0
    failed: dict[str, str] = {}
    deaths: Counter[str] = Counter()
    try:
        while done < len(jobs):
            for name in [*waiting]:
                if not crew.free(len(waiting)):
                    break
                if crew.begin(name, jobs[name]):
                    waiting.remove(name)
            for answer in crew.answers(POLL_SECONDS):
                reason = answer.reason
                if answer.lost:
                    deaths[answer.name] += not answer.guiltless
                    if deaths[answer.name] < TRIES:
                        waiting.append(answer.name)
                        continue
                    reason = DIED
                done += 1
                if reason is not None:
                    failed[answer.name] = reason
            watch(done, crew.running())
    finally:
        crew.end()
    return failed


class LocalCrew:
    """Processes of this machine, begun when they are needed."""

    def __init__(self, workers: int) -> None:
        self._most = workers
        self._workers: list[_Worker] = []

    def free(self, wanted: int) -> bool:
        """Say whether a process has nothing to do, or another one may be begun."""
        return len(self.running()) < self._most

    def begin(self, name: str, job: Job) -> bool:
        """Begin a job in a process that has none."""
        idle = [worker for worker in self._workers if worker.job is None]
        if not idle:
            idle.append(_Worker())
            self._workers += idle
        idle[-1].begin(name, job)
        return True

    def answers(self, seconds: float) -> list[Answer]:
        """Wait for processes that are done or have died."""
        busy = {worker.pipe: worker for worker in self._workers if worker.job is not None}
        found = []
        for pipe in wait(list(busy), seconds):
            worker = busy[cast(Connection, pipe)]
            name = str(worker.job)
            try:
                found.append(Answer(name=name, reason=worker.answer()))
            except (EOFError, OSError):
                self._workers.remove(worker)
                worker.end()
                found.append(Answer(name=name, lost=True))
        return found

    def running(self) -> list[str]:
        """Return the names of the jobs that are being done."""
        return [worker.job for worker in self._workers if worker.job is not None]

    def end(self) -> None:
        """Kill all processes."""
        for worker in self._workers:
            worker.end()


class _Worker:
    """A process that does one job after another."""

    def __init__(self) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.job: str | None = None
        """The name of its current job."""
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        ensure_running()  # the tracker of resources, whose start would lift the block
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which is inherited
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def begin(self, name: str, job: Job) -> None:
        """Give it a job; if it is dead, that shows when the answer is read."""
        self.job = name
        with suppress(BrokenPipeError):
            self.pipe.send(job)

    def answer(self) -> str | None:
        """Return why its job failed, or None; raise if it has died."""
        reason: str | None = self.pipe.recv()
        self.job = None
        return reason

    def end(self) -> None:
        """Kill it: whatever a job writes is there as a whole, or is continued."""
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _serve(pipe: Connection) -> None:
    """Do what comes through the pipe, until nothing can come any more."""
    import torch

    os.environ["PDLRECOVER_THREADS"] = "1"
    torch.set_num_threads(1)
    with suppress(EOFError, OSError):
        while True:
            job: Job = pipe.recv()
            pipe.send(outcome(job))


def outcome(job: Job) -> str | None:
    """Do a job; return why it failed, or None."""
    try:
        job()
    except (PDLRecoverError, OSError) as error:
        return str(error)
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return f"{said}, in line {at.lineno} of {Path(at.filename).name}"
    return None
