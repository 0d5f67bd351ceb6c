"""The smallest mu whose Gaussian curve lies above a privacy loss curve wherever that is at least min_delta.

Descriptive, not Gaussian DP: a subsampled Gaussian is dominated by no small mu at every epsilon.  What follows for a
sequence fixed beforehand is (epsilon, delta_Gauss(epsilon; mu) + min_delta)-DP for every epsilon >= 0.

The curve is bounded at some points; between them delta is convex in e^epsilon and lies below its chord
(`kernels.mu`).  Where a chord asks for more than its ends, more points are placed, and nowhere else.  Most curves ask
for the most at the end of the range, so the first points are densest there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..mechanisms import one_step
from ..tables.characteristic import SpectralMaker
from . import plancherel, renyi
from .solver import people_bounds

__all__ = ["LOSS", "mu_lower", "mu_upper", "touching", "unsampled_mu"]

LOSS = 5e-5
"""What the chords may add to the upper bound of mu in one direction, relative."""

# distances in standard deviations of the Gaussian
_STEP = 0.1  # mean of the first points'
_FINE = float(np.sqrt(4.0 * LOSS))  # of points whose chords cost just LOSS, where the curve is a Gaussian's
_SPLIT = 6  # an interval that is looked at again becomes so many at most, before rounding up
_ROUNDS = 4
_SPAN = 50.0  # one tilt serves a range of the curve of about this, in squared standard deviations
_LEAST = 8  # intervals
_BLOCK = 32_768

_PAIRS = 16_384
_ATTEMPTS = (
    plancherel.Limits(least_expectation=1e-6),
    *(plancherel.Limits(tilts=16, least_expectation=e) for e in (1e-2, 1e-4, 1e-7)),
)

_NEAR = np.linspace(-0.15, 0.15, 7)  # of points near the touching one, for the lower bound

_Grid = tuple[NDArray, NDArray, NDArray]
Progress = Callable[[int], None]


def mu_upper(
    counts: NDArray,
    maker: SpectralMaker,
    direction: str,
    min_delta: float,
    *,
    floor: NDArray | None = None,
    ceiling: float = np.inf,
    patient: bool = True,
) -> NDArray:
    """Upper bound of mu for every person, in one direction.

    Parameters
    ----------
    counts : ndarray of integers, shape (people, buckets)
    maker : SpectralMaker
        Of that direction.
    min_delta : float
        Down to where the curves are compared, in (0, 1).
    floor : ndarray, shape (people,), optional
        The result is at least this: another direction's mu saves work.
    ceiling : float
        Whoever surely or nearly needs more gets some number above it, found with less work.
    patient : bool
        False: where the end of the range, epsilon(min_delta), is costly to find, as for few steps of little noise,
        Renyi accounting's is taken, and more of the curve is compared.

    Returns
    -------
    ndarray, shape (people,)
        0, or floor, where delta(0) is at most min_delta; `unsampled_mu` where the curve could not be bounded.

    Notes
    -----
    Cost: about 60 microseconds a person, less with a good floor, and more where the curve is nearly a Gaussian's.
    """
    return touching(
        counts, maker, direction, min_delta, floor=floor, ceiling=ceiling, patient=patient
    )[0]  # fmt: skip


def touching(
    counts: NDArray,
    maker: SpectralMaker,
    direction: str,
    min_delta: float,
    *,
    floor: NDArray | None = None,
    end: NDArray | None = None,
    ceiling: float = np.inf,
    patient: bool = True,
    progress: Progress | None = None,
) -> tuple[NDArray, NDArray, NDArray]:
    """`mu_upper`, and where the curves touch.

    Parameters
    ----------
    counts, maker, direction, min_delta, floor, ceiling, patient
        As for `mu_upper`.
    end : ndarray, shape (people,), optional
        Perhaps an upper bound of epsilon(min_delta): whoever's delta there is not proven to be at most min_delta gets
        another.
    progress : callable, optional
        Called with the number of people done since the last call.

    Returns
    -------
    upper, touch, end : ndarray, shape (people,)
        mu; the epsilon of the point that asks for the most, 0 where floor serves all; the end of the range.
    """
    goal = float(np.log(min_delta))
    people = len(counts)
    upper = np.zeros(people) if floor is None else floor.astype(np.float64)
    touch = np.zeros(people)
    short = np.zeros(people, dtype=bool)
    if end is None:
        far = _end(counts, maker, direction, min_delta, patient)
    else:
        far = end.copy()
        short = ~((far > 0.0) & np.isfinite(far)) & counts.any(axis=1)
    upper[np.isinf(far)] = np.inf
    todo = np.flatnonzero((far > 0.0) & np.isfinite(far))
    share = 1.0 - np.linspace(1.0, 0.0, _intervals(min_delta) + 1) ** 2
    for start in range(0, todo.size, _BLOCK):
        who = todo[start : start + _BLOCK]
        found, at, grid, again, last = _look(
            counts[who], maker, far[who, None] * share, upper[who, None].repeat(2, 1), ceiling, min_delta, _ROUNDS == 0
        )  # fmt: skip
        if end is not None:
            short[who] = last > goal
        upper[who], touch[who] = found[:, 2], at
        for rounds in range(_ROUNDS):
            who, known = who[again], np.ascontiguousarray(found[again, :2])
            if not who.size:
                break
            found, at, grid, again = _look_again(
                counts, who, maker, grid, known, ceiling, min_delta, rounds == _ROUNDS - 1
            )
            upper[who] = np.minimum(upper[who], found[:, 2])
            touch[who] = np.where(at > 0.0, at, touch[who])
        if progress is not None:
            progress(min(_BLOCK, todo.size - start))
    if progress is not None and todo.size < people:
        progress(people - todo.size)
    again = np.flatnonzero(short)
    if again.size:
        rest = None if floor is None else floor[again]
        upper[again], touch[again], far[again] = touching(
            counts[again], maker, direction, min_delta, floor=rest, ceiling=ceiling, patient=patient
        )  # fmt: skip
    lost = np.flatnonzero(np.isinf(upper))
    upper[lost] = unsampled_mu(counts[lost], maker.sigma)
    return upper, touch, far


def _end(counts: NDArray, maker: SpectralMaker, direction: str, min_delta: float, patient: bool) -> NDArray:
    """An upper bound of everybody's epsilon(min_delta)."""
    goal = float(np.log(min_delta))
    if patient:
        return people_bounds(counts, maker, [goal], direction, solve_epsilon=True)[0].upper
    far = np.zeros(len(counts))
    some = np.flatnonzero(counts.any(axis=1))
    _, far[some] = _point_by_point(counts[some], maker, np.full(some.size, goal), None, solve_epsilon=True)
    lost = np.flatnonzero(np.isinf(far))
    if lost.size:
        far[lost] = renyi.best_epsilon(counts[lost], maker, min_delta) * (1.0 + 1e-12)
    return far


