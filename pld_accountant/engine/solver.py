"""From counts to `Bounds`: no step, one step, and the attempts in turn on everybody with more.

Whoever is still unsolved at the end is bounded by Renyi accounting, or by (0, inf) with a status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri_exp

from ..counting.interpolation import Counts, Shares
from ..mechanisms import one_step
from ..results import Bounds
from ..tables.characteristic import SpectralMaker
from ..tables.grid import LatticeMaker
from ..threads import blocks
from .convolution import DirectSum
from .plancherel import solve, solve_together
from .quick_bounds import addition_cap, addition_least, surely_zero
from .rare_losses.split import solve_split
from .schedule import FEW, FIRST, LOOSE, MANY, MANY_DELTA, SHARES, SHARES_DELTA, Split, Sums, Tables
from .tilting import renyi_bounds
from .working import Solution

__all__ = ["people_bounds"]

_HANDFUL = 256  # people times buckets that may each cost a table of their own
_LEAST_NOISE = 0.01  # the cells of a step's law cost time like 1 / sigma^2
_MOST_SUMS = 48
_LOST = 1e-6  # share of delta that laws that end near may leave out, all steps together
_LEVEL = 2.5  # many people's reach is a multiple of this where everybody's delta is another
_APART = 0.5  # standard deviations between deltas that are told apart where laws are split
_LOOKS = 3
_FAR = -25.0  # log delta below which many people's laws end from the first attempt on


def people_bounds(
    counts: NDArray,
    maker: SpectralMaker,
    targets: Sequence[float],
    direction: str,
    *,
    solve_epsilon: bool,
    rows: NDArray | None = None,
    shares: Shares | None = None,
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
    shares : Shares, optional
        Another way of counting the same steps, closer but in fractions: tables then are made for them first, and the
        counts serve whom that leaves open.  Only one side of the result is then a bound: the lower one if the shares
        are for the lower bound, else the upper.
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
    for block in blocks(people):
        some = counts[block] if costly.all() else counts[block][:, costly]
        total[block] = some.sum(axis=1, dtype=np.int64)
    many = np.flatnonzero(total > 1)
    jobs = [_Job(counts, maker, target, solve_epsilon, rows, total, shares) for target in targets]
    together = _together(jobs, many, progress)
    found = []
    cap = np.full(people, np.inf)
    if direction == "add" and not solve_epsilon:
        cap = addition_cap(counts, maker, rows)
    for job, before in zip(jobs, together, strict=True):
        target = job.target
        solution = Solution.empty(people, solve_epsilon)
        solution.settle(total == 0, *((0.0,) * 3 if solve_epsilon else (-np.inf,) * 3))
        once = np.flatnonzero(total == 1)
        if once.size:
            _one_step(solution, once, job, direction)
        if progress is not None and many.size < people:
            progress(people - many.size)
        if solve_epsilon:
            _many_steps(solution, many, job, before, progress)
            if direction == "add":
                _cap(solution, counts, maker, rows, target)
        else:
            # no loss reaches epsilon: delta is 0
            solution.settle(cap <= target, -np.inf, -np.inf, -np.inf)
            _many_steps(solution, many[cap[many] > target], job, before, progress)
        found.append(solution.as_bounds(solve_epsilon))
    return found


@dataclass(frozen=True)
class _Job:
    """What is asked, and of whom."""

    counts: Counts
    maker: SpectralMaker
    target: float
    solve_epsilon: bool
    rows: NDArray | None
    steps: NDArray
    shares: Shares | None = None

    @property
    def of_shares(self) -> _Job:
        """The same asked of the shares, where there are any."""
        if self.shares is None:
            return self
        target = self.shares.goal(self.target) if self.solve_epsilon else self.target
        maker = self.maker.variant(np.inf, lotteries=1)
        return replace(self, counts=self.shares, maker=maker, target=target, rows=None, shares=None)

    def log_negligible(self, log_delta: float) -> float:
        """Mass that a table may lose at each step: a millionth of a millionth of delta."""
        return max(log_delta - float(np.log(1e12 * self.steps.max(initial=1))), -700.0)

    def log_delta_of(self, solution: Solution, who: NDArray, less: float) -> NDArray:
        """About what log delta is of each; less: what to take off Renyi accounting's."""
        if self.solve_epsilon:
            return np.full(who.size, self.target)
        # Renyi accounting's delta is seldom more than e^15 times too large
        log_delta = np.fmin(np.fmin(solution.estimate[who], solution.upper[who]), solution.renyi[who] - less)
        return np.where(np.isnan(log_delta), -700.0, np.minimum(log_delta, 0.0))

    def reach(self, solution: Solution, who: NDArray, near: bool) -> NDArray:
        """How far the laws of these people have to reach: (people,) of few different numbers, see `SpectralMaker`."""
        log_delta = self.log_delta_of(solution, who, 4.0 if near else 15.0)
        if near:
            reach = -ndtri_exp(np.maximum(log_delta - np.log(self.steps.max(initial=1) / _LOST), -700.0))
            return reach if self.solve_epsilon else _LEVEL * np.ceil(reach / _LEVEL)
        least = np.array([self.log_negligible(float(d)) for d in log_delta])
        # log Phi(-r) <= -r^2 / 2 for every r >= 0
        return np.ceil(np.sqrt(-2.0 * least))


