"""Compositions of few losses that share no lattice: every distinct sum of losses, with its mass.

The sums of n steps of k losses are at most binomial(n + k - 1, k - 1) numbers.  Sums closer than `_SAME` are one atom,
whose mass is added up; each merge moves a loss by that much at most.  All terms are positive, so that a delta of 1e-100
is as accurate as 1e-5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..mechanisms.discrete import MASS_SLACK, DiscreteLaw

__all__ = ["AtomSum"]

_SAME = 2.0**-46  # relative to the largest sum of |loss|, and at least 2^-46
_MOST_PAIRS = 1 << 20
_HALVINGS = 100
_LOST = 1e-280  # of masses that underflow


class AtomSum:
    """The losses of a composition as atoms; `of` returns None where they are too many.

    Parameters
    ----------
    losses, masses : ndarray, shape (atoms,)
        Sums of finite losses, ascending, and their P masses.
    shift : float
        By how much a sum may be wrong.
    error : float
        Relative error of a mass.
    infinite : float
        Mass at infinity.
    """

    def __init__(self, losses: NDArray, masses: NDArray, shift: float, error: float, infinite: float) -> None:
        self._losses, self._masses = losses, masses
        self._shift, self._factor, self.infinite = shift, math.exp(error), infinite

    @staticmethod
    def of(laws: Sequence[DiscreteLaw], counts: Sequence[int]) -> AtomSum | None:
        """The sum, unless a product of two partial sums has more than 2^20 pairs."""
        if any(not law.losses.size for law in laws):
            return None
        steps = sum(counts)
        size = sum(n * float(np.abs(law.losses).max()) for law, n in zip(laws, counts, strict=True))
        same = _SAME * max(size, 1.0)
        total: tuple[NDArray, NDArray] | None = (np.zeros(1), np.ones(1))
        additions, pairs = 0, 1
        for law, count in zip(laws, counts, strict=True):
            power: tuple[NDArray, NDArray] | None = (law.losses, law.masses)
            n = count
            while n:
                assert total is not None
                assert power is not None
                pairs = max(pairs, power[0].size * max(power[0].size, total[0].size))
                if n & 1:
                    total, additions = _product(total, power, same), additions + count
                n >>= 1
                if n:
                    power, additions = _product(power, power, same), additions + count
                if total is None or power is None:
                    return None
        assert total is not None
        shift = additions * (same + 2.0**-51 * size) + 2.0 * MASS_SLACK * steps
        error = 2.0 * MASS_SLACK * steps + additions * (min(pairs, _MOST_PAIRS) + 4.0) * 2.0**-53
        logs = [math.log1p(-law.infinite) if law.infinite < 1.0 else -np.inf for law in laws]
        infinite = -math.expm1(sum(n * log for n, log in zip(counts, logs, strict=True)))
        return AtomSum(*total, shift, error, infinite)

    def _finite(self, epsilon: float, sign: float) -> float:
        past = self._losses - (epsilon - sign * self._shift)
        first = int(np.searchsorted(past, 0.0, side="right"))
        value = float(-np.expm1(-past[first:]) @ self._masses[first:])
        # each term is positive and good to a few units, and so is each addition
        value *= (self._factor * (1.0 + (past.size + 16.0) * 2.0**-52)) ** sign
        return value + _LOST if sign > 0.0 and first < past.size else value

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Lower and upper delta at an epsilon, whose infinite mass is included."""
        low, high = self._finite(epsilon, -1.0), self._finite(epsilon, 1.0)
        return min(low + self.infinite * (1.0 - 1e-13), 1.0), min(high + self.infinite * (1.0 + 1e-13), 1.0)

    def epsilon(self, delta: float) -> tuple[float, float]:
        """Lower and upper epsilon at a delta in (0, 1); inf if the infinite mass alone exceeds it."""
        below, above = delta - self.infinite * (1.0 + 1e-13), delta - self.infinite * (1.0 - 1e-13)
        if above < 0.0 or (above == 0.0 and self.infinite > 0.0):
            return np.inf, np.inf
        upper = np.inf if below <= 0.0 else self._root(below, 1.0)
        return self._root(above, -1.0), upper

    def _root(self, goal: float, sign: float) -> float:
        low, high = 0.0, max(float(self._losses[-1]) + 2.0 * self._shift, 0.0)
        if self._finite(0.0, sign) <= goal:
            return 0.0
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            if not low < middle < high:
                break
            low, high = (middle, high) if self._finite(middle, sign) > goal else (low, middle)
        return low if sign < 0.0 else high


def _product(
    one: tuple[NDArray, NDArray] | None, two: tuple[NDArray, NDArray] | None, same: float
) -> tuple[NDArray, NDArray] | None:
    """Sums of losses and products of masses; sums within `same` of the first of their group are merged into it."""
    if one is None or two is None or one[0].size * two[0].size > _MOST_PAIRS:
        return None
    losses = np.add.outer(one[0], two[0]).ravel()
    masses = np.multiply.outer(one[1], two[1]).ravel()
    order = np.argsort(losses)
    losses, masses = losses[order], masses[order]
    # groups on cells of width `same`: members are at most that far apart
    cell = np.floor(losses / same)
    start = np.flatnonzero(np.concatenate([[True], np.diff(cell) > 0.0]))
    return losses[start], np.add.reduceat(masses, start)
