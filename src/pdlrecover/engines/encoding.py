"""How requests and answers become integers, bit for bit the same in every engine.

Rules: what is opened are integers, with f fraction bits for a sum, 2f for a direction or a dot
product. Public vectors and coefficients are rounded here, by elementwise operations only. Opened
sums become real numbers in `bounds`, where they are checked.
"""

from collections.abc import Sequence

import numpy as np

from pdlrecover.errors import PlanError
from pdlrecover.field import FixedPoint, Integers
from pdlrecover.recovery import same_bits
from pdlrecover.recovery.requests import Direction, Vector

PUBLIC_LIMIT = 1 << 20
"""Public vectors of dot products are rounded to integers below this in magnitude."""


def encode_vectors(code: FixedPoint, vectors: Vector) -> tuple[Integers, list[float]]:
    """Return public vectors as integers, and the power of two that each was scaled by.

    The last number of a shared vector is its weight, which dot products leave out.
    """
    scales = [_scale(code, vector) for vector in vectors]
    encoded = np.zeros((len(scales), code.length), dtype=np.int64)
    for row, vector, scale in zip(encoded, vectors, scales, strict=True):
        row[:-1] = np.rint(vector * (scale * code.scale))
    return encoded, scales


def decode_dots(code: FixedPoint, opened: Integers, scales: Sequence[float]) -> Vector:
    """Return opened dot products, a row for each vector, as real numbers."""
    real: Vector = opened / code.scale**2 / np.array(scales)[:, None]
    return real


def encode_direction(code: FixedPoint, request: Direction) -> list[int]:
    """Return the coefficients of the stored sums and then of the pairs, with f bits."""
    if not request.fits(code):
        raise PlanError(f"coefficients {request.coefficients} do not fit the encoding")
    one = int(code.scale)
    return [one] * len(request.rounds) + [round(p * one) for p in request.coefficients]


def _scale(code: FixedPoint, vector: Vector) -> float:
    """Return the power of two that brings a public vector to 20 bits, or less for headroom.

    A pair is the difference of two sums, so it gets half of the public bound.
    """
    size, largest = same_bits.norm(vector), float(np.abs(vector).max())
    if not 0 < size < np.inf:
        return 1.0
    room = min(code.public_bound / 2 / size, (PUBLIC_LIMIT - 1) / code.scale / largest)
    return same_bits.power_of_two_below(room)
