"""Blocks of people or of buckets over threads.

One thread works on one block, BLAS included.  The blocks do not depend on the number of threads, so no bit of a result
depends on it.  Threads inside each matrix product would be slower, because they spin while they wait for one another.

The threads are Python's, and end with the call that started them.  Calls from several threads at once are therefore
safe, and so is a fork between two calls.  ``NUMBA_NUM_THREADS`` and `numba.set_num_threads` limit their number; the
latter holds for the thread that calls it.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from functools import cache
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from . import deadline

__all__ = ["blocks", "by_blocks", "few", "for_blocks", "in_order", "limited"]

_BLOCK = 8_192
_FEW = 2_048
_MOST_BLOCKS = 64  # of `for_blocks`: enough to keep many threads busy, and few enough that calls cost little

P = TypeVar("P")
R = TypeVar("R")


def blocks(people: int, most: int | None = None) -> list[slice]:
    """Slices of people, of at most `most` each, that keep a thread busy and fit its cache."""
    size = _BLOCK if most is None else max(min(most, _BLOCK), 1)
    return _slices(people, size)


def _slices(number: int, size: int) -> list[slice]:
    return [slice(a, min(a + size, number)) for a in range(0, number, size)]


def few(people: int) -> bool:
    """Whether the work for these people takes less time than starting a thread."""
    return people <= _FEW


_own = threading.local()


def _limit() -> int:
    """How many threads the calling thread may use."""
    from .kernels._jit import thread_limit

    return min(thread_limit(), getattr(_own, "most", thread_limit()))


# ------------------------------------------------------------------------------------------------------------- BLAS


@cache
def _libraries() -> ThreadpoolController:
    """The BLAS that numpy has loaded."""
    return ThreadpoolController()


class _Blas:
    """The number of threads of BLAS, which belongs to the process: 1 while anybody in `alone` needs it to be 1.

    The first to enter sets it and the last to leave restores it.  If each restored what it had found, the last to leave
    could restore the 1 that another one had set.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # re-entrant: an abandoned generator may leave at any time
        self._inside: dict[object, int] = {}  # the thread of each
        self._before: Any = None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One thread for each matrix product."""
        me = object()
        with self._lock:
            self._inside[me] = threading.get_ident()
            if self._before is None:
                self._before = _libraries().limit(limits=1, user_api="blas")
        try:
            yield
        finally:
            with self._lock:
                self._leave(me)

    def _leave(self, me: object) -> None:
        self._inside.pop(me, None)
        if not self._inside and self._before is not None:
            before, self._before = self._before, None
            before.restore_original_limits()

    def after_fork(self) -> None:
        """Forget the threads that the child does not have."""
        self._lock = threading.RLock()
        for one, thread in list(self._inside.items()):
            if thread != threading.get_ident():
                self._leave(one)


_BLAS = _Blas()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_BLAS.after_fork)


@contextmanager
def limited(most: int) -> Iterator[None]:
    """At most so many threads for the calls of the calling thread, and one for each matrix product."""
    before = getattr(_own, "most", None)
    _own.most = most
    try:
        with _BLAS.alone():
            yield
    finally:
        if before is None:
            del _own.most
        else:
            _own.most = before


# ------------------------------------------------------------------------------------------------------- the threads


def in_order(work: Callable[[P], R], parts: Iterable[P], *, alone: bool = False) -> Iterator[tuple[P, R]]:
    """Each part and its result, in the order of the parts, on several threads.

    Parameters
    ----------
    work : callable
        Calls numpy and kernels; called from several threads at once.
    parts : iterable
        Taken in the calling thread, at most one more than there are threads ahead of the results.
    alone : bool
        Work in the calling thread, for work that takes less time than starting a thread.
    """

    def checked(part: P) -> R:
        deadline.check()
        return work(part)

    threads = _limit()
    with _BLAS.alone():
        if alone or threads == 1:
            for part in parts:
                yield part, checked(part)
            return
        with ThreadPoolExecutor(threads) as pool:
            begun: deque[tuple[P, Future[R]]] = deque()
            for part in parts:
                begun.append((part, pool.submit(copy_context().run, checked, part)))
                if len(begun) > threads:
                    done, result = begun.popleft()
                    yield done, result.result()
            while begun:
                done, result = begun.popleft()
                yield done, result.result()


def by_blocks(work: Callable[[slice], R], people: int) -> list[R]:
    """The results for the `blocks` of so many people, in order, on several threads unless the people are `few`."""
    return [result for _, result in in_order(work, blocks(people), alone=few(people))]


def for_blocks(work: Callable[[slice], object], number: int, least: int) -> None:
    """Call a kernel for blocks of `number` rows, on several threads, the calling thread among them.

    Parameters
    ----------
    work : callable
        Called once for each slice of rows, from several threads at once.  It must not hold the GIL for long, and what
        it writes for a row must depend on this row only.
    number : int
    least : int
        Rows of a block, at least: about 0.2 milliseconds of work.  A single block is done without threads.

    Raises
    ------
    Exception
        The first that `work` raises, after all blocks have been tried.  After an interrupt blocks may be missing, but
        no thread works any more.
    """
    parts = _slices(number, max(least, -(-number // _MOST_BLOCKS), 1))
    if len(parts) == 1:
        work(parts[0])
        return
    waiting = deque(parts)
    errors: list[BaseException] = []

    def take_blocks() -> None:
        while True:
            try:
                block = waiting.popleft()
            except IndexError:
                return
            try:
                deadline.check()
                work(block)
            except BaseException as error:
                errors.append(error)

    def take_some(done: threading.Event) -> None:
        take_blocks()
        done.set()

    with ExitStack() as running:
        for _ in range(min(_limit(), len(waiting)) - 1):
            done = threading.Event()
            helper = threading.Thread(target=copy_context().run, args=(take_some, done))
            helper.start()
            running.callback(_wait_for, helper, done)
        take_blocks()
    if errors:
        raise errors[0]


def _wait_for(thread: threading.Thread, done: threading.Event) -> None:
    """Wait until a thread has ended, also after an interrupt, at which `join` alone would take it for ended."""
    try:
        done.wait()
    finally:
        done.wait()
        thread.join()
