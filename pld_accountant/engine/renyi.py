"""Renyi accounting: the Chernoff bound of the same log-moments that the tables are tilted by.

With theta = alpha - 1, a composition's Renyi divergence of order alpha is K(theta) / theta, and the conversion of
Canonne, Kamath and Steinke (2020), Proposition 12, is `EpsilonAt.chernoff`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..counting.counts import Counts, WholeCounts
from ..mechanisms.base import StepFamily
from ..tables.table import TableMaker
from ..threads import blocks
from .question import EpsilonAt, Question
from .tilting import Limits, make_plan

__all__ = ["best_epsilon", "optimal_epsilon", "renyi_bounds"]

_ORDERS_PER_OCTAVE = 16
_REFINED = 4  # times as many orders around the best one

# of Brent's method
_CLOSE = 1e-6
_SQRT_UNIT = math.sqrt(2.2e-16)
_EVALUATIONS = 499


def renyi_bounds(counts: Counts, maker: TableMaker, question: Question) -> NDArray:
    """Upper bounds of everybody's epsilon or log delta, at the best of two tilts an octave: (people,)."""
    return make_plan(counts, maker, question, np.full(len(counts), np.nan), Limits()).renyi


def best_epsilon(counts: Counts, steps: StepFamily, delta: float) -> NDArray:
    """The epsilon that Renyi accounting reports for each person, at the best order of a grid that is refined once.

    Parameters
    ----------
    counts : Counts
    steps : StepFamily
        Under removal, which has the larger Renyi divergence at every order (Mironov, Talwar and Zhang 2019,
        Section 3.2).
    delta : float

    Returns
    -------
    ndarray, shape (people,)
        Never below the optimum over all real orders.  If the divergence bends gently at that order, it is within a
        ten-thousandth of the optimum; if it bends sharply (few steps, small sample rates), within 2 percent.
    """
    question = EpsilonAt(delta)

    def converted(theta: NDArray, who: slice | NDArray) -> NDArray:
        return question.chernoff(counts.times(steps.log_moments(theta), who), theta, question.target)

    coarse = 2.0 ** (0.5 * np.arange(-40, 72))
    out = np.zeros(len(counts))
    spans: list[tuple[int, int]] = []
    for block in blocks(len(counts)):
        best = np.argmin(converted(coarse, block), axis=1)
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


def optimal_epsilon(counts: WholeCounts, steps: StepFamily, delta: float) -> float:
    """`best_epsilon` of one person, with the order optimised over all real numbers above 1."""
    question = EpsilonAt(delta)

    def value(log_theta: float) -> float:
        theta = np.exp([log_theta])
        return float(question.chernoff(counts.times(steps.log_moments(theta)), theta, question.target)[0, 0])

    coarse = np.log(2.0) * np.arange(-20.0, 36.0, 0.5)
    k = counts.times(steps.log_moments(np.exp(coarse)))
    at = int(np.argmin(question.chernoff(k, np.exp(coarse), question.target)[0]))
    ends = coarse[max(at - 1, 0)], coarse[min(at + 1, coarse.size - 1)]
    return max(min(_least(value, *(float(e) for e in ends)), value(coarse[at])), 0.0)


def _least(function: Callable[[float], float], low: float, high: float) -> float:
    """The smallest value found on an interval, by Brent's method, as `scipy.optimize.fminbound` has it.

    scipy.optimize takes longer to import than a composition to answer.

    References
    ----------
    Brent (1973), "Algorithms for Minimization without Derivatives", chapter 5.
    """
    golden = 0.5 * (3.0 - math.sqrt(5.0))
    x = second = third = low + golden * (high - low)
    best = of_second = of_third = function(x)
    step = before = 0.0
    for _ in range(_EVALUATIONS):
        middle = 0.5 * (low + high)
        least = _SQRT_UNIT * abs(x) + _CLOSE / 3.0
        if abs(x - middle) <= 2.0 * least - 0.5 * (high - low):
            break
        parabolic = False
        if abs(before) > least:
            r = (x - second) * (best - of_third)
            q = (x - third) * (best - of_second)
            p = (x - third) * q - (x - second) * r
            q = 2.0 * (q - r)
            p, q = -p if q > 0.0 else p, abs(q)
            r, before = before, step
            parabolic = abs(p) < abs(0.5 * q * r) and q * (low - x) < p < q * (high - x)
            if parabolic:
                step = p / q
                new = x + step
                if new - low < 2.0 * least or high - new < 2.0 * least:
                    step = least if middle >= x else -least
        if not parabolic:
            before = low - x if x >= middle else high - x
            step = golden * before
        new = x + math.copysign(max(abs(step), least), step)
        value = function(new)
        if value <= best:
            low, high = (x, high) if new >= x else (low, x)
            third, of_third, second, of_second, x, best = second, of_second, x, best, new, value
        else:
            low, high = (new, high) if new < x else (low, new)
            if value <= of_second or second == x:
                third, of_third, second, of_second = second, of_second, new, value
            elif value <= of_third or third in (x, second):
                third, of_third = new, value
    return best
