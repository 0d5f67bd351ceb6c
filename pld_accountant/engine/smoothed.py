"""`Smoothed`: bounds of losses with atoms, from the same steps composed with a Gaussian mechanism of small mu.

The characteristic function of atoms does not fall to 0.  With the Gaussian mechanism, frequencies up to about 7 / mu
suffice.

Let delta_s(epsilon) be the curve of the steps composed with a Gaussian mechanism of mu = s, and H_s(y) the delta of
this mechanism alone at epsilon = y >= 0.

**Upper bound.**  To drop the output of the Gaussian mechanism is post-processing.  So delta <= delta_s.

**Lower bound.**  With the loss L of the steps under P,

    delta_s(epsilon) - delta(epsilon) = E[h_s(L)],    h_s(x) = H_s(|epsilon - x|) min(1, exp(epsilon - x)).

1. dH_s / ds = phi(y / s - s / 2), with the standard normal density phi.  So H_s(y) is exp(y / 2) / sqrt(2 pi) times the
   integral of exp(-y^2 / (2 u^2) - u^2 / 8) over 0 < u < s.
2. A larger y moves the weight of this integrand to larger u.  So H_s(y) / H_2s(y) falls with y.
3. With r = H_s(0) / H_2s(0), h_s <= r h_2s everywhere.  So E[h_s] <= r E[h_2s], which is r (delta_2s - delta).
4. Hence delta >= delta_s - r / (1 - r) (delta_2s - delta_s).

r / (1 - r) is nearly 1.  If the losses have a smooth density near epsilon, the two bounds are about 3 s^2 / 2 times
that density apart.

Losses of removal end where a ten-millionth of delta lies beyond: their tails would keep large tilts from being used.
The rest counts as infinite, in the upper bounds of both curves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import deadline
from ..counting.counts import WholeCounts
from ..mechanisms.base import CharacteristicSteps
from ..mechanisms.mixed import mixed
from ..mechanisms.sampled_gaussian import SampledGaussianSteps
from ..notions import gdp
from ..results import Method as Proof
from ..tables.characteristic import CharacteristicTables
from ..tables.makers import TableMakers
from .method import Job, Method, levels
from .plancherel import solve
from .question import DeltaAt, Question
from .tilting import Limits, make_plan
from .working import WorkingBounds

__all__ = ["Smoothed"]

_MU = 2.0 ** -np.arange(24.0)  # of the Gaussian mechanisms; a level is an index
_BAND = 7.0  # frequencies, times mu, beyond which the Gaussian mechanism leaves out less than is allowed
_FIRST = 5  # level that is tried first if the answer is unknown
_LEAST = -700.0  # log delta below which this is the first, too
_ROOM = 64.0  # times the width wanted: a second try that leaves more shows that the density is not smooth
_ROUND_OFF = 1e-12  # of r / (1 - r) and of a lower bound of delta, relative
_ROUGH = 1e-3  # relative width of the first upper bound
_TRIES = 3  # levels for one answer, and distances of a lower bound of epsilon


@dataclass(frozen=True)
class Smoothed(Method):
    """Bounds from a Gaussian mechanism of small mu, for whole counts of steps with atoms.

    Attributes
    ----------
    width : float
        As for `Method`; above 0.
    limits : Limits
    coarser : int
        A person is skipped whose limits force mu to be more than this many levels above what the width needs.
    """

    limits: Limits = field(default_factory=Limits)
    coarser: int = 24

    def of_several(self) -> Method:
        """See `Method`; with a tilt for each octave and two periods, 200 deltas take a third to a half of the time."""
        limits = replace(self.limits, tilts=1, periods=2)
        return replace(self, most_people=np.inf, limits=limits)

    def improve(self, job: Job, working: WorkingBounds, who: NDArray) -> None:
        """See `Method`."""
        if not isinstance(job.makers.steps, CharacteristicSteps) or not isinstance(job.counts, WholeCounts):
            return
        # a rough answer tells the level, the tilt, and how far the losses of a small delta must reach
        for way in (self._roughly, self._closely):
            left = self.left_open(job, working, who)
            # halves of whole numbers, so that many questions share their tables
            for reach, at in levels(0.5 * np.ceil(2.0 * job.near_reach(working, left))):
                counts = np.stack([job.counts.of_rows(person) for person in left[at].tolist()])
                way(job, working, left[at], _Curves(job.makers, reach, counts, job.question.of(left[at]), self.limits))

    def _roughly(self, job: Job, working: WorkingBounds, who: NDArray, curves: _Curves) -> None:
        """Upper bounds to a thousandth where only the Renyi bound is known, or one below `Job.known` is enough."""
        known = _known(working, who)
        known[known >= working.renyi[who]] = np.nan
        finest, hint = curves.finest_levels(known)
        some = np.flatnonzero(np.isfinite(hint) & ((job.known is not None) | np.isnan(known)))
        if some.size:
            level = np.minimum(_first_levels(curves.question, hint, np.full(hint.size, _ROUGH)), finest)[some]
            upper = curves.of(some).upper(level, hint[some])
            found = np.isfinite(upper)
            _settle(working, who[some[found]], job.question, (job.question.floor, np.nan, upper[found]))

    def _closely(self, job: Job, working: WorkingBounds, who: NDArray, curves: _Curves) -> None:
        """Both bounds, at levels that leave them as close as is wanted."""
        left, most = np.arange(who.size), np.full(who.size, np.inf)
        finest, hint = curves.finest_levels(_known(working, who))
        wanted = self.aim(job.known_log_delta(working, who))
        level = _first_levels(curves.question, hint, wanted)
        left, level = left[level[left] <= finest[left] + self.coarser], np.minimum(level, finest)
        for _ in range(_TRIES):
            if not left.size:
                break
            deadline.check()
            lower, upper = curves.of(left).bounds(level[left], hint[left])
            found = np.isfinite(upper)
            left, lower, upper = left[found], lower[found], upper[found]
            # if the density is smooth, delta_s exceeds delta by a third of the width
            middle = np.where(np.isfinite(lower), upper - (upper - lower) / 3.0, upper)
            _settle(working, who[left], job.question, (lower, middle, upper))
            hint[left] = working.estimate[who[left]]
            still = np.isin(who[left], self.left_open(job, working, who[left]))
            left, lower, upper = left[still], lower[still], upper[still]
            apart = (upper - lower) / (upper if job.question.wants_epsilon else np.clip(-upper, 1.0, 700.0))
            # the width is proportional to mu^2
            closer = np.ceil(0.5 * np.log2(np.minimum(apart, 1.0) / wanted[left])).astype(np.int64)
            again = (apart <= most[left]) & (closer >= 1) & (level[left] < finest[left])
            left, closer, apart = left[again], closer[again], apart[again]
            level[left] = np.minimum(level[left] + closer, finest[left])
            most[left] = np.where(apart < 0.1, _ROOM * wanted[left], np.inf)


def _known(working: WorkingBounds, who: NDArray) -> NDArray:
    """About what some people's answers are, or NaN."""
    known = np.fmin(working.estimate, working.upper)[who]
    return np.where(np.isfinite(known), known, np.nan)


