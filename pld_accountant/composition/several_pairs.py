"""`SeveralPairsComposition`: mechanisms whose worst pair depends on the question."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.question import EpsilonAt, Question
from ..mechanisms.base import Direction, SeveralPairs
from ..notions import gdp
from ..results import Bounds, Status
from .base import Composition, spare
from .enclosed import EnclosedComposition, dominating
from .known import KnownComposition

__all__ = ["SeveralPairsComposition", "of_mechanisms"]

_TILTS = 2.0 ** np.arange(-12.0, 20.0)
_ROUGH = 1e-3  # width of the lower bound, relative; the best pair may be further away
_POINTS = 4  # of the curve, for a lower bound of mu


class SeveralPairsComposition(Composition):
    """A composition with mechanisms of several pairs (`mechanisms.base.SeveralPairs`).

    Upper bounds are those of the pairs that dominate.  Lower bounds are those of one pair in every step, the one with
    the largest Renyi bound.  Any pair gives a valid lower bound.

    Parameters
    ----------
    counts : mapping of Mechanism or Enclosed to int
        How often each runs.
    """

    def __init__(self, counts: Mapping[Any, int]) -> None:
        self._counts, self._above = dict(counts), dominating(counts)
        self._below: dict[tuple[Direction, int], KnownComposition | EnclosedComposition] = {}

    def _with_pair(self, direction: Direction, place: int) -> KnownComposition | EnclosedComposition:
        if (direction, place) not in self._below:
            chosen: dict[Any, int] = {}
            for mechanism, n in self._counts.items():
                one = mechanism.pairs(direction)[place] if isinstance(mechanism, SeveralPairs) else mechanism
                chosen[one] = chosen.get(one, 0) + n
            self._below[direction, place] = dominating(chosen)
        return self._below[direction, place]

    @cached_property
    def _log_moments(self) -> NDArray:
        """Log-moments of the composition with each pair: (places, tilts)."""
        several = next(m for m in self._counts if isinstance(m, SeveralPairs))
        places = range(len(several.pairs("remove")))
        return np.array([_TILTS * self._with_pair("remove", place).rdp(1.0 + _TILTS) for place in places])

    def _place(self, question: Question) -> int:
        renyi = question.chernoff(self._log_moments, _TILTS, float(np.asarray(question.target)))
        return int(np.argmax(np.min(renyi, axis=1)))

    def _answer(self, question: Question, wanted: tuple[Direction, ...], width: float) -> Bounds:
        above = self._above._answer(question, wanted, width)

        def below(way: Direction) -> Bounds:
            return self._with_pair(way, self._place(question))._answer(question, (way,), max(width, _ROUGH))

        found = [spare(partial(below, way)) for way in wanted]
        lower = min(max(float(one.lower) for one in found), float(above.upper))
        status = max(Status(one.status) for one in (above, *found))
        return _between(lower, above, status)

    def _largest_loss(self, wanted: tuple[Direction, ...]) -> Bounds:
        return self._above._largest_loss(wanted)

    def _mu(self, min_delta: float, wanted: tuple[Direction, ...]) -> Bounds:
        # the least mu lies above those of single points of the curve
        most, least = self._above._mu(min_delta, wanted), 0.0
        for delta in np.geomspace(min_delta, 0.1, _POINTS):
            epsilon = self._answer(EpsilonAt(float(delta)), wanted, 0.0).lower
            least = max(least, float(gdp.mu(epsilon, delta)) if epsilon > 0.0 else 0.0)
        return _between(min(least, float(most.upper)), most, Status(most.status))

    def rdp(self, alpha: Any) -> NDArray:
        return self._above.rdp(alpha)

    def rdp_epsilon(self, delta: float) -> float:
        return self._above.rdp_epsilon(delta)


def _between(lower: float, above: Bounds, status: Status) -> Bounds:
    upper = float(above.upper)
    middle = 0.5 * (lower + upper) if np.isfinite(upper) or lower == upper else np.nan
    return Bounds(lower, middle, upper, status, above.method)


def of_mechanisms(
    counts: Mapping[Any, int],
) -> KnownComposition | EnclosedComposition | SeveralPairsComposition:
    """The kind of composition that these mechanisms need."""
    if sum(counts.values()) > 1 and any(isinstance(mechanism, SeveralPairs) for mechanism in counts):
        return SeveralPairsComposition(counts)
    return dominating(counts)
