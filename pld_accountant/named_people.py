"""`NamedPeople`: the ids of a ledger's people."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .events import ids
from .locked import Locked

__all__ = ["NamedPeople", "Progress"]

Progress = Callable[[int, int], None]
"""Called with what is done and what there is to do."""


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

    def _ids(self) -> dict[str, NDArray]:
        """The ids as arrays for a file; empty if nobody was named."""
        return {} if self._people is None else ids.to_arrays(self._people)

    def _restore_ids(self, saved: dict[str, NDArray]) -> None:
        """Take over the result of `_ids`, or raise `ValueError`."""
        self._people = ids.from_arrays(saved, self.num_examples) if saved else None
