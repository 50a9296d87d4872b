"""Cells on the nodes of a Ray cluster: the same crew as that of this machine's processes.

Rules:

- On every node as many processes as it has cores do one cell after another, each with one thread.
  A node that joins later is used, too, once it has said that it is like this machine.
- A process that dies takes only its cell with it; that is tried once more. A node that is gone
  costs the cells that it was running: they are begun again on others, as often as nodes go.
- If no node is left, another one is waited for, for so many seconds; then that is an error.
- A node that is unlike this machine at the start is an error before anything is run. One that
  joins later is left out, and the log says why.
- Ending kills the processes that were started here. Neither nodes nor what others run are touched.
"""

import hashlib
import importlib.util
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pdlrecover.cluster import (
    ASK_SECONDS,
    LOCAL,
    Cluster,
    Node,
    facts,
    gist,
    joined,
    one_thread,
    pinned,
    require_alike,
    require_likeness,
)
from pdlrecover.errors import ClusterError, PDLRecoverError
from pdlrecover.experiments.batch.errand import Errand, note_of, run_one
from pdlrecover.experiments.batch.parcel import packed, unpacked
from pdlrecover.experiments.batch.pool import POLL_SECONDS, Answer, Crew, LocalCrew, outcome
from pdlrecover.experiments.batch.recorded import Cell
from pdlrecover.learning.files import DATA_VARIABLE, data_folder, digest

LOG = logging.getLogger("pdlrecover.cluster")
WAIT_SECONDS = 60.0
"""So long no node may be there."""
NOTES = "notes"
"""The group of calls that a process answers beside its cell."""
GONE = "it is gone, and its runs are begun again on others"
FOLDER = "pdlrecover-cell-"
"""How folders on a node begin, which go on with the number of their process."""


@contextmanager
def crew_for(
    errands: Sequence[Errand],
    on: str = LOCAL,
    *,
    workers: int | None = None,
    mixed_processors: bool = False,
) -> Iterator[Crew]:
    """Yield who does these: this machine's processes, or those of the nodes of a cluster."""
    if on == LOCAL:
        most = workers or len(os.sched_getaffinity(0))
        yield LocalCrew(min(len(errands), most))
        return
    with joined(on) as cluster:
        yield ClusterCrew(
            cluster, likeness_of(errands), workers=workers, mixed_processors=mixed_processors
        )


def likeness_of(errands: Iterable[Errand]) -> Callable[[], dict[str, str]]:
    """Return what a node is asked besides its versions: its data and models of these runs."""
    folders = {str(data_folder(errand.data_dir).absolute()) for errand in errands}
    configs = [errand.cell.config for errand in errands]
    names = {config.dataset.removesuffix("-inertial") for config in configs} - {"digits"}
    modules = {c.model.partition(":")[0] for c in configs if ":" in c.model}
    return partial(
        _own_likeness, tuple(sorted(folders)), tuple(sorted(names)), tuple(sorted(modules))
    )


def _own_likeness(
    folders: Sequence[str], datasets: Sequence[str], modules: Sequence[str]
) -> dict[str, str]:
    """Return a digest of each dataset's files and of each module, as they are on this machine."""
    found = {}
    for name in datasets:
        files = [path for folder in folders for path in sorted((_data(folder) / name).rglob("*"))]
        said = [f"{path.name} {digest(path)}" for path in files if path.is_file()]
        found[f"data {name}"] = _sha("\n".join(said).encode()) if said else "absent"
    for name in modules:
        spec = importlib.util.find_spec(name)
        origin = None if spec is None else spec.origin
        found[f"model {name}"] = _sha(Path(origin).read_bytes()) if origin else "absent"
    return found


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _data(folder: str) -> Path:
    """Return this machine's data folder: that of who sends the cells, or its own if that lacks."""
    if not Path(folder).exists() and (own := os.environ.get(DATA_VARIABLE)):
        return Path(own)
    return Path(folder)


@dataclass(eq=False)
class Hand:
    """A process on a node, as the driver knows it."""

    node: Node
    actor: Any
    begun: Any
    """Whether it has begun: a reference of Ray's, and None once it has."""
    name: str = ""
    """Of its current job."""
    errand: Errand | None = None
    answer: Any = None
    note: Any = None


