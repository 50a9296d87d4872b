"""Asks a peer outside of the protocol whether it is there, what it runs, and what time it is.

Rules:

- A ping has no content and changes nothing; its answer is a `Greeting`. It needs no place in a run,
  so a command can send one while the peer runs that has the same keys.
- Only members are answered, by the certificates that they show, as for messages.
- Of each member some are answered at once, and one every `EACH_SECONDS` from then on. All are
  counted, and those that were too many are refused before anything is read of them. The others must
  have come within a message's deadline.
- A peer of a version before this one does not know pings, and says so: it can be reached.
"""

import time
from collections import Counter
from dataclasses import dataclass
from enum import Enum

from pdlrecover.engines.peers.greeting import Greeting, decode
from pdlrecover.engines.peers.transport.link import Limits, Tls
from pdlrecover.errors import CodecError
from pdlrecover.extras import extra

with extra("peers", "a peer that talks to others"):
    import grpc

PING = "/pdlrecover.Peer/Ping"
AT_ONCE, EACH_SECONDS = 60, 0.2


class Pings:
    """How many pings each peer may still send."""

    def __init__(self, peers: int, counts: Counter[str], now: float) -> None:
        self._left, self._at = [float(AT_ONCE)] * peers, [now] * peers
        self._counts = counts

    def take(self, source: int, now: float) -> bool:
        """Count a ping of a peer; say whether it is answered."""
        self._counts["pings"] += 1
        fresh = (now - self._at[source]) / EACH_SECONDS
        left, self._at[source] = min(AT_ONCE, self._left[source] + fresh), now
        self._left[source] = left - 1 if left >= 1 else left
        return left >= 1


class How(Enum):
    """How a ping came out."""

    ANSWERED = "it answered"
    OLDER = "it is of a version that does not know pings"
    REFUSED = "it does not know this peer's certificate"
    BUSY = "it was asked too often"
    SILENT = "it did not answer in time"
    UNREACHABLE = "no connection came about"
    NONSENSE = "its answer makes no sense"


_MEANING = {
    grpc.StatusCode.UNIMPLEMENTED: How.OLDER,
    grpc.StatusCode.PERMISSION_DENIED: How.REFUSED,
    grpc.StatusCode.RESOURCE_EXHAUSTED: How.BUSY,
    grpc.StatusCode.DEADLINE_EXCEEDED: How.SILENT,
}


@dataclass(frozen=True, kw_only=True)
class Echo:
    """What came of pinging a peer."""

    how: How
    greeting: Greeting | None = None
    seconds: float = 0.0
    """There and back."""
    ahead: float = 0.0
    """How far the other's clock is ahead of this one, give or take half of `seconds`."""


async def ping(address: str, name: str, tls: Tls, seconds: float) -> Echo:
    """Ping the peer whose certificate has this name; it has so long for an answer.

    It is asked twice: connecting takes time, and would blur what is said of its clock.
    """
    credentials = grpc.ssl_channel_credentials(tls.authority, tls.key, tls.certificate)
    options = [*Limits().options, ("grpc.ssl_target_name_override", name)]
    async with grpc.aio.secure_channel(address, credentials, options=options) as channel:
        call = channel.unary_unary(PING)
        try:
            await call(b"", timeout=seconds)
            began, at = time.monotonic(), time.time()
            answer = await call(b"", timeout=seconds)
            took = time.monotonic() - began
        except grpc.aio.AioRpcError as error:
            return Echo(how=_MEANING.get(error.code(), How.UNREACHABLE))
    try:
        greeting = decode(answer)
    except CodecError:
        return Echo(how=How.NONSENSE, seconds=took)
    ahead = greeting.time - (at + took / 2)
    return Echo(how=How.ANSWERED, greeting=greeting, seconds=took, ahead=ahead)
