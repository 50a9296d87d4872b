"""Threads of our own, each with its own scratch memory, and with one thread of BLAS.

Rules:

- Work is spread over a small pool: as many threads as there are cores, or as PDLRECOVER_THREADS
  says. Work inside of a pool's thread stays in that thread.
- While the pool works, numpy's BLAS is limited to one thread. Its own threads would leave
  elementwise passes to one core, and wait for each other in every small piece.
- Scratch memory is kept for each thread: touching fresh pages costs as much as the arithmetic.
"""

import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from pdlrecover.errors import FieldError

Result = TypeVar("Result")

ELEMENTWISE = 1 << 16
"""Elementwise work outside of products runs over this many elements at a time."""


@cache
def count() -> int:
    """Return how many threads a product uses: all cores, or what PDLRECOVER_THREADS says."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    asked = os.environ.get("PDLRECOVER_THREADS") or str(cores or 1)
    if not asked.isdecimal() or int(asked) < 1:
        raise FieldError(f"PDLRECOVER_THREADS must be a whole number from 1 on, got {asked!r}")
    return int(asked)


def in_parallel(tasks: Sequence[Callable[[], Result]]) -> list[Result]:
    """Do independent tasks on as many threads as cores; each by itself uses one."""
    results: list[Result | None] = [None] * len(tasks)

    def one(i: int) -> None:
        results[i] = tasks[i]()

    for_each(one, range(len(tasks)))
    return cast(list[Result], results)


def for_each_part(work: Callable[[slice], None], rows: int, row_size: int) -> None:
    """Do elementwise work on slices of rows that fit the cache, on as many threads as cores."""
    step = max(1, ELEMENTWISE // max(1, row_size))

    def some(rows: slice) -> None:
        for i in range(rows.start, rows.stop, step):
            work(slice(i, min(i + step, rows.stop)))

    for_each_slice(some, rows)


def for_each_slice(work: Callable[[slice], None], rows: int) -> None:
    """Cut the rows in one slice for each thread."""
    size = max(1, -(-rows // count()))
    for_each(lambda i: work(slice(i, min(i + size, rows))), range(0, rows, size))


def for_each(work: Callable[[int], None], starts: range) -> None:
    """Do all pieces of work, by their starts, on the pool's threads."""
    if len(starts) < 2 or count() < 2 or room.is_worker:
        one_by_one(work, starts)
        return
    with _one_blas_thread_for_now():
        list(_pool(count()).map(work, starts))


def one_by_one(work: Callable[[int], None], starts: range) -> None:
    """Do all pieces of work in this thread."""
    for start in starts:
        work(start)


def one_blas_thread() -> None:
    """Limit BLAS to one thread from now on, for processes that compute by `matmul` and torch.

    Its idle threads spin for a while after every product, and torch's threads have to wait.
    """
    _blas().limit(limits=1, user_api="blas")


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


_limiting = threading.Lock()
_limits: list[Any] = []
"""The limit in force, once for every thread that is inside of it."""


@contextmanager
def _one_blas_thread_for_now() -> Iterator[None]:
    """Limit BLAS while anybody is in here; the limit is the process's, so the last one lifts it."""
    with _limiting:
        _limits.append(_limits[0] if _limits else _blas().limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _limiting:
            limit = _limits.pop()
            if not _limits:
                limit.restore_original_limits()


@cache
def _pool(size: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(size, "pdlrecover-field", initializer=room.become_worker)


if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_pool.cache_clear)


class _Room(threading.local):
    """Each thread's scratch memory, kept: touching fresh memory costs more than the arithmetic."""

    def __init__(self) -> None:
        self._kept: dict[str, NDArray[Any]] = {}
        self.is_worker = False

    def become_worker(self) -> None:
        """Mark this thread as one of the pool's: it must not wait for the pool itself."""
        self.is_worker = True

    def take(self, name: str, dtype: type, *shape: int) -> NDArray[Any]:
        """Return an uninitialised array; the next call of the same name may overwrite it."""
        size = math.prod(shape)
        kept = self._kept.get(name)
        if kept is None or kept.size < size:
            kept = self._kept[name] = np.empty(size, dtype=dtype)
        return kept[:size].reshape(shape)


room = _Room()
