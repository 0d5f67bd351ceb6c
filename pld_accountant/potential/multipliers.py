r"""The tilted characteristic functions of one step, for all norms at once, with their error.

One step of relative norm s is a Gaussian exponential martingale stopped at the time t = (s / sigma)^2.  Let b be
N(-t / 2, t) and g = 1 - q + q e^b.  For the loss L of the removal or the addition and z = theta + i omega

    B_t(z) = E exp(z L) = E[g^(1 + z)]  (removal),    E[g^-z]  (addition).

Interpolation in t
------------------
`mechanisms.quadrature` computes B at single norms.  Between them B is interpolated, and the error is proven:

1. The density of b is (2 pi t)^(-1/2) exp(-b^2 / (2 t) - b / 2 - t / 8).  It is analytic in t where Re t > 0.
2. Its modulus at a complex t is (|t| / Re t)^(1/2) exp((t' - Re t) / 8) times the density at the real time
   t' = |t|^2 / Re t, because Re(1 / t) = 1 / t'.  Since |g^(1 + z)| = g^(1 + theta),

       |B_t(z)| <= (|t| / Re t)^(1/2) exp((t' - Re t) / 8) B_t'(theta).

3. B_t(theta) grows with t, as the step with the larger norm dominates.
4. One octave of norms is the interval [t0, 4 t0].  The ellipse around it with the sum rho = 2.4 of its half-axes, in
   units of 1.5 t0, has Re t >= 0.38 t0, Im t <= 1.49 t0 and t' <= 4.62 t0.  So (|t| / Re t)^(1/2) <= 2 on it.
5. An analytic function that is at most M on the ellipse is interpolated in n Chebyshev points with an error of at most
   4 M rho^(1 - n) / (rho - 1).  Errors of the values grow by at most 2 / pi log(n) + 1, the Lebesgue constant.

The interpolated function is (B_t(z) - 1) / t, so that small norms keep their relative accuracy.

Rounding of t
-------------
The times of the points and of a norm are rounded, which moves B by the error of t times its slope.  By step 5, applied
to the derivative, the slope is at most 4 M / t0.  A sharper bound for small t: with w = q e^b / g, Ito's formula gives

    dB/dt = z (1 + z) / 2 E[g^(1 + z) w^2]  (removal),    with g^-z in place of g^(1 + z) for the addition.

At z = theta the expectation of the removal grows with t, because x^2 (1 - q + q x)^(theta - 1) is convex in x = e^b, a
martingale.  Up to 4 t0 it is therefore at most 2 (B(theta) - 1) / (theta (1 + theta) 0.62 t0), B at 4.62 t0.  That of
the addition is at most (1 - q)^-(1 + 2 theta) times this, because g >= 1 - q.

References
----------
Trefethen, "Approximation Theory and Approximation Practice", Theorems 8.2 and 15.2, for step 5.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..mechanisms.base import Direction
from ..mechanisms.sampled_gaussian import SampledGaussianSteps
from .norms import OCTAVES

__all__ = ["Law", "Multipliers", "log_moments"]

_POINTS = 48  # Chebyshev points in one octave
_RHO = 2.4
_UNIT = 2.0**-53
_TIME = 2.0**-49  # relative error of a time, about 12 units, rounded up
_MOST_WORK = 1e13  # products of nodes and frequencies: unlimited


class Law(NamedTuple):
    """Steps with one noise multiplier and one sample rate, in one direction, at the tilt theta."""

    noise_multiplier: float
    sample_rate: float
    direction: Direction
    theta: float

    def steps(self, norms: NDArray) -> SampledGaussianSteps:
        """One row for each relative norm."""
        rates = np.full(norms.size, self.sample_rate)
        return SampledGaussianSteps(self.noise_multiplier / norms, rates, self.direction)

    def cost(self, norms: NDArray) -> NDArray:
        """K(theta) of the removal at each relative norm, rounded up: what a step is charged, in either direction."""
        return log_moments(self._replace(direction="remove"), norms)


def log_moments(law: Law, norms: NDArray) -> NDArray:
    """K(theta) = log E exp(theta L) at each relative norm, rounded up, shape (norms,)."""
    return law.steps(norms).log_moments(np.array([law.theta]), exact=True)[:, 0]


class Multipliers:
    """B_t(z) - 1 at the frequencies 0, spacing, ..., m spacing, for any relative norms between 2**-OCTAVES and 1.

    Attributes
    ----------
    law : Law
    omega : ndarray, shape (m + 1,)
        The frequencies.
    error : ndarray, shape (OCTAVES, m + 1)
        Bound of the error of (B - 1) / t in each octave.
    """

    def __init__(self, law: Law, spacing: float, m: int) -> None:
        self.omega = spacing * np.arange(m + 1)
        self.law, self._sigma = law, law.noise_multiplier
        self._angles = np.pi * (np.arange(_POINTS) + 0.5) / _POINTS
        self._values = np.empty((OCTAVES, _POINTS, m + 1), dtype=np.complex128)
        self.error = np.empty((OCTAVES, m + 1))
        lebesgue = 2.0 / np.pi * np.log(_POINTS) + 1.0
        for octave in range(OCTAVES):
            first = 4.0 ** (octave - OCTAVES) / self._sigma**2
            times = first * (2.5 + 1.5 * np.cos(self._angles))
            values, error = _values(law, np.sqrt(times) * self._sigma, self.omega)
            self._values[octave] = values / times[:, None]
            largest = 2.0 * np.exp(4.62 * first / 8.0 + log_moments(law, np.sqrt([4.62 * first]) * self._sigma)[0])
            missed = 4.0 * (largest + 1.0) / (0.38 * first) * _RHO ** (1.0 - _POINTS) / (_RHO - 1.0)
            size = np.abs(self._values[octave]).max(axis=0)
            rounded = (error / times[:, None]).max(axis=0) + 2.0 * _POINTS * _UNIT * size
            rounded += _TIME * np.minimum(self._slope(first), 4.0 * largest / first)
            self.error[octave] = lebesgue * rounded + missed

    def _slope(self, first: float) -> NDArray:
        """A bound of |dB / dt| in an octave, sharp for small times, shape (m + 1,)."""
        theta, rate = self.law.theta, self.law.sample_rate
        z = theta + 1j * self.omega
        grown = np.expm1(self.law.cost(np.sqrt([4.62 * first]) * self._sigma)[0]) / (0.62 * first)
        added = -(1.0 + 2.0 * theta) * np.log1p(-rate) if self.law.direction == "add" else 0.0
        return np.abs(z * (1.0 + z)) / (theta * (1.0 + theta)) * grown * np.exp(min(added, 600.0))

    def at(self, norms: NDArray) -> tuple[NDArray, NDArray]:
        """B - 1 at some relative norms, and a bound of its error, both (norms, m + 1)."""
        times = (norms / self._sigma) ** 2
        octave = np.clip(np.frexp(norms)[1] + OCTAVES - 1, 0, OCTAVES - 1)
        values = np.empty((norms.size, self.omega.size), dtype=np.complex128)
        for one in np.unique(octave):
            here = octave == one
            first = 4.0 ** (int(one) - OCTAVES) / self._sigma**2
            values[here] = self._interpolation((times[here] / first - 2.5) / 1.5) @ self._values[one]
        return values * times[:, None], self.error[octave] * times[:, None]

    def _interpolation(self, x: NDArray) -> NDArray:
        """The matrix from values at the Chebyshev points to values at x in [-1, 1] (barycentric formula)."""
        weights = np.sin(self._angles) * (-1.0) ** np.arange(_POINTS)
        difference = x[:, None] - np.cos(self._angles)
        hit = np.abs(difference) < 1e-15
        shares = weights / np.where(hit, 1.0, difference)
        shares = np.where(hit.any(axis=1)[:, None], hit, shares)
        return shares / shares.sum(axis=1)[:, None]


def _values(law: Law, norms: NDArray, omega: NDArray) -> tuple[NDArray, NDArray]:
    """B - 1 at single norms by quadrature, and a bound of its error, both (norms, frequencies)."""
    steps = law.steps(norms)
    m = omega.size - 1
    found = steps.spectrum(law.theta, float(omega[1]), m, np.arange(norms.size), 1, _MOST_WORK)
    if found is None:
        raise ValueError(f"the losses of {law} need too many nodes; take a larger noise multiplier")
    exponent = np.zeros((norms.size, m + 1), dtype=np.complex128)
    exponent[:, 1:] = found.re + 1j * (found.im + omega[1:] * found.mean[:, None])
    exponent += found.log_moment[:, None]
    values = np.expm1(exponent)
    scale = np.exp(found.log_moment)[:, None]
    error = scale * (found.error[:, None] + found.error_slope[:, None] * omega)
    error += scale * found.log_moment_error[:, None] + 4.0 * _UNIT * np.abs(values)
    return values, error
