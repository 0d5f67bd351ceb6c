"""`BlackBoxComposition`: mechanisms of which only upper bounds are known, besides others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import validate
from ..engine import renyi
from ..engine.question import DeltaAt, EpsilonAt, Question
from ..mechanisms.base import Direction, directions
from ..mechanisms.renyi_boxes import RenyiBox
from ..mechanisms.repeated_selection import RepeatedSelection
from ..mechanisms.sampled_gaussian import SampledGaussian
from ..results import Bounds, Status
from ..results import Method as Proof
from .base import ROUNDING, UNKNOWN, Composition, spare
from .enclosed import EnclosedComposition, End, dominating
from .several_pairs import of_mechanisms

__all__ = ["BlackBoxComposition"]

_ROUGH = 1e-5  # width of the lower bound, relative; the Renyi bound is further away


class BlackBoxComposition(Composition):
    """A composition with black boxes of which only Renyi guarantees are known.

    Upper bounds are the Renyi bound of all steps together, at the best real order, or the bound of `RepeatedSelection`
    from the curve of single runs if it is smaller.  Their status is RENYI_ONLY.  The truth is the largest value over
    all mechanisms that satisfy what is known, so that lower bounds come from one of them: Gaussian noise for every
    `ZeroConcentratedDP` without a xi, and nothing for the other boxes.

    Parameters
    ----------
    counts : mapping of Mechanism or Enclosed to int
        How often each other mechanism runs.
    boxes : mapping of RenyiBox to int
        How often each box runs.

    Notes
    -----
    Let D be the chance that a step has an infinite loss, and F the event that none has.  With K the sum of the
    log-moments log E[e^(theta L); F] of the steps and of the boxes' bounds,
    delta(epsilon) <= D + c(theta) exp(K(theta) - theta epsilon) (Canonne, Kamath and Steinke 2020, Proposition 12).
    Log-moments add over steps (Mironov 2017, Proposition 1).
    """

    def __init__(self, counts: Mapping[Any, int], boxes: Mapping[RenyiBox, int]) -> None:
        self._others = dominating(counts)
        self._boxes = dict(boxes)
        self._selections = {box: n for box, n in boxes.items() if isinstance(box, RepeatedSelection)}
        self._counts = {**counts, **boxes}
        witness = dict(counts)
        for box, n in boxes.items():
            if 1e-100 <= (noise := box.gaussian()) <= 1e100:  # what `SampledGaussian` takes
                step = SampledGaussian(noise, 1.0)
                witness[step] = witness.get(step, 0) + n
        self._witness = of_mechanisms(witness)

    @property
    def _above(self) -> End:
        others = self._others
        return others._above if isinstance(others, EnclosedComposition) else End(composition=others)

    def _answer(self, question: Question, wanted: tuple[Direction, ...], width: float) -> Bounds:
        upper, method = max(self._upper(question, direction) for direction in wanted), Proof.RENYI
        if self._runs is not None:
            runs = spare(lambda: self._of_runs(question, wanted, max(width, _ROUGH)))
            if runs.upper < upper:
                upper, method = runs.upper, Proof(runs.method)
        lower = self._witness._lower(question, wanted, max(width, _ROUGH))[0]
        if not np.isfinite(upper):
            return Bounds(lower, np.nan, np.inf, Status.NOT_CERTIFIED, Proof.NONE) if lower == np.inf else UNKNOWN
        return Bounds(min(lower, upper), upper, upper, Status.RENYI_ONLY, method)

    @cached_property
    def _runs(self) -> Composition | None:
        """One run of every selection, beside all other steps; None if there is no selection."""
        if not self._selections:
            return None
        counts = {step: n for step, n in self._counts.items() if step not in self._selections}
        for box, n in self._selections.items():
            for part, times in box.run.counts.items():
                counts[part] = counts.get(part, 0) + n * times
        boxes = {part: n for part, n in counts.items() if isinstance(part, RenyiBox)}
        others = {part: n for part, n in counts.items() if part not in boxes}
        return BlackBoxComposition(others, boxes) if boxes else of_mechanisms(others)

    def _of_runs(self, question: Question, wanted: tuple[Direction, ...], width: float) -> Bounds:
        """The upper bound from the curve of `_runs`: factors of delta multiply, and shifts of epsilon add up."""
        assert self._runs is not None
        log_factor, shift = (
            sum(n * box.profile()[k] for box, n in self._selections.items()) * (1.0 + ROUNDING) for k in (0, 1)
        )
        if isinstance(question, EpsilonAt):
            delta = float(question.delta) * math.exp(-log_factor) * (1.0 - ROUNDING)
            found = self._runs._answer(EpsilonAt(delta), wanted, width) if delta > 0.0 else UNKNOWN
            return replace(found, upper=(found.upper + shift) * (1.0 + ROUNDING))
        epsilon = (float(question.target) - shift) * (1.0 - ROUNDING)
        found = self._runs._answer(DeltaAt(epsilon), wanted, width) if epsilon >= 0.0 else UNKNOWN
        return replace(found, upper=found.upper * math.exp(log_factor) * (1.0 + ROUNDING))

    def _upper(self, question: Question, direction: Direction) -> float:
        """The Renyi bound of epsilon or delta in one direction."""
        above = self._above
        others = above.composition
        infinite = others.infinite(direction)

        def log_moments(theta: NDArray) -> NDArray:
            return others.log_moments(direction, theta) + self._of_boxes(theta)

        corners = [theta for box in self._boxes for theta in box.corners()]
        if isinstance(question, EpsilonAt):
            rest = (above.shrunk(float(question.delta)) - infinite) * (1.0 - 2.0**-50)
            found = max(renyi.optimum(log_moments, EpsilonAt(rest), corners), 0.0) if rest > 0.0 else np.inf
            return min(found, self._most((direction,)))
        log_delta = renyi.optimum(log_moments, question, corners)
        # exp may round a positive bound down to 0; -inf means that no loss is this large
        chernoff = math.nextafter(math.exp(min(log_delta, 0.0)), math.inf) if log_delta > -np.inf else 0.0
        return min(above.grown(infinite + chernoff), 1.0)

    def _of_boxes(self, theta: NDArray) -> NDArray:
        with np.errstate(over="ignore"):
            return np.sum([n * box.log_moments(theta) for box, n in self._boxes.items()], axis=0)

    def _largest_loss(self, wanted: tuple[Direction, ...]) -> Bounds:
        """Finite where every box has a divergence of order infinity."""
        lower, upper = self._witness._largest_loss(wanted).lower, self._most(wanted)
        return Bounds(lower, upper, upper, Status.RENYI_ONLY, Proof.RENYI)

    def _most(self, wanted: tuple[Direction, ...]) -> float:
        """The largest loss, rounded up."""
        boxes = sum(n * box.largest_loss() for box, n in self._boxes.items())
        return float((boxes + self._others._largest_loss(wanted).upper) * (1.0 + ROUNDING))

    def _mu(self, min_delta: float, wanted: tuple[Direction, ...]) -> Bounds:
        """Not certified: no Gaussian curve is known to lie above one of which only Renyi divergences are known."""
        return UNKNOWN

    def _rdp(self, orders: NDArray) -> NDArray:
        theta = orders - 1.0
        return np.asarray(self._others._rdp(orders) + self._of_boxes(theta) / theta)

    def rdp_epsilon(self, delta: float) -> float:
        question = EpsilonAt(validate.delta(delta))
        return max(self._upper(question, direction) for direction in directions("both"))
