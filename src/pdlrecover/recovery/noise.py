"""Gaussian noise, for methods whose guarantee rests on it.

Rules:

- It is the operating system's by default. A repeatable simulation passes a `Seeded` source by hand,
  and whoever knows that seed can take the noise off again.
- Box and Muller 1958: from uniform u ∈ (0, 1] and v ∈ [0, 1), √(−2 ln u) times cos 2πv and sin 2πv
  are two independent standard normal numbers.
- One process draws it. Between real peers someone would have to, and would know it. The numbers
  are float64, with the gaps that floats have: no defence against attacks on those is claimed.
"""

import numpy as np

from pdlrecover.field import Q, Source
from pdlrecover.recovery.requests import Vector


def gaussian(source: Source, *shape: int) -> Vector:
    """Return an array of independent N(0, 1) numbers."""
    size = int(np.prod(shape))
    u, v = source.elements(2, (size + 1) // 2)
    radius = np.sqrt(-2 * np.log((u + 1) / Q))
    angle = 2 * np.pi * (v / Q)
    pairs = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    return np.asarray(pairs[:size].reshape(shape))
