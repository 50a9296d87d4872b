"""Dataclasses from what JSON gave: each part has the type of its field, or one error names it.

Rules: a whole number is a `float` as well, a truth value is no number, and nothing is converted.
"""

from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from pdlrecover.errors import RecordError

T = TypeVar("T")
NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
NAMES |= {list: "a list", dict: "an object", NoneType: "null"}


def built(cls: type[T], record: Any, where: str = "") -> T:
    """Return the dataclass that a record, made by `asdict`, was written from."""
    parts = f"{where} " if where else ""
    values = checked(record, dict[str, Any], where or "it")
    hints = get_type_hints(cls)
    known = {each.name: each for each in fields(cast(Any, cls))}
    for name in values:
        if name not in known:
            raise RecordError(f"{parts}{name} is not known")
    for name, each in known.items():
        if name not in values and each.default is MISSING and each.default_factory is MISSING:
            raise RecordError(f"{parts}{name} is missing")
    return cls(**{name: checked(v, hints[name], f"{parts}{name}") for name, v in values.items()})


def checked(value: Any, wanted: Any, where: str) -> Any:
    """Return a value of a type, its dataclasses built; raise RecordError if it is another's."""
    if wanted is Any:
        return value
    if is_dataclass(wanted):
        return built(cast(type[Any], wanted), value, where)
    origin, inner = get_origin(wanted) or wanted, get_args(wanted)
    if origin is UnionType:
        return _one_of(value, inner, where)
    right = isinstance(value, int | float if origin is float else origin)
    if not right or (isinstance(value, bool) and origin is not bool):
        raise RecordError(f"{where} is to be {NAMES[origin]}, got {value!r:.40}")
    if origin is list:
        return [checked(each, inner[0], f"{where} {i}") for i, each in enumerate(value)]
    if origin is dict:
        return {key: checked(each, inner[1], f"{where} {key!r}") for key, each in value.items()}
    return value


def _one_of(value: Any, kinds: tuple[Any, ...], where: str) -> Any:
    for kind in kinds:
        try:
            return checked(value, kind, where)
        except RecordError:
            continue
    names = " or ".join(NAMES[get_origin(kind) or kind] for kind in kinds)
    raise RecordError(f"{where} is to be {names}, got {value!r:.40}")
