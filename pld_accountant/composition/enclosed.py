"""`EnclosedComposition`: mechanisms that lie between others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import validate
from ..engine.question import EpsilonAt, Question
from ..mechanisms.base import Direction, Enclosed, Enclosure, SeveralPairs
from ..mechanisms.gaussian import Gaussian
from ..mechanisms.sampled_gaussian import SampledGaussian
from ..notions.tradeoff import Curve
from ..results import Bounds, Method, Status
from .base import UNKNOWN, Composition, OwnCurve, between
from .known import KnownComposition

__all__ = ["EnclosedComposition", "End", "Widening", "dominating"]

_UP = 1.0 + 2.0**-50  # the round-off of a product with an exponential
_MOST_SLACK = 1.0  # beyond, the two ends say nothing of use
_FIRST_WIDTH = 5e-3  # of a first answer of the composition above
_SHARE_OF_GAP = 0.1  # width, as a share of the distance between both ends, up to which that answer serves
_ENOUGH = 3e-4  # relative width that is always enough: both ends are seldom closer than that


@dataclass(frozen=True)
class Widening:
    """How far the delta of one composition may be from another's: factor exp(slack), and `rest`.

    Numbers, or arrays with a number for each of many compositions.
    """

    slack: Any = 0.0
    rest: Any = 0.0

    @staticmethod
    def of(slack: Any, ratio: Any) -> Widening:
        """For the sums of the steps' slacks and ratios (`mechanisms.base.Enclosure`)."""
        # With P at most exp(r) P' and Q at least exp(-r) Q', delta is at most exp(r) delta' + (exp(2 r) - 1).  The last
        # term is at most 3 r for r up to 0.38; from 1/3 on, 3 r is more than every delta.
        widened = (slack + ratio) * (1.0 + 2.0**-40)
        near = np.minimum(widened, _MOST_SLACK)
        return Widening(near, np.where(widened < _MOST_SLACK, 3.0 * ratio * np.exp(near), np.inf)[()])

    def grown(self, delta: Any) -> Any:
        """exp(slack) delta + rest, rounded up."""
        return (delta * np.exp(self.slack) + self.rest) * _UP

    def shrunk(self, delta: Any) -> Any:
        """exp(-slack) (delta - rest), rounded down; 0 if nothing is left."""
        return np.maximum(delta / _UP - self.rest, 0.0) * np.exp(-self.slack) / _UP


