"""The smallest mu whose Gaussian curve lies above a privacy loss curve wherever its delta is at least min_delta.

Descriptive, not Gaussian DP: a subsampled Gaussian is dominated by no small mu at every epsilon.  For a sequence fixed
beforehand it implies (epsilon, delta_Gauss(epsilon; mu) + min_delta)-DP for every epsilon >= 0.

The curve is bounded at some points; between them delta is convex in e^epsilon and lies below its chord
(`kernels.dominate`).  More points are placed only where a chord needs a larger mu than its ends.  For most curves the
end of the range needs the largest mu, so the first points are densest there.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .. import deadline
from ..counting.counts import Counts
from ..mechanisms.base import CharacteristicSteps, StepFamily
from ..notions._gaussian_curve import log_delta_anywhere
from ..results import Method as Proof
from ..tables.makers import TableMakers
from ..threads import for_blocks
from . import plancherel, schedule
from .method import Progress, report
from .question import DeltaAt, EpsilonAt
from .solver import bounds, methods_for, solve
from .working import WorkingBounds

__all__ = ["LOSS", "mu_lower", "touching", "undiminished_mu"]

LOSS = 5e-5
"""The largest relative excess of the upper bound of mu that the chords may cause, in one direction."""

# distances in standard deviations of the Gaussian
_STEP = 0.1  # mean distance of the first points
_FINE = float(np.sqrt(4.0 * LOSS))  # distance of points whose chords cost LOSS if the curve is a Gaussian's
_SPLIT = 6  # largest number of parts of an interval that is refined, before rounding up
_ROUNDS = 4
_SPAN = 50.0  # one tilt serves a range of the curve of about this, in squared standard deviations
_LEAST = 8  # intervals
_BLOCK = 32_768
_PAIRS = 16_384  # of a person and a point, solved together
_POINTS = 500  # of curves, whose mu takes about 0.2 milliseconds
_FEW = 4  # people who are asked although the time is over
_LOOSE = 1e-3  # wider points are solved one by one: else mu of 10 sampled groups of four is 7 times too large
_NOTHING = -1e9  # log of a delta of 0, for the kernel
_STRIDES = (1_000, 8, 2)  # of points that are solved one by one before those between them
_NEAR = np.linspace(-0.15, 0.15, 7)  # distances of points from the touching point, for the lower bound

_Grid = tuple[NDArray, NDArray, NDArray]


class OneCurve(Protocol):
    """One person's privacy loss curve, from elsewhere: bounds of delta at epsilons, and of epsilon at a delta."""

    def deltas(self, epsilon: NDArray) -> NDArray:
        """Lower and upper bounds, (points, 2)."""
        ...

    def epsilon(self, delta: float) -> tuple[float, float]:
        """Lower and upper bound; inf where the curve stays above delta."""
        ...


