"""`NamedPeople`: the ids of a ledger's people; merging, selecting and adding people."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from . import validate
from .events import ids
from .locked import Locked, held, unlocked

__all__ = ["NamedPeople", "Progress"]

Progress = Callable[[int, int], None]
"""Called with what is done and what there is to do."""


_N = TypeVar("_N", bound="NamedPeople")


class NamedPeople(Locked, ABC):
    """A ledger whose people may have ids."""

    _people: Any = None
    """A `pyarrow.Array` of distinct ids, see `events.ids`; None if nobody was named."""

    @property
    @abstractmethod
    def num_examples(self) -> int:
        """Number of people."""

    @property
    def people(self) -> NDArray:
        """Everybody's id: (num_examples,) int64 or str; their numbers 0, 1, 2, ... if nobody was named.

        People are named by ``ledger.people = ids``: distinct integers, texts or UUIDs, in the order of the ledger; and
        by `Ledger.from_events`.  UUIDs become texts.
        """
        return np.arange(self.num_examples) if self._people is None else ids.as_numpy(self._people)

    @people.setter
    def people(self, names: Any) -> None:
        found = ids.distinct(names)
        if len(found) != self.num_examples:
            raise ValueError(f"people must be {self.num_examples} ids, got {len(found)}")
        self._people = found

    @unlocked
    def merge(self: _N, other: _N, *, same_steps: bool = False) -> None:
        """Add the steps of another ledger.

        If people have ids, people are matched by id, and people of the other ledger who are new here come last.  A
        person who is missing in one of the ledgers took no part in its steps.

        Parameters
        ----------
        other : Ledger, LaplaceLedger or MechanismLedger
            As this ledger, of the same people, or with ids if this ledger has ids.
        same_steps : bool
            Whether `other` holds *other people in the same steps*, such as another part of one table.  Then nobody may
            be in both, and the steps are counted once in the schedule of the worst case.

        Raises
        ------
        ValueError
            If `other` is no such ledger, people cannot be matched, or somebody is in both ledgers of the same steps.
            Then nothing has changed.
        """
        if type(other) is not type(self):
            raise ValueError(f"other must be a {type(self).__name__}, as this ledger is, got {other!r}")
        validate.flag(same_steps, "same_steps")
        with held(self, other):
            named = self._people is not None, other._people is not None
            if named[0] != named[1]:
                raise ValueError("one ledger has ids of people and the other has none; set `people` of both")
            if not any(named):
                if same_steps or other.num_examples != self.num_examples:
                    raise ValueError(f"other must be a ledger of the same {self.num_examples} people, got {other!r}")
                self._join(other, None, same_steps=same_steps)
                return
            own, theirs = self._people, other._people
            if same_steps and (both := int((ids.positions(theirs, own) >= 0).sum())):
                raise ValueError(
                    f"{both} people are in both ledgers; their steps would be counted twice. If the ledgers hold parts "
                    "of these people's steps, make one ledger of both tables of events together"
                )
            everybody = ids.joined(own, theirs)
            rows = ids.positions(everybody, own), ids.positions(everybody, theirs)
            self._join(other, rows, same_steps=same_steps)
            self._people = everybody

    def select(self: _N, people: Any) -> _N:
        """A ledger of some people, in this order, with all steps of the schedule.

        If nobody was named, the new ledger numbers its people 0, 1, 2, ...; its `people` can be set.

        Parameters
        ----------
        people : array_like
            Distinct ids; numbers of people if nobody was named.

        Raises
        ------
        ValueError
            If somebody is not in this ledger.
        """
        return self._rearranged(*self._rows_of(people))

    def _rows_of(self, people: Any) -> tuple[Any, NDArray]:
        """The ids of these people, None if nobody was named, and their rows; `people` as in `select`."""
        if self._people is None:
            rows = np.asarray(people)
            if rows.ndim != 1 or rows.dtype.kind not in "iu" or np.unique(rows).size < rows.size:
                raise ValueError(
                    "people must be distinct numbers of people, not a mask (np.flatnonzero gives its numbers); "
                    "this ledger has no ids"
                )
            if rows.size and not (rows.min() >= 0 and rows.max() < self.num_examples):
                raise ValueError(f"people must lie between 0 and {self.num_examples - 1}")
            return None, rows.astype(np.int64)
        wanted = ids.distinct(people)
        rows = ids.positions(wanted, self._people)
        if np.any(rows < 0):
            raise ValueError(f"{wanted[int(np.argmin(rows))].as_py()!r} is not in this ledger")
        return wanted, rows

    def add_people(self, people: Any) -> None:
        """Add people who took no part in the steps so far; they come last.

        Raises
        ------
        ValueError
            If the ledger has no ids, or somebody is in it already.
        """
        if self._people is None:
            raise ValueError("this ledger has no ids; set `people` first")
        new = ids.distinct(people)
        rows = ids.positions(new, self._people)
        if np.any(rows >= 0):
            raise ValueError(f"{new[int(np.argmax(rows))].as_py()!r} is in this ledger already")
        everybody = ids.joined(self._people, new)
        self._take_rows(ids.positions(everybody, self._people))
        self._people = everybody

    @abstractmethod
    def _join(self: _N, other: _N, rows: tuple[NDArray, NDArray] | None, *, same_steps: bool) -> None:
        """Add another's counts; rows: everybody's place in each of the two, -1 if there is none.  Or change nothing."""

    @abstractmethod
    def _take_rows(self, rows: NDArray) -> None:
        """Keep the people of these rows only, in this order; -1 stands for somebody without steps."""

    @abstractmethod
    def _rearranged(self: _N, people: Any, rows: NDArray) -> _N:
        """A ledger of the people of these rows, who have these ids; -1 stands for somebody without steps."""

    def _ids(self) -> dict[str, NDArray]:
        """The ids as arrays for a file; empty if nobody was named."""
        return {} if self._people is None else ids.to_arrays(self._people)

    def _restore_ids(self, saved: dict[str, NDArray]) -> None:
        """Take over the result of `_ids`, or raise `ValueError`."""
        self._people = ids.from_arrays(saved, self.num_examples) if saved else None
