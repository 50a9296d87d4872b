"""A user's own function, `package.module:function`, which returns samples and labels.

It is imported and called, and runs as whoever reads: whether it may is for the caller to ask.
"""

import importlib
from typing import Any

from pdlrecover.errors import DataError
from pdlrecover.learning.intake import columns_of, data_of
from pdlrecover.learning.reading.agreed import Agreed
from pdlrecover.learning.reading.reading import Reading
from pdlrecover.learning.reading.table import spelled


def read_function(path: str, agreed: Agreed) -> Reading:
    """Call the function, and take what the library takes of a peer.

    A table of pandas is put into the agreed order of columns.
    """
    module_name, _, attribute = path.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise DataError(
            f"cannot import {path!r} ({error}); function must name package.module:function, with "
            "the package installed or on PYTHONPATH"
        ) from error
    try:
        made = function()
    except Exception as error:  # it is the user's own code
        raise DataError(
            f"{path} returned no data, but raised {type(error).__name__}: {error}; it is called "
            "without arguments, and returns samples and labels"
        ) from error
    samples, labels = data_of(_in_agreed_order(made, agreed, path), path)
    return Reading(
        place=path,
        samples=samples,
        labels=labels,
        where=lambda at: f"sample {at}",
        by_number=True,
    )


def _in_agreed_order(made: Any, agreed: Agreed, path: str) -> Any:
    if agreed.features is None or not isinstance(made, tuple | list) or len(made) != 2:
        return made
    if (columns := columns_of(made[0])) is None:
        return made
    own = {spelled(str(name)): name for name in columns}
    if set(own) != set(agreed.features) or len(own) != len(columns):
        raise DataError(
            f"{path} returned a table with the columns {', '.join(map(repr, own))}, and the "
            f"federation takes {', '.join(map(repr, agreed.features))}; return these"
        )
    table, order = made[0], [own[name] for name in agreed.features]
    return (table.in_order(tuple(order)) if hasattr(table, "in_order") else table[order]), made[1]
