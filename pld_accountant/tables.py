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

from . import error_budget as budget

__all__ = ["COLUMNS", "WORK", "Maker", "MemoryCache", "Table"]

COLUMNS = 10
"""Columns before the frequencies: K, mean, log envelope beyond the band, error of phi at every frequency, round-off of
K, infinity, the offset of the lattice, the error of phi per unit of frequency, and both errors of phi relative to phi
(`error_budget.relative`)."""

WORK = 4e8
"""What a table may cost unless said otherwise, in the products of a matrix of nodes by frequencies: about a second."""


@dataclass(frozen=True)
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
    own : ndarray, shape (buckets, COLUMNS), optional
        Where steps are lotteries between neighbouring buckets, the first columns without what that adds.
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
    own: NDArray | None = None

    @property
    def frequencies(self) -> int:
        return self.weight.size - 1

    def join(self, neighbours: NDArray) -> None:
        """Let steps be lotteries between neighbouring buckets (see `lotteries`).

        Their phases come to differ by less than pi, and the columns beyond the frequencies say what lotteries add.

        A lottery's share lies in both buckets, so that each of them carries what either of its lotteries may add.

        Parameters
        ----------
        neighbours : ndarray of bool, shape (buckets - 1,)
            Whether there are lotteries between a bucket and the next.
        """
        if self.own is None:
            return
        m, own, columns = self.frequencies, self.own, self.columns
        omega = 2.0 * np.pi / self.period * np.arange(m + 1)
        first = np.flatnonzero(neighbours & self.filled[:-1] & self.filled[1:])
        im = columns[:, COLUMNS + m : COLUMNS + 2 * m]
        turns = _turns(np.diff(im, axis=0)[first] + np.diff(own[:, 1])[first, None] * omega[1:], first)
        im[: len(turns)] -= 2.0 * np.pi * turns
        # the logarithms of the moment generating functions, and how far they may be off
        log = own[:, :1] + 1j * own[:, 1:2] * omega
        log[:, 1:] += columns[:, COLUMNS : COLUMNS + m] + 1j * im
        off = np.minimum(2.0 * (own[:, 8:9] + own[:, 9:10] * omega + own[:, 4:5]), 1e100)
        apart = np.diff(log, axis=0)[first]
        off = off[first] + off[first + 1]
        adds = budget.lottery(apart, off)
        adds[:, 0] = budget.lottery(apart[:, 0].real, off[:, 0])
        real = np.abs(apart.real).max(axis=1) + off.max(axis=1)
        envelope = budget.lottery((np.diff(own[:, 0]) + np.diff(own[:, 2]))[first])
        added = np.zeros((len(columns), m + 3))
        for side in (first, first + 1):
            added[side] = np.maximum(added[side], np.column_stack([adds[:, 0], real**2 / 8.0, adds[:, 1:], envelope]))
        columns[:, COLUMNS + 2 * m :] = added[:, :-1]
        # the matrix product's round-off of phases that went round
        columns[:, COLUMNS + 2 * m + 2 :] += (len(columns) + 8) * 2.0**-51 * np.maximum(np.abs(im) - np.pi, 0.0)
        columns[:, 2] = own[:, 2] + added[:, -1]
        # A product of fractional powers is known relative to itself alone: |(1 + e)^c - 1| is at most
        # exp(c |log(1 - |e|)|) - 1, and -log(1 - e) at most e / (1 - e).
        columns[:, [3, 7]] = 1e200
        most = own[:, 8] + own[:, 9] * omega[-1]
        columns[:, 8:10] = own[:, 8:10] / (1.0 - np.minimum(most, 0.5))[:, None]
        columns[most > 0.5, 8] = 1e200
        columns[first, 4] = np.maximum(own[first, 4], own[first + 1, 4])
        columns[first + 1, 4] = np.maximum(columns[first + 1, 4], own[first, 4])

    def setting(self, buckets: int) -> NDArray:
        """The scalars of `kernels.plancherel`; the last is the round-off of a matrix product over the buckets."""
        gemm = (buckets + 8) * 2.0**-52
        return np.array([self.theta, 2.0 * np.pi / self.period, self.period, self.remainder, self.lattice_step, gemm])


def _turns(apart: NDArray, first: NDArray) -> NDArray:
    """How many turns to take off the phases of each bucket so that those in `first` are less than half from the next.

    apart (pairs, frequencies): phase of the next less that of the bucket.  Shape (last bucket of a pair + 1, ...).
    """
    turns = np.zeros((int(first.max(initial=-1)) + 2, apart.shape[1]))
    for bucket, turn in zip(first, np.round(apart / (2.0 * np.pi)), strict=True):
        # a turn of one is a turn of all that follow in its chain
        turns[bucket + 1] = turns[bucket] + turn
    return turns


class Maker(Protocol):
    """What makes tables: from the Gaussian's own variable (`spectral`) or from a grid on the loss (`lattice`)."""

    @property
    def buckets(self) -> int: ...

    @property
    def whole(self) -> bool:
        """Whether `log_moments` bound those of the mechanisms, not only of what the tables hold."""
        ...

    def log_moments(self, theta: NDArray) -> NDArray:
        """K, shape (buckets, tilts), never below the truth."""
        ...

    def table(self, theta: float, period: float, width: float, needed: NDArray, work: float = WORK) -> Table | None:
        """The table up to the frequency `width`; None where filling it would cost more than `work`.

        Only the rows of the buckets in `needed` (bool) are filled for certain; the others may be 0.
        """
        ...


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
