"""`WorkingBounds`: the best bounds found so far for everybody's answer to one question; they only ever tighten."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..results import Bounds, Status
from ..results import Method as Proof
from .question import Question

__all__ = ["WorkingBounds", "warn_of_contradiction"]

_SLACK = 1e-11  # round-off by which a lower bound may exceed an upper bound: of epsilon relative, of log delta more
_LEAST_LOG = -744.4  # of the least double, rounded up


def warn_of_contradiction(number: int, of: int) -> None:
    """Warn that a lower bound exceeds an upper bound for some of the people, so that one of the two is wrong."""
    warnings.warn(
        "two methods contradict each other, which is a defect of pld_accountant; please report it. "
        f"Nothing is certified for {number} of {of}.",
        RuntimeWarning,
        stacklevel=3,
    )


@dataclass
class WorkingBounds:
    """Bounds of epsilon or log delta, one element a person.

    Attributes
    ----------
    lower, estimate, upper : ndarray of float64, shape (people,)
        (floor, NaN or a guess, inf) if nothing is known.
    solved : ndarray of bool, shape (people,)
        Whether `upper` is proven.
    renyi : ndarray of float64, shape (people,)
        The Renyi bound of the answer; NaN if not computed.
    method : ndarray of uint8, shape (people,)
        The `results.Method` that proved `upper`.
    slack : float
        Absolute round-off by which a lower bound may exceed an upper bound; `_SLACK` of the upper bound is added.
    contradicted : ndarray of bool, shape (people,)
        Whether one method's lower bound exceeds another's upper bound: one of them is wrong, and nothing is certified.
    """

    lower: NDArray
    estimate: NDArray
    upper: NDArray
    solved: NDArray
    renyi: NDArray
    method: NDArray
    contradicted: NDArray
    slack: float

    @classmethod
    def unknown(cls, people: int, question: Question) -> WorkingBounds:
        """Nothing is known."""
        return cls(
            lower=np.full(people, question.floor),
            estimate=np.full(people, np.nan),
            upper=np.full(people, np.inf),
            solved=np.zeros(people, dtype=bool),
            renyi=np.full(people, np.nan),
            method=np.full(people, Proof.NONE, dtype=np.uint8),
            contradicted=np.zeros(people, dtype=bool),
            slack=0.0 if question.wants_epsilon else _SLACK,
        )

    def settle(
        self,
        who: NDArray,
        lower: NDArray | float,
        estimate: NDArray | float,
        upper: NDArray | float,
        method: Proof | NDArray,
    ) -> None:
        """Store proven bounds of some people, in place of the bounds they had; nothing is compared."""
        self.lower[who], self.estimate[who], self.upper[who] = lower, estimate, upper
        self.solved[who], self.method[who] = True, method

    def merge(self, who: NDArray, found: WorkingBounds) -> None:
        """Intersect with bounds found for some people; the estimate is that of the narrower interval."""
        self.renyi[who] = np.fmin(self.renyi[who], found.renyi)
        guess = ~found.solved & np.isfinite(found.estimate) & ~self.solved[who]
        self.estimate[who[guess]] = found.estimate[guess]
        new = found.solved & ~np.isnan(found.upper)
        keep, lower, upper = who[new], found.lower[new], found.upper[new]
        with np.errstate(invalid="ignore"):
            narrower = ~(upper - lower >= self.upper[keep] - self.lower[keep])
        estimate = np.where(narrower, found.estimate[new], self.estimate[keep])
        method = np.where(upper < self.upper[keep], found.method[new], self.method[keep])
        both = np.maximum(lower, self.lower[keep]), estimate, np.minimum(upper, self.upper[keep])
        self._compare(keep, both[0], both[2])
        self.contradicted[who] |= found.contradicted
        self.settle(keep, *both, method)

    def _compare(self, who: NDArray, lower: NDArray, upper: NDArray) -> None:
        """Note whose lower bound exceeds the upper bound."""
        room = np.where(np.isfinite(upper), self.slack + _SLACK * np.abs(upper), 0.0)
        self.contradicted[who] |= lower > upper + room

    def take_side(self, who: NDArray, found: WorkingBounds, *, lower: bool) -> None:
        """Copy the bounds of people whose lower (or else upper) bound is tighter in `found`, of other counts."""
        better = found.lower > self.lower[who] if lower else found.upper < self.upper[who]
        take = found.solved & (better | ~self.solved[who])
        some = (found.lower[take], found.estimate[take], found.upper[take], found.method[take])
        self.contradicted[who] |= found.contradicted
        self.settle(who[take], *some)

    def cap(self, who: NDArray, upper: NDArray, method: Proof) -> None:
        """Lower the upper bounds of some people where `upper` is below them."""
        better = np.isfinite(upper) & (upper < self.upper[who])
        at, most = who[better], upper[better]
        self._compare(at, self.lower[at], most)
        self.settle(at, np.minimum(self.lower[at], most), most, most, method)

    def answer(self, question: Question) -> Bounds:
        """Bounds of epsilon, or of delta itself, with a status and a method for everybody."""
        self._compare(np.flatnonzero(self.solved), self.lower[self.solved], self.upper[self.solved])
        if self.contradicted.any():
            warn_of_contradiction(int(self.contradicted.sum()), self.contradicted.size)
        solved = self.solved & ~np.isnan(self.upper) & ~self.contradicted
        # bounds that cross by round-off both hold up to it: the interval between them holds, too
        ends = np.minimum(self.lower, self.upper), np.maximum(self.lower, self.upper)
        lower, upper = np.where(solved, ends[0], question.floor), np.where(solved, ends[1], np.inf)
        estimate = np.where(solved, np.clip(self.estimate, lower, upper), np.nan)
        with np.errstate(invalid="ignore"):
            middle = np.where(np.isfinite(lower), 0.5 * (lower + upper), upper)
        estimate = np.where(solved & np.isnan(estimate), middle, estimate)
        method = np.where(solved, self.method, Proof.NONE).astype(np.uint8)
        renyi_only = (method == Proof.RENYI) & (lower <= question.floor) & (lower < upper)
        if not question.wants_epsilon:
            renyi_only &= upper > _LEAST_LOG  # no double lies between the bounds of a smaller delta
        status = np.where(solved, np.where(renyi_only, Status.RENYI_ONLY, Status.CERTIFIED), Status.NOT_CERTIFIED)
        return question.bounds(lower, estimate, upper, status.astype(np.uint8), method)
