"""A Ray cluster that others started: join it, know its nodes, and leave it as it was.

    with joined("auto") as cluster:
        require_likeness(cluster, cluster.nodes())
        work = cluster.remote(function)
        ray.get(work.options(scheduling_strategy=pinned(node)).remote(1, 2))

Rules:

- A cluster is `auto`, the one of this machine as `ray.init(address="auto")` finds it, or HOST:PORT.
  No cluster is ever started or stopped here: leaving ends this process's tasks and actors, and a
  process that was connected before stays connected.
- This process runs on a node of the cluster. Ray Client (`ray://`) is not used.
- Whatever runs on a node has one thread, which is said before anything is imported there: the last
  bits of a sum depend on the number of threads.
- Nodes must be like this machine: the same source, versions and data. What differs is an error that
  names the node. Another processor capability (AVX512, AVX2) changes the last bits of gradients,
  and is refused, too, unless it is accepted.
- A cluster is one machine to whoever reaches it: Ray runs what it is sent. See `docs/cluster.md`.
"""

import os
import platform
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

from pdlrecover.errors import ClusterError, Setting
from pdlrecover.extras import extra
from pdlrecover.source import source_digest

LOCAL, AUTO = "local", "auto"
ONE_THREAD = {
    f"{name}_THREADS": "1"
    for name in ("PDLRECOVER", "OMP_NUM", "MKL_NUM", "OPENBLAS_NUM", "NUMEXPR_NUM")
}
"""The environment of what runs on a node."""
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS_SKIP_REGEX": ".*"}
"""Ray sends nothing home, and prints no state of its own between our lines."""
PROBE_SECONDS = 5.0
ASK_SECONDS = 300.0
"""A node that does not say in this time what it is like is taken to be out of order."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""How a connection of HTTP/2 begins, which Ray's own do: its head answers with a frame alike."""
SETTINGS = 4
CLIENT_PORT = 10001
"""Ray Client's, by default; `ray.init` would wait there for an answer that does not come."""
PROCESSOR = "processor"
REMEDIES = {
    "source": "check out the same commit on every node, and install it there",
    "data": "copy the data folder to every node, or name it by PDLRECOVER_DATA before `ray start`",
    "model": "put the same module on every node",
}
VERSION_REMEDY = "install the same version on every node"

Facts = Mapping[str, str]
"""What a node is like: values by what they are of. `data mnist` is of the kind `data`."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A machine, or a part of one, that does work."""

    id: str
    name: str
    """What it is called in messages; no two nodes are called alike."""
    address: str
    port: int
    """Where its own process, the raylet, listens."""
    cores: int
    """How many tasks of one core it takes at a time."""


class Cluster:
    """The cluster that this process is connected to; see `joined`."""

    def __init__(self, ray: Any) -> None:
        self.ray = ray
        self.address = str(ray.get_runtime_context().gcs_address)
        self.here = str(ray.get_runtime_context().get_node_id())
        """The node that this process runs on."""

    def nodes(self) -> list[Node]:
        """Return the nodes that are there and take work, in the order of their names.

        Of one that has just gone Ray still says for some seconds that it is alive.
        """
        alive = [each for each in self.ray.nodes() if each["Alive"]]
        found = [x for x in alive if _knock(x["NodeManagerAddress"], x["NodeManagerPort"])]
        names = Counter(map(_name, found))
        nodes = [
            Node(
                id=each["NodeID"],
                name=_name(each) + (f" ({each['NodeID'][:8]})" if names[_name(each)] > 1 else ""),
                address=each["NodeManagerAddress"],
                port=each["NodeManagerPort"],
                cores=int(each["Resources"].get("CPU", 0)),
            )
            for each in found
        ]
        return sorted((node for node in nodes if node.cores), key=lambda node: node.name)

    def remote(self, what: Any, **options: Any) -> Any:
        """Return a function or class for Ray to run, with one thread, by `ray.remote`'s options.

        What a task has opened or cached is lost with its process, and a lost task is not repeated
        unless the options say so.
        """
        retries = {"max_restarts": 0} if isinstance(what, type) else {"max_retries": 0}
        given = {"num_cpus": 1, "runtime_env": {"env_vars": ONE_THREAD}, **retries, **options}
        return self.ray.remote(**given)(what)

    def ask(self, node: Node, question: Callable[[], Facts]) -> Any:
        """Ask a node what it is like, even if all its cores are busy; `told` has the answer."""
        asked = self.remote(_asked, num_cpus=0, scheduling_strategy=pinned(node))
        return asked.remote(question)

    def told(self, node: Node, answer: Any) -> dict[str, str]:
        """Wait for what a node says of itself; raise ClusterError if it cannot."""
        try:
            facts: dict[str, str] = self.ray.get(answer, timeout=ASK_SECONDS)
        except self.ray.exceptions.GetTimeoutError as error:
            raise ClusterError(
                f"node {node.name} has not said in {ASK_SECONDS:.0f} seconds what it is like; look "
                "at `ray status`, and stop it there if it hangs"
            ) from error
        except Exception as error:
            raise ClusterError(
                f"node {node.name} cannot say what it is like: {gist(error)}; install the same "
                "pdlrecover there, and start the node again"
            ) from error
        return facts

    @staticmethod
    def answers(node: Node) -> bool:
        """Say whether a node's own process accepts connections: Ray takes longer to notice."""
        return _knock(node.address, node.port)


