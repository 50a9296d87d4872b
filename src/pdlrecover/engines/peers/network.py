"""Bytes between peers: gRPC over mutual TLS, every peer both server and client.

Rules:

- One method, a stream of chunks answered by one empty message. The bytes are the codec's; no schema
  compiler is involved.
- Both sides show a certificate that the federation knows. Its name is bound to the peer's number:
  a client connects only to the name it wants, a server knows its caller by its name, and by the
  very certificate where they are pinned.
- Every send has a deadline, is tried a few times with growing pauses, and is then dropped: the
  protocol says again what matters.
- To each peer there is a queue of its own, bounded in messages and bytes; when it is full the
  oldest goes. So a peer that is slow, frozen or gone costs the others nothing.
- What is received is bounded too: a peer has so many messages and bytes waiting here, and is kept
  waiting with the next. Of one peer one message is read at a time, within the deadline, and few
  more may knock. Larger messages than the limit are refused while they arrive.
- A peer that cannot be reached is named in the log with the reason, once, and again when it can be;
  so are callers that are refused. Whoever fails the TLS handshake is not seen here.
"""

import asyncio
import logging
import random
import ssl
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from pdlrecover.errors import PlanError

LOG = logging.getLogger("pdlrecover.peer")
METHOD = "/pdlrecover.Peer/Deliver"
CHUNK = 1 << 20
COMPLAIN_SECONDS, COMPLAINTS = 60.0, 256
"""The same complaint is logged once in so many seconds, and so many different ones in all."""


@dataclass(frozen=True, kw_only=True)
class Tls:
    """One peer's certificate and key, and what all trust: PEM."""

    authority: bytes
    """An authority's certificate, or everybody's own."""
    certificate: bytes
    key: bytes
    names: tuple[str, ...]
    """The name in each peer's certificate (its DNS alternative name), in the peers' order."""
    pinned: tuple[bytes, ...] = ()
    """Each peer's very certificate in DER, in the peers' order; empty if names are enough."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much is sent, kept and waited for."""

    message_bytes: int = 1 << 28
    queued_messages: int = 512
    queued_bytes: int = 1 << 29
    waiting_messages: int = 64
    """Received from one peer and not yet looked at."""
    waiting_bytes: int = 1 << 27
    """The same in bytes; one message may always wait, however large."""
    calls: int = 8
    """So many calls of one peer may be open at once."""
    deadline: float = 20.0
    attempts: int = 4
    pause: float = 0.2
    """After the first failure, in seconds; it doubles."""


class Network:
    """The network as one peer sees it."""

    def __init__(
        self,
        *,
        me: int,
        addresses: Sequence[str],
        tls: Tls,
        receive: Callable[[int, bytes], Awaitable[None]],
        limits: Limits | None = None,
        listen: str | None = None,
    ) -> None:
        """`receive` is awaited for every message; while it waits, its sender waits.

        `listen` is where this peer listens, if not at the address that the others know.
        """
        self._listen = listen or addresses[me]
        self._me, self._addresses, self._tls, self._receive = me, tuple(addresses), tls, receive
        self._limits = limits or Limits()
        self._server: grpc.aio.Server | None = None
        self._links: dict[int, _Link] = {}
        self.counts: Counter[str] = Counter()
        self._complaints: dict[str, float] = {}
        self._calls: Counter[int] = Counter()
        self._reading = [asyncio.Lock() for _ in addresses]

    async def start(self) -> None:
        """Listen, and be ready to send."""
        server = grpc.aio.server(options=_options(self._limits))
        server.add_generic_rpc_handlers((_Service(self._deliver),))
        credentials = grpc.ssl_server_credentials(
            [(self._tls.key, self._tls.certificate)],
            root_certificates=self._tls.authority,
            require_client_auth=True,
        )
        try:
            server.add_secure_port(self._listen, credentials)
        except RuntimeError as error:
            await server.stop(grace=None)
            raise PlanError(
                f"cannot listen on {self._listen}: is another peer running there, or is it an "
                "address of another machine? Say where to listen"
            ) from error
        await server.start()
        self._server = server
        for peer, address in enumerate(self._addresses):
            if peer != self._me:
                name = self._tls.names[peer]
                self._links[peer] = _Link(address, name, self._tls, self._limits, self.counts)

    def _complain(self, text: str) -> None:
        """Log a warning, unless it was said a moment ago."""
        now = time.monotonic()
        self._complaints = {
            text: at for text, at in self._complaints.items() if at > now - COMPLAIN_SECONDS
        }
        if text not in self._complaints and len(self._complaints) < COMPLAINTS:
            self._complaints[text] = now
            LOG.warning("%s", text)

    async def stop(self) -> None:
        """Close everything."""
        for link in self._links.values():
            await link.stop()
        if self._server:
            await self._server.stop(grace=0.2)

    def send(self, peer: int, data: bytes) -> None:
        """Queue a message for a peer."""
        self._links[peer].put(data)

    async def _deliver(self, chunks: AsyncIterator[bytes], context: Any) -> bytes:
        """Put a message together and hand it on; the answer says that it has arrived."""
        source = self._caller(context)
        if source is None:
            self.counts["refused"] += 1
            self._complain(
                f"a caller from {_host(context)} was refused: its certificate "
                f"({_names(context)}) is of no peer in this federation file, or is not the one "
                "that the file has for it; compare the files"
            )
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "no peer of this federation")
            return b""
        if self._calls[source] >= self._limits.calls:
            self.counts["refused"] += 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "too many calls at once")
        self._calls[source] += 1
        try:
            async with self._reading[source]:
                data = await self._read(source, chunks, context)
                self.counts["received"] += 1
                self.counts["received_bytes"] += len(data)
                await self._receive(source, data)
        finally:
            self._calls[source] -= 1
        return b""

    async def _read(self, source: int, chunks: AsyncIterator[bytes], context: Any) -> bytes:
        """Put a message together, within its size and time."""
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._limits.deadline):
                async for chunk in chunks:
                    size += len(chunk)
                    if size > self._limits.message_bytes:
                        break
                    parts.append(chunk)
        except TimeoutError:
            self.counts["slow"] += 1
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the message came too slowly")
        if size > self._limits.message_bytes:
            self.counts["oversize"] += 1
            self._complain(
                f"{_short(self._tls.names[source])} sent a message of more than "
                f"{self._limits.message_bytes} bytes, which no honest peer does; it was refused"
            )
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "the message is too large")
        return b"".join(parts)

    def _caller(self, context: Any) -> int | None:
        """Return whose certificate the caller showed."""
        names = set(_names(context))
        found = [peer for peer, name in enumerate(self._tls.names) if name in names]
        if len(found) != 1 or found[0] == self._me:
            return None
        if self._tls.pinned:
            pem = context.auth_context().get("x509_pem_cert", [b""])[0]
            if ssl.PEM_cert_to_DER_cert(pem.decode()) != self._tls.pinned[found[0]]:
                return None
        return found[0]


