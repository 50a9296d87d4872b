"""Packages that are installed only with an extra, as in `pip install 'pdlrecover[reports]'`.

    with extra("reports", "a report page"):
        import vl_convert

Where the package is missing, the error says what needs it and how to get it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from pdlrecover.errors import ExtraError

PACKAGES = {
    "peers": ("grpc",),
    "reports": ("vl_convert",),
    "cluster": ("ray",),
    "flower": ("flwr",),
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow",),
    "data": ("pyarrow", "datasets", "PIL"),
}
"""Which packages each extra brings that this one imports."""


@contextmanager
def extra(name: str, user: str) -> Iterator[None]:
    """Import packages of an extra within this; `user` says what they are for.

    Only that a package is missing is said so: what fails within one that is there stays as it is.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PACKAGES[name]:
            raise
        raise ExtraError(
            f"{user} needs the package {error.name}, which is not installed; "
            f"pip install 'pdlrecover[{name}]'"
        ) from error


def has(name: str) -> bool:
    """Return whether all packages of an extra are installed."""
    return all(find_spec(package) is not None for package in PACKAGES[name])
