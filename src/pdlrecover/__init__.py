"""PDLRecover: repair models that were trained together, without seeing anyone's update."""

from importlib.metadata import version

from pdlrecover.errors import LocalError, PDLRecoverError, RemoteError
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
