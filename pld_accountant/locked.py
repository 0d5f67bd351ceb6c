"""`Locked`: the base class of objects that several threads may use, and that can be copied and pickled at any time."""

from __future__ import annotations

import copy
import functools
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

__all__ = ["Locked", "held", "unlocked"]

_C = TypeVar("_C", bound=Callable[..., Any])
_T = TypeVar("_T", bound="Locked")

_ALIVE: weakref.WeakValueDictionary[int, Locked] = weakref.WeakValueDictionary()


class Locked:
    """An object with a lock that its public methods and properties hold while they run.

    One thread at a time is inside of an object; the others wait.  The lock is re-entrant.  A method whose name begins
    with an underscore takes no lock: it runs inside of a public one.

    **Copies**: `copy.copy`, `copy.deepcopy` and `pickle` make a snapshot with arrays and a lock of its own.  Steps
    booked in a copy do not change the original.

    **Fork**: a forked child has a copy.  If another thread of the parent was inside of the object during the fork, the
    copy may hold half of a step: every use of the copy then raises RuntimeError.
    """

    __slots__ = ("__weakref__", "_lock")

    _lock: Any

    def __new__(cls: type[_T], *_given: Any, **_named: Any) -> _T:
        new = super().__new__(cls)
        new._lock = threading.RLock()
        _ALIVE[id(new)] = new
        return new

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        for name, value in list(vars(cls).items()):
            if name.startswith("_") or getattr(value, "_unlocked", False):
                continue
            if isinstance(value, property):
                read, write, delete = map(_locking, (value.fget, value.fset, value.fdel))
                setattr(cls, name, property(read, write, delete, value.__doc__))
            elif callable(value) and hasattr(value, "__code__"):
                setattr(cls, name, _locking(value))

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; public values are set once, by the constructor, unless they have a setter."""
        if not name.startswith("_") and not callable(self.__dict__.get(name, callable)):
            raise AttributeError(f"{name} of a {type(self).__name__} cannot be changed; make another object")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        """Delete an attribute that is not public."""
        if not name.startswith("_") and not callable(self.__dict__.get(name, callable)):
            raise AttributeError(f"{name} of a {type(self).__name__} cannot be deleted")
        super().__delattr__(name)

    def _copied(self) -> dict[str, Any]:
        """The attributes of which a copy is made."""
        return self.__dict__

    def __copy__(self: _T) -> _T:
        return copy.deepcopy(self)

    def __deepcopy__(self: _T, memo: dict[int, Any]) -> _T:
        new = memo[id(self)] = _blank(type(self))
        with self._lock:
            new.__dict__.update(copy.deepcopy(self._copied(), memo))
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        # pickle reads the arrays after this method has released the lock: it gets arrays of its own
        with self._lock:
            return _blank, (type(self),), copy.deepcopy(self._copied())


def _blank(cls: type[_T]) -> _T:
    """An object without attributes."""
    return cls.__new__(cls)


def _locking(function: Any) -> Any:
    """The function, which holds the lock of its first argument."""
    if function is None:
        return None

    @functools.wraps(function)
    def call(self: Locked, *given: Any, **named: Any) -> Any:
        with self._lock:
            return function(self, *given, **named)

    return call


def unlocked(function: _C) -> _C:
    """Mark a public method that takes its locks itself."""
    function._unlocked = True  # type: ignore[attr-defined]
    return function


@contextmanager
def held(*objects: Locked) -> Iterator[None]:
    """Hold the locks of some objects, so that several calls are one; in one order, so that no two threads wait for
    each other.
    """
    with ExitStack() as stack:
        for one in sorted(objects, key=id):
            stack.enter_context(one._lock)
        yield


class _Torn:
    """The lock of an object that a thread was changing when the process was forked."""

    def __enter__(self) -> None:
        raise RuntimeError(
            "another thread of the parent process was using this object when the process was forked, so this copy may "
            "hold half of a step; fork while no other thread uses the object, or send it to the child by pickle"
        )

    def __exit__(self, *_error: object) -> None:
        """Never reached."""


def _after_fork() -> None:
    for one in list(_ALIVE.values()):
        if one._lock.acquire(blocking=False):
            one._lock.release()
        else:
            one._lock = _Torn()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
