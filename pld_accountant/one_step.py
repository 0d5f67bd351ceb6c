"""One step of the sampled Gaussian in closed form: where the answer is exact, no table is needed.

With t(epsilon) = log(1 + (e^epsilon - 1) / q) the hockey-stick divergence of one step is, for removal,
q H(e^t) of the plain Gaussian pair; for addition, with t = -log(1 - (1 - e^-epsilon) / q), it is
q e^(epsilon - t) H(e^t): the pair of Koskela, Tobaben and Honkela (2023), Lemma 8, cut where
1 - q + q e^((2x - 1) / (2 sigma^2)) = e^(+-epsilon).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import gaussian

__all__ = ["SLACK", "epsilon_bounds", "log_delta"]

SLACK = 2.0**-40
"""Relative width given to the closed forms, far above their error (see `gaussian`)."""


def log_delta(epsilon: NDArray, sigma: NDArray, q: NDArray, direction: str) -> NDArray:
    """log delta(epsilon) of one step; epsilon >= 0; arrays of one shape.

    **Error**: relative 2^-40 of log delta plus that of its arguments; the caller widens by `SLACK`.
    """
    if direction == "remove":
        with np.errstate(over="ignore"):
            t = np.where(epsilon > 30.0, epsilon - np.log(q), np.log1p(np.expm1(np.minimum(epsilon, 30.0)) / q))
        return np.log(q) + gaussian.log_delta(t, 1.0 / sigma)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = -np.log1p(np.expm1(-epsilon) / q)
    inside = np.isfinite(t)
    t = np.where(inside, t, 1.0)
    return np.where(inside, np.log(q) + epsilon - t + gaussian.log_delta(t, 1.0 / sigma), -np.inf)


def epsilon_bounds(delta: float, sigma: NDArray, q: NDArray, direction: str) -> tuple[NDArray, NDArray]:
    """lower, upper epsilon of one step at `delta`; arrays of the shape of sigma and q.

    Removal inverts the closed form, with the inverse of `gaussian.epsilon`, which lies within 1e-11 (t + mu) above the
    truth.  Addition, whose epsilon stays below -log(1 - q), is bisected.
    """
    if direction == "remove":
        share = np.minimum(delta / q, 1.0 - 2.0**-53)
        high = gaussian.epsilon(share, 1.0 / sigma)
        low = np.maximum(high - 1e-11 * (high + 1.0 / sigma), 0.0)
        low, high = _amplified(low, q), _amplified(high, q)
    else:
        low, high = _bisect(np.log(delta), sigma, q)
    return low * (1.0 - SLACK), high * (1.0 + SLACK)


def _amplified(t: NDArray, q: NDArray) -> NDArray:
    """log(1 + q (e^t - 1))."""
    return np.where(t > 30.0, t + np.log(q + (1.0 - q) * np.exp(-t)), np.log1p(q * np.expm1(np.minimum(t, 30.0))))


def _bisect(goal: float, sigma: NDArray, q: NDArray) -> tuple[NDArray, NDArray]:
    """Neighbouring epsilon between which addition's log delta crosses `goal`; both 0 where it starts below."""
    low = np.zeros_like(sigma)
    high = gaussian.epsilon(np.exp(goal), 1.0 / sigma) + 1e-9
    with np.errstate(divide="ignore"):
        high = np.minimum(high, -np.log1p(-q))
    high = np.where(log_delta(low, sigma, q, "add") > goal, high, 0.0)
    for _ in range(80):
        middle = 0.5 * (low + high)
        above = log_delta(middle, sigma, q, "add") > goal
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return low, high