def unsampled_mu(counts: NDArray, sigma: NDArray) -> NDArray:
    """sqrt(sum of counts / sigma^2), rounded up: every step is a post-processing of the same step without sampling."""
    return np.sqrt(counts.astype(np.float64) @ (1.0 / sigma**2)) * (1.0 + (sigma.size + 8) * 2.0**-52)


def _look(
    counts: NDArray,
    maker: SpectralMaker,
    epsilon: NDArray,
    floor: NDArray,
    ceiling: float,
    min_delta: float,
    final: bool,
) -> tuple[NDArray, NDArray, _Grid, NDArray, NDArray]:
    """The curves at these points, (people, points).

    Returns
    -------
    found : ndarray, shape (people, 3)
        Smallest mu for the points; with the chords, but those that ask for more; with these too, inf unless this look
        is `final`.  floor, shape (people, 2), is what is known of the first two.
    touch : ndarray, shape (people,)
        The epsilon that asks for the most; 0 for none.
    grid : tuple of ndarray
        Left end, right end and number of intervals to look at again, of those for whom it is worth it.
    again : ndarray of bool, shape (people,)
    last : ndarray, shape (people,)
        Upper bounds of log delta at the last point.
    """
    from ..kernels import dominate

    people = len(counts)
    curve = np.ascontiguousarray(_curve(counts, maker, epsilon, min_delta, lower=False)[:, :, 1])
    found, hull = np.empty((people, 3)), np.empty((people, 3), dtype=np.int64)
    dominate.least_mu_up(epsilon, curve, floor, ceiling, LOSS, final, found, hull)
    touch = np.where(hull[:, 2] >= 0, epsilon[np.arange(people), hull[:, 2]], 0.0)
    again = hull[:, 1] > 0
    some, hull = np.flatnonzero(again), hull[again]
    left, right = epsilon[some, hull[:, 0]], epsilon[some, hull[:, 1]]
    fine = np.minimum((right - left) / (_FINE * found[some, 0]), _SPLIT * (hull[:, 1] - hull[:, 0]))
    return found, touch, (left, right, fine), again, curve[:, -1]


