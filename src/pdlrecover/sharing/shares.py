"""What peers hold: shares of vectors, and shares of dot products.

They are types of their own, so that a share is never taken for a clear vector, nor one kind of
share for the other. Shares of vectors are linear: they can be added, subtracted and scaled, and
the result is a share of the sum, difference or multiple of the secrets.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from pdlrecover.errors import ShareError
from pdlrecover.field import F61, Elements, Field


@dataclass(frozen=True, kw_only=True, eq=False)
class Shares:
    """What some peers hold of one shared vector, or of a stack of vectors."""

    peers: tuple[int, ...]
    """Whose shares these are, numbered from 0; one row of `values` each."""
    values: Elements
    """values[j, …, b]: the share of peer `peers[j]` of block b (of each vector of the stack)."""
    length: int
    """How many numbers the secret vector has."""
    field: Field = field(default=F61, repr=False)

    def __post_init__(self) -> None:
        _check_peers(self.peers, self.values)
        if self.values.ndim < 2 or self.length < 1:
            raise ShareError(
                f"shares are arrays (peers, …, blocks) of vectors of at least 1 number, got shape "
                f"{self.values.shape} and length {self.length}"
            )

    @cached_property
    def elements(self) -> Elements:
        """The values, checked once to be elements of the field."""
        return self.field.elements(self.values)

    @cached_property
    def prepared(self) -> Any:
        """The shares, one vector a row, made ready for products with small public integers."""
        return self.field.prepared(self.values.reshape(-1, self.values.shape[-1]))

    def __add__(self, other: "Shares") -> "Shares":
        self._check_fits(other)
        return replace(self, values=self.field.add(self.values, other.values))

    def __sub__(self, other: "Shares") -> "Shares":
        self._check_fits(other)
        return replace(self, values=self.field.subtract(self.values, other.values))

    def scaled(self, factor: int) -> "Shares":
        """Return shares of the secret times a public element."""
        return replace(self, values=self.field.multiply(self.values, self.field.elements(factor)))

    def of(self, peers: Iterable[int]) -> "Shares":
        """Return the shares of these peers only, in their order."""
        wanted = tuple(peers)
        return replace(self, peers=wanted, values=self.values[_rows(self.peers, wanted)])

    def _check_fits(self, other: "Shares") -> None:
        if not isinstance(other, Shares):
            raise ShareError(f"shares combine with shares only, got {type(other).__name__}")
        if self.peers != other.peers:
            raise ShareError(
                f"shares of different peers cannot be combined, {self.peers[:3]}… and "
                f"{other.peers[:3]}…; select the same ones with `of` first"
            )
        if self.length != other.length or self.values.shape != other.values.shape:
            raise ShareError(
                f"shares of different lengths cannot be combined: {self.length} numbers as "
                f"{self.values.shape} and {other.length} numbers as {other.values.shape}"
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class DotShares:
    """What some peers hold of a dot product, or of the mask for one; of one, or of several."""

    peers: tuple[int, ...]
    values: Elements
    """values[j, …]: the share of peer `peers[j]`."""
    degree: int
    """The degree of the polynomial these are values of."""
    field: Field = field(default=F61, repr=False)

    def __post_init__(self) -> None:
        _check_peers(self.peers, self.values)

    def __add__(self, other: "DotShares") -> "DotShares":
        ours, theirs = ((dots.peers, dots.degree, dots.values.shape) for dots in (self, other))
        if ours != theirs:
            raise ShareError(
                f"only shares of the same peers, degree and shape can be added, got degrees "
                f"{self.degree} and {other.degree}, shapes {self.values.shape} and "
                f"{other.values.shape}"
            )
        return replace(self, values=self.field.add(self.values, other.values))

    def of(self, peers: Iterable[int]) -> "DotShares":
        """Return the shares of these peers only, in their order."""
        wanted = tuple(peers)
        return replace(self, peers=wanted, values=self.values[_rows(self.peers, wanted)])


def _check_peers(peers: tuple[int, ...], values: Elements) -> None:
    if not isinstance(values, np.ndarray) or values.dtype != np.int64:
        got = values.dtype if isinstance(values, np.ndarray) else type(values).__name__
        raise ShareError(f"shares are int64 arrays of field elements, got {got}")
    if len(set(peers)) != len(peers):
        twice = next(peer for peer in peers if peers.count(peer) > 1)
        raise ShareError(f"each peer may give one share, got two of peer {twice}; keep the first")
    if len(peers) != len(values):
        raise ShareError(f"each peer has one row, got {len(peers)} peers and {len(values)} rows")


def _rows(held: tuple[int, ...], wanted: tuple[int, ...]) -> list[int]:
    position = {peer: row for row, peer in enumerate(held)}
    missing = [peer for peer in wanted if peer not in position]
    if missing:
        raise ShareError(f"no share of peer {missing[0]} here, only of {len(held)} other peers")
    return [position[peer] for peer in wanted]
