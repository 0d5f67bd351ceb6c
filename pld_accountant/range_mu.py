"""The smallest mu whose Gaussian curve lies above a privacy loss curve wherever that is at least min_delta.

Descriptive, not Gaussian DP: a subsampled Gaussian is dominated by no small mu at every epsilon.  What follows for a
sequence fixed beforehand is (epsilon, delta_Gauss(epsilon; mu) + min_delta)-DP for every epsilon >= 0.

Between the points at which the curve is bounded, delta is convex in e^epsilon and lies below its chord; the Gaussian's
curve is convex too, so it lies above the chord if it does so where its slope equals the chord's.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from . import gaussian, plancherel
from .solver import people_bounds
from .spectral import SpectralMaker

__all__ = ["bisect_mu", "mu_bounds"]

_POINTS = 97
_ROUNDS = 60
_BLOCK = 4096


def mu_bounds(
    counts: NDArray, maker: SpectralMaker, direction: str, min_delta: float, rows: NDArray | None = None
) -> tuple[NDArray, NDArray]:
    """Lower and upper bound of mu for every person, in one direction.

    Returns
    -------
    lower, upper : ndarray, shape (people,)
        (0, inf) where the curve could not be bounded; (0, 0) where delta(0) is at most min_delta.
    """
    people = len(counts)
    lower, upper = np.zeros(people), np.zeros(people)
    far = people_bounds(counts, maker, float(np.log(min_delta)), direction, solve_epsilon=True, rows=rows).upper
    upper[np.isinf(far)] = np.inf
    todo = np.flatnonzero((far > 0.0) & np.isfinite(far))
    share = np.linspace(0.0, 1.0, _POINTS)
    for start in range(0, todo.size, _BLOCK):
        who = todo[start : start + _BLOCK]
        epsilon = far[who, None] * share
        curve = plancherel.curves(counts[who], maker, epsilon, rows=rows)
        lower[who] = _least_mu(epsilon, curve[:, :, 0], min_delta)
        upper[who] = bisect_mu(epsilon, curve[:, :, 1])
    return lower, upper


def _least_mu(epsilon: NDArray, log_delta: NDArray, min_delta: float) -> NDArray:
    """A mu that the curve surely needs: the largest over the points where it is surely at least min_delta."""
    log_delta = np.where(log_delta >= np.log(min_delta), log_delta, -np.inf)
    low, high = np.zeros(len(epsilon)), np.full(len(epsilon), 64.0)
    for _ in range(_ROUNDS):
        middle = 0.5 * (low + high)
        short = np.any(gaussian.log_delta(epsilon, middle[:, None]) < log_delta, axis=1)
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return low * (1.0 - 1e-10)


def bisect_mu(epsilon: NDArray, log_delta: NDArray) -> NDArray:
    """The smallest mu, by bisection, whose Gaussian curve lies above the chords through the given points.

    Parameters
    ----------
    epsilon : ndarray, shape (people, points)
        Ascending.
    log_delta : ndarray, shape (people, points)
        Upper bounds of log delta at these epsilons.

    Returns
    -------
    ndarray, shape (people,)
        Rounded up; inf where no mu up to 2^20 serves.
    """
    low, high = np.zeros(len(epsilon)), np.full(len(epsilon), 1.0)
    for _ in range(21):
        short = ~_dominates(high, epsilon, log_delta)
        if not short.any():
            break
        low, high = np.where(short, high, low), np.where(short, 2.0 * high, high)
    lost = ~_dominates(high, epsilon, log_delta)
    for _ in range(_ROUNDS):
        middle = 0.5 * (low + high)
        short = ~_dominates(middle, epsilon, log_delta)
        low, high = np.where(short, middle, low), np.where(short, high, middle)
        if np.all(high - low <= 1e-9 * high):
            break
    return np.where(lost, np.inf, high)


def _dominates(mu: NDArray, epsilon: NDArray, log_delta: NDArray) -> NDArray:
    """Whether the Gaussian curve of each mu lies above each person's chords."""
    m = mu[:, None]
    delta = np.exp(log_delta)
    ok = np.all(gaussian.log_delta(epsilon, m) >= log_delta + 1e-12, axis=1)
    left, right = epsilon[:, :-1], epsilon[:, 1:]
    gap = np.exp(left) * np.expm1(right - left)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        slope = (delta[:, 1:] - delta[:, :-1]) / gap  # d delta / d e^epsilon, negative
        # the Gaussian's slope is -Phi(-epsilon / mu - mu / 2)
        touch = -m * (special.ndtri(np.clip(-slope, 0.0, 1.0)) + 0.5 * m)
        touch = np.clip(np.where(np.isnan(touch), left, touch), left, right)
        t = np.expm1(touch - left) / np.expm1(right - left)
    chord = (1.0 - t) * delta[:, :-1] + t * delta[:, 1:]
    with np.errstate(divide="ignore"):
        ok &= np.all(gaussian.log_delta(touch, m) >= np.log(chord) + 1e-12, axis=1)
    return ok
