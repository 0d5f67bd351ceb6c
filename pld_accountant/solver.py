"""From counts to `Bounds`: the closed form for one step, spectral tables, direct composition, and the lattice.

The order is that of cost: few steps are composed directly as soon as the first, cheap table has failed, many only
after the second.  Whatever is still unsolved at the end is (0, inf) with a status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtri_exp

from . import one_step
from .bounds import Bounds, Status
from .direct import DirectSum
from .lattice import LatticeMaker
from .parallel import in_order
from .plancherel import Limits, Moments, Solution, renyi_bounds, shared_moments, solve
from .spectral import SpectralMaker

__all__ = ["people_bounds"]

_MANY = 64  # fewer people than this may each cost a table of their own
_BLOCK = 8_192
_ATTEMPTS = 6
_SPECTRAL = 3
# The attempts before which steps are composed directly: for how many people at most, how many steps at least and at
# most, and how many pairs of atoms, all people together.
_DIRECT = ((1, 4, 0, 128, 3e8), (1, 1_000, 0, 2, 8e8), (2, 4, 129, 2**62, 3e8), (4, 1_000, 0, 2**62, 8e8))
_DIRECT_WIDTH = 1e-6
_LEAST_NOISE = 0.01  # the cells of a step's law cost time like 1 / sigma^2
_MOST_SUMS = 48
_NOT_ON_A_LATTICE = 1_000  # more people than this would take minutes on a lattice
_LOST = 1e-6  # share of delta that laws may leave out, all steps together, where that is all that helps
_LEVEL = 1.5  # many people's reach is a multiple of this where everybody's delta is another
_FAR = -25.0  # log delta below which many people's laws end from the first attempt on
# log delta below which Renyi accounting's upper bound will do for many people: 1e-70, and 1e-30 where two attempts
# left a person open
_TINY, _SMALL = -160.0, -70.0


def people_bounds(
    counts: NDArray,
    maker: SpectralMaker,
    targets: Sequence[float],
    direction: str,
    *,
    solve_epsilon: bool,
    rows: NDArray | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Bounds]:
    """Bounds of epsilon or of delta for every person at several targets, in one direction.

    Parameters
    ----------
    counts : ndarray of integers, shape (people, buckets)
    maker : SpectralMaker
        Of that direction.
    targets : sequence of float
        log delta if `solve_epsilon`, else epsilon.
    rows : ndarray of int, shape (buckets,), optional
        The maker's bucket behind each column of counts; -1 for a bucket that costs nothing.
    progress : callable, optional
        Called with the number of people and targets done since the last call.

    Returns
    -------
    list of Bounds
        One a target, of arrays of shape (people,); of epsilon, or of delta itself.
    """
    people = len(counts)
    costly = np.ones(counts.shape[1], dtype=bool) if rows is None else rows >= 0
    total = np.empty(people, dtype=np.int64)
    for a in range(0, people, _BLOCK):
        block = counts[a : a + _BLOCK]
        total[a : a + _BLOCK] = (block if costly.all() else block[:, costly]).sum(axis=1, dtype=np.int64)
    many = np.flatnonzero(total > 1)
    shared = None
    if len(targets) > 1 and many.size:
        goals = np.repeat(np.asarray(targets)[:, None], many.size, axis=1)
        some = counts if many.size == people else counts[many]
        shared = shared_moments(some, maker, rows, goals, solve_epsilon=solve_epsilon)
    found = []
    cap = np.full(people, np.inf)
    if direction == "add" and not solve_epsilon:
        cap = _addition_cap(counts, maker, rows)
    for target in targets:
        solution = Solution.empty(people, solve_epsilon)
        _settle(solution, total == 0, *((0.0,) * 3 if solve_epsilon else (-np.inf,) * 3))
        once = np.flatnonzero(total == 1)
        if once.size:
            _one_step(solution, once, counts, maker, target, direction, solve_epsilon, rows)
        if progress is not None and many.size < people:
            progress(people - many.size)
        job = _Job(counts, maker, target, solve_epsilon, rows, int(total.max(initial=1)), progress)
        if solve_epsilon:
            _many_steps(solution, many, job, shared)
            if direction == "add":
                _cap(solution, counts, maker, rows, target)
        else:
            # no loss reaches epsilon: delta is 0
            _settle(solution, cap <= target, -np.inf, -np.inf, -np.inf)
            _many_steps(solution, many[cap[many] > target], job, None if np.any(cap <= target) else shared)
        found.append(_as_bounds(solution, solve_epsilon))
    return found


@dataclass(frozen=True)
class _Job:
    """What is asked, and of whom."""

    counts: NDArray
    maker: SpectralMaker
    target: float
    solve_epsilon: bool
    rows: NDArray | None
    most_steps: int
    progress: Callable[[int], None] | None

    def log_negligible(self, log_delta: float) -> float:
        """Mass that a table may lose at each step: a millionth of a millionth of delta."""
        return max(log_delta - float(np.log(1e12 * self.most_steps)), -700.0)

    def reach(self, solution: Solution, who: NDArray, short: bool) -> NDArray:
        """How far the laws of these people have to reach: (people,) of few different numbers, see `SpectralMaker`."""
        if self.solve_epsilon:
            log_delta = np.full(who.size, self.target)
        else:
            # Renyi accounting's delta is seldom more than e^15 times too large
            log_delta = np.fmin(solution.estimate[who], solution.renyi[who] - (4.0 if short else 15.0))
        log_delta = np.where(np.isnan(log_delta), -700.0, np.minimum(log_delta, 0.0))
        if short:
            reach = -ndtri_exp(np.maximum(log_delta - np.log(self.most_steps / _LOST), -700.0))
            return reach if self.solve_epsilon else _LEVEL * np.ceil(reach / _LEVEL)
        least = np.array([self.log_negligible(float(d)) for d in log_delta])
        # log Phi(-r) <= -r^2 / 2 for every r >= 0
        return np.ceil(np.sqrt(-2.0 * least))


def _many_steps(solution: Solution, left: NDArray, job: _Job, shared: Moments | None) -> None:
    """Everybody with more than one step: attempt after attempt on those who are left.

    Whom none serves is bounded by Renyi accounting (from the first attempt's log-moments, of the whole laws) and by 0.
    """
    everybody = left
    for number in range(_ATTEMPTS):
        if left.size > _most_people(number, job.solve_epsilon):
            continue
        least_width, limits, size = _attempt(number, left.size)
        width: NDArray | float = least_width
        if left.size > _MANY and not job.solve_epsilon:
            known = np.fmin(solution.upper[left], solution.renyi[left])
            if number > 1:
                left, known = left[known > _SMALL], known[known > _SMALL]
            width = least_width * _depth(known)
        left = left[_wider(solution, left, width, job.solve_epsilon, limits.least_log_delta)]
        if number == 1 and job.solve_epsilon:
            # Few steps can leave delta(0) below delta where Renyi accounting does not see it.
            zero = _surely_zero(job.counts, left, job.maker, job.target, job.rows)
            _settle(solution, left[zero], 0.0, 0.0, 0.0)
            left = left[~zero]
        direct = next((asked for asked in _DIRECT if asked[0] == number and left.size <= asked[1]), None)
        if direct is not None:
            _directly(solution, left, job, *direct[2:])
            width = max(least_width, _DIRECT_WIDTH) * (1.0 if job.solve_epsilon else _depth(solution.upper[left]))
            left = left[_wider(solution, left, width, job.solve_epsilon, limits.least_log_delta)]
        if not left.size:
            break
        for who, maker, log_negligible in _makers(job, number, solution, left):
            ask = partial(
                solve,
                job.counts if who.size == len(job.counts) else job.counts[who],
                target=np.full(who.size, job.target),
                solve_epsilon=job.solve_epsilon,
                rows=job.rows,
                hint=solution.estimate[who],
                limits=limits,
            )
            if not size:
                # the spectral tables serve both sides at once
                found = ask(maker, shared=shared if number == 0 and maker is job.maker else None, progress=job.progress)
            else:
                found = ask(LatticeMaker(maker, "upper", size, log_negligible), progress=job.progress)
                below = ask(LatticeMaker(maker, "lower", size, log_negligible))
                found.lower, found.solved = below.lower, found.solved & below.solved
            _merge(solution, who, found)
            if number == 0 and maker.whole:
                solution.renyi[who] = found.renyi
    rest = everybody[~solution.solved[everybody]]
    unknown = rest[np.isnan(solution.renyi[rest])]
    if unknown.size:
        solution.renyi[unknown] = renyi_bounds(
            job.counts[unknown], job.maker, job.rows, np.full(unknown.size, job.target), job.solve_epsilon
        )
    rest = rest[np.isfinite(solution.renyi[rest])]
    bound = np.maximum(solution.renyi[rest], 0.0) if job.solve_epsilon else np.minimum(solution.renyi[rest], 0.0)
    _settle(solution, rest, 0.0 if job.solve_epsilon else -np.inf, bound, bound)
    if job.progress is not None and rest.size:
        job.progress(int(rest.size))


def _most_people(number: int, solve_epsilon: bool) -> float:
    """For how many an attempt is not too costly."""
    if number > _SPECTRAL:
        return _NOT_ON_A_LATTICE
    return np.inf if solve_epsilon or number < _SPECTRAL else _MANY


def _depth(log_delta: NDArray | float) -> NDArray:
    """By how much more log delta may err than epsilon: about theta epsilon, the decay that both share."""
    return np.clip(np.nan_to_num(-np.asarray(log_delta), nan=1.0), 1.0, 700.0)


def _directly(solution: Solution, left: NDArray, job: _Job, least: int, most: int, pairs: float) -> None:
    """Person by person, by `direct`: all with so many steps that are the sum of few partial sums."""
    few = left.size <= _MANY
    for person in left:
        row, counts = job.counts[person].astype(np.int64), np.zeros(job.maker.buckets, dtype=np.int64)
        if job.rows is None:
            counts += row
        else:
            np.add.at(counts, job.rows[job.rows >= 0], row[job.rows >= 0])
        if not least <= counts.sum() <= most or job.maker.sigma[counts > 0].min() < _LEAST_NOISE:
            continue
        composition = DirectSum(job.maker.sigma, job.maker.q, job.maker.sign, counts)
        if composition.tree.sums > _MOST_SUMS:
            continue
        found = Solution.empty(1, job.solve_epsilon)
        wanted = 0.2 * _DIRECT_WIDTH if few else 1e-4
        wanted *= 1.0 if job.solve_epsilon else float(_depth(solution.renyi[person]))
        lower, upper = composition.bounds(job.target, job.solve_epsilon, wanted, pairs / left.size)
        _settle(found, np.array([0]), lower, (2.0 * lower + upper) / 3.0 if np.isfinite(lower) else upper, upper)
        found.solved &= np.isfinite(upper)
        _merge(solution, np.array([person]), found)


def _makers(
    job: _Job, number: int, solution: Solution, left: NDArray
) -> Iterator[tuple[NDArray, SpectralMaker, float]]:
    """Who of those left is to be asked of which maker, and the mass that a lattice may lose.

    After the first attempt, or where delta is small, the laws of removal end where next to nothing is left of delta:
    their far tails would keep larger tilts from being used.  A lattice ends sooner still, so that the log-moments bound
    it.
    """
    many = left.size > _MANY
    if job.maker.sign < 0 or (number == 0 and not (many and job.solve_epsilon and job.target < _FAR)):
        maker = job.maker if many or number == 0 else job.maker.variant(np.inf, True)
        yield left, maker, job.log_negligible(job.target) if job.solve_epsilon else -700.0
        return
    short = many or number == _SPECTRAL
    reach = job.reach(solution, left, short)
    for r in np.unique(reach):
        maker = job.maker.variant(float(r) if short else float(r) + 2.0, not many)
        yield left[reach == r], maker, -0.5 * float(r) ** 2


def _cap(solution: Solution, counts: NDArray, maker: SpectralMaker, rows: NDArray | None, log_delta: float) -> None:
    """Bound epsilon under addition by the largest loss, of those of whom little else is known."""
    open_below = np.flatnonzero(~(solution.solved & (solution.lower > 0.0)))
    most = _addition_cap(counts[open_below], maker, rows)
    lower = most < solution.upper[open_below]
    capped, most = open_below[lower], most[lower]
    _settle(solution, capped, _addition_least(counts, capped, maker, rows, log_delta), most, most)


def _addition_cap(counts: NDArray, maker: SpectralMaker, rows: NDArray | None) -> NDArray:
    """The largest loss under addition, inf with full-batch steps: one step's is at most -log(1 - q)."""
    with np.errstate(divide="ignore"):
        most = -np.log1p(-maker.q) * (1.0 + 2.0**-50)
    if rows is not None:
        most = np.where(rows >= 0, most[rows], 0.0)
    full = np.isinf(most)
    most = np.where(full, 0.0, most)

    def cap(block: slice) -> NDArray:
        steps = counts[block].astype(np.float64)
        total = steps @ most * (1.0 + 1e-12)
        if full.any():
            total[steps[:, full].any(axis=1)] = np.inf
        return total

    blocks = (slice(a, a + _BLOCK) for a in range(0, len(counts), _BLOCK))
    caps = [found for _, found in in_order(cap, blocks, alone=len(counts) <= _BLOCK)]
    return np.concatenate(caps) if caps else np.zeros(0)


def _addition_least(
    counts: NDArray, who: NDArray, maker: SpectralMaker, rows: NDArray | None, log_delta: float
) -> NDArray:
    """An epsilon that addition's surely is not below, from the event that no step's loss is below its value at -r.

    Under addition the loss falls in x ~ N(0, sigma^2), so with probability Phi(-r)^steps all steps together lose at
    least l, the sum of their losses at x = -r sigma; then delta(epsilon) >= Phi(-r)^steps (1 - exp(epsilon - l)).
    """
    if not who.size:
        return np.zeros(0)
    r = np.linspace(-8.0, 38.0, 737)
    x = np.multiply.outer(maker.sigma, -r)
    t = (2.0 * x - 1.0) / (2.0 * maker.sigma[:, None] ** 2)
    with np.errstate(over="ignore", divide="ignore"):
        loss = -np.log1p(maker.q[:, None] * np.expm1(np.minimum(t, 700.0)))
    if rows is not None:
        loss = np.where(rows[:, None] >= 0, loss[rows], 0.0)
    some = counts[who].astype(np.float64)
    together = some @ loss
    steps = some.sum(axis=1) if rows is None else some[:, rows >= 0].sum(axis=1)
    log_share = log_delta - steps[:, None] * log_ndtr(-r) * (1.0 + 1e-12)
    with np.errstate(invalid="ignore", divide="ignore"):
        epsilon = together - 1e-12 * (some @ np.abs(loss)) + np.log1p(-np.exp(np.minimum(log_share, 0.0)))
    return np.maximum(epsilon.max(axis=1), 0.0)


def _surely_zero(
    counts: NDArray, many: NDArray, maker: SpectralMaker, log_delta: float, rows: NDArray | None
) -> NDArray:
    """Whether delta(0) is at most delta, because total variation distances add up under composition."""
    zero = np.zeros(maker.buckets)
    once = np.exp(one_step.log_delta(zero, maker.sigma, maker.q, "remove")) * (1.0 + one_step.SLACK)
    if rows is not None:
        once = np.where(rows >= 0, once[rows], 0.0)
    total = np.concatenate(
        [counts[many[a : a + _BLOCK]].astype(np.float64) @ once for a in range(0, many.size, _BLOCK)] or [zero[:0]]
    )
    return total * (1.0 + 1e-12) <= np.exp(log_delta)


def _attempt(number: int, people: int) -> tuple[float, Limits, int]:
    """How wide the bounds must be to be worth it, the limits, and the lattice's size (0: spectral tables).

    Few people may cost more each.
    """
    few = people <= _MANY
    tiny = Limits().least_log_delta if few else _TINY
    if number == 0:
        return 0.0, Limits() if few else Limits(least_expectation=1e-6, least_log_delta=tiny, frequencies=256), 0
    if number < 4 and few:
        least = (1e-2, 1e-4, 1e-7)[number - 1]
        return 1e-7, Limits(tilts=16, frequencies=1 << 17, least_expectation=least, least_log_delta=tiny), 0
    if number < 4:
        # what round-off adds at such expectations is nothing beside the buckets
        width, tilts, most = ((1e-4, 8, 512), (1e-3, 16, 512), (1e-3, 16, 4096))[number - 1]
        return width, Limits(tilts=tilts, frequencies=most, least_expectation=1e-12, least_log_delta=tiny), 0
    size = (1 << 17 if few else 1 << 14) if number == 4 else (1 << 20 if few else 1 << 15)
    return 1e-6 if few else 1e-3, Limits(tilts=16, frequencies=size, least_expectation=1e-5, least_log_delta=tiny), size


def _wider(
    solution: Solution, who: NDArray, width: float | NDArray, solve_epsilon: bool, least_log_delta: float
) -> NDArray:
    """Whose bounds are missing, or further apart than `width`: relative for epsilon, absolute for log delta."""
    with np.errstate(invalid="ignore"):
        found = solution.upper[who] - solution.lower[who]
        scale = solution.upper[who] if solve_epsilon else 1.0
        enough = found <= width * scale
    if not solve_epsilon:
        enough |= solution.upper[who] <= least_log_delta
    return ~(solution.solved[who] & enough)


def _settle(
    solution: Solution, who: NDArray, lower: NDArray | float, estimate: NDArray | float, upper: NDArray | float
) -> None:
    solution.lower[who], solution.estimate[who], solution.upper[who] = lower, estimate, upper
    solution.solved[who] = True


def _merge(solution: Solution, who: NDArray, found: Solution) -> None:
    """Take over what was found; where both attempts are certified the intersection is."""
    guess = ~found.solved & np.isfinite(found.estimate) & ~solution.solved[who]
    solution.estimate[who[guess]] = found.estimate[guess]
    keep = who[found.solved]
    lower, upper = found.lower[found.solved], found.upper[found.solved]
    better = ~(upper - lower >= solution.upper[keep] - solution.lower[keep])
    estimate = np.where(better, found.estimate[found.solved], solution.estimate[keep])
    _settle(solution, keep, np.maximum(lower, solution.lower[keep]), estimate, np.minimum(upper, solution.upper[keep]))


def _one_step(
    solution: Solution, once: NDArray, counts: NDArray, maker: SpectralMaker, target: float, direction: str,
    solve_epsilon: bool, rows: NDArray | None,
) -> None:  # fmt: skip
    """Everybody with a single step: the closed form of each bucket, looked up."""
    if solve_epsilon:
        lower, upper = one_step.epsilon_bounds(float(np.exp(target)), maker.sigma, maker.q, direction)
    else:
        lower, upper = one_step.log_delta_bounds(target, maker.sigma, maker.q, direction)
    column = (
        np.argmax(counts[once] > 0, axis=1) if rows is None else np.argmax((counts[once] > 0) & (rows >= 0), axis=1)
    )
    bucket = column if rows is None else rows[column]
    with np.errstate(invalid="ignore"):
        middle = np.where(np.isfinite(lower), 0.5 * (lower + upper), upper)
    _settle(solution, once, lower[bucket], middle[bucket], upper[bucket])


def _as_bounds(solution: Solution, solve_epsilon: bool) -> Bounds:
    solution.solved &= ~np.isnan(solution.upper)
    lower, upper = np.where(
        solution.solved, [solution.lower, solution.upper], [[0.0 if solve_epsilon else -np.inf], [np.inf]]
    )
    estimate = np.where(solution.solved, np.clip(solution.estimate, lower, upper), np.nan)
    with np.errstate(invalid="ignore"):
        middle = np.where(np.isfinite(lower), 0.5 * (lower + upper), upper)
    estimate = np.where(solution.solved & np.isnan(estimate), middle, estimate)
    if not solve_epsilon:
        # exp rounds to nearest, which matters where it underflows: one double down, one double up
        lower = np.nextafter(np.exp(np.minimum(lower, 0.0)), 0.0)
        estimate = np.exp(np.minimum(estimate, 0.0))
        above = np.minimum(np.nextafter(np.exp(np.minimum(upper, 0.0)), 2.0), 1.0)
        upper = np.where(solution.solved, np.where(np.isneginf(upper), 0.0, above), np.inf)
    status = np.where(solution.solved, Status.CERTIFIED, Status.NOT_CERTIFIED).astype(np.uint8)
    return Bounds(lower, estimate, upper, status=status)
