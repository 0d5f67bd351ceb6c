"""`DiscreteSum`: bounds of delta and epsilon for compositions of discrete losses, a part of which may be infinite."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import deadline
from ..mechanisms.discrete import MASS_SLACK, DiscreteLaw

__all__ = ["DiscreteSum", "FiniteDelta", "infinite_mass"]

_STEPS = 200
_CLOSE = 1e-14  # relative, of the ends of a root
_LEAST = 1e-280  # delta of the finite losses near which bounds of the largest loss are tight
_UNDERFLOW = 1e-110  # an infinite mass below it may be that of finite losses whose probabilities underflowed

FiniteDelta = Callable[[float, float], float]
"""The finite losses' part of delta at an epsilon: a lower bound for the sign -1, an upper bound for the sign 1."""


def infinite_mass(laws: Sequence[DiscreteLaw], counts: Any) -> tuple[Any, Any]:
    """Bounds of the chance that some loss is infinite.

    The lower one is 0 below 1e-110: such masses may be those of finite losses, as in `statistics.DiscreteGaussian`.

    Parameters
    ----------
    laws : sequence of DiscreteLaw
    counts : array_like of int, shape (laws,) or (rows, laws)
        How often each step runs.

    Returns
    -------
    float or ndarray, shape (rows,), each
    """
    number = np.asarray(counts)
    ends = np.array([law.infinite_ends for law in laws]).reshape(len(laws), 2)
    number, ends = number[..., ends[:, 1] > 0.0], ends[ends[:, 1] > 0.0]
    once, found = number.sum(axis=-1) == 1, []
    for end, room in zip(ends.T, (1.0 - MASS_SLACK, 1.0 + MASS_SLACK), strict=True):
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.where(number > 0, number * np.log1p(-end), 0.0)
        found.append(np.where(once, number @ end, -np.expm1(logs.sum(axis=-1)) * room)[()])
    return np.where(found[0] > _UNDERFLOW, found[0], 0.0)[()], np.minimum(found[1], 1.0)


class DiscreteSum(ABC):
    """The sum of steps with discrete losses.

    Parameters
    ----------
    laws : sequence of DiscreteLaw
    counts : sequence of int
    """

    def __init__(self, laws: Sequence[DiscreteLaw], counts: Sequence[int]) -> None:
        self._infinite = infinite_mass(laws, counts)

    @property
    @abstractmethod
    def largest(self) -> float:
        """The largest finite loss, rounded up."""

    @abstractmethod
    def _near_epsilon(self, epsilon: float) -> FiniteDelta:
        """Bounds that are tight near an epsilon, and hold everywhere."""

    @abstractmethod
    def _near_delta(self, delta: float) -> FiniteDelta:
        """Bounds that are tight near the epsilon of a delta, and hold everywhere."""

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Lower and upper delta at an epsilon, whose infinite mass is included."""
        low = high = 0.0
        if epsilon < self.largest:
            finite = self._near_epsilon(epsilon)
            low, high = finite(epsilon, -1.0), finite(epsilon, 1.0)
        low, high = _rounded(low, self._infinite[0], -math.inf), _rounded(high, self._infinite[1], math.inf)
        return min(low, 1.0), min(high, 1.0)

    def deltas(self, epsilon: NDArray) -> NDArray:
        """`delta` at several epsilons, (points, 2)."""
        found = []
        for e in epsilon.tolist():
            deadline.check()
            found.append(self.delta(e))
        return np.array(found)

    def epsilon(self, delta: float) -> tuple[float, float]:
        """Lower and upper epsilon at a delta in (0, 1).

        Both are inf if the infinite mass alone exceeds delta; 0 and inf if it may.
        """
        below, above = delta - self._infinite[1], delta - self._infinite[0]
        if above < 0.0:
            return np.inf, np.inf
        if below < 0.0:
            return 0.0, np.inf
        finite, top = self._near_delta(max(below, _LEAST)), max(self.largest, 0.0)
        if finite(0.0, 1.0) <= below:
            return 0.0, 0.0
        upper = _root(lambda epsilon: finite(epsilon, 1.0), below, 0.0, top)[1] if below > 0.0 else top
        # lower bounds are tight near their own epsilon only: search down from the upper one
        gap = 1e-13 * (1.0 + top)
        while gap < upper:
            if finite(upper - gap, -1.0) > above:
                if above == 0.0:
                    return upper - gap, upper
                return _root(lambda epsilon: finite(epsilon, -1.0), above, upper - gap, upper)[0], upper
            gap *= 4.0
        return 0.0, upper


def _rounded(one: float, two: float, towards: float) -> float:
    """The sum of two numbers of at least 0, rounded outwards if neither is 0; at least 0."""
    return max(math.nextafter(one + two, towards), 0.0) if one > 0.0 and two > 0.0 else one + two


def _root(value: Callable[[float], float], goal: float, low: float, high: float) -> tuple[float, float]:
    """Ends of a short interval: `value`, which falls, exceeds the goal at the low end and not at the high one.

    Regula falsi in the logarithm, which is about linear.  Where one end stays, its weight falls by the other's progress
    (Anderson and Bjorck 1973); where three steps do not halve the interval, the fourth does.
    """
    above, below, last, length, least = _log_ratio(value(low), goal), -math.inf, 0, math.inf, 1e-3 * high
    for k in range(_STEPS):
        middle = 0.5 * (low + high)
        close = _CLOSE * (high + least)
        if not low < middle < high or high - low <= close:
            break
        slow = k % 3 == 0 and high - low > 0.5 * length
        length = high - low if k % 3 == 0 else length
        if not slow and math.isfinite(below) and math.isfinite(above) and above > below:
            nearest = low + (high - low) * above / (above - below)
            middle = min(max(nearest, low + 0.3 * close), high - 0.3 * close)
        found = value(middle)
        exceeds, found = found > goal, _log_ratio(found, goal)
        if exceeds:
            below *= _weight(found, above) if last > 0 else 1.0
            low, above, last = middle, found, 1
        else:
            above *= _weight(found, below) if last < 0 else 1.0
            high, below, last = middle, found, -1
    return low, high


def _weight(new: float, old: float) -> float:
    return 1.0 - new / old if 0.0 < abs(new) < abs(old) else 0.5


def _log_ratio(value: float, goal: float) -> float:
    return math.log(value / goal) if value > 0.0 and value / goal > 0.0 else -math.inf
