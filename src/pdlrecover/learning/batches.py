"""Minibatches that can be drawn again: a pure function of (seed, stream, peer, round).

Rules:

- A later exact round at t must use the batch of the original round t, and no peer may need
  another's data or place in a queue to know its own. So there is no generator with a state: each
  draw is a hash of (seed, peer, round, position), the same alone or among others.
- A stream is another sequence of minibatches: its number is mixed into the seed. A round of E
  local steps takes E minibatches, one after the other.
- The hash is the finaliser of SplitMix64 (Steele, Lea, Flood 2014), applied to one of the four
  numbers after the other. It spreads well; it keeps no secrets.
- Sampling is with replacement. A hash h gives sample ⌊(h div 2^32)·size / 2^32⌋, whose
  probability is off 1/size by less than 2^−32.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from pdlrecover.errors import DataError
from pdlrecover.learning.partition import Partition

_WORD = (1 << 64) - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def draws(
    seed: int, peers: ArrayLike, sizes: ArrayLike, round_: int, batch_size: int
) -> NDArray[np.int64]:
    """Return (peers, batch_size) positions: row i lies in 0 ≤ · < sizes[i], for peer peers[i]."""
    seat = np.asarray(peers, dtype=np.int64).astype(np.uint64)
    size = np.asarray(sizes, dtype=np.int64).astype(np.uint64)
    h = _mixed(np.array([seed & _WORD], dtype=np.uint64))
    h = _mixed(h ^ seat)
    h = _mixed(h ^ np.uint64(round_))
    h = _mixed(h[:, None] ^ np.arange(batch_size, dtype=np.uint64))
    return (((h >> np.uint64(32)) * size[:, None]) >> np.uint64(32)).astype(np.int64)


class Batches:
    """The minibatches of all peers of a partition, numbered from `first` on in what they draw."""

    def __init__(self, partition: Partition, seed: int, batch_size: int, *, first: int = 0) -> None:
        self.sizes = np.array([len(part) for part in partition], dtype=np.int64)
        if not len(partition) or not self.sizes.all() or batch_size < 1:
            raise DataError(
                "batches need peers that all hold samples, and a batch size of at least 1; got "
                f"{len(partition)} peers, {int((self.sizes == 0).sum())} of them empty, and a "
                f"batch size of {batch_size}"
            )
        self.seed = seed
        self.batch_size = batch_size
        self._first = first
        self._samples = np.concatenate(partition)
        self._starts = np.cumsum(self.sizes) - self.sizes

    def samples_of(self, peers: Sequence[int]) -> NDArray[np.int64]:
        """Return the indices of all samples that these peers hold."""
        parts = [self._samples[self._starts[p] : self._starts[p] + self.sizes[p]] for p in peers]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def indices(
        self,
        peers: Sequence[int] | NDArray[np.int64],
        round_: int,
        *,
        stream: int = 0,
        steps: int = 1,
    ) -> NDArray[np.int64]:
        """Return (peers, steps·batch_size) sample indices: what each peer draws in that round."""
        who = np.asarray(peers, dtype=np.int64)
        if who.size and (who.min() < 0 or who.max() >= len(self.sizes)):
            raise DataError(
                f"peers are numbered 0 to {len(self.sizes) - 1}, got {who.min()} to {who.max()}"
            )
        seed, count = self.seed ^ stream, steps * self.batch_size
        places = draws(seed, who + self._first, self.sizes[who], round_, count)
        places += self._starts[who, None]
        return self._samples[places]

    def take(
        self,
        x: Tensor,
        y: Tensor,
        peers: Sequence[int] | NDArray[np.int64],
        round_: int,
        *,
        stream: int = 0,
        steps: int = 1,
    ) -> tuple[Tensor, Tensor]:
        """Return those samples of x and labels of y, as (peers, draws, …), freshly copied."""
        indices = torch.from_numpy(self.indices(peers, round_, stream=stream, steps=steps))
        rows = indices.flatten()
        return (
            x.index_select(0, rows).view(*indices.shape, *x.shape[1:]),
            y.index_select(0, rows).view(indices.shape),
        )


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = z + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    return z ^ (z >> np.uint64(31))
