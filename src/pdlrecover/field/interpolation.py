"""Lagrange interpolation: the value of a polynomial at some points, from its values at others."""

import numpy as np
from numpy.typing import ArrayLike

from pdlrecover.errors import FieldError
from pdlrecover.field.mersenne import Elements, Field


def lagrange_rows(field: Field, points: ArrayLike, targets: ArrayLike) -> Elements:
    """Return the matrix R with p(targets) = R · p(points) for every p of degree < len(points).

        R[t, i] = ∏_{j≠i} (z_t − x_j) / (x_i − x_j)

    The points x must be distinct; a target z may be one of them.
    """
    x = distinct(field, points)
    z = np.atleast_1d(field.elements(targets))
    weights = barycentric_weights(field, x)
    gaps = field.subtract(z[:, None], x[None, :])
    at_point = gaps == 0
    gaps[at_point] = 1
    products = _product(field, gaps)
    rows = field.multiply(field.multiply(products[:, None], field.inverse(gaps)), weights[None, :])
    hits = at_point.any(axis=1)
    rows[hits] = at_point[hits]
    return rows


def barycentric_weights(field: Field, x: Elements) -> Elements:
    """Return w_i = 1 / ∏_{j≠i} (x_i − x_j) for distinct points x."""
    gaps = field.subtract(x[:, None], x[None, :])
    np.fill_diagonal(gaps, 1)
    return field.inverse(_product(field, gaps))


def distinct(field: Field, points: ArrayLike) -> Elements:
    """Check that there are points, that they are field elements, and that no two are equal."""
    x = field.elements(points)
    if x.ndim != 1 or not x.size:
        raise FieldError(f"interpolation needs a list of points, got shape {x.shape}")
    values, counts = np.unique(x, return_counts=True)
    if (counts > 1).any():
        twice = values[counts > 1][0]
        raise FieldError(f"interpolation needs distinct points, got {twice} more than once")
    return x


def _product(field: Field, x: Elements) -> Elements:
    """Return the product along the last axis, by halves."""
    while x.shape[-1] > 1:
        if x.shape[-1] % 2:
            x = np.concatenate([x, np.ones_like(x[..., :1])], axis=-1)
        x = field.multiply(x[..., 0::2], x[..., 1::2])
    return x[..., 0]
