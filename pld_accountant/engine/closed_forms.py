"""Bounds that need no table: one step, full batches, and quick bounds from the steps' own distributions."""

from __future__ import annotations

from functools import cache
from math import erfc, sqrt

import numpy as np
from numpy.typing import NDArray

from ..counting.counts import Counts
from ..mechanisms.base import StepFamily
from ..mechanisms.sampled_gaussian import SampledGaussianSteps
from ..notions import gdp
from ..results import Method as Proof
from ..threads import blocks, by_blocks
from .question import DeltaAt, EpsilonAt, Question
from .working import WorkingBounds

__all__ = ["cap_delta", "cap_epsilon", "full_batches", "largest_loss", "least_epsilon", "single_steps", "surely_zero"]

_ROUNDING = 1e-12  # relative, far above the round-off of these sums
_LEAST_SQUARE = 1e-200  # of a mu: beyond, squares may leave the range of doubles


def single_steps(counts: Counts, steps: StepFamily, question: Question, working: WorkingBounds, who: NDArray) -> None:
    """Settle people with a single step, in closed form; each distinct step is evaluated once."""
    parts = [counts.single_steps(who[block]) for block in blocks(who.size)]
    row = np.concatenate([p[0] for p in parts])
    # delta itself: log delta would lose the digits of a delta just below the sample rate
    value = question.delta if isinstance(question, EpsilonAt) else question.target
    values = np.broadcast_to(value, (len(counts),))[who]
    keys = [row.astype(np.float64), values]
    if parts[0][1] is not None:
        keys += [np.concatenate([p[i] for p in parts]).astype(np.float64) for i in (1, 2)]
    distinct, index = np.unique(np.stack(keys), axis=1, return_inverse=True)
    asked, at, wants_epsilon = distinct[1], distinct[0].astype(np.int64), question.wants_epsilon
    if len(distinct) > 2:
        assert isinstance(steps, SampledGaussianSteps)  # only these are interpolated
        drawn = at, distinct[2].astype(np.int64), distinct[3]
        of_drawn = steps.epsilon_of_drawn_step if wants_epsilon else steps.log_delta_of_drawn_step
        lower, upper = of_drawn(asked, *drawn)
    else:
        lower, upper = (steps.epsilon_of_step if wants_epsilon else steps.log_delta_of_step)(asked, at)
    with np.errstate(invalid="ignore"):
        middle = np.where(np.isfinite(lower), 0.5 * (lower + upper), upper)
    index = index.reshape(-1)
    working.settle(who, lower[index], middle[index], upper[index], Proof.CLOSED_FORM)


def full_batches(counts: Counts, steps: StepFamily, question: Question, working: WorkingBounds, who: NDArray) -> None:
    """Settle people if all steps are full batches: Gaussian mechanisms compose to one, for fractional counts too."""
    if not (isinstance(steps, SampledGaussianSteps) and np.all(steps.q == 1.0)):
        return
    with np.errstate(over="ignore", under="ignore"):
        square = counts.sums(1.0 / steps.sigma[:, None] ** 2, who)[:, 0]
    fits = (square > _LEAST_SQUARE) & (square < 1.0 / _LEAST_SQUARE)
    who, mu = who[fits], np.sqrt(square[fits])
    low, high = mu * (1.0 - _ROUNDING), mu * (1.0 + _ROUNDING)
    asked = np.broadcast_to(question.delta if isinstance(question, EpsilonAt) else question.target, (len(counts),))[who]

    def ends(block: slice) -> NDArray:
        at = asked[block]
        if isinstance(question, EpsilonAt):
            return np.stack([gdp.epsilon(at, low[block], rounding="down"), gdp.epsilon(at, high[block])])
        lower, upper = gdp.log_delta(at, low[block]), gdp.log_delta(at, high[block])
        return np.stack([lower - _ROUNDING * (1.0 - lower), np.minimum(upper + _ROUNDING * (1.0 - upper), 0.0)])

    lower, upper = np.concatenate([*by_blocks(ends, who.size), np.zeros((2, 0))], axis=1)
    proven = np.isfinite(lower) & np.isfinite(upper)
    who, lower, upper = who[proven], lower[proven], upper[proven]
    working.settle(who, lower, 0.5 * (lower + upper), upper, Proof.CLOSED_FORM)


