"""PDLRecover: repair models that were trained together, without seeing anyone's update."""

from importlib.metadata import version
from typing import TYPE_CHECKING

from pdlrecover.errors import LocalError, PDLRecoverError, RemoteError
from pdlrecover.later import later

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
__getattr__ = later(
    __name__, {"Federation": "federation", "Scheme": "sharing", "Tolerance": "sharing"}
)


def __dir__() -> list[str]:
    return __all__
