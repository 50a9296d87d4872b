"""The outgoing connection to one peer: a queue, and the stream that empties it.

Rules: messages of one peer arrive in order. What was not answered when a stream broke is sent
again on the next, a few times, so a message may come twice. The queue is bounded: the oldest go.
"""

import asyncio
import logging
import random
import re
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pdlrecover.engines.peers.identity.member import Member
from pdlrecover.engines.peers.identity.own_keys import Identity
from pdlrecover.extras import extra

with extra("peers", "a peer that talks to others"):
    import grpc

LOG = logging.getLogger("pdlrecover.peer")
METHOD = "/pdlrecover.Peer/Deliver"
CHUNK = 1 << 20
SIZE_BYTES = 8
"""Before a message stands how many bytes it has, little-endian; an answer is as long."""
BROKEN = (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError)
"""What a stream raises that has ended."""


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


def papers(identity: Identity, members: Sequence[Member]) -> Tls:
    """Return what a peer shows and trusts: everybody's very certificate."""
    key, certificate = identity.tls_pem()
    return Tls(
        authority=b"".join(member.certificate_pem for member in members),
        certificate=certificate,
        key=key,
        names=tuple(member.tls_name for member in members),
        pinned=tuple(member.certificate for member in members),
    )


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
    """This many streams of one peer may be open at once."""
    unanswered_messages: int = 32
    """Sent to one peer and not yet answered; no more are sent meanwhile,"""
    unanswered_bytes: int = 1 << 24
    """nor more bytes, unless it is a single message."""
    deadline: float = 20.0
    attempts: int = 4
    pause: float = 0.2
    """After the first failure, in seconds; it doubles."""
    handshake: float = 10.0
    """For so many seconds a caller may leave its TLS handshake unfinished."""
    connections: int = 512
    """So many connections may be open to this peer, whoever makes them, and no more than there are
    descriptors for besides its own: see `door`."""

    @property
    def options(self) -> list[tuple[str, int]]:
        """How gRPC is set up, on both sides."""
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
            ("grpc.max_concurrent_streams", self.calls),
            ("grpc.server_handshake_timeout_ms", int(1000 * self.handshake)),
            ("grpc.so_reuseport", 0),
            ("grpc.enable_http_proxy", 0),
        ]


@dataclass(kw_only=True, eq=False)
class _Message:
    """A message on its way."""

    data: bytes
    attempts: int = 0
    sent_at: float = 0.0


class Link:
    """The way to one peer: a bounded queue, and a stream that empties it."""

    def __init__(
        self, address: str, name: str, tls: Tls, limits: Limits, counts: Counter[str]
    ) -> None:
        credentials = grpc.ssl_channel_credentials(tls.authority, tls.key, tls.certificate)
        named = [*limits.options, ("grpc.ssl_target_name_override", name)]
        self._channel = grpc.aio.secure_channel(address, credentials, options=named)
        self._open = self._channel.stream_stream(METHOD)
        self._limits, self._counts = limits, counts
        self._queue: deque[_Message] = deque()
        self._size = 0
        self._unanswered: deque[_Message] = deque()
        self._moved = asyncio.Event()
        """Set when the queue grows or an answer comes."""
        self._name, self._down, self._failures = _short(name), False, 0
        self._where = f"{self._name} at {address}"
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
        """Send nothing more."""
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
                text, facts = "the stream to %s failed; this is a bug", {"event": "bug"}
                LOG.exception(text, self._where, extra={"facts": facts})
            self._counts["failed"] += 1
            self._failures += 1
            if self._failures > 1:  # the first may be a peer that starts
                self._is_down()
            pause = self._limits.pause * 2 ** max(0, self._take_back() - 1)
            await asyncio.sleep(pause * (0.5 + random.random()))  # noqa: S311 (no secret)

    async def _converse(self) -> None:
        """Send what is queued and hear the answers, until the stream breaks or a deadline is past.

        That it is broken is found by the reading side: it has heard all answers by then.
        """
        self._error = None
        call = self._open()
        ends = [asyncio.create_task(part) for part in (self._read_answers(call), self._watch())]
        writing = asyncio.create_task(self._write(call))
        try:
            await asyncio.wait([*ends, writing], return_when=asyncio.FIRST_COMPLETED)
            if writing.done() and isinstance(writing.exception(), BROKEN):
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*ends, writing):
                task.cancel()
            call.cancel()
            ended = await asyncio.gather(*ends, writing, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception) and not isinstance(error, BROKEN):
                raise error

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

    async def _read_answers(self, call: Any) -> None:
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
                extra={"facts": {"event": "unreachable", "name": self._name}},
            )

    def _is_up(self) -> None:
        self._failures = 0
        if self._down:
            self._down = False
            facts = {"event": "reachable", "name": self._name}
            LOG.info("%s can be reached now", self._where, extra={"facts": facts})

    def _reason(self) -> str:
        error = self._error
        if error is None or error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"no answer within {self._limits.deadline:g} s"
        if error.code() is grpc.StatusCode.PERMISSION_DENIED:
            return "it does not know this peer's certificate: compare the federation files"
        return _plainly(str(error.details()))


REASONS = (
    ("Connection refused", "nobody listens there"),
    ("DNS", "its name cannot be found"),
    ("andshake failed", "the other end is not this peer, or speaks no TLS"),
    ("timed out", "no answer"),
    ("Timeout", "no answer"),
    ("No route to host", "there is no way to this machine"),
    ("unreachable", "there is no way to this network"),
    ("reset by peer", "it closed the connection"),
    ("ocket closed", "it closed the connection"),
)
"""What the library's details have in them, and what that means."""


def _plainly(details: str) -> str:
    """Return in plain words why a connection failed; the end of what the library said if unknown.

    The library quotes the other end, so nothing but letters of one line is passed on.
    """
    known = [meaning for part, meaning in REASONS if part in details]
    return known[0] if known else repr(details.rpartition(": ")[2])[1:-1][:100]


def _short(name: str) -> str:
    """Return a peer's name from the one in its certificate, which ends with its key's digest."""
    return re.sub(r"-[a-z2-7]{26}\.pdlrecover$", "", name)


def _chunks(data: bytes) -> Iterator[bytes]:
    """Cut a message, its size before it."""
    yield len(data).to_bytes(SIZE_BYTES, "little") + data[:CHUNK]
    for start in range(CHUNK, len(data), CHUNK):
        yield data[start : start + CHUNK]
