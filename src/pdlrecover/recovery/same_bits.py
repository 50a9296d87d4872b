"""Public arithmetic that gives the same bits on every machine.

Rules: all peers must compute the same model to the last bit. Elementwise IEEE operations do; a
reduction by BLAS or torch does not, because its order of summation depends on the hardware and on
the number of threads. So sums here are folded in halves, elementwise, in an order that depends on
the length only; and the few small systems of equations are solved in plain Python floats.
"""

import math
from collections.abc import Iterable, Sequence

from pdlrecover.recovery.requests import Vector


def fold(x: Vector) -> Vector:
    """Return the sum along the last axis, by adding the second half to the first until one is left.

    The rounding error grows with log₂ of the length only. The argument is overwritten.
    """
    length = x.shape[-1]
    while length > 1:
        half = (length + 1) // 2
        x[..., : length - half] += x[..., half:length]
        length = half
    return x[..., 0]


def dot(x: Vector, y: Vector) -> float:
    """Return xᵀy."""
    return float(fold(x * y))


def norm(x: Vector) -> float:
    """Return ‖x‖₂."""
    return math.sqrt(dot(x, x))


def dots(rows: Iterable[Vector], x: Vector) -> list[float]:
    """Return rowᵀx for every row."""
    return [dot(row, x) for row in rows]


def solve(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float] | None:
    """Solve a small system by elimination with row pivots; None if it is singular.

    Rows are first scaled by their largest entry (a power of two, so without rounding).
    """
    rows = []
    for row, value in zip(matrix, right, strict=True):
        largest = max(abs(x) for x in row)
        if not 0 < largest < math.inf:
            return None
        scale = math.ldexp(1.0, -math.frexp(largest)[1])
        rows.append([scale * x for x in row] + [scale * value])
    size = len(rows)
    for i in range(size):
        pivot = max(range(i, size), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        if rows[i][i] == 0 or not math.isfinite(rows[i][i]):
            return None
        for r in range(i + 1, size):
            factor = rows[r][i] / rows[i][i]
            for k in range(i, size + 1):
                rows[r][k] -= factor * rows[i][k]
    solution = [0.0] * size
    for i in reversed(range(size)):
        known = rows[i][size]
        for k in range(i + 1, size):
            known -= rows[i][k] * solution[k]
        solution[i] = known / rows[i][i]
    return solution if all(math.isfinite(x) for x in solution) else None


def power_of_two_below(value: float) -> float:
    """Return the largest power of two that is at most `value` > 0."""
    return math.ldexp(1.0, math.frexp(value)[1] - 1)
