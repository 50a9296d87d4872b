"""SS-L-BFGS: the curvature that recovery corrects stored updates with, while the pairs stay shared.

Legend: W = [ΔW] public and G = [ΔG] shared, both d×s, oldest pair first; v the public displacement
ŵ − w̄; Q a public positive diagonal (1 for SGD, √v̂ + ε of a replayed Adam).

1. A = WᵀG is opened entry by entry as pairs come in; u = Gᵀv in every estimated round.
2. In public, with D = diag(A), M the *strictly* lower triangle of A, ρ = τ·A_ss / (w_sᵀQw_s):

       [ −D    Mᵀ    ] [p₁]   [ u      ]
       [  M   ρWᵀQW  ] [p₂] = [ ρWᵀQv  ]

3. H̃v = ρQv − G·p₁ − ρQW·p₂ (the compact direct form of Byrd, Nocedal & Schnabel 1994 with
   B₀ = ρQ). Its shared part −G·p₁ has public coefficients, hence is linear in the shares.

τ is 1, and ½ in a metric. H̃ fulfils the secant equation H̃·w_s = g_s for the newest pair.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from pdlrecover.recovery import same_bits
from pdlrecover.recovery.requests import Asking, Dots, Vector


@dataclass(frozen=True, kw_only=True, eq=False)
class Correction:
    """H̃v in two parts: coefficients of the shared pairs, and a public vector."""

    coefficients: tuple[float, ...]
    """−p₁, one for each pair, oldest first."""
    public: Vector
    """ρQv − ρQW·p₂."""


@dataclass(kw_only=True, eq=False)
class Curvature:
    """The last s pairs: their rounds, their public halves W, and what is open of A."""

    size: int
    rounds: list[int] = field(default_factory=list)
    products: dict[tuple[int, int], float] = field(default_factory=dict)
    """A by rounds: products[i, j] = ΔW_iᵀ ΔG_j, opened when an estimate first needs it."""
    _rows: list[Vector] = field(default_factory=list)
    _gram: list[list[float]] | None = None

    def add(self, round: int, displacement: Vector) -> None:
        """Add the pair of a round, and drop the oldest beyond the size."""
        self.rounds = [*self.rounds, round][-self.size :]
        self._rows = [*self._rows, displacement][-self.size :]
        self._gram = None

    def estimate(
        self, v: Vector, metric: Vector | None, damping: float
    ) -> Asking[Correction | None]:
        """Open u = Gᵀv, and what is not open yet of A; return H̃v, or None if it cannot be had."""
        if metric is None and self._gram is None:
            self._gram = [same_bits.dots(self._rows, row) for row in self._rows]
        yield from self._open_products(self._rows)
        u = yield Dots(pairs=tuple(self.rounds), vectors=v[None])
        a = [[self.products[i, j] for j in self.rounds] for i in self.rounds]
        gram = self._gram if metric is None else None
        return correction(a, [float(x) for x in u[0]], self._rows, v, metric, damping, gram)

    def _open_products(self, w: Sequence[Vector]) -> Asking[None]:
        """Open the rows and columns of A that belong to new pairs."""
        new = [b for b in self.rounds if (b, b) not in self.products]
        old = [b for b in self.rounds if b not in new]
        self.products = {k: a for k, a in self.products.items() if {*k} <= {*self.rounds}}
        for vectors, pairs in ((new, self.rounds), (old, new)):
            if vectors and pairs:
                rows = np.stack([w[self.rounds.index(b)] for b in vectors])
                opened = yield Dots(pairs=tuple(pairs), vectors=rows)
                for i, values in zip(vectors, opened, strict=True):
                    self.products.update(
                        {(i, j): float(x) for j, x in zip(pairs, values, strict=True)}
                    )


def correction(
    a: list[list[float]],
    u: list[float],
    w: Sequence[Vector],
    v: Vector,
    metric: Vector | None = None,
    damping: float = 1.0,
    gram: list[list[float]] | None = None,
) -> Correction | None:
    """Do steps 2 and 3 in public. w has the displacements; None if the system is singular.

    `gram` is WᵀQW where it is known already.
    """
    s = len(u)
    weighted = w if metric is None else [row * metric for row in w]
    if gram is None:
        gram = [same_bits.dots(weighted, row) for row in w]
    along = same_bits.dots(weighted, v)
    if not gram[-1][-1] > 0:
        return None
    rho = damping * a[-1][-1] / gram[-1][-1]
    upper = [
        [-a[i][i] if i == j else 0.0 for j in range(s)]
        + [a[j][i] if j > i else 0.0 for j in range(s)]
        for i in range(s)
    ]
    lower = [
        [a[i][j] if i > j else 0.0 for j in range(s)] + [rho * gram[i][j] for j in range(s)]
        for i in range(s)
    ]
    solution = same_bits.solve(upper + lower, u + [rho * x for x in along])
    if solution is None:
        return None
    p1, p2 = solution[:s], solution[s:]
    public, spare = v.copy(), np.empty_like(v)
    for coefficient, row in zip(p2, w, strict=True):
        public -= np.multiply(row, coefficient, out=spare)
    if metric is not None:
        public *= metric
    public *= rho
    return Correction(coefficients=tuple(-p for p in p1), public=public)


@dataclass(kw_only=True, eq=False)
class OpenedCurvature:
    """The last s pairs with both halves in the clear."""

    size: int
    displacements: list[Vector] = field(default_factory=list)
    differences: list[Vector] = field(default_factory=list)
    _products: tuple[list[list[float]], list[list[float]]] | None = None
    """A and WᵀW, until a pair is added."""

    def add(self, displacement: Vector, difference: Vector) -> None:
        """Add a pair (ΔW, ΔG) and drop the oldest beyond the size."""
        self.displacements = [*self.displacements, displacement][-self.size :]
        self.differences = [*self.differences, difference][-self.size :]
        self._products = None

    def product(self, v: Vector, metric: Vector | None, damping: float) -> Vector | None:
        """Return H̃v, or None where it cannot be computed."""
        w, g = self.displacements, self.differences
        if self._products is None:
            a = [same_bits.dots(g, row) for row in w]
            self._products = a, [same_bits.dots(w, row) for row in w]
        a, gram = self._products
        u = same_bits.dots(g, v)
        found = correction(a, u, w, v, metric, damping, gram if metric is None else None)
        if found is None:
            return None
        total, spare = found.public, np.empty_like(v)
        for coefficient, row in zip(found.coefficients, g, strict=True):
            total += np.multiply(row, coefficient, out=spare)
        return total
