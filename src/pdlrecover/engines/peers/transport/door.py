"""Who stands at the port: anybody can connect to it, and every connection takes a descriptor.

Rules:

- A connection that does not finish its handshake within `Limits.handshake` is closed by the
  library. Those that were closed without ever having made a call are counted here as `unfinished`,
  by looking at this process's sockets once a second, and said in the log when they are many.
- No more connections are let in than leave descriptors for this peer's own use: `RESERVE` for
  files, histories and its operator, and two for each peer that it calls. One more is closed at
  once. So whoever opens thousands keeps new callers out for that long, but what is connected stays,
  and this peer can write.
- Which addresses may connect at all is a firewall's to decide.
"""

import asyncio
import errno
import logging
import re
import socket
import time
from collections import Counter
from urllib.parse import unquote

from pdlrecover import descriptors
from pdlrecover.engines.peers.identity.member import split_address
from pdlrecover.errors import PlanError

LOG = logging.getLogger("pdlrecover.peer")
RESERVE = 64
FOR_EACH = 3
"""A peer has one connection here, and for a while others, when it was cut off and calls again."""
LOOK_SECONDS = 1.0
SAY_SECONDS, SAY_MANY = 60.0, 20
"""More unfinished connections than this, in so many seconds, are worth a line."""
_ENDPOINT = re.compile(r"ipv[46]:\[?(.+?)\]?:(\d+)")

Endpoint = tuple[str, int]


_ANYWHERE = ("0.0.0.0", "::", "[::]")  # noqa: S104 (what an operator may have chosen)


def least_descriptors(peers: int) -> int:
    """Return how many descriptors a peer needs besides those that it has before it listens."""
    return RESERVE + (2 + FOR_EACH) * peers


def try_to_bind(where: str) -> None:
    """Raise `OSError` if nobody can listen there: gRPC writes a line of its own if it cannot.

    Whether this machine has an address family is for the library to find out.
    """
    host, port = split_address(where)
    failure: OSError | None = None
    for family, kind, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        try:
            with socket.socket(family, kind) as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                tried.bind(address)
                return
        except OSError as error:
            if error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL) and host in _ANYWHERE:
                continue
            failure = OSError(error.errno, error.strerror)
    if failure is not None:
        raise failure


class Door:
    """The connections to one port of this process."""

    def __init__(self, port: int, peers: int, counts: Counter[str]) -> None:
        self._port, self._peers, self._counts = port, peers, counts
        self._strangers: set[Endpoint] = set()
        """Who was connected at the last look, and had not made a call."""
        self._known: set[Endpoint] = set()
        """Who is connected and has made one."""
        self._said_at, self._said = -SAY_SECONDS, 0
        self._task: asyncio.Task[None] | None = None

    def connections(self, most: int) -> int:
        """Return how many may be let in, of at most this many; raise if peers need more."""
        limit, used = descriptors.limit(), descriptors.in_use()
        least, needs = FOR_EACH * self._peers, used + least_descriptors(self._peers)
        free = limit - needs + least
        if free < least:
            raise PlanError(
                f"this process may open {limit} files and connections, and with {self._peers} "
                f"peers it needs {needs}; raise the limit by `ulimit -n`, or "
                "LimitNOFILE= of a systemd unit"
            )
        return max(least, min(most, free))

    def open(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def knows(self, caller: str) -> None:
        """Take note that a caller, as the library names it, has made a call."""
        if found := _ENDPOINT.fullmatch(unquote(caller)):
            self._known.add((found[1], int(found[2])))

    def look(self, callers: set[Endpoint], now: float) -> None:
        """Count who is gone without a call; `callers` are connected now."""
        self._counts["unfinished"] += len(self._strangers - callers - self._known)
        self._known &= callers
        self._strangers = callers - self._known
        many = self._counts["unfinished"] - self._said
        if many > SAY_MANY and now >= self._said_at + SAY_SECONDS:
            self._said_at, self._said = now, self._counts["unfinished"]
            LOG.warning(
                "%s connections came and made no call, and %s are open now: let only the other "
                "peers' addresses through the firewall",
                many,
                len(self._strangers),
                extra={"facts": {"event": "strangers"}},
            )

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            callers = descriptors.callers(self._port)
            if callers is not None:
                self.look(callers, time.monotonic())
