"""The tilt theta of the charges, for which full-norm steps get the largest budget; nothing here needs a proof."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .multipliers import Law

__all__ = ["Guess", "best_theta", "saddle_point"]

_THETAS = np.geomspace(0.02, 400.0, 60)
_FINER = 20  # between two of them
_LARGEST = 0.3  # K of one step
_TINY = 1e-3  # frequency at which the variance is read off
_STEP = 0.4  # of neighbouring tilts, times the standard deviation of the tilted loss
_LEAST, _MOST = 0.06, 0.15  # of neighbouring tilts, over the first one
_MOST_TRIED = 12
_GRID = 2**20  # theta is a multiple of 1 / _GRID, so that 1 + theta is exact


class Guess(NamedTuple):
    """A tilt, the number of equal steps that it belongs to, and the tilted standard deviation of their loss."""

    theta: float
    steps: float
    deviation: float


def saddle_point(law: Law, epsilon: float, delta: float) -> Guess:
    """The tilt for which about the most equal steps have delta(epsilon) <= `delta`, and their number.

    T steps have delta(epsilon) of about exp(T K - theta epsilon) / max(theta (theta + 1) sqrt(2 pi T K''), 1).  Where
    that allows no step at any tilt, single large losses decide, and the guess is the largest tilt with a small K.
    """

    def at(theta: float) -> Guess:
        found = law.steps(np.ones(1)).spectrum(theta, _TINY, 1, np.arange(1), 1, 1e13)
        if found is None or not found.log_moment[0] <= _LARGEST:
            return Guess(theta, -1.0, 1.0)
        k, variance = float(found.log_moment[0]), float(-2.0 * found.re[0, 0] / _TINY**2)
        steps = 0.0
        for _ in range(4):
            size = theta * (theta + 1.0) * math.sqrt(2.0 * math.pi * variance * steps)
            steps = max(math.log(delta) + theta * epsilon + math.log(max(size, 1.0)), 0.0) / k
        return Guess(theta, steps, math.sqrt(variance * max(steps, 1.0)))

    tried = [at(theta) for theta in _THETAS.tolist()]
    best = max(range(len(tried)), key=lambda i: (tried[i].steps, tried[i].theta))
    between = np.geomspace(_THETAS[max(best - 1, 0)], _THETAS[min(best + 1, _THETAS.size - 1)], _FINER)
    return max((at(theta) for theta in between.tolist()), key=lambda guess: (guess.steps, guess.theta))


def best_theta(guess: Guess, budget: Callable[[float], float]) -> float | None:
    """The tilt with about the largest budget: uphill from the guess in equal steps, then the vertex of a parabola.

    None if no tilt that was tried has a budget.
    """
    width = guess.theta * min(max(_STEP / (guess.deviation * guess.theta), _LEAST), _MOST)
    found: dict[int, float] = {}

    def at(place: int) -> float:
        if place not in found:
            theta = guess.theta + place * width
            found[place] = budget(theta) if theta > 0 else 0.0
        return found[place]

    best, side = 0, -1
    while len(found) < _MOST_TRIED:
        if at(best + side) > at(best) or at(best) == 0.0:
            best += side
        elif at(best - side) > at(best):
            best, side = best - side, -side
        else:
            break
    if not found[best] > 0:
        return None
    theta = guess.theta + width * (best + _vertex(*(found.get(best + i, 0.0) for i in (-1, 0, 1))))
    return round(theta * _GRID) / _GRID


def _vertex(left: float, middle: float, right: float) -> float:
    """Where the parabola through three values at -1, 0, 1 is largest, between -1/2 and 1/2."""
    bend = left - 2.0 * middle + right
    return float(np.clip(0.5 * (left - right) / bend, -0.5, 0.5)) if bend < 0 else 0.0
