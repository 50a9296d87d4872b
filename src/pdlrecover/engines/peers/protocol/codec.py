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

from pdlrecover.engines.peers.protocol import forms as f
from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.errors import CodecError
from pdlrecover.field import Q

MAGIC, VERSION = b"PDLR", 2
DOMAIN = b"pdlrecover signed message\0"
MAX_ENTRIES = 4096
MAX_FACTS = 1 << 22
MAX_MESSAGE = 1 << 29
_PREFIX = struct.Struct("<4sBB32s32sQIHH32s32sI")

HELD = f.Record(m.Held, {"dealer": f.U16, "digest": f.DIGEST})
PROPOSAL = f.Record(
    m.Proposal, {"view": f.I32, "since": f.I32, "dealers": f.Many(HELD, f.MAX_PEERS)}
)
VOTE = f.Record(m.Vote, {"view": f.I32, "final": f.FLAG, "choice": f.DIGEST})
REMOVAL_PROPOSAL = f.Record(
    m.RemovalProposal,
    {
        "removed": f.Many(f.U16, f.MAX_PEERS),
        "reason": f.TEXT,
        "method": f.TEXT,
        "accept_differencing": f.FLAG,
        "after": f.DIGEST,
        "settings": f.TEXT,
    },
)
_COMMITMENTS = f.Bytes(32 * f.MAX_PEERS, 32)
_MANY_HELD = f.Many(HELD, f.MAX_PEERS)
_ENTRY = f.Record(m.LogEntry, {"dealers": _MANY_HELD, "values": f.Array(-(Q // 2), Q // 2)})
_EVIDENCE = f.Bytes(1 << 20)

_BODIES: tuple[f.Record, ...] = (
    f.Record(
        m.Dealing,
        {
            "commitments": _COMMITMENTS,
            "proof": f.ELEMENTS,
            "statement": f.SIGNED,
            # The last, and a length and bytes: those are what a signature leaves out.
            "sealed": f.Bytes(8 * f.MAX_ELEMENTS, stays=True),
        },
    ),
    f.Record(
        m.Receipt, {"view": f.I32, "held": _MANY_HELD, "statements": f.Many(f.SIGNED, f.MAX_PEERS)}
    ),
    PROPOSAL,
    VOTE,
    f.Record(m.SubSecret, {"choice": f.DIGEST, "values": f.ELEMENTS}),
    f.Record(m.Position, {"reply": f.FLAG}),
    f.Record(m.Fetch, {"first": f.STEP}),
    f.Record(m.Answers, {"first": f.STEP, "entries": f.Many(_ENTRY, MAX_ENTRIES)}),
    f.Record(
        m.Misdealt,
        {
            "dealer": f.U16,
            "commitments": _COMMITMENTS,
            "proof": f.ELEMENTS,
            "statement": f.SIGNED,
            "private": f.Bytes(8 * f.MAX_ELEMENTS),
        },
    ),
    f.Record(m.Equivocation, {"accused": f.U16, "first": _EVIDENCE, "second": _EVIDENCE}),
    REMOVAL_PROPOSAL,
    f.Record(m.Approval, {"removal": f.DIGEST}),
    f.Record(m.Refusal, {"removal": f.DIGEST, "why": f.TEXT}),
    f.Record(m.Terms, {"facts": f.Bytes(MAX_FACTS)}),
)
_KINDS = {form.make: kind for kind, form in enumerate(_BODIES)}


def encode(header: m.Header, body: m.Body, sign: Callable[[bytes], bytes]) -> bytes:
    """Return a message as bytes, signed."""
    kind = _KINDS[type(body)]
    content: list[f.Piece] = []
    _BODIES[kind].write(body, content)
    head = _head(header, kind, sum(map(len, content)))
    shown = content[:-1] if isinstance(body, m.Dealing) else content
    return b"".join((head, *content, f.SIGNED.checked(sign(_signed(head, shown)))))


def decode_header(data: bytes) -> tuple[m.Header, type[m.Body]]:
    """Read a message's header, and what kind of content it has; nothing is signed for yet."""
    if len(data) > MAX_MESSAGE:
        raise CodecError(f"a message has at most {MAX_MESSAGE} bytes, got {len(data)}")
    reader = f.Reader(data)
    magic, version, kind, federation, run, step, round_, sender, recipient, log, asked, size = (
        _PREFIX.unpack(reader.take(_PREFIX.size))
    )
    if magic != MAGIC or version != VERSION or kind >= len(_BODIES):
        raise CodecError(f"not a message of version {VERSION}: {magic!r}, {version}, kind {kind}")
    if size + f.SIGNATURE != reader.left or step > 1 << 40:
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
    reader = f.Reader(data)
    head = bytes(reader.take(_PREFIX.size))
    content = reader.take(reader.left - f.SIGNATURE)
    inner = f.Reader(content)
    body = _BODIES[_KINDS[made]].read(inner)
    if inner.left:
        raise CodecError(f"{inner.left} bytes are left over at the end of a message")
    shown = content[: -len(body.sealed) or None] if isinstance(body, m.Dealing) else content
    return m.Envelope(
        header=header,
        body=body,
        signature=bytes(reader.take(f.SIGNATURE)),
        signed=_signed(head, [shown]),
        data=data,
    )


def _head(header: m.Header, kind: int, size: int) -> bytes:
    try:
        return _PREFIX.pack(
            MAGIC,
            VERSION,
            kind,
            f.DIGEST.checked(header.federation),
            f.DIGEST.checked(header.run),
            header.step,
            header.round,
            header.sender,
            header.recipient,
            f.DIGEST.checked(header.log),
            f.DIGEST.checked(header.asked),
            size,
        )
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
