"""Orthogonalising a gradient layer by layer, to the same bits on every machine.

For each layer with the gradient N = [∂W | ∂b]:

    U = √max(rows, columns) · polar(N),    polar(N) = (NNᵀ)^(−1/2) N

All singular values of polar(N) are 1, so entries of U have an RMS of about 1. With a *gain* g they
are nearly min(1, g·σ/‖N‖): directions in which little pushes are lifted g-fold, and not all the way
to 1. A parameter that belongs to no matrix (a norm's scale, a bias by itself) is a matrix of one
row. An embedding is not one linear map, so each of its rows is.

Rules:

- All peers must get the same bits. So polar(N) is computed by Newton–Schulz iterations on integers,
  multiples of 2^−FRACTION: a product of two such matrices is one BLAS call in float64 whose every
  partial sum is an integer below 2^53, hence exact in any order, with any number of threads, on any
  machine. Partial sums of XYᵀ are at most ‖x_i‖‖y_j‖ (Cauchy–Schwarz), and rows of the iterates are
  no longer than their largest singular value, below 1.3·2^FRACTION: the length of a row does not
  matter. Rows of X's factors are shorter than 3.5·2^FRACTION. Every product is rounded, half to
  even.
- The coefficients are multiples of 2^−12, so that multiplying by them is exact as well.
- A step of Jordan's quintic lifts small singular values 3.4446-fold, a cubic one 1.5-fold. So the
  iterations have a gain of their own: with all seven quintic ones it is `MOST`, and values below
  about 3·10⁻⁴ of the norm do not reach 1. A lower gain takes as few quintic ones as have it, and
  starts from a smaller multiple of N/‖N‖.
- A gradient that is zero, or not finite, gives zero.
"""

from collections.abc import Sequence

import numpy as np

from pdlrecover.layers import Layer
from pdlrecover.recovery.requests import Vector
from pdlrecover.recovery.same_bits import fold, norm

FRACTION = 24
"""Iterates are multiples of 2^−24: products stay below 2^53, see the rules."""
_ONE = float(1 << FRACTION)
_COEFFICIENT = float(1 << 12)
QUINTIC = (14109, -19558, 8321)
"""(3.4446, −4.7749, 2.0315)·2^12: Jordan's quintic, which lifts small singular values fast."""
QUINTIC_STEPS, CUBIC_STEPS = 7, 4
MOST = (QUINTIC[0] / _COEFFICIENT) ** QUINTIC_STEPS * 1.5**CUBIC_STEPS
"""The gain of all these steps, some 29,000."""


def orthogonalised(gradient: Vector, layers: Sequence[Layer], gain: float | None = None) -> Vector:
    """Return U of every layer, in the places of the gradient; without a gain that of all steps."""
    out = np.zeros_like(gradient)
    for layer in layers:
        end = layer.start + layer.rows * layer.columns
        matrix = gradient[layer.start : end].reshape(layer.rows, layer.columns)
        if layer.by_row:
            out[layer.start : end] = _scaled_rows(matrix).ravel()
            continue
        if layer.bias is None:
            out[layer.start : end] = _scaled_polar(matrix, gain).ravel()
            continue
        biased = np.column_stack([matrix, gradient[layer.bias : layer.bias + layer.rows]])
        biased = _scaled_polar(biased, gain)
        out[layer.start : end] = biased[:, :-1].ravel()
        out[layer.bias : layer.bias + layer.rows] = biased[:, -1]
    return out


def _scaled_polar(matrix: Vector, gain: float | None) -> Vector:
    size = norm(matrix.ravel())
    if not 0 < size < np.inf:
        return np.zeros_like(matrix)
    wide = matrix.shape[0] <= matrix.shape[1]
    steps, start = steps_of(gain)
    unit = np.rint((matrix if wide else matrix.T) / size * (start * _ONE))
    polar = newton_schulz(unit, steps) / _ONE * np.sqrt(float(max(matrix.shape)))
    return polar if wide else np.ascontiguousarray(polar.T)


def _scaled_rows(matrix: Vector) -> Vector:
    """Return each row with an RMS of 1; rows of zeros, as of words that nobody used, stay."""
    sizes = np.sqrt(fold(matrix * matrix))[:, None]
    used = (sizes > 0) & np.isfinite(sizes)
    scaled: Vector = np.divide(matrix, sizes, out=np.zeros_like(matrix), where=used)
    scaled *= np.sqrt(float(matrix.shape[1]))
    return scaled


def steps_of(gain: float | None) -> tuple[int, float]:
    """Return how many quintic steps have this gain, and the multiple of N/‖N‖ to start from.

    Both follow from products and one division, which are the same on every machine.
    """
    if gain is None:
        return QUINTIC_STEPS, 1.0
    found, steps = 1.0, 0
    for _ in range(CUBIC_STEPS):
        found *= 1.5
    while found < gain and steps < QUINTIC_STEPS:
        found *= QUINTIC[0] / _COEFFICIENT
        steps += 1
    return steps, min(1.0, gain / found)


def newton_schulz(x: Vector, quintic_steps: int = QUINTIC_STEPS) -> Vector:
    """Return the orthogonal factor of a wide matrix of integers, ‖x‖_F ≤ 2^FRACTION; see the rules.

    Quintic: X ← (aI + bA + cA²)X with A = XXᵀ; then cubic: X ← ½(3I − A)X.
    """
    a, b, c = QUINTIC
    one = _ONE * np.eye(len(x))
    for _ in range(quintic_steps):
        gram = _rounded(x @ x.T)
        square = _rounded(gram @ gram)
        x = _rounded(np.rint((a * one + b * gram + c * square) / _COEFFICIENT) @ x)
    for _ in range(CUBIC_STEPS):
        x = _rounded(np.rint((3 * one - _rounded(x @ x.T)) / 2) @ x)
    return x


def _rounded(product: Vector) -> Vector:
    """Divide a product by 2^FRACTION, rounding half to even, in place."""
    product /= _ONE
    return np.rint(product, out=product)
