"""Counts and tables in, certified bounds out: one matrix product for everybody who shares a tilt, a period and a band.

For each person the cheapest tilt is chosen from log-moments (one matrix product), people are grouped by (tilt, period,
band), each group's exponents are one matrix product with its table, and the inner product with the hockey-stick weight
is bounded and solved person by person (`kernels.plancherel`).  A person whose error budget is not met moves on to a
wider band or a longer period; one who would need too many frequencies is left to the caller.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..counting.interpolation import Counts, Shares
from ..tables.interpolated import add_second_order
from ..tables.table import Maker, Table, log_expm1
from ..threads import blocks, few, in_order
from .tilting import Limits, Plan, make_plan, seen_by_columns
from .working import Solution

__all__ = ["curves", "solve", "solve_together"]

_TOO_WIDE = 900  # level of a band that no limit allows
_USEFUL = 0.03  # what a band may leave out, relative to Q, to be worth anything
_BATCH_ELEMENTS = 12_000_000  # exponents of one matrix product: stays near 100 MB


def _kernels() -> Any:
    """The compiled kernels, imported when first needed."""
    from ..kernels import invert

    return invert


def _level(value: NDArray, per_octave: int) -> NDArray:
    """Index of the least power of 2^(1/per_octave) that is not below `value`."""
    return np.ceil(per_octave * np.log2(np.maximum(value, 1e-300)) - 1e-9).astype(np.int64)


def _groups(*keys: NDArray) -> Iterator[NDArray]:
    """Indices of the people who share all keys, one array after another."""
    order = np.lexsort(keys[::-1])
    stacked = np.stack([k[order] for k in keys])
    edges = np.flatnonzero(np.any(stacked[:, 1:] != stacked[:, :-1], axis=0)) + 1
    yield from np.split(order, edges) if order.size else ()


def _finish(solution: Solution, people: NDArray, out: NDArray, limits: Limits, solve_epsilon: bool) -> tuple:
    """Keep what is proven; say who is within the budget, and whose band and whose period were too small."""
    with np.errstate(invalid="ignore"):
        wide = ~(out[:, 3] <= 10.0 * limits.error)
        long = ~(out[:, 4] <= 10.0 * limits.error)
    found = np.isfinite(out[:, 2])
    keep = people[found]
    floor = 0.0 if solve_epsilon else -np.inf
    solution.lower[keep] = np.maximum(solution.lower[keep], out[found, 0])
    solution.upper[keep] = np.maximum(np.minimum(solution.upper[keep], out[found, 2]), floor)
    solution.solved[keep] = True
    solution.estimate[people] = np.where(found, np.maximum(out[:, 1], floor), out[:, 1])
    return found & ~(wide | long), wide, long


def _wider_bands(
    counts: Counts, people: NDArray, table: Table, rows: NDArray | None, relative: NDArray, now: int, limits: Limits
) -> NDArray:
    """The next band of each of these people, as a level, from what the band leaves out, relative to Q, at present.

    It is the least at which the envelope promises to leave out half of what is allowed; where none does, the widest
    that the limits allow, if that leaves out a tenth of what is left out now and less than `_USEFUL`; else `_TOO_WIDE`.
    """
    if table.ladder is None or now < table.ladder[0]:
        return np.full(people.size, now + 1)
    first, envelope = table.ladder
    widest = math.floor(2.0 * math.log2(limits.frequencies * 2.0 * np.pi / table.period) + 1e-9)
    last = min(widest, first + envelope.shape[1] - 1)
    if last <= now:
        return np.full(people.size, _TOO_WIDE)
    envelope = np.nan_to_num(envelope[:, now - first : last - first + 1])
    steps = counts.take(people, axis=0).astype(np.float64, copy=False)
    bound = steps @ seen_by_columns(envelope, rows)
    if table.ladder_large is not None:
        bound += log_expm1(steps @ seen_by_columns(table.ladder_large[:, now - first : last - first + 1], rows))
    bound -= 0.5 * math.log(2.0) * np.arange(last - now + 1)
    with np.errstate(divide="ignore"):
        promised = np.log(relative)[:, None] + bound - bound[:, :1]
    enough = promised[:, 1:] <= math.log(5.0 * limits.error)
    useful = promised[:, -1] <= np.minimum(promised[:, 0] - math.log(10.0), math.log(_USEFUL))
    following = np.where(enough.any(axis=1), now + 1 + enough.argmax(axis=1), np.where(useful, last, _TOO_WIDE))
    return np.where(np.isnan(relative), now + 1, following)


def solve(
    counts: Counts,
    maker: Maker,
    target: NDArray,
    *,
    solve_epsilon: bool,
    rows: NDArray | None = None,
    hint: NDArray | None = None,
    limits: Limits | None = None,
    progress: Callable[[int], None] | None = None,
) -> Solution:
    """Bounds of epsilon at a delta, or of log delta at an epsilon, for every person.

    Parameters
    ----------
    counts : ndarray of integers, or Shares, shape (people, buckets)
        Steps of each person in each bucket; every person has at least one.
    maker : Maker
        Makes the buckets' tables in one direction.
    target : ndarray, shape (people,)
        log delta if `solve_epsilon`, else epsilon.
    rows : ndarray of int, shape (buckets,), optional
        Which of the maker's buckets each column of counts stands for; -1 for one that costs nothing.
    hint : ndarray, shape (people,), optional
        The answer as far as it is known (NaN: not at all); it makes the choice of tilts better.
    progress : callable, optional
        Called with the number of people done since the last call.

    Returns
    -------
    Solution

    Notes
    -----
    Cost: two matrix products (people x buckets x tilts, people x buckets x 2 m) and m complex exponentials a person.
    """
    limits = limits or Limits()
    solution = Solution.empty(len(counts), solve_epsilon)
    hint = np.full(len(counts), np.nan) if hint is None else hint
    plan = make_plan(counts, maker, rows, target, hint, solve_epsilon, limits)
    # Renyi accounting alone proves that epsilon is not above 0, or that delta is next to nothing.
    known = maker.whole & (plan.renyi <= (0.0 if solve_epsilon else limits.least_log_delta))
    solution.renyi[:] = plan.renyi
    solution.solved |= known
    solution.estimate[known] = solution.upper[known] = 0.0 if solve_epsilon else plan.renyi[known]
    if progress is not None and known.any():
        progress(int(known.sum()))
    waiting = np.flatnonzero(~known & (plan.tilt >= 0))
    period, width = _level(plan.period, 4), _level(plan.width, 2)
    served = width - 1  # the widest band that was not too costly
    for _ in range(40):
        if not waiting.size:
            break
        again: list[NDArray] = []
        refused: list[NDArray] = []
        parts = _groups_with_tables(waiting, plan, period, width, limits, counts, maker, rows, refused)
        bound = partial(_bound, counts, rows, plan, target, solve_epsilon)
        for (table, part), out in in_order(bound, parts, alone=few(waiting.size)):
            new = ~solution.solved[part]
            good, wide, long = _finish(solution, part, out, limits, solve_epsilon)
            now = int(width[part[0]])
            served[part] = now
            if wide.any():
                width[part[wide]] = _wider_bands(counts, part[wide], table, rows, out[wide, 3], now, limits)
            period[part[long & ~wide]] += 2
            again.append(part[(wide | long) & ~good])
            if progress is not None:
                progress(int((new & solution.solved[part]).sum()))
        for part in refused:
            # half of the way to where it was too costly
            width[part] = (served[part] + width[part]) // 2
            again.append(part[width[part] > served[part]])
        waiting = np.concatenate(again) if again else np.empty(0, dtype=np.int64)
    return solution


def solve_together(
    counts: Counts, maker: Maker, targets: NDArray, *, solve_epsilon: bool, limits: Limits,
    rows: NDArray | None = None, progress: Callable[[int], None] | None = None,
) -> tuple[list[Solution], NDArray]:  # fmt: skip
    """Bounds at several targets that lie close together, at one tilt of each person, as far as that serves.

    Parameters
    ----------
    counts, maker, limits, rows
        As for `solve`.
    targets : ndarray, shape (targets,)
        The same of everybody; log delta or epsilon.
    progress : callable, optional
        Called with the number of people and targets done since the last call.

    Returns
    -------
    list of Solution
        One a target.
    done : ndarray of bool, shape (targets, people)
        Who is served as well as by `solve`.
    """
    people = len(counts)
    solutions = [Solution.empty(people, solve_epsilon) for _ in targets]
    done = np.zeros((targets.size, people), dtype=bool)
    middle = 0.5 * (targets.min() + targets.max())
    plan = make_plan(counts, maker, rows, np.full(people, middle), np.full(people, np.nan), solve_epsilon, limits)
    chosen = np.flatnonzero(plan.tilt >= 0)
    theta = plan.theta[np.maximum(plan.tilt, 0)]
    # log delta falls by about theta epsilon: the period must hold for the far ends as well
    apart = float(np.max(targets) - middle) / (theta if solve_epsilon else 1.0)
    period, width = _level(plan.period + apart, 4), _level(1.1 * plan.width, 2)
    start = plan.start

    def bound(part: tuple[Table, NDArray]) -> list[NDArray]:
        table, members = part
        product = _exponents(counts, members, table, rows, plan)
        found = []
        for target in targets:
            first = start[members] + ((middle - target) / theta[members] if solve_epsilon else 0.0)
            found.append(_bounds_of(product, table, np.full(members.size, target), first, solve_epsilon))
        return found

    parts = _groups_with_tables(chosen, plan, period, width, limits, counts, maker, rows, [])
    for (_, part), found in in_order(bound, parts, alone=few(chosen.size)):
        for j, out in enumerate(found):
            done[j, part] = _finish(solutions[j], part, out, limits, solve_epsilon)[0]
        if progress is not None:
            progress(int(done[:, part].sum()))
    return solutions, done


def _groups_with_tables(
    people: NDArray, plan: Plan, period: NDArray, width: NDArray, limits: Limits, counts: Counts, maker: Maker,
    rows: NDArray | None, refused: list[NDArray],
) -> Iterator[tuple[Table, NDArray]]:  # fmt: skip
    """Parts of the groups that share a tilt, a period and a band, with the table of each.

    Who would need too many frequencies is left; whose table the maker refuses is added to `refused`.
    """
    for group in _groups(plan.tilt[people], period[people], width[people]):
        members = people[group]
        one = members[0]
        p, w = 2.0 ** (period[one] / 4), 2.0 ** (width[one] / 2)
        if p * w / (2 * np.pi) > limits.frequencies:
            continue
        needed = _needed(counts, members, maker.buckets, rows)
        table = maker.table(float(plan.theta[plan.tilt[one]]), p, w, needed, limits.work)
        if table is None:
            refused.append(members)
        else:
            for part in _parts(members, table.columns.shape[1]):
                yield table, part


def _needed(counts: Counts, people: NDArray, buckets: int, rows: NDArray | None) -> NDArray:
    """Which of the maker's buckets these people have steps in."""
    used = np.zeros(counts.shape[1], dtype=bool)
    for block in blocks(people.size):
        used |= counts.used(people[block]) if isinstance(counts, Shares) else counts[people[block]].any(axis=0)
    if rows is None:
        return used
    needed = np.zeros(buckets, dtype=bool)
    needed[rows[used & (rows >= 0)]] = True
    return needed


