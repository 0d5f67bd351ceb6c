"""Compositions of finitely many losses on a common lattice: one tilted Fourier transform, without a grid of its own.

The sum of n steps whose losses are o_i + g k, k whole, lies on the lattice sum n_i o_i + g k.  Its masses, tilted by
exp(theta l), are an inverse Fourier transform of the product of the steps' transforms.  Masses outside of a window
of the tilted sum wrap into it, and have a Chernoff bound of 1e-16.  delta is then a finite sum.  The tilt is the Renyi
order's, so that a delta of 1e-100 keeps its digits.

Error: the losses are moved onto the lattice by at most `shift` in all, which moves epsilon by as much.  The masses'
relative error multiplies delta.  If a computed transform phi_i is wrong by eta_i, the product of the powers is wrong by
at most sum n_i (eta_i + 16 units) (|phi_i| + eta_i)^(n_i - 1) times the other factors.  The mean of this over the
frequencies bounds the error of each mass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft as transforms

from ..fft import roundoff
from ..mechanisms.discrete import MASS_SLACK, DiscreteLaw
from .discrete_sum import DiscreteSum, FiniteDelta

__all__ = ["LatticeSum"]

_MOST = 1 << 22  # points of a window, and of one step
_FARTHEST = 1e12  # points of a sum
_NEAR = 1e-9  # distance from a lattice, relative to its step, at which a loss counts as on it
_TILTS = 2.0 ** np.arange(-24.0, 42.0, 0.5)
_TAUS = 2.0 ** np.arange(-24.0, 42.0, 1.0)
_LOG_WRAPPED, _WRAPPED = 40.0, 1e-16  # 2 exp(-40) is 8.5e-18; the rest is for the round-off of log-moments
_UNIT = 2.0**-53


class LatticeSum(DiscreteSum):
    """The sum of steps on a lattice; `of` returns None where there is none.

    Parameters
    ----------
    laws : sequence of DiscreteLaw
    counts : sequence of int
    step : float
        g, the step of the lattice.
    """

    def __init__(self, laws: Sequence[DiscreteLaw], counts: Sequence[int], step: float) -> None:
        super().__init__(laws, counts)
        self._step, self._counts = step, list(counts)
        self._last: tuple[float, FiniteDelta] | None = None
        self._laws, moved = [], 0.0
        self._start, self._points = 0.0, 1
        for law, n in zip(laws, counts, strict=True):
            place = np.rint((law.losses - law.losses[0]) / step)
            moved += n * float(np.abs(law.losses[0] + step * place - law.losses).max())
            masses = np.bincount(place.astype(np.int64), law.masses)
            self._laws.append((law.losses[0], masses))
            self._start += n * law.losses[0]
            self._points += n * (masses.size - 1)
        size = sum(n * float(np.abs(law.losses).max()) for law, n in zip(laws, counts, strict=True))
        steps = sum(counts)
        # beside the distance from the lattice: the errors of the losses, and the round-off of start + step k
        self._shift = moved * 1.001 + 2.0 * MASS_SLACK * steps + 2.0**-50 * size
        self._factor = math.exp(min(steps * 2.0 * MASS_SLACK, 1.0))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}

    @staticmethod
    def of(laws: Sequence[DiscreteLaw], counts: Sequence[int]) -> LatticeSum | None:
        """The sum, if the losses have a common lattice that is coarse enough."""
        if any(not law.losses.size for law in laws):
            return None
        step = 0.0
        for law in laws:
            span = float(law.losses[-1] - law.losses[0])
            for gap in np.sort(np.diff(law.losses))[::-1]:
                # the gaps of one law and of all: Euclid's algorithm, up to round-off
                step = _common(step, float(gap))
                if step and span / step > _MOST:
                    return None
        if step == 0.0:
            step = 1.0
        # the largest span tells the step best
        span = max(float(law.losses[-1] - law.losses[0]) for law in laws)
        step = span / max(round(span / step), 1) if span > 0.0 else step
        points = 0.0
        for law, n in zip(laws, counts, strict=True):
            places = (law.losses - law.losses[0]) / step
            if np.any(np.abs(places - np.rint(places)) > _NEAR * np.maximum(places, 1.0)):
                return None
            points += n * round(places[-1])
        # Hoeffding's lemma: the window is small enough whatever the tilt
        square = sum(n * (law.losses[-1] - law.losses[0]) ** 2 for law, n in zip(laws, counts, strict=True))
        small = points < _FARTHEST and square <= (0.02 * _MOST * step) ** 2
        return LatticeSum(laws, counts, step) if small else None

    @property
    def largest(self) -> float:
        """The largest finite loss, rounded up."""
        return self._start + self._step * (self._points - 1) + self._shift

    def _log_moment(self, theta: NDArray) -> NDArray:
        total = np.zeros(theta.size)
        for (start, masses), n in zip(self._laws, self._counts, strict=True):
            some = np.flatnonzero(masses)
            exponent = np.multiply.outer(theta, start + self._step * some) + np.log(masses[some])
            total += n * np.logaddexp.reduce(exponent, axis=1)
        return total

    def _window(self, theta: float) -> tuple[int, int]:
        """First point and length of a window of the lattice outside of which the tilted sum has `_WRAPPED` at most.

        The Chernoff bounds of the tilted sum at tau: exp(K(theta + tau) - K(theta) - tau l) above l, and the same with
        -tau below.
        """
        here = float(self._log_moment(np.array([theta]))[0])
        above = self._log_moment(theta + _TAUS) - here
        below = self._log_moment(theta - _TAUS) - here
        top = float(np.min((above + _LOG_WRAPPED) / _TAUS))
        bottom = float(np.max(-(below + _LOG_WRAPPED) / _TAUS))
        first = max(math.floor((bottom - self._start) / self._step) - 1, 0)
        last = min(math.ceil((top - self._start) / self._step) + 2, self._points)
        return first, max(last - first, 1)

    def _tilted(self, theta: float) -> tuple[int, NDArray, float, float, float]:
        """First point, tilted masses, the error of each, the log of what they were divided by, their relative error."""
        first, points = self._window(theta)
        length = transforms.next_fast_len(points, real=True)
        product, log_scale, relative = np.ones(length // 2 + 1, dtype=complex), 0.0, 0.0
        size, error = np.ones(product.size), np.zeros(product.size)
        for (start, masses), n in zip(self._laws, self._counts, strict=True):
            exponent = np.full(masses.size, -np.inf)
            some = masses > 0.0
            exponent[some] = np.log(masses[some]) + theta * self._step * np.flatnonzero(some)
            top = float(exponent.max())
            tilted = np.exp(exponent - top)
            total = float(tilted.sum())
            tilted /= total
            log_scale += n * (top + math.log(total) + theta * start)
            # a tilted mass carries the round-off of its exponent
            weight = float(tilted[some] @ np.abs(exponent[some] - top))
            moment = theta * self._step * float(tilted @ np.arange(masses.size))
            units = 64.0 + 4.0 * weight + 4.0 * moment + masses.size
            folded = np.bincount(np.arange(masses.size) % length, tilted, length)
            phi = transforms.rfft(folded)
            eta = roundoff(max(length, 2), float(np.linalg.norm(folded))) + units * _UNIT
            magnitude = np.minimum(np.abs(phi) + eta, 1.0)
            power = magnitude ** max(n - 1, 0)
            error = error * magnitude * power + size * n * (eta + 16.0 * _UNIT * magnitude) * power
            size = size * magnitude * power
            product *= phi**n
            relative += n * units * _UNIT + 4.0 * n * _UNIT * (abs(top) + abs(math.log(total)) + abs(theta * start))
        masses = np.roll(transforms.irfft(product, length), -(first % length))
        inverse = 2.0 * roundoff(max(length, 2), float(np.linalg.norm(product))) / length
        each = 2.0 * float(error.mean()) + 2.0 * inverse + 4.0 * _UNIT * float(np.abs(product).mean())
        return first, masses, each, log_scale, relative

    @cached_property
    def _chernoff(self) -> tuple[NDArray, NDArray]:
        """Tilts that see no distance below the shift, which bounds leave open; log of their bounds of delta(0)."""
        tilts = _TILTS[0.1 / self._shift >= _TILTS]
        return tilts, self._log_moment(tilts) + _penalty(tilts)

    def _near_epsilon(self, epsilon: float) -> FiniteDelta:
        tilts, bound = self._chernoff
        return self._near_tilt(float(tilts[np.argmin(bound - tilts * epsilon)]))

    def _near_delta(self, delta: float) -> FiniteDelta:
        tilts, bound = self._chernoff
        with np.errstate(over="ignore"):
            best = np.argmin((bound - math.log(delta)) / tilts)
        return self._near_tilt(float(tilts[best]))

    def _near_tilt(self, theta: float) -> FiniteDelta:
        """Bounds that are tight near the epsilon of a tilt; those of the last tilt are kept."""
        last = self._last
        if last is None or last[0] != theta:
            last = self._last = theta, self._at_tilt(theta)
        return last[1]

    def _at_tilt(self, theta: float) -> FiniteDelta:
        first, masses, each, log_scale, relative = self._tilted(theta)
        start, step = self._start + self._step * first, self._step
        factor = self._factor * math.exp(min(relative, 1.0))

        def finite(epsilon: float, sign: float) -> float:
            epsilon -= sign * self._shift
            begin = max(math.floor((epsilon - start) / step) + 1, 0)
            if begin >= masses.size and sign < 0.0:
                return 0.0
            begin = min(begin, masses.size)
            # what is further than 750 / theta weighs nothing beside round-off, and may be added in full
            end = min(masses.size, begin + int(min(750.0 / (theta * step), 1e9)) + 2)
            past = np.maximum(start + step * np.arange(begin, end) - epsilon, 0.0)
            weight, some = np.exp(-theta * past) * -np.expm1(-past), masses[begin:end]
            error = each * float(weight.sum()) + (end - begin + 8.0) * _UNIT * float(weight @ np.abs(some))
            value = float(weight @ some) + sign * (error + _WRAPPED)
            value += 1e-300 if sign > 0 else 0.0
            if value <= 0.0:
                return 0.0
            exponent = log_scale - theta * epsilon + math.log(value)
            return min(math.exp(min(exponent, 0.0)) * factor**sign, 1.0)

        return finite


def _penalty(theta: NDArray) -> NDArray:
    """log of the largest of exp(-theta x) (1 - exp(-x))."""
    return theta * np.log(theta / (1.0 + theta)) - np.log1p(theta)


def _common(a: float, b: float) -> float:
    """The largest number of which both are multiples, up to round-off."""
    if a == 0.0 or b == 0.0:
        return a + b
    least = _NEAR * max(a, b)
    while b > least:
        rest = a - b * round(a / b)
        a, b = b, abs(rest)
    return a
