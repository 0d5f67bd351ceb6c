"""Tables for the Poisson-subsampled Gaussian, from the characteristic function in the Gaussian's own variable.

No grid on the loss: the trapezoidal rule in x gives log phi to machine precision with some hundred nodes, so one table
serves the upper and the lower bound.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import error_budget as budget
from .tables import COLUMNS, MemoryCache, Table

__all__ = ["SpectralMaker"]

_TOLERANCE = 1e-19  # of the quadrature, per step: ten million steps still add up to 1e-12
_RATIO = 2.0**0.5  # spacing of the frequencies at which the envelope is known
_CELLS = 768
_NODES_FOR_MOMENTS = 4_000
_NODES_AT_MOST = 4_000_000
_WORK = 400_000_000  # nodes x frequencies x buckets of one table
_CACHE_BYTES = 1 << 29


class SpectralMaker:
    """Makes tables for buckets of sampled Gaussians in one direction.

    Parameters
    ----------
    sigma, q : ndarray, shape (buckets,)
        Noise multiplier and sample rate of each bucket.
    direction : {"remove", "add"}
    """

    def __init__(self, sigma: NDArray, q: NDArray, direction: str) -> None:
        self.sigma = np.ascontiguousarray(sigma, dtype=np.float64)
        self.q = np.ascontiguousarray(q, dtype=np.float64)
        self.sign = 1.0 if direction == "remove" else -1.0
        self._moments: dict[float, NDArray] = {}
        self._envelopes: dict[float, tuple[NDArray, NDArray]] = {}
        self._tables: MemoryCache[Table] = MemoryCache(_CACHE_BYTES, lambda t: t.columns.nbytes)

    @property
    def buckets(self) -> int:
        return self.sigma.size

    def log_moments(self, theta: NDArray, *, exact: bool = False) -> NDArray:
        """K at each tilt, rounded up; unless `exact`, the Gaussian's K, an upper bound, where that needs many nodes."""
        from .kernels import spectral

        new = np.array([t for t in theta if float(t) not in self._moments], dtype=np.float64)
        if new.size:
            with np.errstate(divide="ignore"):
                largest_loss = -np.log1p(-self.q) * (1.0 + 2.0**-50) if self.sign < 0 else np.full(self.buckets, np.inf)
            for t in new:
                ends = self._ends(t)
                nodes = budget.quadrature_nodes(self.sigma, self.q, self.sign, t, ends, 0.0, _TOLERANCE)
                nodes = np.where(nodes <= (_NODES_AT_MOST if exact else _NODES_FOR_MOMENTS), nodes, 0)
                k, units = np.empty((2, self.buckets))
                spectral.log_moments(self.sigma, self.q, self.sign, t, ends, nodes, k, units)
                k += budget.roundoff_k(self.buckets, k, units) + 1e-18
                self._moments[float(t)] = np.minimum(k, largest_loss * t)
        return np.stack([self._moments[float(t)] for t in theta], axis=1)

    def _ends(self, theta: float) -> NDArray:
        """Where the tilted law of each bucket has its maxima, in the Gaussian's variable: (buckets, 2)."""
        from .kernels import spectral

        ends = np.empty((self.buckets, 2))
        spectral.middle(self.sigma, self.q, self.sign, theta, ends)
        return ends

    def table(self, theta: float, period: float, width: float, needed: NDArray) -> Table | None:
        """The table at this tilt and period for frequencies up to `width`, a power of sqrt(2)."""
        table = self._tables.get((theta, period, width), lambda: self._empty(theta, period, width))
        missing = np.flatnonzero(needed & ~table.filled)
        return table if self._fill(table, width, missing) else None

    def _empty(self, theta: float, period: float, width: float) -> Table:
        spacing = 2.0 * np.pi / period
        m = int(np.ceil(width / spacing))
        z = theta + 1j * spacing * np.arange(m + 1)
        weight = 2.0 / (period * z * (1.0 + z))
        weight[0] /= 2.0
        columns = np.zeros((self.buckets, COLUMNS + 2 * m))
        filled = np.zeros(self.buckets, dtype=bool)
        return Table(theta, period, columns, filled, weight, budget.band_coefficient(m * spacing))

    def _fill(self, table: Table, width: float, rows: NDArray) -> bool:
        """Fill these rows of a table; False where that would cost too much."""
        theta, m, reach = table.theta, table.frequencies, 2.0 * np.pi / table.period * table.frequencies
        sigma, q, ends = self.sigma[rows], self.q[rows], self._ends(theta)[rows]
        nodes = budget.quadrature_nodes(sigma, q, self.sign, theta, ends, reach, _TOLERANCE)
        nodes[q == 1.0] = 2
        if float(nodes.sum()) * m > _WORK:
            return False
        if not rows.size:
            return True
        from .kernels import spectral

        moments = np.empty((rows.size, 8))
        re = np.empty((rows.size, m))
        im = np.empty((rows.size, m))
        spectral.spectrum(sigma, q, self.sign, theta, ends, 2.0 * np.pi / table.period, nodes, moments, re, im)
        k, mean, units, spread, weighted, left_out = moments[:, :6].T
        truncation = np.where(
            q == 1.0,
            0.0,
            2.0 * budget.quadrature_error(sigma, q, self.sign, theta, ends, reach, nodes)
            + 2.0 * budget.tail_error(sigma, q, self.sign, theta),
        )
        columns = table.columns
        columns[rows, 0] = k
        columns[rows, 1] = mean
        columns[rows, 2] = self._envelope(theta, width, rows, k, moments[:, 6:8])
        columns[rows, 3] = truncation + 2.0 * left_out
        columns[rows, 7] = budget.roundoff_phi(m, self.buckets, spread, weighted)
        columns[rows, 4] = budget.roundoff_k(self.buckets, k, units) + truncation
        columns[rows, COLUMNS : COLUMNS + m] = re
        columns[rows, COLUMNS + m :] = im
        table.filled[rows] = True
        return True

    def _envelope(self, theta: float, width: float, rows: NDArray, k: NDArray, span: NDArray) -> NDArray:
        """log sup |phi| beyond `width`, from a ladder of frequencies that is computed once for a tilt and bucket."""
        from .kernels import envelope

        if theta not in self._envelopes:
            # From far below any band that this tilt will need up to where one step's density, at most about
            # sigma / q, makes the cut bound small.
            lowest = np.floor(2.0 * np.log2(0.05 * theta))
            highest = np.ceil(2.0 * np.log2(64.0 * np.max(self.sigma / self.q) + theta)) + 8
            levels = 2.0 ** (0.5 * np.arange(lowest, highest + 1))
            self._envelopes[theta] = (levels, np.full((self.buckets, levels.size), np.nan))
        levels, env = self._envelopes[theta]
        new = np.isnan(env[rows, 0])
        if new.any():
            fresh = np.empty((int(new.sum()), levels.size))
            which = rows[new]
            envelope.envelope(
                self.sigma[which], self.q[which], self.sign, theta, k[new].copy(), span[new].copy(), _CELLS, levels,
                _RATIO, fresh,
            )  # fmt: skip
            env[which] = fresh
        level = int(np.searchsorted(levels, width * (1.0 + 1e-12), side="right")) - 1
        return env[rows, level] if level >= 0 else np.zeros(rows.size)
