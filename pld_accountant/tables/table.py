"""`Table`: one form for what the inner product needs of a set of buckets, whichever way it was made.

A table belongs to a direction, a tilt theta and a period P.  Per bucket (one step of it) it holds the log-moment K, the
tilted mean and the centred logarithm of the characteristic function at omega_f = 2 pi f / P, f = 1..m, with what the
error budget needs.  ``counts @ table.columns`` then gives every person's exponents.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["COLUMNS", "WORK", "Maker", "MemoryCache", "Table", "log_expm1"]

COLUMNS = 10
"""Columns before the frequencies: K, mean, log envelope beyond the band, error of phi at every frequency, round-off of
K, infinity, the offset of the lattice, the error of phi per unit of frequency, and both errors of phi relative to phi
(`error_budget.relative`)."""

WORK = 4e8
"""What a table may cost unless said otherwise, in the products of a matrix of nodes by frequencies: about a second."""


@dataclass
class Table:
    """Exponents per step for every bucket at one tilt and period.

    Attributes
    ----------
    theta, period : float
    columns : ndarray, shape (buckets, COLUMNS + 2 m), or m + 2 more where steps are lotteries
        As `COLUMNS` says, then Re log phi and Im log phi at the m frequencies, and as `kernels.plancherel` says.
    filled : ndarray of bool, shape (buckets,)
        Which rows have been made; a maker fills further ones when they are asked for.
    weight : ndarray of complex128, shape (m + 1,)
        Transform of the tilted hockey-stick weight over the period, doubled for positive frequencies.
    remainder : float
        Multiplies exp(sum of the envelope column): what the dropped frequencies can add to Q.
    lattice_step : float
        0 where the loss is not confined to a lattice.
    spread : float
        The grid adds at most t (t + 1) spread to a step's K(t): connecting dots h apart is a mechanism whose loss has a
        range of h, hence h^2/8-zCDP (Cesar and Rogers 2021, Lemma 3.2).
    ladder : (int, ndarray of shape (buckets, levels)), optional
        Envelopes of wider bands: log sup |phi| beyond the frequencies 2^(j / 2), j ascending from the first element.
    ladder_large : ndarray, shape (buckets, levels), optional
        Of the part in which some step's loss is large: how much of a step's characteristic function that of its large
        losses is at most, beyond the same frequencies.
    own : ndarray, shape (buckets, COLUMNS), optional
        Where steps are lotteries between neighbouring buckets, the first columns without what that adds.
    second, third : ndarray, shape (buckets, m + 1), optional
        Of lotteries between a bucket and the one before it, where the second order of what they add is summed up and
        not an error (`joining`).
    large : bool
        Whether the table is of the part in which some step's loss is large (`large_losses`).
    mixed, mixed_beyond : ndarray, shape (buckets, m + 1), optional
        There, as `second` and `third`, what lotteries add to R.
    """

    theta: float
    period: float
    columns: NDArray
    filled: NDArray
    weight: NDArray
    remainder: float
    lattice_step: float = 0.0
    spread: float = 0.0
    ladder: tuple[int, NDArray] | None = None
    ladder_large: NDArray | None = None
    own: NDArray | None = None
    second: NDArray | None = None
    third: NDArray | None = None
    large: bool = False
    mixed: NDArray | None = None
    mixed_beyond: NDArray | None = None

    @property
    def frequencies(self) -> int:
        return self.weight.size - 1

    @property
    def bytes(self) -> int:
        arrays = self.columns, self.second, self.third, self.mixed, self.mixed_beyond
        return sum(a.nbytes for a in arrays if a is not None)

    def setting(self, buckets: int) -> NDArray:
        """The scalars of `kernels.plancherel`; the last is the round-off of a matrix product over the buckets."""
        gemm = (buckets + 8) * 2.0**-52
        return np.array([self.theta, 2.0 * np.pi / self.period, self.period, self.remainder, self.lattice_step, gemm])


class Maker(Protocol):
    """What makes tables: from the Gaussian's own variable (`spectral`) or from a grid on the loss (`lattice`)."""

    @property
    def buckets(self) -> int: ...

    @property
    def whole(self) -> bool:
        """Whether `log_moments` bound those of the mechanisms, not only of what the tables hold."""
        ...

    def log_moments(self, theta: NDArray) -> NDArray:
        """K, shape (buckets, tilts), never below the truth; or whatever `composed` makes a composition's K of."""
        ...

    def composed(self, sums: NDArray) -> NDArray:
        """K of compositions, shape (people, tilts), from the sums of their steps' `log_moments`."""
        ...

    def table(self, theta: float, period: float, width: float, needed: NDArray, work: float = WORK) -> Table | None:
        """The table up to the frequency `width`; None where filling it would cost more than `work`.

        Only the rows of the buckets in `needed` (bool) are filled for certain; the others may be 0.
        """
        ...


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
        if key in self._values:
            self._values.move_to_end(key)
            return self._values[key]
        value = make()
        self._values[key] = value
        self._held += self._size(value)
        while self._held > self._limit and len(self._values) > 1:
            self._held -= self._size(self._values.popitem(last=False)[1])
        return value
