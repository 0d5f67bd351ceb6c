"""The test whether counts of steps stay within a budget of mu, and the plans of further steps to test with them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..counting.buckets import Buckets
from ..counting.counts import WholeCounts
from ..engine.dominating_mu import touching, undiminished_mu
from ..mechanisms.base import directions
from ..mechanisms.sampled_gaussian import SampledGaussianSteps
from ..tables.makers import TableMakers

__all__ = ["PLDBudget", "class_buckets", "plan_steps"]

_CLASS = 2.0 ** (1 / 3)  # ratio of the norms of neighbouring classes
_SMALLEST = 2e-3  # norm, relative to the clipping norm, below which buckets share one class
_FEW, _MANY = 20, 300  # fewer steps than _FEW are slow to bound and are repeated up to _MANY


class PLDBudget:
    """A budget of mu over steps in given buckets.

    Parameters
    ----------
    mu, min_delta : float
        The budget, and the least delta at which the Gaussian's curve must lie above.
    groups : sequence of Buckets
        The columns of the counts are the buckets of these groups, in order.
    """

    def __init__(self, mu: float, min_delta: float, groups: list[Buckets]) -> None:
        self.mu, self.min_delta = mu, min_delta
        sigma = np.concatenate([g.sigma for g in groups])
        rate = np.concatenate([np.full(g.size, g.sample_rate) for g in groups])
        self._full = bool(np.all(rate == 1.0))
        self._makers = [TableMakers(SampledGaussianSteps(sigma, rate, d)) for d in directions("both")]
        with np.errstate(over="ignore"):
            charge = np.where(rate == 1.0, sigma**-2.0, rate**2 * np.expm1(sigma**-2.0))
        self.weight = np.minimum(charge / mu**2, 1e6)
        """Guessed charge of a step in each bucket, a share of the budget, by the central limit theorem; no bound."""

    def spent(self, counts: NDArray) -> NDArray:
        """Upper bound of each person's mu: (people,); exact, for every min_delta, if all steps are full-batch."""
        whole = undiminished_mu(WholeCounts(counts), self._makers[0].steps)
        if self._full:
            return whole
        some = np.flatnonzero(counts.any(axis=1))
        few = counts[some].sum(axis=1) < _FEW
        repeated = WholeCounts(np.where(few[:, None], self.repeated(counts[some]), counts[some]))
        upper = np.zeros(some.size)
        for makers in self._makers:
            upper = touching(repeated, makers, self.min_delta, floor=upper, patient=False)[0]
        whole[some] = np.minimum(upper, whole[some])
        return whole

    def repeated(self, counts: NDArray) -> NDArray:
        """Counts in which a person with few steps has a multiple of them: mu is not smaller, and quick to bound."""
        total = np.maximum(counts.sum(axis=1), 1)
        times = np.where(total < _MANY, -(-_MANY // total), 1)
        return counts * times[:, None].astype(counts.dtype)

    def holds(self, counts: NDArray) -> NDArray:
        """Whether each person's mu is proven to be at most the budget: (people,) bool."""
        within = undiminished_mu(WholeCounts(counts), self._makers[0].steps) <= self.mu * (1.0 + 2.0**-40)
        if self._full:
            return within
        left = np.flatnonzero(~within)
        fits = np.ones(left.size, dtype=bool)
        for makers in self._makers:
            open_ = np.flatnonzero(fits)
            if not open_.size:
                break
            some, floor = WholeCounts(counts[left[open_]]), np.full(open_.size, self.mu)
            upper = touching(some, makers, self.min_delta, floor=floor, ceiling=self.mu, patient=False)[0]
            fits[open_] = upper <= self.mu
        within[left] = fits
        return within


def class_buckets(group: Buckets) -> NDArray:
    """The last bucket of each class, ascending: norms in a geometric sequence, with the last bucket of the group."""
    levels = _CLASS ** -np.arange(0.0, np.log(1.0 / _SMALLEST) / np.log(_CLASS) + 1.0)
    return np.unique(np.minimum(np.searchsorted(group.edges, levels * (1.0 - 1e-9)), group.size - 1)).astype(np.int16)


def plan_steps(history: NDArray, weight: NDArray, room: NDArray) -> NDArray:
    """A plan of further steps: the expected number of each class if the past continues, plus two standard deviations.

    Parameters
    ----------
    history : ndarray, shape (people, classes)
        Past steps.
    weight : ndarray, shape (classes,)
        Guessed charge of one step.
    room : ndarray, shape (people,)
        Guessed charge of the whole plan, at most.

    Returns
    -------
    ndarray of int32, shape (people, classes)
    """
    some = history.astype(np.float64)
    # a norm of the class above the largest so far occurs now and then
    some[:, 1:] += 0.5 * (history[:, :-1] > 0)
    a, b = some @ weight, 2.0 * np.sqrt(some) @ weight
    root = 2.0 * np.maximum(room, 0.0) / (b + np.sqrt(b * b + 4.0 * a * np.maximum(room, 0.0)))
    plan = root[:, None] ** 2 * some + 2.0 * root[:, None] * np.sqrt(some)
    return np.minimum(plan, 1e9).astype(np.int32)
