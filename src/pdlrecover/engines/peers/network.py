"""Bytes between peers: gRPC over mutual TLS, every peer both server and client.

Rules:

- One method, a stream that stays open: messages in chunks one way, and the other way how many have
  been taken, said for several at once. The bytes are the codec's; no schema compiler is involved.
  A call for each message would cost four times as much.
- Both sides show a certificate that the federation knows. Its name is bound to the peer's number:
  a client connects only to the name it wants, a server knows its caller by its name, and by the
  very certificate where they are pinned.
- Every message has a deadline from the moment it is sent. If it is not answered by then, or the
  stream breaks, a new stream is opened after a growing pause, and what was not answered is sent
  again; after a few times it is dropped: the protocol says again what matters.
- To each peer there is a queue of its own, bounded in messages and bytes; when it is full the
  oldest goes. So a peer that is slow, frozen or gone costs the others nothing.
- What is received is bounded too: a peer has so many messages and bytes waiting here, and is kept
  waiting with the next. Of one peer one message is read at a time, within the deadline, and few
  streams may be open. A message says its size first: one that is too large is refused before it
  arrives, and one that ends early was cut off with its sender's connection, and is nobody's word.
- A peer that cannot be reached is named in the log with the reason, once, and again when it can be;
  so are callers that are refused. Whoever fails the TLS handshake is not seen here.
"""

import asyncio
import logging
import random
import ssl
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import grpc

from pdlrecover.errors import PlanError

LOG = logging.getLogger("pdlrecover.peer")
METHOD = "/pdlrecover.Peer/Deliver"
CHUNK = 1 << 20
SIZE_BYTES = 8
"""Before a message stands how many bytes it has, little-endian; an answer is as long."""
ANSWER_WAIT, ANSWER_MESSAGES, ANSWER_BYTES = 0.1, 8, 1 << 20
"""An answer waits for others to go with it, for this part of a message's deadline, or until so
much is there to be answered."""


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
    """So many streams of one peer may be open at once."""
    unanswered_messages: int = 32
    """Sent to one peer and not yet answered; no more are sent meanwhile,"""
    unanswered_bytes: int = 1 << 24
    """nor more bytes, unless it is a single message."""
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
        complain: Callable[[int | None, str], None] = lambda peer, what: None,
    ) -> None:
        """`receive` is awaited for every message; while it waits, its sender waits.

        `listen` is where this peer listens, if not at the address that the others know. `complain`
        is told what was refused, and of which peer, if it was one.
        """
        self._listen = listen or addresses[me]
        self._me, self._addresses, self._tls, self._receive = me, tuple(addresses), tls, receive
        self._limits, self._complain = limits or Limits(), complain
        self._server: grpc.aio.Server | None = None
        self._links: dict[int, _Link] = {}
        self.counts: Counter[str] = Counter()
        self._calls: Counter[int] = Counter()
        self._streams: set[asyncio.Task[Any]] = set()
        """What answers the others' streams."""
        self._stopping = False
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

    async def stop(self) -> None:
        """Close everything, the others' streams first: the library would log what it has to end."""
        self._stopping = True
        for stream in self._streams:
            stream.cancel()
        await asyncio.gather(*self._streams, return_exceptions=True)
        for link in self._links.values():
            await link.stop()
        if self._server:
            await self._server.stop(grace=0.2)

    def send(self, peer: int, data: bytes) -> None:
        """Queue a message for a peer."""
        self._links[peer].put(data)

    async def _deliver(self, _: Any, context: Any) -> None:
        """Take a peer's messages one by one; each answer says that one was taken."""
        source = self._caller(context)
        if source is None:
            self.counts["refused"] += 1
            self._complain(
                None,
                f"a caller from {_host(context)} was refused: its certificate "
                f"({_names(context)}) is of no peer in this federation file, or is not the one "
                "that the file has for it; compare the files",
            )
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "no peer of this federation")
            return
        if self._calls[source] >= self._limits.calls:
            self.counts["refused"] += 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "too many streams at once")
        self._calls[source] += 1
        answers = _Answers(context, ANSWER_WAIT * self._limits.deadline)
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._streams.add(task)
        try:
            while (chunk := await context.read()) is not grpc.aio.EOF:
                async with self._reading[source]:
                    data = await self._in_time(source, chunk, context)
                    self.counts["received"] += 1
                    self.counts["received_bytes"] += len(data)
                    await self._receive(source, data)
                await answers.taken(len(data))
            await answers.say()
        except asyncio.CancelledError:
            if not self._stopping:
                raise
        finally:
            self._streams.discard(task)
            self._calls[source] -= 1
            answers.stop()

    async def _in_time(self, source: int, chunk: bytes, context: Any) -> bytes:
        """Return the message that this chunk begins, unless it comes too slowly."""
        try:
            async with asyncio.timeout(self._limits.deadline):
                return await self._whole(source, chunk, context)
        except TimeoutError:
            self.counts["slow"] += 1
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the message came too slowly")
            raise

    async def _whole(self, source: int, chunk: bytes, context: Any) -> bytes:
        """Return the message that this chunk begins."""
        limit, size = self._limits.message_bytes, int.from_bytes(chunk[:SIZE_BYTES], "little")
        if size > limit:
            self.counts["oversize"] += 1
            self._complain(source, f"sent a message of more than {limit} bytes")
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "the message is too large")
        parts, left = [memoryview(chunk)[SIZE_BYTES:]], size + SIZE_BYTES - len(chunk)
        fits = len(chunk) >= SIZE_BYTES
        while fits and left > 0:
            chunk = await context.read()
            fits = chunk is not grpc.aio.EOF and 0 < len(chunk) <= left
            if fits:
                parts.append(memoryview(chunk))
                left -= len(chunk)
        if not fits or left:
            self.counts["cut_off"] += 1
            await context.abort(grpc.StatusCode.DATA_LOSS, f"{size} bytes were announced")
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