def _parts(people: NDArray, columns: int) -> Iterator[NDArray]:
    for block in blocks(people.size, _BATCH_ELEMENTS // columns):
        yield people[block]


def _bound(
    counts: Counts,
    rows: NDArray | None,
    plan: Plan,
    target: NDArray,
    solve_epsilon: bool,
    part: tuple[Table, NDArray],
) -> NDArray:
    """The matrix product and the kernel for people who share a table."""
    table, people = part
    product = _exponents(counts, people, table, rows, plan)
    return _bounds_of(product, table, target[people], plan.start[people], solve_epsilon)


def _bounds_of(
    product: tuple[NDArray, NDArray, NDArray], table: Table, target: NDArray, start: NDArray, solve_epsilon: bool
) -> NDArray:
    """The kernel for people who share a table; product as from `_exponents`."""
    exponents, helper, half = product
    out = np.empty((target.size, 5))
    asked = (
        exponents, table.weight, table.setting(len(table.columns)), helper, np.ascontiguousarray(target), solve_epsilon,
        np.ascontiguousarray(start),
    )  # fmt: skip
    none = np.empty((0, len(table.weight)), dtype=complex)
    second, mixed = (none if a is None else a for a in (table.second, table.mixed))
    if table.large:
        assert not solve_epsilon
        _kernels().bound_large(*asked[:5], half, np.hstack([second, mixed]), out)
    elif table.second is None:
        _kernels().bound_people(*asked, out)
    else:
        _kernels().bound_drawn(*asked, half, second, out)
    return out


def _exponents(
    counts: Counts, people: NDArray, table: Table, rows: NDArray | None, plan: Plan
) -> tuple[NDArray, NDArray, NDArray]:
    """The matrix product for people who share a table, the tilts that bound their aliasing, and by how much the
    variances of their lotteries may be off (see `joining`; empty where that is an error already)."""
    exponents = counts.take(people, axis=0).astype(np.float64, copy=False) @ seen_by_columns(table.columns, rows)
    helper = np.ascontiguousarray(plan.helper[people])
    if table.spread:
        steps = counts[people].sum(axis=1)[:, None]
        helper[:, 1::2] += steps * helper[:, 0::2] * (1.0 + helper[:, 0::2]) * table.spread
    half = np.empty((people.size, 0))
    if table.second is not None and isinstance(counts, Shares):
        number, half = counts.lotteries(people)
        add_second_order(exponents, table, number, half)
    return exponents, helper, half


def curves(
    counts: Counts, maker: Maker, target: NDArray, *, rows: NDArray | None = None, lower: bool = True
) -> NDArray:
    """Bounds of log delta at several epsilons of each person, all at one tilt.

    Parameters
    ----------
    counts, maker, rows
        As for `solve`.
    target : ndarray, shape (people, points)
        Ascending epsilons of each person.
    lower : bool
        False: only the upper ends are wanted, which is less work; the lower are -inf.

    Returns
    -------
    ndarray, shape (people, points, 2)
        Lower and upper log delta; (-inf, 0) where nothing came out.  One tilt, chosen for the middle of the range,
        serves down to about 1e-12; further down the bounds stay valid and grow wide.
    """
    people = len(counts)
    out = np.zeros((people, target.shape[1], 2))
    out[:, :, 0] = -np.inf
    middle = 0.5 * (target[:, 0] + target[:, -1])
    limits = Limits(error=1e-13, least_expectation=1e-3, tilts=4)
    plan = make_plan(counts, maker, rows, middle, np.full(people, np.nan), False, limits)
    # the period must hold for the far end of the range as well
    reach = target[:, -1] - middle
    period, width = _level(plan.period + reach, 4), _level(1.2 * plan.width, 2)
    chosen = np.flatnonzero(plan.tilt >= 0)

    def bound(part: tuple[Table, NDArray]) -> NDArray:
        table, members = part
        exponents, helper, _ = _exponents(counts, members, table, rows, plan)
        some = np.empty((members.size, *out.shape[1:]))
        goals = np.ascontiguousarray(target[members])
        _kernels().bound_curves(exponents, table.weight, table.setting(len(table.columns)), helper, goals, lower, some)
        return some

    parts = _groups_with_tables(chosen, plan, period, width, limits, counts, maker, rows, [])
    for (_, part), some in in_order(bound, parts, alone=few(chosen.size)):
        out[part] = some
    return out
