"""`Method`: one way of bounding the people that earlier methods left open; `Job`: a question and its subject."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..counting.counts import Counts, InterpolatedCounts
from ..tables.makers import TableMakers
from .question import Question
from .working import WorkingBounds

__all__ = ["HANDFUL", "Job", "Method", "Progress", "levels", "report"]

HANDFUL = 256
"""People times buckets that may each cost a table of their own."""

_LOST = 1e-7  # share of delta that truncated losses may leave out, all steps together
_LEVEL = 2.5  # the reach is a multiple of this if each person's delta is another
_LEAST = -700.0  # of a log mass
_AIM = 0.6  # share of the width that is enough at which a search ends
_NEAR = -34.6  # log delta of `Method.width_near`


Progress = Callable[[int], None]
"""Called with the number of people done since the last call."""


def report(progress: Progress | None, people: int) -> None:
    """Call `progress` with this number of people, unless it is 0."""
    if progress is not None and people > 0:
        progress(people)


@dataclass(frozen=True)
class Job:
    """One question about some people's counts.

    Attributes
    ----------
    counts : Counts
    makers : TableMakers
    question : Question
    steps : ndarray of int64, shape (people,)
        Number of each person's steps that cost anything.
    few : bool
        Whether there are so few people and buckets that each may cost seconds and tables of their own.
    progress : callable, optional
        Called with the number of people solved since the last call; the first method's.
    known : ndarray, shape (people,), optional
        If only the larger of the answer and this is wanted: an epsilon or log delta.
    """

    counts: Counts
    makers: TableMakers
    question: Question
    steps: NDArray
    few: bool
    progress: Progress | None = None
    known: NDArray | None = None

    @property
    def interpolated(self) -> bool:
        """Whether steps are counted in fractions."""
        return isinstance(self.counts, InterpolatedCounts)

    def of(self, who: NDArray) -> tuple[Counts, Question]:
        """Counts and question of some people, without a copy if these are all."""
        if who.size == len(self.counts):
            return self.counts, self.question
        return self.counts.of(who), self.question.of(who)

    def known_log_delta(self, working: WorkingBounds, who: NDArray) -> NDArray:
        """Each person's log delta if epsilon is asked, else an upper bound of it; NaN if none is known."""
        if self.question.wants_epsilon:
            return self.question.targets(len(self.counts))[who]
        return np.fmin(working.upper, working.renyi)[who]

    def log_delta(self, working: WorkingBounds, who: NDArray, renyi_excess: float) -> NDArray:
        """About what log delta is for each person; the Renyi bound of it is too large by at most `renyi_excess`."""
        if self.question.wants_epsilon:
            return self.question.targets(len(self.counts))[who]
        log_delta = np.fmin(np.fmin(working.estimate[who], working.upper[who]), working.renyi[who] - renyi_excess)
        return np.where(np.isnan(log_delta), _LEAST, np.minimum(log_delta, 0.0))

    def far_reach(self, working: WorkingBounds, who: NDArray) -> NDArray:
        """A reach beyond which a millionth of a millionth of delta lies, all steps together: a whole number."""
        log_delta = self.log_delta(working, who, 15.0)
        mass = np.maximum(log_delta - float(np.log(1e12 * self.steps.max(initial=1))), _LEAST)
        # log Phi(-r) <= -r^2 / 2 for every r >= 0
        return np.ceil(np.sqrt(-2.0 * mass))

    def near_reach(self, working: WorkingBounds, who: NDArray, lost: float = _LOST) -> NDArray:
        """A reach beyond which a small share of delta lies, all steps together."""
        from scipy.special import ndtri_exp

        log_delta = self.log_delta(working, who, 4.0)
        reach = -ndtri_exp(np.maximum(log_delta - np.log(self.steps.max(initial=1) / lost), _LEAST))
        alike = self.question.wants_epsilon and np.ptp(self.question.target) == 0.0
        return reach if alike else _LEVEL * np.ceil(reach / _LEVEL)


@dataclass(frozen=True)
class Method(ABC):
    """A way of bounding people, and the people who are worth it.

    Attributes
    ----------
    width : float
        Bounds this close are left alone: relative for epsilon; times -log delta, absolute, for log delta.
    width_of_largest : float
        Widths of epsilon below this share of the largest upper bound of all people are left alone, too.
    least_steps, most_steps : float
        Only people whose number of steps lies in this range are tried.
    most_people : float
        With more people left open the method is skipped.
    delta : bool
        Whether the method is used for delta as well as for epsilon.
    least_log_delta : float
        A delta that the Renyi bound proves to be at most exp of this is left alone.
    width_near : float
        As `width`, for deltas of 1e-15 and above: there an answer in time is worth more than its last digits.
    wanted : float
        A search continues to this width, although a larger one is enough; with inf it ends at the larger one.
    """

    width: float
    width_of_largest: float = 0.0
    least_steps: float = 2
    most_steps: float = np.inf
    most_people: float = np.inf
    delta: bool = True
    least_log_delta: float = -746.0
    width_near: float = 0.0
    wanted: float = np.inf

    def left_open(self, job: Job, working: WorkingBounds, people: NDArray) -> NDArray:
        """The people whose bounds this method may still tighten, and is worth its cost for."""
        if job.known is not None:
            people = people[~(working.solved[people] & (working.upper[people] <= job.known[people]))]
        upper = working.upper[people]
        with np.errstate(invalid="ignore", divide="ignore"):
            apart = upper - working.lower[people]
            relative = apart / upper
        done, known = working.solved[people], job.known_log_delta(working, people)
        width = self.enough(known)
        if job.question.wants_epsilon:
            largest = np.max(upper, initial=0.0, where=np.isfinite(upper))
            done &= (relative <= width) | (apart <= self.width_of_largest * largest)
        else:
            # log delta may err by more than epsilon: by about theta epsilon, the decay that both share
            done &= apart <= width * np.clip(np.nan_to_num(-known, nan=1.0), 1.0, 700.0)
            done |= known <= self.least_log_delta
        left = people[~done & self.serves(job.steps[people])]
        skipped = left.size > self.most_people or not (self.delta or job.question.wants_epsilon)
        return left[:0] if skipped else left

    def serves(self, steps: NDArray) -> NDArray:
        """Whether the method is tried for these numbers of steps."""
        return (self.least_steps <= steps) & (steps <= self.most_steps)

    def enough(self, log_delta: NDArray) -> NDArray:
        """The width at which bounds are left alone, at about these deltas."""
        return np.where(log_delta >= _NEAR, max(self.width, self.width_near), self.width)

    def aim(self, log_delta: NDArray) -> NDArray:
        """The width at which a search ends, at about these deltas: `wanted`, but less than `enough`."""
        return np.minimum(self.wanted, _AIM * self.enough(log_delta))

    def relaxed(self, width: float) -> Method:
        """The method for somebody whom bounds this close serve, at every delta."""
        wanted = max(self.wanted, _AIM * width)
        return replace(self, width=max(self.width, width), width_near=0.0, wanted=wanted)

    def of_several(self) -> Method | None:
        """The method for a handful of questions about the same counts, if they share work; else None."""
        return None

    @abstractmethod
    def improve(self, job: Job, working: WorkingBounds, who: NDArray) -> None:
        """Merge what this method proves about some people into the working bounds."""


def levels(values: NDArray) -> Iterator[tuple[float, NDArray]]:
    """Each distinct value and the indices at which it stands."""
    for value in np.unique(values):
        yield float(value), np.flatnonzero(values == value)