class _Answers:
    """Says how many of a stream's messages were taken: soon, and of several at once."""

    def __init__(self, context: Any, wait: float) -> None:
        self._context, self._seconds = context, wait
        self._messages = self._bytes = 0
        self._later: asyncio.Task[None] | None = None

    async def taken(self, size: int) -> None:
        """Answer a message, now or with the next ones."""
        self._messages += 1
        self._bytes += size
        if self._messages >= ANSWER_MESSAGES or self._bytes >= ANSWER_BYTES:
            await self.say()
        elif self._later is None or self._later.done():
            self._later = asyncio.create_task(self._wait())

    async def say(self) -> None:
        """Answer what is not answered yet."""
        messages, self._messages, self._bytes = self._messages, 0, 0
        if messages:
            await self._context.write(messages.to_bytes(SIZE_BYTES, "little"))

    def stop(self) -> None:
        """Say nothing more: the stream is over."""
        if self._later is not None:
            self._later.cancel()

    async def _wait(self) -> None:
        await asyncio.sleep(self._seconds)
        with suppress(grpc.RpcError, asyncio.InvalidStateError):
            await self.say()


@dataclass(kw_only=True, eq=False)
class _Message:
    """A message on its way."""

    data: bytes
    attempts: int = 0
    sent_at: float = 0.0


