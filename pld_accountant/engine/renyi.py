"""Renyi accounting: the Chernoff bound of the same log-moments that the tables are tilted by.

With theta = alpha - 1, a composition's Renyi divergence of order alpha is K(theta) / theta, and the conversion of
Canonne, Kamath and Steinke (2020), Proposition 12, is `EpsilonAt.chernoff`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..counting.counts import Counts, WholeCounts
from ..mechanisms.base import StepFamily
from ..notions.rdp import log_c
from ..tables.table import TableMaker
from ..threads import blocks
from .question import EpsilonAt, Question
from .tilting import Limits, make_plan

__all__ = ["best_epsilon", "epsilon_at_orders", "optimal_epsilon", "optimum", "renyi_bounds"]

_ORDERS_PER_OCTAVE = 16
_REFINED = 4  # times as many orders around the best one
_FIRST = 64  # orders, two an octave, that are tried together: up to 4,000
_TOGETHER = 16  # further ones: if none of them is better than those before, larger ones are left out
_ROUNDS = 9  # of orders between the neighbours of the best one; the last are 1e-5 apart, relative


def renyi_bounds(counts: Counts, maker: TableMaker, question: Question) -> NDArray:
    """Upper bounds of everybody's epsilon or log delta, at the best of two tilts an octave: (people,)."""
    return make_plan(counts, maker, question, np.full(len(counts), np.nan), Limits()).renyi


def _coarse(bound: Callable[[NDArray], NDArray], theta: NDArray) -> NDArray:
    """The bounds at ascending orders, shape (..., orders), without the largest orders if they are surely no better.

    K and log_c are convex in theta.  So a bound of log delta is convex, too, and one of epsilon falls up to its best
    order and grows from there: its derivative has the sign of theta N' - N, whose own derivative, theta N'', is at
    least 0, with N = K + log_c - log delta.  An order that is left out makes no bound wrong.
    """
    found: list[NDArray] = []
    best: NDArray = np.array(np.inf)
    for some in np.split(theta, range(_FIRST, theta.size, _TOGETHER)):
        found.append(bound(some))
        least = found[-1].min(axis=-1)
        if np.all(best < np.inf) and not np.any(least < best):
            break
        best = np.minimum(best, least)
    return np.concatenate(found, axis=-1)


