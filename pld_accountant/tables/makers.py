"""`TableMakers`: all makers of tables for one family of steps, with one cache."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..mechanisms.base import CharacteristicSteps, StepFamily
from .characteristic import CharacteristicTables
from .grid import NARROW, Cells, GridTables
from .spectra import Spectra
from .table import MemoryCache, Table, TableMaker

__all__ = ["TableMakers"]

_CACHE_BYTES = 1 << 30
_CELL_BYTES = 1 << 28  # of masses on knots, which tables of all tilts share


class TableMakers:
    """The makers of a family: whole or truncated, for whole or interpolated counts.

    Parameters
    ----------
    steps : StepFamily
    neighbours : ndarray of bool, shape (size - 1,), optional
        Between which rows steps may be interpolated; none by default.
    keep : bool
        Whether what the whole steps' tables are made of is kept between processes (`spectra`).
    """

    def __init__(self, steps: StepFamily, neighbours: NDArray | None = None, *, keep: bool = False) -> None:
        self.steps, self._keep = steps, keep
        self._neighbours = neighbours
        self._cache: MemoryCache[Table] = MemoryCache(_CACHE_BYTES, lambda t: t.columns.nbytes)
        self._cells: MemoryCache[Cells] = MemoryCache(_CELL_BYTES, lambda cells: 2 * cells[1].nbytes)
        self._moments: dict[tuple[StepFamily, float], NDArray] = {}
        self._kept: dict[Hashable, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        # a copy begins with an empty cache
        return partial(TableMakers, keep=self._keep), (self.steps, self._neighbours)

    def kept(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The value of a key, made once."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def truncated(self, reach: float) -> StepFamily:
        """The steps whose losses end at a reach."""
        if reach == np.inf:
            return self.steps
        return self.kept(("steps", reach), lambda: self.steps.truncated(reach))

    def characteristic(
        self, reach: float = np.inf, *, interpolated: bool, variance: bool = False
    ) -> CharacteristicTables:
        """Tables from characteristic functions, of losses that end at a reach."""
        steps = self.truncated(reach)
        assert isinstance(steps, CharacteristicSteps)
        return self.kept(
            ("characteristic", reach, interpolated, variance),
            lambda: self.maker(steps, interpolated=interpolated, variance=variance),
        )

    def any(self, *, interpolated: bool) -> TableMaker:
        """A maker whose log-moments bound the whole losses."""
        if isinstance(self.steps, CharacteristicSteps):
            return self.characteristic(interpolated=interpolated)
        return self.grid("upper", 2, 1.0)

    def maker(self, steps: CharacteristicSteps, *, interpolated: bool, variance: bool = False) -> CharacteristicTables:
        """A new maker for a part of the family's losses."""
        neighbours = self._neighbours if interpolated else None
        return CharacteristicTables(self._spectra(steps), self._cache, neighbours, variance=variance)

    def _spectra(self, steps: CharacteristicSteps) -> Spectra:
        """One for all makers of the whole steps; the others' ends depend on the question, and are not kept."""
        if steps is not self.steps:
            return Spectra(steps)
        return self.kept("spectra", lambda: Spectra(steps, keep=self._keep))

    def keep(self) -> None:
        """Write what was computed to a file, if there is to be one and if it is worth it."""
        if "spectra" in self._kept:
            self._kept["spectra"].keep()

    def grid(
        self,
        side: Literal["upper", "lower"],
        points: int,
        reach: float,
        *,
        narrow: int = NARROW,
        truncated: bool = False,
    ) -> GridTables:
        """Tables on a grid that ends at a reach; `truncated`: with log-moments that end there, too."""
        steps = self.truncated(reach) if truncated else self.steps
        return self.kept(
            ("grid", side, points, reach, narrow, truncated),
            lambda: GridTables(steps, side, points, reach, self._cache, self._cells, self._moments, narrow),
        )
