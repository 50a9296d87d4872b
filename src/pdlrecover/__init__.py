"""PDLRecover: repair models that were trained together, without seeing anyone's update."""

from importlib.metadata import version
from typing import TYPE_CHECKING

from pdlrecover.errors import LocalError, PDLRecoverError, RemoteError
from pdlrecover.later import later

if TYPE_CHECKING:
    from pdlrecover.engines.classifier import load_model
    from pdlrecover.federation import Federation
    from pdlrecover.learning.reading.read import read_data
    from pdlrecover.recovery.schedule import Schedule
    from pdlrecover.recovery.standardisation import Standardise
    from pdlrecover.sharing import Scheme, Tolerance

__version__ = version("pdlrecover")

__all__ = [
    "Federation",
    "LocalError",
    "PDLRecoverError",
    "RemoteError",
    "Schedule",
    "Scheme",
    "Standardise",
    "Tolerance",
    "__version__",
    "load_model",
    "read_data",
]
__getattr__ = later(
    __name__,
    {
        "Federation": "federation",
        "Schedule": "recovery.schedule",
        "Scheme": "sharing",
        "Standardise": "recovery.standardisation",
        "Tolerance": "sharing",
        "load_model": "engines.classifier",
        "read_data": "learning.reading.read",
    },
)


def __dir__() -> list[str]:
    return __all__
