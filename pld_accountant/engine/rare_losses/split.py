"""Bounds where no tilt serves: the part with small losses and that with a large one, each with a tilt of its own.

delta(epsilon) is the sum over both parts (`large_losses`).  Where the law is split is chosen person by person.  Either
as that where Chernoff's bounds of the two parts prove most, or a little before: the second part alone is easier there,
and the first still small.  Or so that the first part is nothing: after few large losses, which leave a gap between
nothing and themselves, the second part, softly split off, is then all there is, and smooth.  epsilon is found by
evaluating both bounds of delta.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...counting.interpolation import Counts, Shares
from ...tables.characteristic import SpectralMaker
from ...tables.table import log_expm1
from ...threads import blocks
from ..plancherel import solve
from ..tilting import Limits, seen_by_columns
from ..working import Solution
from .tables import LargeMaker

__all__ = ["solve_split"]

_NEGLIGIBLE = 40.0  # a part that Chernoff's bound proves to be e^-40 of delta is bounded by that
_NOTHING = 45.0  # that is so at epsilons a little lower than Chernoff's bound proves, too
_PROBES = 10
_CLOSE = 0.01  # a place is as good as another if its bounds are as close as this, relatively
_OCTAVES = -6, 16  # that tilts may lie in
_FINE = 1.0, 8  # octaves more, and tilts an octave, at which the places of the split are compared
_COARSE = 6.0, 2  # the same where a part has to be nothing: many steep tilts tell that


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
    alone: bool = False,
    blur: float = 0.0,
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
        Where a step's law may be split: with Phi(-reach) of its mass beyond; ascending.  Those less than 1 before the
        far end are left out; not all of them may be.
    nearer : int
        How many places before the best one to split.
    alone : bool
        Split where the first part is nothing, or not at all.
    blur : float
        How softly to split, in standard deviations of the noise.
    far : float
        Where laws end; what is beyond goes to infinity in the upper bounds.
    width : float
        Ends this close to the best ones, relative to epsilon, are good enough.
    """
    solution = Solution.empty(len(counts), solve_epsilon)
    parts = [_Parts.of(maker, reach, far, blur) for reach in reaches if reach <= far - 1.0]

    def guess(split: _Parts, theta: NDArray) -> _Guess:
        if solve_epsilon:
            return split.epsilon_chernoff(counts, rows, target, theta)
        return split.log_delta_chernoff(counts, rows, target, theta)

    tilts = guess(parts[len(parts) // 2], 2.0 ** np.arange(*_OCTAVES)).tilts
    more, each = _COARSE if alone else _FINE
    theta = 2.0 ** np.arange(np.log2(tilts.min()) - 1.0, np.log2(tilts.max()) + more, 1.0 / each)
    guesses = [guess(split, theta) for split in parts]
    proven = np.array([g.proven for g in guesses])
    solution.estimate[:] = proven.min(axis=0)
    least = target if solve_epsilon else float(proven.min())
    limits = replace(limits, least_log_delta=least - _NEGLIGIBLE)
    place = _last_without_first(guesses) if alone else _best(proven, nearer)
    for j in range(len(parts)):
        who = np.flatnonzero((place == j) & np.isfinite(proven[j]))
        if not who.size:
            continue
        some = counts.of(who) if isinstance(counts, Shares) else counts[who]

        def at(part: NDArray, x: NDArray, split: _Parts = parts[j], some: Counts = some) -> tuple[NDArray, NDArray]:
            one = some.of(part) if isinstance(some, Shares) else some[part]
            return split.log_delta(one, rows, x, limits)

        if solve_epsilon:
            upper, x, steep = _seek(at, proven[j, who], guesses[j].slope[who], target, width, 1.0)
            lower, _, _ = _seek(at, x, steep, target, width, -1.0)
            lower = np.where(np.isnan(lower), 0.0, lower)
        else:
            lower, upper = at(np.arange(who.size), np.full(who.size, target))
        found = np.isfinite(upper)
        with np.errstate(invalid="ignore"):
            middle = np.where(np.isfinite(lower), 0.5 * (lower + upper), upper)
        solution.settle(who[found], lower[found], middle[found], upper[found])
    return solution


def _best(proven: NDArray, nearer: int) -> NDArray:
    """Where everybody is to be split by what is proven at each place, (places, people)."""
    # few places make few tables
    close = proven <= proven.min(axis=0) + _CLOSE * np.abs(proven.min(axis=0))
    common = np.argsort(-np.sum(close, axis=1), kind="stable")
    return np.maximum(common[np.argmax(close[common], axis=0)] - nearer, 0)


def _last_without_first(guesses: Sequence[_Guess]) -> NDArray:
    """The last place at which everybody's first part is nothing; -1: there is none."""
    nothing = np.array([g.first <= -_NOTHING for g in guesses])
    return np.where(nothing.any(axis=0), len(nothing) - 1 - np.argmax(nothing[::-1], axis=0), -1)


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
class _Guess:
    """What Chernoff's bounds of both parts prove of everybody.

    Attributes
    ----------
    proven, slope : ndarray, shape (people,)
        The least epsilon (inf: none) or log delta, and the slope of -log delta there.
    first : ndarray, shape (people,)
        log of the first part's share of delta.
    tilts : ndarray, shape (people, 2)
    """

    proven: NDArray
    slope: NDArray
    first: NDArray
    tilts: NDArray

    @classmethod
    def empty(cls, people: int) -> _Guess:
        return cls(np.empty(people), np.empty(people), np.empty(people), np.empty((people, 2)))

    def choose(self, block: slice, costs: NDArray, theta: NDArray, log_delta: NDArray | float) -> None:
        """Each part's tilt is the one of least cost, (2, people, tilts)."""
        share = np.minimum(costs.min(axis=2) - log_delta, 0.0)
        tilts = theta[costs.argmin(axis=2)].T
        self.first[block], self.tilts[block] = share[0], tilts
        self.slope[block] = np.sum(np.exp(share) * tilts.T, axis=0) / np.sum(np.exp(share), axis=0)


@dataclass(frozen=True)
class _Parts:
    """Steps split at one place."""

    small: SpectralMaker
    large: LargeMaker

    @classmethod
    def of(cls, maker: SpectralMaker, reach: float, far: float, blur: float) -> _Parts:
        small = maker.variant(reach, blur=blur, lotteries=2 if maker.lotteries else 0, parted=True)
        if far not in small.kept:
            small.kept[far] = LargeMaker(small, far)
        return cls(small, small.kept[far])

    def epsilon_chernoff(self, counts: Counts, rows: NDArray | None, log_delta: float, theta: NDArray) -> _Guess:
        guess = _Guess.empty(len(counts))
        for block, both in self._exponents(counts, rows, theta):
            low, high = np.zeros(both.shape[1]), np.min((both.max(axis=0) - log_delta + 1.0) / theta, axis=1)
            for _ in range(40):
                middle = 0.5 * (low + high)
                parts = np.min(both - theta * middle[:, None], axis=2)
                above = np.logaddexp(*parts) > log_delta
                low, high = np.where(above, middle, low), np.where(above, high, middle)
            guess.proven[block] = np.where(high > 1e-12, high, np.inf)
            guess.choose(block, both - theta * high[:, None], theta, log_delta)
        return guess

    def log_delta_chernoff(self, counts: Counts, rows: NDArray | None, epsilon: float, theta: NDArray) -> _Guess:
        guess = _Guess.empty(len(counts))
        for block, both in self._exponents(counts, rows, theta):
            costs = both - theta * epsilon
            guess.proven[block] = np.logaddexp(*costs.min(axis=2))
            guess.choose(block, costs, theta, guess.proven[block])
        return guess

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