def _look_again(
    counts: NDArray,
    who: NDArray,
    maker: SpectralMaker,
    grid: _Grid,
    floor: NDArray,
    ceiling: float,
    min_delta: float,
    final: bool,
) -> tuple[NDArray, NDArray, _Grid, NDArray]:
    """`_look` at a part of the range of these people's own."""
    left, right, fine = grid
    # few sizes, a factor of sqrt(2) apart, so that many people share a call
    intervals = np.ceil(_LEAST * 2.0 ** (0.5 * np.ceil(2.0 * np.log2(np.maximum(fine, _LEAST) / _LEAST))))
    found, touch, again = np.empty((who.size, 3)), np.empty(who.size), np.empty(who.size, dtype=bool)
    parts = np.zeros((3, who.size))
    for one in np.unique(intervals):
        some = np.flatnonzero(intervals == one)
        epsilon = left[some, None] + (right - left)[some, None] * np.linspace(0.0, 1.0, int(one) + 1)
        epsilon[:, -1] = right[some]  # to the very end, whatever the rounding
        found[some], touch[some], rest, again[some], _ = _look(
            counts[who[some]], maker, epsilon, floor[some], ceiling, min_delta, final
        )  # fmt: skip
        parts[:, some[again[some]]] = rest
    left, right, fine = parts[:, again]
    return found, touch, (left, right, fine), again


def mu_lower(
    counts: NDArray,
    maker: SpectralMaker,
    direction: str,
    min_delta: float,
    *,
    rows: NDArray | None = None,
    share: NDArray | None = None,
    progress: Progress | None = None,
) -> NDArray:
    """Lower bound of mu for every person, in one direction: from points at which delta is at least min_delta.

    Parameters
    ----------
    counts, maker, direction, min_delta
        As for `mu_upper`.
    rows : ndarray of int, shape (buckets,), optional
        The maker's bucket behind each column of counts; -1 for a bucket that costs nothing.
    share : ndarray, shape (people,), optional
        Where in the range, 0 to 1, the curve probably asks for the most: only points near there are looked at.
    progress : callable, optional
        Called with the number of people whose range is known since the last call.

    Returns
    -------
    ndarray, shape (people,)
    """
    from ..kernels import dominate

    goal = float(np.log(min_delta))
    far = people_bounds(counts, maker, [goal], direction, solve_epsilon=True, rows=rows, progress=progress)[0].lower
    lower = np.zeros(len(counts))
    todo = np.flatnonzero(far > 0.0)
    points = np.linspace(0.0, 1.0, _intervals(min_delta) + 1)
    if share is not None:
        # delta at the end is known already
        out = np.empty(todo.size)
        dominate.least_mu_down(far[todo, None], np.full((todo.size, 1), goal), out)
        lower[todo] = out
        todo = todo[share[todo] < 1.0]
        points = _NEAR / np.sqrt(-2.0 * goal)
    for start in range(0, todo.size, _BLOCK):
        who = todo[start : start + _BLOCK]
        shares = points if share is None else np.clip(share[who, None] + points, 0.0, 1.0)
        epsilon = far[who, None] * shares
        # delta falls with epsilon, and at the last point it is at least min_delta
        curve = np.maximum(_curve(counts[who], maker, epsilon, min_delta, rows=rows)[:, :, 0], goal)
        out = np.empty(who.size)
        dominate.least_mu_down(epsilon, curve, out)
        lower[who] = np.maximum(lower[who], out)
    return lower