def surely_zero(counts: Counts, steps: StepFamily, question: EpsilonAt, who: NDArray) -> NDArray:
    """Whether delta(0) is at most delta: total variation distances add up under composition."""
    every = np.arange(steps.size)
    once = np.exp(steps.log_delta_of_step(np.zeros(steps.size), every)[1])[:, None] * (1.0 + _ROUNDING)
    log_delta = question.targets(len(counts))[who]
    return counts.sums(once, who)[:, 0] * (1.0 + _ROUNDING) <= np.exp(log_delta)


def largest_loss(counts: Counts, steps: StepFamily) -> NDArray:
    """Upper bounds of everybody's largest loss, (people,); inf if one of the steps has no largest loss."""
    most = steps.largest_loss()
    unbounded = np.isinf(most)
    if unbounded.all():
        return np.full(len(counts), np.inf)
    total, infinite = counts.sums(np.stack([np.where(unbounded, 0.0, most), unbounded], axis=1)).T
    return np.where(infinite > 0.0, np.inf, total * (1.0 + _ROUNDING))


@cache
def _reaches() -> tuple[NDArray, NDArray]:
    """r from -8 to 37.5 and log Phi(-r), with `math.erfc`: the import of scipy.special takes longer than an answer."""
    r = np.linspace(-8.0, 37.5, 729)
    beyond = 0.5 * np.array([erfc(abs(v) / sqrt(2.0)) for v in r])  # Phi(-37.5) is a normal number
    with np.errstate(under="ignore"):
        return r, np.where(r < 0.0, np.log1p(-beyond), np.log(beyond))


def least_epsilon(counts: Counts, steps: StepFamily, question: EpsilonAt, who: NDArray) -> NDArray:
    """Lower bounds of epsilon from the event that every step loses at least what it loses with chance Phi(-r).

    With chance Phi(-r)^n all n steps together lose at least l, the sum of these losses; then
    delta(epsilon) >= Phi(-r)^n (1 - exp(epsilon - l)).  The best r counts.
    """
    if not who.size:
        return np.zeros(0)
    r, log_chance = _reaches()
    loss = steps.surely_lost(r)
    if not np.all(np.isfinite(loss)):
        return np.zeros(who.size)
    together, size = counts.times(loss, who), counts.times(np.abs(loss), who)
    number = counts.times(np.ones((steps.size, 1)), who)
    log_share = question.targets(len(counts))[who][:, None] - number * log_chance * (1.0 + _ROUNDING)
    with np.errstate(invalid="ignore", divide="ignore"):
        epsilon = together - _ROUNDING * size + np.log1p(-np.exp(np.minimum(log_share, 0.0)))
    return np.maximum(epsilon.max(axis=1), 0.0)


def cap_delta(question: DeltaAt, working: WorkingBounds, cap: NDArray, many: NDArray) -> None:
    """delta is 0 beyond the largest loss, and at most 1 - exp(-x) if the largest loss is x above epsilon.

    An epsilon that equals the largest loss lies below the upper bound of that loss by round-off, and no method tells
    the two apart.  `many` are the people with several steps; a single step has its closed form.
    """
    asked = question.targets(cap.size)
    beyond = np.flatnonzero(cap <= asked)
    working.settle(beyond, -np.inf, -np.inf, -np.inf, Proof.CLOSED_FORM)
    at = many[(asked[many] < cap[many]) & (cap[many] * (1.0 - 2.0 * _ROUNDING) <= asked[many])]
    most = np.nextafter(np.log(cap[at] - asked[at]), np.inf)
    working.settle(at, -np.inf, most, most, Proof.CLOSED_FORM)


def cap_epsilon(counts: Counts, steps: StepFamily, question: EpsilonAt, working: WorkingBounds, cap: NDArray) -> None:
    """Cap epsilon with the largest loss, for people without a proven, positive lower bound."""
    open_below = np.flatnonzero(np.isfinite(cap) & ~(working.solved & (working.lower > 0.0)))
    least = least_epsilon(counts, steps, question, open_below)
    known = np.flatnonzero((least > 0.0) | (cap[open_below] < working.upper[open_below]))
    who = open_below[known]
    # the Renyi bound may be below the largest loss
    upper = np.fmin(cap[who], working.upper[who])
    working.settle(who, least[known], upper, upper, Proof.CLOSED_FORM)
