"""Messages as bytes, and back: a versioned binary form with strict limits.

    "PDLR" · version · kind · header · length of the content · content · signature (64)

Rules:

- All numbers are little-endian. A message has exactly one form: what does not use up all its bytes
  is refused, and what is read and written again is the same bytes.
- Every length and count is checked against its limit, and against the bytes that are there, before
  anything is allocated. Field elements are checked to be elements.
- Whatever the bytes are, reading gives a message or raises `CodecError`, and nothing else.
- Signed are the domain, version, kind and header, and the SHA-256 of the content; of a dealing,
  without the sealed share itself, since the signed commitment fits no other share (see `dealing`).
"""

import hashlib
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.errors import CodecError
from pdlrecover.field import Q

MAGIC, VERSION = b"PDLR", 2
DOMAIN = b"pdlrecover signed message\0"
MAX_PEERS = 4096
MAX_ELEMENTS = 1 << 25
MAX_ENTRIES = 4096
MAX_TEXT = 1000
MAX_FACTS = 1 << 22
MAX_MESSAGE = 1 << 29
SIGNATURE = 64
_PREFIX = struct.Struct("<4sBB32s32sQIHH32s32sI")
_COUNT = struct.Struct("<I")
_Piece = bytes | memoryview
"""A part of a message: what is large is not copied before the whole is put together."""


