"""`Contour`: delta as an integral along a bent contour, for few and for rare steps (`engine.contour_integral`)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..counting.counts import WholeCounts
from ..mechanisms.complex_law import ComplexLaw, ContourSteps
from ..results import Method as Proof
from .contour_integral import Integral, integrate
from .contour_parts import TOLERANCE, Steps
from .method import HANDFUL, Job, Method
from .question import Question
from .rough_composition import RoughComposition
from .working import WorkingBounds

__all__ = ["Contour"]

_MOST_STEPS = 1e8
# what `choose_parts` takes, for two searches: sharp saddles (many steps, large groups) need the last two of the first;
# the second keeps more digits, and takes more parts
_PEAKS = ((12.5, 4), (14.0, 2), (16.0, 4), (9.0, 0), (16.0, 0)), ((9.5, 4), (8.0, 2))
_TRIES = 4  # integrals for one answer
_SHARE = 1e-2  # tolerance of an integral, over the width that is wanted of an answer
_ABOVE = 1.1  # times a rough epsilon: delta is smaller there, and an integral is easy
_WIDE = 1e-3  # tolerance of an integral that may prove an epsilon to be small enough
_NEAR = 0.93, 1.3  # times the epsilon of an integral: between these it serves
_CLOSE = 1.0 - 1e-3, 1.0 + 1e-3  # the same under addition
_FROM_KEPT, _FROM_KEPT_ADDED = (0.9, 1.3), (0.7, 1.001)  # times its own epsilon: where a kept integral is tried
_CANDIDATES = 3  # kept integrals that are tried
_KEPT = 30.0  # tolerances, relative: bounds from a kept integral that are this close serve
_ROUNDING = 1e-13  # of a sum of terms and of log delta, relative to delta
_STEPS = 60  # of Newton's method

_Peaks = tuple[tuple[float, int], ...]


@dataclass(frozen=True)
class Contour(Method):
    """An integral along a bent contour for whole counts of few kinds of steps with Gaussian noise.

    Attributes
    ----------
    most : int
        The largest number of kinds of steps, summed over different counts and targets of the people left open; with
        more, the method is skipped.
    most_kinds : int
        The largest number of kinds of steps of one person; people with more are skipped.
    """

    most: int = 16
    most_kinds: int = 4

    def of_several(self) -> Method:
        """See `Method`: an integral answers questions near its own."""
        return replace(self, most_people=np.inf, most=HANDFUL)

    def improve(self, job: Job, working: WorkingBounds, who: NDArray) -> None:
        """See `Method`."""
        if not isinstance(job.makers.steps, ContourSteps) or not isinstance(job.counts, WholeCounts):
            return
        alike: dict[tuple[bytes, float], list[int]] = {}
        total = 0
        for person in who.tolist():
            counts = job.counts.of_rows(person)
            kinds = int(np.count_nonzero(counts))
            if kinds > self.most_kinds:
                continue
            target = float(np.ravel(job.question.of(np.array([person])).target)[0])
            people = alike.setdefault((counts.tobytes(), target), [])
            total += 0 if people else kinds
            people.append(person)
            if total > self.most:
                return
        searches: dict[bytes, _Search | None] = {}
        # a kept integral serves larger epsilons under removal, and smaller ones under addition
        remove = job.makers.steps.direction == "remove"
        for key, target in sorted(alike, reverse=job.question.wants_epsilon == remove):
            one, *others = alike[key, target]
            if key not in searches:
                searches[key] = self._search(job.makers.steps, job.counts.of_rows(one))
            self._improve(job, working, searches[key], target, np.array([one]))
            if working.solved[one]:
                found = (working.lower[one], working.estimate[one], working.upper[one], working.method[one])
                working.settle(np.array(others, dtype=np.int64), *found)
                working.contradicted[others] |= working.contradicted[one]

    def _search(self, family: ContourSteps, counts: NDArray) -> _Search | None:
        """The search for one person's counts; None if they have no contour."""
        rows = np.flatnonzero(counts)
        if counts.sum() > _MOST_STEPS:
            return None
        with np.errstate(all="ignore"):
            laws = [law for law in map(family.complex_law, rows.tolist()) if law is not None]
        if len(laws) < rows.size:
            return None
        return _Search(laws, counts[rows], family.direction == "remove", _SHARE * self.width)

    def _improve(self, job: Job, working: WorkingBounds, search: _Search | None, target: float, at: NDArray) -> None:
        """One person, whose index is `at`."""
        if search is None:
            return
        question = job.question.of(at)
        known = float(job.known[at[0]]) if job.known is not None and question.wants_epsilon else 0.0
        start = known if known > 0.0 else None
        search.integrals = 0
        for peaks in (None, *_PEAKS):
            # far out, numbers leave the range of doubles; bounds that are not finite end an attempt
            with np.errstate(all="ignore"):
                if peaks is None:
                    ends = search.again(question, target)
                elif question.wants_epsilon:
                    ends = search.epsilon(target, start, known, peaks)
                else:
                    ends = search.log_delta(target, start, peaks)
            if ends is None:
                if search.integrals > 1:
                    return  # the failed search took several integrals: no second one
                start = None if search.integrals else start
                continue
            found = WorkingBounds.unknown(1, question)
            middle = 0.5 * (ends[0] + ends[1]) if np.isfinite(ends[0]) else ends[1]
            found.settle(np.array([0]), ends[0], middle, ends[1], Proof.CONTOUR)
            working.merge(at, found)
            if not self.left_open(job, working, at).size:
                return
            start = ends[0] if question.wants_epsilon else middle


