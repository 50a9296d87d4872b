"""The second truth: modular arithmetic in plain Python integers, slow and obvious.

It has the interface of `pdlrecover.field.Field` for any prime, so it both checks the fast field
and lets the sharing code itself run over fields small enough to enumerate.
"""

import itertools
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class OracleField:
    modulus: int

    def elements(self, values):
        x = np.asarray(values, dtype=np.int64)
        assert x.size == 0 or (x.min() >= 0 and x.max() < self.modulus)
        return x

    def from_signed(self, integers):
        return self._reduced(integers)

    def to_signed(self, elements):
        half = self.modulus // 2
        flat = [int(x) if x <= half else int(x) - self.modulus for x in np.ravel(elements)]
        return np.array(flat, dtype=np.int64).reshape(np.shape(elements))

    def add(self, x, y):
        return self._each(lambda a, b: a + b, x, y)

    def subtract(self, x, y):
        return self._each(lambda a, b: a - b, x, y)

    def multiply(self, x, y):
        return self._each(lambda a, b: a * b, x, y)

    def inverse(self, x):
        return self._each(lambda a: pow(a, -1, self.modulus), x)

    def sum(self, x, axis):
        total = np.sum(np.asarray(x).astype(object), axis=axis)
        return self._reduced(total + np.zeros(np.shape(total), dtype=object))

    def matmul(self, a, b, out=None):
        rows = [
            [sum(int(x) * int(y) for x, y in zip(row, column, strict=True)) for column in b.T]
            for row in a
        ]
        product = self._reduced(np.array(rows, dtype=object).reshape(a.shape[0], b.shape[1]))
        if out is None:
            return product
        out[...] = product
        return out

    @property
    def small_limit(self):
        return self.modulus

    def prepared(self, a):
        return a

    def small_products(self, several, b):
        products = [self.matmul(a, np.asarray(b).astype(np.int64) % self.modulus) for a in several]
        return np.stack(products, axis=1).transpose(2, 1, 0)

    def evaluate(self, coefficients, point):
        """Return c₀ + c₁·x + c₂·x² + …"""
        return sum(
            int(c) * pow(int(point), i, self.modulus) for i, c in enumerate(coefficients)
        ) % (self.modulus)

    def interpolate(self, points, values, target):
        """Return the value at `target` of the polynomial through the points: Lagrange, by hand."""
        total = 0
        for i, x in enumerate(points):
            term = int(values[i])
            for j, other in enumerate(points):
                if j != i:
                    term = term * (int(target) - int(other))
                    term = term * pow(int(x) - int(other), -1, self.modulus) % self.modulus
            total += term
        return total % self.modulus

    def everything(self, *shape):
        """Yield every array of this shape: all random choices there are."""
        size = int(np.prod(shape))
        for choice in itertools.product(range(self.modulus), repeat=size):
            yield np.array(choice, dtype=np.int64).reshape(shape)

    def _each(self, operation, *arrays):
        arrays = [np.asarray(x).astype(object) for x in np.broadcast_arrays(*arrays)]
        flat = [
            operation(*(int(v) for v in vs)) for vs in zip(*(x.flat for x in arrays), strict=True)
        ]
        return self._reduced(np.array(flat, dtype=object).reshape(arrays[0].shape))

    def _reduced(self, x):
        flat = [int(v) % self.modulus for v in np.asarray(x, dtype=object).ravel()]
        return np.array(flat, dtype=np.int64).reshape(np.shape(x))


def determinant(matrix, modulus):
    """Return the determinant by Gaussian elimination over plain integers."""
    rows = [[int(x) for x in row] for row in matrix]
    result = 1
    for i in range(len(rows)):
        pivot = next((r for r in range(i, len(rows)) if rows[r][i] % modulus), None)
        if pivot is None:
            return 0
        if pivot != i:
            rows[i], rows[pivot] = rows[pivot], rows[i]
            result = -result
        result = result * rows[i][i] % modulus
        inverse = pow(rows[i][i], -1, modulus)
        for r in range(i + 1, len(rows)):
            factor = rows[r][i] * inverse % modulus
            if factor:
                rows[r] = [
                    (a - factor * b) % modulus for a, b in zip(rows[r], rows[i], strict=True)
                ]
    return result % modulus
