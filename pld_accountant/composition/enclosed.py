"""`EnclosedComposition`: mechanisms that lie between others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import validate
from ..engine.question import EpsilonAt, Question
from ..engine.schedule import ENCLOSING
from ..mechanisms.base import Direction, Enclosed, SeveralPairs
from ..mechanisms.density_pair import DensitySide
from ..mechanisms.gaussian import Gaussian
from ..mechanisms.sampled_gaussian import SampledGaussian
from ..results import Bounds, Method, Status
from .base import UNKNOWN, Composition, OwnCurve, between, spare
from .known import KnownComposition

__all__ = ["EnclosedComposition", "End", "dominating"]

_UP = 1.0 + 2.0**-50  # the round-off of a product with an exponential
_MOST_SLACK = 1.0  # beyond, the two ends say nothing of use


class End(NamedTuple):
    """A composition whose delta is at most (below), or at least (above), another's but for a factor exp(slack)."""

    composition: KnownComposition
    slack: float


class EnclosedComposition(Composition):
    """A composition of mechanisms, some of which are known by others only (`mechanisms.base.Enclosed`).

    Lower bounds are those of the composition below, upper bounds those of the composition above.

    Parameters
    ----------
    counts : mapping of Mechanism or Enclosed to int
        How often each runs.
    """

    def __init__(self, counts: Mapping[Any, int]) -> None:
        self._counts = dict(counts)

    @cached_property
    def _below(self) -> End:
        return self._end("below")

    @cached_property
    def _above(self) -> End:
        return self._end("above")

    def _end(self, side: str) -> End:
        steps: dict[Any, int] = {}
        slack = 0.0
        for mechanism, number in self._counts.items():
            parts, error = getattr(mechanism, side)() if isinstance(mechanism, Enclosed) else ([(mechanism, 1)], 0.0)
            for part, times in parts:
                step = SampledGaussian(part.noise_multiplier, 1.0) if isinstance(part, Gaussian) else part
                steps[step] = steps.get(step, 0) + number * times
            slack += number * error
        # the sides of a density pair are 1e-6 apart, so that they deserve the closer methods
        close = any(isinstance(step, DensitySide) for step in steps)
        close |= all(isinstance(step, SampledGaussian) for step in steps)
        composed = KnownComposition(steps, None if close else ENCLOSING)
        return End(composed, slack * (1.0 + 2.0**-40))

    def _answer(self, question: Question, wanted: tuple[Direction, ...], width: float) -> Bounds:
        (low, shrunk), (high, grown) = self._below, self._above
        if max(shrunk, grown) > _MOST_SLACK:
            return UNKNOWN
        if isinstance(question, EpsilonAt):
            delta = float(question.delta)
            more, less = delta * math.exp(shrunk) * _UP, delta * math.exp(-grown) / _UP
            above = high._answer(EpsilonAt(less), wanted, width)
            below = Bounds(0.0, 0.0, 0.0)
            if more < 1.0:
                below = spare(lambda: low._answer(EpsilonAt(more), wanted, width))
            lower, upper = below.lower, above.upper
        else:
            above = high._answer(question, wanted, width)
            below = spare(lambda: low._answer(question, wanted, width))
            lower = below.lower * math.exp(-shrunk) / _UP
            upper = min(above.upper * math.exp(grown) * _UP, 1.0)
        return between(lower, upper, max(below.status, above.status), above.method)

    def _distinct(self, wanted: tuple[Direction, ...]) -> tuple[Direction, ...]:
        """See `Composition`: both ends are symmetric."""
        return max((end.composition._distinct(wanted) for end in (self._below, self._above)), key=len)

    def _largest_loss(self, wanted: tuple[Direction, ...]) -> Bounds:
        if any(getattr(mechanism, "unbounded", False) for mechanism in self._counts):
            return Bounds(np.inf, np.inf, np.inf)
        lower = self._below.composition._largest_loss(wanted).lower
        upper = self._above.composition._largest_loss(wanted).upper
        if np.isinf(upper) and np.isfinite(lower):
            return Bounds(lower, np.nan, upper, Status.NOT_CERTIFIED)
        return Bounds(lower, upper, upper)

    def _mu(self, min_delta: float, wanted: tuple[Direction, ...]) -> Bounds:
        (low, shrunk), (high, grown) = self._below, self._above
        if max(shrunk, grown) > _MOST_SLACK:
            return UNKNOWN
        if shrunk or grown:
            return high.mu_of({d: OwnCurve(self, d) for d in self._distinct(wanted)}, min_delta, Method.TRANSFORM)
        most = high._mu(min_delta, wanted)
        if not np.isfinite(most.upper):
            return UNKNOWN
        least = low._mu(min_delta, wanted).lower
        return between(least, most.upper, most.status, most.method)

    def _rdp(self, orders: NDArray) -> NDArray:
        # the divergence is that of the f with f''(x) = x^(alpha - 2), an integral of deltas
        return np.asarray(self._above.composition._rdp(orders) + self._above.slack / (orders - 1.0) * _UP)

    def rdp_epsilon(self, delta: float) -> float:
        less = validate.delta(delta) * math.exp(-self._above.slack) / _UP
        return float(self._above.composition.rdp_epsilon(less))


def dominating(counts: Mapping[Any, int]) -> KnownComposition | EnclosedComposition:
    """The composition of mechanisms that are known by their losses or by others; of several pairs, the one above."""
    steps: dict[Any, int] = {}
    for mechanism, number in counts.items():
        parts = mechanism.above(number) if isinstance(mechanism, SeveralPairs) else [(mechanism, number)]
        for part, times in parts:
            steps[part] = steps.get(part, 0) + times
    if any(isinstance(mechanism, Enclosed) for mechanism in steps):
        return EnclosedComposition(steps)
    return KnownComposition(steps)