class _Reader:
    """Bytes that are taken from the front."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._rest = memoryview(data)

    def take(self, size: int) -> memoryview:
        if size > len(self._rest):
            raise CodecError(f"a message ends early: {size} bytes wanted, {len(self._rest)} left")
        found, self._rest = self._rest[:size], self._rest[size:]
        return found

    @property
    def left(self) -> int:
        return len(self._rest)


class _Form(Protocol):
    """How one field is written, piece by piece, and read; `least` is the fewest bytes it takes."""

    @property
    def least(self) -> int: ...
    def write(self, value: Any, out: list[_Piece]) -> None: ...
    def read(self, reader: _Reader) -> Any: ...


@dataclass(frozen=True)
class _Number:
    code: str
    most: int | None = None

    @cached_property
    def least(self) -> int:
        return struct.calcsize(self.code)

    def write(self, value: int, out: list[_Piece]) -> None:
        try:
            out.append(struct.pack(self.code, value))
        except struct.error as error:
            raise CodecError(f"a number does not fit its field: {value}") from error

    def read(self, reader: _Reader) -> int:
        value: int = struct.unpack(self.code, reader.take(self.least))[0]
        if self.most is not None and value > self.most:
            raise CodecError(f"a number is at most {self.most} here, got {value}")
        return value


class _Flag:
    least = 1

    def write(self, value: bool, out: list[_Piece]) -> None:
        out.append(bytes([value]))

    def read(self, reader: _Reader) -> bool:
        value = reader.take(1)[0]
        if value > 1:
            raise CodecError(f"a flag is 0 or 1, got {value}")
        return bool(value)


@dataclass(frozen=True)
class _Fixed:
    least: int

    def checked(self, value: bytes) -> bytes:
        """Return the value, if it has its length."""
        if len(value) != self.least:
            raise CodecError(f"{self.least} bytes are expected here, got {len(value)}")
        return value

    def write(self, value: bytes, out: list[_Piece]) -> None:
        out.append(self.checked(value))

    def read(self, reader: _Reader) -> bytes:
        return bytes(reader.take(self.least))


def _count(reader: _Reader, most: int, each: int) -> int:
    """Read a count, and check that so many things may and can follow."""
    count: int = _COUNT.unpack(reader.take(4))[0]
    if count > most or count * each > reader.left:
        raise CodecError(f"{count} items are announced: at most {most}, in {reader.left} bytes")
    return count


@dataclass(frozen=True)
class _Bytes:
    most: int
    unit: int = 1
    stays: bool = False
    """What was read stays a part of the message, which is large and soon done with."""
    least = 4

    def write(self, value: _Piece, out: list[_Piece]) -> None:
        if len(value) > self.most or len(value) % self.unit:
            raise CodecError(f"at most {self.most} bytes are allowed here, got {len(value)}")
        out += _COUNT.pack(len(value)), value

    def read(self, reader: _Reader) -> _Piece:
        size = _count(reader, self.most, 1)
        if size % self.unit:
            raise CodecError(f"a multiple of {self.unit} bytes is expected here, got {size}")
        found = reader.take(size)
        return found if self.stays else bytes(found)


class _Text:
    least = 4
    _bytes = _Bytes(MAX_TEXT)

    def write(self, value: str, out: list[_Piece]) -> None:
        self._bytes.write(value.encode(), out)

    def read(self, reader: _Reader) -> str:
        try:
            return str(self._bytes.read(reader), "utf-8")
        except UnicodeDecodeError as error:
            raise CodecError("a text is not UTF-8") from error


@dataclass(frozen=True)
class _Array:
    low: int
    high: int
    least = 4

    def write(self, value: Any, out: list[_Piece]) -> None:
        if value.ndim != 1 or len(value) > MAX_ELEMENTS:
            raise CodecError(f"a list of at most {MAX_ELEMENTS} numbers goes here: {value.shape}")
        numbers = np.ascontiguousarray(value, dtype="<i8").view(np.uint8)
        out += _COUNT.pack(len(value)), numbers.data

    def _fit(self, values: Any) -> bool:
        if self.low == 0:  # as unsigned numbers, negative ones are the largest: one look is enough
            return bool(values.view(np.uint64).max() <= self.high)
        return bool(self.low <= values.min() and values.max() <= self.high)

    def read(self, reader: _Reader) -> Any:
        size = _count(reader, MAX_ELEMENTS, 8)
        values = np.frombuffer(reader.take(8 * size), dtype="<i8").astype(np.int64)
        if size and not self._fit(values):
            raise CodecError(f"numbers from {self.low} to {self.high} are expected here")
        return values


@dataclass(frozen=True)
class _Many:
    inner: _Form
    most: int
    least = 4

    def write(self, value: tuple[Any, ...], out: list[_Piece]) -> None:
        if len(value) > self.most:
            raise CodecError(f"at most {self.most} items are allowed here, got {len(value)}")
        out.append(_COUNT.pack(len(value)))
        for each in value:
            self.inner.write(each, out)

    def read(self, reader: _Reader) -> tuple[Any, ...]:
        size = _count(reader, self.most, self.inner.least)
        return tuple(self.inner.read(reader) for _ in range(size))


@dataclass(frozen=True)
class _Record:
    make: Callable[..., Any]
    fields: dict[str, _Form]

    @cached_property
    def least(self) -> int:
        return sum(form.least for form in self.fields.values())

    def write(self, value: Any, out: list[_Piece]) -> None:
        for name, form in self.fields.items():
            form.write(getattr(value, name), out)

    def read(self, reader: _Reader) -> Any:
        return self.make(**{name: form.read(reader) for name, form in self.fields.items()})


_U16, _I32, _STEP = _Number("<H"), _Number("<i", (1 << 31) - 1), _Number("<Q", 1 << 40)
_DIGEST, _SIGNED, _FLAG, _TEXT = _Fixed(32), _Fixed(SIGNATURE), _Flag(), _Text()
_ELEMENTS = _Array(0, Q - 1)
_COMMITMENTS = _Bytes(32 * MAX_PEERS, 32)
_HELD = _Many(_Record(m.Held, {"dealer": _U16, "digest": _DIGEST}), MAX_PEERS)
_ENTRY = _Record(m.LogEntry, {"dealers": _HELD, "values": _Array(-(Q // 2), Q // 2)})
_EVIDENCE = _Bytes(1 << 20)

_BODIES: tuple[_Record, ...] = (
    _Record(
        m.Dealing,
        {
            "commitments": _COMMITMENTS,
            "proof": _ELEMENTS,
            "statement": _SIGNED,
            # The last, and a length and bytes: those are what a signature leaves out.
            "sealed": _Bytes(8 * MAX_ELEMENTS, stays=True),
        },
    ),
    _Record(m.Receipt, {"view": _I32, "held": _HELD, "statements": _Many(_SIGNED, MAX_PEERS)}),
    _Record(m.Proposal, {"view": _I32, "since": _I32, "dealers": _HELD}),
    _Record(m.Vote, {"view": _I32, "final": _FLAG, "choice": _DIGEST}),
    _Record(m.SubSecret, {"choice": _DIGEST, "values": _ELEMENTS}),
    _Record(m.Position, {"reply": _FLAG}),
    _Record(m.Fetch, {"first": _STEP}),
    _Record(m.Answers, {"first": _STEP, "entries": _Many(_ENTRY, MAX_ENTRIES)}),
    _Record(
        m.Misdealt,
        {
            "dealer": _U16,
            "commitments": _COMMITMENTS,
            "proof": _ELEMENTS,
            "statement": _SIGNED,
            "private": _Bytes(8 * MAX_ELEMENTS),
        },
    ),
    _Record(m.Equivocation, {"accused": _U16, "first": _EVIDENCE, "second": _EVIDENCE}),
    _Record(
        m.RemovalProposal,
        {
            "removed": _Many(_U16, MAX_PEERS),
            "reason": _TEXT,
            "method": _TEXT,
            "accept_differencing": _FLAG,
            "after": _DIGEST,
            "settings": _TEXT,
        },
    ),
    _Record(m.Approval, {"removal": _DIGEST}),
    _Record(m.Refusal, {"removal": _DIGEST, "why": _TEXT}),
    _Record(m.Terms, {"facts": _Bytes(MAX_FACTS)}),
)
_KINDS = {form.make: kind for kind, form in enumerate(_BODIES)}


def encode(header: m.Header, body: m.Body, sign: Callable[[bytes], bytes]) -> bytes:
    """Return a message as bytes, signed."""
    kind = _KINDS[type(body)]
    content: list[_Piece] = []
    _BODIES[kind].write(body, content)
    head = _head(header, kind, sum(map(len, content)))
    told = content[:-1] if isinstance(body, m.Dealing) else content
    return b"".join((head, *content, _SIGNED.checked(sign(_signed(head, told)))))


def decode_header(data: bytes) -> tuple[m.Header, type[m.Body]]:
    """Read a message's header, and what kind of content it has; nothing is signed for yet."""
    if len(data) > MAX_MESSAGE:
        raise CodecError(f"a message has at most {MAX_MESSAGE} bytes, got {len(data)}")
    reader = _Reader(data)
    magic, version, kind, federation, run, step, round_, sender, recipient, log, asked, size = (
        _PREFIX.unpack(reader.take(_PREFIX.size))
    )
    if magic != MAGIC or version != VERSION or kind >= len(_BODIES):
        raise CodecError(f"not a message of version {VERSION}: {magic!r}, {version}, kind {kind}")
    if size + SIGNATURE != reader.left or step > 1 << 40:
        raise CodecError(f"a content of {size} bytes is announced, and {reader.left} follow")
    header = m.Header(
        federation=federation,
        run=run,
        step=step,
        round=round_,
        sender=sender,
        recipient=recipient,
        log=log,
        asked=asked,
    )
    return header, _BODIES[kind].make


