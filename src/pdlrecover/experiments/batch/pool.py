"""Jobs in processes of their own, each with one thread.

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
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.resource_tracker import ensure_running
from pathlib import Path

from pdlrecover.errors import PDLRecoverError

Job = Callable[[], object]
ProgressCallback = Callable[[int, Sequence[str]], None]
"""Gets how many jobs are done, and which are running."""

POLL_SECONDS = 1.0
TRIES = 2
DIED = f"its process died {TRIES} times, as happens when memory runs out; run fewer at a time"


def run_jobs(jobs: Mapping[str, Job], workers: int, watch: ProgressCallback) -> dict[str, str]:
    """Run all jobs, begun in their order, `workers` at a time; return why some failed, by name."""
    waiting, done = deque(jobs), 0
    failed: dict[str, str] = {}
    deaths: Counter[str] = Counter()
    crew: list[_Worker] = []
    try:
        while done < len(jobs):
            idle = [worker for worker in crew if worker.job is None]
            while waiting and (idle or len(crew) < workers):
                if not idle:
                    crew.append(_Worker())
                worker, name = idle.pop() if idle else crew[-1], waiting.popleft()
                worker.begin(name, jobs[name])
            ready = wait([worker.pipe for worker in crew if worker.job is not None], POLL_SECONDS)
            for worker in [worker for worker in crew if worker.pipe in ready]:
                name = str(worker.job)
                try:
                    reason = worker.answer()
                except (EOFError, OSError):
                    crew.remove(worker)
                    worker.end()
                    reason = DIED
                    deaths[name] += 1
                    if deaths[name] < TRIES:
                        waiting.append(name)
                        continue
                done += 1
                if reason is not None:
                    failed[name] = reason
            watch(done, [worker.job for worker in crew if worker.job is not None])
    finally:
        for worker in crew:
            worker.end()
    return failed


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
            pipe.send(_outcome(job))


def _outcome(job: Job) -> str | None:
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