def _handful(job: _Job, who: NDArray) -> bool:
    """Whether there are so few people and buckets that each may cost some seconds."""
    if who.size > _HANDFUL:
        return False
    used = job.counts[who].any(axis=0)
    if job.rows is not None:
        used &= job.rows >= 0
    return who.size * int(used.sum()) <= _HANDFUL


@dataclass(frozen=True)
class _Before:
    """What is known from asking at several targets together, and of whom that is all there is to know; of everybody."""

    solution: Solution
    done: NDArray


def _together(jobs: Sequence[_Job], many: NDArray, progress: Callable[[int], None] | None) -> list[_Before]:
    """Ask at targets that lie close together with one tilt a person."""
    people = len(jobs[0].counts)
    found = [_Before(Solution.empty(people, j.solve_epsilon), np.zeros(people, dtype=bool)) for j in jobs]
    if len(jobs) == 1 or _handful(jobs[0], many):
        return found
    for cluster in _clusters(jobs):
        job = jobs[cluster[0]].of_shares
        targets = np.array([jobs[j].of_shares.target for j in cluster])
        solutions, done = solve_together(
            _some(job.counts, many), job.maker, targets, solve_epsilon=job.solve_epsilon, limits=FIRST.limits,
            rows=job.rows, progress=progress,
        )  # fmt: skip
        for j, solution, served in zip(cluster, solutions, done, strict=True):
            found[j].solution.merge(many, solution)
            found[j].done[many] = served
    return found


def _clusters(jobs: Sequence[_Job]) -> Iterator[list[int]]:
    """Which targets, two at least, one tilt may serve: it lies less than two standard deviations off for each."""
    if jobs[0].solve_epsilon:
        place, most = [np.sqrt(-2.0 * job.target) for job in jobs], 4.0
    else:
        place, most = [np.log(max(job.target, 1e-300)) for job in jobs], 0.5
    left = [int(j) for j in np.argsort(place)]
    while left:
        cluster = [j for j in left if place[j] <= place[left[0]] + most]
        left = left[len(cluster) :]
        if len(cluster) > 1:
            yield cluster


def _many_steps(
    solution: Solution, everybody: NDArray, job: _Job, before: _Before, progress: Callable[[int], None] | None
) -> None:
    """Everybody with more than one step: by shares, where there are any, and by counts whom these leave open."""
    told = int(before.done[everybody].sum())

    def tell(people: int) -> None:
        nonlocal told
        told += people
        if progress is not None:
            progress(people)

    few = _handful(job, everybody)
    by_shares, by_counts = (SHARES, MANY) if job.solve_epsilon else (SHARES_DELTA, MANY_DELTA)
    by_counts = FEW if few else by_counts
    if job.shares is None:
        solution.merge(everybody, before.solution.of(everybody))
        _attempt(solution, everybody, job, by_counts, before.done, tell)
    else:
        # a handful whose shares are their counts is served more exactly by these
        whole = job.shares.whole(everybody) if few else np.zeros(everybody.size, dtype=bool)
        who = everybody[~whole]
        trial = before.solution
        _attempt(trial, who, job.of_shares, by_shares, before.done, tell)
        left = everybody[whole | _open(trial, everybody, LOOSE, job)]
        _attempt(solution, left, job, by_counts)
        solution.take_better(trial, who, lower=job.shares.log_delta is not None)
    if told < everybody.size:
        tell(int(everybody.size) - told)


def _attempt(
    solution: Solution,
    everybody: NDArray,
    job: _Job,
    attempts: Sequence[Tables | Sums | Split],
    done: NDArray | None = None,
    tell: Callable[[int], None] | None = None,
) -> None:
    """Attempt after attempt on those who are left open, and Renyi accounting.

    done: whom the first attempt could serve no better.
    """
    if not everybody.size:
        return
    few = attempts is FEW
    for number, attempt in enumerate(attempts):
        if number == 1 and job.solve_epsilon and isinstance(job.counts, np.ndarray):
            # Few steps can leave delta(0) below delta where Renyi accounting does not see it.
            low = everybody[(solution.upper[everybody] > 0.0) & ~(solution.lower[everybody] > 0.0)]
            zero = surely_zero(job.counts, low, job.maker, job.target, job.rows)
            solution.settle(low[zero], 0.0, 0.0, 0.0)
        wanted = _open(solution, everybody, attempt, job)
        if number == 0 and done is not None:
            wanted &= ~done[everybody]
        left = everybody[wanted]
        most = attempt.most_people if job.solve_epsilon else min(attempt.most_people, attempt.most_people_delta)
        if not attempt.least_people <= left.size <= most:
            continue
        if isinstance(attempt, Sums):
            _directly(solution, left, job, attempt)
        elif isinstance(attempt, Split):
            _by_splitting(solution, left, job, attempt)
        elif number == 0:
            _by_tables(solution, left, job, attempt, few, tell)
        else:
            _by_tables(solution, left, job, attempt, few)
    _at_most_renyi(solution, everybody, job)