class _Link:
    """The way to one peer: a bounded queue, and a task that empties it."""

    def __init__(
        self, address: str, name: str, tls: Tls, limits: Limits, counts: Counter[str]
    ) -> None:
        credentials = grpc.ssl_channel_credentials(tls.authority, tls.key, tls.certificate)
        options = [*_options(limits), ("grpc.ssl_target_name_override", name)]
        self._channel = grpc.aio.secure_channel(address, credentials, options=options)
        self._call = self._channel.stream_unary(METHOD)
        self._limits, self._counts = limits, counts
        self._queue: deque[bytes] = deque()
        self._size = 0
        self._filled = asyncio.Event()
        self._where, self._down = f"{_short(name)} at {address}", False
        self._task = asyncio.create_task(self._work())

    def put(self, data: bytes) -> None:
        """Queue a message; the oldest go where there is no room."""
        self._queue.append(data)
        self._size += len(data)
        while self._queue and (
            len(self._queue) > self._limits.queued_messages
            or self._size > self._limits.queued_bytes
        ):
            self._take()
            self._counts["dropped"] += 1
        self._filled.set()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._channel.close()

    def _take(self) -> bytes:
        data = self._queue.popleft()
        self._size -= len(data)
        return data

    async def _work(self) -> None:
        while True:
            while not self._queue:
                self._filled.clear()
                await self._filled.wait()
            try:
                await self._send(self._take())
            except Exception:  # the way to a peer must stay open, whatever one message did to it
                self._counts["dropped"] += 1
                LOG.exception("a message could not be sent; this is a bug")

    async def _send(self, data: bytes) -> None:
        for attempt in range(self._limits.attempts):
            try:
                await self._call(_chunks(data), timeout=self._limits.deadline)
            except grpc.aio.AioRpcError as error:
                self._counts["failed"] += 1
                if attempt or self._limits.attempts == 1:  # the first may be a peer that starts
                    self._is_down(error)
                if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                    break
                pause = self._limits.pause * 2**attempt
                await asyncio.sleep(pause * (0.5 + random.random()))  # noqa: S311 (no secret)
            else:
                self._counts["sent"] += 1
                self._counts["sent_bytes"] += len(data)
                self._is_up()
                return
        self._counts["dropped"] += 1

    def _is_down(self, error: grpc.aio.AioRpcError) -> None:
        if not self._down:
            self._down = True
            LOG.warning(
                "cannot reach %s (%s); check that it runs, its address, and the firewall",
                self._where,
                self._reason(error),
            )

    def _is_up(self) -> None:
        if self._down:
            self._down = False
            LOG.info("%s can be reached again", self._where)

    def _reason(self, error: grpc.aio.AioRpcError) -> str:
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"no answer within {self._limits.deadline:g} s"
        if error.code() is grpc.StatusCode.PERMISSION_DENIED:
            return "it does not know this peer's certificate: compare the federation files"
        return f"{error.code().name}: {repr(error.details())[1:-1][:200]}"


class _Service(grpc.GenericRpcHandler):  # type: ignore[misc] # grpc has no types
    """Answers the one method."""

    def __init__(self, deliver: Callable[[AsyncIterator[bytes], Any], Awaitable[bytes]]) -> None:
        self._handler = grpc.stream_unary_rpc_method_handler(deliver)

    def service(self, details: Any) -> Any:
        return self._handler if details.method == METHOD else None


def _names(context: Any) -> list[str]:
    """Return the names in the certificate that a caller showed."""
    shown = context.auth_context().get("x509_subject_alternative_name", [])
    return [name.decode("utf-8", "replace") for name in shown]


def _host(context: Any) -> str:
    """Return the address that a call comes from, without the port."""
    return repr(str(context.peer()).rpartition(":")[0])


def _short(name: str) -> str:
    """Return a peer's id from the name in its certificate."""
    return name.removesuffix(".pdlrecover")


async def _chunks(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), CHUNK) if data else [0]:
        yield data[start : start + CHUNK]


def _options(limits: Limits) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", 2 * CHUNK),
        ("grpc.max_send_message_length", 2 * CHUNK),
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 5_000),
        ("grpc.max_concurrent_streams", limits.calls),
        ("grpc.so_reuseport", 0),
        ("grpc.enable_http_proxy", 0),
    ]
