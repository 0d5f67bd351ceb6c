"""`DiscreteSum`: bounds of delta and epsilon for compositions of discrete losses, a part of which may be infinite."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np

from ..mechanisms.discrete import MASS_SLACK, DiscreteLaw

__all__ = ["DiscreteSum", "FiniteDelta", "infinite_mass"]

_HALVINGS = 100
_UNDERFLOW = 1e-110  # an infinite mass below it may be that of finite losses whose probabilities underflowed

FiniteDelta = Callable[[float, float], float]
"""The finite losses' part of delta at an epsilon: a lower bound for the sign -1, an upper bound for the sign 1."""


def infinite_mass(log_finite: float) -> tuple[float, float]:
    """Bounds of the chance that some loss is infinite, from the log of the chance that none is.

    The lower one is 0 below 1e-110: such masses may be those of finite losses, as in `statistics.DiscreteGaussian`.
    """
    infinite = -math.expm1(log_finite)
    return infinite * (1.0 - MASS_SLACK) if infinite > _UNDERFLOW else 0.0, infinite * (1.0 + MASS_SLACK)


class DiscreteSum(ABC):
    """The sum of steps with discrete losses.

    Parameters
    ----------
    laws : sequence of DiscreteLaw
    counts : sequence of int
    """

    def __init__(self, laws: Sequence[DiscreteLaw], counts: Sequence[int]) -> None:
        logs = [math.log1p(-law.infinite) if law.infinite < 1.0 else -np.inf for law in laws]
        self._infinite = infinite_mass(sum(n * log for n, log in zip(counts, logs, strict=True)))

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
        return min(low + self._infinite[0], 1.0), min(high + self._infinite[1], 1.0)

    def epsilon(self, delta: float) -> tuple[float, float]:
        """Lower and upper epsilon at a delta in (0, 1).

        Both are inf if the infinite mass alone exceeds delta; 0 and inf if it may.
        """
        below, above = delta - self._infinite[1], delta - self._infinite[0]
        if above <= 0.0:
            return np.inf, np.inf
        if below <= 0.0:
            return 0.0, np.inf
        finite, top = self._near_delta(below), max(self.largest, 0.0)
        if finite(0.0, 1.0) <= below:
            return 0.0, 0.0
        upper = _bisect(lambda epsilon: finite(epsilon, 1.0) > below, 0.0, top)[1]
        # lower bounds are tight near their own epsilon only: search down from the upper one
        gap = 1e-13 * (1.0 + top)
        while gap < upper:
            if finite(upper - gap, -1.0) > above:
                return _bisect(lambda epsilon: finite(epsilon, -1.0) > above, upper - gap, upper)[0], upper
            gap *= 4.0
        return 0.0, upper


def _bisect(exceeds: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """The ends of an interval after halvings; `exceeds` holds at the low end and fails at the high one."""
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return low, high