def _open(solution: Solution, who: NDArray, attempt: Tables | Sums | Split, job: _Job) -> NDArray:
    """Whom of these people the attempt may serve better than they are."""
    upper = solution.upper[who]
    with np.errstate(invalid="ignore"):
        apart = upper - solution.lower[who]
        relative = apart / upper
    done = solution.solved[who]
    if job.solve_epsilon:
        done &= (relative <= attempt.width) | (apart == 0.0)
    else:
        # log delta may err by more than epsilon: by about theta epsilon, the decay that both share
        known = np.fmin(upper, solution.renyi[who])
        done &= apart <= attempt.width * np.clip(np.nan_to_num(-known, nan=1.0), 1.0, 700.0)
        # Renyi accounting's bound will do
        done |= known <= (attempt if isinstance(attempt, Sums) else attempt.limits).least_log_delta
    steps = job.steps[who]
    return ~done & (attempt.least_steps <= steps) & (steps <= attempt.most_steps)


def _by_tables(
    solution: Solution,
    left: NDArray,
    job: _Job,
    attempt: Tables,
    few: bool,
    tell: Callable[[int], None] | None = None,
) -> None:
    for who, maker, log_negligible in _makers(job, attempt, few, solution, left):
        ask = partial(
            solve,
            _some(job.counts, who),
            target=np.full(who.size, job.target),
            solve_epsilon=job.solve_epsilon,
            rows=job.rows,
            hint=solution.estimate[who],
            limits=attempt.limits,
        )
        if not attempt.lattice:
            # the spectral tables serve both sides at once
            found = ask(maker, progress=tell)
            if maker.whole:
                solution.renyi[who] = np.fmin(solution.renyi[who], found.renyi)
        else:
            found = ask(LatticeMaker(maker, "upper", attempt.lattice, log_negligible))
            below = ask(LatticeMaker(maker, "lower", attempt.lattice, log_negligible))
            found.lower, found.solved = below.lower, found.solved & below.solved
        solution.merge(who, found)


def _some(counts: Counts, who: NDArray) -> Counts:
    """These people's, without a copy where they are all or are shares."""
    if who.size == len(counts):
        return counts
    return counts.of(who) if isinstance(counts, Shares) else counts[who]


def _makers(
    job: _Job, attempt: Tables, few: bool, solution: Solution, left: NDArray
) -> Iterator[tuple[NDArray, SpectralMaker, float]]:
    """Who of those left is to be asked of which maker, and the mass that a lattice may lose.

    A lattice ends sooner than its spectral maker, whose log-moments then bound it.
    """
    order = 1 + attempt.second if job.maker.lotteries else 0
    near = attempt.ends == "near" or (job.solve_epsilon and job.target < _FAR and not few)
    if job.maker.sign < 0 or not (attempt.ends or near):
        maker = job.maker.variant(np.inf, lotteries=order)
        yield left, maker, job.log_negligible(job.target) if job.solve_epsilon else -700.0
        return
    reach = job.reach(solution, left, near)
    for r in np.unique(reach):
        maker = job.maker.variant(float(r) if near else float(r) + 2.0, lotteries=order)
        yield left[reach == r], maker, -0.5 * float(r) ** 2


def _by_splitting(solution: Solution, left: NDArray, job: _Job, attempt: Split) -> None:
    """Small losses and large ones; people of about the same delta together."""
    if job.maker.sign < 0:
        return
    least, most = attempt.log_delta
    before = np.full(left.size, np.nan)
    for _ in range(_LOOKS):
        log_delta = job.log_delta_of(solution, left, 4.0)
        if not job.solve_epsilon:
            log_delta = -0.5 * (_APART * np.round(np.sqrt(-2.0 * log_delta) / _APART)) ** 2
        # what is learnt about delta moves the places
        asked = (log_delta != before) & (least < log_delta) & (log_delta <= most)
        asked &= _open(solution, left, attempt, job)
        for level in np.unique(log_delta[asked]):
            who = left[asked & (log_delta == level)]
            found = solve_split(
                _some(job.counts, who), job.maker, job.target, solve_epsilon=job.solve_epsilon, rows=job.rows,
                limits=attempt.limits, reaches=[place * float(np.sqrt(-2.0 * level)) for place in attempt.places],
                nearer=attempt.nearer, alone=attempt.alone, blur=attempt.blur, width=attempt.wanted,
                far=float(job.reach(solution, who[:1], near=False)[0]) + 2.0,
            )  # fmt: skip
            solution.merge(who, found)
        before = log_delta


