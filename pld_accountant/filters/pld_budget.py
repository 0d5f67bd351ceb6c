"""Whether counts of steps stay within a range-mu budget, and how many more steps to ask about at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..counting.buckets import Buckets
from ..engine.dominating_mu import mu_upper, unsampled_mu
from ..tables.characteristic import SpectralMaker

__all__ = ["RangeBudget", "class_buckets", "plan_steps"]

_CLASS = 2.0 ** (1 / 3)  # ratio of the norms of neighbouring classes
_SMALLEST = 2e-3
_FEW, _MANY = 20, 300  # so many steps are quick to bound


class RangeBudget:
    """A budget of mu over steps in given buckets.

    Parameters
    ----------
    mu, min_delta : float
        Largest mu, and down to which delta the Gaussian's curve must lie above.
    groups : sequence of Buckets
        One after another the columns of the counts.
    """

    def __init__(self, mu: float, min_delta: float, groups: list[Buckets]) -> None:
        self.mu, self.min_delta = mu, min_delta
        sigma = np.concatenate([g.sigma for g in groups])
        rate = np.concatenate([np.full(g.size, g.sample_rate) for g in groups])
        self._sigma, self._full = sigma, bool(np.all(rate == 1.0))
        self._makers = {d: SpectralMaker(sigma, rate, d) for d in ("remove", "add")}
        with np.errstate(over="ignore"):
            charge = np.where(rate == 1.0, sigma**-2.0, rate**2 * np.expm1(sigma**-2.0))
        self.weight = np.minimum(charge / mu**2, 1e6)
        """Share of the budget that a step costs by the central limit theorem: a guess, no bound."""

    def spent(self, counts: NDArray) -> NDArray:
        """Upper bound of everybody's mu; for full-batch steps alone it is exact, whatever min_delta."""
        whole = unsampled_mu(counts, self._sigma)
        if self._full:
            return whole
        some = np.flatnonzero(counts.any(axis=1))
        few = counts[some].sum(axis=1) < _FEW
        repeated = np.where(few[:, None], self.repeated(counts[some]), counts[some])
        upper = np.zeros(some.size)
        for direction, maker in self._makers.items():
            upper = mu_upper(repeated, maker, direction, self.min_delta, floor=upper, patient=False)
        whole[some] = np.minimum(upper, whole[some])
        return whole

    def repeated(self, counts: NDArray) -> NDArray:
        """The counts of whoever has few steps, repeated until they are many: never a smaller mu, and quick to bound."""
        total = np.maximum(counts.sum(axis=1), 1)
        times = np.where(total < _MANY, -(-_MANY // total), 1)
        return counts * times[:, None].astype(counts.dtype)

    def holds(self, counts: NDArray) -> NDArray:
        """Whether everybody's mu is proven to be within the budget: ndarray of bool, shape (people,)."""
        within = unsampled_mu(counts, self._sigma) <= self.mu * (1.0 + 2.0**-40)
        if self._full:
            return within
        left = np.flatnonzero(~within)
        fits = np.ones(left.size, dtype=bool)
        for direction, maker in self._makers.items():
            ask = np.flatnonzero(fits)
            if not ask.size:
                break
            upper = mu_upper(
                counts[left[ask]], maker, direction, self.min_delta,
                floor=np.full(ask.size, self.mu), ceiling=self.mu, patient=False,
            )  # fmt: skip
            fits[ask] = upper <= self.mu
        within[left] = fits
        return within


def class_buckets(group: Buckets) -> NDArray:
    """The buckets at which classes end, ascending, the last one among them: norms in a geometric sequence."""
    levels = _CLASS ** -np.arange(0.0, np.log(1.0 / _SMALLEST) / np.log(_CLASS) + 1.0)
    return np.unique(np.minimum(np.searchsorted(group.edges, levels * (1.0 - 1e-9)), group.size - 1)).astype(np.int16)


def plan_steps(history: NDArray, weight: NDArray, room: NDArray) -> NDArray:
    """So many steps of each class as will come if the past goes on, with two standard deviations of each to spare.

    Parameters
    ----------
    history : ndarray, shape (people, classes)
        Steps so far.
    weight : ndarray, shape (classes,)
        Guessed cost of one.
    room : ndarray, shape (people,)
        What the plan may cost together.

    Returns
    -------
    ndarray of int32, shape (people, classes)
    """
    some = history.astype(np.float64)
    # larger norms than ever before are likely now and then
    some[:, 1:] += 0.5 * (history[:, :-1] > 0)
    a, b = some @ weight, 2.0 * np.sqrt(some) @ weight
    root = 2.0 * np.maximum(room, 0.0) / (b + np.sqrt(b * b + 4.0 * a * np.maximum(room, 0.0)))
    plan = root[:, None] ** 2 * some + 2.0 * root[:, None] * np.sqrt(some)
    return np.minimum(plan, 1e9).astype(np.int32)
