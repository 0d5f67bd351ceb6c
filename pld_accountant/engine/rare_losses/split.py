"""`RareLosses`: bounds from the part with small losses and the part with a large one, each with a tilt of its own.

delta(epsilon) is the sum over both parts (`tables`).  The reach of the split is chosen person by person: the reach at
which the Chernoff bounds of the two parts prove most, or one a little nearer, where the second part alone is easier and
the first part still small.  epsilon is found by evaluating both bounds of delta.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ...counting.counts import Counts
from ...mechanisms.base import SplittableSteps
from ...results import Method as Proof
from ...tables.characteristic import CharacteristicTables
from ...tables.makers import TableMakers
from ...tables.table import log_expm1
from ...threads import blocks
from ..method import Job, Method, levels
from ..plancherel import solve
from ..question import DeltaAt, EpsilonAt, Question
from ..tilting import Limits
from ..working import WorkingBounds
from .tables import LargeLossTables

__all__ = ["RareLosses"]

_NEGLIGIBLE = 40.0  # a part that the Chernoff bound proves to be e^-40 of delta is bounded by that
_PROBES = 10
_CLOSE = 0.01  # relative distance of Chernoff bounds within which reaches are equally good
_CLOSE_ENOUGH = 0.2  # ends this close to the best ones are accepted, relative to the width
_OCTAVES = -6, 16  # range of the tilts
_FINE = 8  # tilts an octave at which reaches are compared
_APART = 0.5  # standard deviations between deltas that are told apart
_LOOKS = 3  # times that a better known delta may move the split
_SHARES, _TOGETHER = 8, 16  # parts of the people, at most, and people of a part, at least


@dataclass(frozen=True)
class RareLosses(Method):
    """Small losses and large ones, each with a tilt of its own, under removal.

    Attributes
    ----------
    limits : Limits
    places : tuple of float
        Reaches at which a step may be split, in multiples of sqrt(-2 log delta).
    nearer : int
        How many places before the best one to split.
    """

    limits: Limits = field(default_factory=Limits)
    places: tuple[float, ...] = ()
    nearer: int = 0

    def improve(self, job: Job, working: WorkingBounds, who: NDArray) -> None:
        """See `Method`; people of about the same delta together."""
        if job.makers.steps.direction == "add" or not isinstance(job.makers.steps, SplittableSteps):
            return
        before = np.full(who.size, np.nan)
        for _ in range(_LOOKS):
            log_delta = job.log_delta(working, who, 4.0)
            if not job.question.wants_epsilon:
                log_delta = -0.5 * (_APART * np.round(np.sqrt(-2.0 * log_delta) / _APART)) ** 2
            moved = np.flatnonzero((log_delta != before) & np.isin(who, self.left_open(job, working, who)))
            for level, at in levels(log_delta[moved]):
                some = who[moved[at]]
                far = float(job.far_reach(working, some[:1])[0]) + 2.0
                reaches = [place * float(np.sqrt(-2.0 * level)) for place in self.places]
                counts, question = job.of(some)
                parts = [_Parts.of(job.makers, reach, far, job.interpolated) for reach in reaches if reach <= far - 1.0]
                if parts:
                    working.merge(some, self._solve(counts, question, parts))
            before = log_delta

    def _solve(self, counts: Counts, question: Question, parts: Sequence[_Parts]) -> WorkingBounds:
        working = WorkingBounds.unknown(len(counts), question)
        coarse = parts[len(parts) // 2].guess(counts, question, 2.0 ** np.arange(*_OCTAVES))
        low, high = np.log2(coarse.tilts.min()) - 1.0, np.log2(coarse.tilts.max()) + 1.0
        theta = 2.0 ** np.arange(low, high, 1.0 / _FINE)
        guesses = [part.guess(counts, question, theta) for part in parts]
        proven = np.array([g.proven for g in guesses])
        working.estimate[:] = proven.min(axis=0)
        least = np.min(question.targets(len(counts))) if question.wants_epsilon else float(proven.min())
        limits = replace(self.limits, least_log_delta=float(least) - _NEGLIGIBLE)
        place = _best(proven, self.nearer)
        for j, part in enumerate(parts):
            at = np.flatnonzero((place == j) & np.isfinite(proven[j]))
            # People of equal tilts need the same tables.  Those of one part fit the cache, where each probe finds them.
            order = at[np.lexsort(guesses[j].tilts[at].T)]
            for who in np.array_split(order, min(_SHARES, math.ceil(at.size / _TOGETHER))) if at.size else ():
                slope = guesses[j].slope[who]
                lower, upper = self._ends(part, counts.of(who), question.of(who), proven[j, who], slope, limits)
                found = np.isfinite(upper)
                with np.errstate(invalid="ignore"):
                    middle = np.where(np.isfinite(lower), 0.5 * (lower + upper), upper)
                working.settle(who[found], lower[found], middle[found], upper[found], Proof.RARE_LOSSES)
        return working

    def _ends(
        self, part: _Parts, counts: Counts, question: Question, proven: NDArray, slope: NDArray, limits: Limits
    ) -> tuple[NDArray, NDArray]:
        """Lower and upper ends from one split; NaN or inf if none was found."""
        target = question.targets(len(counts))
        if isinstance(question, DeltaAt):
            return part.log_delta(counts, target, limits)

        def at(some: NDArray, x: NDArray) -> tuple[NDArray, NDArray]:
            return part.log_delta(counts.of(some), x, limits)

        upper, x, slope = _seek(at, proven, slope, target, _CLOSE_ENOUGH * self.width, 1.0)
        lower, _, _ = _seek(at, x, slope, target, _CLOSE_ENOUGH * self.width, -1.0)
        return np.where(np.isnan(lower), 0.0, lower), upper


def _best(proven: NDArray, nearer: int) -> NDArray:
    """Where to split each person by what is proven at each place, (places, people)."""
    # few places make few tables
    close = proven <= proven.min(axis=0) + _CLOSE * np.abs(proven.min(axis=0))
    common = np.argsort(-np.sum(close, axis=1), kind="stable")
    return np.maximum(common[np.argmax(close[common], axis=0)] - nearer, 0)


def _seek(
    at: Callable[[NDArray, NDArray], tuple[NDArray, NDArray]],
    x: NDArray,
    slope: NDArray,
    goal: NDArray,
    width: float,
    side: float,
) -> tuple[NDArray, NDArray, NDArray]:
    """The least epsilon found whose upper bound of log delta is at most `goal` (side 1), or the largest whose lower
    bound is at least `goal` (side -1); NaN: none.  Also where the search ended, and the slopes there.
    """
    x, slope, found = x.copy(), slope.copy(), np.full(x.size, np.nan)
    open_, before = np.arange(x.size), np.full((2, x.size), np.nan)
    for _ in range(_PROBES):
        if not open_.size:
            break
        value = at(open_, x[open_])[side > 0.0] - goal[open_]
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
    """Results of the Chernoff bounds of both parts for each person.

    Attributes
    ----------
    proven, slope : ndarray, shape (people,)
        The least epsilon (inf: none) or log delta, and the slope of -log delta there.
    tilts : ndarray, shape (people, 2)
    """

    proven: NDArray
    slope: NDArray
    tilts: NDArray

    @classmethod
    def empty(cls, people: int) -> _Guess:
        """Room for the guesses."""
        return cls(np.empty(people), np.empty(people), np.empty((people, 2)))

    def choose(self, block: slice, costs: NDArray, theta: NDArray, log_delta: NDArray) -> None:
        """Each part's tilt is that of least cost; costs (2, people, tilts)."""
        share = np.minimum(costs.min(axis=2) - log_delta, 0.0)
        tilts = theta[costs.argmin(axis=2)].T
        self.tilts[block] = tilts
        self.slope[block] = np.sum(np.exp(share) * tilts.T, axis=0) / np.sum(np.exp(share), axis=0)


