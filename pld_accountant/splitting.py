"""Bounds where no tilt serves: the part with small losses and that with a large one, each with a tilt of its own.

delta(epsilon) is the sum over both parts (`large_losses`).  Where the law is split is chosen person by person, as that
where Chernoff's bounds of the two parts prove most, or a little before: the second part alone is easier there, and the
first still small.  epsilon is found by evaluating both bounds of delta.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .large_losses import LargeMaker, log_expm1
from .lotteries import Counts, Shares
from .parallel import blocks
from .plancherel import solve
from .solution import Solution
from .spectral import SpectralMaker
from .tilts import Limits, seen_by_columns

__all__ = ["solve_split"]

_NEGLIGIBLE = 40.0  # a part that Chernoff's bound proves to be e^-40 of delta is bounded by that
_PROBES = 10
_CLOSE = 0.01  # a place is as good as another if its bounds are as close as this, relatively
_OCTAVES = -6, 16  # that tilts may lie in
_FINE = 8  # tilts per octave at which the places of the split are compared


def solve_split(
    counts: Counts,
    maker: SpectralMaker,
    target: float,
    *,
    solve_epsilon: bool,
    rows: NDArray | None,
    limits: Limits,
    reaches: Sequence[float],
    nearer: int = 0,
    far: float,
    width: float,
) -> Solution:
    """Bounds of epsilon or of log delta for every person under removal.

    Parameters
    ----------
    counts, rows, limits
        As for `plancherel.solve`.
    maker : SpectralMaker
        Of the buckets under removal.
    target : float
        log delta if `solve_epsilon`, else epsilon; the same of everybody.
    reaches : sequence of float
        Where a step's law may be split: with Phi(-reach) of its mass beyond; ascending.
    nearer : int
        How many places before the best one to split.
    far : float
        Where laws end; what is beyond goes to infinity in the upper bounds.
    width : float
        Ends this close to the best ones, relative to epsilon, are good enough.
    """
    solution = Solution.empty(len(counts), solve_epsilon)
    parts = [_Parts.of(maker, reach, far) for reach in reaches]

    def guess(split: _Parts, theta: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        if solve_epsilon:
            return split.epsilon_chernoff(counts, rows, target, theta)
        return split.log_delta_chernoff(counts, rows, target, theta)

    _, _, tilts = guess(parts[len(parts) // 2], 2.0 ** np.arange(*_OCTAVES))
    theta = 2.0 ** np.arange(np.log2(tilts.min()) - 1.0, np.log2(tilts.max()) + 1.0, 1.0 / _FINE)
    guesses = [guess(split, theta)[:2] for split in parts]
    proven = np.array([found for found, _ in guesses])
    solution.estimate[:] = proven.min(axis=0)
    least = target if solve_epsilon else float(proven.min())
    limits = replace(limits, least_log_delta=least - _NEGLIGIBLE)
    for j, who in _places(proven, nearer):
        some = counts.of(who) if isinstance(counts, Shares) else counts[who]

        def at(part: NDArray, x: NDArray, split: _Parts = parts[j], some: Counts = some) -> tuple[NDArray, NDArray]:
            one = some.of(part) if isinstance(some, Shares) else some[part]
            return split.log_delta(one, rows, x, limits)

        if solve_epsilon:
            epsilon, slope = (values[who] for values in guesses[j])
            upper, x, steep = _seek(at, epsilon, slope, target, width, 1.0)
            lower, _, _ = _seek(at, x, steep, target, width, -1.0)
            lower = np.where(np.isnan(lower), 0.0, lower)
        else:
            lower, upper = at(np.arange(who.size), np.full(who.size, target))
        found = np.isfinite(upper)
        with np.errstate(invalid="ignore"):
            middle = np.where(np.isfinite(lower), 0.5 * (lower + upper), upper)
        solution.settle(who[found], lower[found], middle[found], upper[found])
    return solution


def _places(proven: NDArray, nearer: int) -> Iterator[tuple[int, NDArray]]:
    """Who is to be split where: by what is proven at each place, (places, people)."""
    # few places make few tables
    close = proven <= proven.min(axis=0) + _CLOSE * np.abs(proven.min(axis=0))
    common = np.argsort(-np.sum(close, axis=1), kind="stable")
    best = np.maximum(common[np.argmax(close[common], axis=0)] - nearer, 0)
    for j in range(len(proven)):
        who = np.flatnonzero((best == j) & np.isfinite(proven[j]))
        if who.size:
            yield j, who


def _seek(
    at: Callable[[NDArray, NDArray], tuple[NDArray, NDArray]], x: NDArray, slope: NDArray, goal: float, width: float,
    side: float,
) -> tuple[NDArray, NDArray, NDArray]:  # fmt: skip
    """The least epsilon found whose upper bound of log delta is at most `goal` (side 1); or the largest whose lower
    bound is at least that (side -1); NaN: none.  With it where the search ended, and the slopes there."""
    x, slope, found = x.copy(), slope.copy(), np.full(x.size, np.nan)
    open_, before = np.arange(x.size), np.full((2, x.size), np.nan)
    for _ in range(_PROBES):
        if not open_.size:
            break
        value = at(open_, x[open_])[side > 0.0] - goal
        good = side * value <= 0.0
        keep = open_[good]
        found[keep] = np.fmin(side * found[keep], side * x[keep]) * side
        with np.errstate(invalid="ignore", divide="ignore"):
            secant = (before[1, open_] - value) / (x[open_] - before[0, open_])
        slope[open_] = np.where((secant > 0.0) & np.isfinite(secant), secant, slope[open_])
        before[:, open_] = x[open_], value
        room = slope[open_] * width * x[open_]
        near = good & (np.abs(value) <= room)
        usable = np.isfinite(value)
        open_, move = open_[usable & ~near], ((value + 0.3 * side * room) / slope[open_])[usable & ~near]
        x[open_] = np.maximum(x[open_] + np.clip(move, -0.5 * x[open_], 0.5 * x[open_]), 1e-300)
    return found, x, slope


@dataclass(frozen=True)
class _Parts:
    """Steps split at one place."""

    small: SpectralMaker
    large: LargeMaker

    @classmethod
    def of(cls, maker: SpectralMaker, reach: float, far: float) -> _Parts:
        small = maker.variant(reach, lotteries=2 if maker.lotteries else 0, parted=True)
        if far not in small.kept:
            small.kept[far] = LargeMaker(small, far)
        return cls(small, small.kept[far])

    def epsilon_chernoff(
        self, counts: Counts, rows: NDArray | None, log_delta: float, theta: NDArray
    ) -> tuple[NDArray, NDArray, NDArray]:
        """The least epsilon that Chernoff's bounds of both parts prove, inf where they prove none, the slope of -log
        delta there, and both tilts (people, 2)."""
        epsilon, slope = np.empty((2, len(counts)))
        tilts = np.empty((len(counts), 2))
        for block, both in self._exponents(counts, rows, theta):
            low, high = np.zeros(both.shape[1]), np.min((both.max(axis=0) - log_delta + 1.0) / theta, axis=1)
            for _ in range(40):
                middle = 0.5 * (low + high)
                parts = np.min(both - theta * middle[:, None], axis=2)
                above = np.logaddexp(*parts) > log_delta
                low, high = np.where(above, middle, low), np.where(above, high, middle)
            epsilon[block] = np.where(high > 1e-12, high, np.inf)
            tilts[block], slope[block] = self._chosen(both - theta * high[:, None], theta, log_delta)
        return epsilon, slope, tilts

    def log_delta_chernoff(
        self, counts: Counts, rows: NDArray | None, epsilon: float, theta: NDArray
    ) -> tuple[NDArray, NDArray, NDArray]:
        """The least log delta that they prove, the slope, and both tilts."""
        log_delta, slope = np.empty((2, len(counts)))
        tilts = np.empty((len(counts), 2))
        for block, both in self._exponents(counts, rows, theta):
            costs = both - theta * epsilon
            log_delta[block] = np.logaddexp(*costs.min(axis=2))
            tilts[block], slope[block] = self._chosen(costs, theta, log_delta[block])
        return log_delta, slope, tilts

    @staticmethod
    def _chosen(costs: NDArray, theta: NDArray, log_delta: NDArray | float) -> tuple[NDArray, NDArray]:
        share = np.exp(np.minimum(costs.min(axis=2) - log_delta, 0.0))
        tilts = theta[costs.argmin(axis=2)].T
        return tilts, np.sum(share * tilts.T, axis=0) / np.sum(share, axis=0)

    def _exponents(self, counts: Counts, rows: NDArray | None, theta: NDArray) -> Iterator[tuple[slice, NDArray]]:
        """Block by block, log delta <= that - theta epsilon of the two parts: (2, people, tilts)."""
        step = seen_by_columns(self.large.log_moments(theta), rows)
        log_c = -np.log1p(theta) - theta * np.log1p(1.0 / theta)
        for block in blocks(len(counts)):
            k, large = np.split(counts[block].astype(np.float64, copy=False) @ step, 2, axis=1)
            yield block, np.stack([k, k + log_expm1(large)]) + log_c

    def log_delta(
        self, counts: Counts, rows: NDArray | None, epsilon: NDArray, limits: Limits
    ) -> tuple[NDArray, NDArray]:
        """Bounds of log delta at everybody's epsilon."""
        ends = []
        for maker in (self.small, self.large):
            found = solve(counts, maker, epsilon, solve_epsilon=False, rows=rows, limits=limits)
            ends.append((found.lower, np.fmin(found.upper, found.renyi)))
        (lower, upper), (more, most) = ends
        beyond = seen_by_columns(self.large.beyond[:, None], rows)
        infinite = np.concatenate([counts[block] @ beyond for block in blocks(len(counts))])[:, 0]
        with np.errstate(divide="ignore"):
            return np.logaddexp(lower, more), np.logaddexp(np.logaddexp(upper, most), np.log(infinite)) + 1e-12
