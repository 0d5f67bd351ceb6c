"""Base class of objects with parameters and a state: save to a file, load, resume."""

from __future__ import annotations

import functools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ..locked import Locked, held
from . import store

__all__ = ["SavedState"]

_KIND = "accounting state"
_FILE_VERSION = 1
_S = TypeVar("_S", bound="SavedState")


def _load(cls: type[_S], path: str | os.PathLike[str], **expected: Any) -> _S:
    """Read a file that `save` wrote.

    On the class, it makes a new object with the parameters in the file; parameters given as keywords must agree with
    the file.  On an object, it replaces the state of this object, and all parameters must agree with the file.

    Raises
    ------
    FileNotFoundError
    StoreError
        If the file is not whole, or holds an object of another class or with other parameters.
    """
    header, arrays = store.load(path, _KIND, _FILE_VERSION)
    if header["class"] != cls.__name__:
        raise store.StoreError(f"{os.fspath(path)} holds a {header['class']}, not a {cls.__name__}")
    saved = header["parameters"]
    unknown = sorted(set(expected) - set(saved))
    if unknown:
        raise TypeError(f"{cls.__name__} has no parameter {unknown[0]!r}")
    for name, value in expected.items():
        if _plain(value) != saved[name]:
            raise store.StoreError(f"{os.fspath(path)} was saved with {name}={saved[name]!r}, not {value!r}")
    new = cls(**saved)
    new._restore(arrays)
    return new


def _load_into(instance: _S, path: str | os.PathLike[str]) -> _S:
    new = _load(type(instance), path, **instance.parameters)
    with held(instance):
        instance.__dict__.update(new.__dict__)
    return instance


class _Load:
    """Binds `load` to a class or an object: ``filter.load(path)`` fills the filter instead of returning a new one."""

    __doc__ = _load.__doc__

    def __get__(self, instance: _S | None, owner: type[_S]) -> Callable[..., _S]:
        bound: Callable[..., _S] = functools.partial(_load, owner)
        if instance is not None:
            bound = functools.partial(_load_into, instance)
        bound.__doc__ = _load.__doc__
        return bound


def _plain(value: Any) -> Any:
    """A parameter in the form that JSON returns."""
    if isinstance(value, (np.ndarray, list, tuple)):
        return [_plain(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value


class SavedState(Locked, ABC):
    """Parameters, state, and files of them."""

    load = _Load()

    def __init__(self, parameters: dict[str, Any]) -> None:
        self._parameters = {name: _plain(value) for name, value in parameters.items()}

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return dict(self._parameters)

    @abstractmethod
    def _state(self) -> dict[str, np.ndarray]:
        """The state as arrays, for a file."""

    @abstractmethod
    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Take over a result of `_state`, or raise `StoreError`."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write parameters and state to one file, atomically and with a checksum.

        Save after a step is booked and before it is released.  A crash in between then over-counts, which is safe.

        Raises
        ------
        OSError
            If the file cannot be written; an existing file is unchanged.
        """
        header = {"class": type(self).__name__, "parameters": self._parameters}
        store.save(path, _KIND, _FILE_VERSION, header, self._state())

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self._parameters.items())
        return f"{type(self).__name__}({arguments})"
