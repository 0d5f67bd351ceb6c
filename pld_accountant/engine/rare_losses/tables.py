"""Tables for the part of a composition in which some step's loss is large, apart from the part in which none is.

Where single large losses begin to matter the tilted law of the sum falls in two, and between the two no tilt puts any
weight: Q is 1e-15 where digits end.  Split each step's law at some place into s, below, and b, beyond, M_s and M_b
their moment generating functions at one argument.  Where the split is soft both parts are smooth, and M_b decays like a
Gaussian's, of however few losses it is; where it is sharp the parts overlap nowhere.  The composition is

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

from ...tables.characteristic import SpectralMaker
from ...tables.table import COLUMNS, WORK, MemoryCache, Table, log_expm1

__all__ = ["LargeMaker"]

_CACHE_BYTES = 1 << 27
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
        self.big = small.variant(reach, beyond=small.reach, blur=small.blur, lotteries=0, parted=True)
        self.large = small.q < 1.0
        # of one step that goes beyond, in the upper bounds
        self.beyond = -np.log1p(-small.mass_beyond(self.big.part[:, 1]))
        self._tables: MemoryCache[list[Table]] = MemoryCache(_CACHE_BYTES, lambda held: held[0].bytes)

    @property
    def buckets(self) -> int:
        return self.small.buckets

    def log_moments(self, theta: NDArray) -> NDArray:
        """K of the small losses, then what the large ones add to R; shape (buckets, 2 tilts), never below the truth."""
        k = self.small.log_moments(theta)
        large = np.where(self.large[:, None], self.big.log_moments(theta), -np.inf)
        return np.hstack([k, np.exp(np.minimum(large - _least_of_neighbours(k, self.small.neighbours), 230.0))])

    def composed(self, sums: NDArray) -> NDArray:
        """Everybody's log-moments from the sums of their steps' `log_moments`."""
        k, large = np.split(sums, 2, axis=1)
        return k + log_expm1(large)

    def table(self, theta: float, period: float, width: float, needed: NDArray, work: float = WORK) -> Table | None:
        """As `Maker.table`: the columns of the small losses, what lotteries add to log M_s; then, as
        `kernels.plancherel` says, Re, Im log(1 + rho) and the error of that, at m + 1 frequencies each, and rho at most
        beyond the band."""
        small = self.small.table(theta, period, width, needed, work)
        big = self.big.table(theta, period, width, needed & self.large, work)
        if small is None or big is None:
            return None
        # either may have more rows by now
        held = self._tables.get((theta, period, width), lambda: [self._combined(small, big)])
        if np.any(needed & ~held[0].filled):
            held[0] = self._combined(small, big)
        return held[0]

    def _combined(self, small: Table, big: Table) -> Table:
        """The table of the rows that both have."""
        neighbours, m = self.small.neighbours, small.frequencies
        filled = small.filled & (big.filled | ~self.large)
        own = small.columns[:, :COLUMNS] if small.own is None else small.own
        added = np.zeros((filled.size, m + 2)) if small.own is None else small.columns[:, COLUMNS + 2 * m :]
        omega = 2.0 * np.pi / small.period * np.arange(m + 1)
        log_small, log_big = _log_phi(small), _log_phi(big)
        # relative to M_s; of phi of the large losses; of the angles
        relative = own[:, 8:9] + own[:, 9:10] * omega + own[:, 4:5]
        off_big = big.columns[:, 3:4] + big.columns[:, 7:8] * omega
        angle = 2.0**-50 * (np.multiply.outer(np.abs(big.columns[:, 1]) + np.abs(own[:, 1]), omega) + 16.0)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            log_k = np.where(self.large, big.columns[:, 0], -np.inf)
            share = np.exp(np.minimum((log_k - own[:, 0])[:, None] - log_small.real, 230.0))
            turn = np.multiply.outer(big.columns[:, 1] - own[:, 1], omega) + log_big.imag - log_small.imag
            rho = share * np.exp(log_big.real + 1j * turn)
            off = share * off_big + np.abs(rho) * (relative + big.columns[:, 4:5] + angle)
            off /= 1.0 - np.minimum(relative, 0.5)
            most = np.abs(rho) + off
            # numpy's log1p of a complex number loses the digits of a small one
            real, imag = 0.5 * np.log1p(2.0 * rho.real + np.abs(rho) ** 2), np.arctan2(rho.imag, 1.0 + rho.real)
            error = off / (1.0 - np.minimum(most, 0.5)) + (len(filled) + 64.0) * 2.0**-50 * np.abs(rho)
            past_use = ~((relative <= 0.5) & (most <= 0.5) & (error <= _PAST_USE))
            real[past_use], imag[past_use], error[past_use] = 0.0, 0.0, _PAST_USE
        mixed, mixed_beyond = None, None
        if small.second is not None:
            pairs = np.flatnonzero(neighbours & filled[:-1] & filled[1:])
            log_small += own[:, :1] + 1j * own[:, 1:2] * omega
            mixed, mixed_beyond = np.zeros(rho.shape, dtype=complex), np.zeros(rho.shape)
            mixed[pairs + 1], mixed_beyond[pairs + 1] = _of_lotteries(log_small, relative, rho, off, pairs)

        def beyond(envelope: NDArray, envelope_big: NDArray) -> NDArray:
            """rho at most beyond a frequency."""
            least = _least_of_neighbours(own[:, 0] + envelope, neighbours)
            return np.nan_to_num(np.exp(np.minimum(log_k + big.columns[:, 4] + envelope_big - least, 230.0)))

        head = small.columns[:, : COLUMNS + 2 * m].copy()
        # what is known of M_s absolutely says nothing of this part
        head[:, [3, 7]] = 1e200
        columns = np.hstack([head, added, real, imag, error, beyond(own[:, 2], big.columns[:, 2])[:, None]])
        columns[~filled] = 0.0
        ladders = [table.ladder for table in (small, big) if table.ladder is not None]
        ladder_beyond = np.array([beyond(*envelopes) for envelopes in zip(*(e.T for _, e in ladders), strict=True)]).T
        return Table(
            small.theta, small.period, np.nan_to_num(columns, nan=0.0), filled, small.weight, small.remainder,
            ladder=small.ladder, ladder_large=ladder_beyond, second=small.second, third=small.third, large=True,
            mixed=mixed, mixed_beyond=mixed_beyond,
        )  # fmt: skip


def _log_phi(table: Table) -> NDArray:
    """The centred logarithm of each bucket's characteristic function at f = 0..m."""
    re, im = np.split(table.columns[:, COLUMNS : COLUMNS + 2 * table.frequencies], 2, axis=1)
    out = np.zeros((len(re), table.frequencies + 1), dtype=complex)
    out[:, 1:] = re + 1j * im
    return out


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


def _least_of_neighbours(values: NDArray, neighbours: NDArray) -> NDArray:
    """The least of a bucket's value and those of the buckets with which it has lotteries; along the first axis."""
    out = values.copy()
    first = np.flatnonzero(neighbours)
    out[first] = np.minimum(out[first], values[first + 1])
    out[first + 1] = np.minimum(out[first + 1], values[first])
    return out