def _intervals(min_delta: float) -> int:
    """Intervals at first."""
    return int(np.ceil(np.sqrt(-2.0 * np.log(min_delta)) / _STEP))


def _curve(
    counts: NDArray,
    maker: SpectralMaker,
    epsilon: NDArray,
    min_delta: float,
    *,
    rows: NDArray | None = None,
    lower: bool = True,
) -> NDArray:
    """Bounds of log delta, (people, points, 2), in as many parts as one tilt needs each.

    Without `lower` the lower ends may be -inf.
    """
    count = int(np.ceil(-2.0 * np.log(min_delta) / _SPAN))
    parts = [epsilon[:, c] for c in np.array_split(np.arange(epsilon.shape[1]), count) if c.size]
    return np.concatenate([_part_of_curve(counts, maker, np.ascontiguousarray(p), rows, lower) for p in parts], axis=1)


def _part_of_curve(
    counts: NDArray, maker: SpectralMaker, epsilon: NDArray, rows: NDArray | None, lower: bool
) -> NDArray:
    curve = plancherel.curves(counts, maker, epsilon, rows=rows, lower=lower)
    costly = counts if rows is None else counts * (rows >= 0)
    once = costly.sum(axis=1) == 1
    lost = np.flatnonzero((curve[:, :, 1] >= 0.0).all(axis=1) & (epsilon[:, 0] > 0.0) & ~once)
    if lost.size:
        # The tilt is chosen for the middle of the range: another one, nearer to 0.
        points = epsilon.shape[1]
        near = epsilon[lost, :1] * np.linspace(0.0, 1.0, 3 * points, endpoint=False)
        wider = np.concatenate([near, epsilon[lost]], axis=1)
        curve[lost] = plancherel.curves(counts[lost], maker, wider, rows=rows, lower=lower)[:, 3 * points :]
    who, point = np.nonzero((curve[:, :, 1] >= 0.0) & ~once[:, None])
    for a in range(0, who.size, _PAIRS):
        i, j = who[a : a + _PAIRS], point[a : a + _PAIRS]
        ends = _point_by_point(counts[i], maker, epsilon[i, j], rows, solve_epsilon=False)
        curve[i, j] = np.stack([ends[0], np.minimum(ends[1], 0.0)], axis=1)
    once = np.flatnonzero(once)
    if once.size:
        bucket = np.argmax(costly[once] > 0, axis=1)
        curve[once] = _one_step(epsilon[once], maker, bucket if rows is None else rows[bucket])
    return curve


def _point_by_point(
    counts: NDArray, maker: SpectralMaker, target: NDArray, rows: NDArray | None, *, solve_epsilon: bool
) -> tuple[NDArray, NDArray]:
    """Lower and upper epsilon, or log delta, at a target of each row's own; (-inf or 0, inf) where lost."""
    lower, upper = np.full(len(counts), 0.0 if solve_epsilon else -np.inf), np.full(len(counts), np.inf)
    left = np.arange(len(counts))
    for limits in _ATTEMPTS:
        if not left.size:
            break
        found = plancherel.solve(
            counts[left], maker, target[left], solve_epsilon=solve_epsilon, rows=rows, limits=limits
        )  # fmt: skip
        good = found.solved & ~np.isnan(found.upper)
        lower[left[good]], upper[left[good]] = found.lower[good], found.upper[good]
        left = left[~good]
    return lower, upper


def _one_step(epsilon: NDArray, maker: SpectralMaker, bucket: NDArray) -> NDArray:
    """The curves of people with a single step, as `plancherel.curves` gives them."""
    direction = "remove" if maker.sign > 0 else "add"
    sigma, q = (np.broadcast_to(v[bucket, None], epsilon.shape) for v in (maker.sigma, maker.q))
    ends = []
    for side in (-1.0, 1.0):
        with np.errstate(invalid="ignore"):
            value = one_step.log_delta(epsilon * (1.0 - side * 2.0**-49), sigma, q, direction)
            ends.append(np.where(np.isneginf(value), value, value + side * one_step.SLACK * (1.0 - value)))
    return np.stack([ends[0], np.minimum(ends[1], 0.0)], axis=2)