class ClusterCrew:
    """Processes on the nodes of a cluster, begun when they are needed."""

    def __init__(
        self,
        cluster: Cluster,
        likeness: Callable[[], dict[str, str]],
        *,
        workers: int | None = None,
        mixed_processors: bool = False,
        wait: float = WAIT_SECONDS,
    ) -> None:
        self._cluster, self._ray = cluster, cluster.ray
        self._question = partial(facts, likeness)
        self._workers, self._mixed, self._wait = workers, mixed_processors, wait
        self._hands: list[Hand] = []
        self._early: list[Answer] = []
        nodes = cluster.nodes()
        require_likeness(cluster, nodes, likeness, mixed_processors=mixed_processors)
        self._liked = {node.id for node in nodes}
        self._left_out: set[str] = set()
        self._asked: dict[str, tuple[Node, Any, float]] = {}
        self._nodes, self._looked = nodes, time.monotonic()
        self._last = self._looked
        """When there was a node."""
        self._process = cluster.remote(Process, concurrency_groups={NOTES: 1})

    def free(self, wanted: int) -> bool:
        """Say whether a process has nothing to do; begin others where there are cores for them."""
        self._look()
        idle = [hand for hand in self._hands if hand.errand is None]
        for node in self._nodes:
            there = sum(hand.node.id == node.id for hand in self._hands)
            for _ in range(node.cores - there):
                if len(idle) >= wanted or len(self._hands) >= (
                    self._workers or len(self._hands) + 1
                ):
                    break
                idle.append(self._begun(node))
        return any(hand.begun is None for hand in idle)

    def begin(self, name: str, job: Errand) -> bool:
        """Send a cell to a process that has none; what another command has done is not run."""
        if not job.hold():
            return False
        try:
            if job.is_done():
                job.release()
                self._early.append(Answer(name=name))
                return True
            content = job.packed()
        except (PDLRecoverError, OSError) as error:
            job.release()
            self._early.append(Answer(name=name, reason=str(error)))
            return True
        hand = next(each for each in self._hands if each.errand is None and each.begun is None)
        folder = str(data_folder(job.data_dir).absolute())
        hand.name, hand.errand = name, job
        hand.answer = hand.actor.run.remote(job.cell, content, folder)
        return True

    def answers(self, seconds: float) -> list[Answer]:
        """Wait for processes that are done, have begun or have died; take their notes."""
        found, self._early = self._early, []
        known = {(h.answer if h.errand else h.begun): h for h in self._hands}
        known = {reference: hand for reference, hand in known.items() if reference is not None}
        ready = []
        if known:
            some, many = list(known), len(known)
            ready, _ = self._ray.wait(some, num_returns=1, timeout=0 if found else seconds)
            ready = self._ray.wait(some, num_returns=many, timeout=0)[0] if ready else []
        elif not found:
            time.sleep(min(seconds, POLL_SECONDS))
        for hand in [known[reference] for reference in ready]:
            if hand.errand is None:
                self._begins(hand)
            else:
                found.append(self._answer(hand))
        self._take_notes()
        self._look()
        return found

    def running(self) -> list[str]:
        """Return the names of the cells that are being run."""
        return [hand.name for hand in self._hands if hand.errand is not None]

    def end(self) -> None:
        """Kill the processes that were begun here."""
        for hand in [*self._hands]:
            self._drop(hand)

    def _begun(self, node: Node) -> Hand:
        actor = self._process.options(scheduling_strategy=pinned(node)).remote()
        hand = Hand(node=node, actor=actor, begun=actor.begin.remote())
        self._hands.append(hand)
        return hand

    def _begins(self, hand: Hand) -> None:
        try:
            self._ray.get(hand.begun)
            hand.begun = None
        except self._ray.exceptions.RayError as error:
            self._drop(hand)
            why = f"no process begins on it ({type(error).__name__})"
            self._leave(hand.node, why if self._cluster.answers(hand.node) else GONE)

    def _answer(self, hand: Hand) -> Answer:
        """Return what has become of a process's cell, and put what came back into its place."""
        name, errand = hand.name, hand.errand
        assert errand is not None  # noqa: S101 (for mypy: it has one)
        try:
            reason, content = self._ray.get(hand.answer)
        except self._ray.exceptions.RayTaskError as error:  # it is there, and what it needs is not
            reason, content = f"node {hand.node.name}: {gist(error)}", None
        except self._ray.exceptions.RayError:
            self._drop(hand)
            gone = not self._cluster.answers(hand.node)
            if gone:
                self._leave(hand.node, GONE)
            return Answer(name=name, lost=True, guiltless=gone)
        hand.name, hand.errand, hand.answer, hand.note = "", None, None, None
        try:
            if content is not None:
                errand.receive(content)
            if reason is None and not errand.is_done():
                reason = f"node {hand.node.name} sent no complete result"
        except (PDLRecoverError, OSError) as error:
            reason = str(error)
        finally:
            errand.release()
        return Answer(name=name, reason=reason)

    def _drop(self, hand: Hand) -> None:
        """End a process, and let go of its cell's folder."""
        if hand in self._hands:
            self._hands.remove(hand)
        with suppress(Exception):  # it is dead already, or Ray is
            self._ray.kill(hand.actor, no_restart=True)
        if hand.errand is not None:
            hand.errand.release()

    def _leave(self, node: Node, why: str) -> None:
        """Use a node no more; if it comes back, it has another number."""
        if node.id not in self._left_out:
            LOG.warning("node %s is left out: %s", node.name, why)
        self._left_out.add(node.id)
        self._nodes = [each for each in self._nodes if each.id != node.id]

    def _take_notes(self) -> None:
        """Write down what the cells are doing, by which node, where that was said."""
        for hand in self._hands:
            if hand.errand is None:
                continue
            if hand.note is not None and self._ray.wait([hand.note], timeout=0)[0]:
                with suppress(self._ray.exceptions.RayError):
                    if text := self._ray.get(hand.note):
                        hand.errand.note(f"{hand.node.name}: {text}")
                hand.note = None
            if hand.note is None:
                hand.note = hand.actor.note.options(concurrency_group=NOTES).remote()

    def _look(self) -> None:
        """Look, once in a while, which nodes there are; ask those that are new."""
        now = time.monotonic()
        if now - self._looked < POLL_SECONDS and self._nodes:
            return
        self._looked = now
        alive = {node.id: node for node in self._cluster.nodes() if node.id not in self._left_out}
        for node in alive.values():
            if node.id not in self._liked and node.id not in self._asked:
                self._asked[node.id] = node, self._cluster.ask(node, self._question), now
        for node, answer, _ in [*self._asked.values()]:
            if node.id not in alive or self._ray.wait([answer], timeout=0)[0]:
                del self._asked[node.id]
                self._like(node, answer)
        self._nodes = [node for key, node in alive.items() if key in self._liked]
        coming = any(now - since < ASK_SECONDS for _, _, since in self._asked.values())
        if self._nodes or self._hands or coming:
            self._last = now
        elif now - self._last >= self._wait:
            raise ClusterError(
                f"no node of the Ray cluster has taken a run for {self._wait:.0f} seconds; start "
                f"one by `ray start --address={self._cluster.address}` and run the same command: "
                "it goes on from what is done"
            )

    def _like(self, node: Node, answer: Any) -> None:
        """Use a node that joined later, if it is like this machine."""
        try:
            theirs = self._cluster.told(node, answer)
            require_alike(self._question(), theirs, node, mixed_processors=self._mixed)
        except ClusterError as error:
            self._leave(node, str(error))
        else:
            self._liked.add(node.id)


