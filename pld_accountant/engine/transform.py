"""`Transform`: the inner product with tables from characteristic functions; `GridTransform`: with tables on a grid."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ..results import Method as Proof
from ..tables.grid import NARROW
from .method import Job, Method, levels
from .plancherel import solve
from .tilting import Limits
from .working import WorkingBounds

__all__ = ["GridTransform", "Transform"]

_TAIL = -25.0  # log delta below which the losses of many people are truncated from the first method on
_GRID_REACH = 38.0
_MOST_LOST = 0.1  # share of delta beyond a truncated grid, however far apart the bounds may lie


@dataclass(frozen=True)
class Transform(Method):
    """The inner product with tables from characteristic functions, which serve the lower and the upper bound.

    Attributes
    ----------
    limits : Limits
    truncated : bool
        Whether the losses of removal end where a ten-millionth of delta lies beyond: far tails would keep larger tilts
        from being used.
    variance : bool
        Whether the variance term of interpolated steps is added up and not an error; doubles the cost.
    """

    limits: Limits = field(default_factory=Limits)
    truncated: bool = False
    variance: bool = False

    def of_several(self) -> Method:
        """See `Method`."""
        return self

    def improve(self, job: Job, working: WorkingBounds, who: NDArray) -> None:
        """See `Method`."""
        if self.truncated and job.few and job.makers.steps.truncated(1.0) is job.makers.steps:
            return  # nothing is cut, and contours serve a handful of people sooner than more tilts do
        for reach, at in levels(self.reach(job, working, who)):
            variance = self.variance and job.interpolated
            maker = job.makers.characteristic(reach, interpolated=job.interpolated, variance=variance)
            counts, question = job.of(who[at])
            hint = working.estimate[who[at]]
            found = solve(counts, maker, question, limits=self.limits, hint=hint, progress=job.progress)
            if not maker.whole:
                found.renyi[:] = np.nan
            working.merge(who[at], found)

    def reach(self, job: Job, working: WorkingBounds, who: NDArray) -> NDArray:
        """Where the losses of each person end."""
        wants_epsilon = job.question.wants_epsilon
        tail = wants_epsilon and not job.few and float(np.max(np.asarray(job.question.target))) < _TAIL
        if job.makers.steps.direction == "add" or not (self.truncated or tail):
            return np.full(who.size, np.inf)
        return job.near_reach(working, who)


@dataclass(frozen=True)
class GridTransform(Method):
    """The inner product with tables on a grid of the loss, which every family has.

    Attributes
    ----------
    points : int
        Points of the grid over one period.
    limits : Limits
    narrow : int
        Frequencies of the first band; the next is the whole transform.
    truncated : bool
        As for `Transform`; the share of delta beyond the end is a hundredth of `width`.
    """

    points: int = 1 << 17
    limits: Limits = field(default_factory=Limits)
    narrow: int = NARROW
    truncated: bool = False

    def of_several(self) -> Method:
        """See `Method`; with a tilt for each octave and two periods, 200 deltas take 20 to 70 % of the time."""
        return replace(self, limits=replace(self.limits, tilts=1, periods=2, least_expectation=1e-7))

    def improve(self, job: Job, working: WorkingBounds, who: NDArray) -> None:
        """See `Method`; the upper and the lower bound have tables of their own."""
        limits = replace(self.limits, frequencies=self.points)
        near, lost = self.truncated, min(1e-2 * self.width, _MOST_LOST)
        reaches = job.near_reach(working, who, lost) if near else job.far_reach(working, who)
        for reach, at in levels(np.minimum(reaches, _GRID_REACH)):
            counts, question = job.of(who[at])
            hint = working.estimate[who[at]]
            above, below = (
                job.makers.grid(side, self.points, reach, narrow=self.narrow, truncated=near)
                for side in ("upper", "lower")
            )
            upper = solve(counts, above, question, limits=limits, hint=hint)
            if job.known is not None and np.all(upper.solved & (upper.upper <= job.known[who[at]])):
                upper.lower[:] = question.floor  # an answer below what is known needs no lower bound
            else:
                lower = solve(counts, below, question, limits=limits, hint=hint)
                upper.lower, upper.solved = lower.lower, upper.solved & lower.solved
            upper.method[upper.method == Proof.TRANSFORM] = Proof.GRID
            if not above.whole:
                upper.renyi[:] = np.nan
            working.merge(who[at], upper)
