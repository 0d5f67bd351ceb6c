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
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .. import deadline
from ..counting.counts import WholeCounts
from ..mechanisms.base import CharacteristicSteps
from ..mechanisms.mixed import mixed
from ..mechanisms.sampled_gaussian import SampledGaussianSteps
from ..notions import gdp
from ..results import Method as Proof
from ..tables.makers import TableMakers
from .method import Job, Method
from .plancherel import solve
from .question import DeltaAt, EpsilonAt, Question
from .tilting import Limits, make_plan
from .working import WorkingBounds

__all__ = ["Smoothed"]

_MU = 2.0 ** -np.arange(24.0)  # of the Gaussian mechanisms; a level is an index
_FIRST = 5  # level that is tried first if the answer is unknown
_LEAST = -700.0  # log delta below which this is the first, too
_ROOM = 64.0  # times the width wanted: a second try that leaves more shows that the density is not smooth
_ROUND_OFF = 1e-12  # of r / (1 - r) and of a lower bound of delta, relative
_ROUGH = 1e-3  # relative width of the first upper bound, if a larger answer is known
_TRIES = 3  # levels for one answer, and distances of a lower bound of epsilon


@dataclass(frozen=True)
class Smoothed(Method):
    """Bounds from a Gaussian mechanism of small mu, person by person, for whole counts of steps with atoms.

    Attributes
    ----------
    limits : Limits
    wanted : float
        The width at which the search for a mu stops, in the unit of `width`.
    coarser : int
        By how many levels the limits may keep mu above what `wanted` needs; people for whom it is more are left alone.
    """

    limits: Limits = field(default_factory=Limits)
    wanted: float = 5e-7
    coarser: int = 24

    def improve(self, job: Job, working: WorkingBounds, who: NDArray) -> None:
        """See `Method`."""
        steps = job.makers.steps
        if not isinstance(steps, CharacteristicSteps) or not isinstance(job.counts, WholeCounts):
            return
        for person in who:
            at = np.array([person])
            # a half of a whole number, so that many questions share their tables
            makers = _beside_gaussians(job.makers, 0.5 * math.ceil(2.0 * float(job.near_reach(working, at)[0])))
            one = _OnePerson(makers, job.counts.of_rows(int(person)), self.limits)
            question, most = job.question.of(at), math.inf
            known = float(np.fmin(working.estimate, working.upper)[person])
            finest, hint = one.finest_level(question, known if math.isfinite(known) else math.nan)
            if job.known is not None and math.isfinite(hint):
                # an answer below what is known needs no close bounds
                upper = one.upper(question, min(_first_level(question, hint, _ROUGH), finest), hint)
                if upper <= job.known[person]:
                    _settle(working, at, question, (question.floor, math.nan, upper))
                    continue
            level = _first_level(question, hint, self.wanted)
            if level > finest + self.coarser:
                continue
            level = min(level, finest)
            for _ in range(_TRIES):
                deadline.check()
                ends = one.bounds(question, level, hint)
                if not math.isfinite(ends[1]):
                    break
                # if the density is smooth, delta_s exceeds delta by a third of the width
                middle = ends[1] - (ends[1] - ends[0]) / 3.0 if math.isfinite(ends[0]) else ends[1]
                _settle(working, at, question, (ends[0], middle, ends[1]))
                hint = float(working.estimate[person])
                if not self.left_open(job, working, at).size:
                    break
                size = ends[1] if question.wants_epsilon else min(max(1.0, -ends[1]), 700.0)
                apart = (ends[1] - ends[0]) / size
                if apart > most:
                    break
                # the width is proportional to mu^2
                closer = math.ceil(0.5 * math.log2(min(apart, 1.0) / self.wanted))
                if closer < 1 or level >= finest:
                    break
                level, most = min(level + closer, finest), _ROOM * self.wanted if apart < 0.1 else math.inf


def _settle(working: WorkingBounds, at: NDArray, question: Question, ends: tuple[float, float, float]) -> None:
    """Merge what was proven about one person."""
    found = WorkingBounds.unknown(1, question)
    found.settle(np.array([0]), *ends, Proof.TRANSFORM)
    working.merge(at, found)


def _first_level(question: Question, hint: float, wanted: float) -> int:
    """The level at which the bounds are about as close as wanted, if the curve is that of a Gaussian mechanism.

    Its losses have the density h(w) / mu times -delta', with h the hazard rate of the normal law and
    w = epsilon / mu + mu / 2.
    """
    from scipy.special import log_ndtr

    if isinstance(question, EpsilonAt):
        epsilon, log_delta = hint, float(np.log(question.delta).ravel()[0])
    else:
        epsilon, log_delta = float(np.ravel(question.target)[0]), hint
    if not (0.0 < epsilon < math.inf and _LEAST < log_delta < 0.0):
        return _FIRST
    mu = float(gdp.mu(epsilon, math.exp(log_delta)))
    w = epsilon / mu + 0.5 * mu
    apart = wanted * epsilon
    if not question.wants_epsilon:
        theta = math.exp(epsilon + float(log_ndtr(-w)) - log_delta)
        apart = wanted * max(1.0, -log_delta) / theta
    hazard = 0.5 * (w + math.hypot(w, 2.0))  # slightly above it
    return min(max(math.ceil(-0.5 * math.log2(apart * mu / (1.5 * hazard))), 1), _MU.size - 1)


