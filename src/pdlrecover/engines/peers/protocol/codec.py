"""Messages as bytes, and back: a versioned binary form with strict limits.

    "PDLR" · version · kind · header · length of the content · content · signature (64)

Rules:

- The content is written field by field: see `forms`. A message has exactly one form: what does not
  use up all its bytes is refused, and what is read and written again is the same bytes.
- Whatever the bytes are, reading gives a message or raises `CodecError`, and nothing else.
- Signed are the domain, version, kind and header, and the SHA-256 of the content; of a dealing,
  without the sealed share itself, since the signed commitment fits no other share (see `dealing`).
"""

import hashlib
import struct
from collections.abc import Callable, Iterable

from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.engines.peers.protocol.forms import (
    DIGEST,
    ELEMENTS,
    FLAG,
    I32,
    MAX_ELEMENTS,
    MAX_PEERS,
    SIGNATURE,
    SIGNED,
    STEP,
    TEXT,
    U16,
    Array,
    Bytes,
    Many,
    Piece,
    Reader,
    Record,
)
from pdlrecover.errors import CodecError
from pdlrecover.field import Q

MAGIC, VERSION = b"PDLR", 2
DOMAIN = b"pdlrecover signed message\0"
MAX_ENTRIES = 4096
MAX_FACTS = 1 << 22
MAX_MESSAGE = 1 << 29
_PREFIX = struct.Struct("<4sBB32s32sQIHH32s32sI")

HELD = Record(m.Held, {"dealer": U16, "digest": DIGEST})
PROPOSAL = Record(m.Proposal, {"view": I32, "since": I32, "dealers": Many(HELD, MAX_PEERS)})
VOTE = Record(m.Vote, {"view": I32, "final": FLAG, "choice": DIGEST})
REMOVAL_PROPOSAL = Record(
    m.RemovalProposal,
    {
        "removed": Many(U16, MAX_PEERS),
        "reason": TEXT,
        "method": TEXT,
        "accept_differencing": FLAG,
        "after": DIGEST,
        "settings": TEXT,
    },
)
_COMMITMENTS = Bytes(32 * MAX_PEERS, 32)
_MANY_HELD = Many(HELD, MAX_PEERS)
_ENTRY = Record(m.LogEntry, {"dealers": _MANY_HELD, "values": Array(-(Q // 2), Q // 2)})
_EVIDENCE = Bytes(1 << 20)

_BODIES: tuple[Record, ...] = (
    Record(
        m.Dealing,
        {
            "commitments": _COMMITMENTS,
            "proof": ELEMENTS,
            "statement": SIGNED,
            # The last, and a length and bytes: those are what a signature leaves out.
            "sealed": Bytes(8 * MAX_ELEMENTS, stays=True),
        },
    ),
    Record(m.Receipt, {"view": I32, "held": _MANY_HELD, "statements": Many(SIGNED, MAX_PEERS)}),
    PROPOSAL,
    VOTE,
    Record(m.SubSecret, {"choice": DIGEST, "values": ELEMENTS}),
    Record(m.Position, {"reply": FLAG}),
    Record(m.Fetch, {"first": STEP}),
    Record(m.Answers, {"first": STEP, "entries": Many(_ENTRY, MAX_ENTRIES)}),
    Record(
        m.Misdealt,
        {
            "dealer": U16,
            "commitments": _COMMITMENTS,
            "proof": ELEMENTS,
            "statement": SIGNED,
            "private": Bytes(8 * MAX_ELEMENTS),
        },
    ),
    Record(m.Equivocation, {"accused": U16, "first": _EVIDENCE, "second": _EVIDENCE}),
    REMOVAL_PROPOSAL,
    Record(m.Approval, {"removal": DIGEST}),
    Record(m.Refusal, {"removal": DIGEST, "why": TEXT}),
    Record(m.Terms, {"facts": Bytes(MAX_FACTS)}),
)
_KINDS = {form.make: kind for kind, form in enumerate(_BODIES)}


def encode(header: m.Header, body: m.Body, sign: Callable[[bytes], bytes]) -> bytes:
    """Return a message as bytes, signed."""
    kind = _KINDS[type(body)]
    content: list[Piece] = []
    _BODIES[kind].write(body, content)
    head = _head(header, kind, sum(map(len, content)))
    shown = content[:-1] if isinstance(body, m.Dealing) else content
    return b"".join((head, *content, SIGNED.checked(sign(_signed(head, shown)))))


def decode_header(data: bytes) -> tuple[m.Header, type[m.Body]]:
    """Read a message's header, and what kind of content it has; nothing is signed for yet."""
    if len(data) > MAX_MESSAGE:
        raise CodecError(f"a message has at most {MAX_MESSAGE} bytes, got {len(data)}")
    reader = Reader(data)
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
    reader = Reader(data)
    head = bytes(reader.take(_PREFIX.size))
    content = reader.take(reader.left - SIGNATURE)
    inner = Reader(content)
    body = _BODIES[_KINDS[made]].read(inner)
    if inner.left:
        raise CodecError(f"{inner.left} bytes are left over at the end of a message")
    shown = content[: -len(body.sealed) or None] if isinstance(body, m.Dealing) else content
    return m.Envelope(
        header=header,
        body=body,
        signature=bytes(reader.take(SIGNATURE)),
        signed=_signed(head, [shown]),
        data=data,
    )


def _head(header: m.Header, kind: int, size: int) -> bytes:
    try:
        return _PREFIX.pack(
            MAGIC,
            VERSION,
            kind,
            DIGEST.checked(header.federation),
            DIGEST.checked(header.run),
            header.step,
            header.round,
            header.sender,
            header.recipient,
            DIGEST.checked(header.log),
            DIGEST.checked(header.asked),
            size,
        )
    except struct.error as error:
        raise CodecError(f"a header does not fit its form: {header}") from error


def _signed(head: bytes, content: Iterable[Piece]) -> bytes:
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
