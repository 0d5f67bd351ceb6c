"""One step of the sampled Gaussian in closed form: where the answer is exact, no table is needed.

With t(epsilon) = log(1 + (e^epsilon - 1) / q) the hockey-stick divergence of one step is, for removal,
q H(e^t) of the plain Gaussian pair; for addition, with t = -log(1 - (1 - e^-epsilon) / q), it is
q e^(epsilon - t) H(e^t): the pair of Koskela, Tobaben and Honkela (2023), Lemma 8, cut where
1 - q + q e^((2x - 1) / (2 sigma^2)) = e^(+-epsilon).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..notions import gdp

__all__ = ["SLACK", "epsilon_bounds", "log_delta", "log_delta_bounds", "lottery_bounds"]

SLACK = 2.0**-40
"""Relative width given to the closed forms, far above their error (see `gaussian`)."""

_HALVINGS = 40  # of the outcomes' distance

_ARGUMENT = 2.0**-49  # log_delta errs by as much as a change of epsilon by this much, relative, could explain


def log_delta(epsilon: NDArray, sigma: NDArray, q: NDArray, direction: str) -> NDArray:
    """log delta(epsilon) of one step; epsilon >= 0; arrays of one shape.

    **Error**: relative 2^-40 of 1 + |log delta|, and what an error of epsilon by a relative 2^-49 makes; the latter
    grows without bound where addition's epsilon comes near its limit -log(1 - q).
    """
    if direction == "remove":
        with np.errstate(over="ignore"):
            t = np.where(epsilon > 30.0, epsilon - np.log(q), np.log1p(np.expm1(np.minimum(epsilon, 30.0)) / q))
        return np.log(q) + gdp.log_delta(t, 1.0 / sigma)
    share = -np.expm1(-epsilon) / q
    with np.errstate(divide="ignore", invalid="ignore"):
        # 1 - share would lose its digits near 1; 1 - q is exact above 1/2
        t = np.where((share > 0.5) & (q > 0.5), -np.log((np.exp(-epsilon) - (1.0 - q)) / q), -np.log1p(-share))
    inside = np.isfinite(t)
    t = np.where(inside, t, 1.0)
    return np.where(inside, np.log(q) + epsilon - t + gdp.log_delta(t, 1.0 / sigma), -np.inf)


def log_delta_bounds(epsilon: float, sigma: NDArray, q: NDArray, direction: str) -> tuple[NDArray, NDArray]:
    """lower, upper log delta of one step at `epsilon`; arrays of the shape of sigma and q."""
    low = log_delta(np.full(sigma.shape, epsilon * (1.0 + _ARGUMENT)), sigma, q, direction)
    high = log_delta(np.full(sigma.shape, epsilon * (1.0 - _ARGUMENT)), sigma, q, direction)
    with np.errstate(invalid="ignore"):
        low, high = low - SLACK * (1.0 - low), np.where(np.isneginf(high), high, high + SLACK * (1.0 - high))
    return low, high


def epsilon_bounds(delta: float, sigma: NDArray, q: NDArray, direction: str) -> tuple[NDArray, NDArray]:
    """lower, upper epsilon of one step at `delta`; arrays of the shape of sigma and q.

    Removal inverts the closed form by `gaussian.epsilon`.  Addition, whose epsilon is at most -log(1 - q), is bisected.
    """
    if direction == "remove":
        # One step is q times the Gaussian's delta: from delta = q on epsilon is 0.  The share may err by 745 units.
        share = delta / q
        inside = share * (1.0 - 2.0**-43) < 1.0
        below = np.where(inside, np.minimum(share * (1.0 + 2.0**-43), 1.0 - 2.0**-53), 0.5)
        above = np.where(inside, np.minimum(share * (1.0 - 2.0**-43), 1.0 - 2.0**-53), 0.5)
        low = np.where(share < 1.0, gdp.epsilon(below, 1.0 / sigma, rounding="down"), 0.0)
        high = np.where(inside, gdp.epsilon(above, 1.0 / sigma), 0.0)
        low, high = _amplified(low, q), _amplified(high, q)
    else:
        goal = float(np.log(delta))
        slack = SLACK * (1.0 - goal)
        low, high = _bisect(goal + slack, sigma, q)[0], _bisect(goal - slack, sigma, q)[1]
    return low * (1.0 - SLACK), high * (1.0 + SLACK)


def lottery_bounds(
    target: float, sigma: NDArray, q: NDArray, share: NDArray, direction: str, *, solve_epsilon: bool
) -> tuple[NDArray, NDArray]:
    """lower, upper epsilon at log delta = `target`, or log delta at epsilon = `target`, of lotteries of one step.

    Parameters
    ----------
    sigma : ndarray, shape (2, lotteries)
        Noise multipliers of the two outcomes, the larger one first; inf costs nothing.
    q, share : ndarray, shape (lotteries,)
        Sample rate, and the probability of the second outcome.  A full batch is no lottery: its precision is the
        outcomes' mean (see `lotteries`).
    """
    costly = np.isfinite(sigma[0])
    with np.errstate(divide="ignore"):
        full = 1.0 / np.sqrt((1.0 - share) / sigma[0] ** 2 + share / sigma[1] ** 2)
    sigma = np.where((q == 1.0) & costly, full, sigma)
    noise = np.where(costly, sigma[0], 1.0)

    def value(epsilon: NDArray) -> NDArray:
        with np.errstate(divide="ignore"):
            first = np.where(costly, np.log1p(-share) + log_delta(epsilon, noise, q, direction), -np.inf)
            return np.logaddexp(first, np.log(share) + log_delta(epsilon, sigma[1], q, direction))

    if not solve_epsilon:
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = [log_delta_bounds(target, s, q, direction) for s in (noise, sigma[1])]
            low, high = (
                np.logaddexp(np.where(costly, np.log1p(-share) + a, -np.inf), np.log(share) + b)
                for a, b in zip(*ends, strict=True)
            )
        return low - SLACK, high + SLACK
    delta = float(np.exp(target))
    bottom = np.where(costly, epsilon_bounds(delta, noise, q, direction)[0], 0.0)
    top = epsilon_bounds(delta, sigma[1], q, direction)[1]
    slack = SLACK * (1.0 - target)
    found = []
    for goal in (target + slack, target - slack):
        low, high = bottom.copy(), top.copy()
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            above = value(middle) > goal
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        found.append((low, high))
    return found[0][0] * (1.0 - SLACK), found[1][1] * (1.0 + SLACK)


def _amplified(t: NDArray, q: NDArray) -> NDArray:
    """log(1 + q (e^t - 1))."""
    with np.errstate(divide="ignore"):
        far = t + np.log(q + (1.0 - q) * np.exp(-t))
    return np.where(t > 600.0, far, np.log1p(q * np.expm1(np.minimum(t, 600.0))))


def _bisect(goal: float, sigma: NDArray, q: NDArray) -> tuple[NDArray, NDArray]:
    """Neighbouring epsilon between which addition's log delta crosses `goal`; both 0 where it starts below."""
    low = np.zeros_like(sigma)
    high = gdp.epsilon(np.exp(min(goal, -(2.0**-50))), 1.0 / sigma) + 1e-9
    with np.errstate(divide="ignore"):
        high = np.minimum(high, -np.log1p(-q))
    high = np.where(log_delta(low, sigma, q, "add") > goal, high, 0.0)
    for _ in range(80):
        middle = 0.5 * (low + high)
        above = log_delta(middle, sigma, q, "add") > goal
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return low, high
