"""Bytes between peers: gRPC over mutual TLS, every peer both server and client.

Rules:

- One method for messages, a stream that stays open: messages in chunks one way, and the other way
  how many have been taken, said for several at once. The bytes are the codec's; no schema compiler
  is involved. A call for each message would cost four times as much.
- A second method answers pings (see `ping`): whether this peer is there, and what it runs.
- Both sides show a certificate that the federation knows. Its name is bound to the peer's number:
  a client connects only to the name it wants, a server knows its caller by its name, and by the
  very certificate where they are pinned.
- Every message has a deadline from the moment it is sent. If it is not answered by then, or the
  stream breaks, a new stream is opened after a growing pause, and what was not answered is sent
  again; after a few times it is dropped: the protocol says again what matters.
- To each peer there is a queue of its own, bounded in messages and bytes; when it is full the
  oldest goes. So a peer that is slow, frozen or gone costs the others nothing.
- What is received is bounded too: of each peer a limited number of messages and bytes waits here,
  and it is kept waiting with the next. Of one peer one message is read at a time, within the
  deadline, and few streams may be open. A message says its size first: one that is too large is
  refused before it arrives, and one that ends early was cut off with its sender's connection, and
  is nobody's word.
- Anybody can connect. Who does not finish the handshake is closed soon and counted, and there are
  never so many connections that this peer's own files and calls find no descriptors: see `door`.
- A peer that cannot be reached is named in the log with the reason, once, and again when it can be;
  so are callers that are refused. Who fails the TLS handshake has no name.
"""

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, cast

from pdlrecover.extras import extra

with extra("peers", "a peer that talks to others"):
    import grpc

from pdlrecover.engines.peers.identity.member import split_address
from pdlrecover.engines.peers.transport.door import Door, try_to_bind
from pdlrecover.engines.peers.transport.link import BROKEN, METHOD, SIZE_BYTES, Limits, Link, Tls
from pdlrecover.engines.peers.transport.ping import PING, Pings
from pdlrecover.errors import PlanError

