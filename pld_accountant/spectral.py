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
_NODES_FOR_MOMENTS = 40_000
_WORK = 400_000_000  # nodes x frequencies x buckets of one table
_CACHE_BYTES = 1 << 29


def _size(table: Table | None) -> int:
    return 64 if table is None else table.columns.nbytes


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
        self._moments: dict[float, tuple[NDArray, bool]] = {}
        self._envelopes: dict[float, tuple[NDArray, NDArray]] = {}
        self._tables: MemoryCache[Table | None] = MemoryCache(_CACHE_BYTES, _size)

    @property
    def buckets(self) -> int:
        return self.sigma.size

    def log_moments(self, theta: NDArray) -> tuple[NDArray, int]:
        """K at each tilt, rounded up; a tilt that would need too many nodes gets the Gaussian's K, an upper bound."""
        from .kernels import spectral

        new = np.array([t for t in theta if float(t) not in self._moments], dtype=np.float64)
        if new.size:
            tilts = np.tile(new, (self.buckets, 1))
            nodes = np.stack(
                [budget.quadrature_nodes(self.sigma, self.sign, t, 0.0, _TOLERANCE) for t in new], axis=1
            )
            exact = (nodes <= _NODES_FOR_MOMENTS) | (self.q[:, None] == 1.0)
            k = np.empty(tilts.shape)
            units = np.empty(tilts.shape)
            nodes = np.where(nodes <= _NODES_FOR_MOMENTS, nodes, 0)
            spectral.log_moments(self.sigma, self.q, self.sign, tilts, np.ascontiguousarray(nodes), k, units)
            k += budget.roundoff_k(self.buckets, k, units) + 1e-18
            for j, t in enumerate(new):
                self._moments[float(t)] = (k[:, j].copy(), bool(exact[:, j].all()))
        columns = [self._moments[float(t)] for t in theta]
        exact_run = np.cumprod([ok for _, ok in columns])
        return np.stack([k for k, _ in columns], axis=1), int(exact_run.sum())

    def table(self, theta: float, period: float, width: float) -> Table | None:
        """The table at this tilt and period for frequencies up to `width`, a power of sqrt(2)."""
        return self._tables.get((theta, period, width), lambda: self._make(theta, period, width))

    def _make(self, theta: float, period: float, width: float) -> Table | None:
        spacing = 2.0 * np.pi / period
        m = int(np.ceil(width / spacing))
        nodes = budget.quadrature_nodes(self.sigma, self.sign, theta, m * spacing, _TOLERANCE)
        nodes[self.q == 1.0] = 2
        if float(nodes.sum()) * m > _WORK:
            return None
        from .kernels import spectral

        moments = np.empty((self.buckets, 8))
        re = np.empty((self.buckets, m))
        im = np.empty((self.buckets, m))
        spectral.spectrum(self.sigma, self.q, self.sign, theta, spacing, nodes, moments, re, im)
        k, mean, units, spread, weighted, left_out = moments[:, :6].T
        columns = np.empty((self.buckets, COLUMNS + 2 * m))
        columns[:, 0] = k
        columns[:, 1] = mean
        columns[:, 2] = self._envelope(theta, width, k, moments[:, 6:8])
        truncation = np.where(
            self.q == 1.0,
            0.0,
            2.0 * budget.quadrature_error(self.sigma, self.sign, theta, m * spacing, nodes)
            + 2.0 * budget.tail_error(self.sigma, self.sign, theta),
        )
        columns[:, 3] = budget.roundoff_phi(m * spacing, m, self.buckets, spread, weighted) + truncation + 2.0 * left_out
        columns[:, 4] = budget.roundoff_k(self.buckets, k, units) + truncation
        columns[:, 5:7] = 0.0
        columns[:, COLUMNS : COLUMNS + m] = re
        columns[:, COLUMNS + m :] = im
        z = theta + 1j * spacing * np.arange(m + 1)
        weight = 2.0 / (period * z * (1.0 + z))
        weight[0] /= 2.0
        return Table(theta, period, columns, weight, budget.band_coefficient(m * spacing))

    def _envelope(self, theta: float, width: float, k: NDArray, span: NDArray) -> NDArray:
        """log sup |phi| beyond `width`, from a ladder of frequencies that is computed once for a tilt."""
        from .kernels import envelope

        if theta not in self._envelopes:
            # From far below any band that this tilt will need up to where one step's density, at most about
            # sigma^2 / (q sigma), makes the cut bound small.
            lowest = np.floor(2.0 * np.log2(0.05 * theta))
            highest = np.ceil(2.0 * np.log2(64.0 * np.max(self.sigma / self.q) + theta)) + 8
            levels = 2.0 ** (0.5 * np.arange(lowest, highest + 1))
            env = np.empty((self.buckets, levels.size))
            # span is unused (and 0) where q = 1
            envelope.envelope(
                self.sigma, self.q, self.sign, theta, np.ascontiguousarray(k), np.ascontiguousarray(span),
                _CELLS, levels, _RATIO, env,
            )  # fmt: skip
            self._envelopes[theta] = (levels, env)
        levels, env = self._envelopes[theta]
        level = int(np.searchsorted(levels, width * (1.0 + 1e-12), side="right")) - 1
        if level < 0:
            return np.zeros(self.buckets)
        return env[:, level]
