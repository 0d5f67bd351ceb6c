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
_ROUNDS = 30
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
    target = [float(np.log(min_delta))]
    far = people_bounds(counts, maker, target, direction, solve_epsilon=True, rows=rows)[0].upper
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
    """A mu that the curve surely needs: from the points where it is surely at least min_delta, by Newton from below."""
    log_delta = np.where(log_delta >= np.log(min_delta), log_delta, -np.inf)
    mu = _first_guess(epsilon, log_delta)
    for _ in range(_ROUNDS):
        move = _missing(mu, epsilon, log_delta).max(axis=1, initial=-np.inf)
        mu = np.maximum(mu + np.where(np.isfinite(move), move, 0.0), 1e-12)
        if np.all(np.abs(move) <= 1e-9 * mu):
            break
    # what was reached is a lower bound only where some point is not yet above its delta
    needed = np.any(gaussian.log_delta(epsilon, (mu * (1.0 - 1e-7))[:, None]) < log_delta - 1e-12, axis=1)
    return np.where(needed, mu * (1.0 - 1e-7), 0.0)


def bisect_mu(epsilon: NDArray, log_delta: NDArray) -> NDArray:
    """The smallest mu whose Gaussian curve lies above the chords through the given points.

    Parameters
    ----------
    epsilon : ndarray, shape (people, points)
        Ascending.
    log_delta : ndarray, shape (people, points)
        Upper bounds of log delta at these epsilons.

    Returns
    -------
    ndarray, shape (people,)
        Rounded up, within a relative 1e-6 or so; inf where none was found.

    Notes
    -----
    A bracket is found by Newton's method on the worst point and doubled until it holds, then bisected.
    """
    low = _first_guess(epsilon, log_delta)
    live = np.arange(len(low))
    for _ in range(_ROUNDS):
        move = _missing(low[live], epsilon[live], log_delta[live]).max(axis=1)
        low[live] = np.maximum(low[live] + move, 1e-12)
        live = live[np.abs(move) > 1e-7 * low[live]]
        if not live.size:
            break
    low *= 1.0 - 1e-6
    high = low * (1.0 + 3e-6)
    live = np.arange(len(low))
    for exponent in range(20):
        live = live[~_dominates(high[live], epsilon[live], log_delta[live])]
        if not live.size:
            break
        low[live] = high[live]
        high[live] *= 1.0 + 1e-5 * 2.0**exponent
    lost = np.zeros(len(low), dtype=bool)
    lost[live] = True
    for _ in range(6):
        middle = 0.5 * (low + high)
        short = ~_dominates(middle, epsilon, log_delta)
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return np.where(lost, np.inf, high)


def _first_guess(epsilon: NDArray, log_delta: NDArray) -> NDArray:
    """From delta(0) = 2 Phi(mu / 2) - 1."""
    delta = np.exp(np.minimum(np.max(log_delta, axis=1), np.log(0.999)))
    return np.maximum(2.0 * special.ndtri(0.5 + 0.5 * delta), 1e-9)


def _missing(mu: NDArray, epsilon: NDArray, log_delta: NDArray) -> NDArray:
    """Newton's step in mu at each point, from log delta and d delta / d mu = phi(epsilon / mu - mu / 2)."""
    m = mu[:, None]
    log_gauss = gaussian.log_delta(epsilon, m)
    log_slope = -0.5 * (epsilon / m - 0.5 * m) ** 2 - 0.5 * np.log(2.0 * np.pi) - log_gauss
    with np.errstate(over="ignore", invalid="ignore"):
        step = (log_delta - log_gauss) * np.exp(-log_slope)
    return np.minimum(np.where(np.isnan(step), -np.inf, step), m)


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
