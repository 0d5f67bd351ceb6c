"""Tables for the Poisson-subsampled Gaussian, from the characteristic function in the Gaussian's own variable.

No grid on the loss: the trapezoidal rule in x gives log phi to machine precision with some hundred nodes, so one table
serves the upper and the lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from . import errors as budget
from .interpolated import join
from .table import COLUMNS, WORK, MemoryCache, Table

__all__ = ["SpectralMaker"]

_TOLERANCE = 1e-19  # of the quadrature, per step: ten million steps still add up to 1e-12
_CELLS = 768
_NODES_FOR_MOMENTS = 4_000
_NODES_AT_MOST = 4_000_000
_CACHE_BYTES = 1 << 30


def _panels(
    sigma: NDArray, q: NDArray, theta: float, ends: NDArray, width: float, most: int
) -> tuple[NDArray, NDArray]:
    """How many nodes, `most` at most or one panel more, a part of the law of removal needs, and the error of phi."""
    from ..kernels import characterise

    points = budget.GAUSS.shape[1]
    number, error = np.empty(sigma.size, dtype=np.int64), np.empty(sigma.size)
    characterise.choose_panels(
        sigma, q, theta, ends, width, points, most // points, budget.ELLIPSES, _TOLERANCE, number, error
    )
    return number * points, error


class SpectralMaker:
    """Makes tables for buckets of sampled Gaussians in one direction.

    Parameters
    ----------
    sigma, q : ndarray, shape (buckets,)
        Noise multiplier and sample rate of each bucket.
    direction : {"remove", "add"}
    reach : float, optional
        Removal only: a step's law ends where Phi(-reach) of its mass is left.  The rest, next to nothing, goes to
        +infinity in the upper bounds and is dropped from the lower ones; it would otherwise decide alone what large
        tilts see.
    beyond : float, optional
        The law begins where, with this reach, another one ends.
    blur : float
        How soft the ends are, in standard deviations of the noise; 0: sharp.
    lotteries : {0, 1, 2}
        With 1 or 2 steps may be lotteries between a bucket and the next, if that has less noise (see `lotteries`).
        What they add is known to that order: 2 costs more time and serves where Q is small (see `joining`).
    parted : bool
        What the law does not have is not at infinity but left to another maker (see `large_losses`).

    Attributes
    ----------
    part : ndarray, shape (buckets, 2)
        Where the laws begin and end, in the Gaussian's own variable (see `kernels.spectral`).
    whole : bool
        Whether log-moments bound all there is: nothing is at infinity.
    kept : dict
        What others make of the maker and want to find again.
    """

    def __init__(
        self, sigma: NDArray, q: NDArray, direction: str, reach: float = np.inf, *, beyond: float = -np.inf,
        blur: float = 0.0, lotteries: int = 0, parted: bool = False,
    ) -> None:  # fmt: skip
        self.sigma = np.ascontiguousarray(sigma, dtype=np.float64)
        self.q = np.ascontiguousarray(q, dtype=np.float64)
        self.sign = 1.0 if direction == "remove" else -1.0
        self.reach, self.blur, self.parted = reach, blur, parted
        self.whole = reach == np.inf or parted
        begin = np.full(self.sigma.size, -np.inf) if beyond == -np.inf else self.tops(beyond)
        self.part = np.stack([begin, self.tops(reach)], axis=1)
        self._rule = budget.GAUSS if reach < np.inf and blur == 0.0 else np.empty((2, 0))
        self.lotteries = lotteries
        # full batches need none
        self.neighbours = (np.diff(self.sigma) < 0.0) & (np.diff(self.q) == 0.0) & (self.q[1:] < 1.0) & (lotteries > 0)
        self._key = reach, beyond, blur, lotteries, parted
        self._variants: dict[tuple[float, float, float, int, bool], SpectralMaker] = {self._key: self}
        self.kept: dict[Hashable, Any] = {}
        self._moments: dict[float, NDArray] = {}
        self._ladders: dict[float, tuple[int, NDArray]] = {}
        self._tables: MemoryCache[Table] = MemoryCache(_CACHE_BYTES, lambda t: t.bytes)

    @property
    def buckets(self) -> int:
        return self.sigma.size

    def tops(self, reach: float) -> NDArray:
        """The end beyond which, by bisection, Phi(-reach) of a step's mass under removal lies; inf for full batches."""
        if reach == np.inf:
            return np.full(self.buckets, np.inf)
        log_mass = special.log_ndtr(-reach)
        low, high = np.full(self.buckets, -45.0), np.full(self.buckets, 45.0)
        for _ in range(50):
            middle = 0.5 * (low + high)
            more = self._log_beyond(1.0 + middle * self.sigma) > log_mass
            low, high = np.where(more, middle, low), np.where(more, high, middle)
        return np.where(self.q == 1.0, np.inf, 1.0 + high * self.sigma)

    def _log_beyond(self, end: NDArray) -> NDArray:
        """log of a step's mass beyond an end."""
        deviation = self.sigma * math.sqrt(1.0 + self.blur**2)
        with np.errstate(divide="ignore"):
            idle = np.log1p(-self.q) + special.log_ndtr(-end / deviation)
            return np.logaddexp(idle, np.log(self.q) + special.log_ndtr((1.0 - end) / deviation))

    def variant(
        self, reach: float, *, beyond: float = -np.inf, blur: float = 0.0, lotteries: int | None = None,
        parted: bool = False,
    ) -> SpectralMaker:  # fmt: skip
        """The same buckets and direction; with lotteries between them or without, if it is said."""
        key = reach, beyond, blur, self.lotteries if lotteries is None else lotteries, parted
        if key not in self._variants:
            direction = "remove" if self.sign > 0 else "add"
            made = SpectralMaker(
                self.sigma, self.q, direction, reach, beyond=beyond, blur=blur, lotteries=key[3], parted=parted
            )
            # one cache for all: there may be many of them
            made._variants, made._tables = self._variants, self._tables
            # the laws themselves know of no lotteries
            same = (other for of, other in self._variants.items() if of[:3] == key[:3])
            made._moments = next((other._moments for other in same), made._moments)
            self._variants[key] = made
        return self._variants[key]

    def log_moments(self, theta: NDArray, *, exact: bool = False) -> NDArray:
        """K at each tilt, rounded up; unless `exact`, the Gaussian's K, an upper bound, where that needs many nodes."""
        from ..kernels import characterise

        new = np.array([t for t in theta if float(t) not in self._moments], dtype=np.float64)
        if new.size:
            with np.errstate(divide="ignore"):
                largest_loss = -np.log1p(-self.q) * (1.0 + 2.0**-50) if self.sign < 0 else np.full(self.buckets, np.inf)
            for t in new:
                every = np.arange(self.buckets)
                ends, nodes, _ = self._nodes(t, 0.0, every, _NODES_AT_MOST if exact else _NODES_FOR_MOMENTS)
                k, units = np.empty((2, self.buckets))
                law = self.sigma, self.q, self.sign, t, self.part, self.blur
                characterise.log_moments(*law, ends, self._rule, nodes, k, units)
                k += budget.roundoff_k(self.buckets, k, units) + 1e-18
                self._moments[float(t)] = np.minimum(k, largest_loss * t)
        return self._joined(np.stack([self._moments[float(t)] for t in theta], axis=1))

    def composed(self, sums: NDArray) -> NDArray:
        return sums

    def _joined(self, k: NDArray) -> NDArray:
        """Log-moments (buckets, tilts) with room for lotteries between neighbours."""
        if not self.neighbours.any():
            return k
        added = budget.lottery(np.diff(k, axis=0)) * self.neighbours[:, None]
        none = np.zeros((1, k.shape[1]))
        return k + np.maximum(np.vstack([added, none]), np.vstack([none, added]))

    def _nodes(self, theta: float, width: float, rows: NDArray, most: int) -> tuple[NDArray, NDArray, NDArray]:
        """Ends, number of nodes (0: more than `most`) and error of phi up to `width`, for these buckets."""
        from ..kernels import characterise

        sigma, q = self.sigma[rows], self.q[rows]
        ends = np.empty((rows.size, 2))
        characterise.interval(sigma, q, self.sign, theta, self.part[rows], self.blur, budget.REACH, ends)
        if self._rule.size:
            nodes, error = _panels(sigma, q, theta, ends, width, most)
        else:
            law = sigma, q, self.sign, theta, ends, width
            nodes = budget.quadrature_nodes(*law, _TOLERANCE, self.blur)
            error = 2.0 * budget.quadrature_error(*law, nodes, self.blur)
        error += 2.0 * budget.tail_error(sigma, q, self.sign, theta, self.blur)
        error[q == 1.0] = 0.0
        nodes[q == 1.0] = 2
        return ends, np.where(nodes <= most, nodes, 0), error

    def table(
        self, theta: float, period: float, width: float, needed: NDArray, work: float = WORK
    ) -> Table | None:
        """The table at this tilt and period for frequencies up to `width`, a power of sqrt(2)."""
        key = *self._key, theta, period, width
        table = self._tables.get(key, lambda: self._empty(theta, period, width))
        missing = np.flatnonzero(needed & ~table.filled)
        return table if self._fill(table, width, missing, work) else None

    def _empty(self, theta: float, period: float, width: float) -> Table:
        spacing = 2.0 * np.pi / period
        m = int(np.ceil(width / spacing))
        z = theta + 1j * spacing * np.arange(m + 1)
        weight = 2.0 / (period * z * (1.0 + z))
        weight[0] /= 2.0
        columns = np.zeros((self.buckets, COLUMNS + 2 * m + (m + 2) * (self.lotteries > 0)))
        filled = np.zeros(self.buckets, dtype=bool)
        coefficient = budget.band_coefficient(m * spacing)
        table = Table(theta, period, columns, filled, weight, coefficient, ladder=self._ladder(theta))
        if self.lotteries:
            table.own = np.zeros((self.buckets, COLUMNS))
        if self.lotteries == 2:
            table.second = np.zeros((self.buckets, m + 1), dtype=complex)
            table.third = np.zeros((self.buckets, m + 1))
        return table

    def _fill(self, table: Table, width: float, rows: NDArray, work: float) -> bool:
        """Fill these rows of a table; False where that would cost too much."""
        theta, m, reach = table.theta, table.frequencies, 2.0 * np.pi / table.period * table.frequencies
        sigma, q = self.sigma[rows], self.q[rows]
        ends, nodes, truncation = self._nodes(theta, reach, rows, _NODES_AT_MOST)
        if float(nodes.sum()) * m > work or not np.all(nodes):
            return False
        if not rows.size:
            return True
        from ..kernels import characterise

        moments = np.empty((rows.size, 8))
        re = np.empty((rows.size, m))
        im = np.empty((rows.size, m))
        spacing = 2.0 * np.pi / table.period
        law = sigma, q, self.sign, theta, self.part[rows], self.blur
        characterise.spectrum(*law, ends, self._rule, spacing, nodes, moments, re, im)
        k, mean, units, spread, weighted, left_out = moments[:, :6].T
        columns = table.columns
        columns[rows, 0] = k
        columns[rows, 1] = mean
        columns[rows, 2] = self._envelope(theta, width, rows, k, moments[:, 6:8])
        columns[rows, 3] = truncation + 2.0 * left_out
        columns[rows, 5] = -np.log1p(-self._infinite(rows))
        columns[rows, 7] = budget.roundoff_phi(m, self.buckets, spread, weighted)
        columns[rows, 4] = budget.roundoff_k(self.buckets, k, units) + truncation
        columns[rows, 8:10] = budget.relative(columns[rows][:, [3, 7]], re)
        columns[rows, COLUMNS : COLUMNS + m] = re
        columns[rows, COLUMNS + m : COLUMNS + 2 * m] = im
        table.filled[rows] = True
        if table.own is not None:
            table.own[rows] = columns[rows, :COLUMNS]
            join(table, self.neighbours)
        return True

    def _infinite(self, rows: NDArray) -> NDArray:
        """The mass of one step at infinity."""
        return np.zeros(rows.size) if self.whole else self.mass_beyond(self.part[:, 1])[rows]

    def mass_beyond(self, x: NDArray) -> NDArray:
        """Each bucket's mass of a step under removal beyond an end (buckets,), rounded up; 0 for full batches."""
        return np.where(self.q == 1.0, 0.0, np.exp(self._log_beyond(x)) * (1.0 + 1e-10) + 1e-300)

    def _ladder(self, theta: float) -> tuple[int, NDArray]:
        """As `Table.ladder`, NaN where not computed yet; the same array for all tables of a tilt."""
        if theta not in self._ladders:
            # From far below any band that this tilt will need up to where one step's density, at most about
            # sigma / q, makes the cut bound small.
            lowest = math.floor(2.0 * np.log2(0.05 * theta))
            highest = math.ceil(2.0 * np.log2(64.0 * np.max(self.sigma / self.q) + theta)) + 8
            self._ladders[theta] = lowest, np.full((self.buckets, highest - lowest + 1), np.nan)
        return self._ladders[theta]

    def _envelope(self, theta: float, width: float, rows: NDArray, k: NDArray, span: NDArray) -> NDArray:
        """log sup |phi| beyond `width`, from a ladder of frequencies that is computed once for a tilt and bucket."""
        from ..kernels import envelope

        lowest, env = self._ladder(theta)
        levels = 2.0 ** (0.5 * np.arange(lowest, lowest + env.shape[1]))
        new = np.isnan(env[rows, 0])
        if new.any():
            fresh = np.empty((int(new.sum()), levels.size))
            which = rows[new]
            law = self.sigma[which], self.q[which], self.sign, theta, self.part[which], self.blur
            envelope.envelope(*law, k[new].copy(), span[new].copy(), _CELLS, levels, fresh)
            env[which] = fresh
        level = int(np.searchsorted(levels, width * (1.0 + 1e-12), side="right")) - 1
        return env[rows, level] if level >= 0 else np.zeros(rows.size)