@dataclass(frozen=True)
class End(Widening):
    """A composition whose delta, d, bounds another's: at most `grown(d)` above, at least `shrunk(d)` below."""

    composition: KnownComposition = field(kw_only=True)


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
        slack = ratio = 0.0
        for mechanism, number in self._counts.items():
            found = getattr(mechanism, side)() if isinstance(mechanism, Enclosed) else Enclosure([(mechanism, 1)])
            for part, times in found.parts:
                step = SampledGaussian(part.noise_multiplier, 1.0) if isinstance(part, Gaussian) else part
                steps[step] = steps.get(step, 0) + number * times
            slack += number * found.slack
            ratio += number * found.ratio
        composed = KnownComposition(steps)
        widening = Widening.of(slack, ratio)
        return End(widening.slack, widening.rest, composition=composed)

    @cached_property
    def _width(self) -> float:
        """The width of answers that are close enough."""
        close = all(getattr(m, "close", False) for m in self._counts if isinstance(m, Enclosed))
        gaussian = all(isinstance(step, SampledGaussian) for step in self._above.composition._counts)
        return 0.0 if close or gaussian else _ENOUGH

    @property
    def _far(self) -> bool:
        """Whether the two ends say nothing of use."""
        return max(self._below.slack, self._above.slack) >= _MOST_SLACK

    def _answer(self, question: Question, wanted: tuple[Direction, ...], width: float) -> Bounds:
        found = UNKNOWN if self._far else self._between(question, wanted, width)
        return self._capped(found, question) if self._rho else found

    def _between(self, question: Question, wanted: tuple[Direction, ...], width: float) -> Bounds:
        width = max(width, self._width)
        lower, status = self._lower(question, wanted, width)
        _, asked = self._asked(question)
        above = self._answer_above(lower, asked, wanted, width) if asked is not None else UNKNOWN
        return self._enclosed(question, lower, status, above)

    def _asked(self, question: Question) -> tuple[Question | None, Question | None]:
        """The questions to the compositions below and above; None: the bound on this side is 0, or infinity."""
        if not isinstance(question, EpsilonAt):
            return question, question
        more, less = self._below.grown(float(question.delta)), self._above.shrunk(float(question.delta))
        return EpsilonAt(more) if more < 1.0 else None, EpsilonAt(less) if less > 0.0 else None

    def _enclosed(self, question: Question, lower: float, status: Status, above: Bounds) -> Bounds:
        """From a lower bound of the answer, and the answer of the composition above."""
        upper = float(above.upper)
        if not isinstance(question, EpsilonAt):
            upper = min(float(self._above.grown(upper)), 1.0)
        return between(lower, upper, max(status, Status(above.status)), above.method)

    def _together(
        self, questions: Sequence[Question], wanted: tuple[Direction, ...], width: float
    ) -> list[Bounds | None]:
        """See `Composition`; questions that both ends answer together."""
        found: list[Bounds | None] = [None] * len(questions)
        if self._far or self._rho:
            return found
        asked = [(k, *self._asked(question)) for k, question in enumerate(questions)]
        some = [(k, less, more) for k, less, more in asked if less is not None and more is not None]
        if not some:
            return found
        at, less, more = zip(*some, strict=True)
        width = max(width, self._width)
        below = self._below.composition._together(less, wanted, width)
        above = self._above.composition._together(more, wanted, width)
        for k, low, high in zip(at, below, above, strict=True):
            if low is not None and high is not None:
                lower = float(low.lower)
                if not isinstance(questions[k], EpsilonAt):
                    lower = float(self._below.shrunk(lower))
                found[k] = self._enclosed(questions[k], lower, Status(low.status), high)
        return found

    def _answer_above(self, lower: float, question: Question, wanted: tuple[Direction, ...], width: float) -> Bounds:
        """The answer of the composition above.

        A wide answer is asked for first.  It is kept if it is much closer than its upper bound is to the lower bound.
        """
        answer, wide = self._above.composition._answer, max(width, _FIRST_WIDTH)
        found = answer(question, wanted, wide)
        enough = np.isfinite(found.upper) and found.width <= _SHARE_OF_GAP * (found.upper - lower)
        return found if enough or wide == width else answer(question, wanted, width)

    def _lower(self, question: Question, wanted: tuple[Direction, ...], width: float) -> tuple[float, Status]:
        """See `Composition`: that of the composition below."""
        if self._far:
            return 0.0, Status(UNKNOWN.status)
        asked, _ = self._asked(question)
        if asked is None:
            return 0.0, Status.CERTIFIED
        lower, status = self._below.composition._lower(asked, wanted, width)
        return lower if isinstance(question, EpsilonAt) else float(self._below.shrunk(lower)), status

    @property
    def _symmetric(self) -> bool:
        """See `Composition`: both ends are symmetric."""
        return self._below.composition._symmetric and self._above.composition._symmetric

    def _largest_loss(self, wanted: tuple[Direction, ...]) -> Bounds:
        if any(getattr(mechanism, "unbounded", False) for mechanism in self._counts):
            return Bounds(np.inf, np.inf, np.inf)
        lower = self._below.composition._largest_loss(wanted).lower
        upper = self._above.composition._largest_loss(wanted).upper
        if np.isinf(upper) and np.isfinite(lower):
            return Bounds(lower, np.nan, upper, Status.NOT_CERTIFIED)
        return Bounds(lower, upper, upper)

    def _infinite(self, direction: Direction, delta: Curve) -> tuple[float, float]:
        """See `Composition`; the laws on both sides know it."""
        lower, upper = super()._infinite(direction, delta)
        low, high = self._below, self._above
        lower = max(lower, float(low.shrunk(low.composition._infinite(direction, delta)[0])))
        return lower, min(upper, float(high.grown(high.composition._infinite(direction, delta)[1])))

    def _mu(self, min_delta: float, wanted: tuple[Direction, ...]) -> Bounds:
        low, high = self._below, self._above
        if self._far:
            return UNKNOWN
        if low.slack or high.slack:
            curves = {d: OwnCurve(self, d) for d in self._distinct(wanted)}
            return high.composition.mu_of(curves, min_delta, Method.TRANSFORM)
        most = high.composition._mu(min_delta, wanted)
        if not np.isfinite(most.upper):
            return UNKNOWN
        least = low.composition._mu(min_delta, wanted).lower
        return between(least, most.upper, most.status, most.method)

    @cached_property
    def _rho(self) -> dict[Any, float]:
        """rho of the mechanisms whose divergences of order alpha are known to be at most rho alpha."""
        rhos = {m: getattr(m, "rho", None) for m in self._counts if isinstance(m, Enclosed)}
        return {m: rho for m, rho in rhos.items() if rho is not None}

    @cached_property
    def _others(self) -> KnownComposition | EnclosedComposition:
        """The mechanisms without a rho."""
        return dominating({m: n for m, n in self._counts.items() if m not in self._rho})

    def _rdp(self, orders: NDArray) -> NDArray:
        if self._rho:
            rho = math.fsum(self._counts[m] * rho for m, rho in self._rho.items())
            return np.asarray((self._others._rdp(orders) + rho * orders) * _UP)
        # a slack: the divergence is that of the f with f''(x) = x^(alpha - 2), an integral of deltas; a ratio of the
        # laws, r, adds (2 alpha - 1) r / (alpha - 1), and rest is at least 2 r
        high = self._above
        return np.asarray(high.composition._rdp(orders) + (high.slack / (orders - 1.0) + high.rest) * _UP)

    def rdp_epsilon(self, delta: float) -> float:
        if self._rho:
            return float(self._capped(UNKNOWN, EpsilonAt(validate.delta(delta))).upper)
        less = float(self._above.shrunk(validate.delta(delta)))
        return self._above.composition.rdp_epsilon(less) if less > 0.0 else math.inf


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