def touching(
    counts: Counts,
    makers: TableMakers,
    min_delta: float,
    *,
    floor: NDArray | None = None,
    end: NDArray | None = None,
    ceiling: float = np.inf,
    patient: bool = True,
    curve: OneCurve | None = None,
    progress: Progress | None = None,
) -> tuple[NDArray, NDArray, NDArray]:
    """Upper bound of mu for every person, in one direction, and where the curves touch.

    Parameters
    ----------
    counts : Counts
    makers : TableMakers
    min_delta : float
        Down to where the curves are compared, in (0, 1).
    floor : ndarray, shape (people,), optional
        mu is at least this: another direction's mu saves work.
    end : ndarray, shape (people,), optional
        Probably an upper bound of epsilon(min_delta).  A person whose delta there is not proven to be at most
        min_delta gets another end.
    ceiling : float
        A person who needs more, or nearly more, gets some number above the ceiling, found with less work.
    patient : bool
        False: if the end of the range, epsilon(min_delta), is costly to find, as for few steps of little noise, the
        Renyi bound of it is taken, and more of the curve is compared.
    curve : OneCurve, optional
        The curve of the only person, who needs no tables then.
    progress : callable, optional
        Called with the number of people done since the last call.

    Returns
    -------
    upper : ndarray, shape (people,)
        mu; 0, or floor, if delta(0) is at most min_delta; `undiminished_mu` if the curve could not be bounded, or if
        the time was over before a block of people; inf with a `curve`.
    touch : ndarray, shape (people,)
        The epsilon of the point that needs the largest mu; 0 if floor serves all.
    end : ndarray, shape (people,)
        The end of the range.

    **Cost**: about 60 microseconds a person, less with a good floor, and more if the curve is nearly a Gaussian's.
    """
    goal, people, steps = float(np.log(min_delta)), len(counts), counts.steps()
    upper = np.zeros(people) if floor is None else floor.astype(np.float64)
    touch, beyond = np.zeros(people), np.zeros(people, dtype=bool)
    if curve is not None:
        far = np.array([curve.epsilon(min_delta)[1]])
    elif end is None:
        methods = schedule.CURVE if not patient and _decay(makers.steps) else None
        far = bounds(counts, makers, [EpsilonAt(min_delta)], methods=methods, width=_end_width(makers.steps))[0].upper
    else:
        far = end.copy()
        beyond = ~((far > 0.0) & np.isfinite(far)) & (steps > 0)
    upper[np.isinf(far)] = np.inf
    todo = np.flatnonzero((far > 0.0) & np.isfinite(far))
    share = 1.0 - np.linspace(1.0, 0.0, _intervals(min_delta) + 1) ** 2
    curves = _Curves(counts, makers, min_delta, steps == 1) if curve is None else _PointByPoint(curve)
    for start in range(0, todo.size, _BLOCK):
        who = todo[start : start + _BLOCK]
        if people > _FEW and deadline.left() <= 0.0:
            upper[who] = np.inf  # the time is over
            report(progress, who.size)
            continue
        found, at, grid, again, last = _look(
            curves, who, far[who, None] * share, upper[who, None].repeat(2, 1), ceiling, _ROUNDS == 0
        )
        if end is not None:
            beyond[who] = last > goal
        upper[who], touch[who] = found[:, 2], at
        for rounds in range(_ROUNDS):
            who, known = who[again], np.ascontiguousarray(found[again, :2])
            if not who.size:
                break
            found, at, grid, again = _refine(curves, who, grid, known, ceiling, rounds == _ROUNDS - 1)
            upper[who] = np.minimum(upper[who], found[:, 2])
            touch[who] = np.where(at > 0.0, at, touch[who])
        report(progress, min(_BLOCK, todo.size - start))
    report(progress, people - todo.size)
    again = np.flatnonzero(beyond)
    if again.size:
        rest = None if floor is None else floor[again]
        upper[again], touch[again], far[again] = touching(
            counts.of(again), makers, min_delta, floor=rest, ceiling=ceiling, patient=patient
        )
    if curve is not None:
        return upper, touch, far
    lost = np.flatnonzero(np.isinf(upper))
    upper[lost] = undiminished_mu(counts.of(lost), makers.steps)
    return upper, touch, far


def undiminished_mu(counts: Counts, steps: StepFamily) -> NDArray:
    """sqrt(sum of counts mu^2), rounded up, with a mu of a Gaussian mechanism that dominates each step: (people,)."""
    square = counts.sums(steps.gaussian_mu()[:, None] ** 2)[:, 0]
    return np.sqrt(square) * (1.0 + (steps.size + 8) * 2.0**-52)


def _look(
    curves: _AnyCurves, who: NDArray, epsilon: NDArray, floor: NDArray, ceiling: float, final: bool
) -> tuple[NDArray, NDArray, _Grid, NDArray, NDArray]:
    """The curves of some people at these points, (people, points).

    Returns
    -------
    found : ndarray, shape (people, 3)
        Smallest mu for the points; for the points and the chords, except chords that need more; for all of these, inf
        if there are such chords and this look is not `final`.  floor, shape (people, 2), is known of the first two.
    touch : ndarray, shape (people,)
        The epsilon that needs the largest mu; 0 for none.
    grid : tuple of ndarray
        Left end, right end and number of intervals to refine, of the people in `again`.
    again : ndarray of bool, shape (people,)
    last : ndarray, shape (people,)
        Upper bounds of log delta at the last point.
    """
    from ..kernels import dominate

    # delta falls with epsilon: a point that its tilt does not serve takes the bound of one before it
    curve = np.minimum.accumulate(curves.at(who, epsilon, least=floor[:, 0])[:, :, 1], axis=1)
    curve = np.ascontiguousarray(np.maximum(curve, _NOTHING))
    found, hull = np.empty((who.size, 3)), np.empty((who.size, 3), dtype=np.int64)

    def least_mu(some: slice) -> None:
        dominate.least_mu_up(epsilon[some], curve[some], floor[some], ceiling, LOSS, final, found[some], hull[some])

    for_blocks(least_mu, who.size, _together(epsilon))
    touch = np.where(hull[:, 2] >= 0, epsilon[np.arange(who.size), hull[:, 2]], 0.0)
    again = hull[:, 1] > 0
    some, hull = np.flatnonzero(again), hull[again]
    left, right = epsilon[some, hull[:, 0]], epsilon[some, hull[:, 1]]
    fine = np.minimum((right - left) / (_FINE * found[some, 0]), _SPLIT * (hull[:, 1] - hull[:, 0]))
    return found, touch, (left, right, fine), again, curve[:, -1]


