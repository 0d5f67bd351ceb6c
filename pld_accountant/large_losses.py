"""Tables for the part of a composition in which some step's loss is large, apart from the part in which none is.

Where single large losses begin to matter the tilted law of the sum falls in two, and between the two no tilt puts any
weight: Q is 1e-15 where digits end.  Split each step's law at some place into s, below, and b, beyond, M_s and M_b
their moment generating functions at one argument.  The composition is

    prod M_s  +  (prod (M_s + M_b) - prod M_s),

two laws of their own, each with its own tilt.  The first is what a `SpectralMaker` with an end makes.  With
rho = M_b / M_s the second is

    prod M_s (exp(R) - 1),   R = sum of log(1 + rho),

and R keeps its digits however small it is.  Removal only: under addition no loss is large.

**Lotteries.**  A lottery's law is (1 - w) that of a bucket + w that of the next.  Its rho is rho_1 + w' D,
D = rho_2 - rho_1, w' = w M_s2 / ((1 - w) M_s1 + w M_s2).  With x = log(M_s2 / M_s1), u = exp(x) - 1, |u| <= d < 1,

    w' - w = w (1 - w) u / (1 + w u) = w (1 - w) x + rest,   |rest| <= 1/4 (exp(|x|) - 1 - |x| + |x| d) / (1 - d),

and where |rho| <= r < 1, log(1 + rho) is that of both buckets, in the shares 1 - w and w, plus w (1 - w) x D but for

    1/4 |D| (d r / ((1 - d) (1 - r)) + |D| / (2 (1 - r)^2)) + |D rest|.

What w (1 - w) x D is summed up to is known as the second order of prod M_s is (`joining`).

**Beyond the band, and at other tilts.**  The second part is a sum of products of M_s and M_b with plus signs, so it
grows with |M_s| and |M_b|: these may be replaced by upper bounds of theirs, and R by the sum of |M_b| / |M_s| after
that.  For a lottery this ratio is at most ((1 - w) |M_b1| + w |M_b2|) / min(|M_s1|, |M_s2|).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import error_budget as budget
from .spectral import SpectralMaker, panels
from .tables import COLUMNS, WORK, MemoryCache, Table

__all__ = ["LargeMaker", "log_expm1"]

_CACHE_BYTES = 1 << 27
_NODES_AT_MOST = 1 << 20
_NODES_FOR_MOMENTS = 4_000
_PAST_USE = 1e4


class LargeMaker:
    """Makes tables of the part in which some step's loss is large.

    Parameters
    ----------
    small : SpectralMaker
        Of the other part: parted, under removal.
    reach : float
        Where the large losses end: Phi(-reach) of a step's mass lies beyond.  Neither part has that.
    """

    whole = True

    def __init__(self, small: SpectralMaker, reach: float) -> None:
        assert small.lotteries != 1, "what lotteries add to R is known to the second order"
        self.small = small
        self.large = small.q < 1.0
        self.ends = np.stack([small.top, small.tops(reach)], axis=1)
        # of one step that goes beyond, in the upper bounds
        self.beyond = -np.log1p(-small.mass_beyond(self.ends[:, 1]))
        self._moments: dict[float, NDArray] = {}
        self._laws: MemoryCache[_Laws] = MemoryCache(_CACHE_BYTES, lambda laws: 6 * laws.ratio.nbytes)

    @property
    def buckets(self) -> int:
        return self.small.buckets

    def log_moments(self, theta: NDArray) -> NDArray:
        """K of the small losses, then what the large ones add to R; shape (buckets, 2 tilts), never below the truth."""
        from .kernels import spectral

        k = self.small.log_moments(theta)
        some = np.flatnonzero(self.large)
        sigma, q, ends = self.small.sigma[some], self.small.q[some], self.ends[some].copy()
        for t in theta:
            if float(t) in self._moments:
                continue
            nodes, _ = panels(sigma, q, t, ends, 0.0, _NODES_FOR_MOMENTS)
            nodes[nodes > _NODES_FOR_MOMENTS] = 0
            large, units = np.empty((2, some.size))
            spectral.log_moments(sigma, q, 1.0, t, ends, budget.GAUSS, nodes, large, units)
            self._moments[float(t)] = np.full(self.buckets, -np.inf)
            self._moments[float(t)][some] = large + budget.roundoff_k(self.buckets, large, units) + 1e-12
        large = np.stack([self._moments[float(t)] for t in theta], axis=1)
        return np.hstack([k, np.exp(np.minimum(large - _least_of_neighbours(k, self.small.neighbours), 230.0))])

    def composed(self, sums: NDArray) -> NDArray:
        """Everybody's log-moments from the sums of their steps' `log_moments`."""
        k, large = np.split(sums, 2, axis=1)
        return k + log_expm1(large)

    def table(self, theta: float, period: float, width: float, needed: NDArray, work: float = WORK) -> Table | None:
        """As `Maker.table`: the columns of the small losses and, after these, as `kernels.plancherel` says."""
        small = self.small.table(theta, period, width, needed, work)
        if small is None:
            return None
        laws = self._laws.get((theta, period, width), lambda: _Laws(self.buckets, small.frequencies))
        missing = needed & ~laws.filled
        if missing.any():
            if not self._fill(laws, small, np.flatnonzero(missing), work):
                return None
            laws.table = None
        if laws.table is None or np.any(needed & ~laws.table.filled):
            m = small.frequencies
            columns = np.hstack([small.columns[:, : COLUMNS + 2 * m], laws.columns(small, self.small.neighbours)])
            # what is known of M_s absolutely says nothing of this part
            columns[:, [3, 7]] = 1e200
            laws.table = Table(
                theta, period, columns, laws.filled & small.filled, small.weight, small.remainder,
                ladder=small.ladder, second=small.second, third=small.third, large=True, mixed=laws.mixed,
                mixed_beyond=laws.mixed_beyond,
            )  # fmt: skip
        return laws.table

    def _fill(self, laws: _Laws, small: Table, rows: NDArray, work: float) -> bool:
        """The large losses' characteristic functions of these rows; False where that would cost too much."""
        from .kernels import spectral

        full, rows = rows[~self.large[rows]], rows[self.large[rows]]
        laws.filled[full] = True
        if not rows.size:
            return True
        theta, m, spacing = small.theta, small.frequencies, 2.0 * np.pi / small.period
        sigma, q, ends = self.small.sigma[rows], self.small.q[rows], self.ends[rows].copy()
        nodes, truncation = panels(sigma, q, theta, ends, m * spacing, _NODES_AT_MOST)
        if nodes.max() > _NODES_AT_MOST or float(nodes.sum()) * m > work:
            return False
        moments, re, im = np.empty((rows.size, 8)), np.empty((rows.size, m)), np.empty((rows.size, m))
        spectral.spectrum(sigma, q, 1.0, theta, ends, budget.GAUSS, spacing, nodes, moments, re, im)
        k, mean, units, spread, weighted, left_out = moments[:, :6].T
        omega = spacing * np.arange(m + 1)
        laws.k[rows], laws.mean[rows] = k, mean
        laws.k_error[rows] = budget.roundoff_k(self.buckets, k, units) + truncation
        laws.ratio[rows, 0] = 1.0
        laws.ratio[rows, 1:] = np.exp(re + 1j * im)
        slope = budget.roundoff_phi(m, self.buckets, spread, weighted)
        laws.error[rows] = (truncation + 2.0 * left_out)[:, None] + slope[:, None] * omega
        laws.filled[rows] = True
        return True


