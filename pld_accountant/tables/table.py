"""`Table`: what the inner product needs of a set of buckets, in one form for all makers.

A table belongs to a direction, a tilt theta and a period P.  For one step in each bucket it holds the log-moment K, the
tilted mean and the centred logarithm of the characteristic function at omega_f = 2 pi f / P, f = 1..m, with what the
error budget needs.  ``counts @ table.columns`` then gives every person's exponents.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..kernels import _columns as c
from ..mechanisms.base import StepFamily

__all__ = ["WORK", "MemoryCache", "Table", "TableMaker", "log_expm1"]

WORK = 4e8
"""Default limit of a table's cost, in products of nodes and frequencies: about a second."""


@dataclass
class Table:
    """Exponents per step for every bucket at one tilt and period.

    Attributes
    ----------
    theta, period : float
    columns : ndarray, shape (buckets, columns)
        The scalars and blocks that `kernels._columns` names.
    filled : ndarray of bool, shape (buckets,)
        Which rows have been made; a maker fills further rows on demand.
    weight : ndarray of complex128, shape (m + 1,)
        Transform of the tilted hockey-stick weight over the period, doubled for positive frequencies.
    band_coefficient : float
        The sum of the weights beyond the band, at most.  Times exp(sum of the envelope column) it bounds the error of Q
        by the dropped frequencies.
    grid_step : float
        Step of the grid of losses; 0 if the loss is not confined to a grid.
    spread : float
        The grid adds at most t (t + 1) spread to a step's K(t): connecting dots h apart is a mechanism whose loss has a
        range of h, hence h^2/8-zCDP (Cesar and Rogers 2021, Lemma 3.2).
    ladder : (int, ndarray of shape (buckets, levels)), optional
        Envelopes of wider bands: log sup |phi| beyond the frequencies 2^(j / 2), j ascending from the first element.
    large_ladder : ndarray, shape (buckets, levels), optional
        For large losses: upper bounds of |M_large / M_small| of one step beyond the same frequencies.
    plain : ndarray, shape (buckets, HEAD), optional
        For interpolated steps: the scalars without the errors of interpolation.
    variance : (ndarray of complex, ndarray), shape (buckets, m + 1) each, optional
        For interpolated steps between a bucket and the one before it: half of x^2, which their variances multiply, and
        the error beyond the variance term (`interpolated`).  Without it, both are errors already.
    large : bool
        Whether the table is of the part in which some step's loss is large (`engine.rare_losses`).
    """

    theta: float
    period: float
    columns: NDArray
    filled: NDArray
    weight: NDArray
    band_coefficient: float
    grid_step: float = 0.0
    spread: float = 0.0
    ladder: tuple[int, NDArray] | None = None
    large_ladder: NDArray | None = None
    plain: NDArray | None = None
    variance: tuple[NDArray, NDArray] | None = None
    large: bool = False

    @property
    def frequencies(self) -> int:
        """m, the number of positive frequencies."""
        return self.weight.size - 1

    @property
    def omega(self) -> NDArray:
        """The frequencies 0, omega_1, ..., omega_m."""
        return 2.0 * np.pi / self.period * np.arange(self.weight.size)

    @property
    def re(self) -> NDArray:
        """Re log phi at the m positive frequencies; a view, shape (buckets, m)."""
        first, last, _, _ = c.blocks(self.frequencies)
        return self.columns[:, first:last]

    @property
    def im(self) -> NDArray:
        """Im log phi, centred; a view, shape (buckets, m)."""
        _, first, last, _ = c.blocks(self.frequencies)
        return self.columns[:, first:last]

    @property
    def interpolation(self) -> NDArray:
        """Errors of interpolated steps; a view, shape (buckets, m + 2), or (buckets, 0) if there are none."""
        _, _, first, last = c.blocks(self.frequencies)
        return self.columns[:, first:last]

    def log_phi(self, rows: NDArray | slice = slice(None)) -> NDArray:
        """The centred logarithm of some buckets' characteristic functions at f = 0..m."""
        re, im = self.re[rows], self.im[rows]
        out = np.zeros((len(re), self.weight.size), dtype=complex)
        out.real[:, 1:], out.imag[:, 1:] = re, im
        return out

    def setting(self) -> NDArray:
        """The scalars that `kernels._columns` names."""
        out = np.empty(c.SETTINGS)
        out[c.THETA], out[c.PERIOD], out[c.SPACING] = self.theta, self.period, 2.0 * np.pi / self.period
        out[c.BAND_COEFFICIENT], out[c.GRID_STEP] = self.band_coefficient, self.grid_step
        out[c.PRODUCT_ROUNDING] = (len(self.columns) + 8) * 2.0**-52
        return out


class TableMaker(ABC):
    """Makes tables: from characteristic functions (`characteristic`) or from a grid on the loss (`grid`)."""

    steps: StepFamily

    @property
    def size(self) -> int:
        """Number of buckets."""
        return self.steps.size

    @property
    def whole(self) -> bool:
        """Whether `log_moments` bound the mechanisms themselves, not only what the tables hold."""
        return self.steps.whole

    @abstractmethod
    def log_moments(self, theta: NDArray) -> NDArray:
        """Upper bounds of K, shape (size, tilts); or columns of which `composed` makes a composition's K."""

    def composed(self, sums: NDArray) -> NDArray:
        """K of compositions, shape (people, tilts), from the sums of their steps' `log_moments`."""
        return sums

    @abstractmethod
    def table(self, theta: float, period: float, width: float, needed: NDArray, work: float = WORK) -> Table | None:
        """The table up to the frequency `width`; None if filling it would cost more than `work`.

        Only the rows of the buckets in `needed` (bool) are filled for certain; the others may be 0.
        """


def log_expm1(x: NDArray) -> NDArray:
    """log(exp(x) - 1) for x >= 0, -690 at least."""
    return np.where(x > 600.0, x, np.log(np.maximum(np.expm1(np.minimum(x, 600.0)), 1e-300)))


V = TypeVar("V")


class MemoryCache(Generic[V]):
    """The most recently used values, by key, up to a size in bytes."""

    def __init__(self, limit: int, size: Callable[[V], int]) -> None:
        self._limit, self._size, self._held = limit, size, 0
        self._values: OrderedDict[Hashable, V] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of a key, made if it is absent."""
        if key in self._values:
            self._values.move_to_end(key)
            return self._values[key]
        value = make()
        self._values[key] = value
        self._held += self._size(value)
        while self._held > self._limit and len(self._values) > 1:
            self._held -= self._size(self._values.popitem(last=False)[1])
        return value
