"""A shard: a process that computes sums over some of the peers, or deals some of the blocks.

It keeps nothing from one call to the next, so what it was doing can be done anywhere else, with the
same bits. It has the data of all peers, which Ray holds once on every node.
"""

import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pdlrecover.cluster import one_thread
from pdlrecover.engines.dealers import Dealers
from pdlrecover.field import Elements, one_blas_thread
from pdlrecover.learning.input_scale import InputScale
from pdlrecover.recovery.requests import Vector
from pdlrecover.sharing import Scheme

WORK = ("sums", "tally", "statistics")
"""What is computed of peers: methods of `Dealers`, whose results add up."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Done:
    """What a piece of work came to, and what it took."""

    value: Any
    clipped: int = 0
    """How many updates were clipped."""
    seconds: float = 0.0
    """Processor time."""


class Shard:
    """All peers, to compute for some of them."""

    def __init__(self, blueprint: Sequence[Any]) -> None:
        """Take Ray's references to what a shard is made of.

        That is samples, labels, the rest of what `Dealers` are made of, a scheme's quorums, and its
        points.
        """
        import ray

        one_thread()
        one_blas_thread()
        x, y, peers, quorums, points = ray.get(list(blueprint))
        self._peers = Dealers(x=_seen(x), y=_seen(y), **peers)
        self._scheme = Scheme(quorums, points=points.tolist())

    def process(self) -> int:
        """Return the number of the process that this is."""
        return os.getpid()

    def compute(
        self, work: str, inputs: InputScale | None, at: Vector | None, arguments: dict[str, Any]
    ) -> Done:
        """Compute something of some peers, their inputs being on this scale."""
        if work not in WORK:
            raise ValueError(f"a shard computes {', '.join(WORK)}; got {work!r}")
        self._peers.updates.model.inputs = inputs
        before, used = self._peers.clipped, time.process_time()
        given = arguments if at is None else {**arguments, "at": np.array(at)}
        value = getattr(self._peers, work)(**given)
        return Done(
            value=value,
            clipped=self._peers.clipped - before,
            seconds=time.process_time() - used,
        )

    def deal(self, known: Elements) -> Done:
        """Return the shares that follow from secrets and drawn shares of some blocks."""
        used = time.process_time()
        value = np.ascontiguousarray(self._scheme.dealing.values(known))
        return Done(value=value, seconds=time.process_time() - used)


def _seen(array: NDArray[Any]) -> torch.Tensor:
    """Return a tensor that sees an array of Ray's, which nobody may write to; nor does anybody."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)