class _Laws:
    """The large losses of each bucket at one tilt: log mass, mean, and the centred characteristic function.

    `ratio` is that function and `error` its error, (buckets, m + 1); `k_error` that of the log mass.
    """

    def __init__(self, buckets: int, m: int) -> None:
        self.table: Table | None = None
        self.mixed: NDArray | None = None
        self.mixed_beyond: NDArray | None = None
        self.filled = np.zeros(buckets, dtype=bool)
        self.k = np.full(buckets, -np.inf)
        self.mean, self.k_error = np.zeros(buckets), np.zeros(buckets)
        self.ratio = np.zeros((buckets, m + 1), dtype=complex)
        self.error = np.zeros((buckets, m + 1))

    def columns(self, small: Table, neighbours: NDArray) -> NDArray:
        """What lotteries add to log M_s, as in `kernels.plancherel`; Re, Im log(1 + rho) and the error of that, at
        m + 1 frequencies each; and rho at most beyond the band."""
        m, filled = small.frequencies, small.filled & self.filled
        own = small.columns[:, :COLUMNS] if small.own is None else small.own
        added = np.zeros((filled.size, m + 2)) if small.own is None else small.columns[:, COLUMNS + 2 * m :]
        omega = 2.0 * np.pi / small.period * np.arange(m + 1)
        log_small = np.zeros((filled.size, m + 1), dtype=complex)
        re, im = np.split(small.columns[:, COLUMNS : COLUMNS + 2 * m], 2, axis=1)
        log_small[:, 1:] = re + 1j * im
        turn = np.multiply.outer(self.mean - own[:, 1], omega) - log_small.imag
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            share = np.exp(np.minimum((self.k - own[:, 0])[:, None] - log_small.real, 230.0))
            rho = share * self.ratio * np.exp(1j * turn)
            # of M_s relative to itself, of M_b, and of the angles
            relative = own[:, 8:9] + own[:, 9:10] * omega + own[:, 4:5]
            angle = 2.0**-50 * (np.multiply.outer(np.abs(self.mean) + np.abs(own[:, 1]), omega) + 16.0)
            off = share * self.error + np.abs(rho) * (relative + self.k_error[:, None] + angle)
            off /= 1.0 - np.minimum(relative, 0.5)
            most = np.abs(rho) + off
            # numpy's log1p of a complex number loses the digits of a small one
            real, imag = 0.5 * np.log1p(2.0 * rho.real + np.abs(rho) ** 2), np.arctan2(rho.imag, 1.0 + rho.real)
            error = off / (1.0 - np.minimum(most, 0.5)) + (len(filled) + 64.0) * 2.0**-50 * np.abs(rho)
            past_use = ~((relative <= 0.5) & (most <= 0.5) & (error <= _PAST_USE))
            real[past_use], imag[past_use], error[past_use] = 0.0, 0.0, _PAST_USE
        if small.second is not None:
            pairs = np.flatnonzero(neighbours & filled[:-1] & filled[1:])
            log_small += own[:, :1] + 1j * own[:, 1:2] * omega
            self.mixed, self.mixed_beyond = np.zeros(rho.shape, dtype=complex), np.zeros(rho.shape)
            self.mixed[pairs + 1], self.mixed_beyond[pairs + 1] = _of_lotteries(log_small, relative, rho, off, pairs)
        beyond = np.exp(np.minimum(self.k - _least_of_neighbours(own[:, 0] + own[:, 2], neighbours), 230.0))
        out = np.hstack([added, real, imag, error, beyond[:, None]])
        out[~filled] = 0.0
        return np.nan_to_num(out, nan=0.0)


