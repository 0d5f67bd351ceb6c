"""Counts and tables in, certified bounds out: one matrix product for everybody who shares a tilt, a period and a band.

For each person the cheapest tilt is chosen from log-moments (`tilting`).  People are grouped by (tilt, period, band);
each group's exponents are one matrix product with its table, and the inner product with the hockey-stick weight is
bounded person by person (`kernels.invert`).  A person whose error budget is not met moves on to a wider band or a
longer period.  A person who would need too many frequencies stays unsolved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from ..counting.counts import Counts, InterpolatedCounts
from ..deadline import OutOfTime
from ..kernels import _columns as c
from ..results import Method as Proof
from ..tables.interpolated import add_variance
from ..tables.table import Table, TableMaker, log_expm1
from ..threads import blocks, few, in_order
from .method import Progress, report
from .question import DeltaAt, Question
from .tilting import Limits, Plan, make_plan
from .working import WorkingBounds

__all__ = ["curves", "solve"]

_TOO_WIDE = 900  # level of a band that no limit allows
_BATCH_ELEMENTS = 12_000_000  # exponents of one matrix product: about 100 MB
_ROUNDS = 40  # of wider bands and longer periods


def _level(value: NDArray, per_octave: int) -> NDArray:
    """Index of the least power of 2^(1/per_octave) that is not below `value`."""
    return np.ceil(per_octave * np.log2(np.maximum(value, 1e-300)) - 1e-9).astype(np.int64)


def solve(
    counts: Counts,
    maker: TableMaker,
    question: Question,
    *,
    limits: Limits,
    hint: NDArray | None = None,
    band: NDArray | None = None,
    progress: Progress | None = None,
) -> WorkingBounds:
    """Bounds for every person.

    Parameters
    ----------
    counts : Counts
        Every person has at least one step.
    maker : TableMaker
        Makes the tables, in one direction.
    question : Question
    limits : Limits
    hint : ndarray, shape (people,), optional
        The answer as far as it is known (NaN: not at all); it improves the choice of tilts.
    band : ndarray, shape (people,), optional
        The least frequency up to which each person's table must go.
    progress : callable, optional
        Called with the number of people solved since the last call.

    Returns
    -------
    WorkingBounds

    **Cost**: two matrix products (people x buckets x tilts, people x buckets x 2 m), and m complex exponentials for
    each person.
    """
    people = len(counts)
    working = WorkingBounds.unknown(people, question)
    plan = make_plan(counts, maker, question, np.full(people, np.nan) if hint is None else hint, limits, band)
    working.renyi[:] = plan.renyi
    # The Renyi bound alone proves that epsilon is 0, or that delta is smaller than anybody asks.
    known = maker.whole & (plan.renyi <= (0.0 if question.wants_epsilon else limits.least_log_delta))
    at = np.flatnonzero(known)
    most = np.zeros(at.size) if question.wants_epsilon else plan.renyi[at]
    working.settle(at, question.floor, most, most, Proof.RENYI)
    report(progress, at.size)
    group = _Group(counts, maker, question, plan, limits)
    waiting = np.flatnonzero(~known & (plan.tilt >= 0))
    with suppress(OutOfTime):
        _solve_in_rounds(group, waiting, working, question, progress)
    return working


def _solve_in_rounds(
    group: _Group, waiting: NDArray, working: WorkingBounds, question: Question, progress: Progress | None
) -> None:
    """Wider bands and longer periods for the people who wait for them."""
    plan, limits = group.plan, group.limits
    period, width = 4 // limits.periods * _level(plan.period, limits.periods), _level(plan.width, 2)
    served = width - 1  # the widest band whose table could be made
    for _ in range(_ROUNDS):
        if not waiting.size:
            break
        again: list[NDArray] = []
        refused: list[NDArray] = []
        parts = group.with_tables(waiting, period, width, refused)
        for (table, part), out in in_order(group.bound, parts, alone=few(waiting.size)):
            new = ~working.solved[part]
            good, wide, long = _keep(working, part, out, limits, question)
            now = int(width[part[0]])
            served[part] = now
            if wide.any():
                width[part[wide]] = _wider_bands(group, part[wide], table, out[wide, c.BAND], now)
            period[part[long & ~wide]] += max(2, 4 // limits.periods)
            again.append(part[(wide | long) & ~good])
            report(progress, int((new & working.solved[part]).sum()))
        for part in refused:
            # half of the way to the band that was too costly
            width[part] = (served[part] + width[part]) // 2
            again.append(part[width[part] > served[part]])
        waiting = np.concatenate(again) if again else np.empty(0, dtype=np.int64)


def curves(counts: Counts, maker: TableMaker, epsilon: NDArray) -> NDArray:
    """Bounds of log delta at several epsilons of each person, all at one tilt.

    Parameters
    ----------
    counts, maker
        As for `solve`; the maker's tables are not on a grid of the loss.
    epsilon : ndarray, shape (people, points)
        Ascending, of each person.

    Returns
    -------
    ndarray, shape (people, points, 2)
        Lower and upper log delta; (-inf, 0) if the solve failed.  One tilt, chosen for the middle of the range, serves
        down to about 1e-12; further down the bounds stay valid and grow wide.
    """
    from ..kernels import invert

    people = len(counts)
    out = np.zeros((people, epsilon.shape[1], 2))
    out[:, :, 0] = -np.inf
    middle = 0.5 * (epsilon[:, 0] + epsilon[:, -1])
    limits = Limits(error=1e-13, least_expectation=1e-3, tilts=4)
    plan = make_plan(counts, maker, DeltaAt(middle), np.full(people, np.nan), limits)
    group = _Group(counts, maker, DeltaAt(middle), plan, limits)
    # the period must hold for the far end of the range as well
    period, width = _level(plan.period + epsilon[:, -1] - middle, 4), _level(1.2 * plan.width, 2)
    chosen = np.flatnonzero(plan.tilt >= 0)

    def bound(part: tuple[Table, NDArray]) -> NDArray:
        table, members = part
        exponents, helper = group.exponents(table, members), group.helper(table, members)
        some = np.empty((members.size, *out.shape[1:]))
        goals = np.ascontiguousarray(epsilon[members])
        invert.bound_curves(exponents, table.weight, table.setting(), helper, goals, some)
        return some

    for (_, part), some in in_order(bound, group.with_tables(chosen, period, width, []), alone=few(chosen.size)):
        out[part] = some
    return out


class _Group:
    """One question to people with a plan: groups, matrix products and kernels."""

    def __init__(self, counts: Counts, maker: TableMaker, question: Question, plan: Plan, limits: Limits) -> None:
        self.counts, self.maker, self.plan, self.limits = counts, maker, plan, limits
        self.target, self.wants_epsilon = question.targets(len(counts)), question.wants_epsilon

    def with_tables(
        self, people: NDArray, period: NDArray, width: NDArray, refused: list[NDArray]
    ) -> Iterator[tuple[Table, NDArray]]:
        """Parts of the groups that share a tilt, a period and a band, with the table of each.

        People who would need too many frequencies are skipped.  If the maker refuses a table, its group is appended to
        `refused`.
        """
        for group in _equal(self.plan.tilt[people], period[people], width[people]):
            members = people[group]
            one = members[0]
            p, w = 2.0 ** (period[one] / 4), 2.0 ** (width[one] / 2)
            if p * w / (2 * np.pi) > self.limits.frequencies:
                continue
            needed = np.zeros(self.maker.size, dtype=bool)
            for block in blocks(members.size):
                needed |= self.counts.used(members[block])
            theta = float(self.plan.theta[self.plan.tilt[one]])
            table = self.maker.table(theta, p, w, needed, self.limits.work)
            if table is None:
                refused.append(members)
                continue
            for block in blocks(members.size, _BATCH_ELEMENTS // table.columns.shape[1]):
                yield table, members[block]

    def exponents(self, table: Table, people: NDArray) -> NDArray:
        """The matrix product for people who share a table."""
        exponents = self.counts.times(table.columns, people)
        if table.variance is not None and isinstance(self.counts, InterpolatedCounts):
            add_variance(exponents, table, *self.counts.variances(people))
        return exponents

    def helper(self, table: Table, people: NDArray) -> NDArray:
        """The tilts that bound the aliasing of people who share a table."""
        helper = np.ascontiguousarray(self.plan.helper[people])
        if table.spread:
            steps = self.counts.times(np.ones((self.maker.size, 1)), people)[:, 0]
            for tilt in (c.TILT_ABOVE, c.TILT_BELOW):
                helper[:, tilt + 1] += steps * helper[:, tilt] * (1.0 + helper[:, tilt]) * table.spread
        return helper

    def bound(self, part: tuple[Table, NDArray]) -> NDArray:
        """The matrix product and the kernel for people who share a table."""
        table, people = part
        # several questions to one person share one row
        alike = people[:1] if self.counts.alike(people) else people
        exponents, helper = self.exponents(table, alike), self.helper(table, people)
        return _kernel(exponents, table, helper, self.target[people], self.wants_epsilon, self.plan.start[people])


def _kernel(
    exponents: NDArray, table: Table, helper: NDArray, target: NDArray, wants_epsilon: bool, start: NDArray
) -> NDArray:
    """The kernel for people who share a table: (people, 5), named in `kernels._columns`."""
    from ..kernels import invert

    out = np.empty((target.size, c.RESULTS))
    invert.bound_people(
        exponents,
        table.weight,
        table.setting(),
        helper,
        np.ascontiguousarray(target),
        wants_epsilon,
        table.large,
        np.ascontiguousarray(start),
        out,
    )
    return out


def _equal(*keys: NDArray) -> Iterator[NDArray]:
    """Indices of the people who share all keys, one array after another."""
    order = np.lexsort(keys[::-1])
    stacked = np.stack([k[order] for k in keys])
    edges = np.flatnonzero(np.any(stacked[:, 1:] != stacked[:, :-1], axis=0)) + 1
    yield from np.split(order, edges) if order.size else ()


def _keep(
    working: WorkingBounds, people: NDArray, out: NDArray, limits: Limits, question: Question
) -> tuple[NDArray, NDArray, NDArray]:
    """Keep what is proven; say who is within the budget, and whose band and whose period were too small."""
    with np.errstate(invalid="ignore"):
        wide = ~(out[:, c.BAND] <= 10.0 * limits.error)
        long = ~(out[:, c.ALIAS] <= 10.0 * limits.error)
    found = np.isfinite(out[:, c.UPPER])
    keep = people[found]
    lower = np.maximum(working.lower[keep], out[found, c.LOWER])
    upper = np.maximum(np.minimum(working.upper[keep], out[found, c.UPPER]), question.floor)
    working.settle(keep, lower, np.maximum(out[found, c.ESTIMATE], question.floor), upper, Proof.TRANSFORM)
    working.estimate[people[~found]] = out[~found, c.ESTIMATE]
    return found & ~(wide | long), wide, long


def _wider_bands(group: _Group, people: NDArray, table: Table, relative: NDArray, now: int) -> NDArray:
    """The next band of each of these people, as a level, from what the present band leaves out, relative to Q.

    It is the least band for which the envelope promises to leave out half of what is allowed.  If there is none, it is
    the widest band that the limits allow, provided that this leaves out a tenth of what is left out now and less than
    `Limits.useful`; else `_TOO_WIDE`.  If Q is lost (NaN), the present band is taken to leave out as much as Q.
    """
    if table.ladder is None or now < table.ladder[0]:
        # a grid's table reaches further than it was asked to
        reached = math.floor(2.0 * math.log2(table.frequencies * 2.0 * np.pi / table.period))
        return np.full(people.size, max(now, reached) + 1)
    first, envelope = table.ladder
    widest = math.floor(2.0 * math.log2(group.limits.frequencies * 2.0 * np.pi / table.period) + 1e-9)
    last = min(widest, first + envelope.shape[1] - 1)
    if last <= now:
        return np.full(people.size, _TOO_WIDE)
    levels = slice(now - first, last - first + 1)
    bound = group.counts.times(np.nan_to_num(envelope[:, levels]), people)
    if table.large_ladder is not None:
        bound += log_expm1(group.counts.times(table.large_ladder[:, levels], people))
    bound -= 0.5 * math.log(2.0) * np.arange(last - now + 1)
    with np.errstate(divide="ignore"):
        promised = np.log(np.where(np.isnan(relative), 1.0, relative))[:, None] + bound - bound[:, :1]
    enough = promised[:, 1:] <= math.log(5.0 * group.limits.error)
    useful = promised[:, -1] <= np.minimum(promised[:, 0] - math.log(10.0), math.log(group.limits.useful))
    return np.where(enough.any(axis=1), now + 1 + enough.argmax(axis=1), np.where(useful, last, _TOO_WIDE))
