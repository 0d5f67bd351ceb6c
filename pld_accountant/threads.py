"""Blocks of people over threads.

One thread works on one block, BLAS included.  The blocks do not depend on the number of threads, so no bit of a result
depends on it.  Threads inside each matrix product and each kernel would be slower, because they spin while they wait
for one another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController

__all__ = ["blocks", "few", "in_order"]

_BLOCK = 8_192
_FEW = 2_048

P = TypeVar("P")
R = TypeVar("R")


def blocks(people: int, most: int | None = None) -> list[slice]:
    """Slices of people, of at most `most` each, that keep a thread busy and fit its cache."""
    size = _BLOCK if most is None else max(min(most, _BLOCK), 1)
    return [slice(a, min(a + size, people)) for a in range(0, people, size)]


def few(people: int) -> bool:
    """Whether the work for these people takes less time than starting a thread."""
    return people <= _FEW


@cache
def _libraries() -> ThreadpoolController:
    """The BLAS that numpy has loaded."""
    return ThreadpoolController()


def in_order(work: Callable[[P], R], parts: Iterable[P], *, alone: bool = False) -> Iterator[tuple[P, R]]:
    """Each part and its result, in the order of the parts, on as many threads as numba may use.

    Parameters
    ----------
    work : callable
        Calls numpy and kernels without prange; called from several threads at once.
    parts : iterable
        Taken in the calling thread, at most one more than there are threads ahead of the results.
    alone : bool
        Work in the calling thread, for work that takes less time than starting a thread.
    """
    from .kernels._jit import get_num_threads

    threads = get_num_threads()
    with _libraries().limit(limits=1, user_api="blas"):
        if alone or threads == 1:
            for part in parts:
                yield part, work(part)
            return
        with ThreadPoolExecutor(threads) as pool:
            begun: deque[tuple[P, Future[R]]] = deque()
            for part in parts:
                begun.append((part, pool.submit(work, part)))
                if len(begun) > threads:
                    done, result = begun.popleft()
                    yield done, result.result()
            while begun:
                done, result = begun.popleft()
                yield done, result.result()
