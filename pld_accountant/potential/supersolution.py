r"""A certified upper bound of what an adversary can reach who chooses every norm after seeing the past.

The potential
-------------
l is the log-likelihood ratio of the run so far, tau the budget that is left, y = l - epsilon.

    V(tau, l) = exp(theta y + kappa tau) W(tau, y),
    W(tau, .) = exp((tau - tau_n) R) (W_n + (tau - tau_n) / D_n E_n)    for tau_n <= tau <= tau_n + D_n = tau_(n+1).

W_n and E_n are trigonometric polynomials of period P, and R is the generator of a compound Poisson process: its jumps
are steps of norm 1 and 1/2, tilted by theta.  exp(u R) with u >= 0 therefore maps functions above 0 to functions above
0.  V bounds the hockey-stick divergence of every adaptive run (`docs/how/potential.rst` has the proof) if

1. W_0 exp(theta y) >= max(1 - exp(-y), 0) and E_n >= 0;
2. no charge exceeds a D_n, and W_(n+1) less the end of the cell before it is at least 0, also after any step;
3. for each norm s, with rho = `Series.generator` and a - 1 = `Series.jump`,

       (a)  D rho_s W_n <= E_n,        (b)  D rho_s (W_n + E_n) - (a_s - 1) E_n <= E_n.

The certificate
---------------
The left sides of (a) and (b) are polynomials in the squared norm and trigonometric polynomials in y.  Their largest
value is found on a grid; between two grid points of distance h a function exceeds the larger value by at most
h^2 / 8 times its largest second derivative.  All errors together are a number r >= 0.  Adding r to E_n repairs (a), (b)
and E_n >= 0, because a_s <= 1 at omega = 0 and no charge exceeds D_n.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.polynomial.chebyshev import chebvander
from numpy.typing import NDArray

from .. import deadline
from .multipliers import Law, Multipliers, log_moments
from .norms import NORMS
from .series import ChargeTable, Series, fit_series

__all__ = ["LARGEST_GROWTH", "Cell", "Grid", "Potential", "build_potential"]

_UNIT = 2.0**-53
_BAND = 8.0  # standard deviations of the payoff's Gaussian spectrum that are kept
_DROPPED = 1e-8  # share of the potential that the modes dropped in one cell may cost
_TRIED = np.maximum(np.sqrt(0.5 + 0.5 * np.cos(np.pi * np.arange(24) / 23)), NORMS[0])
"""Norms for which E is made; the certificate looks at all norms."""

_BOTH_WAYS, _UPWARDS = 4, 16  # iterations of the implicit equation for E
_RAISE = 2.0  # share of what is missing that an upward iteration adds
_SOLVED = 1e-6  # of its largest value: where the iteration ends
_MOST_CELLS = 1_000
_OVERFLOW = "the numbers leave the range of doubles"

LARGEST_GROWTH = 700.0
"""The exponential of a step's log-moment must be a double."""


class Grid(NamedTuple):
    """How finely the potential is built; no choice can make it wrong.

    Attributes
    ----------
    step : float
        Width of a cell over the budget at its end.
    smoothing : float
        Variance of the Gaussian that smooths the payoff, over that of the expected number of steps.
    least : float
        That variance over the variance of one step, at least.
    share : float
        That variance times theta^2, at least: twice the share of delta that it costs.
    frequencies : int
        At most.  Where they do not suffice, the payoff is smoothed more.
    points : int
        Of the certificate, for each half-period of the highest frequency.
    norms : int
        Of the certificate, for each term of the series in the norm.
    """

    step: float = 0.1
    smoothing: float = 3e-4
    least: float = 1.0
    share: float = 0.001
    frequencies: int = 4096
    points: int = 16
    norms: int = 14


class Cell(NamedTuple):
    """One cell of the potential: it begins at `tau`, is `width` wide, and has the coefficients of W and of E."""

    tau: float
    width: float
    start: NDArray
    extra: NDArray


