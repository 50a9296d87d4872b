import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bodies import BODIES, HEADERS, examples
from hypothesis import given
from hypothesis import strategies as st

from pdlrecover.engines.peers.protocol import codec
from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.errors import CodecError
from pdlrecover.field import Q

VECTORS = json.loads((Path(__file__).parent / "messages_version_2.json").read_text())
"""Messages as the first peers of version 2 wrote them: others speak to them."""


def sign(data):
    return data[-64:]


@pytest.mark.parametrize("kind", VECTORS)
def test_the_bytes_of_a_message_do_not_change(kind):
    header, bodies = examples()
    assert bodies.keys() == VECTORS.keys()
    data = codec.encode(header, bodies[kind], lambda data: hashlib.sha512(data).digest())
    assert data.hex() == VECTORS[kind]
    assert type(codec.decode(bytes.fromhex(VECTORS[kind])).body) is type(bodies[kind])


@given(header=HEADERS, body=BODIES)
def test_what_is_written_is_read_and_written_again_the_same(header, body):
    data = codec.encode(header, body, sign)
    found = codec.decode(data)
    assert found.header == header
    assert type(found.body) is type(body)
    assert codec.encode(found.header, found.body, sign) == data
    assert found.signature == sign(found.signed)


@given(data=st.binary(max_size=400))
def test_garbage_raises_one_error_only(data):
    with pytest.raises(CodecError):
        codec.decode(data)


@given(header=HEADERS, body=BODIES, data=st.data())
def test_a_damaged_message_is_read_as_another_or_refused(header, body, data):
    good = bytearray(codec.encode(header, body, sign))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = codec.decode(bytes(good))
    except CodecError:
        return
    assert found.data == bytes(good)


@given(header=HEADERS, body=BODIES, data=st.data())
def test_what_is_cut_or_extended_is_refused(header, body, data):
    good = codec.encode(header, body, sign)
    cut = data.draw(st.integers(0, len(good) - 1))
    for bad in (good[:cut], good + b"\0"):
        with pytest.raises(CodecError):
            codec.decode(bad)


HEADER = m.Header(
    federation=bytes(32),
    run=bytes(32),
    step=0,
    round=0,
    sender=0,
    recipient=0,
    log=bytes(32),
    asked=bytes(32),
)


def signed_of(header, body):
    return codec.decode(codec.encode(header, body, sign)).signed


@given(header=HEADERS, body=BODIES, other=BODIES)
def test_a_signature_covers_header_and_content_but_for_what_is_sealed(header, body, other):
    def apart_from_what_is_sealed(body):
        dealing = isinstance(body, m.Dealing)
        shown = replace(body, sealed=bytes(len(body.sealed))) if dealing else body
        return codec.encode(header, shown, sign)[:-64]

    same = apart_from_what_is_sealed(body) == apart_from_what_is_sealed(other)
    assert (signed_of(header, body) == signed_of(header, other)) == same


def test_how_much_is_sealed_is_signed_and_a_dealing_of_nothing_is_read():
    dealing = m.Dealing(
        commitments=bytes(32), proof=np.arange(2), statement=bytes(64), sealed=b"abc"
    )
    assert signed_of(HEADER, dealing) == signed_of(HEADER, replace(dealing, sealed=b"xyz"))
    assert signed_of(HEADER, dealing) != signed_of(HEADER, replace(dealing, sealed=b"abcd"))
    assert signed_of(HEADER, dealing) != signed_of(HEADER, replace(dealing, commitments=b"1" * 32))
    assert signed_of(HEADER, replace(dealing, sealed=b"")) != signed_of(HEADER, dealing)


def test_an_announced_size_is_refused_before_room_is_made_for_it():
    body = m.SubSecret(choice=bytes(32), values=np.zeros(2, dtype=np.int64))
    good = bytearray(codec.encode(HEADER, body, sign))
    place = len(good) - 64 - 16 - 4
    good[place : place + 4] = (1 << 24).to_bytes(4, "little")
    with pytest.raises(CodecError, match="16777216 items are announced"):
        codec.decode(bytes(good))
    good[place : place + 4] = (1 << 31).to_bytes(4, "little")
    with pytest.raises(CodecError, match="at most 33554432"):
        codec.decode(bytes(good))


def test_numbers_beyond_the_field_are_refused():
    for bad in (Q, -1):
        body = m.SubSecret(choice=bytes(32), values=np.array([bad]))
        with pytest.raises(CodecError, match="numbers from 0"):
            codec.decode(codec.encode(HEADER, body, sign))
