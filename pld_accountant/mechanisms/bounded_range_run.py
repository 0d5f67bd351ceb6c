"""`BoundedRangeRun`: steps of bounded range, each chosen after the outcomes of those before, as one discrete law.

A step of range c has losses in some interval [t - c, t].  Let D_n(x) be the largest delta at epsilon x of n such
steps, where each step may depend on the outcomes of the steps before.  The steps after the first one, whose loss is L,
have delta D_(n-1)(x - L) at most, so that D_n(x) is the largest E[D_(n-1)(x - L)].  With r = e^L, it is the mean of
r D_(n-1)(x - log r) under Q, where r has the mean 1.  Every delta is convex in e^x, so that this function of r is
convex (it is a perspective), and the mean is largest if r is at one of the two ends.  Hence (Dong, Durfee and Rogers
2020, Section 4)

    D_n(x) = max over t in [0, c] of a(t) D_(n-1)(x - t) + b(t) D_(n-1)(x - t + c),
    a(t) = (e^c - e^t) / (e^c - 1),  b(t) = (e^t - 1) / (e^c - 1),  D_0(x) = max(1 - e^x, 0).

An upper bound U_n of D_n is computed at the points j h, h = c / m.  Between two points, U_n is their chord in e^x,
which lies above a convex function.  While t goes from i h to (i + 1) h, both arguments stay between two points, with
chords of the slopes s (below) and s' (above) in e^x.  In terms of e^t, the sum is then its values' chord and, with
beta = e^(x + c) (s' - s) / (e^c - 1), beta times the difference of 1 / e^t and its own chord, at most
beta (e^(-i h / 2) - e^(-(i + 1) h / 2))^2.  The maximum is at most the larger of the values at the two ends, and this.

A function that is convex in e^x, from 1 at e^x = 0 to 0, is the curve of a pair: a chord of slope s contributes to
the Q masses at its ends.  So the composition of this pair with others dominates that of the n steps and the others,
in whatever order they run (concurrent composition: Vadhan and Zhang 2023).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .base import Direction
from .discrete import Discrete, DiscreteLaw

__all__ = ["BoundedRangeRun"]

_WORK = 1 << 12  # steps times points a range
_FEWEST, _MOST = 32, 256  # points a range; the first one limits the steps of a run, too
_LARGEST = 512.0  # loss of a run, for which exp has no overflow
_TINY = 1e-250  # deltas below it may have lost digits to underflow
_SCALE = 2.0**660  # of slopes, which may be as small as 1e-250 exp(-512)
_FLAT = 1e-9  # distance from 1 - e^x, relative, at which it is replaced by a chord


@dataclass(frozen=True)
class BoundedRangeRun(Discrete):
    """Steps of one bounded range that are chosen adaptively; `ExponentialMechanism` makes it.

    Parameters
    ----------
    epsilon : float
        The range of each step.
    length : int
        Number of steps.
    """

    epsilon: float
    length: int
    symmetric = True

    @staticmethod
    def longest(epsilon: float) -> int:
        """The most steps of a run, whose curve takes some 0.05 s."""
        return int(min(_WORK / _FEWEST, _LARGEST / epsilon))

    @property
    def noise_multiplier(self) -> float:
        """1 over the largest loss, by which compositions sort."""
        return 1.0 / (self.epsilon * self.length)

    def law(self, direction: Direction) -> DiscreteLaw:
        """The losses, the same in both directions."""
        return _law(self.epsilon, self.length)


@lru_cache(maxsize=_WORK // _FEWEST)  # the runs of all lengths of one range: 0.1 MB each
def _law(epsilon: float, length: int) -> DiscreteLaw:
    points = min(max(_WORK // length, _FEWEST), _MOST)
    fraction, exponent = math.frexp(epsilon / points)
    # few digits, so that the multiples of h are exact; rounded up
    h = math.ldexp(math.floor(fraction * 2.0**30) + 1.0, exponent - 30)
    curve = _curve(h, points, length)
    top = curve.size // 2
    loss = h * (np.arange(curve.size) - top)
    # chords in place of the ends: where the curve is 1 - e^x but for round-off, and where its digits are lost
    first = int(np.argmax(curve > -np.expm1(loss) * np.where(loss < 0.0, 1.0 + _FLAT, 0.0)))
    last = int(np.flatnonzero(curve > _TINY)[-1])
    kept = np.r_[0, max(first, 1) : last + 1, curve.size - 1]
    ratio, delta = np.exp(loss[kept]), curve[kept]
    slope = _SCALE * np.diff(delta) / (ratio[:-1] * np.expm1(np.diff(loss[kept])))
    slope = np.minimum.accumulate(slope[::-1])[::-1]  # round-off may not end convexity
    masses = np.maximum(np.diff(slope, prepend=-_SCALE, append=0.0), 0.0) * ratio / _SCALE
    some = masses > 0.0
    return DiscreteLaw(loss[kept][some], masses[some], 0.0, False)


def _curve(h: float, points: int, length: int) -> NDArray:
    """U_n at the points -n c, ..., n c."""
    c, top = h * points, length * points
    t = h * np.arange(points + 1)
    one = np.expm1(t[::-1]) * np.exp(t - c) / -np.expm1(-c)
    two = np.exp(t - c) * np.expm1(-t) / np.expm1(-c)
    # a range of points more on both sides, where the curve is 1 - e^x and 0
    now = -np.expm1(np.minimum(h * (np.arange(2 * (top + points) + 1) - top - points), 0.0))
    for n in range(1, length + 1):
        chord = np.diff(now) / np.expm1(h)  # e^x times the slope
        bend = np.zeros(chord.size)
        bend[:-points] = chord[points:] * np.exp(-c) - chord[:-points]
        bend *= math.expm1(0.5 * h) ** 2 / -math.expm1(-c)
        np.maximum(bend, 0.0, out=bend)
        begin, end = points + top - n * points, points + top + n * points
        best, before = np.zeros(end - begin), np.empty(0)
        for i in range(points + 1):
            value = one[i] * now[begin - i : end - i]
            value += two[i] * now[begin - i + points : end - i + points]
            if i:
                np.maximum(before, value, out=before)
                before += bend[begin - i : end - i]
                np.maximum(best, before, out=best)
            before = value
        now = now.copy()
        now[begin:end] = best
    return now[points:-points]