def best_epsilon(counts: Counts, log_moments: Callable[[NDArray], NDArray], delta: float) -> NDArray:
    """The epsilon that Renyi accounting reports for each person, at the best order of a grid that is refined once.

    Parameters
    ----------
    counts : Counts
    log_moments : callable
        Upper bounds of the steps' log-moments at tilts theta, (steps, tilts), in the direction with the larger Renyi
        divergence: of sampled Gaussians that is removal at every order (Mironov, Talwar and Zhang 2019, Section 3.2).
    delta : float

    Returns
    -------
    ndarray, shape (people,)
        Never below the optimum over all real orders.  If the divergence bends gently at that order, it is within a
        ten-thousandth of the optimum; if it bends sharply (few steps, small sample rates), within 2 percent.
    """
    question = EpsilonAt(delta)

    def converted(theta: NDArray, who: slice | NDArray) -> NDArray:
        return question.chernoff(counts.times(log_moments(theta), who), theta, question.target)

    coarse = 2.0 ** (0.5 * np.arange(-40, 72))
    out = np.zeros(len(counts))
    spans: list[tuple[int, int]] = []
    for block in blocks(len(counts)):
        best = np.argmin(_coarse(partial(converted, who=block), coarse), axis=1)
        spans.append((int(best.min()), int(best.max())))
    if not spans:
        return out
    low = max(min(s[0] for s in spans) - 1, 0)
    high = min(max(s[1] for s in spans) + 1, coarse.size - 1)
    fine = coarse[low] * 2.0 ** (np.arange((high - low) * _ORDERS_PER_OCTAVE // 2 + 1) / _ORDERS_PER_OCTAVE)
    near = 2.0 ** (np.arange(-_REFINED, _REFINED + 1) / (_REFINED * _ORDERS_PER_OCTAVE))
    for block in blocks(len(counts)):
        best = np.argmin(converted(fine, block), axis=1)
        for at in np.unique(best):
            who = block.start + np.flatnonzero(best == at)
            out[who] = converted(fine[at] * near, who).min(axis=1)
    return np.maximum(out, 0.0)


def epsilon_at_orders(counts: Counts, steps: StepFamily, delta: float, theta: NDArray, most: int) -> NDArray:
    """The Renyi bound of each person at the best of given orders, a function of that person's counts, bit for bit.

    Parameters
    ----------
    counts : Counts
        Whole counts of at most `most` steps a person.
    steps : StepFamily
        Under removal.
    delta : float
    theta : ndarray, shape (orders,)
        Orders less 1.

    Returns
    -------
    ndarray, shape (people,)
        Upper bounds; infinite if no order has a finite divergence.

    Notes
    -----
    A matrix product adds in an order that depends on its shape, so that other people would change a person's last
    bits.  Here the log-moments of a step are rounded up to multiples of a power of two.  A person's sum of multiples
    stays below 2^53, so every partial sum is an exact whole number, and its order does not matter.  The rest is one
    subtraction, addition and division an element, which IEEE 754 defines.

    **Error**: relative 2^-51 times `most` above the unrounded sum, at most; never below it.
    """
    moments = np.maximum(steps.log_moments(theta), 0.0)
    largest = moments.max(axis=0)
    finite = np.isfinite(largest * most)
    theta, moments, largest = theta[finite], moments[:, finite], largest[finite]
    out = np.full(len(counts), np.inf)
    if not theta.size:
        return out
    unit = 2.0 ** (np.ceil(np.log2(np.maximum(largest * most, 2.0**-900))) - 51.0)
    multiples = np.ceil(moments / unit)
    question = EpsilonAt(delta)
    for block in blocks(len(counts)):
        total = counts.times(multiples, block)
        found = question.chernoff(total * unit, theta, question.target)
        out[block] = np.where(total == 0.0, 0.0, np.maximum(found, 0.0)).min(axis=1)
    return out * (1.0 + 2.0**-40)


def optimal_epsilon(counts: WholeCounts, steps: StepFamily, delta: float) -> float:
    """`best_epsilon` of one person, with the order optimised over all real numbers above 1."""
    return max(optimum(lambda theta: counts.times(steps.log_moments(theta))[0], EpsilonAt(delta)), 0.0)


def optimum(log_moments: Callable[[NDArray], NDArray], question: Question, orders: Sequence[float] = ()) -> float:
    """The smallest Chernoff bound of an epsilon or a log delta over all orders, rounded up.

    Parameters
    ----------
    log_moments : callable
        Upper bounds K(theta) of the log-moments of the sum of all losses; inf where nothing is known.
    question : Question
        To one person.
    orders : sequence of float
        Values of theta that are tried besides; where K has corners, the optimum is one of them.
    """
    target = float(np.asarray(question.target))

    def bound(theta: NDArray) -> NDArray:
        moments, constant = log_moments(theta), np.asarray(log_c(theta))
        size = np.abs(moments) - constant + abs(target) * (1.0 if question.wants_epsilon else theta)
        rounding = 2.0**-48 * (size / theta if question.wants_epsilon else size)
        return np.asarray(question.chernoff(moments, theta, target) + rounding)

    at, best = np.log(2.0) * np.arange(-20.0, 36.0, 0.5), np.inf
    for k in range(_ROUNDS + 1):
        theta = np.array(orders, dtype=np.float64) if k == _ROUNDS else np.exp(at)
        if not theta.size:
            break
        found = bound(theta) if k else _coarse(bound, theta)
        place = int(np.argmin(found))
        best = min(best, float(found[place]))
        if k < _ROUNDS:
            # epsilon is smooth in the order: the optimum lies between the neighbours of the best one
            at = np.linspace(at[max(place - 1, 0)], at[min(place + 1, at.size - 1)], 9)
    return best
