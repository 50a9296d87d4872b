"""Tables of TOML files as dataclasses: what may stand in them, and what is wrong if it may not."""

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin

from pdlrecover.errors import MembershipError, PDLRecoverError

Table = TypeVar("Table")


def read_table(kind: type[Table], values: Mapping[str, Any], path: str) -> Table:
    """Return the settings of one table, each checked; raise `MembershipError`."""
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type] # it is a dataclass
    spelt = [key.replace("-", "_") for key in values]
    if twice := {key for key in spelt if spelt.count(key) > 1}:
        raise MembershipError(f"{path}.{min(twice)} is there twice, with - and with _")
    values = dict(zip(spelt, values.values(), strict=True))
    check_keys(values, known, path)
    checked = {key: _value(f"{path}.{key}", value, known[key]) for key, value in values.items()}
    for key, a_field in known.items():
        if key not in values and a_field.default is MISSING:
            raise MembershipError(f"{path}.{key} is missing")
    try:
        return kind(**checked)
    except MembershipError:
        raise
    except PDLRecoverError as error:
        raise MembershipError(f"{path}: {error}") from error


def check_keys(values: Mapping[str, Any], known: Iterable[str], path: str) -> None:
    """Refuse a key that does not exist, and name the nearest that does."""
    known = list(known)
    for key in values:
        if key not in known:
            nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.4)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"known are {', '.join(known)}"
            where = f" in {path}" if path else ""
            raise MembershipError(f"there is no setting called {key!r}{where}; {hint}")


def _value(path: str, value: Any, a_field: "Field[Any]") -> Any:
    hint: Any = a_field.type
    kinds = [k for k in get_args(hint) if k is not type(None)] if _optional(hint) else [hint]
    (kind,) = kinds
    if get_origin(kind) is tuple:
        fine = isinstance(value, list) and all(map(_is_whole, value))
        value = tuple(value) if fine else value
    elif kind is float:
        fine = _is_whole(value) or type(value) is float
        value = float(value) if fine else value
    else:
        fine = _is_whole(value) if kind is int else type(value) is kind
    if not fine:
        names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
        raise MembershipError(
            f"{path} must be {names.get(kind, 'a list of whole numbers')}, got {shown(value)}"
        )
    return value


def _is_whole(value: Any) -> bool:
    return type(value) is int and abs(value) < 1 << 63


def shown(value: Any) -> str:
    """Return a value for a message, however long it is."""
    try:
        return repr(value)[:80]
    except ValueError:  # an integer of thousands of digits
        return "a number that is too long"


def _optional(hint: Any) -> bool:
    return isinstance(hint, UnionType)


def as_toml(value: Any) -> str:
    """Return a value as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(list(value)) if isinstance(value, tuple) else repr(value)
