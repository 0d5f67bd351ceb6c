"""`ComplexLaw`: what contours ask of a step with Gaussian noise; `ContourSteps`: families that have such laws.

Numbers that are called rough choose contours and prove nothing.  In this module a "loss" of a place x is log g(x), see
`mechanisms.complex_moments`.
"""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from .base import CharacteristicSteps
from .complex_moments import LOG_DENSITY, ComplexMoments, LikelihoodRatio
from .positive_mixture import PositiveMixture

__all__ = ["ComplexLaw", "ContourSteps"]

_BEGIN = 9.0  # standard deviations left of Q where paths of real moments begin
_ROUGH = 400  # nodes of a rough moment
_REACH = 38.0  # standard deviations; a double's smallest mass lies there


class ComplexLaw:
    """One step, as `engine.contour` needs it: its moments, and the rough numbers that choose contours.

    Parameters
    ----------
    p, q : tuple of ndarray
        Centres, in standard deviations of the noise, and weights of the mixtures with and without the record.  No
        centre of q is above one of p.
    remove : bool
        Whether the loss is log(p / q) under p, or its negative under q.
    """

    def __init__(self, p: tuple[NDArray, NDArray], q: tuple[NDArray, NDArray], remove: bool) -> None:
        origin = float(q[0].max())
        self.ratio = LikelihoodRatio(
            PositiveMixture.of(p[0] - origin, p[1]).factored(), PositiveMixture.of(origin - q[0], q[1])
        )
        self._remove = remove
        self._x = np.linspace(-10.0 - self.ratio.q.top, self.ratio.p.top + _REACH, 4 * _ROUGH)
        self._logs = self.ratio.logs(self._x)
        self._loss = self._logs[0] - self._logs[1]

    @property
    def served(self) -> bool:
        """Whether `engine.contour` can serve this law: under addition its losses must end."""
        return self._remove or (self.ratio.p.centres[0] == 0.0 and self.ratio.q.trivial)

    def places(self, losses: NDArray) -> NDArray:
        """About the x at which log g has these values; infinite where they are."""
        return np.where(np.isinf(losses), losses, np.interp(losses, self._loss, self._x))

    def loss_at(self, x: float) -> float:
        """log g at x."""
        return float(self.ratio.log(np.array(x)))

    def mass_beyond(self, x: float) -> float:
        """Mass of the step beyond x, rounded up."""
        mass = self.ratio.p.mass_beyond(x) if self._remove else self.ratio.q.mass_below(-x)
        return mass * (1.0 + 1e-10) + 1e-300

    def end(self, mass: float) -> float:
        """About the x beyond which at most `mass` lies."""
        low, high = 0.0, self.ratio.p.top + _REACH
        for _ in range(30):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if self.mass_beyond(middle) <= mass else (middle, high)
        return high

    def far_ends(self, c: NDArray, log_goal: NDArray, end: float) -> tuple[NDArray, NDArray]:
        """Places from `end` on where N h_Q max(g^c, 1) falls below each goal, and log g there; inf if none does."""
        x = end + np.linspace(0.0, 15.0, 61)
        loss = self.ratio.log(x)
        small = np.maximum(np.multiply.outer(c, loss), 0.0) - 0.5 * x * x + 4.0 < log_goal[:, None]
        at = np.where(small.any(axis=1), small.argmax(axis=1), x.size - 1)
        return x[at], np.where(small.any(axis=1), loss[at], np.inf)

    def moduli(self, places: NDArray) -> NDArray:
        """About the sum of the moduli of M_mid's terms for each `low`."""
        from scipy.special import ndtr

        return ndtr(-places) * math.exp(0.5 * self.ratio.height**2)

    def rough_log_moments(self, places: NDArray, c: NDArray, end: float) -> NDArray:
        """About log of the integral of f at real A = c up to `end` and each place, (places, exponents); no bound."""
        x = np.linspace(-8.0 - self.ratio.q.top, end, _ROUGH)
        p, q = self.ratio.logs(x)
        at = np.minimum(np.searchsorted(x, places), x.size - 1)
        # sums from place to place first: they are few, and an exponential takes a tenth of the time of a `logaddexp`
        last = np.unique(at)
        first = np.append(0, last[:-1] + 1)
        exponent = np.multiply.outer(c, p - q)[:, : last[-1] + 1] + (q - 0.5 * x * x)[: last[-1] + 1]
        top = np.maximum.reduceat(exponent, first, axis=1)
        with np.errstate(under="ignore"):
            part = np.add.reduceat(np.exp(exponent - np.repeat(top, last - first + 1, axis=1)), first, axis=1)
        below = np.logaddexp.accumulate(top + np.log(part), axis=1)
        return below[:, np.searchsorted(last, at)].T + math.log(x[1] - x[0]) - LOG_DENSITY

    @property
    def rough_losses(self) -> tuple[NDArray, NDArray]:
        """Losses, ascending, and about their probabilities."""
        log_p, log_q = (v - 0.5 * self._x**2 + math.log(self._x[1] - self._x[0]) - LOG_DENSITY for v in self._logs)
        with np.errstate(under="ignore"):
            return (self._loss, np.exp(log_p)) if self._remove else (-self._loss[::-1], np.exp(log_q)[::-1])

    def log_moment(self, c: float, stop: float) -> float:
        """log of a bound of |M(A)| of the losses up to a place, wherever Re A = c, c < 0 or c >= 1."""
        return ComplexMoments(self.ratio, -np.inf, stop, _BEGIN, stop).log_moment(c)


@runtime_checkable
class ContourSteps(CharacteristicSteps, Protocol):
    """A family of steps whose moments at complex exponents are known."""

    def complex_law(self, row: int) -> ComplexLaw | None:
        """The law of one step; None if contours do not serve it."""
        ...
