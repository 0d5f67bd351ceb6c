"""Everybody's counts of steps: the left factor of every matrix product of the engine.

A column of the recorded counts is a bucket, the steps between two edges.  A row of a table is a step at an edge: row k
at the upper edge of bucket k, and row -1 stands for a step that costs nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ..threads import blocks, by_blocks
from .buckets import Buckets
from .interpolation import UNITS, upper_weight_bound, weight_rounding

__all__ = ["JOINED", "Counts", "InterpolatedCounts", "WholeCounts", "lower_edges"]

_FEW = 64  # people for whom to select columns takes less time than to read all
_C = TypeVar("_C", bound="Counts")

JOINED = 1e-3
"""Share of delta that joined outcomes may cost the interpolated lower bound (claim 2), all steps together."""


@dataclass(frozen=True)
class Counts(ABC):
    """How often each person took the step of each row of a table.

    Attributes
    ----------
    counts : ndarray of integers, shape (people, buckets)
        Steps in each bucket.
    people : ndarray of int, optional
        The selected rows of the arrays; all of them by default.
    """

    counts: NDArray
    people: NDArray | None = field(default=None, kw_only=True)

    def __len__(self) -> int:
        """Number of people."""
        return len(self.counts) if self.people is None else self.people.size

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return self.counts.shape[1]

    def of(self: _C, who: NDArray) -> _C:
        """The counts of some people, without a copy."""
        return replace(self, people=np.asarray(self._selected(who)))

    def _selected(self, who: slice | NDArray) -> slice | NDArray:
        """Indices into the recorded arrays of some people."""
        return who if self.people is None else self.people[who]

    @abstractmethod
    def times(self, values: NDArray, who: slice | NDArray = np.s_[:]) -> NDArray:
        """counts @ values for some people; values (rows, columns)."""

    def sums(self, values: NDArray, who: NDArray | None = None) -> NDArray:
        """`times` for some people, or all, block by block on several threads."""

        def sum_block(block: slice) -> NDArray:
            return self.times(values, block if who is None else who[block])

        found = by_blocks(sum_block, len(self) if who is None else who.size)
        return np.concatenate([*found, np.zeros((0, values.shape[1]))])

    def alike(self, who: NDArray) -> bool:
        """Whether these people are known to have taken the same steps."""
        return False

    @abstractmethod
    def used(self, who: slice | NDArray = np.s_[:]) -> NDArray:
        """Which rows any of these people took: (rows,) bool."""

    @abstractmethod
    def steps(self) -> NDArray:
        """Number of each person's steps that cost anything: (people,) int64."""

    @abstractmethod
    def single_steps(self, who: NDArray) -> tuple[NDArray, NDArray | None, NDArray | None]:
        """For people with one step: its row, and the row of the other outcome and the weight if it is interpolated."""

    @property
    def log_loss(self) -> float:
        """How much larger log delta of these counts may be than that of the steps, for a lower bound; else 0."""
        return 0.0


def lower_edges(groups: Sequence[Buckets]) -> NDArray:
    """The row at the lower edge of each bucket; -1 for the first bucket of a group."""
    rows = np.arange(sum(g.size for g in groups)) - 1
    start = 0
    for group in groups:
        rows[start] = -1
        start += group.size
    return rows


