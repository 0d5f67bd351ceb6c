"""Tables from privacy loss distributions on a uniform grid and their Fourier transforms: the papers' method, tilted.

The route of every mechanism without a characteristic function of its own: masses on cells of the loss are all that is
asked of the family.  The upper and the lower bound have tables of their own (`kernels.discretise`), whose error in log
delta is about n theta (theta + 1) h^2 / 12 after n steps, h the step of the grid.

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
from ..mechanisms.base import MASS_ERROR, StepFamily, TwoAtomSteps
from . import errors
from .table import WORK, MemoryCache, Table, TableMaker

__all__ = ["Cells", "GridTables"]

Cells = tuple[NDArray, NDArray]
"""P masses of cells, and what `StepFamily.masses` gives with them."""

_BELOW = 64.0  # exp(-64) of the tilted distribution may lie below the grid
_HEAVY = 1.0 / 64.0  # masses above this are transformed by direct summation
_NARROW = 1 << 12  # frequencies of the narrow band; a wider one is the whole transform, which is there anyway
_LARGEST_STEP = 1000.0  # of the grid, in nats: the exponential of half of it must be a double
_TURNS = 1024
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
        Keeps the masses of cells, for makers of this family's tables.
    """

    def __init__(
        self,
        steps: StepFamily,
        side: Literal["upper", "lower"],
        points: int,
        reach: float,
        cache: MemoryCache[Table],
        cells: MemoryCache[Cells],
    ) -> None:
        self.steps, self.side, self.points, self._reach, self._tables = steps, side, points, reach, cache
        self._cells = cells
        self._gap = steps.atoms_apart() if isinstance(steps, TwoAtomSteps) else 0.0

    def log_moments(self, theta: NDArray) -> NDArray:
        """K of the mechanisms themselves; what the grid adds to it is the table's `spread`."""
        return self.steps.log_moments(theta)

    def table(self, theta: float, period: float, width: float, needed: NDArray, work: float = WORK) -> Table | None:
        """The table at this tilt and period; its band is the narrow one or the whole transform."""
        if not period < _LARGEST_STEP * self.points:
            return None
        period = self._aligned(period)
        half = self.points // 2
        m = half if width * period > 2.0 * np.pi * _NARROW else min(_NARROW, half)
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

    def _aligned(self, period: float) -> float:
        """The least period, not below the given one, at which the two atoms of a single row are knots.

        Then the grid moves the rest of the mass only, which is little if the losses are small.
        """
        step = period / self.points
        return self.points * (self._gap / math.floor(self._gap / step)) if self._gap >= step else period

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
        """First knot, masses, and the mass moved to +infinity (upper) for one bucket.

        The knots are shifted so that one lies at the barycentre of the distribution's middle.  exp(-reach^2 / 2) of the
        mass lies outside of the span.
        """
        from ..kernels import discretise

        knot = self._barycentre(bucket, step)
        first, last = math.floor((span[0] - knot) / step) - 1, math.ceil((span[1] - knot) / step) + 1
        start, cells = knot + first * step, last - first
        mass, p, b, gap = np.empty(cells + 1), np.empty(cells), np.empty(cells), np.empty((cells, 4))
        halves = self._cells.get(
            (bucket, start, step, cells),
            lambda: self.steps.masses(bucket, start + 0.5 * step * np.arange(2 * cells + 1)),
        )
        discretise.join_halves(*halves, step, p, b, gap)
        if self.side == "lower":
            discretise.connect_down(p, b, gap, step, mass)
            return start, mass, 0.0
        discretise.connect_up(p, b, mass)
        # The mass below the grid moves up to its first knot, the mass above to +infinity.
        mass[0] += max(1.0 - mass.sum(), 0.0) + 2.0 * MASS_ERROR
        return start, mass, math.exp(-0.5 * self._reach**2)

    def _barycentre(self, bucket: int, step: float) -> float:
        """The typical loss if it is an atom; else log of P mass over Q mass of the cell around it.

        A spike would sit there.
        """
        centre = self.steps.typical_loss(bucket)
        if self._gap:
            return centre
        p, u = self.steps.masses(bucket, centre + step * np.array([-0.5, 0.5]))
        return centre - 0.5 * step - math.log1p(-float(u[0] / p[0])) if 0.0 < u[0] < p[0] else centre

    def _fill(self, table: Table, bucket: int, start: float, mass: NDArray, beyond: float) -> None:
        """One bucket: tilt, fold onto the period, transform, centre."""
        m, step, points = table.frequencies, table.grid_step, self.points
        losses = start + np.arange(mass.size) * step
        positive = mass > 0.0
        exponent = np.full(mass.shape, -np.inf)
        exponent[positive] = np.log(mass[positive]) + table.theta * losses[positive]
        top = exponent.max()
        tilted = np.exp(exponent - top)
        total = tilted.sum()
        tilted /= total
        mean = float(tilted @ losses)
        phi, norm = _transform(np.bincount(np.arange(mass.size) % points, weights=tilted, minlength=points))
        size = np.abs(phi)
        # a mass carries the round-off of its exponent and of its knot, weighted by the tilted distribution
        exponents = float(tilted[positive] @ np.abs(exponent[positive] - top) + table.theta * (tilted @ np.abs(losses)))
        error = fft.roundoff(points, norm) + MASS_ERROR + (64.0 + 4.0 * exponents) * 2.0**-53
        row = table.columns[bucket]
        row[c.LOG_MOMENT] = top + math.log(total)
        row[c.MEAN] = mean
        row[c.ENVELOPE] = math.log(min(float(size[m + 1 :].max(initial=0.0)) + error, 1.0))
        row[c.ERROR] = error * (1.0 + 1e-9) + 4.0 * self.size * 2.0**-53
        row[c.LOG_MOMENT_ERROR] = MASS_ERROR + (mass.size + self.size + 64.0) * 2.0**-53 * (
            1.0 + abs(row[c.LOG_MOMENT])
        )
        row[c.INFINITE] = -math.log1p(-beyond)
        row[c.OFFSET] = start
        table.re[bucket] = np.log(np.maximum(size[1 : m + 1], _LEAST))
        table.im[bucket] = np.angle(phi[1 : m + 1] * np.exp(1j * table.omega[1:] * (start - mean)))
        row[c.RELATIVE_ERROR] = errors.relative(row[None, [c.ERROR]], table.re[[bucket]])[0, 0]


def _transform(folded: NDArray) -> tuple[NDArray, float]:
    """E[exp(i omega n h)] at the frequencies 0 .. points / 2, and the norm that scales the FFT's round-off.

    The few heavy masses are summed directly: beside a spike of nearly 1 the FFT would lose the digits of the others.
    """
    points = folded.size
    heavy = np.flatnonzero(folded > _HEAVY)
    others = folded.copy()
    others[heavy] = 0.0
    phi = np.conj(fft.rfft(others))
    for n in heavy:
        phi += folded[n] * _turns(int(n), points)
    return phi, float(np.linalg.norm(others))


def _turns(n: int, points: int) -> NDArray:
    """exp(2 pi i n f / points) at f = 0 .. points / 2, each a product of two that are computed from whole numbers."""
    low, high = np.arange(_TURNS), np.arange(0, points // 2 + 1, _TURNS)
    first, second = (np.exp(2j * np.pi / points * (f * n % points)) for f in (high, low))
    return np.multiply.outer(first, second).ravel()[: points // 2 + 1]


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
