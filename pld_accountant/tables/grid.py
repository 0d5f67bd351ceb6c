"""Tables from privacy loss distributions on a uniform grid and their Fourier transforms: the papers' method, tilted.

Masses on cells of the loss are all that is asked of a family, besides its log-moments.  The upper and the lower bound
have tables of their own (`kernels.discretise`), whose error in log delta is about n theta (theta + 1) h^2 / 12 after n
steps, h the step of the grid.

References
----------
Koskela, Tobaben and Honkela (2023), Appendix D; Doroshenko, Ghazi, Kamath, Kumar and Manurangsi, "Connect the dots:
tighter discrete approximations of privacy loss distributions", PoPETs 2022.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .. import deadline, fft
from ..kernels import _columns as c
from ..mechanisms.base import MASS_ERROR, StepFamily
from . import errors
from .table import WORK, MemoryCache, Table, TableMaker

__all__ = ["NARROW", "Cells", "GridTables"]

Cells = tuple[float, NDArray, NDArray]
"""The first knot of a bucket's grid, and the log masses on its knots for the upper and for the lower bound."""

NARROW = 1 << 12
"""Default number of frequencies of a narrow band."""

_BELOW = 64.0  # exp(-64) of the tilted distribution may lie below the grid
_HEAVY = 1.0 / 64.0  # masses above this are summed directly if the FFT's round-off is more than that of the masses
_LARGEST_STEP = 1000.0  # of the grid, in nats: the exponential of half of it must be a double
_LEAST = math.exp(-700.0)
_CELL = 500.0  # cost of a cell, see `WORK`
_SECOND = 4e8  # of this cost takes a second


