"""Tables from privacy loss distributions on a uniform grid and their Fourier transforms: the papers' way, tilted.

Serves any law, and what neither the spectral tables nor direct composition (`direct`) bring close enough.  The upper
and the lower bound have tables of their own (`kernels.discretise`), whose error in log delta is about
n theta (theta + 1) h^2 / 12 after n steps.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from . import disk_cache, fft
from . import errors as budget
from .characteristic import SpectralMaker
from .table import COLUMNS, WORK, MemoryCache, Table

__all__ = ["LatticeMaker"]

_MASS_ERROR = 1e-14  # relative error of a discretised mass, see kernels.discretise
_NOTHING = 64.0  # exp(-64) of the tilted law may lie below the grid
_DIRECT = 16
_CELL = 500.0  # cost of a cell, see `WORK`
_CACHE_BYTES = 1 << 29


class LatticeMaker:
    """Makes tables on a grid of `size` points over the period, as an upper or as a lower bound.

    Parameters
    ----------
    spectral : SpectralMaker
        The same buckets and direction; its log-moments choose the tilts and bound the aliasing.
    side : {"upper", "lower"}
    size : int
        Points of the grid over one period, a power of two.
    log_negligible : float
        log of the mass of one step that the upper bound may move to +infinity, and the lower bound drop.
    """

    def __init__(
        self, spectral: SpectralMaker, side: Literal["upper", "lower"], size: int, log_negligible: float = -700.0
    ) -> None:
        self._spectral, self.side, self.size = spectral, side, size
        # log Phi(-r) <= -r^2 / 2 for every r >= 0
        self._reach = float(np.sqrt(-2.0 * max(min(log_negligible, -40.0), -700.0)))
        tops = spectral.tops(self._reach)
        self._high = np.where(np.isinf(tops), 1.0 + self._reach * spectral.sigma, tops)
        self._tables: MemoryCache[Table] = MemoryCache(_CACHE_BYTES, lambda t: t.columns.nbytes)

    @property
    def buckets(self) -> int:
        return self._spectral.buckets

    @property
    def whole(self) -> bool:
        return self._spectral.whole

    def log_moments(self, theta: NDArray) -> NDArray:
        """K of the mechanisms themselves; what the grid adds to it is the table's `spread`."""
        return self._spectral.log_moments(theta)

    def composed(self, sums: NDArray) -> NDArray:
        return sums

    def table(
        self, theta: float, period: float, width: float, needed: NDArray, work: float = WORK
    ) -> Table | None:
        """The table at this tilt and period; a band that would leave out little is the whole transform."""
        half = self.size // 2
        m = math.ceil(width * period / (2.0 * np.pi))
        m = half if m > half // 2 else m
        table = self._tables.get((theta, period, m), lambda: self._empty(theta, period, m))
        rows = np.flatnonzero(needed & ~table.filled)
        spans = [self._span(int(b), theta) for b in rows]
        if not (self.whole or self._ends_before(rows, spans, 3.0 * period / self.size)):
            return None
        if not sum(top - bottom for bottom, top in spans) * self.size / period * _CELL < work:
            return None
        for bucket in rows:
            table.columns[bucket] = self._load_or_make(int(bucket), theta, period, m)
            table.filled[bucket] = True
        return table

    def _empty(self, theta: float, period: float, m: int) -> Table:
        step = period / self.size
        weight, remainder = _weights(theta, step, self.size, m)
        columns = np.zeros((self.buckets, COLUMNS + 2 * m))
        filled = np.zeros(self.buckets, dtype=bool)
        spread = step * step / 8.0 if self.side == "upper" else 0.0
        return Table(theta, period, columns, filled, weight, remainder, lattice_step=step, spread=spread)

    def _load_or_make(self, bucket: int, theta: float, period: float, m: int) -> NDArray:
        """One row, from the disk if it is there."""
        law = *self._parameters(bucket), self.whole, self.side, self._reach
        name = disk_cache.key("lattice", *law, self.size, theta, period, m, self.buckets)
        stored = disk_cache.read_arrays(name)
        if stored is not None and stored["row"].shape == (COLUMNS + 2 * m,):
            return stored["row"]
        row = self._row(bucket, theta, period / self.size, m)
        disk_cache.write_arrays(name, {"row": row})
        return row

    def _row(self, bucket: int, theta: float, step: float, m: int) -> NDArray:
        """One bucket: discretise, tilt, fold onto the period, transform, centre."""
        start, mass, beyond = self._discretised(bucket, theta, step)
        losses = start + np.arange(mass.size) * step
        positive = mass > 0.0
        exponent = np.full(mass.shape, -np.inf)
        exponent[positive] = np.log(mass[positive]) + theta * losses[positive]
        top = exponent.max()
        tilted = np.exp(exponent - top)
        total = tilted.sum()
        tilted /= total
        mean = float(tilted @ losses)
        folded = np.bincount(np.arange(mass.size) % self.size, weights=tilted, minlength=self.size)
        phi, norm = _transform(folded)
        row = np.empty(COLUMNS + 2 * m)
        omega = 2.0 * np.pi / (self.size * step) * np.arange(1, m + 1)
        with np.errstate(divide="ignore"):
            size = np.log(np.abs(phi))
        # a mass carries the round-off of its exponent and of its knot, weighted by the tilted law
        exponents = float(tilted[positive] @ np.abs(exponent[positive] - top) + theta * (tilted @ np.abs(losses)))
        error = fft.roundoff(self.size, norm) + _MASS_ERROR + (64.0 + 4.0 * exponents) * 2.0**-53
        row[0] = top + math.log(total)
        row[1] = mean
        row[2] = math.log(min(float(np.abs(phi[m + 1 :]).max(initial=0.0)) + error, 1.0))
        row[3] = error * (1.0 + 1e-9) + 4.0 * self.buckets * 2.0**-53
        row[4] = _MASS_ERROR + (mass.size + self.buckets + 64.0) * 2.0**-53 * (1.0 + abs(row[0]))
        row[5] = -math.log1p(-beyond)
        row[6] = start
        row[7] = 0.0
        row[COLUMNS : COLUMNS + m] = np.maximum(size[1 : m + 1], -700.0)
        row[8:10] = budget.relative(row[None, [3, 7]], row[None, COLUMNS : COLUMNS + m])[0]
        row[COLUMNS + m :] = np.angle(phi[1 : m + 1] * np.exp(1j * omega * (start - mean)))
        return row

    def _discretised(self, bucket: int, theta: float, step: float) -> tuple[float, NDArray, float]:
        """First knot, masses, and the mass moved to +infinity (upper) for one bucket.

        The knots are shifted so that one lies at the barycentre of the law's middle.  The grid ends below where the
        tilt has left nothing of the law, and above where a negligible part of it lies.
        """
        from ..kernels import discretise

        sigma, q, sign = self._parameters(bucket)
        lower = self.side == "lower"
        bottom, top = self._span(bucket, theta)
        knot = discretise.barycentre(sigma, q, sign, step)
        first, last = math.floor((bottom - knot) / step) - 1, math.ceil((top - knot) / step) + 1
        start, cells = knot + first * step, last - first
        mass = np.empty(cells + 1)
        p, b = np.empty((2, cells))
        gap = np.empty((cells if lower else 0, 4))
        discretise.cells(sigma, q, sign, start, step, p, b, gap)
        if lower:
            discretise.connect_down(p, b, gap, step, mass)
            return start, mass, 0.0
        discretise.connect_up(p, b, mass)
        # What lies below the grid moves up to its first knot; what lies above, to +infinity.
        mass[0] += max(1.0 - mass.sum(), 0.0) + 1e-14
        return start, mass, math.exp(-0.5 * self._reach**2)

    def _ends_before(self, rows: NDArray, spans: list, room: float) -> bool:
        """Whether every grid ends where the log-moments' law still goes on."""
        ends = [_log_g(float(self._spectral.part[b, 1]), *self._parameters(int(b))[:2]) for b in rows]
        return all(top + room <= end for (_, top), end in zip(spans, ends, strict=True))

    def _parameters(self, bucket: int) -> tuple[float, float, float]:
        return float(self._spectral.sigma[bucket]), float(self._spectral.q[bucket]), self._spectral.sign

    def _span(self, bucket: int, theta: float) -> tuple[float, float]:
        """Lowest and highest loss on the grid of one bucket."""
        sigma, q, sign = self._parameters(bucket)
        a = 1.0 + theta if sign > 0 else -theta
        low = min(-self._reach * sigma, a - 10.0 * sigma)
        high = float(self._high[bucket])
        if self.whole:
            high = max(high, a + 10.0 * sigma)
        bottom, top = sorted(sign * _log_g(x, sigma, q) for x in (low, high))
        return max(bottom, -_NOTHING / theta), top


