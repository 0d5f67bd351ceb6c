"""Objects with parameters and a state: save to a file, load, resume.

A file is not trusted, even if its checksum is right.  An object is made from it by its constructor, which checks the
parameters.  Its `_restore` then takes each array from a `SavedArrays` with the type, shape and range that the object
relies on.  Every failure is a `StoreError`, so no kernel sees an array that does not fit.
"""

from __future__ import annotations

import functools
import os
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from .. import validate
from ..locked import Locked, held
from . import store

__all__ = ["Load", "SavedArrays", "SavedState", "agree", "belongs"]

_KIND = "accounting state"
_FILE_VERSION = 1
_S = TypeVar("_S", bound="SavedState")
_T = TypeVar("_T", bound=Locked)


def belongs(
    array: np.ndarray,
    name: str,
    dtypes: DTypeLike | tuple[DTypeLike, ...],
    shape: tuple[int | None, ...],
    least: float = -np.inf,
    most: float = np.inf,
) -> None:
    """Raise `StoreError` unless an array has one of these types, this shape, and finite values from least to most.

    None stands for any length of at least 1.
    """
    kinds = [np.dtype(d) for d in (dtypes if isinstance(dtypes, tuple) else (dtypes,))]
    same = len(array.shape) == len(shape) and all(
        have == want or (want is None and have > 0) for have, want in zip(array.shape, shape, strict=True)
    )
    if array.dtype not in kinds or not same:
        wanted = f"{' or '.join(str(kind) for kind in kinds)} of shape {shape}"
        raise store.StoreError(f"{name} does not belong here: {array.dtype} of shape {array.shape}, not {wanted}")
    if array.size:
        low, high = array.min(), array.max()  # NaN if there is one
        if not (least <= low and high <= most and np.isfinite(low) and np.isfinite(high)):
            raise store.StoreError(f"{name} does not belong here: it holds numbers outside {least} to {most}")


class SavedArrays:
    """The arrays of a file, each to be taken once.

    Examples
    --------
    >>> saved = SavedArrays({"left": np.array([3, 4])})
    >>> saved.take("left", np.int64, (2,), least=0)
    array([3, 4])
    >>> saved.finish()
    """

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self._arrays = dict(arrays)

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def take(
        self,
        name: str,
        dtypes: DTypeLike | tuple[DTypeLike, ...],
        shape: tuple[int | None, ...],
        *,
        least: float = -np.inf,
        most: float = np.inf,
    ) -> np.ndarray:
        """Remove an array and return it C-contiguous, or raise `StoreError` (see `belongs`)."""
        if name not in self._arrays:
            raise store.StoreError(f"it has no part {name!r}")
        array = self._arrays.pop(name)
        belongs(array, name, dtypes, shape, least, most)
        return np.asarray(array, order="C")

    def optional(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Remove and return, unchecked, the arrays with these names that there are."""
        return {name: self._arrays.pop(name) for name in names if name in self._arrays}

    def finish(self) -> None:
        """Raise `StoreError` if an array has not been taken."""
        if self._arrays:
            raise store.StoreError(f"it has unknown parts: {', '.join(sorted(self._arrays))}")


def agree(path: str | os.PathLike[str], expected: dict[str, Any], saved: dict[str, Any]) -> None:
    """Raise unless a file was saved with these parameters."""
    unknown = sorted(set(expected) - set(saved))
    if unknown:
        raise TypeError(f"{os.fspath(path)} has no parameter {unknown[0]!r}")
    for name, value in expected.items():
        if _plain(value) != saved[name]:
            raise store.StoreError(f"{os.fspath(path)} was saved with {name}={saved[name]!r}, not {value!r}")


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
    with store.refuse_invalid(path, _KIND):
        name, saved = str(header.pop("class")), dict(header.pop("parameters"))
    if name != cls.__name__:
        raise store.StoreError(f"{os.fspath(path)} holds a {name}, not a {cls.__name__}")
    agree(path, expected, saved)
    with store.refuse_invalid(path, _KIND):
        if cls._numbers(saved) > max(array.size for array in arrays.values()):
            raise ValueError("its arrays are too short for its parameters")
        new = cls(**saved)
        if new._parameters != saved or header:
            raise ValueError("its header has unknown parts, or parameters of another type")
        state = SavedArrays(arrays)
        new._restore(state)
        state.finish()
    return new


class Load:
    """A method `load` of a class or an object: ``filter.load(path)`` fills the filter instead of making a new one.

    Parameters
    ----------
    of_class : callable
        From the class, a path and parameters that must agree with the file to a new object.
    parameters : callable
        From an object to the parameters that must agree.
    """

    def __init__(self, of_class: Callable[..., Any], parameters: Callable[[Any], dict[str, Any]]) -> None:
        self._of_class, self._parameters = of_class, parameters
        self.__doc__ = of_class.__doc__

    def __get__(self, instance: _T | None, owner: type[_T]) -> Callable[..., _T]:
        bound: Callable[..., _T] = functools.partial(self._of_class, owner)
        if instance is not None:
            bound = functools.partial(self._into, instance)
        bound.__doc__ = self.__doc__
        return bound

    def _into(self, instance: _T, path: str | os.PathLike[str]) -> _T:
        new = self._of_class(type(instance), path, **self._parameters(instance))
        with held(instance):
            instance.__dict__.clear()  # also of what was derived from the old state, such as tables
            instance.__dict__.update(new.__dict__)
        return instance


def _plain(value: Any) -> Any:
    """A parameter in the form that JSON returns."""
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value


class SavedState(Locked, ABC):
    """Parameters, state, and files of them."""

    load = Load(_load, lambda instance: instance.parameters)

    def __init__(self, parameters: dict[str, Any]) -> None:
        self._parameters = {name: _plain(value) for name, value in parameters.items()}

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return {name: _plain(value) for name, value in self._parameters.items()}

    @abstractmethod
    def _state(self) -> dict[str, np.ndarray]:
        """The state as arrays, for a file."""

    @abstractmethod
    def _restore(self, saved: SavedArrays) -> None:
        """Take over a result of `_state`, or raise `StoreError`."""

    @classmethod
    def _numbers(cls, parameters: dict[str, Any]) -> int:
        """How many numbers an object with these parameters keeps at least; its file must hold an array of this size.

        A file that claims more people than it holds is refused before the constructor allocates memory for them.
        """
        people = validate.count(parameters["num_examples"], "num_examples", least=1)
        return people if parameters.get("individual", True) else 1

    def save(self, path: str | os.PathLike[str] | BinaryIO) -> None:
        """Write parameters and state to one file, atomically and with a checksum, or to a file open for writing bytes.

        Save after a step is booked and before it is released.  A crash in between then over-counts, which is safe.

        Raises
        ------
        OSError
            If the file cannot be written; an existing file is unchanged.
        """
        header = {"class": type(self).__name__, "parameters": self._parameters}
        store.save(path, _KIND, _FILE_VERSION, header, self._state())

    def __repr__(self) -> str:
        short = reprlib.Repr()  # a list of a million epsilons is cut
        short.maxother = short.maxstring = 200
        arguments = ", ".join(f"{name}={short.repr(value)}" for name, value in self._parameters.items())
        return f"{type(self).__name__}({arguments})"
