"""Shards at work on a cluster: who does what, and what becomes of the work of those that are lost.

Rules:

- Work is given out part by part to whoever is free, so that slower nodes get less of it.
- A process that ends is started again on its node, some times, and its work is repeated. A shard
  whose node is gone is given up, and the others do its work. That changes no bit.
- Where no shard is left, a `ClusterError` says so. What was trained so far is with the driver.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pdlrecover.cluster import Cluster, Node, pinned
from pdlrecover.engines.shards.shard import Done, Shard
from pdlrecover.errors import ClusterError, Setting

RESTARTS = 3
"""How often a shard's process is started again."""
PATIENCE = 5.0
"""How many seconds to wait for results before looking whether the nodes still answer."""
START_SECONDS = 300.0
PARTS_EACH = 3
"""How many parts a round's work is cut into for every shard, where there are so many pieces."""

Call = Callable[[Any], Any]
"""Has an actor do something: returns Ray's reference to a `Done`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Member:
    """One shard."""

    name: str
    node: Node
    actor: Any
    restarts: int = 0


class Crew:
    """The shards of a simulation."""

    def __init__(
        self, cluster: Cluster, count: int, blueprint: Sequence[Any], say: Callable[[str], None]
    ) -> None:
        """Start so many shards of what is in the blueprint; see `Shard`."""
        self._cluster, self._ray, self._say = cluster, cluster.ray, say
        self._blueprint = [cluster.ray.put(each) for each in blueprint]  # kept for restarts
        self._shard = cluster.remote(Shard)
        self.members = [
            Member(name=f"shard {i} on {node.name}", node=node, actor=self._started(node))
            for i, node in enumerate(spread(cluster.nodes(), count), start=1)
        ]
        self.seconds = 0.0
        """The processor time that shards have used."""
        try:
            started = [member.actor.process.remote() for member in self.members]
            self.processes: list[int] = self._ray.get(started, timeout=START_SECONDS)
        except BaseException as error:
            self.end()
            if isinstance(error, self._ray.exceptions.RayError):
                raise ClusterError(
                    f"{count} shards could not be started: {_first_line(error)}; look at "
                    "`ray status`, and whether other work has taken the cores"
                ) from error
            raise

    def __len__(self) -> int:
        return len(self.members)

    @property
    def parts(self) -> int:
        """Into how many parts work is best cut."""
        return PARTS_EACH * len(self.members)

    def put(self, value: Any) -> Any:
        """Hand something to Ray once, for all shards."""
        return self._ray.put(value)

    def do(self, calls: Sequence[Call]) -> list[Done]:
        """Have all these calls done by some shard each; return their results in order."""
        waiting, done = deque(range(len(calls))), dict[int, Done]()
        busy: dict[Any, tuple[int, Member]] = {}
        while len(done) < len(calls):
            free = [m for m in self.members if all(m is not member for _, member in busy.values())]
            for member in free[: len(waiting)]:
                i = waiting.popleft()
                busy[calls[i](member.actor)] = i, member
            if not busy:
                raise ClusterError(
                    "no shard is left to compute for the peers: their processes or nodes have "
                    "ended; what was trained so far is kept, so start nodes and run again, or run "
                    "without ",
                    Setting("shards"),
                )
            ready, _ = self._ray.wait([*busy], timeout=PATIENCE)
            silent = [ref for ref, (_, m) in busy.items() if not (ready or self._answers(m))]
            for ref in (*ready, *silent):
                i, member = busy.pop(ref)
                found = self._result(ref) if ref in ready else "its node does not answer"
                if isinstance(found, Done):
                    done[i] = found
                    self.seconds += found.seconds
                else:
                    waiting.appendleft(i)
                    self._replace(member, found)
        return [done[i] for i in range(len(calls))]

    def _answers(self, member: Member) -> bool:
        return self._cluster.answers(member.node)

    def _result(self, ref: Any) -> Done | str:
        """Return what a call came to, or why its shard is lost."""
        exceptions = self._ray.exceptions
        try:
            found: Done = self._ray.get(ref)
        except exceptions.RayTaskError as error:
            raise (error.cause or error) from None
        except (exceptions.RayActorError, exceptions.ObjectLostError) as error:
            return _first_line(error)
        return found

    def _started(self, node: Node) -> Any:
        return self._shard.options(scheduling_strategy=pinned(node)).remote(self._blueprint)

    def _replace(self, member: Member, why: str) -> None:
        """Start a lost shard again, or give it up."""
        place = self.members.index(member)
        self._ray.kill(member.actor)
        if member.restarts < RESTARTS and self._answers(member):
            actor, restarts = self._started(member.node), member.restarts + 1
            self.members[place] = replace(member, actor=actor, restarts=restarts)
            return
        del self.members[place]
        left = f"{len(self.members)} left do its work" if self.members else "it was the last"
        self._say(f"{member.name} is lost: {why}; {left}")

    def end(self) -> None:
        """End the shards' processes."""
        for member in self.members:
            self._ray.kill(member.actor)
        self.members = []


def spread(nodes: Sequence[Node], count: int) -> list[Node]:
    """Return a node for each shard: each in turn, as long as it has cores."""
    free = {node.id: node.cores for node in nodes}
    if sum(free.values()) < count:
        raise ClusterError(
            Setting("shards", str(count)),
            f" take a core each, and the cluster has {sum(free.values())}; use fewer, or add nodes",
        )
    places: list[Node] = []
    while len(places) < count:
        for node in nodes:
            if free[node.id] and len(places) < count:
                free[node.id] -= 1
                places.append(node)
    return places


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0].rstrip(".")