def _beside_gaussians(makers: TableMakers, reach: float) -> TableMakers:
    """Makers for the rows of the steps, whose losses end at a reach, followed by a row for each Gaussian mechanism."""
    steps = makers.truncated(reach)
    gaussian = SampledGaussianSteps(1.0 / _MU, np.ones(_MU.size), steps.direction)
    return makers.kept(("smoothed", steps), lambda: TableMakers(mixed([steps, gaussian])))


class _OnePerson:
    """One person's steps, composed with a Gaussian mechanism of mu = s, and with one of mu = 2 s."""

    def __init__(self, makers: TableMakers, counts: NDArray, limits: Limits) -> None:
        self._makers, self._counts, self._limits = makers, counts, limits

    def bounds(self, question: Question, level: int, hint: float) -> tuple[float, float]:
        """Bounds of the answer at a level; the upper bound is infinite if the transform fails.

        hint: about the answer, or NaN.
        """
        if isinstance(question, EpsilonAt):
            return self._epsilon(float(np.ravel(question.delta)[0]), level, hint)
        return self.log_delta(float(np.ravel(question.target)[0]), level, hint)

    def finest_level(self, question: Question, hint: float) -> tuple[int, float]:
        """The level of the least mu whose frequencies, about 7 / mu, the limits allow; an estimate of the answer."""
        counts = WholeCounts(np.append(self._counts, np.zeros(_MU.size, dtype=np.int64))[None])
        maker = self._makers.characteristic(interpolated=False)
        plan = make_plan(counts, maker, question, np.array([hint]), self._limits)
        period, about = float(plan.period[0]), float(plan.start[0])
        most = 2.0 * math.pi * self._limits.frequencies / (7.0 * period) if period > 0.0 else math.inf
        level = min(max(math.floor(math.log2(most)), 1), _MU.size - 1) if most < math.inf else _MU.size - 1
        return level, about if math.isnan(hint) and about else hint

    def upper(self, question: Question, level: int, hint: float) -> float:
        """An upper bound of the answer at a level; infinite if the transform fails."""
        found = self._solve(question, level, hint, 1)
        return float(found.upper[0]) if found.solved[0] else math.inf

    def _solve(self, question: Question, level: int, hint: float, curves: int = 2) -> WorkingBounds:
        """Bounds with a Gaussian mechanism of mu = s, and with one of 2 s if two curves are wanted."""
        counts = np.zeros((curves, self._counts.size + _MU.size), dtype=np.int64)
        counts[:, : self._counts.size] = self._counts
        counts[np.arange(curves), self._counts.size + level - np.arange(curves)] = 1
        maker = self._makers.characteristic(interpolated=False)
        return solve(WholeCounts(counts), maker, question, limits=self._limits, hint=np.full(curves, hint))

    def log_delta(self, epsilon: float, level: int, hint: float) -> tuple[float, float]:
        """Bounds of log delta; (-inf, inf) if the transform fails."""
        found = self._solve(DeltaAt(epsilon), level, hint)
        if not found.solved.all():
            return -math.inf, math.inf
        upper = float(found.upper[0])
        with np.errstate(over="ignore"):
            near, far = np.exp(found.lower[0] - upper), np.exp(found.upper[1] - upper)
        lower = near * (1.0 - _ROUND_OFF) - _share(level) * max(far - near, 0.0)
        return (upper + math.log(lower) if lower > 0.0 else -math.inf), upper

    def _epsilon(self, delta: float, level: int, hint: float) -> tuple[float, float]:
        found, log_delta = self._solve(EpsilonAt(delta), level, hint), math.log(delta)
        if not found.solved.all():
            return 0.0, math.inf
        upper = float(found.upper[0])
        apart = max(float(found.upper[1]) - float(found.lower[0]), 1e-12 * upper)
        for _ in range(_TRIES):
            below = float(found.lower[0]) - 1.1 * apart
            if below <= 0.0:
                break
            if self.log_delta(below, level, log_delta)[0] >= log_delta:
                return below, upper
            apart *= 2.0
        return 0.0, upper


def _share(level: int) -> float:
    """r / (1 - r), rounded up."""
    from scipy.special import erf

    one, two = erf(_MU[[level, level - 1]] / math.sqrt(8.0))
    return float(one / (two - one)) * (1.0 + _ROUND_OFF)
