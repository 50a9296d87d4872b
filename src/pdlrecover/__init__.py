"""PDLRecover: repair models that were trained together, without seeing anyone's update."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from pdlrecover.errors import LocalError, PDLRecoverError, RemoteError

if TYPE_CHECKING:
    from pdlrecover.engines.classifier import load_model
    from pdlrecover.federation import Federation
    from pdlrecover.recovery.schedule import Schedule
    from pdlrecover.sharing import Scheme, Tolerance

__version__ = version("pdlrecover")

__all__ = [
    "Federation",
    "LocalError",
    "PDLRecoverError",
    "RemoteError",
    "Schedule",
    "Scheme",
    "Tolerance",
    "__version__",
    "load_model",
]
_LATER = {
    "Federation": "federation",
    "Schedule": "recovery.schedule",
    "Scheme": "sharing",
    "Tolerance": "sharing",
    "load_model": "engines.classifier",
}
"""What is imported when it is asked for: torch takes longer than most commands do."""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f"pdlrecover.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