def _settle(working: WorkingBounds, who: NDArray, question: Question, ends: tuple[Any, Any, NDArray]) -> None:
    """Merge what was proven about some people."""
    found = WorkingBounds.unknown(who.size, question)
    found.settle(np.arange(who.size), *ends, Proof.TRANSFORM)
    working.merge(who, found)


def _first_levels(question: Question, hint: NDArray, wanted: NDArray) -> NDArray:
    """The levels at which the bounds are about as close as wanted, if the curve is that of a Gaussian mechanism.

    Its losses have the density h(w) / mu times -delta', with h the hazard rate of the normal law and
    w = epsilon / mu + mu / 2.
    """
    from scipy.special import log_ndtr

    target = question.targets(hint.size)
    epsilon, log_delta = (hint, target) if question.wants_epsilon else (target, hint)
    level = np.full(hint.size, _FIRST)
    inside = (epsilon > 0.0) & (epsilon < np.inf) & (log_delta > _LEAST) & (log_delta < 0.0)
    epsilon, log_delta = epsilon[inside], log_delta[inside]
    mu = gdp.mu(epsilon, np.exp(log_delta))
    w = epsilon / mu + 0.5 * mu
    apart = wanted[inside] * epsilon
    if not question.wants_epsilon:
        theta = np.exp(epsilon + log_ndtr(-w) - log_delta)
        apart = wanted[inside] * np.maximum(1.0, -log_delta) / theta
    hazard = 0.5 * (w + np.hypot(w, 2.0))  # slightly above it
    level[inside] = np.clip(np.ceil(-0.5 * np.log2(apart * mu / (1.5 * hazard))), 1, _MU.size - 1)
    return level