class GridTables(TableMaker):
    """Makes tables on a grid of `points` points over the period, as an upper or as a lower bound.

    Parameters
    ----------
    steps : StepFamily
        Its log-moments choose the tilts and bound the aliasing.
    side : {"upper", "lower"}
    points : int
        Points of the grid over one period, a power of two.
    reach : float
        exp(-reach^2 / 2) of a step's mass lies outside of the grid; the upper bound moves it to +infinity, the lower
        bound drops it.
    cache : MemoryCache
        Keeps the tables.
    cells : MemoryCache
        Keeps the masses on the knots, for the makers of both sides.
    moments : dict
        Keeps the log-moments of families, for all makers.
    narrow : int
        Frequencies of the narrow band; a wider one is the whole transform, which is there anyway.
    """

    def __init__(
        self,
        steps: StepFamily,
        side: Literal["upper", "lower"],
        points: int,
        reach: float,
        cache: MemoryCache[Table],
        cells: MemoryCache[Cells],
        moments: dict[tuple[StepFamily, float], NDArray],
        narrow: int = NARROW,
    ) -> None:
        self.steps, self.side, self.points, self._reach = steps, side, points, reach
        self._tables, self._cells, self._moments, self._narrow = cache, cells, moments, narrow

    def log_moments(self, theta: NDArray) -> NDArray:
        """K of the mechanisms themselves; what the grid adds to it is the table's `spread`."""
        wanted = theta.tolist()
        new = [tilt for tilt in wanted if (self.steps, tilt) not in self._moments]
        if new:
            found = self.steps.log_moments(np.array(new))
            self._moments.update(((self.steps, tilt), found[:, k]) for k, tilt in enumerate(new))
        return np.stack([self._moments[self.steps, tilt] for tilt in wanted], axis=1)

    def table(self, theta: float, period: float, width: float, needed: NDArray, work: float = WORK) -> Table | None:
        """The table at this tilt and period; its band is the narrow one or the whole transform."""
        if not period < _LARGEST_STEP * self.points:
            return None
        half = self.points // 2
        m = half if width * period > 2.0 * np.pi * self._narrow else min(self._narrow, half)
        table = self._tables.get((self, theta, period, m), lambda: self._empty(theta, period, m))
        rows = np.flatnonzero(needed & ~table.filled)
        step = period / self.points
        spans = {int(b): self._span(int(b), theta) for b in rows}
        work = min(work, _SECOND * deadline.left())
        if not sum(top - bottom for bottom, top in spans.values()) / step * _CELL < work:
            return None
        for bucket, span in spans.items():
            self._fill(table, bucket, *self._discretised(bucket, span, step))
            table.filled[bucket] = True
        return table

    def _empty(self, theta: float, period: float, m: int) -> Table:
        step = period / self.points
        weight, band_coefficient = _weights(theta, step, self.points, m)
        columns = np.zeros((self.size, c.HEAD + 2 * m))
        spread = step * step / 8.0 if self.side == "upper" else 0.0
        filled = np.zeros(self.size, dtype=bool)
        return Table(theta, period, columns, filled, weight, band_coefficient, grid_step=step, spread=spread)

    def _span(self, bucket: int, theta: float) -> tuple[float, float]:
        """Lowest and highest loss on the grid of one bucket."""
        bottom, top = self.steps.range_of_losses(bucket, self._reach)
        return max(bottom, -_BELOW / theta), top

    def _discretised(self, bucket: int, span: tuple[float, float], step: float) -> tuple[float, NDArray, float]:
        """First knot, log masses on the knots, and the mass moved to +infinity (upper) for one bucket."""
        key = self.steps, bucket, span, step
        start, upper, lower = self._cells.get(key, lambda: self._connected(bucket, span, step))
        # exp(-reach^2 / 2) of the mass lies outside of the span
        return (start, upper, math.exp(-0.5 * self._reach**2)) if self.side == "upper" else (start, lower, 0.0)

    def _connected(self, bucket: int, span: tuple[float, float], step: float) -> Cells:
        """The masses on knots that are shifted so that one lies at the barycentre of the distribution's middle."""
        from ..kernels import discretise

        knot = self._barycentre(bucket, step)
        first, last = math.floor((span[0] - knot) / step) - 1, math.ceil((span[1] - knot) / step) + 1
        start, cells = knot + first * step, last - first
        p, b, gap = np.empty(cells), np.empty(cells), np.empty((cells, 4))
        halves = self.steps.masses(bucket, start + 0.5 * step * np.arange(2 * cells + 1))
        discretise.join_halves(*halves, step, p, b, gap)
        upper, lower = np.empty((2, cells + 1))
        discretise.connect_up(p, b, upper)
        # The mass below the grid moves up to its first knot, the mass above to +infinity.
        upper[0] += max(1.0 - upper.sum(), 0.0) + 2.0 * MASS_ERROR
        discretise.connect_down(p, b, gap, step, lower)
        if start <= 0.0 and not np.any(lower > 0.0):
            lower[0] = 1.0  # round-off took all mass of losses far below the step; every H(x) is at least 1 - x
        with np.errstate(divide="ignore"):
            return start, np.log(upper), np.log(np.maximum(lower, 0.0))

    def _barycentre(self, bucket: int, step: float) -> float:
        """Log of P mass over Q mass of the cell around the typical loss, where a spike would sit."""
        centre = self.steps.typical_loss(bucket)
        p, u = self.steps.masses(bucket, centre + step * np.array([-0.5, 0.5]))
        return centre - 0.5 * step - math.log1p(-float(u[0] / p[0])) if 0.0 < u[0] < p[0] else centre

    def _fill(self, table: Table, bucket: int, start: float, log_mass: NDArray, beyond: float) -> None:
        """One bucket: tilt, fold onto the period, transform, centre."""
        m, step, points = table.frequencies, table.grid_step, self.points
        losses = start + step * np.arange(log_mass.size)
        exponent = log_mass + table.theta * losses
        top = exponent.max()
        exponent -= top
        tilted = np.exp(exponent)
        total = tilted.sum()
        tilted /= total
        mean = float(tilted @ losses)
        middle = round((mean - start) / step)
        phi, norm = _transform(_folded(tilted, middle, points))
        size = np.abs(phi)
        # a mass carries the round-off of its exponent and of its knot, weighted by the tilted distribution
        exponent[tilted == 0.0] = 0.0
        exponents = float(table.theta * (tilted @ np.abs(losses)) - tilted @ exponent)
        error = fft.roundoff(points, norm) + MASS_ERROR + (64.0 + 4.0 * exponents) * 2.0**-53
        row = table.columns[bucket]
        row[c.LOG_MOMENT] = top + math.log(total)
        row[c.MEAN] = mean
        row[c.ENVELOPE] = math.log(min(float(size[m + 1 :].max(initial=0.0)) + error, 1.0))
        row[c.ERROR] = error * (1.0 + 1e-9) + 4.0 * self.size * 2.0**-53
        row[c.LOG_MOMENT_ERROR] = MASS_ERROR + (log_mass.size + self.size + 64.0) * 2.0**-53 * (
            1.0 + abs(row[c.LOG_MOMENT])
        )
        row[c.INFINITE] = -math.log1p(-beyond)
        row[c.OFFSET] = start
        table.re[bucket] = np.log(np.maximum(size[1 : m + 1], _LEAST))
        # counts are whole, so that the phase of a step may be any of those that are 2 pi apart
        table.im[bucket] = np.angle(phi[1 : m + 1]) + (start + middle * step - mean) * table.omega[1:]
        row[c.RELATIVE_ERROR] = errors.relative(row[None, [c.ERROR]], table.re[[bucket]])[0, 0]


