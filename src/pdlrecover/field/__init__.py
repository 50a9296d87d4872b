"""The finite field: arithmetic modulo q = 2^61 − 1, fixed point, and randomness."""

from pdlrecover.field.fixed_point import FixedPoint
from pdlrecover.field.interpolation import (
    Interpolation,
    barycentric_weights,
    distinct,
    lagrange_rows,
)
from pdlrecover.field.little_endian import as_bytes
from pdlrecover.field.mersenne import F61, Elements, Field, Integers, Mersenne61
from pdlrecover.field.product import EXACT_INNER, Q
from pdlrecover.field.randomness import Seeded, Source, SystemSource
from pdlrecover.field.threads import in_parallel, one_blas_thread

__all__ = [
    "EXACT_INNER",
    "F61",
    "Elements",
    "Field",
    "FixedPoint",
    "Integers",
    "Interpolation",
    "Mersenne61",
    "Q",
    "Seeded",
    "Source",
    "SystemSource",
    "as_bytes",
    "barycentric_weights",
    "distinct",
    "in_parallel",
    "lagrange_rows",
    "one_blas_thread",
]
