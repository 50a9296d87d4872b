"""The forms in which values are written as bytes, on the wire and on disk, with strict limits.

Rules:

- All numbers are little-endian. A value has exactly one form.
- Every length and count is checked against its limit, and against the bytes that are there, before
  anything is allocated. Field elements are checked to be elements.
- Whatever the bytes are, reading gives a value or raises `CodecError`, and nothing else.
- A record's form follows from the types of its fields, in their order: see `form_of`.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from types import UnionType
from typing import Annotated, Any, Protocol, Union, get_args, get_origin, get_type_hints

import numpy as np

from pdlrecover.errors import CodecError
from pdlrecover.field import Elements, Integers, Q

MAX_PEERS = 4096
MAX_ELEMENTS = 1 << 25
MAX_TEXT = 1000
SIGNATURE = 64
_COUNT = struct.Struct("<I")
Piece = bytes | memoryview
"""A part of a message: what is large is not copied before the whole is put together."""


class Reader:
    """Bytes that are taken from the front."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._rest = memoryview(data)

    def take(self, size: int) -> memoryview:
        if size > len(self._rest):
            raise CodecError(f"the bytes end early: {size} bytes wanted, {len(self._rest)} left")
        found, self._rest = self._rest[:size], self._rest[size:]
        return found

    @property
    def left(self) -> int:
        return len(self._rest)


class Form(Protocol):
    """How a value is written, piece by piece, and read; `least` is the fewest bytes it takes."""

    @property
    def least(self) -> int: ...
    def write(self, value: Any, out: list[Piece]) -> None: ...
    def read(self, reader: Reader) -> Any: ...


@dataclass(frozen=True)
class Number:
    """A number, by its `struct` code."""

    code: str
    most: int | None = None

    @cached_property
    def least(self) -> int:
        return struct.calcsize(self.code)

    def write(self, value: int, out: list[Piece]) -> None:
        try:
            out.append(struct.pack(self.code, value))
        except struct.error as error:
            raise CodecError(f"a number does not fit its field: {value}") from error

    def read(self, reader: Reader) -> int:
        value: int = struct.unpack(self.code, reader.take(self.least))[0]
        if self.most is not None and value > self.most:
            raise CodecError(f"a number is at most {self.most} here, got {value}")
        return value


class Flag:
    """Yes or no, in one byte."""

    least = 1

    def write(self, value: bool, out: list[Piece]) -> None:
        out.append(bytes([value]))

    def read(self, reader: Reader) -> bool:
        value = reader.take(1)[0]
        if value > 1:
            raise CodecError(f"a flag is 0 or 1, got {value}")
        return bool(value)


@dataclass(frozen=True)
class Fixed:
    """Bytes whose number is known."""

    least: int

    def checked(self, value: bytes) -> bytes:
        """Return the value, if it has its length."""
        if len(value) != self.least:
            raise CodecError(f"{self.least} bytes are expected here, got {len(value)}")
        return value

    def write(self, value: bytes, out: list[Piece]) -> None:
        out.append(self.checked(value))

    def read(self, reader: Reader) -> bytes:
        return bytes(reader.take(self.least))


def _count(reader: Reader, most: int, each: int) -> int:
    """Read a count, and check that this many things may and can follow."""
    count: int = _COUNT.unpack(reader.take(4))[0]
    if count > most or count * each > reader.left:
        raise CodecError(f"{count} items are announced: at most {most}, in {reader.left} bytes")
    return count


@dataclass(frozen=True)
class Bytes:
    """A length, and that many bytes: at most `most`, a multiple of `unit`."""

    most: int
    unit: int = 1
    stays: bool = False
    """What was read stays a part of the message, which is large and soon done with."""
    least = 4

    def write(self, value: Piece, out: list[Piece]) -> None:
        if len(value) > self.most or len(value) % self.unit:
            raise CodecError(f"at most {self.most} bytes are allowed here, got {len(value)}")
        out += _COUNT.pack(len(value)), value

    def read(self, reader: Reader) -> Piece:
        size = _count(reader, self.most, 1)
        if size % self.unit:
            raise CodecError(f"a multiple of {self.unit} bytes is expected here, got {size}")
        found = reader.take(size)
        return found if self.stays else bytes(found)