ANSWER_WAIT, ANSWER_MESSAGES, ANSWER_BYTES = 0.1, 8, 1 << 20
"""An answer waits for others to go with it, for this part of a message's deadline, or until this
much is there to be answered."""


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
        greet: Callable[[], bytes] | None = None,
    ) -> None:
        """`receive` is awaited for every message; while it waits, its sender waits.

        `listen` is where this peer listens, if not at the address that the others know. `complain`
        is called with what was refused, and of which peer, if it was one. `greet` returns what a
        ping is answered with; without it there are none.
        """
        self._listen = listen or addresses[me]
        self._me, self._addresses, self._tls, self._receive = me, tuple(addresses), tls, receive
        self._limits, self._complain = limits or Limits(), complain
        self._greet = greet
        self._server: grpc.aio.Server | None = None
        self._links: dict[int, Link] = {}
        self.counts: Counter[str] = Counter()
        self._calls: Counter[int] = Counter()
        self._streams: set[asyncio.Task[Any]] = set()
        """What answers the others' streams."""
        self._stopping = False
        self._reading = [asyncio.Lock() for _ in addresses]
        self._door = Door(split_address(self._listen)[1], len(addresses), self.counts)
        self._pings = Pings(len(addresses), self.counts, time.monotonic())

    async def start(self) -> None:
        """Listen, and be ready to send."""
        most = self._door.connections(self._limits.connections)
        options = [*self._limits.options, ("grpc.max_allowed_incoming_connections", most)]
        server = grpc.aio.server(options=options)
        answer = None if self._greet is None else self._answer_ping
        server.add_generic_rpc_handlers((_Service(self._deliver, answer),))
        credentials = grpc.ssl_server_credentials(
            [(self._tls.key, self._tls.certificate)],
            root_certificates=self._tls.authority,
            require_client_auth=True,
        )
        try:
            try_to_bind(self._listen)
            server.add_secure_port(self._listen, credentials)
        except (OSError, RuntimeError) as error:
            await server.stop(grace=None)
            why = getattr(error, "strerror", None) or error
            raise PlanError(
                f"cannot listen on {self._listen} ({why}): is another peer running there, or is "
                "it an address of another machine? Say where to listen by listen under [network] "
                "in peer.toml"
            ) from error
        await server.start()
        self._server = server
        self._door.open()
        for peer, address in enumerate(self._addresses):
            if peer != self._me:
                name = self._tls.names[peer]
                self._links[peer] = Link(address, name, self._tls, self._limits, self.counts)

    async def stop(self) -> None:
        """Close everything, the others' streams first: the library would log what it has to end."""
        self._stopping = True
        await self._door.close()
        for stream in self._streams:
            stream.cancel()
        await asyncio.gather(*self._streams, return_exceptions=True)
        await asyncio.gather(*(link.stop() for link in self._links.values()))
        if self._server:
            await self._server.stop(grace=0.2)

    def send(self, peer: int, data: bytes) -> None:
        """Queue a message for a peer."""
        self._links[peer].put(data)

    async def _deliver(self, _: Any, context: Any) -> None:
        """Take a peer's messages one by one; each answer says that one was taken."""
        source = await self._admitted(context)
        if source is None:
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

    async def _admitted(self, context: Any) -> int | None:
        """Return which peer calls; whoever is none is refused and named."""
        source = self._caller(context)
        self._door.knows(str(context.peer()))
        if source is None:
            self.counts["refused"] += 1
            self._complain(
                None,
                f"a caller from {_host(context)} was refused: its certificate "
                f"({_names(context)}) is of no peer in this federation file, or is not the one "
                "that the file has for it; compare the files",
            )
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "no peer of this federation")
        return source

    async def _answer_ping(self, _: Any, context: Any) -> bytes:
        """Say who is here, to a peer that does not ask too often; of others nothing is read."""
        source = await self._admitted(context)
        if source is None or self._greet is None:
            return b""
        if not self._pings.take(source, time.monotonic()):
            self.counts["refused"] += 1
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many pings")
        try:
            async with asyncio.timeout(self._limits.deadline):
                content = await context.read()
        except TimeoutError:
            self.counts["slow"] += 1
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the ping came too slowly")
        if content is not grpc.aio.EOF and content:
            self.counts["refused"] += 1
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a ping has no content")
        return self._greet()

    async def _in_time(self, source: int, chunk: bytes, context: Any) -> bytes:
        """Return the message that this chunk begins, unless it comes too slowly."""
        if self._is_whole(chunk):
            return chunk[SIZE_BYTES:]
        try:
            async with asyncio.timeout(self._limits.deadline):
                return await self._whole(source, chunk, context)
        except TimeoutError:
            self.counts["slow"] += 1
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the message came too slowly")
            raise

    def _is_whole(self, chunk: bytes) -> bool:
        """Say whether this chunk is a message that may be taken, as nearly all are."""
        size = int.from_bytes(chunk[:SIZE_BYTES], "little")
        return len(chunk) == SIZE_BYTES + size and size <= self._limits.message_bytes

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
        self._saying = asyncio.Lock()

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
        async with self._saying:
            messages, self._messages, self._bytes = self._messages, 0, 0
            if messages:
                await self._context.write(messages.to_bytes(SIZE_BYTES, "little"))

    def stop(self) -> None:
        """Say nothing more: the stream is over."""
        if self._later is not None:
            self._later.cancel()

    async def _wait(self) -> None:
        await asyncio.sleep(self._seconds)
        with suppress(*BROKEN):
            await self.say()


class _Service(grpc.GenericRpcHandler):  # type: ignore[misc] # grpc has no types
    """Answers the two methods."""

    def __init__(self, deliver: Callable[[Any, Any], Any], ping: Any) -> None:
        self._handlers = {METHOD: grpc.stream_stream_rpc_method_handler(deliver)}
        if ping is not None:
            # on the wire one message each way; a stream is not read before its caller is known
            self._handlers[PING] = grpc.stream_unary_rpc_method_handler(ping)

    def service(self, details: Any) -> Any:
        return self._handlers.get(details.method)


def _names(context: Any) -> list[str]:
    """Return the names in the certificate that a caller showed."""
    shown = context.auth_context().get("x509_subject_alternative_name", [])
    return [name.decode("utf-8", "replace") for name in shown]


def _host(context: Any) -> str:
    """Return the address that a call comes from, without the port."""
    return repr(str(context.peer()).rpartition(":")[0])
