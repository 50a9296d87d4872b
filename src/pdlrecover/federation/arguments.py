"""Whether an argument is what it should be: whole numbers, numbers, and objects of a kind."""

import math
from typing import Any

import numpy as np

from pdlrecover.errors import LocalError, PlanError


def whole(name: str, value: Any, least: int, error: type[LocalError] = PlanError) -> int:
    """Return a whole number of at least `least`, or raise."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise error(f"{name} must be a whole number of at least {least}, got {value!r:.60}")
    return int(value)


def number(
    name: str, value: Any, *, above: float | None = None, error: type[LocalError] = PlanError
) -> float:
    """Return a finite number of at least 0, or above a bound, or raise."""
    real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not real or not math.isfinite(value) or (value < 0 if above is None else value <= above):
        range_ = "at least 0" if above is None else f"above {above:g}"
        raise error(f"{name} must be a finite number {range_}, got {value!r:.60}")
    return float(value)


def instance(
    name: str, value: Any, kind: type | tuple[type, ...], example: str, error: type[LocalError]
) -> None:
    """Raise unless a value is of this kind; `example` says how one is made."""
    if not isinstance(value, kind):
        got = f"the class {value.__name__}" if isinstance(value, type) else described(value)
        raise error(f"{name} must be {example}, got {got}")


def described(value: Any) -> str:
    """Return a value in a few words."""
    text = repr(value)
    return text if len(text) <= 40 and "\n" not in text else f"a {type(value).__name__}"
