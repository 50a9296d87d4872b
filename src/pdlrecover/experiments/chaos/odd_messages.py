"""Draws odd messages, and mutates bytes: what a hostile member may send.

Bodies follow from the forms of their fields, so that a new kind of message is drawn without a word
here: numbers at the limits of their fields, lists that are empty or do not belong together, digests
that were seen before and ones that nobody has seen.
"""

import random
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from pdlrecover.engines.peers.protocol import codec, messages
from pdlrecover.engines.peers.protocol import forms as f
from pdlrecover.errors import CodecError
from pdlrecover.recovery.methods import METHODS

KINDS: tuple[type[messages.Body], ...] = get_args(messages.Body)
WORDS = ("", "left", "malicious", "{}", "ñ\0", "x" * 999, *METHODS)
LIMITS = (0, 1, 2, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, (1 << 63) - 1, (1 << 64) - 1)
_WIDTHS = (1, 2, 4, 8)
_NUMBERS = [(value % 256**width).to_bytes(width, "little") for value in LIMITS for width in _WIDTHS]
SEEN = 256
"""So many digests and messages that were seen are remembered."""


class OddMessages:
    """Draws from a seed; what was seen of others goes into what is drawn."""

    def __init__(self, seed: str, peers: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 (to be repeated, not to be secret)
        self._peers = peers
        self._digests = [messages.NOTHING]
        self._seen: list[messages.Envelope] = []
        self._changes: tuple[Callable[[bytearray], None], ...] = (
            self._flip, self._set, self._number, self._number, self._cut, self._extend, self._move,
        )  # fmt: skip

    def see(self, envelope: messages.Envelope) -> None:
        """Remember a message of others."""
        header = envelope.header
        for digest in (header.run, header.log, header.asked):
            self._digests[SEEN:] = []
            self._digests.insert(0, digest)
        self._seen.insert(0, envelope)
        self._seen[SEEN:] = []

    @property
    def last(self) -> messages.Envelope | None:
        """What was seen last."""
        return self._seen[0] if self._seen else None

    def body(self, kind: type[messages.Body] | None = None) -> messages.Body:
        """Draw a body of a kind, or of any."""
        made: messages.Body = self._drawn(f.form_of(kind or self._random.choice(KINDS)))
        return made

    def header(self, sender: int) -> messages.Header:
        """Draw a header: mostly the place that was seen last, in parts another one."""
        known = self.last
        drawn = messages.Header(
            federation=self._digest(),
            run=self._digest(),
            step=self._random.choice((0, 1, 1 << 39, self._random.randrange(100))),
            round=self._random.choice((0, 0xFFFFFFFF, self._random.randrange(100))),
            sender=sender,
            recipient=messages.EVERYBODY,
            log=self._digest(),
            asked=self._digest(),
        )
        if known is None:
            return drawn
        header = replace(known.header, sender=sender, recipient=messages.EVERYBODY)
        if self._random.random() < 0.1:
            header = replace(header, run=messages.NOTHING)
        if self._random.random() < 0.3:
            header = replace(header, step=max(0, header.step + self._random.randrange(-2, 6)))
        if self._random.random() < 0.1:
            name = self._random.choice(("federation", "run", "step", "round", "log", "asked"))
            header = replace(header, **{name: getattr(drawn, name)})
        return header

    def signed(self, sender: int, sign: Callable[[bytes], bytes]) -> bytes:
        """Draw a message that can be read, and that its sender has signed."""
        while True:
            header, body = self.header(sender), self.body()
            if self._seen and self._random.random() < 0.6:
                body = self._random.choice(self._seen).body
            try:
                data = codec.encode(header, body, sign)
                if self._random.random() < 0.6:
                    found = codec.decode(self.mutated(data))
                    data = codec.encode(replace(found.header, sender=sender), found.body, sign)
            except CodecError:
                continue  # it has become unreadable: the decoder's business, not a signer's
            return data

    def mutated(self, data: bytes) -> bytes:
        """Change one to four places."""
        changed = bytearray(data)
        for _ in range(self._random.choice((1, 1, 1, 2, 4))):
            self._random.choice(self._changes)(changed)
        return bytes(changed)

    def _place(self, data: bytearray) -> int:
        return int(self._random.random() * len(data))

    def _flip(self, data: bytearray) -> None:
        if data:
            data[self._place(data)] ^= 1 << int(self._random.random() * 8)

    def _set(self, data: bytearray) -> None:
        if data:
            data[self._place(data)] = int(self._random.random() * 256)

    def _number(self, data: bytearray) -> None:
        """Overwrite a number, perhaps a count or a length."""
        number, place = self._random.choice(_NUMBERS), self._place(data)
        data[place : place + len(number)] = number

    def _cut(self, data: bytearray) -> None:
        first, size = self._place(data), int(self._random.random() * 40)
        del data[first : first + size]

    def _extend(self, data: bytearray) -> None:
        place = self._place(data)
        data[place:place] = self._random.randbytes(1 + int(self._random.random() * 40))

    def _move(self, data: bytearray) -> None:
        """Write a part of it over another part."""
        first, second, size = self._place(data), self._place(data), int(self._random.random() * 64)
        data[second : second + size] = data[first : first + size]

    def _digest(self) -> bytes:
        known = self._random.random() < 0.8
        return self._random.choice(self._digests) if known else self._random.randbytes(32)

    def _drawn(self, form: f.Form) -> Any:
        draw = self._random
        match form:
            case f.Flag():
                return draw.random() < 0.5
            case f.Number():
                return self._drawn_number(form)
            case f.Fixed():
                return self._digest() if form.least == 32 else draw.randbytes(form.least)
            case f.Bytes():
                return draw.randbytes(form.unit * draw.randrange(8))
            case f.Text():
                return draw.choice(WORDS)
            case f.Array():
                ends = (form.low, form.high, draw.randint(form.low, form.high))
                return np.array(draw.choices(ends, k=draw.randrange(12)), dtype=np.int64)
            case f.Many():
                count = draw.choice((0, 1, 2, self._peers, 2 * self._peers))
                return tuple(self._drawn(form.inner) for _ in range(min(count, form.most)))
            case f.Maybe():
                return self._drawn(form.inner) if draw.random() < 0.5 else None
            case f.Record():
                return form.make(**{name: self._drawn(each) for name, each in form.fields.items()})
        raise TypeError(f"no values are known of {form}: say how they are drawn")

    def _drawn_number(self, form: f.Number) -> float:
        if form.code == "<d":
            return self._random.choice((0.0, -1.0, float("inf"), 1e9))
        small = self._random.randrange(2 * self._peers)
        if self._random.random() < 0.7:
            return small
        bits = 8 * struct.calcsize(form.code) - form.code[-1].islower()
        most = (1 << bits) - 1 if form.most is None else form.most
        return self._random.choice((0, most, most - 1))