class _Search:
    """The search for integrals that answer questions about one person's steps.

    Integrals are kept: one answers further questions near its own.
    """

    def __init__(self, laws: list[ComplexLaw], counts: NDArray, remove: bool, tolerance: float) -> None:
        self._laws, self._counts, self._remove = laws, counts, remove
        self._tolerance = max(tolerance, TOLERANCE)
        self._rough = RoughComposition(laws, counts)
        self._kept: list[tuple[float, Integral]] = []  # each with the log delta that it is relative to
        self.integrals = 0

    def again(self, question: Question, target: float) -> tuple[float, float] | None:
        """Bounds of epsilon or log delta from a kept integral; None if none is near enough."""
        near = _FROM_KEPT if self._remove else _FROM_KEPT_ADDED
        if question.wants_epsilon:
            kept = [(own, one.relative_to(own, target)) for own, one in self._kept]
            kept.sort(key=lambda other: abs(math.log(max(other[1].value(other[1].own)[0], 1e-300))))
        else:
            kept = sorted(self._kept, key=lambda other: abs(other[1].own - target))
        for own, one in kept[:_CANDIDATES]:
            if question.wants_epsilon:
                root = _root(one, one.own)
                if root is not None and near[0] <= root / one.own <= near[1]:
                    low, high = _ends(one, root)
                    if high - low <= _KEPT * self._tolerance * high:
                        return low, high
            elif near[0] * one.own <= target <= near[1] * one.own:
                ends = _log_ends(one, target, own)
                if ends is not None and ends[1] - ends[0] <= _KEPT * self._tolerance * max(-ends[1], 1.0):
                    return ends
        return None

    def _steps(self, log_delta: float, tolerance: float | None = None) -> Steps:
        return Steps(self._laws, self._counts, self._remove, log_delta, tolerance or self._tolerance)

    def _integrate(self, steps: Steps, epsilon: float, peaks: _Peaks) -> Integral | None:
        self.integrals += 1
        found = integrate(steps, epsilon, peaks)
        if found is not None and epsilon > 0.0 and steps.tolerance == self._tolerance:
            self._kept.append((steps.log_delta, found))
        return found

    def log_delta(self, epsilon: float, start: float | None, peaks: _Peaks) -> tuple[float, float] | None:
        """Bounds of log delta; the search begins at `start`, or at a rough one."""
        guess = self._rough.log_delta(epsilon) if start is None else start
        for _ in range(_TRIES):
            if not math.isfinite(guess):
                return None
            guess = min(guess, 0.0)
            integral = self._integrate(self._steps(guess), epsilon, peaks)
            if integral is None:
                return None
            value = integral.value(epsilon)[0]
            if not value > 0.0:
                return None
            if 1e-2 < value < 1e2:
                return _log_ends(integral, epsilon, guess)
            guess += math.log(value)
        return None

    def epsilon(self, log_delta: float, start: float | None, known: float, peaks: _Peaks) -> tuple[float, float] | None:
        """Bounds of epsilon; the search begins at `start`, or at a rough epsilon.

        An epsilon that is proven to be at most `known` is not tightened: a wide integral may prove that.
        """
        steps = self._steps(log_delta)
        start = 0.98 * self._rough.epsilon(log_delta) if start is None else start
        if start == 0.0 and self._zero(steps, peaks):
            return 0.0, 0.0
        if not 0.0 < start < math.inf:
            return None
        if start <= known:
            # far above the answer delta is too small for an integral
            rough = _ABOVE * self._rough.epsilon(log_delta)
            near = rough if 0.0 < rough < start else start
            integral = self._integrate(self._steps(log_delta, _WIDE), near, peaks)
            if integral is None:
                return None
            if _is_enough(integral, near):
                return 0.0, near
        for i in range(_TRIES):
            integral = self._integrate(steps, start, peaks)
            root = None if integral is None else _root(integral, start)
            if integral is None or root is None:
                return None
            if root < 0.5 * start and i == 0 and self._zero(steps, peaks):
                return 0.0, 0.0
            least, most = _NEAR if self._remove else _CLOSE
            if least <= root / start <= most:
                return _ends(integral, root)
            # an integral is closest at epsilons a little larger than its own
            start = 0.98 * root if self._remove else root
        return None

    def _zero(self, steps: Steps, peaks: _Peaks) -> bool:
        """Whether delta at epsilon 0 is proven to be small enough."""
        if not self._remove:
            return False
        integral = self._integrate(steps, 0.0, peaks)
        return integral is not None and _is_enough(integral, 0.0)