@dataclass(frozen=True)
class _Parts:
    """Steps split at one reach; infinite: -log1p(-mass of a step beyond the far end), which neither part has."""

    small: CharacteristicTables
    large: LargeLossTables
    infinite: NDArray

    @classmethod
    def of(cls, makers: TableMakers, reach: float, far: float, interpolated: bool) -> _Parts:
        """The parts of the makers' steps, made once."""

        def make() -> _Parts:
            steps = makers.steps
            assert isinstance(steps, SplittableSteps)
            small, large = steps.split(reach, far)
            first = makers.maker(small, interpolated=interpolated)
            second = makers.maker(large, interpolated=False)
            return cls(first, LargeLossTables(first, second, steps.has_large_losses()), -np.log1p(-large.mass_beyond()))

        return makers.kept(("split", reach, far, interpolated), make)

    def guess(self, counts: Counts, question: Question, theta: NDArray) -> _Guess:
        """The results of the Chernoff bounds for these people."""
        guess, target = _Guess.empty(len(counts)), question.targets(len(counts))
        for block, both in self._exponents(counts, theta):
            if isinstance(question, EpsilonAt):
                goal = target[block]
                low = np.zeros(both.shape[1])
                high = np.min((both.max(axis=0) - goal[:, None] + 1.0) / theta, axis=1)
                for _ in range(40):
                    middle = 0.5 * (low + high)
                    above = np.logaddexp(*np.min(both - theta * middle[:, None], axis=2)) > goal
                    low, high = np.where(above, middle, low), np.where(above, high, middle)
                guess.proven[block] = np.where(high > 1e-12, high, np.inf)
                guess.choose(block, both - theta * high[:, None], theta, goal)
            else:
                costs = both - theta * target[block, None]
                guess.proven[block] = np.logaddexp(*costs.min(axis=2))
                guess.choose(block, costs, theta, guess.proven[block])
        return guess

    def _exponents(self, counts: Counts, theta: NDArray) -> Iterator[tuple[slice, NDArray]]:
        """Block by block, values with log delta <= values - theta epsilon for the two parts: (2, people, tilts)."""
        step = self.large.log_moments(theta)
        for block in blocks(len(counts)):
            k, ratio = np.split(counts.times(step, block), 2, axis=1)
            yield block, DeltaAt(0.0).chernoff(np.stack([k, k + log_expm1(ratio)]), theta, 0.0)

    def log_delta(self, counts: Counts, epsilon: NDArray, limits: Limits) -> tuple[NDArray, NDArray]:
        """Bounds of log delta at everybody's epsilon."""
        ends = []
        for maker in (self.small, self.large):
            found = solve(counts, maker, DeltaAt(epsilon), limits=limits)
            ends.append((found.lower, np.fmin(found.upper, found.renyi)))
        (lower, upper), (more, most) = ends
        with np.errstate(divide="ignore"):
            beyond = np.log(counts.sums(self.infinite[:, None])[:, 0])
            return np.logaddexp(lower, more), np.logaddexp(np.logaddexp(upper, most), beyond) + 1e-12