def _folded(masses: NDArray, first: int, points: int) -> NDArray:
    """The masses added up modulo `points`, beginning with the one at `first`."""
    rounds = np.zeros(-(-masses.size // points) * points)
    rounds[: masses.size] = masses
    return np.roll(rounds.reshape(-1, points).sum(axis=0), -first)


def _transform(folded: NDArray) -> tuple[NDArray, float]:
    """E[exp(i omega n h)] at the frequencies 0 .. points / 2, and the norm that scales the FFT's round-off.

    The few heavy masses are summed directly: beside a spike of nearly 1 the FFT would lose the digits of the others.
    """
    points = folded.size
    heavy = np.flatnonzero(folded > max((0.5 * MASS_ERROR / fft.roundoff(points, 1.0)) ** 2, _HEAVY))
    others = folded.copy()
    others[heavy] = 0.0
    phi = np.conj(fft.rfft(others))
    roots, frequencies = _roots(points), np.arange(points // 2 + 1)
    for n in heavy.tolist():
        phi += folded[n] * roots.take(n * frequencies & (points - 1))
    return phi, float(np.linalg.norm(others))


@lru_cache(maxsize=4)
def _roots(points: int) -> NDArray:
    """exp(2 pi i n / points), n = 0 .. points - 1."""
    return np.exp(2j * np.pi / points * np.arange(points))


@lru_cache(maxsize=2)  # the upper and the lower bound's tables have the same
def _weights(theta: float, step: float, points: int, m: int) -> tuple[NDArray, float]:
    """Transform of the tilted hockey-stick weight on the grid up to frequency m, and a bound of the rest's sum.

    The weight is sum over n >= 0 of exp(-z n h) (1 - exp(-n h)), two geometric series; divided by the number of points
    N, doubled for the frequencies that stand for two.  The series' difference is

        exp(-z h) (1 - exp(-h)) / ((1 - exp(-z h)) (1 - exp(-(1 + z) h))),

    which keeps its digits where the series are nearly equal because all losses are small.  With a = pi f / N,
    |1 - exp(-z h)|^2 and |1 - exp(-(1 + z) h)|^2 are at least 4 exp(-theta h) sin^2(a) and 4 exp(-(1 + theta) h)
    sin^2(a).  So a weight is at most 2 sinh(h / 2) / (4 N sin^2(a)) in modulus, and the sum of 1 / sin^2 over f > m is
    at most (N / pi) cot(pi m / N).
    """
    half = np.pi / points * np.arange(m + 1)
    sine, cosine = np.sin(half), np.cos(half)
    turned = -2.0 * sine * (sine + 1j * cosine)  # exp(-2 i a) - 1
    shrunk, factor = math.exp(-theta * step), -math.expm1(-step) / points
    first = math.expm1(-theta * step) + shrunk * turned
    second = math.expm1(-(1.0 + theta) * step) + shrunk * math.exp(-step) * turned
    weight = (factor * shrunk / first) * ((1.0 + turned) / second)
    weight[1 : points // 2] *= 2.0
    angle = np.pi * m / points
    return weight, float(np.sinh(0.5 * step) / np.pi * np.cos(angle) / np.sin(angle) * (1.0 + 1e-9))
