"""A limit of time for an answer, which everything below the question sees.

Work that may take long calls `check` between its pieces.  After the limit it raises `OutOfTime`, and whoever can do
without the work catches it.  The limit belongs to the calling thread and to the threads that `threads` starts for it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import NamedTuple

from . import validate

__all__ = ["OutOfTime", "check", "left", "limited", "shared", "strict"]

_MORE, _LEAST = 0.25, 0.5  # what must be there for any answer may take longer by this share, and these seconds at least


class OutOfTime(Exception):
    """The time that the user has set is over."""


class _Limit(NamedTuple):
    """Times on the clock `time.monotonic`: for what tightens an answer, for what it cannot do without, and for now."""

    soft: float = math.inf
    hard: float = math.inf
    now: float = math.inf


_NONE = _Limit()
_current: ContextVar[_Limit] = ContextVar("limit", default=_NONE)


@contextmanager
def _set(limit: _Limit) -> Iterator[None]:
    token = _current.set(limit)
    try:
        yield
    finally:
        _current.reset(token)


def limited(seconds: float | None, *, essentials: bool = False) -> AbstractContextManager[None]:
    """An answer that takes so many seconds; None: no limit but those that are set already.

    essentials: whether what an answer cannot do without has a limit as well, later than this one.  Only then may
    `check` raise outside of `strict`.
    """
    before = _current.get()
    if seconds is None:
        return nullcontext()
    begin, length = time.monotonic(), validate.positive(seconds, "seconds")
    hard = min(before.hard, begin + length + max(_MORE * length, _LEAST)) if essentials else before.hard
    return _set(_Limit(min(before.soft, begin + length), hard, min(before.now, hard)))


def strict() -> AbstractContextManager[None]:
    """Work that an answer can do without."""
    limit = _current.get()
    return _set(limit._replace(now=min(limit.now, limit.soft)))


def shared(parts: int) -> AbstractContextManager[None]:
    """The first of so many pieces of work that share the time that is left."""
    limit, now = _current.get(), time.monotonic()
    return _set(limit._replace(soft=now + (limit.soft - now) / parts))


def left() -> float:
    """Seconds that remain for what tightens an answer; at most 0 after the limit, inf without one."""
    return _current.get().soft - time.monotonic()


def check() -> None:
    """Raise `OutOfTime` if the time for the present work is over."""
    now = _current.get().now
    if now < math.inf and time.monotonic() > now:
        raise OutOfTime
