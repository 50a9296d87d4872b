"""Parquet, and the rows of Hugging Face datasets: columns of Apache Arrow, read in pieces.

Rules: features are columns of numbers or truth values, without gaps; labels are texts, whole
numbers or truth values. It takes the memory of its numbers, and that of a row
group.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pdlrecover.errors import DataError
from pdlrecover.extras import extra
from pdlrecover.learning.classes import labels_of
from pdlrecover.learning.reading.agreed import Agreed
from pdlrecover.learning.reading.reading import Reading, Watch, row
from pdlrecover.learning.reading.source import Source
from pdlrecover.learning.reading.table import Rows, Table, check_finite, features_of, spelled

PIECE = 1 << 14
"""Rows that are read at once."""


def read_parquet(path: Path, source: Source, agreed: Agreed) -> Reading:
    """Read a Parquet file."""
    with extra("data", "reading Parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    if source.separator is not None:
        raise DataError(f"separator is about CSV, and {path.name} is Parquet; leave it out")
    try:
        with pq.ParquetFile(path) as file:

            def pieces(names: Sequence[str]) -> Iterator[Any]:
                return iter(file.iter_batches(batch_size=PIECE, columns=list(names)))

            return read_pieces(path.name, file.schema_arrow, pieces, source, agreed)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path.name} is no Parquet file, or damaged: {reason}") from error


def read_pieces(
    place: str,
    schema: Any,
    pieces: Any,
    source: Source,
    agreed: Agreed,
    class_names: Sequence[str] | None = None,
) -> Reading:
    """Read a table of this schema; `pieces` returns some of its columns, by name, piece by piece.

    `class_names` are the names of labels that are stored as numbers.
    """
    watch = Watch(place)
    features, label = features_of(schema.names, source, agreed, place)
    own = [schema.names[at] for at in features]
    columns = [spelled(name) for name in own]
    for at, name in zip(features, columns, strict=True):
        check_numeric(schema.field(at).type, name, place)
    labelled = schema.names[label]
    check_label_type(schema.field(label).type, spelled(labelled), place)
    numbers, labels, count = Rows(len(own)), LabelColumn(place, spelled(labelled), class_names), 0
    for piece in pieces([*own, labelled]):
        values = np.empty((piece.num_rows, len(own)), np.float32)
        for at, name in enumerate(own):
            values[:, at] = floats_of(piece.column(name))
        check_finite(values, columns, row, place, count)
        numbers.add(values)
        labels.add(piece.column(labelled).to_pylist())
        count += piece.num_rows
        watch.step(count)
    if not count:
        raise DataError(f"{place} has columns and no row; it needs samples")
    watch.end(count)
    return Reading(
        place=place,
        samples=Table(tuple(columns), numbers.matrix()),
        labels=labels_of(labels.values, f"the labels of {place}"),
    )


def floats_of(column: Any) -> Any:
    """Return a column's numbers in float32; what is missing is NaN."""
    import pyarrow as pa

    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    with np.errstate(over="ignore"):
        return column.to_numpy(zero_copy_only=False).astype(np.float32)


def check_numeric(kind: Any, name: str, place: str) -> None:
    """Raise unless a column of this type is numbers or truth values."""
    import pyarrow as pa

    numeric = (
        pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal
    )  # fmt: skip
    if not any(fits(kind) for fits in numeric):
        raise DataError(
            f"the column {name!r} of {place} has the type {kind}, and samples are numbers; encode "
            f'it as numbers, or leave it out by drop = ["{name}"]'
        )


def check_label_type(kind: Any, name: str, place: str) -> None:
    """Raise unless a column of this type can be labels."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    types = pa.types
    texts = (types.is_string, types.is_large_string, types.is_string_view)
    if not any(fits(kind) for fits in (*texts, types.is_integer, types.is_boolean)):
        raise DataError(
            f"the column {name!r} of {place} has the type {kind}, and labels are texts, whole "
            "numbers or truth values; write them so"
        )


class LabelColumn:
    """Labels as they come in, each text kept once."""

    def __init__(self, place: str, name: str, class_names: Sequence[str] | None = None) -> None:
        """`class_names` are the names of labels that are stored as numbers."""
        self._place, self._name, self._class_names = place, name, class_names
        self._known: dict[Any, Any] = {}
        self.values: list[Any] = []
        """All labels."""

    def add(self, values: Iterable[Any]) -> None:
        """Add the labels of some rows; None, or −1 where numbers have names, is a missing one."""
        names = self._class_names
        for value in values:
            label = spelled(value) if isinstance(value, str) else value
            if label is None or label == "" or (names is not None and label == -1):
                raise DataError(
                    f"{self._place}, {row(len(self.values))} has no class: its column "
                    f"{self._name!r} is empty; fill it in, or leave the row out"
                )
            if names is not None and not 0 <= value < len(names):
                raise DataError(
                    f"{self._place}, {row(len(self.values))} has the class number {value}, and the "
                    f"column {self._name!r} names {len(names)} classes, counted from 0; write the "
                    "dataset again"
                )
            label = spelled(names[value]) if names is not None else label
            self.values.append(self._known.setdefault(label, label))
