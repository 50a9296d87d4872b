"""PDLRecover: repair models that were trained together, without seeing anyone's update."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from pdlrecover.errors import LocalError, PDLRecoverError, RemoteError

if TYPE_CHECKING:
    from pdlrecover.federation import Federation
    from pdlrecover.sharing import Scheme, Tolerance

__version__ = version("pdlrecover")

__all__ = [
    "Federation",
    "LocalError",
    "PDLRecoverError",
    "RemoteError",
    "Scheme",
    "Tolerance",
    "__version__",
]
_LATER = {"Federation": "federation", "Scheme": "sharing", "Tolerance": "sharing"}
"""What is imported when it is asked for: torch takes longer than most commands do."""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f"pdlrecover.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