def _directly(solution: Solution, left: NDArray, job: _Job, attempt: Sums) -> None:
    """Person by person, by `direct`: all whose steps are the sum of few partial sums."""
    for person in left:
        row, counts = job.counts[person].astype(np.int64), np.zeros(job.maker.buckets, dtype=np.int64)
        if job.rows is None:
            counts += row
        else:
            np.add.at(counts, job.rows[job.rows >= 0], row[job.rows >= 0])
        if job.maker.sigma[counts > 0].min() < _LEAST_NOISE:
            continue
        composition = DirectSum(job.maker.sigma, job.maker.q, job.maker.sign, counts)
        if composition.tree.sums > _MOST_SUMS:
            continue
        found = Solution.empty(1, job.solve_epsilon)
        known = 1.0 if job.solve_epsilon else min(max(-np.nan_to_num(solution.renyi[person], nan=-1.0), 1.0), 700.0)
        lower, upper = composition.bounds(
            job.target, job.solve_epsilon, attempt.wanted * known, attempt.pairs / left.size
        )
        found.settle(np.array([0]), lower, (2.0 * lower + upper) / 3.0 if np.isfinite(lower) else upper, upper)
        found.solved &= np.isfinite(upper)
        solution.merge(np.array([person]), found)


def _at_most_renyi(solution: Solution, everybody: NDArray, job: _Job) -> None:
    """Nobody is left with more than Renyi accounting says, nor without a bound if that has one."""
    unsolved = everybody[~solution.solved[everybody]]
    unknown = unsolved[np.isnan(solution.renyi[unsolved])]
    if unknown.size:
        solution.renyi[unknown] = renyi_bounds(
            job.counts[unknown], job.maker, job.rows, np.full(unknown.size, job.target), job.solve_epsilon
        )
    renyi = solution.renyi[everybody]
    most = np.maximum(renyi, 0.0) if job.solve_epsilon else np.minimum(renyi, 0.0)
    better = np.isfinite(renyi) & (most < solution.upper[everybody])
    solution.settle(everybody[better], solution.lower[everybody[better]], most[better], most[better])


def _cap(solution: Solution, counts: NDArray, maker: SpectralMaker, rows: NDArray | None, log_delta: float) -> None:
    """Bound epsilon under addition by the largest loss, of those of whom little else is known."""
    open_below = np.flatnonzero(~(solution.solved & (solution.lower > 0.0)))
    most = addition_cap(counts[open_below], maker, rows)
    lower = most < solution.upper[open_below]
    capped, most = open_below[lower], most[lower]
    solution.settle(capped, addition_least(counts, capped, maker, rows, log_delta), most, most)


def _one_step(solution: Solution, once: NDArray, job: _Job, direction: str) -> None:
    """Everybody with a single step: the closed form of each bucket, or of each lottery, looked up."""
    maker, counts, rows = job.maker, job.counts, job.rows
    if job.shares is not None:
        parts = [job.shares.one_step(once[block]) for block in blocks(once.size)]
        bucket, share = (np.concatenate(values) for values in zip(*parts, strict=True))
        # the shares are few numbers
        drawn, bucket = np.unique(np.stack([bucket, share]), axis=1, return_inverse=True)
        at = drawn[0].astype(np.int64)
        sigma = np.stack([np.where(job.shares.free[at], np.inf, maker.sigma[at - 1]), maker.sigma[at]])
        target = job.shares.goal(job.target) if job.solve_epsilon else job.target
        lower, upper = one_step.lottery_bounds(
            target, sigma, maker.q[at], drawn[1], direction, solve_epsilon=job.solve_epsilon
        )
        bucket = bucket.reshape(-1)
    else:
        if job.solve_epsilon:
            lower, upper = one_step.epsilon_bounds(float(np.exp(job.target)), maker.sigma, maker.q, direction)
        else:
            lower, upper = one_step.log_delta_bounds(job.target, maker.sigma, maker.q, direction)
        costly = counts[once] > 0 if rows is None else (counts[once] > 0) & (rows >= 0)
        column = np.argmax(costly, axis=1)
        bucket = column if rows is None else rows[column]
    with np.errstate(invalid="ignore"):
        middle = np.where(np.isfinite(lower), 0.5 * (lower + upper), upper)
    solution.settle(once, lower[bucket], middle[bucket], upper[bucket])