@dataclass(frozen=True)
class WholeCounts(Counts):
    """Steps counted whole at one edge of their bucket; `log_loss` is 0, as counting at an edge is monotone.

    Attributes
    ----------
    at : ndarray of int, shape (buckets,), optional
        The row at which each bucket's steps count; its own by default.
    """

    at: NDArray | None = None

    def _some(self, who: slice | NDArray) -> NDArray:
        return self.counts[self._selected(who)]

    @cached_property
    def _costly(self) -> NDArray | None:
        """Columns whose steps cost something; None: all."""
        return None if self.at is None else self.at >= 0

    def times(self, values: NDArray, who: slice | NDArray = np.s_[:]) -> NDArray:
        """See `Counts`; for a few people only the rows that they use are read."""
        some = self._some(who)
        if len(some) > _FEW:
            # the values are permuted, not the counts
            if self.at is not None:
                values = np.where(self.at[:, None] >= 0, values[self.at], 0.0)
            return some.astype(np.float64, copy=False) @ values
        taken = np.asarray(some.any(axis=0))
        columns = np.flatnonzero(taken if self._costly is None else taken & self._costly)
        rows = columns if self.at is None else self.at[columns]
        return some[:, columns].astype(np.float64, copy=False) @ values[rows]

    def used(self, who: slice | NDArray = np.s_[:]) -> NDArray:
        """See `Counts`."""
        used: NDArray = np.asarray(self._some(who).any(axis=0))
        if self.at is None:
            return used
        rows = np.zeros(self.rows, dtype=bool)
        rows[self.at[used & (self.at >= 0)]] = True
        return rows

    def alike(self, who: NDArray) -> bool:
        """See `Counts`; the first two people are compared first, who differ in most ledgers."""
        first = self._some(who[:1])
        parts = (who[:2], *(who[block] for block in blocks(who.size)))
        return all(bool(np.all(self._some(some) == first)) for some in parts)

    def steps(self) -> NDArray:
        """See `Counts`."""
        total = np.empty(len(self), dtype=np.int64)
        for block in blocks(len(self)):
            some = self._some(block)
            total[block] = (some if self._costly is None else some[:, self._costly]).sum(axis=1, dtype=np.int64)
        return total

    def single_steps(self, who: NDArray) -> tuple[NDArray, NDArray | None, NDArray | None]:
        """See `Counts`."""
        taken = self._some(who) > 0
        column = np.argmax(taken if self._costly is None else taken & self._costly, axis=1)
        return (column if self.at is None else self.at[column]), None, None

    def of_rows(self, person: int) -> NDArray:
        """One person's steps at each row of the table: (rows,) int64."""
        out = np.zeros(self.rows, dtype=np.int64)
        row = self._some(np.array([person]))[0].astype(np.int64)
        at = np.arange(self.rows) if self.at is None else self.at
        np.add.at(out, at[at >= 0], row[at >= 0])
        return out


