"""Tables from characteristic functions that the step family computes itself, without a grid on the loss.

No error on the loss axis is left, so one table serves the lower and the upper bound.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..kernels import _columns as c
from ..mechanisms.base import CharacteristicSteps
from . import errors
from .interpolated import interpolate, log_moment_errors
from .spectra import Spectra, envelope_frequencies
from .table import WORK, MemoryCache, Table, TableMaker

__all__ = ["CharacteristicTables"]


class CharacteristicTables(TableMaker):
    """Makes tables of a family of steps.

    Parameters
    ----------
    spectra : Spectra
        Of the family.
    cache : MemoryCache
        Keeps the tables; may be shared by several makers.
    neighbours : ndarray of bool, shape (size - 1,), optional
        Whether steps are interpolated between a bucket and the next; None: all steps are counted whole.
    variance : bool
        Whether tables hold the variance term of interpolated steps (see `interpolated`).
    """

    def __init__(
        self,
        spectra: Spectra,
        cache: MemoryCache[Table],
        neighbours: NDArray | None = None,
        *,
        variance: bool = False,
    ) -> None:
        self._spectra, self.neighbours, self._variance = spectra, neighbours, variance
        self.steps: CharacteristicSteps = spectra.steps
        self._tables = cache
        self._ladders: dict[float, tuple[int, NDArray]] = {}

    def log_moments(self, theta: NDArray) -> NDArray:
        """K at each tilt with room for interpolation, rounded up: (size, tilts)."""
        k = self._spectra.log_moments(theta)
        return k if self.neighbours is None else k + log_moment_errors(k, self.neighbours)

    def table(self, theta: float, period: float, width: float, needed: NDArray, work: float = WORK) -> Table | None:
        """The table at this tilt and period for frequencies up to `width`, a power of sqrt(2)."""
        # the maker itself is part of the key, so no other maker's table can be taken for this one
        table = self._tables.get((self, theta, period, width), lambda: self._empty(theta, period, width))
        missing = np.flatnonzero(needed & ~table.filled)
        return table if self._fill(table, width, missing, work) else None

    def _empty(self, theta: float, period: float, width: float) -> Table:
        spacing = 2.0 * np.pi / period
        m = int(np.ceil(width / spacing))
        z = theta + 1j * spacing * np.arange(m + 1)
        weight = 2.0 / (period * z * (1.0 + z))
        weight[0] /= 2.0
        _, _, whole, interpolated = c.blocks(m)
        columns = np.zeros((self.size, whole if self.neighbours is None else interpolated))
        filled = np.zeros(self.size, dtype=bool)
        table = Table(
            theta, period, columns, filled, weight, errors.band_coefficient(m * spacing), ladder=self._ladder(theta)
        )
        if self.neighbours is not None:
            table.plain = np.zeros((self.size, c.HEAD))
            if self._variance:
                table.variance = np.zeros((self.size, m + 1), dtype=complex), np.zeros((self.size, m + 1))
        return table

    def _fill(self, table: Table, width: float, rows: NDArray, work: float) -> bool:
        """Fill these rows of a table; False if that would cost too much."""
        if not rows.size:
            return True
        spacing = 2.0 * np.pi / table.period
        found = self._spectra.spectrum(table.theta, spacing, table.frequencies, rows, work)
        if found is None:
            return False
        columns = table.columns
        columns[rows, c.LOG_MOMENT] = found.log_moment
        columns[rows, c.MEAN] = found.mean
        columns[rows, c.LOG_MOMENT_ERROR] = found.log_moment_error
        columns[rows, c.ERROR], columns[rows, c.ERROR_SLOPE] = found.error, found.error_slope
        columns[rows, c.INFINITE] = -np.log1p(-self.steps.infinite_mass()[rows])
        columns[rows, c.ENVELOPE] = self._envelope(table.theta, width, rows)
        relative = errors.relative(np.stack([found.error, found.error_slope], axis=1), found.re)
        columns[rows, c.RELATIVE_ERROR], columns[rows, c.RELATIVE_SLOPE] = relative.T
        table.re[rows], table.im[rows] = found.re, found.im
        table.filled[rows] = True
        if table.plain is not None and self.neighbours is not None:
            table.plain[rows] = columns[rows, : c.HEAD]
            interpolate(table, self.neighbours)
        return True

    def _ladder(self, theta: float) -> tuple[int, NDArray]:
        """As `Table.ladder`, NaN where not computed yet; the same array for all tables of a tilt."""
        if theta not in self._ladders:
            lowest, highest = self.steps.envelope_levels(theta)
            self._ladders[theta] = lowest, np.full((self.size, highest - lowest + 1), np.nan)
        return self._ladders[theta]

    def _envelope(self, theta: float, width: float, rows: NDArray) -> NDArray:
        """log sup |phi| beyond `width`, from a ladder of frequencies that is computed once for a tilt and bucket."""
        lowest, ladder = self._ladder(theta)
        levels = envelope_frequencies(lowest, lowest + ladder.shape[1] - 1)
        new = np.isnan(ladder[rows, 0])
        if new.any():
            ladder[rows[new]] = self._spectra.log_envelope(theta, levels, rows[new])
        level = int(np.searchsorted(levels, width * (1.0 + 1e-12), side="right")) - 1
        return ladder[rows, level] if level >= 0 else np.zeros(rows.size)