class Potential:
    """A potential in one direction.

    Attributes
    ----------
    theta, kappa, period : float
    drift : ndarray, shape (m + 1,)
        R at the frequencies 2 pi k / period.
    cells : list of Cell
        Ascending.
    """

    def __init__(self, theta: float, kappa: float, period: float, drift: NDArray, cells: Sequence[Cell]) -> None:
        self.theta, self.kappa, self.period = theta, kappa, period
        self.drift = drift
        self.cells = list(cells)

    @property
    def end(self) -> float:
        """The largest budget for which the potential is built."""
        last = self.cells[-1]
        return last.tau + last.width

    def coefficients(self, tau: float) -> NDArray:
        """The Fourier coefficients of W(tau, .), 0 <= tau <= `end`."""
        if not 0.0 <= tau <= self.end:
            raise ValueError(f"the budget must be between 0 and {self.end!r}, got {tau!r}")
        starts = [cell.tau for cell in self.cells]
        cell = self.cells[max(int(np.searchsorted(starts, tau, side="right")) - 1, 0)]
        part = (tau - cell.tau) / cell.width
        flow = np.exp((tau - cell.tau) * self.drift[: cell.start.size])
        return (cell.start + part * cell.extra) * flow

    def log_delta(self, epsilon: float, tau: float) -> float:
        """Upper bound of log delta at any epsilon, for a budget of tau between 0 and `end`."""
        c = self.coefficients(tau)
        omega = 2.0 * np.pi / self.period * np.arange(c.size)
        value = c[0].real + 2.0 * float((c[1:] * np.exp(-1j * omega[1:] * epsilon)).real.sum())
        growth = 1.0 + omega[-1] * epsilon + tau * float(np.abs(self.drift[c.size - 1]))
        value += 64.0 * _UNIT * float(np.abs(c).sum()) * growth
        if not 0.0 < value < math.inf:
            raise ArithmeticError(f"the potential is {value!r}")
        exponent = self.kappa * tau - self.theta * epsilon
        return exponent + math.log(value) + 1e-12 * (1.0 + abs(exponent))

    def budget(self, epsilon: float, delta: float) -> float:
        """The largest budget, rounded down, for which `log_delta` is at most log delta; 0 if there is none."""
        goal = math.log(delta)
        low, high = 0.0, self.end
        if self.log_delta(epsilon, low) > goal:
            return 0.0
        if self.log_delta(epsilon, high) <= goal:
            return high
        for _ in range(100):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.log_delta(epsilon, middle) <= goal else (low, middle)
        return low