@dataclass(frozen=True)
class Text:
    """A text in UTF-8, of at most `most` bytes."""

    most: int = MAX_TEXT
    least = 4

    def write(self, value: str, out: list[Piece]) -> None:
        Bytes(self.most).write(value.encode(), out)

    def read(self, reader: Reader) -> str:
        try:
            return str(Bytes(self.most).read(reader), "utf-8")
        except UnicodeDecodeError as error:
            raise CodecError("a text is not UTF-8") from error


@dataclass(frozen=True)
class Array:
    """A count, and that many whole numbers from `low` to `high`."""

    low: int
    high: int
    least = 4

    def write(self, value: Any, out: list[Piece]) -> None:
        if value.ndim != 1 or len(value) > MAX_ELEMENTS:
            raise CodecError(f"a list of at most {MAX_ELEMENTS} numbers goes here: {value.shape}")
        numbers = np.ascontiguousarray(value, dtype="<i8").view(np.uint8)
        out += _COUNT.pack(len(value)), numbers.data

    def _fit(self, values: Any) -> bool:
        if self.low == 0:  # as unsigned numbers, negative ones are the largest: one look is enough
            return bool(values.view(np.uint64).max() <= self.high)
        return bool(self.low <= values.min() and values.max() <= self.high)

    def read(self, reader: Reader) -> Any:
        size = _count(reader, MAX_ELEMENTS, 8)
        values = np.frombuffer(reader.take(8 * size), dtype="<i8").astype(np.int64)
        if size and not self._fit(values):
            raise CodecError(f"numbers from {self.low} to {self.high} are expected here")
        return values


@dataclass(frozen=True)
class Many:
    """A count, and that many values of one form."""

    inner: Form
    most: int
    least = 4

    def write(self, value: tuple[Any, ...], out: list[Piece]) -> None:
        if len(value) > self.most:
            raise CodecError(f"at most {self.most} items are allowed here, got {len(value)}")
        out.append(_COUNT.pack(len(value)))
        for each in value:
            self.inner.write(each, out)

    def read(self, reader: Reader) -> tuple[Any, ...]:
        size = _count(reader, self.most, self.inner.least)
        return tuple(self.inner.read(reader) for _ in range(size))


@dataclass(frozen=True)
class Maybe:
    """A flag, and the value if there is one."""

    inner: Form
    least = 1

    def write(self, value: Any, out: list[Piece]) -> None:
        FLAG.write(value is not None, out)
        if value is not None:
            self.inner.write(value, out)

    def read(self, reader: Reader) -> Any:
        return self.inner.read(reader) if FLAG.read(reader) else None


@dataclass(frozen=True)
class Record:
    """The fields of a dataclass, one after the other, each in the form of its type."""

    make: Callable[..., Any]
    fields: dict[str, Form]

    @cached_property
    def least(self) -> int:
        return sum(form.least for form in self.fields.values())

    def write(self, value: Any, out: list[Piece]) -> None:
        for name, form in self.fields.items():
            form.write(getattr(value, name), out)

    def read(self, reader: Reader) -> Any:
        return self.make(**{name: form.read(reader) for name, form in self.fields.items()})


DIGEST, SIGNED, FLAG = Fixed(32), Fixed(SIGNATURE), Flag()
Peer = Annotated[int, Number("<H")]
View = Annotated[int, Number("<i", (1 << 31) - 1)]
StepNumber = Annotated[int, Number("<Q", 1 << 40)]
Time = Annotated[float, Number("<d")]
Digest = Annotated[bytes, DIGEST]
MaybeDigest = Annotated[bytes, Bytes(32, unit=32)]
Signature = Annotated[bytes, SIGNED]
SharedValues = Annotated[Elements, Array(0, Q - 1)]
OpenedValues = Annotated[Integers, Array(-(Q // 2), Q // 2)]


def form_of(kind: Any) -> Form:
    """Return the form of a type: what it is annotated with, or what it is made of.

    A tuple is annotated with the number of its items at most, if that is not `MAX_PEERS`.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        form: Form | int = parts[1]
        return Many(form_of(get_args(parts[0])[0]), form) if isinstance(form, int) else form
    if origin is tuple:
        return Many(form_of(parts[0]), MAX_PEERS)
    if origin in (Union, UnionType):
        return Maybe(form_of(parts[0]))
    if kind in (bool, str):
        return FLAG if kind is bool else Text()
    if not (isinstance(kind, type) and is_dataclass(kind)):
        raise TypeError(f"{kind} has no form: annotate it with one")
    hints = get_type_hints(kind, include_extras=True)
    return Record(kind, {name: form_of(hint) for name, hint in hints.items()})
