"""The smallest mu whose Gaussian curve lies above a privacy loss curve wherever that is at least min_delta.

Descriptive, not Gaussian DP: a subsampled Gaussian is dominated by no small mu at every epsilon.  What follows for a
sequence fixed beforehand is (epsilon, delta_Gauss(epsilon; mu) + min_delta)-DP for every epsilon >= 0.

The curve is bounded at some points; between them delta is convex in e^epsilon and lies below its chord
(`kernels.mu`).  Where a chord asks for more than its ends, more points are placed, and nowhere else.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import one_step, plancherel, renyi
from .solver import people_bounds
from .spectral import SpectralMaker

__all__ = ["LOSS", "mu_lower", "mu_upper", "unsampled_mu"]

LOSS = 5e-5
"""What the chords may add to the upper bound of mu, relative."""

_STEP = 0.2  # distance of the first points in standard deviations of the Gaussian
_SPLIT = 3  # each interval that is looked at again becomes so many, before rounding up
_ROUNDS = 4
_SPAN = 50.0  # one tilt serves a range of the curve of about this, in squared standard deviations
_LEAST = 8  # intervals
_BLOCK = 32_768

_PAIRS = 16_384
_ATTEMPTS = (
    plancherel.Limits(least_expectation=1e-6),
    *(plancherel.Limits(tilts=16, least_expectation=e) for e in (1e-2, 1e-4, 1e-7)),
)

_Grid = tuple[NDArray, NDArray, NDArray]


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
    Cost: about 40 microseconds a person, less with a good floor.
    """
    upper = np.zeros(len(counts)) if floor is None else floor.astype(np.float64)
    far = _end(counts, maker, direction, min_delta, patient)
    upper[np.isinf(far)] = np.inf
    todo = np.flatnonzero((far > 0.0) & np.isfinite(far))
    for start in range(0, todo.size, _BLOCK):
        who = todo[start : start + _BLOCK]
        grid = np.zeros(who.size), far[who], np.full(who.size, _intervals(min_delta))
        found, grid, again = _look(counts, who, maker, grid, upper[who], ceiling, min_delta)
        upper[who] = found[:, 1]
        for _ in range(_ROUNDS):
            who, known = who[again], found[again, 0]
            if not who.size:
                break
            found, grid, again = _look(counts, who, maker, grid, known, ceiling, min_delta)
            upper[who] = np.minimum(upper[who], found[:, 1])
    lost = np.flatnonzero(np.isinf(upper))
    upper[lost] = unsampled_mu(counts[lost], maker.sigma)
    return upper


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
    counts: NDArray, who: NDArray, maker: SpectralMaker, grid: _Grid, floor: NDArray, ceiling: float, min_delta: float
) -> tuple[NDArray, _Grid, NDArray]:
    """One round for these people.

    Returns
    -------
    found : ndarray, shape (people, 2)
        Smallest mu without, and with, the chords that ask for more.
    grid : tuple of ndarray
        Left end, right end and number of points to look at again, of those for whom it is worth it.
    again : ndarray of bool, shape (people,)
    """
    from .kernels import mu

    left, right, points = grid
    # few sizes, a factor of sqrt(2) apart, so that many people share a call
    intervals = np.ceil(_LEAST * 2.0 ** (0.5 * np.ceil(2.0 * np.log2(np.maximum(points, _LEAST) / _LEAST))))
    step = (right - left) / intervals
    found, hull = np.empty((who.size, 2)), np.empty((who.size, 2), dtype=np.int64)
    for one in np.unique(intervals):
        some = np.flatnonzero(intervals == one)
        epsilon = left[some, None] + step[some, None] * np.arange(int(one) + 1)
        epsilon[:, -1] = right[some]  # to the very end, whatever the rounding
        curve = np.ascontiguousarray(_curve(counts[who[some]], maker, epsilon, min_delta)[:, :, 1])
        out, ends = np.empty((some.size, 2)), np.empty((some.size, 2), dtype=np.int64)
        mu.least_mu_up(epsilon, curve, floor[some], np.full(some.size, ceiling), LOSS, out, ends)
        found[some], hull[some] = out, ends
    again = hull[:, 1] > 0
    left, step, hull = left[again], step[again], hull[again]
    return found, (left + step * hull[:, 0], left + step * hull[:, 1], _SPLIT * (hull[:, 1] - hull[:, 0])), again


def mu_lower(
    counts: NDArray, maker: SpectralMaker, direction: str, min_delta: float, *, rows: NDArray | None = None
) -> NDArray:
    """Lower bound of mu for every person, in one direction: from points at which delta is at least min_delta.

    Parameters
    ----------
    counts, maker, direction, min_delta
        As for `mu_upper`.
    rows : ndarray of int, shape (buckets,), optional
        The maker's bucket behind each column of counts; -1 for a bucket that costs nothing.

    Returns
    -------
    ndarray, shape (people,)
    """
    from .kernels import mu

    goal = float(np.log(min_delta))
    far = people_bounds(counts, maker, [goal], direction, solve_epsilon=True, rows=rows)[0].lower
    lower = np.zeros(len(counts))
    todo = np.flatnonzero(far > 0.0)
    share = np.linspace(0.0, 1.0, _intervals(min_delta) + 1)
    for start in range(0, todo.size, _BLOCK):
        who = todo[start : start + _BLOCK]
        epsilon = far[who, None] * share
        # delta falls with epsilon, and at the last point it is at least min_delta
        curve = np.maximum(_curve(counts[who], maker, epsilon, min_delta, rows=rows)[:, :, 0], goal)
        out = np.empty(who.size)
        mu.least_mu_down(epsilon, curve, out)
        lower[who] = out
    return lower


def _intervals(min_delta: float) -> int:
    """Intervals at first."""
    return int(np.ceil(np.sqrt(-2.0 * np.log(min_delta)) / _STEP))


def _curve(
    counts: NDArray, maker: SpectralMaker, epsilon: NDArray, min_delta: float, *, rows: NDArray | None = None
) -> NDArray:
    """Bounds of log delta, (people, points, 2), in as many parts as one tilt needs each."""
    count = int(np.ceil(-2.0 * np.log(min_delta) / _SPAN))
    parts = [epsilon[:, c] for c in np.array_split(np.arange(epsilon.shape[1]), count) if c.size]
    return np.concatenate([_part_of_curve(counts, maker, np.ascontiguousarray(p), rows) for p in parts], axis=1)


def _part_of_curve(counts: NDArray, maker: SpectralMaker, epsilon: NDArray, rows: NDArray | None) -> NDArray:
    curve = plancherel.curves(counts, maker, epsilon, rows=rows)
    costly = counts if rows is None else counts * (rows >= 0)
    once = costly.sum(axis=1) == 1
    lost = np.flatnonzero((curve[:, :, 1] >= 0.0).all(axis=1) & (epsilon[:, 0] > 0.0) & ~once)
    if lost.size:
        # The tilt is chosen for the middle of the range: another one, nearer to 0.
        points = epsilon.shape[1]
        near = epsilon[lost, :1] * np.linspace(0.0, 1.0, 3 * points, endpoint=False)
        wider = np.concatenate([near, epsilon[lost]], axis=1)
        curve[lost] = plancherel.curves(counts[lost], maker, wider, rows=rows)[:, 3 * points :]
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