def _log_ends(integral: Integral, epsilon: float, log_delta: float) -> tuple[float, float] | None:
    """Bounds of log delta at an epsilon, from an integral relative to exp(log_delta); None if it is lost."""
    value = integral.value(epsilon)[0]
    low, high = (
        value * (1.0 + sign * _ROUNDING) + sign * (_off(integral, epsilon, sign) + _ROUNDING) for sign in (-1.0, 1.0)
    )
    if not high > 0.0:
        return None
    return (log_delta + math.log(low) if low > 0.0 else -math.inf), min(log_delta + math.log(high), 0.0)


def _is_enough(integral: Integral, epsilon: float) -> bool:
    """Whether delta at this epsilon is proven to be small enough."""
    return integral.value(epsilon)[0] + _off(integral, epsilon, 1.0) <= 1.0 - _ROUNDING


def _root(integral: Integral, start: float) -> float | None:
    """About the epsilon at which delta is 1, relatively; at least 0.4 and at most 4 times the start."""
    x = start
    for _ in range(_STEPS):
        value, slope = integral.value(x)
        if not (value > 0.0 and slope > 0.0):
            return None
        # log delta is about linear in epsilon
        new = min(max(x + math.log(value) * value / slope, 0.5 * x), 2.0 * x)
        if not 0.4 * start < new < 4.0 * start:
            return min(max(new, 0.4 * start), 4.0 * start)
        if abs(new - x) <= 1e-14 * x:
            return new
        x = new
    return x


def _ends(integral: Integral, root: float) -> tuple[float, float]:
    """Bounds of epsilon: above the lower end delta is proven to be too large, at the upper end to be small enough."""
    value, slope = integral.value(root)
    lower, upper = 0.0, math.inf
    for sign in (-1.0, 1.0):
        apart = (_off(integral, root, sign) + abs(value - 1.0) + 2.0 * _ROUNDING) / slope * 1.01
        for _ in range(8):
            end = root + sign * apart
            if end <= 0.0:
                break
            bound = integral.value(end)[0] + sign * _off(integral, end, sign)
            if sign * (1.0 - bound) >= _ROUNDING:
                lower, upper = (end, upper) if sign < 0.0 else (lower, end)
                break
            apart *= 2.0
    return lower, upper


def _off(integral: Integral, epsilon: float, sign: float) -> float:
    """By how much delta may lie above the value (sign 1) or below it (sign -1)."""
    return integral.error(epsilon) + (integral.above(epsilon) if sign > 0.0 else 0.0)
