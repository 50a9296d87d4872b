"""Mutated messages at the decoder.

Rules: of whatever bytes, `codec.decode` makes a message or raises `CodecError`. What it reads is
written again as the same bytes. Memory does not grow with the number of messages.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from pdlrecover.engines.peers.protocol import codec
from pdlrecover.engines.peers.protocol.messages import Envelope
from pdlrecover.errors import CodecError
from pdlrecover.experiments.chaos.memory import own_bytes
from pdlrecover.experiments.chaos.odd_messages import KINDS, OddMessages

PEERS = 7
MEMORY = 32 << 20
"""The process may grow by this many bytes."""
WARM = 1000
"""Memory is looked at after this many messages, and at the end."""
FRESH = 50
"""So many mutations of one message, then a new one is drawn."""
TOLD = 20
"""Progress is told this many times."""
MOST_PROBLEMS = 20


@dataclass(frozen=True, kw_only=True)
class DecoderVerdict:
    """What came of it."""

    messages: int
    read: int
    """How many were messages all the same."""
    refused: int
    grown_bytes: int
    problems: tuple[str, ...]


def fuzz_decoder(
    count: int,
    seed: int,
    say: Callable[[str], None],
    decode: Callable[[bytes], object] = codec.decode,
) -> DecoderVerdict:
    """Give the decoder so many mutated messages; `decode` is another one, to test this with."""
    odd, counts, problems = OddMessages(f"decoder {seed}", PEERS), Counter[str](), []
    which = random.Random(seed)  # noqa: S311 (to be repeated, not to be secret)
    data, before = b"", own_bytes()
    for i in range(count):
        if i % FRESH == 0:
            body = odd.body(KINDS[i // FRESH % len(KINDS)])
            data = codec.encode(odd.header(which.randrange(PEERS)), body, _unsigned)
        if i == WARM:
            before = own_bytes()
        if i % max(1, count // TOLD) == 0:
            say(f"{i:,} of {count:,} mutated messages: {counts['read']:,} read")
        mutated = odd.mutated(data)
        try:
            found = decode(mutated)
        except CodecError:
            counts["refused"] += 1
            continue
        except Exception as error:  # every other one is what is looked for
            problems.append(f"{type(error).__name__}: {error}, of {mutated.hex()[:2000]}")
        else:
            counts["read"] += 1
            problems += _written_otherwise(found, mutated)
        if len(problems) >= MOST_PROBLEMS:
            break
    grown = own_bytes() - before
    if grown > MEMORY:
        problems.append(f"memory has grown by {grown / 1e6:.0f} MB, more than {MEMORY / 1e6:.0f}")
    return DecoderVerdict(
        messages=counts.total() + len(problems),
        read=counts["read"],
        refused=counts["refused"],
        grown_bytes=grown,
        problems=tuple(problems),
    )


def _written_otherwise(found: object, data: bytes) -> list[str]:
    """Say so if a message that was read is written as other bytes: it has one form only."""
    if not isinstance(found, Envelope):
        return [f"{type(found).__name__} was read, of {data.hex()[:2000]}"]
    written = codec.encode(found.header, found.body, lambda _: found.signature)
    return [] if written == data else [f"read and written otherwise: {data.hex()[:2000]}"]


def _unsigned(_: bytes) -> bytes:
    return bytes(64)
