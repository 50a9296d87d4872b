"""What a peer says of itself to the others when it is asked: its version, its clock, its file.

Rules: a greeting is one JSON object of at most `MOST_BYTES`. It holds nothing of data, updates or
keys. Fields that are not known here are passed over, so that later versions may add some. It is
another machine's word: texts are cut to one printable line before anybody sees them, and its clock
is somewhere from 1970 to 9999.
"""

import platform
import sys
import time
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import msgspec

from pdlrecover.errors import CodecError

MOST_BYTES, MOST_LETTERS = 4096, 64
MOST_SECONDS = 253_402_300_800.0
"""Since 1970, to the end of 9999."""
NOT_INSTALLED = "not installed"


@dataclass(frozen=True, kw_only=True)
class Greeting:
    """What one peer says of itself."""

    version: str
    """Of this package."""
    python: str
    torch: str
    processor: str = ""
    """What torch computes with there, as AVX2 or AVX512; empty if it was not loaded."""
    time: float
    """Its clock, in seconds since 1970."""
    federation: str
    """The digest of its federation file, in hexadecimal."""

    @property
    def software(self) -> str:
        """What it runs on, in a line."""
        parts = [f"pdlrecover {self.version}", f"Python {self.python}", f"torch {self.torch}"]
        return ", ".join([*parts, self.processor] if self.processor else parts)


def greeting(federation: bytes) -> Greeting:
    """Return what this process says of itself now, with the digest of its federation file."""
    torch = sys.modules.get("torch")
    return Greeting(
        version=installed("pdlrecover"),
        python=platform.python_version(),
        torch=installed("torch"),
        processor=str(torch.backends.cpu.get_cpu_capability()) if torch else "",
        time=time.time(),
        federation=federation.hex(),
    )


@cache
def installed(package: str) -> str:
    """Return the version of a package, without importing it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return NOT_INSTALLED


def encode(said: Greeting) -> bytes:
    """Return a greeting as JSON."""
    return msgspec.json.encode(said)


def decode(data: bytes) -> Greeting:
    """Return the greeting in an answer; raise `CodecError` if it is none."""
    if len(data) > MOST_BYTES:
        raise CodecError(f"a greeting has at most {MOST_BYTES} bytes, got {len(data)}")
    try:
        said = msgspec.json.decode(data, type=Greeting)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CodecError(f"this is no greeting: {error}") from error
    if not 0 <= said.time < MOST_SECONDS:
        raise CodecError(f"this is no greeting: its clock is at {said.time:g}")
    return Greeting(
        version=_line(said.version),
        python=_line(said.python),
        torch=_line(said.torch),
        processor=_line(said.processor),
        time=said.time,
        federation=_line(said.federation),
    )


def _line(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text[:MOST_LETTERS])