class Process:
    """A process on a node, as Ray runs it there: one cell after another."""

    def __init__(self) -> None:
        one_thread()
        self._folder: Path | None = None
        top = Path(tempfile.gettempdir())
        for left in top.glob(f"{FOLDER}*"):  # of processes that were killed
            number = left.name.removeprefix(FOLDER).partition("-")[0]
            if not Path("/proc", number).exists():
                shutil.rmtree(left, ignore_errors=True)

    def begin(self) -> None:
        """Say, by having done nothing, that it is there; load what a cell needs meanwhile."""
        import pdlrecover.experiments.experiment.run  # noqa: F401 (it takes seconds)

    def run(self, cell: Cell, content: bytes, data_dir: str) -> tuple[str | None, bytes]:
        """Run a cell with the files that came along; return why it failed, or None, and files."""
        with tempfile.TemporaryDirectory(prefix=f"{FOLDER}{os.getpid()}-") as name:
            self._folder = place = Path(name) / "cell"
            place.mkdir()
            unpacked(content, place, history=True)
            reason = outcome(partial(run_one, cell, place, _data(data_dir)))
            return reason, packed(place, history=False)

    def number(self) -> int:
        """Return the process's number on its node."""
        return os.getpid()

    def note(self) -> str | None:
        """Return what the cell is doing."""
        return None if self._folder is None else note_of(self._folder)