def _of_lotteries(
    log_small: NDArray, relative: NDArray, rho: NDArray, off: NDArray, pairs: NDArray
) -> tuple[NDArray, NDArray]:
    """x D, and the error of a lottery between a bucket in `pairs` and the next beyond that: (pairs, m + 1) each.

    relative and off are the errors of log_small and of rho.
    """

    def both(error: NDArray) -> NDArray:
        return error[pairs] + error[pairs + 1]

    x, jump = np.diff(log_small, axis=0)[pairs], np.diff(rho, axis=0)[pairs]
    size, most_jump = np.abs(x) + both(relative), np.abs(jump) + both(off)
    d = np.expm1(np.minimum(size, 1.0))
    most = np.maximum((np.abs(rho) + off)[pairs], (np.abs(rho) + off)[pairs + 1])
    within, rest = 1.0 - np.minimum(d, 0.5), 1.0 - np.minimum(most, 0.5)
    # exp(x) - 1 - x is at most x^2 exp(x) / 2
    error = 0.5 * size**2 * (1.0 + d) + size * d + d * most / rest
    error = most_jump * (error / within + 0.5 * most_jump / rest**2 + both(relative)) + size * both(off)
    error = 0.25 * error + 2.0**-48 * np.abs(x) * np.abs(jump)
    error[~((d <= 0.5) & (most <= 0.5))] = _PAST_USE
    return x * jump, error


def log_expm1(x: NDArray) -> NDArray:
    """log(exp(x) - 1) for x >= 0, -690 at least."""
    return np.where(x > 600.0, x, np.log(np.maximum(np.expm1(np.minimum(x, 600.0)), 1e-300)))


def _least_of_neighbours(values: NDArray, neighbours: NDArray) -> NDArray:
    """The least of a bucket's value and those of the buckets with which it has lotteries; along the first axis."""
    out = values.copy()
    first = np.flatnonzero(neighbours)
    out[first] = np.minimum(out[first], values[first + 1])
    out[first + 1] = np.minimum(out[first + 1], values[first])
    return out