@dataclass(frozen=True)
class _Curves:
    """A question about some people's steps, composed with a Gaussian mechanism of mu = s, and with one of mu = 2 s.

    Levels and hints are arrays of shape (people,); a hint is about the answer, or NaN.

    Attributes
    ----------
    makers : TableMakers
        Of the steps alone.
    reach : float
        Where their losses end.
    counts : ndarray of int64, shape (people, rows)
    question : Question
    limits : Limits
    levels : tuple of int
        Those of the Gaussian mechanisms in the tables.  Each set of levels has tables of its own.
    """

    makers: TableMakers
    reach: float
    counts: NDArray
    question: Question
    limits: Limits
    levels: tuple[int, ...] = ()

    def of(self, who: NDArray) -> _Curves:
        """The question to some of the people."""
        return replace(self, counts=self.counts[who], question=self.question.of(who))

    def finest_levels(self, hint: NDArray) -> tuple[NDArray, NDArray]:
        """The levels of the least mu whose frequencies the limits allow; estimates of the answers."""
        maker, band = self.makers.characteristic(self.reach, interpolated=False), np.full(hint.size, _BAND)
        plan = make_plan(WholeCounts(self.counts), maker, self.question, hint, self.limits, band)
        longer = 2.0 ** (0.5 + 1.0 / self.limits.periods)  # `plancherel` rounds the band and the period up
        with np.errstate(divide="ignore"):
            most = np.log2(2.0 * math.pi * self.limits.frequencies / (_BAND * longer * plan.period))
        level = np.clip(np.floor(most), 1, _MU.size - 1).astype(np.int64)
        return level, np.where(np.isnan(hint) & (plan.start != 0.0), plan.start, hint)

    def bounds(self, level: NDArray, hint: NDArray) -> tuple[NDArray, NDArray]:
        """Bounds of the answers at a level each; an upper bound is infinite where the transform fails."""
        curves = self._at(np.concatenate([level, level - 1]))
        return curves._epsilon(level, hint) if self.question.wants_epsilon else curves.log_delta(level, hint)

    def upper(self, level: NDArray, hint: NDArray) -> NDArray:
        """Upper bounds of the answers at a level each; infinite where the transform fails."""
        _, upper, solved = self._at(level)._solve(level, hint, 1)
        return np.where(solved[0], upper[0], np.inf)

    def _at(self, level: NDArray) -> _Curves:
        """With tables for these levels."""
        return replace(self, levels=tuple(np.unique(level).tolist()))

    def _solve(self, level: NDArray, hint: NDArray, curves: int = 2) -> Iterator[NDArray]:
        """Lower bounds, upper bounds, and whether they are proven, each of shape (curves, people).

        The first curve has a Gaussian mechanism of mu = s, the second one of 2 s.
        """
        people = len(level)
        every, own = np.tile(np.arange(people), curves), np.concatenate([level, level - 1])[: curves * people]
        beside = np.equal.outer(own, self.levels).astype(np.int64)
        counts, maker = WholeCounts(np.hstack([self.counts[every], beside])), self._beside_gaussians()
        question, band = self.question.of(every), _BAND / _MU[own]
        found = solve(counts, maker, question, limits=self.limits, hint=hint[every], band=band)
        return (ends.reshape(curves, people) for ends in (found.lower, found.upper, found.solved))

    def _beside_gaussians(self) -> CharacteristicTables:
        """The maker for the rows of the steps, followed by a row for the Gaussian mechanism of each level."""
        steps, mu = self.makers.truncated(self.reach), _MU[list(self.levels)]

        def make() -> CharacteristicTables:
            both = mixed([steps, SampledGaussianSteps(1.0 / mu, np.ones(mu.size), steps.direction)])
            assert isinstance(both, CharacteristicSteps)
            # its tables count against the same limit of memory as those of the steps
            return self.makers.maker(both, interpolated=False)

        return self.makers.kept(("smoothed", steps, self.levels), make)

    def log_delta(self, level: NDArray, hint: NDArray) -> tuple[NDArray, NDArray]:
        """Bounds of log delta; (-inf, inf) where the transform fails."""
        lower, upper, solved = self._solve(level, hint)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            near, far = np.exp(lower[0] - upper[0]), np.exp(upper[1] - upper[0])
            least = near * (1.0 - _ROUND_OFF) - _share(level) * np.maximum(far - near, 0.0)
            least = upper[0] + np.log(np.maximum(least, 0.0))
        good = solved.all(axis=0)
        return np.where(good, least, -np.inf), np.where(good, upper[0], np.inf)

    def _epsilon(self, level: NDArray, hint: NDArray) -> tuple[NDArray, NDArray]:
        lower, upper, solved = self._solve(level, hint)
        good = solved.all(axis=0)
        log_delta, least = self.question.targets(len(level)), np.zeros(len(level))
        left, apart = np.flatnonzero(good), np.maximum(upper[1] - lower[0], 1e-12 * upper[0])
        for _ in range(_TRIES):
            below = lower[0, left] - 1.1 * apart[left]
            left, below = left[below > 0.0], below[below > 0.0]
            if not left.size:
                break
            there = replace(self.of(left), question=DeltaAt(below))
            proven = there.log_delta(level[left], log_delta[left])[0] >= log_delta[left]
            least[left[proven]] = below[proven]
            left = left[~proven]
            apart[left] *= 2.0
        return least, np.where(good, upper[0], np.inf)


def _share(level: NDArray) -> NDArray:
    """r / (1 - r), rounded up."""
    from scipy.special import erf

    one, two = erf(_MU[level] / math.sqrt(8.0)), erf(_MU[level - 1] / math.sqrt(8.0))
    return np.asarray(one / (two - one) * (1.0 + _ROUND_OFF))
