"""Messages as bytes, and back: a versioned binary form with strict limits.

    "PDLR" · version · kind · header · length of the content · content · signature (64)

Rules:

- The content is written field by field, each in the form of its type (see `messages` and `forms`).
  A message has exactly one form: what does not
  use up all its bytes is refused, and what is read and written again is the same bytes.
- Whatever the bytes are, reading gives a message or raises `CodecError`, and nothing else.
- Signed are the domain, version, kind and header, and the SHA-256 of the content; of a dealing,
  without the sealed share itself, since the signed commitment fits no other share (see `dealing`).
"""

import hashlib
import struct
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import get_args

from pdlrecover.engines.peers.protocol import forms as f
from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.errors import CodecError

MAGIC, VERSION = b"PDLR", 2
DOMAIN = b"pdlrecover signed message\0"
MAX_MESSAGE = 1 << 29
_PREFIX = struct.Struct("<4sBB32s32sQIHH32s32sI")
_HEADER = [field.name for field in fields(m.Header)]
_BODIES: tuple[type[m.Body], ...] = get_args(m.Body)
"""By kind: their order is part of the version."""
_FORMS = {body: f.form_of(body) for body in _BODIES}


def encode(header: m.Header, body: m.Body, sign: Callable[[bytes], bytes]) -> bytes:
    """Return a message as bytes, signed."""
    content: list[f.Piece] = []
    _FORMS[type(body)].write(body, content)
    head = _head(header, _BODIES.index(type(body)), sum(map(len, content)))
    shown = content[:-1] if isinstance(body, m.Dealing) else content
    return b"".join((head, *content, f.SIGNED.checked(sign(_signed(head, shown)))))


def decode_header(data: bytes) -> tuple[m.Header, type[m.Body]]:
    """Read a message's header, and what kind of content it has; nothing is signed for yet."""
    if len(data) > MAX_MESSAGE:
        raise CodecError(f"a message has at most {MAX_MESSAGE} bytes, got {len(data)}")
    reader = f.Reader(data)
    magic, version, kind, *place, size = _PREFIX.unpack(reader.take(_PREFIX.size))
    header = m.Header(**dict(zip(_HEADER, place, strict=True)))
    if magic != MAGIC or version != VERSION or kind >= len(_BODIES):
        raise CodecError(f"not a message of version {VERSION}: {magic!r}, {version}, kind {kind}")
    if size + f.SIGNATURE != reader.left or header.step > 1 << 40:
        raise CodecError(f"a content of {size} bytes is announced, and {reader.left} follow")
    return header, _BODIES[kind]


def decode(data: bytes) -> m.Envelope:
    """Read a message; its signature is not checked here."""
    header, made = decode_header(data)
    head, rest = data[: _PREFIX.size], memoryview(data)[_PREFIX.size :]
    content, signature = rest[: -f.SIGNATURE], bytes(rest[-f.SIGNATURE :])
    inner = f.Reader(content)
    body = _FORMS[made].read(inner)
    if inner.left:
        raise CodecError(f"{inner.left} bytes are left over at the end of a message")
    shown = content[: -len(body.sealed) or None] if isinstance(body, m.Dealing) else content
    signed = _signed(head, [shown])
    return m.Envelope(header=header, body=body, signature=signature, signed=signed, data=data)


def _head(header: m.Header, kind: int, size: int) -> bytes:
    for digest in (header.federation, header.run, header.log, header.asked):
        f.DIGEST.checked(digest)
    try:
        return _PREFIX.pack(MAGIC, VERSION, kind, *vars(header).values(), size)
    except struct.error as error:
        raise CodecError(f"a header does not fit its form: {header}") from error


def _signed(head: bytes, content: Iterable[f.Piece]) -> bytes:
    hashed = hashlib.sha256()
    for piece in content:
        hashed.update(piece)
    return DOMAIN + head + hashed.digest()


def peek_run(data: bytes) -> bytes:
    """Return the run that a message claims to be of, unchecked; of garbage, anything."""
    start = struct.calcsize("<4sBB32s")
    return data[start : start + 32]


def peek_federation(data: bytes) -> bytes:
    """Return the federation that a message claims to be of, unchecked; of garbage, anything."""
    start = struct.calcsize("<4sBB")
    return data[start : start + 32]
