"""Reads TOML and JSON into dataclasses, with precise errors, and writes TOML tables.

Rules:

- Every value has the type of its field. Nothing is converted, except that a whole number may stand
  for a `float` and a list for a tuple. A whole number fits 64 bits.
- A key that is no field is refused with the nearest one that is, unless the caller ignores such
  keys: later versions may have added them to a record. `-` may stand for `_` in it.
- What a dataclass checks in its `__post_init__` is said with the place of its values. An error of
  the caller's own type is taken to name that place itself.
"""

import difflib
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from pdlrecover.errors import LocalError

T = TypeVar("T")
LIMIT = 1 << 63
"""Whole numbers are below it, and above its negative."""
NAMES: dict[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    NoneType: "left out",
}
LISTS: dict[Any, str] = {str: "texts", int: "whole numbers", float: "numbers"}
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_hints: Callable[[Any], dict[str, Any]] = cache(get_type_hints)


def decode(
    kind: type[T],
    values: Any,
    error: type[LocalError],
    *,
    where: str = "",
    ignore_unknown: bool = False,
) -> T:
    """Return a value of this type, or raise `error` for what is wrong and its place.

    `where` is the place of the values themselves: the name of their table, for example.
    """
    spelled = _spelled(kind, values, error, where, ignore_unknown)
    try:
        return convert(kind, spelled)
    except msgspec.ValidationError as fault:
        _check(kind, spelled, error, where)
        raise error(f"{where}: {fault}" if where else str(fault)) from fault


def convert(kind: type[T], values: Any) -> T:
    """Return what msgspec makes of the values, with every default on the instance.

    msgspec leaves defaults on the class, where `vars` and its own `to_builtins` do not see them.
    """
    value = msgspec.convert(values, kind)
    _complete(value)
    return value


def _complete(value: Any) -> None:
    if isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            _complete(part)
    elif is_dataclass(value):
        parts, own = (
            {field.name: getattr(value, field.name) for field in fields(value)},
            vars(value),
        )
        own.clear()
        own.update(parts)
        _complete(parts)


def shown(value: Any) -> str:
    """Return a value for a message: at most 80 characters of it."""
    try:
        return repr(value)[:80]
    except ValueError:  # an integer of thousands of digits
        return "a number that is too long"


def parse_toml(text: str, error: type[LocalError]) -> dict[str, Any]:
    """Return the values of a TOML text."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as fault:
        raise error(f"this is not TOML: {fault}") from fault


def toml_table(name: str, record: Any) -> list[str]:
    """Return a dataclass as the lines of a TOML table; what is left out is a comment."""
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return ["", f"[{name}]"] + [
        f"# {key} =" if value is None else f"{key} = {_as_toml(value)}"
        for key, value in values.items()
    ]


def _spelled(
    kind: Any, values: Any, error: type[LocalError], where: str, ignore_unknown: bool
) -> Any:
    """Return the values with every key of a dataclass spelled as its field."""
    kind = _chosen(kind, values)
    if isinstance(values, int) and abs(values) >= LIMIT:
        raise error(f"{where or 'it'} must be {_named(kind)} below 2^63, got {shown(values)}")
    if is_dataclass(kind) and isinstance(values, dict):
        names = [key.replace("-", "_") for key in values]
        known = [field.name for field in fields(kind)]
        unknown = [name for name in names if name not in known]
        if unknown and not ignore_unknown:
            nearest = difflib.get_close_matches(unknown[0], known, n=1, cutoff=0.4)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"known are {', '.join(known)}"
            raise error(f"unknown key {unknown[0]!r}{f' in {where}' if where else ''}; {hint}")
        if twice := [name for name in names if names.count(name) > 1]:
            raise error(f"{_joined(where, twice[0])} is there twice, with - and with _")
        values = dict(zip(names, values.values(), strict=True))
    parts = {
        key: _spelled(part, value, error, place, ignore_unknown)
        for key, place, part, value in _parts(kind, values, where)
    }
    if isinstance(values, dict):
        return {**values, **parts}
    return list(parts.values()) if parts else values


def _parts(kind: Any, values: Any, where: str) -> Iterator[tuple[Any, str, Any, Any]]:
    """Yield the parts of a value that has such: key, place, type and value of each."""
    kind = _chosen(kind, values)
    origin, inner = get_origin(kind), get_args(kind)
    if isinstance(values, dict) and is_dataclass(kind):
        hints = _hints(kind)
        for key, value in values.items():
            if key in hints:
                yield key, _joined(where, key), hints[key], value
    elif isinstance(values, dict) and origin is dict:
        for key, value in values.items():
            yield key, _joined(where, key), inner[1], value
    elif isinstance(values, list | tuple) and (origin is list or inner[1:] == (...,)):
        for i, value in enumerate(values):
            yield i, f"{where}[{i}]", inner[0], value


def _chosen(kind: Any, values: Any) -> Any:
    """Return the member of a union that a table or a list is read as, or the type itself."""
    if get_origin(kind) in (Union, UnionType):
        for each in get_args(kind):
            origin = get_origin(each)
            if isinstance(values, dict) and (is_dataclass(each) or origin is dict):
                return each
            if isinstance(values, list | tuple) and origin in (list, tuple):
                return each
    return kind


def _check(kind: Any, value: Any, error: type[LocalError], where: str) -> None:
    """Raise for the innermost value that is wrong: parts come before the whole."""
    for _, place, part, inner in _parts(kind, value, where):
        _check(part, inner, error, place)
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as fault:
        if isinstance(cause := fault.__cause__, error):
            raise cause from None
        if cause is not None:
            raise error(f"{where}: " if where else "", cause) from cause
        if is_dataclass(kind := _chosen(kind, value)) and isinstance(value, dict):
            for field in fields(kind):
                optional = field.default is not MISSING or field.default_factory is not MISSING
                if not optional and field.name not in value:
                    raise error(f"{_joined(where, field.name)} is missing") from fault
        wanted = _named(kind).replace("left out", "null" if where.endswith("]") else "left out")
        raise error(f"{where or 'it'} must be {wanted}, got {shown(value)}") from fault


def _joined(where: str, key: str) -> str:
    key = key if _BARE.fullmatch(key) else json.dumps(key, ensure_ascii=False)
    return f"{where}.{key}" if where else key


def _named(kind: Any) -> str:
    """Return what a type is called in an error."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        hidden = {msgspec.UnsetType, int if float in inner else None}
        return " or ".join(_named(k) for k in inner if k not in hidden)
    if origin is Literal:
        return f"one of {', '.join(map(repr, inner))}"
    if origin in (list, tuple):
        return f"a list of {LISTS[inner[0]]}" if inner[0] in LISTS else "a list"
    if is_dataclass(kind) or origin is dict:
        return "a table of keys and values"
    return NAMES.get(kind, str(kind))


def _as_toml(value: Any) -> str:
    if isinstance(value, dict):
        parts = (f"{_as_toml(key)} = {_as_toml(part)}" for key, part in value.items())
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"[{', '.join(map(_as_toml, value))}]" if isinstance(value, tuple) else repr(value)
