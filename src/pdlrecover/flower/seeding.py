"""Makes what a program draws a function of a seed, and leaves global random states as they were.

It seeds Python's `random`, numpy's global generator and torch's, which is where Flower apps draw
from unless they open a generator of their own. One thread at a time: these states are global.
"""

import hashlib
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def seeded(*parts: object) -> Iterator[None]:
    """Draw from a seed that is made of these parts, until the end of this."""
    digest = hashlib.sha256("\n".join(map(str, parts)).encode()).digest()
    with _ONE_AT_A_TIME, torch.random.fork_rng():
        python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 (to restore it)
        try:
            random.seed(digest)
            np.random.seed(np.frombuffer(digest, dtype=np.uint32))  # noqa: NPY002
            torch.manual_seed(int.from_bytes(digest[:8], "little"))
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002