def build_potential(
    laws: Sequence[Law],
    charges: ChargeTable,
    targets: Sequence[tuple[float, float]],
    steps: float,
    grid: Grid | None = None,
    report: Callable[[float], None] | None = None,
) -> Potential:
    """Build and certify a potential that reaches the budgets of all targets.

    Parameters
    ----------
    laws : sequence of Law
        One for each sample rate, with one direction and one theta.
    charges : ChargeTable
        Of these laws.
    targets : sequence of (epsilon, delta)
    steps : float
        About how many full-norm steps the largest target allows.  It sets the grid, not the validity.
    report : callable, optional
        Called with the budget reached.

    Raises
    ------
    ValueError
        If a potential takes too many cells, its numbers leave the range of doubles, or theta is too large.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # such values end in an error below
        return _build(laws, charges, targets, steps, grid or Grid(), report)


def _build(
    laws: Sequence[Law],
    charges: ChargeTable,
    targets: Sequence[tuple[float, float]],
    steps: float,
    grid: Grid,
    report: Callable[[float], None] | None,
) -> Potential:
    theta = laws[0].theta
    growths = [log_moments(law, NORMS) / w for law, w in zip(laws, charges.table, strict=True)]
    kappa = float(np.max(growths)) * (1.0 + 4.0 * _UNIT)
    largest = float(charges.table.max())

    mean, variance = _rates(laws[0], charges.unit)
    blur = max(grid.smoothing * steps * variance, grid.least * variance, grid.share / theta**2)
    deviation = math.sqrt(variance * steps)
    far = max(-math.log(delta) for _, delta in targets)
    period = max(13.0 * deviation, 6.0 * deviation + 1.5 * far / theta, 2.0 * mean)
    if not (kappa < LARGEST_GROWTH and math.isfinite(period * math.exp(kappa))):
        raise ValueError(_OVERFLOW)
    spacing = 2.0 * math.pi / period
    blur = max(blur, (_BAND / (grid.frequencies * spacing)) ** 2)
    most = int(_BAND / math.sqrt(blur) / spacing) + 3
    multipliers = [Multipliers(law, spacing, most) for law in laws]
    drift, drift_error = _drift(multipliers[0], laws[0], charges.unit)
    start, beyond = _payoff(theta, blur, period, most)
    weight = np.abs(start) / np.abs(start).sum() * steps * 1e6
    series = [fit_series(m, drift, charges.of(law), kappa, weight) for law, m in zip(laws, multipliers, strict=True)]
    builder = _Builder(period, series, drift, drift_error, grid)
    potential = Potential(theta, kappa, period, drift, [])
    tau = 0.0
    while True:
        deadline.check()
        width = max(largest, grid.step * (tau + blur / variance))
        cell, start = builder.cell(tau, width, start, beyond)
        beyond = 0.0
        potential.cells.append(cell)
        tau = potential.end
        if report is not None:
            report(tau)
        if all(potential.log_delta(epsilon, tau) > math.log(delta) for epsilon, delta in targets):
            return potential
        if len(potential.cells) > _MOST_CELLS:
            raise ValueError("the target allows more steps than a potential can be built for")


def _rates(law: Law, unit: float) -> tuple[float, float]:
    """Tilted mean and variance of the loss for each unit of charge: means over the norms 1 and 1/20."""
    norms = np.array([1.0, 0.05])
    charge = law.cost(norms) / unit
    tiny = 1e-3
    found = law.steps(norms).spectrum(law.theta, tiny, 1, np.arange(2), 1, 1e13)
    if found is None:
        raise ValueError(f"an order of {1.0 + law.theta:g} needs too many frequencies; choose a smaller one")
    return float((found.mean / charge).mean()), float((-2.0 * found.re[:, 0] / tiny**2 / charge).mean())


def _drift(multipliers: Multipliers, law: Law, unit: float) -> tuple[NDArray, NDArray]:
    """R, and a bound of the error of the computed R."""
    norms = np.array([1.0, 0.5])
    charge = law.cost(norms) / unit
    values, error = multipliers.at(norms)
    mass = 1.0 + values[:, :1].real
    drift = 0.5 * ((values - values[:, :1].real) / mass / charge[:, None]).sum(axis=0)
    missed = 0.5 * ((error + 3.0 * error[:, :1]) / mass / charge[:, None]).sum(axis=0) * 1.001
    drift[0] = 0.0
    return drift, missed + 16.0 * _UNIT * np.abs(drift)


def _payoff(theta: float, blur: float, period: float, most: int) -> tuple[NDArray, float]:
    """Coefficients of W_0, and a bound of what lies beyond the last frequency.

    The payoff max(1 - exp(-y), 0) is convex in exp(-y), so averaging it over the losses of a Gaussian pair of variance
    m^2 = `blur` does not lower it.  The images that the period adds are not negative.  The coefficients are
    exp(m^2 z (z + 1) / 2) / (z (z + 1)) / P.
    """
    omega = 2.0 * np.pi / period * np.arange(most + 1)
    z = theta + 1j * omega
    c = np.exp(0.5 * blur * z * (z + 1.0)) / (z * (z + 1.0)) / period
    last = float(omega[-1])
    beyond = 2.0 / period * math.exp(0.5 * blur * (theta * (theta + 1.0) - last**2)) / last**2
    beyond /= -math.expm1(-blur * last * float(omega[1]))
    return c, beyond + 64.0 * _UNIT * float(np.abs(c).sum())


class _Builder:
    """Makes one cell after another."""

    def __init__(self, period: float, series: list[Series], drift: NDArray, drift_error: NDArray, grid: Grid) -> None:
        self._period, self._series, self._grid = period, series, grid
        self._drift, self._drift_error = drift, drift_error
        self._omega = 2.0 * np.pi / period * np.arange(drift.size)
        tried = [s.at(_TRIED) for s in series]
        self._generators = np.concatenate([g for g, _ in tried])
        self._jumps = np.concatenate([j for _, j in tried])
        self._amplitude = np.max([s.amplitude for s in series], axis=0)

    def cell(self, tau: float, width: float, start: NDArray, beyond: float) -> tuple[Cell, NDArray]:
        """The cell that begins with W = `start` plus `beyond`, and the coefficients of W at its end."""
        sizes = 2.0 * np.abs(start) * self._amplitude[: start.size]
        beyond_each = np.cumsum(sizes[::-1])[::-1]
        keep = max(int(np.searchsorted(-beyond_each, -_DROPPED * start[0].real)) - 1, 1)
        c = start[: keep + 1].copy()
        c[0] += beyond + float(sizes[keep + 1 :].sum())
        e = self._extra(c, width)
        e[0] += self._missing(c, e, width)
        flow = width * self._drift[: keep + 1]
        end = (c + e) * np.exp(flow)
        end[0] += 16.0 * _UNIT * float((np.abs(end) * (1.0 + np.abs(flow)) * self._amplitude[: keep + 1]).sum())
        return Cell(tau, width, c, e), end

    def _extra(self, c: NDArray, width: float) -> NDArray:
        """About the smallest E for the tried norms; nothing is proven here.

        The smallest E has kinks where the worst norm changes, and (b) amplifies high frequencies by D rho.  Each
        iteration is therefore smoothed by exp(-D max |rho|).  The first iterations go both ways, the others upwards.
        """
        keep = c.size - 1
        n = _fast(4 * keep + 16)
        generator, jump = width * self._generators[:, : keep + 1], self._jumps[:, : keep + 1]
        smoothing = np.exp(-np.maximum.accumulate(np.abs(generator).max(axis=0)))
        on_c, on_e = generator * c, generator - jump
        first = np.maximum(_samples(on_c, n).max(axis=0), 0.0)
        e = smoothing * _spectrum(first, keep)
        for iteration in range(1, _BOTH_WAYS + _UPWARDS):
            needed = np.maximum(first, _samples(on_c + on_e * e, n).max(axis=0))
            if iteration < _BOTH_WAYS:
                e = smoothing * _spectrum(needed, keep)
                continue
            missing = np.maximum(needed - _samples(e, n), 0.0)
            if missing.max() <= _SOLVED * needed.max():
                break
            e = e + _RAISE * smoothing * _spectrum(missing, keep)
        return e

    def _missing(self, c: NDArray, e: NDArray, width: float) -> float:
        """The constant that must be added to E so that (a), (b) and E >= 0 hold everywhere, for all norms."""
        keep = c.size - 1
        n, coarse = _fast(2 * keep * self._grid.points + 16), _fast(4 * keep + 16)
        second = -(self._omega[: keep + 1] ** 2)
        gap = (self._period / n) ** 2 / 8.0 / math.cos(math.pi * keep / coarse)
        of_e = _samples(e, n), _samples(e * second, coarse)
        missing = float(-of_e[0].min()) + float(np.abs(of_e[1]).max()) * gap
        a, b = np.abs(c), np.abs(e)
        noise = 0.0
        for series in self._series:
            generator, jump = series.generator[:, : keep + 1], series.jump[:, : keep + 1]
            on_c, on_both, on_e = width * generator * c, width * generator * (c + e), jump * e
            terms = max(len(generator), len(jump))
            points = self._grid.norms * terms
            x = np.cos(np.pi * (np.arange(points) + 0.5) / points)
            of_generator, of_jump = chebvander(x, len(generator) - 1), chebvander(x, len(jump) - 1)
            fine = [_samples(f, n) for f in (on_c, on_both, on_e)]
            bent = [_samples(f * second, coarse) for f in (on_c, on_both, on_e)]
            for (fc, fb, fe), f, largest in ((fine, of_e[0], np.max), (bent, of_e[1], _modulus)):
                value = max(largest(of_generator @ fc - f), largest(of_generator @ fb - of_jump @ fe - f))
                if largest is np.max:
                    worst = float(value)
                else:
                    worst += float(value) * gap
            # between two norms: a Chebyshev series in cos(phi) has second derivatives of at most m^2 for each term
            squares, more = np.arange(len(generator)) ** 2, np.arange(len(jump)) ** 2
            sizes = [np.abs(f).max(axis=1) / math.cos(math.pi * keep / n) for f in fine]
            curved = max(squares @ sizes[0], squares @ sizes[1] + more @ sizes[2])
            worst += float(curved) * (math.pi / points) ** 2 / 8.0
            missing = max(missing, worst)
            left_out = width * series.generator_error[: keep + 1] * (a + b) + series.jump_error[: keep + 1] * b
            size = width * np.abs(generator).sum(axis=0) * (a + b) + np.abs(jump).sum(axis=0) * b + b
            # a step across a knot is a flow of up to twice the width
            flow_error = 2.0 * width * self._drift_error[: keep + 1] * (size + a)
            noise = max(noise, 2.0 * float((left_out + flow_error).sum()) + terms * _fft_error(size, n))
            if not math.isfinite(worst + noise):  # max() would pass over a NaN
                raise ValueError(_OVERFLOW)
        return max(missing, 0.0) + noise


def _fast(points: int) -> int:
    from scipy import fft

    return int(fft.next_fast_len(points, real=True))


def _samples(coefficients: NDArray, n: int) -> NDArray:
    """Real trigonometric polynomials at n even points of a period; the last axis holds the frequencies 0, 1, ..."""
    from scipy import fft

    padded = np.zeros((*coefficients.shape[:-1], n // 2 + 1), dtype=np.complex128)
    padded[..., : coefficients.shape[-1]] = coefficients
    return fft.irfft(padded, n, axis=-1, norm="forward")


def _spectrum(samples: NDArray, keep: int) -> NDArray:
    """The coefficients of a real function up to a frequency."""
    from scipy import fft

    c = fft.rfft(samples, norm="forward")[: keep + 1]
    c[0] = c[0].real
    return c


def _modulus(values: NDArray) -> float:
    return float(np.abs(values).max())


def _fft_error(sizes: NDArray, n: int) -> float:
    """Bound of the round-off of `_samples` for coefficients of these moduli."""
    return 16.0 * _UNIT * math.log2(n) * math.sqrt(2.0 * n * float((sizes**2).sum()))
