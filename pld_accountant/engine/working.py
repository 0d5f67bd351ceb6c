"""`Solution`: what is known of everybody's answer to one question, while it is being looked for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..results import Bounds, Status

__all__ = ["Solution"]


@dataclass
class Solution:
    """Per person: lower, estimate, upper (epsilon, or log delta) and whether they came out.

    Unsolved elements are (0 or -inf, a guess or nan, inf).  renyi: what Renyi accounting says, as a guess.
    """

    lower: NDArray
    estimate: NDArray
    upper: NDArray
    solved: NDArray
    renyi: NDArray

    @classmethod
    def empty(cls, people: int, solve_epsilon: bool) -> Solution:
        lowest = 0.0 if solve_epsilon else -np.inf
        return cls(
            np.full(people, lowest), np.full(people, np.nan), np.full(people, np.inf), np.zeros(people, dtype=bool),
            np.full(people, np.nan),
        )  # fmt: skip

    def of(self, who: NDArray) -> Solution:
        """The same of some people."""
        return Solution(self.lower[who], self.estimate[who], self.upper[who], self.solved[who], self.renyi[who])

    def settle(
        self, who: NDArray, lower: NDArray | float, estimate: NDArray | float, upper: NDArray | float
    ) -> None:
        self.lower[who], self.estimate[who], self.upper[who] = lower, estimate, upper
        self.solved[who] = True

    def merge(self, who: NDArray, found: Solution) -> None:
        """Take over what was found of these people; where both are certified the intersection is."""
        guess = ~found.solved & np.isfinite(found.estimate) & ~self.solved[who]
        self.estimate[who[guess]] = found.estimate[guess]
        keep = who[found.solved]
        lower, upper = found.lower[found.solved], found.upper[found.solved]
        better = ~(upper - lower >= self.upper[keep] - self.lower[keep])
        estimate = np.where(better, found.estimate[found.solved], self.estimate[keep])
        self.settle(keep, np.maximum(lower, self.lower[keep]), estimate, np.minimum(upper, self.upper[keep]))

    def take_better(self, trial: Solution, who: NDArray, *, lower: bool) -> None:
        """Take over from the trial, of these people, whose bound on the side that counts is the better one there."""
        better = trial.lower[who] > self.lower[who] if lower else trial.upper[who] < self.upper[who]
        take = who[trial.solved[who] & (better | ~self.solved[who])]
        self.settle(take, trial.lower[take], trial.estimate[take], trial.upper[take])

    def as_bounds(self, solve_epsilon: bool) -> Bounds:
        """Of epsilon, or of delta itself."""
        self.solved &= ~np.isnan(self.upper)
        lower, upper = np.where(
            self.solved, [self.lower, self.upper], [[0.0 if solve_epsilon else -np.inf], [np.inf]]
        )
        estimate = np.where(self.solved, np.clip(self.estimate, lower, upper), np.nan)
        with np.errstate(invalid="ignore"):
            middle = np.where(np.isfinite(lower), 0.5 * (lower + upper), upper)
        estimate = np.where(self.solved & np.isnan(estimate), middle, estimate)
        if not solve_epsilon:
            # exp rounds to nearest, which matters where it underflows: one double down, one double up
            lower = np.nextafter(np.exp(np.minimum(lower, 0.0)), 0.0)
            estimate = np.exp(np.minimum(estimate, 0.0))
            above = np.minimum(np.nextafter(np.exp(np.minimum(upper, 0.0)), 2.0), 1.0)
            upper = np.where(self.solved, np.where(np.isneginf(upper), 0.0, above), np.inf)
        status = np.where(self.solved, Status.CERTIFIED, Status.NOT_CERTIFIED).astype(np.uint8)
        return Bounds(lower, estimate, upper, status=status)