@dataclass(frozen=True)
class InterpolatedCounts(Counts):
    """Steps counted at both edges of their bucket, in fractions (see `interpolation`); rows are made on demand.

    Attributes
    ----------
    lower_weights : ndarray of integers, shape (people, buckets)
        Sums of their lower weights 1 - w, in units.
    groups : sequence of Buckets
        One after another along the columns.
    log_delta : float, optional
        For the lower bound: the smallest log delta that will be asked for.  Without it the counts are the upper
        bound's.
    """

    lower_weights: NDArray
    groups: Sequence[Buckets]
    log_delta: float | None = None

    @property
    def log_loss(self) -> float:
        """See `Counts` and claim 2 of `interpolation`."""
        joined = self.log_delta is not None and any(group.sample_rate < 1.0 for group in self.groups)
        return float(np.log1p(JOINED)) if joined else 0.0

    def of(self, who: NDArray) -> InterpolatedCounts:
        """See `Counts`."""
        some = super().of(who)
        if self.log_delta is not None:
            some.__dict__["_down"] = self._down  # which depends on everybody's counts
        return some

    @cached_property
    def free(self) -> NDArray:
        """Whether a bucket's lower edge costs nothing: (buckets,)."""
        return np.concatenate([np.arange(g.size) == 0 for g in self.groups])

    @cached_property
    def _down(self) -> tuple[NDArray, NDArray, NDArray]:
        """rho and c of claim 2, and the rounding of the weights: (buckets,) each."""
        assert self.log_delta is not None
        most = max(int(self.counts[b].sum(axis=1, dtype=np.int64).max()) for b in blocks(len(self.counts)))
        tail = self.log_delta + float(np.log(JOINED / (2.0 * max(most, 1))))
        rho, scale = np.hstack([upper_weight_bound(g, tail) for g in self.groups])
        return rho, scale, np.concatenate([weight_rounding(g) for g in self.groups])

    def matrix(self, who: slice | NDArray = np.s_[:]) -> NDArray:
        """The fractional counts of some people: (people, rows) float64."""
        from ..kernels import interpolate

        some = self._selected(who)
        selected = np.arange(*some.indices(len(self.counts))) if isinstance(some, slice) else some.astype(np.int64)
        out = np.empty((selected.size, self.rows))
        if self.log_delta is None:
            interpolate.counts_up(self.counts, self.lower_weights, selected, 1.0 / UNITS, out)
        else:
            interpolate.counts_down(self.counts, self.lower_weights, selected, 1.0 / UNITS, *self._down, self.free, out)
        return out

    def times(self, values: NDArray, who: slice | NDArray = np.s_[:]) -> NDArray:
        """See `Counts`."""
        return self.matrix(who) @ values

    def used(self, who: slice | NDArray = np.s_[:]) -> NDArray:
        """See `Counts`."""
        used: NDArray = np.asarray(self.counts[self._selected(who)].any(axis=0))
        used[:-1] |= used[1:]
        return used

    def steps(self) -> NDArray:
        """See `Counts`."""
        at = None if self.log_delta is None else lower_edges(self.groups)
        return WholeCounts(self.counts, at, people=self.people).steps()

    def single_steps(self, who: NDArray) -> tuple[NDArray, NDArray | None, NDArray | None]:
        """See `Counts`."""
        selected = self._selected(who)
        taken = self.counts[selected] > 0
        if self.log_delta is not None:
            taken &= ~self.free
        bucket = np.argmax(taken, axis=1)
        weight = 1.0 - self.lower_weights[selected, bucket] / UNITS
        if self.log_delta is not None:
            rho, scale, rounding = self._down
            at = np.maximum(weight - rounding[bucket], 0.0)
            weight = scale[bucket] * np.expm1(rho[bucket] * at)
        return bucket, np.where(self.free[bucket], -1, bucket - 1), weight

    def variances(self, who: slice | NDArray = np.s_[:]) -> tuple[NDArray, NDArray, NDArray]:
        """Number of each bucket's interpolated steps, and middle and half length of the range of their variance.

        Shape (people, buckets) each.  The variance, the sum of w (1 - w) of n steps whose weights sum to W, is known if
        n = 1 and lies between 0 and W (n - W) / n otherwise.
        """
        selected = self._selected(who)
        steps, lower = self.counts[selected].astype(np.float64), self.lower_weights[selected] / UNITS
        upper = steps - lower
        if self.log_delta is not None:
            rho, scale, rounding = self._down
            at = np.maximum(1.0 - rounding - lower / np.maximum(steps, 1.0), 0.0)
            upper = steps * scale * np.expm1(rho * at)
        most = upper * (steps - upper) / np.maximum(steps, 1.0)
        once = steps == 1.0
        return np.where(most > 0.0, steps, 0.0), np.where(once, most, 0.5 * most), np.where(once, 0.0, 0.5 * most)

    def whole(self) -> NDArray:
        """Which people's interpolated counts equal their counts at the upper edges: (people,) bool."""
        if self.log_delta is not None:
            return np.zeros(len(self), dtype=bool)
        return ~np.asarray(self.lower_weights[self._selected(np.s_[:])].any(axis=1))

    def neighbours(self) -> NDArray:
        """Whether steps are interpolated between a row and the next: (rows - 1,); full batches need no error term."""
        sampled = np.concatenate([np.full(g.size, g.sample_rate < 1.0) for g in self.groups])
        return sampled[1:] & ~self.free[1:]
