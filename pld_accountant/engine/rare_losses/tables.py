"""Tables for the part of a composition in which some step's loss is large.

When one large loss can decide delta, the tilted distribution has two modes.  No tilt puts weight between them: Q falls
to 1e-15, where double precision ends.  Each step's losses are split at some reach into small and large ones, with
moment generating functions M_s and M_l at one argument.  The composition is

    prod M_s  +  (prod (M_s + M_l) - prod M_s),

two parts, each with its own tilt.  `tables.characteristic` makes the first part's tables.  With rho = M_l / M_s the
second part is

    prod M_s (exp(R) - 1),   R = sum of log(1 + rho),

and R keeps its digits however small it is.  Removal only: under addition no loss is large.

**Interpolated steps.**  The mixture of a bucket (1) and the next (2) with weight w has rho_1 + w' D, D = rho_2 - rho_1,
w' = w M_s2 / ((1 - w) M_s1 + w M_s2).  With x = log(M_s2 / M_s1), u = exp(x) - 1, |u| <= d < 1:

1. w' - w = w (1 - w) u / (1 + w u) = w (1 - w) x + rest, |rest| <= 1/4 (exp(|x|) - 1 - |x| + |x| d) / (1 - d).
2. If |rho| <= r < 1, log(1 + rho) of the mixture differs from the mean of both buckets' with the weights 1 - w and w by
   at most 1/4 |x| |D| + 1/4 |D| (d r / ((1 - d) (1 - r)) + |D| / (2 (1 - r)^2)) + |D rest|.

**Beyond the band, and at other tilts.**  The second part is a sum of products of M_s and M_l with plus signs, so it
grows with |M_s| and |M_l|.  Upper bounds may replace both, and the sum of |M_l| / |M_s| may replace R.  For a mixture
this ratio is at most ((1 - w) |M_l1| + w |M_l2|) / min(|M_s1|, |M_s2|).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ... import deadline
from ...kernels import _columns as c
from ...tables.characteristic import CharacteristicTables
from ...tables.errors import USELESS
from ...tables.interpolated import larger_of_pair
from ...tables.table import WORK, MemoryCache, Table, TableMaker, log_expm1

__all__ = ["LargeLossTables"]

_CACHE_BYTES = 1 << 27
_LARGEST_LOG = 230.0  # of a ratio of moment generating functions


class LargeLossTables(TableMaker):
    """Makes tables of the part in which some step's loss is large.

    Parameters
    ----------
    small, large : CharacteristicTables
        Of the steps' small losses (interpolated or not) and of their large ones.
    rare : ndarray of bool, shape (size,)
        Which buckets have large losses at all; full batches have none.
    """

    whole = True

    def __init__(self, small: CharacteristicTables, large: CharacteristicTables, rare: NDArray) -> None:
        self.small, self.large, self.rare, self.steps = small, large, rare, small.steps
        self._tables: MemoryCache[list[Table]] = MemoryCache(_CACHE_BYTES, lambda held: held[0].columns.nbytes)

    @property
    def _neighbours(self) -> NDArray:
        none = np.zeros(self.size - 1, dtype=bool)
        return none if self.small.neighbours is None else self.small.neighbours

    def log_moments(self, theta: NDArray) -> NDArray:
        """K of the small losses, then what the large ones add to R; shape (size, 2 tilts), rounded up."""
        k = self.small.log_moments(theta)
        large = np.where(self.rare[:, None], self.large.log_moments(theta), -np.inf)
        ratio = np.exp(np.minimum(large - _least_of_neighbours(k, self._neighbours), _LARGEST_LOG))
        return np.hstack([k, ratio])

    def composed(self, sums: NDArray) -> NDArray:
        """Everybody's log-moments from the sums of their steps' `log_moments`."""
        k, ratio = np.split(sums, 2, axis=1)
        return k + log_expm1(ratio)

    def table(self, theta: float, period: float, width: float, needed: NDArray, work: float = WORK) -> Table | None:
        """See `tables.table.TableMaker`; the block `large` holds log(1 + rho), its error, and rho beyond the band."""
        small = self.small.table(theta, period, width, needed, work)
        large = self.large.table(theta, period, width, needed & self.rare, work)
        if small is None or large is None:
            return None
        # either may have more rows by now
        held = self._tables.get((theta, period, width), lambda: [self._combined(small, large)])
        if np.any(needed & ~held[0].filled):
            held[0] = self._combined(small, large)
        return held[0]

    def _combined(self, small: Table, large: Table) -> Table:
        """The table of the rows that both parts have."""
        deadline.check()
        m = small.frequencies
        filled = small.filled & (large.filled | ~self.rare)
        rows = np.flatnonzero(filled)
        rare, neighbours = self.rare[rows], self._neighbours[rows[:-1]] & (np.diff(rows) == 1)
        plain, of_large = (small.columns if small.plain is None else small.plain)[rows, : c.HEAD], large.columns[rows]
        log_large = np.where(rare, of_large[:, c.LOG_MOMENT], -np.inf)
        log_small, relative = small.log_phi(rows), _relative_error(plain, small.omega)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            rho, error = _ratio(large.log_phi(rows), of_large, plain, log_large, log_small, relative, small.omega)
            deadline.check()
            ends = self._log1p(rho, error, relative)
        deadline.check()
        if neighbours.any():
            log_small += plain[:, [c.LOG_MOMENT]] + 1j * plain[:, [c.MEAN]] * small.omega
            pairs = np.flatnonzero(neighbours)
            mixture = _mixture_error(log_small, relative, rho, error, pairs)
            ends[2] += larger_of_pair(mixture, pairs, rows.size)

        def beyond(envelope: NDArray, envelope_of_large: NDArray) -> NDArray:
            """Upper bounds of |rho| beyond some frequencies, (rows, frequencies)."""
            least = _least_of_neighbours(plain[:, [c.LOG_MOMENT]] + envelope, neighbours)
            log_ratio = (log_large + of_large[:, c.LOG_MOMENT_ERROR])[:, None] + envelope_of_large - least
            return np.nan_to_num(np.exp(np.minimum(log_ratio, _LARGEST_LOG)))

        head = small.columns[rows, : c.HEAD + 2 * m]
        # absolute errors of M_s say nothing of this part
        head[:, [c.ERROR, c.ERROR_SLOPE]] = 1e200
        block = np.zeros((rows.size, m + 2)) if small.plain is None else small.interpolation[rows]
        last = beyond(plain[:, [c.ENVELOPE]], of_large[:, [c.ENVELOPE]])
        found = np.hstack([head, block, *ends, last])
        columns = np.zeros((self.size, found.shape[1]))
        columns[rows] = np.nan_to_num(found, copy=False)
        assert small.ladder is not None and large.ladder is not None
        large_ladder = np.zeros(small.ladder[1].shape)
        large_ladder[rows] = beyond(small.ladder[1][rows], large.ladder[1][rows])
        return Table(
            small.theta,
            small.period,
            columns,
            filled,
            small.weight,
            small.band_coefficient,
            ladder=small.ladder,
            large_ladder=large_ladder,
            large=True,
        )

    def _log1p(self, rho: NDArray, error: NDArray, relative: NDArray) -> list[NDArray]:
        """Re and Im of log(1 + rho), and a bound of the error."""
        most = np.abs(rho) + error
        # numpy's log1p of a complex number loses the digits of a small one
        real, imag = 0.5 * np.log1p(2.0 * rho.real + np.abs(rho) ** 2), np.arctan2(rho.imag, 1.0 + rho.real)
        of_log = error / (1.0 - np.minimum(most, 0.5)) + (self.size + 64.0) * 2.0**-50 * np.abs(rho)
        useless = ~((relative <= 0.5) & (most <= 0.5) & (of_log <= USELESS))
        real[useless], imag[useless], of_log[useless] = 0.0, 0.0, USELESS
        return [real, imag, of_log]


def _ratio(
    log_phi: NDArray,
    of_large: NDArray,
    plain: NDArray,
    log_large: NDArray,
    log_small: NDArray,
    relative: NDArray,
    omega: NDArray,
) -> tuple[NDArray, NDArray]:
    """rho at f = 0..m, and a bound of its error: that of phi of the large losses, of M_s, and of the angles."""
    share = np.exp(np.minimum((log_large - plain[:, c.LOG_MOMENT])[:, None] - log_small.real, _LARGEST_LOG))
    turn = np.multiply.outer(of_large[:, c.MEAN] - plain[:, c.MEAN], omega) + log_phi.imag - log_small.imag
    size = share * np.exp(log_phi.real)
    of_phi = of_large[:, [c.ERROR]] + of_large[:, [c.ERROR_SLOPE]] * omega
    means = np.abs(of_large[:, c.MEAN]) + np.abs(plain[:, c.MEAN])
    angle = 2.0**-50 * (np.multiply.outer(means, omega) + 16.0)
    error = share * of_phi + size * (relative + of_large[:, [c.LOG_MOMENT_ERROR]] + angle)
    rho = np.empty(size.shape, dtype=complex)
    rho.real, rho.imag = size * np.cos(turn), size * np.sin(turn)
    return rho, error / (1.0 - np.minimum(relative, 0.5))


def _relative_error(plain: NDArray, omega: NDArray) -> NDArray:
    """Error of M_s relative to M_s at f = 0..m."""
    return plain[:, [c.RELATIVE_ERROR]] + plain[:, [c.RELATIVE_SLOPE]] * omega + plain[:, [c.LOG_MOMENT_ERROR]]


def _mixture_error(log_small: NDArray, relative: NDArray, rho: NDArray, error: NDArray, pairs: NDArray) -> NDArray:
    """Step 2 of the module's derivation for the pairs of a bucket and the next: (pairs, m + 1).

    relative and error are the errors of log_small and of rho.
    """

    def both(bound: NDArray) -> NDArray:
        return bound[pairs] + bound[pairs + 1]

    x = np.abs(np.diff(log_small, axis=0)[pairs]) + both(relative)
    jump = np.abs(np.diff(rho, axis=0)[pairs]) + both(error)
    d = np.expm1(np.minimum(x, 1.0))
    most = np.maximum((np.abs(rho) + error)[pairs], (np.abs(rho) + error)[pairs + 1])
    within = 1.0 - np.minimum(d, 0.5)
    # the mixture's |rho| exceeds both buckets' by at most |w' - w| |D|
    most += 0.25 * d / within * jump
    rest = 1.0 - np.minimum(most, 0.5)
    # exp(x) - 1 - x is at most x^2 exp(x) / 2
    found = 0.25 * jump * (x + (0.5 * x**2 * (1.0 + d) + x * d + d * most / rest) / within + 0.5 * jump / rest**2)
    found[~((d <= 0.5) & (most <= 0.5))] = USELESS
    return found


def _least_of_neighbours(values: NDArray, neighbours: NDArray) -> NDArray:
    """The least of a bucket's value and those of the buckets with which it shares steps; along the first axis."""
    out = values.copy()
    first = np.flatnonzero(neighbours)
    out[first] = np.minimum(out[first], values[first + 1])
    out[first + 1] = np.minimum(out[first + 1], values[first])
    return out
