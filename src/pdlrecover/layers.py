"""The layers of a model, as matrices in its flat vector of weights."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A matrix in the flat vector of weights, its bias as one more column."""

    start: int
    rows: int
    columns: int
    """Without the bias."""
    bias: int | None = None
    """Where the bias starts; it has an entry for each row."""
    by_row: bool = False
    """Whether each row is a vector by itself, as in an embedding."""
