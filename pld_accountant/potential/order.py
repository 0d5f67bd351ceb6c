"""The tilt theta of the charges, for which full-norm steps get the largest budget; nothing here needs a proof."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .multipliers import Law

__all__ = ["best_theta", "saddle_point"]

_THETAS = np.geomspace(0.02, 400.0, 120)
_TINY = 1e-3  # frequency at which the variance is read off
_FEWEST = 1.5  # steps
_RATIO = 0.85  # of neighbouring thetas
_DECLINES = 2  # after which the search ends


def saddle_point(law: Law, epsilon: float, delta: float) -> tuple[float, float]:
    """The tilt and the number of equal steps for which the saddle-point approximation of delta(epsilon) is `delta`.

    With T K'(theta) = epsilon, delta is about exp(T K - theta epsilon) / (theta (theta + 1) sqrt(2 pi T K'')).
    """
    thetas, counts, logs = [], [], []
    for theta in _THETAS.tolist():
        found = law.steps(np.ones(1)).spectrum(theta, _TINY, 1, np.arange(1), 1, 1e13)
        if found is None or not np.isfinite(found.log_moment[0]):
            break
        k, mean, variance = found.log_moment[0], found.mean[0], -2.0 * found.re[0, 0] / _TINY**2
        steps = epsilon / mean
        if steps < _FEWEST or theta * k > 50.0:
            break
        thetas.append(theta)
        counts.append(steps)
        logs.append(steps * k - theta * epsilon - math.log(theta * (theta + 1) * math.sqrt(2 * math.pi * steps * variance)))
    if not thetas:
        raise ValueError(f"a single step exceeds epsilon = {epsilon!r} at delta = {delta!r}; add noise")
    enough = np.flatnonzero(np.array(logs) <= math.log(delta))
    place = int(enough[0]) if enough.size else int(np.argmin(logs))
    return thetas[place], counts[place]


def best_theta(start: float, budget: Callable[[float], float]) -> float:
    """The tilt with about the largest budget: down from `start` in equal ratios, then the vertex of a parabola."""
    found: dict[int, float] = {}
    declines = 0
    for place in range(-1, 24):
        found[place] = budget(start * _RATIO**place)
        best = max(found, key=lambda p: found[p])
        declines = declines + 1 if found[best] > 0 and place > best else 0
        if declines >= _DECLINES:
            break
    best = max(found, key=lambda p: found[p])
    if not found[best] > 0:
        raise ValueError
    return start * _RATIO ** (best + _vertex(*(found.get(best + i, 0.0) for i in (-1, 0, 1))))


def _vertex(left: float, middle: float, right: float) -> float:
    """Where the parabola through three values at -1, 0, 1 is largest, between -1/2 and 1/2."""
    bend = left - 2.0 * middle + right
    return float(np.clip(0.5 * (left - right) / bend, -0.5, 0.5)) if bend < 0 else 0.0
