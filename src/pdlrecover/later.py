"""Names of a package that are imported when they are asked for: torch takes a second."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def later(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's `__getattr__`: by its name, in which module of the package each thing is.

    The package imports the same names where types are checked (`TYPE_CHECKING`).
    """

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{places[name]}"), name)

    return get
