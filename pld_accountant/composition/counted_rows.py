"""`CountedRows`: the bounds of many people's compositions, of which equal ones are answered once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import deadline
from ..counting.counts import WholeCounts
from ..engine.renyi import best_epsilon
from ..engine.working import warn_of_contradiction
from ..mechanisms.base import Direction, Enclosed, SeveralPairs
from ..mechanisms.renyi_boxes import RenyiBox
from ..results import Bounds, Method, Status
from . import compose
from .many import ManyCompositions

__all__ = ["CountedRows"]

_FEW = 8  # different rows of counts, each of which is composed by itself
_TINY = 1e-30  # a delta that is known to be this small needs no closer bound
_NO_MOMENT, _NO_EPSILON = 1e200, 1e150  # stand for infinite log-moments; an epsilon that such a one gave
_CROSSED = 1e-9  # round-off by which a lower bound may exceed an upper bound, relative

Progress = Callable[[int, int], None]


class CountedRows:
    """The different rows of counts, and everybody's row."""

    def __init__(self, counts: Mapping[tuple[Any, Any], NDArray], people: int) -> None:
        self._columns = list(counts)
        table = np.array(list(counts.values()), dtype=np.int64).reshape(len(counts), people).T
        rows, place = (
            np.unique(table, axis=0, return_inverse=True) if counts else (table[:1], np.zeros(people, dtype=np.int64))
        )
        self._rows, self._place = rows, place.reshape(-1)
        boxed = np.array([isinstance(upper, RenyiBox) for upper, _ in counts], dtype=bool)
        alone = np.full(len(rows), len(rows) <= _FEW) | (rows[:, boxed] > 0).any(axis=1)
        self._together = np.flatnonzero(~alone)
        uppers = [upper for upper, _ in self._columns]
        # without sampling the two directions are one
        self._symmetric = all(getattr(upper, "symmetric", False) for upper in uppers)
        if self._together.size:
            some = rows[self._together]
            used = np.flatnonzero(some.any(axis=0))
            self._above = ManyCompositions([uppers[k] for k in used], some[:, used], "above")

    @cached_property
    def _below(self) -> ManyCompositions:
        some = self._rows[self._together]
        used = [k for k in np.flatnonzero(some.any(axis=0)) if self._columns[k][1] is not None]
        below = ManyCompositions([self._columns[k][1] for k in used], some[:, used], "below")
        below.share_tables(self._above)
        return below

    def answer(
        self, question: str, value: float, wanted: tuple[Direction, ...], *, lower: bool, progress: Progress
    ) -> Bounds:
        """Bounds of everybody's epsilon or delta."""
        wanted = ("remove",) if self._symmetric else wanted
        number = len(self._rows)
        low, high = np.zeros(number), np.full(number, np.inf)
        status = np.full(number, Status.NOT_CERTIFIED, dtype=np.uint8)
        method = np.full(number, Method.NONE, dtype=np.uint8)
        with suppress(deadline.OutOfTime):
            if self._together.size:
                at = self._together
                first, *others = (getattr(self._above, question)(value, way) for way in wanted)
                high[at], status[at], method[at] = first.upper, first.status, first.method
                for other in others:
                    # what the smaller bound is worth does not matter
                    who = other.upper > high[at]
                    more = at[who]
                    high[more], status[more], method[more] = other.upper[who], other.status[who], other.method[who]
                progress(at.size // 2, number)
                if lower:
                    low[at] = np.max([getattr(self._below, question)(value, way).lower for way in wanted], axis=0)
            # no finite bound exists below the chance of an infinite loss
            status[low == np.inf], method[low == np.inf] = Status.CERTIFIED, Method.CLOSED_FORM
            known = (status == Status.CERTIFIED) | ((question == "delta") & (high <= _TINY))
            left = np.flatnonzero(~known)
            for k, row in enumerate(left):
                deadline.check()
                progress(number - left.size + k, number)
                found = self._alone(int(row), question, value, wanted, lower)
                low[row], high[row] = max(low[row], found.lower), min(high[row], found.upper)
                status[row], method[row] = min(status[row], found.status), found.method
            if question == "epsilon" and self._renyi_may_be_smaller:
                renyi = self._renyi(value)
                less = renyi < high
                high, method = np.where(less, renyi, high), np.where(less, np.uint8(Method.RENYI), method)
                status[less & (status == Status.NOT_CERTIFIED)] = Status.RENYI_ONLY
        progress(number, number)
        crossed = low > high * (1.0 + _CROSSED)
        if crossed.any():
            warn_of_contradiction(int(crossed.sum()), number)
            low[crossed], high[crossed] = 0.0, np.inf
            status[crossed], method[crossed] = Status.NOT_CERTIFIED, Method.NONE
        low = np.minimum(low, high) if lower else np.full(number, np.nan)
        with np.errstate(invalid="ignore"):
            middle = np.where(np.isfinite(high) | (low == high), 0.5 * (low + high), np.nan)
        return Bounds(low, middle, high, status, method)[self._place]

    def rdp_epsilon(self, delta: float) -> NDArray:
        """Everybody's Renyi bound of epsilon."""
        return self._renyi(delta)[self._place]

    @cached_property
    def _renyi_may_be_smaller(self) -> bool:
        """Whether some mechanism is bounded by another one, while its own divergences are known, too."""
        return any(
            isinstance(upper, SeveralPairs) or (isinstance(upper, Enclosed) and getattr(upper, "rho", None) is not None)
            for upper, _ in self._columns
        )

    def _renyi(self, delta: float) -> NDArray:
        """The Renyi bound of each row's epsilon: (rows,)."""
        steps = [compose([(upper, 1)]) for upper, _ in self._columns]

        def log_moments(theta: NDArray) -> NDArray:
            moments = np.array([step.log_moments_of_both(theta) for step in steps])
            # finite, because steps that are not taken count 0 times it
            return np.minimum(moments.reshape(len(steps), theta.size), _NO_MOMENT)

        found = best_epsilon(WholeCounts(np.ascontiguousarray(self._rows)), log_moments, delta)
        found[found > _NO_EPSILON] = np.inf
        return np.where(self._rows.any(axis=1), found, 0.0)

    def _alone(self, row: int, question: str, value: float, wanted: tuple[Direction, ...], lower: bool) -> Bounds:
        """Bounds of one row by compositions of its own."""
        steps = [(*columns, int(n)) for columns, n in zip(self._columns, self._rows[row], strict=True) if n]
        direction = wanted[0] if len(wanted) == 1 else "both"
        found: Bounds = getattr(compose([(upper, n) for upper, _, n in steps]), question)(value, direction)
        if not lower or all(below is upper for upper, below, _ in steps):
            return found
        less = compose([(below, n) for _, below, n in steps if below is not None])
        return replace(found, lower=getattr(less, question)(value, direction).lower)
