"""What was probably meant by a name that nothing has."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question for the nearest of the known names, with a blank after it, or nothing."""
    nearest = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {nearest[0]}? " if nearest else ""