def _transform(folded: NDArray) -> tuple[NDArray, float]:
    """E[exp(i omega n h)] at the frequencies 0 .. size / 2, and the norm that scales the FFT's round-off.

    The few largest masses are summed directly: beside a spike of nearly 1 the FFT would lose the rest's digits.
    """
    size = folded.size
    largest = np.argpartition(folded, -_DIRECT)[-_DIRECT:] if size > _DIRECT else np.arange(size)
    rest = folded.copy()
    rest[largest] = 0.0
    phi = np.conj(fft.rfft(rest))
    turn = np.arange(size // 2 + 1)
    for n in largest:
        phi += folded[n] * np.exp(2j * np.pi / size * ((turn * int(n)) % size))
    return phi, float(np.linalg.norm(rest))


def _log_g(x: float, sigma: float, q: float) -> float:
    t = (2.0 * x - 1.0) / (2.0 * sigma * sigma)
    if q == 1.0 or t > 36.0:
        return t + math.log(q)
    y = q * math.expm1(t)
    # 1 + y would lose the digits of a small g
    return math.log1p(y) if y > -0.5 else math.log((1.0 - q) + q * math.exp(t))


def _weights(theta: float, step: float, size: int, m: int) -> tuple[NDArray, float]:
    """Transform of the tilted hockey-stick weight on the lattice, and the sum of the weights left out.

    sum over n >= 0 of exp(-z n h) (1 - exp(-n h)), two geometric series; divided by the number of points, doubled for
    the frequencies that stand for two.
    """
    f = np.arange(size // 2 + 1)
    z = theta + 2j * np.pi * f / (size * step)
    weight = (-1.0 / np.expm1(-z * step) + 1.0 / np.expm1(-(1.0 + z) * step)) / size
    weight[1:-1] *= 2.0
    return np.ascontiguousarray(weight[: m + 1]), float(np.abs(weight[m + 1 :]).sum())
