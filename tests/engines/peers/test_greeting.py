"""What a peer says of itself, and what of another's word is believed."""

import time

import msgspec
import pytest
import torch

from pdlrecover import __version__
from pdlrecover.engines.peers.greeting import MOST_BYTES, Greeting, decode, encode, greeting
from pdlrecover.errors import CodecError


def test_a_greeting_says_what_runs_here_and_comes_back_whole():
    said = greeting(bytes(range(32)))
    assert (said.version, said.federation) == (__version__, bytes(range(32)).hex())
    assert said.torch == torch.__version__
    assert said.processor == torch.backends.cpu.get_cpu_capability()
    assert abs(said.time - time.time()) < 5
    assert decode(encode(said)) == said
    assert said.processor in said.software


def test_fields_of_later_versions_are_passed_over():
    values = {**msgspec.to_builtins(greeting(bytes(32))), "moon": "full"}
    assert decode(msgspec.json.encode(values)).version == __version__


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b"\xff", b"[" * 3000, b'{"version":1}', b" " * (MOST_BYTES + 1)],
    ids=["nothing", "list", "empty", "binary", "deep", "types", "long"],
)
def test_what_is_no_greeting_is_refused(data):
    with pytest.raises(CodecError, match="greeting"):
        decode(data)


@pytest.mark.parametrize("seconds", [-1.0, 253_402_300_800.0, 1e308])
def test_a_clock_beyond_all_calendars_is_no_greeting(seconds):
    values = {**msgspec.to_builtins(greeting(bytes(32))), "time": seconds}
    with pytest.raises(CodecError, match="no greeting: its clock is at"):
        decode(msgspec.json.encode(values))


def test_texts_of_others_are_one_short_printable_line():
    nasty = Greeting(
        version="1\n\x1b[2J", python="x" * 500, torch="2", time=0.0, federation="\u202e"
    )
    said = decode(encode(nasty))
    assert said.version == "1??[2J"
    assert len(said.python) == 64
    assert said.software.isprintable()
    assert said.federation == "?"
