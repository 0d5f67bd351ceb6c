"""The hockey-stick divergence of one step of the sampled Gaussian, in closed form.

With t(epsilon) = log(1 + (e^epsilon - 1) / q), the divergence of one step under removal is q H(e^t), H that of the
plain Gaussian pair.  Under addition, with t = -log(1 - (1 - e^-epsilon) / q), it is q e^(epsilon - t) H(e^t).  Both
follow from cutting the pair where 1 - q + q e^((2x - 1) / (2 sigma^2)) = e^(+-epsilon).

References
----------
Zhu, Dong and Wang (2022), Theorem 11, for the pair.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..notions import gdp
from .base import crossings, sampled_loss

__all__ = ["SLACK", "epsilon_bounds", "log_delta", "log_delta_bounds"]

SLACK = 2.0**-40
"""Relative width given to the closed forms, above their error (see `notions.gdp`)."""

_ARGUMENT = 2.0**-49  # log_delta errs by as much as a change of epsilon by this much, relative, could explain
_UNITS = 2.0**-50  # of a quotient of two doubles


def log_delta(epsilon: NDArray, sigma: NDArray, q: NDArray, direction: str) -> NDArray:
    """log delta(epsilon) of one step; epsilon >= 0; arrays of one shape.

    **Error**: relative 2^-40 of 1 + |log delta|, plus the effect of a relative change of epsilon by 2^-49.  That effect
    grows without bound as epsilon approaches addition's largest loss -log(1 - q).
    """
    if direction == "remove":
        with np.errstate(over="ignore", divide="ignore"):
            excess = np.expm1(np.minimum(epsilon, 30.0))
            near = np.where(excess / q < 1e290, np.log1p(excess / q), np.log(excess) - np.log(q))
            t = np.where(epsilon > 30.0, epsilon - np.log(q), near)
        return np.log(q) + gdp.log_delta(t, 1.0 / sigma)
    share = -np.expm1(-epsilon) / q
    with np.errstate(divide="ignore", invalid="ignore"):
        # 1 - share would lose its digits near 1; 1 - q is exact above 1/2
        t = np.where((share > 0.5) & (q > 0.5), -np.log((np.exp(-epsilon) - (1.0 - q)) / q), -np.log1p(-share))
    # a full batch has losses of any size, also where exp(-epsilon) underflows
    t = np.where(q == 1.0, epsilon, t)
    inside = np.isfinite(t)
    t = np.where(inside, t, 1.0)
    return np.where(inside, np.log(q) + epsilon - t + gdp.log_delta(t, 1.0 / sigma), -np.inf)


def log_delta_bounds(epsilon: NDArray, sigma: NDArray, q: NDArray, direction: str) -> tuple[NDArray, NDArray]:
    """Lower and upper log delta of one step at `epsilon`; arrays of one shape."""
    low = log_delta(epsilon * (1.0 + _ARGUMENT), sigma, q, direction)
    high = log_delta(epsilon * (1.0 - _ARGUMENT), sigma, q, direction)
    with np.errstate(invalid="ignore"):
        low, high = low - SLACK * (1.0 - low), np.where(np.isneginf(high), high, high + SLACK * (1.0 - high))
    return low, np.minimum(high, 0.0)


def epsilon_bounds(delta: NDArray, sigma: NDArray, q: NDArray, direction: str) -> tuple[NDArray, NDArray]:
    """Lower and upper epsilon of one step at `delta`; arrays of one shape.

    Removal inverts the closed form by `gdp.epsilon`.  Addition, whose epsilon is at most -log(1 - q), is searched for.
    """
    if direction == "remove":
        # One step is q times the Gaussian's delta: from delta = q on, epsilon is 0.
        share = delta / q
        inside = share * (1.0 - _UNITS) < 1.0
        # to numbers below 1e-308 relative room is nothing
        below = np.where(inside, np.minimum(np.nextafter(share * (1.0 + _UNITS), 1.0), 1.0 - 2.0**-53), 0.5)
        least = np.maximum(np.nextafter(share * (1.0 - _UNITS), 0.0), delta)
        above = np.where(inside, np.minimum(least, 1.0 - 2.0**-53), 0.5)
        low = np.where(share < 1.0, gdp.epsilon(below, 1.0 / sigma, rounding="down"), 0.0)
        high = np.where(inside, gdp.epsilon(above, 1.0 / sigma), 0.0)
        return sampled_loss(low, q) * (1.0 - SLACK), sampled_loss(high, q) * (1.0 + SLACK)
    with np.errstate(divide="ignore"):
        most = np.minimum(gdp.epsilon(delta, 1.0 / sigma), -np.log1p(-q) * (1.0 + SLACK))
    zero = np.zeros(most.shape)
    return crossings(lambda epsilon: log_delta_bounds(epsilon, sigma, q, direction), np.log(delta), zero, most)