class _Link:
    """The way to one peer: a bounded queue, and a stream that empties it."""

    def __init__(
        self, address: str, name: str, tls: Tls, limits: Limits, counts: Counter[str]
    ) -> None:
        credentials = grpc.ssl_channel_credentials(tls.authority, tls.key, tls.certificate)
        options = [*_options(limits), ("grpc.ssl_target_name_override", name)]
        self._channel = grpc.aio.secure_channel(address, credentials, options=options)
        self._open = self._channel.stream_stream(METHOD)
        self._limits, self._counts = limits, counts
        self._queue: deque[_Message] = deque()
        self._size = 0
        self._unanswered: deque[_Message] = deque()
        self._moved = asyncio.Event()
        """Set when the queue grows or an answer comes."""
        self._where, self._down, self._failures = f"{_short(name)} at {address}", False, 0
        self._error: grpc.aio.AioRpcError | None = None
        self._task = asyncio.create_task(self._work())

    def put(self, data: bytes) -> None:
        """Queue a message; the oldest go where there is no room, and what nobody would take."""
        if len(data) > self._limits.message_bytes:
            self._counts["dropped"] += 1
            return
        self._queue.append(_Message(data=data))
        self._size += len(data)
        while self._queue and (
            len(self._queue) > self._limits.queued_messages
            or self._size > self._limits.queued_bytes
        ):
            self._take()
            self._counts["dropped"] += 1
        self._moved.set()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._channel.close()

    def _take(self) -> _Message:
        message = self._queue.popleft()
        self._size -= len(message.data)
        return message

    async def _work(self) -> None:
        while True:
            while not self._queue:
                self._moved.clear()
                await self._moved.wait()
            try:
                await self._converse()
            except Exception:  # the way to a peer must stay open, whatever one message did to it
                LOG.exception("the stream to %s failed; this is a bug", self._where)
            self._counts["failed"] += 1
            self._failures += 1
            if self._failures > 1:  # the first may be a peer that starts
                self._is_down()
            pause = self._limits.pause * 2 ** max(0, self._take_back() - 1)
            await asyncio.sleep(pause * (0.5 + random.random()))  # noqa: S311 (no secret)

    async def _converse(self) -> None:
        """Send what is queued and hear the answers, until the stream breaks or a deadline is past.

        That it is broken is told by the reading side: it has heard all answers by then.
        """
        self._error = None
        call = self._open()
        ends = [asyncio.create_task(part) for part in (self._hear(call), self._watch())]
        writing = asyncio.create_task(self._write(call))
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*ends, writing):
                task.cancel()
            call.cancel()
            await asyncio.gather(*ends, writing, return_exceptions=True)

    async def _write(self, call: Any) -> None:
        while True:
            while not self._queue or self._is_full():
                self._moved.clear()
                await self._moved.wait()
            await self._send(call, self._take())

    async def _send(self, call: Any, message: _Message) -> None:
        message.sent_at = time.monotonic()
        self._unanswered.append(message)
        for chunk in _chunks(message.data):
            await call.write(chunk)

    async def _hear(self, call: Any) -> None:
        try:
            while (answer := await call.read()) is not grpc.aio.EOF:
                self._is_up()
                taken = int.from_bytes(answer[:SIZE_BYTES], "little")
                if taken > len(self._unanswered):
                    return
                for _ in range(taken):
                    self._counts["sent"] += 1
                    self._counts["sent_bytes"] += len(self._unanswered.popleft().data)
                self._moved.set()
        except grpc.aio.AioRpcError as error:
            self._error = error

    async def _watch(self) -> None:
        """Return when the oldest unanswered message is past its deadline."""
        while True:
            now = time.monotonic()
            since = self._unanswered[0].sent_at if self._unanswered else now
            if now >= since + self._limits.deadline:
                return
            await asyncio.sleep(since + self._limits.deadline - now)

    def _take_back(self) -> int:
        """Queue again what was not answered and not tried enough; return the most tries."""
        back = [*self._unanswered]
        self._unanswered.clear()
        for message in reversed(back):
            message.attempts += 1
            if message.attempts >= self._limits.attempts:
                self._counts["dropped"] += 1
            else:
                self._queue.appendleft(message)
                self._size += len(message.data)
        return max((message.attempts for message in back), default=0)

    def _is_full(self) -> bool:
        """Say whether the next message has to wait until more of the last ones are answered."""
        limits, size = self._limits, sum(len(each.data) for each in self._unanswered)
        return len(self._unanswered) >= limits.unanswered_messages or (
            size > 0 and size + len(self._queue[0].data) > limits.unanswered_bytes
        )

    def _is_down(self) -> None:
        if not self._down:
            self._down = True
            LOG.warning(
                "cannot reach %s (%s); check that it runs, its address, and the firewall",
                self._where,
                self._reason(),
            )

    def _is_up(self) -> None:
        self._failures = 0
        if self._down:
            self._down = False
            LOG.info("%s can be reached again", self._where)

    def _reason(self) -> str:
        error = self._error
        if error is None or error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"no answer within {self._limits.deadline:g} s"
        if error.code() is grpc.StatusCode.PERMISSION_DENIED:
            return "it does not know this peer's certificate: compare the federation files"
        return f"{error.code().name}: {repr(error.details())[1:-1][:200]}"


class _Service(grpc.GenericRpcHandler):  # type: ignore[misc] # grpc has no types
    """Answers the one method."""

    def __init__(self, deliver: Callable[[Any, Any], Awaitable[None]]) -> None:
        self._handler = grpc.stream_stream_rpc_method_handler(deliver)

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


def _chunks(data: bytes) -> Iterator[bytes]:
    """Cut a message, its size before it."""
    yield len(data).to_bytes(SIZE_BYTES, "little") + data[:CHUNK]
    for start in range(CHUNK, len(data), CHUNK):
        yield data[start : start + CHUNK]


def _options(limits: Limits) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", 2 * CHUNK),
        ("grpc.max_send_message_length", 2 * CHUNK),
        ("grpc.http2.max_frame_size", CHUNK),
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 5_000),
        ("grpc.max_concurrent_streams", limits.calls),
        ("grpc.so_reuseport", 0),
        ("grpc.enable_http_proxy", 0),
    ]
