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
from .discrete_sum import DiscreteSum, FiniteDelta

__all__ = ["AtomSum"]

_SAME = 2.0**-46  # relative to the largest sum of |loss|, and at least 2^-46
_MOST_PAIRS = 1 << 17  # more take longer than transforms do
_LOST = 1e-280  # of masses that underflow


class AtomSum(DiscreteSum):
    """The losses of a composition as atoms; `of` returns None where they are too many.

    Parameters
    ----------
    laws : sequence of DiscreteLaw
    counts : sequence of int
    losses, masses : ndarray, shape (atoms,)
        Sums of finite losses, ascending, and their P masses.
    shift : float
        By how much a sum may be wrong.
    error : float
        Relative error of a mass.
    """

    def __init__(
        self,
        laws: Sequence[DiscreteLaw],
        counts: Sequence[int],
        losses: NDArray,
        masses: NDArray,
        shift: float,
        error: float,
    ) -> None:
        super().__init__(laws, counts)
        self._losses, self._masses = losses, masses
        self._shift, self._factor = shift, math.exp(error)

    @staticmethod
    def of(laws: Sequence[DiscreteLaw], counts: Sequence[int]) -> AtomSum | None:
        """The sum, unless a product of two partial sums has more than 2^17 pairs."""
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
        of_losses = sum(n * law.largest_loss_error for law, n in zip(laws, counts, strict=True))
        shift = additions * (same + 2.0**-51 * size) + of_losses
        error = 2.0 * MASS_SLACK * steps + additions * (min(pairs, _MOST_PAIRS) + 4.0) * 2.0**-53
        return AtomSum(laws, counts, *total, shift, error)

    @property
    def largest(self) -> float:
        """See `DiscreteSum`."""
        return float(self._losses[-1]) + 2.0 * self._shift

    def _near_epsilon(self, epsilon: float) -> FiniteDelta:
        return self._finite

    def _near_delta(self, delta: float) -> FiniteDelta:
        return self._finite

    def _finite(self, epsilon: float, sign: float) -> float:
        past = self._losses - (epsilon - sign * self._shift)
        first = int(np.searchsorted(past, 0.0, side="right"))
        value = float(-np.expm1(-past[first:]) @ self._masses[first:])
        # each term is positive and good to a few units, and so is each addition
        value *= (self._factor * (1.0 + (past.size + 16.0) * 2.0**-52)) ** sign
        return value + _LOST if sign > 0.0 and first < past.size else value


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