def _refine(
    curves: _AnyCurves, who: NDArray, grid: _Grid, floor: NDArray, ceiling: float, final: bool
) -> tuple[NDArray, NDArray, _Grid, NDArray]:
    """`_look` at a part of each person's own range."""
    left, right, fine = grid
    # few sizes, a factor of sqrt(2) apart, so that many people share a call
    intervals = np.ceil(_LEAST * 2.0 ** (0.5 * np.ceil(2.0 * np.log2(np.maximum(fine, _LEAST) / _LEAST))))
    found, touch, again = np.empty((who.size, 3)), np.empty(who.size), np.empty(who.size, dtype=bool)
    parts = np.zeros((3, who.size))
    for one in np.unique(intervals):
        some = np.flatnonzero(intervals == one)
        epsilon = left[some, None] + (right - left)[some, None] * np.linspace(0.0, 1.0, int(one) + 1)
        epsilon[:, -1] = right[some]  # to the very end, whatever the rounding
        found[some], touch[some], rest, again[some], _ = _look(curves, who[some], epsilon, floor[some], ceiling, final)
        parts[:, some[again[some]]] = rest
    left, right, fine = parts[:, again]
    return found, touch, (left, right, fine), again


def mu_lower(
    counts: Counts,
    makers: TableMakers,
    min_delta: float,
    *,
    share: NDArray | None = None,
    curve: OneCurve | None = None,
    progress: Progress | None = None,
) -> NDArray:
    """Lower bound of mu for every person, in one direction: from points at which delta is at least min_delta.

    Parameters
    ----------
    counts, makers, min_delta, curve
        As for `touching`.
    share : ndarray, shape (people,), optional
        Where in the range, 0 to 1, the curve probably needs the largest mu: only points near there are evaluated.
    progress : callable, optional
        Called with the number of people whose range is known since the last call.

    Returns
    -------
    ndarray, shape (people,)
    """
    goal = float(np.log(min_delta))
    if curve is not None:
        far = np.array([curve.epsilon(min_delta)[0]])
    else:
        width = _end_width(makers.steps)
        far = bounds(counts, makers, [EpsilonAt(min_delta)], progress=progress, width=width)[0].lower
    people = len(counts)
    lower = np.zeros(people)
    todo = np.flatnonzero(far > 0.0)
    points = np.linspace(0.0, 1.0, _intervals(min_delta) + 1)
    if share is not None:
        # delta at the end is known already
        lower[todo] = _least_mu_down(far[todo, None], np.full((todo.size, 1), goal))
        todo = todo[share[todo] < 1.0]
        points = _NEAR / np.sqrt(-2.0 * goal)
    curves = _Curves(counts, makers, min_delta, counts.steps() == 1) if curve is None else _PointByPoint(curve)
    for start in range(0, todo.size, _BLOCK):
        if people > _FEW and deadline.left() <= 0.0:
            break
        who = todo[start : start + _BLOCK]
        shares = points if share is None else np.clip(share[who, None] + points, 0.0, 1.0)
        epsilon = far[who, None] * shares
        # delta falls with epsilon, and at the last point it is at least min_delta
        log_delta = np.maximum(curves.at(who, epsilon)[:, :, 0], goal)
        lower[who] = np.maximum(lower[who], _least_mu_down(epsilon, log_delta))
    return lower


def _decay(steps: StepFamily) -> bool:
    """Whether the steps have characteristic functions that fall to 0."""
    return isinstance(steps, CharacteristicSteps) and steps.decays


def _end_width(steps: StepFamily) -> float:
    """Relative width of epsilon(min_delta); losses with atoms or edges take up to seconds for a closer one."""
    return 0.0 if _decay(steps) else LOSS


def _least_mu_down(epsilon: NDArray, log_delta: NDArray) -> NDArray:
    """`kernels.dominate.least_mu_down` on several threads: (people,)."""
    from ..kernels import dominate

    out = np.empty(len(epsilon))

    def least_mu(some: slice) -> None:
        dominate.least_mu_down(epsilon[some], log_delta[some], out[some])

    for_blocks(least_mu, len(epsilon), _together(epsilon))
    return out