def decode(data: bytes) -> m.Envelope:
    """Read a message; its signature is not checked here."""
    header, made = decode_header(data)
    reader = _Reader(data)
    head = bytes(reader.take(_PREFIX.size))
    content = reader.take(reader.left - SIGNATURE)
    inner = _Reader(content)
    body = _BODIES[_KINDS[made]].read(inner)
    if inner.left:
        raise CodecError(f"{inner.left} bytes are left over at the end of a message")
    told = content[: -len(body.sealed) or None] if isinstance(body, m.Dealing) else content
    return m.Envelope(
        header=header,
        body=body,
        signature=bytes(reader.take(SIGNATURE)),
        signed=_signed(head, [told]),
        data=data,
    )


def _head(header: m.Header, kind: int, size: int) -> bytes:
    try:
        return _PREFIX.pack(
            MAGIC,
            VERSION,
            kind,
            _DIGEST.checked(header.federation),
            _DIGEST.checked(header.run),
            header.step,
            header.round,
            header.sender,
            header.recipient,
            _DIGEST.checked(header.log),
            _DIGEST.checked(header.asked),
            size,
        )
    except struct.error as error:
        raise CodecError(f"a header does not fit its form: {header}") from error


def _signed(head: bytes, content: Iterable[_Piece]) -> bytes:
    told = hashlib.sha256()
    for piece in content:
        told.update(piece)
    return DOMAIN + head + told.digest()


def peek_run(data: bytes) -> bytes:
    """Return the run that a message claims to be of, unchecked; of garbage, anything."""
    start = struct.calcsize("<4sBB32s")
    return data[start : start + 32]


def peek_federation(data: bytes) -> bytes:
    """Return the federation that a message claims to be of, unchecked; of garbage, anything."""
    start = struct.calcsize("<4sBB")
    return data[start : start + 32]
