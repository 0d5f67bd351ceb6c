"""`SeveralPairsComposition`: mechanisms whose worst pair depends on the question."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import validate
from ..engine.question import EpsilonAt, Question
from ..mechanisms.base import Direction, Enclosed, SeveralPairs
from ..mechanisms.bounded_range import ExponentialMechanism
from ..notions import gdp
from ..results import Bounds, Status
from .base import UNKNOWN, Composition, between
from .enclosed import EnclosedComposition, dominating
from .known import KnownComposition

__all__ = ["SeveralPairsComposition", "of_mechanisms"]

_ROUGH = 1e-3  # width of the lower bound, relative; the best pair may be further away
_BEGIN = (0.0, 0.15, 0.5, 1.0, 2.0, 4.0, 8.0)  # -log(2 (1 - share)), the same for -log(2 share) under addition
_SEARCH = {"maxiter": 6, "xatol": 0.02}
_OF_CURVE = (0.5, 2.0)  # the same, beside other steps, where bounds `_CURVE` apart are enough
_CURVE = 1e-4  # the width that is asked of points of a curve
_NEAR = 500  # stationary pairs that are looked at on each side of the best so far
_ROUNDS = 8  # at most, if epsilon is asked, on which these pairs depend
_LARGE = 600.0  # an epsilon whose exponential is near the largest double
_SETTLED = 1e-4  # relative: a round that gains less is the last
_END = 2.0**-30  # a share of 1 has the largest loss but is no pair; the lower bound takes a pair this close to it
_CLOSE = 0.1  # relative: beside other steps, between bounds this close, no Renyi bound is computed; it takes seconds
_POINTS = 4  # of the curve, for a lower bound of mu


class SeveralPairsComposition(Composition):
    """A composition with mechanisms of several pairs (`mechanisms.base.SeveralPairs`).

    Upper bounds are those of mechanisms that dominate.  Lower bounds are those of one pair in every step, the best that
    a search finds; any pair gives a valid lower bound.

    Parameters
    ----------
    counts : mapping of Mechanism or Enclosed to int
        How often each runs.
    """

    def __init__(self, counts: Mapping[Any, int]) -> None:
        self._counts, self._above = dict(counts), dominating(counts)
        # then a pair takes a millisecond; beside others, fifty
        self._alone = all(isinstance(mechanism, SeveralPairs) for mechanism in counts)

    def _with_pair(self, share: float) -> KnownComposition | EnclosedComposition:
        chosen: dict[Any, int] = {}
        for mechanism, n in self._counts.items():
            one = mechanism.pair(share) if isinstance(mechanism, SeveralPairs) else mechanism
            chosen[one] = chosen.get(one, 0) + n
        return dominating(chosen)

    def _answer(self, question: Question, wanted: tuple[Direction, ...], width: float) -> Bounds:
        found = self._between(question, self._distinct(wanted), width)
        # 106 Renyi bounds beside other steps took 43 seconds and lowered one answer, by 7e-5
        close = not self._alone and found.lower >= (1.0 - _CLOSE) * found.upper
        return found if close else self._capped(found, question)

    def _between(self, question: Question, wanted: tuple[Direction, ...], width: float) -> Bounds:
        above = self._above._answer(question, wanted, width)
        status = Status(above.status)
        lower, at = 0.0, 0.5  # the best so far, and its share

        def asked(share: float, way: Direction) -> float:
            nonlocal lower, at
            found = self._with_pair(share)._lower(question, (way,), max(width, _ROUGH))[0]
            if found > lower:
                lower, at = found, share
            return -found

        def tried(far: float, way: Direction) -> float:
            return asked((1.0 - 0.5 * math.exp(-far)) if way == "remove" else 0.5 * math.exp(-far), way)

        if width >= _CURVE and not self._alone:
            for way in wanted:
                for far in _OF_CURVE:
                    tried(far, way)
            return between(lower, above.upper, status, above.method)
        for way in wanted:
            best = 1 + int(np.argmin([tried(far, way) for far in _BEGIN[1:-1]]))
            alike = [type(m) for m in self._counts] == [ExponentialMechanism]
            if self._alone and not (alike and self.steps <= _NEAR and lower < _LARGE):
                from scipy import optimize

                near = _BEGIN[best - 1], _BEGIN[best + 1]
                optimize.minimize_scalar(tried, args=(way,), bounds=near, method="bounded", options=_SEARCH)
            if alike:
                for _ in range(_ROUNDS if question.wants_epsilon else 1):
                    before = lower
                    asked(self._stationary(lower if question.wants_epsilon else float(question.target), at, way), way)
                    if lower <= before * (1.0 + _SETTLED):
                        break
        return between(lower, above.upper, status, above.method)

    def _stationary(self, epsilon: float, near: float, way: Direction) -> float:
        """The share, about, at which the delta of equal steps is largest (Dong, Durfee and Rogers 2020).

        A step has the loss t or, by the range c, less.  Let i of n steps have t.  delta(x) is the largest over m of
        P(i >= m) - exp(x) Q(i >= m), whose slope in t is 0 at t = (x + (n + 1 - m) c) / (n + 1) only.
        """
        from scipy.special import betainc

        ((mechanism, n),) = self._counts.items()
        c = 1.0 / mechanism.noise_multiplier
        here = round((near if way == "remove" else 1.0 - near) * (n + 1) - epsilon / c)
        m = n + 1 - np.arange(max(here - _NEAR, 1), max(min(here + _NEAR, n), 1) + 1)
        t = (epsilon + (n + 1 - m) * c) / (n + 1)
        with np.errstate(over="ignore", invalid="ignore"):
            p = np.expm1(t - c) / np.expm1(-c)
            delta = betainc(m, n + 1 - m, p) - np.exp(epsilon) * betainc(m, n + 1 - m, p * np.exp(-t))
        # no pair has a share of 1
        share = float(t[np.argmax(np.where((t < c) & (delta >= 0.0), delta, -1.0))] / c)
        share = min(share, 1.0 - _END)
        return share if way == "remove" else 1.0 - share

    def _largest_loss(self, wanted: tuple[Direction, ...]) -> Bounds:
        above, lower = self._above._largest_loss(wanted), 0.0
        for way in wanted:
            share = 1.0 - _END if way == "remove" else _END
            lower = max(lower, float(self._with_pair(share)._largest_loss((way,)).lower))
        return between(lower, above.upper, Status(above.status), above.method)

    def _mu(self, min_delta: float, wanted: tuple[Direction, ...]) -> Bounds:
        # the least mu lies above those of single points of the curve
        most, least = self._above._mu(min_delta, wanted), 0.0
        for delta in np.geomspace(min_delta, max(min_delta, 0.1), _POINTS):
            epsilon = self._answer(EpsilonAt(float(delta)), wanted, 0.0).lower
            least = max(least, float(gdp.mu(epsilon, delta)) if epsilon > 0.0 else 0.0)
        return between(least, most.upper, most.status, most.method)

    def _rdp(self, orders: NDArray) -> NDArray:
        # the worst pair of one step at each order: Renyi divergences of adaptive steps add up
        enclosed = any(isinstance(mechanism, Enclosed) for mechanism in self._counts)
        return (EnclosedComposition if enclosed else KnownComposition)(self._counts)._rdp(orders)

    def rdp_epsilon(self, delta: float) -> float:
        return float(self._capped(UNKNOWN, EpsilonAt(validate.delta(delta))).upper)


def of_mechanisms(
    counts: Mapping[Any, int],
) -> KnownComposition | EnclosedComposition | SeveralPairsComposition:
    """The kind of composition that these mechanisms need."""
    if sum(counts.values()) > 1 and any(isinstance(mechanism, SeveralPairs) for mechanism in counts):
        return SeveralPairsComposition(counts)
    return dominating(counts)
