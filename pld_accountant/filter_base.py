"""What every filter shares: people, one budget each or one for all, and files that hold a filter's state."""

from __future__ import annotations

import functools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from . import store, validate
from .guarantee import Guarantee

__all__ = ["Filter"]

_FILE_VERSION = 1
_CONDITION_EACH = (
    " It holds for steps chosen from past releases, as long as each {} depends on the person's own record "
    "and on past releases only."
)
_CONDITION_ALL = (
    " It holds for steps chosen from past releases, as long as the {} given is a public bound for every "
    "possible record; the largest one among the people at hand is none."
)
_F = TypeVar("_F", bound="Filter")


def _load(cls: type[_F], path: str | os.PathLike[str], **expected: Any) -> _F:
    """A filter from a file that `save` wrote.

    Called on the class, it makes a new filter with the file's parameters; those given as keywords must
    agree with the file's.  Called on a filter, it fills that filter, whose parameters must all agree.

    Raises
    ------
    FileNotFoundError
    StoreError
        If the file is not whole, or holds a filter of another kind or with other parameters.
    """
    header, arrays = store.load(path, "filter", _FILE_VERSION)
    if header["filter"] != cls.__name__:
        raise store.StoreError(f"{os.fspath(path)} holds a {header['filter']}, not a {cls.__name__}")
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


def _load_into(instance: _F, path: str | os.PathLike[str]) -> _F:
    new = _load(type(instance), path, **instance.parameters)
    instance.__dict__.update(new.__dict__)
    return instance


class _Load:
    """Binds `load` to a class or to a filter, so that ``filter.load(path)`` can never leave a full budget."""

    __doc__ = _load.__doc__

    def __get__(self, instance: _F | None, owner: type[_F]) -> Callable[..., _F]:
        return (
            functools.partial(_load, owner) if instance is None else functools.partial(_load_into, instance)
        )


def _plain(value: Any) -> Any:
    """A parameter as JSON gives it back."""
    if isinstance(value, (np.ndarray, list, tuple)):
        return [_plain(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value


class Filter(ABC):
    """Decides who takes part in the coming step, and books it before anything is released.

    Parameters
    ----------
    num_examples : int
        People.
    individual : bool
        True: a budget for each person, charged with their own norms.  False: one budget for all, charged
        with the largest norm given; the first step that does not fit halts the filter for good.

    Notes
    -----
    For all together, what is given to `admit` must bound every *possible* record's norm, as a public
    clipping norm does; one number is enough.  The largest norm of the people at hand is no such bound:
    halting on it would reveal whose it was.
    """

    load = _Load()

    def __init__(self, num_examples: int, individual: bool, parameters: dict[str, Any]) -> None:
        self._num_examples = validate.count(num_examples, "num_examples", least=1)
        self._individual = bool(individual)
        self._halted = False
        self._parameters = {
            **{name: _plain(value) for name, value in parameters.items()},
            "num_examples": self._num_examples,
            "individual": self._individual,
        }

    @property
    def num_examples(self) -> int:
        """How many people."""
        return self._num_examples

    @property
    def individual(self) -> bool:
        """Whether each person has a budget of their own."""
        return self._individual

    @property
    def halted(self) -> bool:
        """True once a filter for all together has refused a step."""
        return self._halted

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments the filter was made with."""
        return dict(self._parameters)

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What is proven about everything released under this filter."""

    @abstractmethod
    def admit(self, norms: Any) -> np.ndarray:
        """Say who takes part in the coming step, and book it: (num_examples,) bool.  Sensitive."""

    @abstractmethod
    def headroom(self) -> np.ndarray:
        """The largest norm each person can still spend in the coming step: (num_examples,).  Sensitive."""

    @abstractmethod
    def spent(self) -> np.ndarray:
        """What each person has spent, rounded up, at most the budget.  Sensitive."""

    @property
    @abstractmethod
    def active(self) -> np.ndarray:
        """Who has budget left: (num_examples,) bool.  Sensitive, like every value kept for a person."""

    @abstractmethod
    def _book(self, norms: np.ndarray, **step: Any) -> np.ndarray:
        """Admit and book one charge for each budget, or raise and book nothing."""

    @abstractmethod
    def _state(self) -> dict[str, np.ndarray]:
        """The arrays that a file must hold."""

    @abstractmethod
    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Take over what `_state` gave."""

    def _admit(self, norms: Any, **step: Any) -> np.ndarray:
        array = np.asarray(norms)
        if array.ndim == 0 and not self._individual:
            array = np.full(1, validate.norms(array.reshape(1), 1)[0])
        else:
            array = validate.norms(array, self._num_examples)
            validate.array_shape(array, (self._num_examples,), "norms")
        if self._individual:
            return self._book(array, **step)
        if not np.all((array >= 0) & (array < np.inf)):
            raise validate.norm_error(array)
        admitted = not self._halted and bool(self._book(array.max(keepdims=True), **step)[0])
        self._halted = not admitted
        return np.full(self._num_examples, admitted)

    def _condition(self, charged: str = "norm") -> str:
        """What the guarantee asks of the caller."""
        return (_CONDITION_EACH if self._individual else _CONDITION_ALL).format(charged)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write parameters and state to one file, atomically and checksummed.

        Save after `admit` and before the release: a crash in between then only over-counts.

        Raises
        ------
        OSError
            If the file cannot be written; what stood there before is untouched.
        """
        header = {"filter": type(self).__name__, "parameters": self._parameters}
        store.save(path, "filter", _FILE_VERSION, header, self._state())

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self._parameters.items())
        return f"{type(self).__name__}({arguments})"