@contextmanager
def joined(on: str, user: str = "--on") -> Iterator[Cluster]:
    """Be connected to a cluster, `auto` or HOST:PORT, within this; `user` is who needs Ray."""
    host_and_port = None if on == AUTO else _parts(on)
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    with extra("cluster", user):
        import ray
        import ray.exceptions
    if ray.is_initialized():
        yield _same(ray, host_and_port, on)
        return
    _join(ray, on, host_and_port)
    try:
        yield Cluster(ray)
    finally:
        ray.shutdown()


def pinned(node: Node | str) -> Any:
    """Return the strategy that runs something on this node, or nowhere."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    place = node if isinstance(node, str) else node.id
    return NodeAffinitySchedulingStrategy(place, soft=False)


def facts(more: Callable[[], Facts] = dict) -> dict[str, str]:
    """Return what this machine is like, and what `more` says of it."""
    import torch

    libraries = {name: version(name) for name in ("pdlrecover", "torch", "numpy")}
    return {
        "Python": platform.python_version(),
        **libraries,
        PROCESSOR: torch.backends.cpu.get_cpu_capability(),
        "source": source_digest(),
        **more(),
    }


def require_likeness(
    cluster: Cluster,
    nodes: Sequence[Node],
    more: Callable[[], Facts] = dict,
    *,
    mixed_processors: bool = False,
) -> None:
    """Raise ClusterError unless all these nodes are like this machine, and like `more` says.

    `more` is run on every node, which imports it. With `mixed_processors` other processor
    capabilities are accepted: results are then the same up to the last bits of gradients.
    """
    question = partial(facts, more)
    asked = [(node, cluster.ask(node, question)) for node in nodes]
    mine = question()
    for node, answer in asked:
        require_alike(mine, cluster.told(node, answer), node, mixed_processors=mixed_processors)


def require_alike(
    mine: Facts, theirs: Facts, node: Node, *, mixed_processors: bool = False
) -> None:
    """Raise ClusterError if a node says something else of itself than this machine does."""
    names = dict.fromkeys((*mine, *theirs))
    differing = [name for name in names if mine.get(name) != theirs.get(name)]
    if mixed_processors:
        differing = [name for name in differing if name != PROCESSOR]
    if not differing:
        return
    said = [
        f"{name} ({_short(theirs, name)} there, {_short(mine, name)} here)" for name in differing
    ]
    what: list[str | Setting] = []
    for kind in dict.fromkeys(name.partition(" ")[0] for name in differing):
        if kind == PROCESSOR:
            what += [
                "; the last bits of gradients differ between processors: leave the node out, or "
                "accept that by ",
                Setting("mixed_processors", "True"),
            ]
        elif (remedy := f"; {REMEDIES.get(kind, VERSION_REMEDY)}") not in what:
            what.append(remedy)
    raise ClusterError(f"node {node.name} is not like this machine: {', '.join(said)}", *what)


def one_thread() -> None:
    """Let torch use one thread in this process, as the environment says to the other libraries."""
    import torch

    torch.set_num_threads(1)


def _asked(question: Callable[[], Facts]) -> dict[str, str]:
    one_thread()
    return dict(question())


def _knock(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), PROBE_SECONDS).close()
    except OSError:
        return False
    return True


def _name(node: Mapping[str, Any]) -> str:
    given = node.get("NodeName") or node["NodeManagerAddress"]
    own = given == node["NodeManagerAddress"]
    return str(node["NodeManagerHostname"] if own else given)


def _short(known: Facts, name: str) -> str:
    return known.get(name, "unknown")[:12]


def gist(error: BaseException) -> str:
    """Return what an error of Ray's is about: its cause if a task raised it, and one line."""
    cause = getattr(error, "cause", None) or error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    missing = [line for line in lines if "ModuleNotFoundError" in line or "ImportError" in line]
    return [*missing[-1:], *lines[:1], type(cause).__name__][0].rstrip(".")


