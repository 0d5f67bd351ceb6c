"""`ManyCompositions`: compositions of the same mechanisms, each of which runs them another number of times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..counting.counts import WholeCounts
from ..engine.discrete_sum import infinite_mass
from ..engine.question import DeltaAt, EpsilonAt, Question
from ..engine.schedule import GRID_OF_MANY
from ..engine.solver import solve
from ..mechanisms.base import Direction, Enclosed, Enclosure, SeveralPairs
from ..mechanisms.discrete import Discrete
from ..mechanisms.gaussian import Gaussian
from ..mechanisms.sampled_gaussian import SampledGaussian
from ..results import Bounds, Method, Status
from ..tables.makers import TableMakers
from .base import ROUNDING
from .enclosed import Widening
from .known import failure_loss, family_of, loses_nothing, order_of

__all__ = ["ManyCompositions"]

_ANY_PAIR = 0.65  # the share of a pair, of several: each gives a lower bound, 1 to 5 % below the best one's above 1e-9
_MOST_STEPS = 2**53


class ManyCompositions:
    """Upper or lower bounds of many compositions, which share all tables.

    Parameters
    ----------
    mechanisms : sequence of Mechanism or Enclosed
    counts : ndarray of int, shape (rows, mechanisms)
        How often each runs in each composition.
    side : {"above", "below"}
        Which ends of the answers are wanted; the others say nothing.
    """

    def __init__(self, mechanisms: Sequence[Any], counts: NDArray, side: Literal["above", "below"]) -> None:
        self._upper, self._rows = side == "above", len(counts)
        steps: dict[Any, NDArray] = {}
        slack, ratio, total = np.zeros((3, self._rows))
        for mechanism, column in zip(mechanisms, counts.T, strict=True):
            for number in np.unique(column[column > 0]).tolist():
                rows = np.flatnonzero(column == number)
                for enclosure, times in self._enclosures(mechanism, number):
                    slack[rows] += times * enclosure.slack
                    ratio[rows] += times * enclosure.ratio
                    for part, n in enclosure.parts:
                        total[rows] += float(n) * times
                        if total.max() > _MOST_STEPS:
                            raise ValueError(f"steps must be at most {_MOST_STEPS} in all, got about {total.max():g}")
                        step = SampledGaussian(part.noise_multiplier, 1.0) if isinstance(part, Gaussian) else part
                        steps.setdefault(step, np.zeros(self._rows, dtype=np.int64))[rows] += n * times
        self._widening, self._steps = Widening.of(slack, ratio), steps
        ordered = sorted(steps, key=order_of)
        self._free = [step for step in ordered if loses_nothing(step)]
        self._costly = [step for step in ordered if step not in self._free]
        self._discrete = [step for step in ordered if isinstance(step, Discrete)]
        self._counts = WholeCounts(np.ascontiguousarray(self._columns(self._costly)))
        self._makers: dict[Direction, TableMakers] = {}

    def _columns(self, some: Sequence[Any]) -> NDArray:
        """How often each row takes some of the steps: (rows, len(some))."""
        return np.array([self._steps[step] for step in some], dtype=np.int64).reshape(len(some), self._rows).T

    def _of(self, direction: Direction) -> TableMakers:
        if direction not in self._makers:
            self._makers[direction] = TableMakers(family_of(self._costly, direction))
        return self._makers[direction]

    def _enclosures(self, mechanism: Any, number: int) -> Iterator[tuple[Enclosure, int]]:
        """Enclosures of this number of steps of a mechanism, and how often each counts."""
        if isinstance(mechanism, SeveralPairs):
            parts = mechanism.above(number) if self._upper else [(mechanism.pair(_ANY_PAIR), number)]
        else:
            parts = [(mechanism, number)]
        for part, times in parts:
            if isinstance(part, Enclosed):
                between = getattr(part, "rough", part)
                yield (between.above() if self._upper else between.below()), times
            else:
                yield Enclosure([(part, 1)]), times

    def share_tables(self, other: ManyCompositions) -> None:
        """Use another's tables if its steps are the same ones."""
        if self._costly == other._costly:
            self._makers = other._makers

    def epsilon(self, delta: float, direction: Direction) -> Bounds:
        """Bounds of epsilon(delta) in one direction, arrays of shape (rows,)."""
        below, above, moved, room = self._infinite(direction)
        # delta' = (delta - D) / (1 - D) of the losses given that none is infinite, see `KnownComposition`
        with np.errstate(divide="ignore", invalid="ignore"):
            if self._upper:
                most, infinite = self._widening.shrunk(delta), np.zeros(self._rows, dtype=bool)
                share = (most - above) / (1.0 - below) * (1.0 - ROUNDING)
            else:
                most = self._widening.grown(delta)
                share, infinite = (most - below) / (1.0 - above) * (1.0 + ROUNDING), most < below
        some = np.flatnonzero((share > 0.0) & (share < 1.0))
        found = self._finite(EpsilonAt(share[some]), direction, some)
        lower, upper = np.where(infinite, np.inf, 0.0), np.full(self._rows, np.inf)
        lower[some] = np.maximum(found.lower + moved[some] - room[some], 0.0)
        upper[some] = np.maximum(found.upper + moved[some] + room[some], 0.0)
        return self._answer(lower, upper, found, some)

    def delta(self, epsilon: float, direction: Direction) -> Bounds:
        """Bounds of delta(epsilon) in one direction, arrays of shape (rows,)."""
        below, above, moved, room = self._infinite(direction)
        some = np.flatnonzero(above < 1.0)
        sign = 1.0 if self._upper else -1.0
        asked = epsilon - moved[some] - sign * room[some]
        found = self._finite(DeltaAt(np.maximum(asked, 0.0)), direction, some)
        # delta' falls at most as fast as epsilon grows, also below 0
        missing = np.maximum(-asked, 0.0)
        lower, upper = below.copy(), np.ones(self._rows)
        lower[some] += (1.0 - above[some]) * found.lower * (1.0 - ROUNDING)
        upper[some] = above[some] + (1.0 - below[some]) * (found.upper + missing) * (1.0 + ROUNDING)
        known = np.isfinite(upper)
        upper[known] = np.minimum(self._widening.grown(upper)[known], 1.0)
        return self._answer(self._widening.shrunk(lower), upper, found, some)

    def _finite(self, question: Question, direction: Direction, rows: NDArray) -> Bounds:
        """Bounds of some rows' answers, given that no loss is infinite."""
        if not self._costly or not rows.size:
            zero, known = np.zeros(rows.size), np.zeros(rows.size, dtype=np.uint8)
            return Bounds(zero, zero, zero, known + Status.CERTIFIED, known + Method.CLOSED_FORM)
        counts = self._counts.of(rows)
        return solve(counts, self._of(direction), question, methods=GRID_OF_MANY).answer(question)

    def _answer(self, lower: NDArray, upper: NDArray, found: Bounds, some: NDArray) -> Bounds:
        """The rows' bounds, and of some rows what was found of their finite losses."""
        status = np.where(np.isfinite(upper), Status.CERTIFIED, Status.NOT_CERTIFIED).astype(np.uint8)
        method = np.where(np.isfinite(upper), Method.CLOSED_FORM, Method.NONE).astype(np.uint8)
        status[some] = np.maximum(status[some], found.status)
        method[some] = np.where(np.isfinite(upper[some]), found.method, Method.NONE)
        return Bounds(lower, np.full(self._rows, np.nan), upper, status, method)

    def _infinite(self, direction: Direction) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        """Bounds of the chance D of an infinite loss; how far losses move given that none is, and the room for errors.

        Arrays of shape (rows,); see `KnownComposition`.
        """
        laws, counts = [step.law(direction) for step in self._discrete], self._columns(self._discrete)
        below, above = infinite_mass(laws, counts)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.where(counts > 0, counts * np.log1p(-np.array([law.infinite for law in laws])), 0.0)
        costly = np.array([step not in self._free for step in self._discrete], dtype=bool)
        free = self._columns(self._free) @ np.array([failure_loss(step, direction) for step in self._free])
        room = ROUNDING * np.abs(logs.sum(axis=1)) + free * (1.0 + ROUNDING)
        return np.array(below), np.array(above), logs[:, costly].sum(axis=1), room
