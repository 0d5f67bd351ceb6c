"""Things that are made from a few parameters, keep a state, and can be saved and gone on with."""

from __future__ import annotations

import functools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from . import store

__all__ = ["Stored"]

_KIND = "accounting state"
_FILE_VERSION = 1
_S = TypeVar("_S", bound="Stored")


def _load(cls: type[_S], path: str | os.PathLike[str], **expected: Any) -> _S:
    """What `save` wrote.

    Called on the class, it makes a new object with the file's parameters; those given as keywords must agree
    with the file's.  Called on an object, it fills that object, whose parameters must all agree.

    Raises
    ------
    FileNotFoundError
    StoreError
        If the file is not whole, or holds something of another class or with other parameters.
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
    instance.__dict__.update(new.__dict__)
    return instance


class _Load:
    """Binds `load` to a class or an object, so that ``filter.load(path)`` can never leave a full budget."""

    __doc__ = _load.__doc__

    def __get__(self, instance: _S | None, owner: type[_S]) -> Callable[..., _S]:
        bound: Callable[..., _S] = functools.partial(_load, owner)
        if instance is not None:
            bound = functools.partial(_load_into, instance)
        bound.__doc__ = _load.__doc__
        return bound


def _plain(value: Any) -> Any:
    """A parameter as JSON gives it back."""
    if isinstance(value, (np.ndarray, list, tuple)):
        return [_plain(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value


class Stored(ABC):
    """Parameters, state, and the files that hold them."""

    load = _Load()

    def __init__(self, parameters: dict[str, Any]) -> None:
        self._parameters = {name: _plain(value) for name, value in parameters.items()}

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments this was made with."""
        return dict(self._parameters)

    @abstractmethod
    def _state(self) -> dict[str, np.ndarray]:
        """The arrays that a file must hold."""

    @abstractmethod
    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Take over what `_state` gave, or raise `StoreError`."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write parameters and state to one file, atomically and checksummed.

        Save after a step is booked and before it is released: a crash in between then only over-counts.

        Raises
        ------
        OSError
            If the file cannot be written; what stood there before is untouched.
        """
        header = {"class": type(self).__name__, "parameters": self._parameters}
        store.save(path, _KIND, _FILE_VERSION, header, self._state())

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self._parameters.items())
        return f"{type(self).__name__}({arguments})"