def _together(epsilon: NDArray) -> int:
    """Number of people whose curves take about 0.2 milliseconds."""
    return -(-_POINTS // epsilon.shape[1])


def _intervals(min_delta: float) -> int:
    """Number of intervals of the first look."""
    return int(np.ceil(np.sqrt(-2.0 * np.log(min_delta)) / _STEP))


class _Curves:
    """Everybody's log delta as a function of epsilon; once: who has a single step."""

    def __init__(self, counts: Counts, makers: TableMakers, min_delta: float, once: NDArray) -> None:
        self._counts, self._makers, self._once, self._goal = counts, makers, once, float(np.log(min_delta))
        self._parts = int(np.ceil(-2.0 * np.log(min_delta) / _SPAN))

    def at(self, who: NDArray, epsilon: NDArray, least: NDArray | None = None) -> NDArray:
        """Bounds of log delta of some people, (people, points, 2), at one tilt for each part of the range.

        `least` is a lower bound of each person's mu.  Loose upper bounds below the Gaussian curve of this mu stay
        loose.
        """
        parts = [epsilon[:, c] for c in np.array_split(np.arange(epsilon.shape[1]), self._parts) if c.size]
        curve = np.concatenate([self._part(who, np.ascontiguousarray(p)) for p in parts], axis=1)
        # point by point: single steps, which have a closed form, and whatever one tilt does not serve; deltas below
        # min_delta need no larger mu than the end of the range does
        low, high = curve[:, :, 0], curve[:, :, 1]
        open_points = (high >= 0.0) | self._once[who][:, None] | ((low < high - _LOOSE) & (high > self._goal))
        if least is not None:
            # most curves need the largest mu at the last point.  delta falls with epsilon: a point that needs less
            # shows that the next ones may need less, too
            for stride in _STRIDES:
                if not open_points.any():
                    break
                some = np.zeros_like(open_points)
                some[:, ::-stride] = open_points[:, ::-stride]
                self._tighten(who, epsilon, curve, some)
                person, point = np.nonzero(open_points & ~some)
                least = np.maximum(least, _least_mu_down(epsilon[:, -1:].copy(), low[:, -1:].copy()))
                most = np.minimum.accumulate(high, axis=1)[person, point]
                open_points[:] = False
                open_points[person, point] = most > _log_gauss(epsilon[person, point], least[person])
        self._tighten(who, epsilon, curve, open_points)
        return curve

    def _tighten(self, who: NDArray, epsilon: NDArray, curve: NDArray, points: NDArray) -> None:
        """Solve some points one by one."""
        person, point = np.nonzero(points)
        for a in range(0, person.size, _PAIRS):
            i, j = person[a : a + _PAIRS], point[a : a + _PAIRS]
            question = DeltaAt(epsilon[i, j])
            working, everybody = WorkingBounds.unknown(i.size, question), np.arange(i.size)
            working.settle(everybody, curve[i, j, 0], np.nan, curve[i, j, 1], Proof.TRANSFORM)
            counts, decay = self._counts.of(who[i]), _decay(self._makers.steps)
            methods = None if decay else schedule.for_points(methods_for(counts, self._makers, False))
            working.merge(everybody, solve(counts, self._makers, question, methods=methods))
            left = np.flatnonzero((working.lower < working.upper - _LOOSE) & (working.upper > self._goal))
            # rare losses are split from the others where the steps have decaying characteristic functions
            if left.size and decay:
                rare = counts.of(left)
                working.merge(left, solve(rare, self._makers, question.of(left), methods=schedule.RARE_POINTS))
            proven = np.stack([working.lower, working.upper], axis=1)
            curve[i, j] = np.where(working.contradicted[:, None], [-np.inf, 0.0], proven)

    def _part(self, who: NDArray, epsilon: NDArray) -> NDArray:
        curve = np.zeros((who.size, epsilon.shape[1], 2))
        curve[:, :, 0] = -np.inf
        if not isinstance(self._makers.steps, CharacteristicSteps):
            return curve
        counts, maker = self._counts.of(who), self._makers.characteristic(interpolated=False)
        curve = plancherel.curves(counts, maker, epsilon)
        lost = np.flatnonzero((curve[:, :, 1] >= 0.0).all(axis=1) & (epsilon[:, 0] > 0.0) & ~self._once[who])
        if lost.size:
            # The tilt is chosen for the middle of the range: try another one, nearer to 0.
            points = epsilon.shape[1]
            near = epsilon[lost, :1] * np.linspace(0.0, 1.0, 3 * points, endpoint=False)
            wider = np.concatenate([near, epsilon[lost]], axis=1)
            curve[lost] = plancherel.curves(counts.of(lost), maker, wider)[:, 3 * points :]
        return curve


def _log_gauss(epsilon: NDArray, mu: NDArray) -> NDArray:
    """log delta of Gaussian mechanisms; -inf for a mu of 0."""
    out, some = np.full(epsilon.shape, -np.inf), (mu > 0.0) & np.isfinite(mu)
    out[some] = log_delta_anywhere(epsilon[some], mu[some])
    return out


class _PointByPoint:
    """The log delta of one person whose curve comes from elsewhere."""

    def __init__(self, curve: OneCurve) -> None:
        self._curve = curve

    def at(self, who: NDArray, epsilon: NDArray, least: NDArray | None = None) -> NDArray:
        """See `_Curves.at`."""
        with np.errstate(divide="ignore"):
            found = np.log(self._curve.deltas(epsilon.ravel())) + np.array([-1e-12, 1e-12])  # the round-off
        return found.reshape(*epsilon.shape, 2)


_AnyCurves = _Curves | _PointByPoint
