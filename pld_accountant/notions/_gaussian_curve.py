"""log delta of the Gaussian pair N(mu, 1) and N(0, 1), and a bound on the error of its computation.

Let R(t) = (1 - Phi(t)) / phi(t) be the Mills ratio, t1 = epsilon / mu - mu / 2 and t2 = t1 + mu.  The hockey-stick
divergence is phi(t1) * (R(t1) - R(t2)).  No large terms cancel in this form, so log delta keeps its accuracy far below
the smallest double.
"""

from __future__ import annotations

import math

import numpy as np

from ..gauss_legendre import gauss_legendre

__all__ = ["LOG_SQRT_TWO_PI", "error_of_log_delta", "log_delta_above", "log_delta_anywhere", "mills"]

LOG_SQRT_TWO_PI = 0.5 * np.log(2 * np.pi)
_NODES, _WEIGHTS = (0.5 * v for v in gauss_legendre(6))
_SHORT = 0.4  # for a smaller mu, or a large t1 / mu, the difference of Mills ratios cancels; its integral is used
_SQUARES = 1e150  # larger thresholds overflow when squared
_FEW = 4096  # values for which `math.erf`, one by one, costs less than the import of scipy.special


def mills(t: np.ndarray) -> np.ndarray:
    """(1 - Phi(t)) / phi(t)."""
    from scipy import special

    return np.sqrt(np.pi / 2) * special.erfcx(t / np.sqrt(2))


def _mills_slope(t: np.ndarray) -> np.ndarray:
    """-R'(t) = 1 - t R(t); by the continued fraction for t >= 4, as the difference would cancel."""
    with np.errstate(over="ignore", invalid="ignore"):
        near = 1 - t * mills(t)
    far = np.maximum(t, 4.0)
    tail = (np.sqrt(far * far + 132) - far) / 2  # the fixed point of tail = 33 / (t + tail)
    for k in range(32, 0, -1):  # R = 1 / (t + tail), tail = 1 / (t + 2 / (t + 3 / ...))
        tail = k / (far + tail)
    return np.where(t < 4, near, tail / (far + tail))


def log_delta_above(eps: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """log delta for epsilon >= 0 and mu > 0."""
    from scipy import special

    t1 = eps / mu - mu / 2
    t2 = eps / mu + mu / 2
    out = np.empty(np.broadcast(t1, t2).shape)
    short = (mu < _SHORT) | (t1 > 1e8 * mu)
    left = t1 < -1  # implies mu > 2: delta is close to 1 and the plain difference is accurate
    middle = ~(short | left)
    if np.any(left):
        a, b = t1[left], t2[left]
        density = np.exp(-a * a / 2 - LOG_SQRT_TWO_PI)
        out[left] = np.log(special.ndtr(-a) - density * mills(b))
    if np.any(middle):
        a, b = t1[middle], t2[middle]
        out[middle] = -a * a / 2 - LOG_SQRT_TWO_PI + np.log(mills(a) - mills(b))
    if np.any(short):
        centre, width = (eps / mu)[short], mu[short]
        slope = _mills_slope(centre + width * _NODES[:, None])
        a = t1[short]
        out[short] = -a * a / 2 - LOG_SQRT_TWO_PI + np.log(width) + np.log(_WEIGHTS @ slope)
    return out


def log_delta_anywhere(eps: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """`log_delta_above`; its limits -inf and 0 if the threshold is too large to be squared.

    delta(0) is the total variation distance erf(mu / sqrt 8).  Every question about epsilon asks for it first.
    """
    if eps.size <= _FEW and not eps.any() and np.all(mu > 1e-300):
        return np.log([math.erf(m / math.sqrt(8.0)) for m in mu])
    with np.errstate(over="ignore"):
        t1 = eps / mu - mu / 2
    out = np.where(t1 > 0, -np.inf, 0.0)
    ordinary = np.abs(t1) < _SQUARES
    out[ordinary] = log_delta_above(eps[ordinary], mu[ordinary])
    return out


def error_of_log_delta(eps: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """A bound on the error of the computed log delta and of log of the goal: four times the worst against 60 digits.

    The last term: t1 is known to 2**-54 mu, and the slope of log delta in t1 is at most 1 / R(t1).  The term in log mu:
    for a tiny mu, delta is nearly mu / sqrt(2 pi), and log mu, the log of the goal and their sums are all rounded.
    """
    t1 = eps / mu - mu / 2
    t = np.abs(np.maximum(t1, -8.0))  # further left delta is 1 to the last digit
    return 2.0**-50 * (32 + t * t + 16 * t + 2 * np.abs(np.log(mu))) + 2.0**-52 * mu / mills(t1)