def _parts(on: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT."""
    host, _, port = on.rpartition(":")
    if "/" in on or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ClusterError(
            Setting("on"),
            f" must be {LOCAL}, {AUTO}, or HOST:PORT as `ray start` shows it (such as "
            f"10.0.0.1:6379), got {on!r}",
        )
    return host.strip("[]"), int(port)


def _same(ray: Any, wanted: tuple[str, int] | None, on: str) -> Cluster:
    """Return the cluster that this process is in already, if it is the one that is wanted."""
    found = Cluster(ray)
    if wanted is not None and _resolved(*wanted) != _resolved(*_parts(found.address)):
        raise ClusterError(
            f"this process is connected to the cluster at {found.address} already, not to {on}; "
            "call ray.shutdown() first"
        )
    return found


def _resolved(host: str, port: int) -> tuple[str, int]:
    with suppress(OSError):
        host = socket.gethostbyname(host)
    return host, port


def _join(ray: Any, on: str, wanted: tuple[str, int] | None) -> None:
    """Connect; a wrong address is found out before Ray waits a minute for it, and aborts."""
    if wanted is None:
        wanted = _found()
    _probe(*wanted)
    try:
        ray.init(
            address=f"{wanted[0]}:{wanted[1]}",
            log_to_driver=False,
            logging_level="ERROR",
            runtime_env={"env_vars": ONE_THREAD},
        )
    except Exception as error:
        ray.shutdown()
        text = str(error)
        if "ersion mismatch" in text:
            _, _, versions = " ".join(text.split()).partition("ersion mismatch: ")
            what = f"{versions}; install the same Ray and Python on every node"
        elif "node info" in text or "find this address" in text or "No node" in text:
            what = (
                "this machine is no node of it; join it here first by "
                f"`ray start --address={wanted[0]}:{wanted[1]}`"
            )
        else:
            what = (
                f"{gist(error)}; look at `ray status`, and if the cluster asks for a token, set "
                "RAY_AUTH_MODE=token here, too, with the same ~/.ray/auth_token"
            )
        raise ClusterError(f"the Ray cluster at {on} cannot be joined: {what}") from error


def _found() -> tuple[str, int]:
    """Return the address of this machine's cluster, as Ray finds it."""
    from ray._private.services import canonicalize_bootstrap_address_or_die

    try:
        return _parts(canonicalize_bootstrap_address_or_die(AUTO))
    except ConnectionError as error:
        several = " ".join(str(error).split()).partition(". Please")[0]
        more = (
            f"{several}; name one of them"
            if "multiple" in several
            else "start one by `ray start --head`"
        )
        raise ClusterError(
            f"there is no one Ray cluster on this machine: {more}, or run here by ",
            Setting("on", LOCAL),
        ) from error


def _probe(host: str, port: int) -> None:
    """Raise ClusterError unless something that may be the head of a cluster listens there."""
    hint = "start a cluster by `ray start --head`, and give the address that it shows"
    try:
        with socket.create_connection((host, port), PROBE_SECONDS) as knock:
            knock.settimeout(PROBE_SECONDS)
            knock.sendall(PREFACE)
            answer = knock.recv(9)
    except TimeoutError:
        answer = b""
    except OSError as error:
        raise ClusterError(
            f"no Ray cluster can be reached at {host}:{port}: {error.strerror or error}; {hint}"
        ) from error
    if len(answer) < 4 or answer[3] != SETTINGS or port == CLIENT_PORT:
        raise ClusterError(
            f"what listens at {host}:{port} is no Ray cluster (its head usually has port 6379; "
            f"8265 is the dashboard's, {CLIENT_PORT} Ray Client's); {hint}"
        )
