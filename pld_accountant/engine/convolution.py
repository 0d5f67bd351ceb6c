"""Direct convolution of few or rare steps, without tilt, period or band, on grids that are fine where delta arises.

1. A partial sum of the losses is stored as two discrete distributions, one above and one below the true one.
2. Two partial sums are added pair by pair.  The sums return to a grid: up, by sharing each mass between the ends of its
   cell; down, by merging each cell into one atom.
3. Both preserve the masses under P and under Q.  So the first is a chord of the hockey-stick curve, which is convex in
   e^epsilon, and the second is a post-processing.  Composition preserves both orders.
4. Only positive numbers are added, so delta = 1e-100 is as accurate as 1e-5.
5. The sum of the last two partial sums is never formed: delta is a sum over their pairs.

The bounds are valid on any grid.  Let f and r be the densities of a partial sum and of the sum of the other steps.  A
cell of width h at the loss l adds about f(l) r(epsilon - l) h^3 / 12 to the curve above, and takes half of this from
the curve below.  A rough pass estimates f and r.  The next passes choose h proportional to (f r)^(-1/3).

References: Doroshenko, Ghazi, Kamath, Kumar, Manurangsi, "Connect the dots: tighter discrete approximations of privacy
loss distributions", PoPETs 2022, for the chords.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .. import deadline
from ..counting.counts import WholeCounts
from ..mechanisms.base import MASS_ERROR, StepFamily
from ..results import Method as Proof
from ..threads import in_order
from .convolution_tree import Aim, DiscreteLoss, discrete_loss, place, plant, thinned
from .method import Job, Method
from .question import Question
from .working import WorkingBounds

__all__ = ["Convolution", "ConvolvedLoss"]

_REACH = 38.0  # truncation of one step, in standard deviations
_ROUGH, _FIRST, _MOST_MODEL = 100, 300, 2_000  # points: of rough grids, of the next pass, and of a model at most
_ENOUGH = 100.0  # times the width wanted: at this width a pass can be the model of the final passes
_PAIRED = 80  # atoms of each partial sum whose pairs place a rough grid
_ROUGH_STEP = 0.4  # of the log of the tail mass, between two knots of a rough grid
_LEAF = 100_000  # points of a grid if no partial sum is formed
_TRIES = 3  # final passes at most
_STALLED = 2  # passes in a row that leave more than half of the distance; then the attempt ends
_QUICK = 1e6  # adding up this many pairs takes less time than starting a thread
_TILTS = 2.0 ** np.arange(-4.0, 46.0, 0.5)
_LEAST_NOISE = 0.01  # the time for the cells of one step grows like 1 / sigma^2
_MOST_SUMS = 48  # partial sums of one person at most


@dataclass(frozen=True)
class Convolution(Method):
    """Direct convolution, person by person, for whole counts that few partial sums add up to.

    Attributes
    ----------
    pairs : float
        The largest number of pairs of atoms, of all people together.
    """

    pairs: float = 8e8

    def improve(self, job: Job, working: WorkingBounds, who: NDArray) -> None:
        """See `Method`."""
        assert isinstance(job.counts, WholeCounts)
        for person in who:
            counts, steps = job.counts.of_rows(int(person)), job.makers.steps
            mu = steps.gaussian_mu()
            # a discrete law that excludes outcomes is below no Gaussian's, but its losses may be small
            if np.where(np.isfinite(mu), mu, steps.largest_loss())[counts > 0].max() > 1.0 / _LEAST_NOISE:
                continue
            loss = ConvolvedLoss(steps, counts)
            if loss.tree.sums > _MOST_SUMS:
                continue
            at = np.array([person])
            question, log_delta = job.question.of(at), job.known_log_delta(working, at)
            width = float(self.aim(log_delta)[0])
            if not question.wants_epsilon:
                width *= float(np.clip(np.nan_to_num(-log_delta, nan=1.0), 1.0, 700.0)[0])
            lower, upper = loss.bounds(question, width, self.pairs / who.size)
            if not np.isfinite(upper):
                continue
            found = WorkingBounds.unknown(1, question)
            middle = (2.0 * lower + upper) / 3.0 if np.isfinite(lower) else upper
            found.settle(np.array([0]), lower, middle, upper, Proof.CONVOLUTION)
            working.merge(at, found)


def roundoff_pairs(one: int, two: int) -> float:
    """Relative round-off that `kernels.convolve` adds to the masses of a sum of two discrete losses of these sizes.

    All terms are positive, so the round-off in units of 2^-53 is at most the length of the longest chain.

    1. A cell's additions form chains of at most 16 x two within a block of 16 atoms of the first loss, and of one / 16
       over the blocks.
    2. The sums over the second loss that are made in advance are 4 x two roundings deep.
    3. A product, 1 - exp(-d) and the sharing between the ends of a cell cost at most 30.
    """
    return 2.0**-53 * (20.0 * two + one / 16.0 + one + 64.0)


class ConvolvedLoss:
    """The loss of one person's steps.

    Parameters
    ----------
    steps : StepFamily
    counts : ndarray of int, shape (rows,)
        At least two steps in all.
    """

    def __init__(self, steps: StepFamily, counts: NDArray) -> None:
        self.tree = plant(counts)
        self._family = steps
        self._steps = int(counts.sum())
        # mass of all steps beyond 38 standard deviations, where their grids end: below 6e-316 for each step
        self._outside = 1e-315 * self._steps
        self._scale, self._offset = steps.loss_roundoff(counts, self.tree.depth)
        self._tilt, self._cap, self._log_least = 0.0, np.inf, 0.0
        self._losses: list[DiscreteLoss] = []
        self._model: list[DiscreteLoss] = []
        self._rest: list[DiscreteLoss] = []

    def bounds(self, question: Question, width: float, pairs: float) -> tuple[float, float]:
        """Lower and upper epsilon or log delta.

        Parameters
        ----------
        width : float
            Width at which to stop: relative for epsilon, absolute for log delta.
        pairs : float
            Approximate limit of the pairs of atoms in one pass.

        No pass begins that would end after the deadline, by the time of the pass before.
        """
        target, wants_epsilon = float(np.ravel(question.target)[0]), question.wants_epsilon
        most = int(math.sqrt(pairs / (2 * self.tree.sums))) if self.tree.sums else _LEAF
        self._rough(target, wants_epsilon)
        points, final, tries, spent, stalled = _ROUGH, False, 0, 0.0, 0
        lower, upper, before = -np.inf, np.inf, np.inf
        while True:
            low, high = self._answer(target, wants_epsilon)
            lower, upper = max(lower, low), min(upper, high)
            with np.errstate(invalid="ignore"):
                apart = (upper - lower) / upper if wants_epsilon and upper > 0.0 else upper - lower
            stalled, before = (stalled + 1 if 0.5 * before < apart < np.inf else 0), apart
            if not apart > width or points >= most or tries == _TRIES or stalled == _STALLED:
                return lower, upper
            aim = self._aim(lower, upper, target, wants_epsilon)
            final = final or (points >= _FIRST and (apart < _ENOUGH * width or points >= _MOST_MODEL))
            tries += final
            wanted = 1.2 * points * math.sqrt(min(apart / width, 1e4)) if final else 2.0 * points
            more, begin = min(max(int(wanted), _FIRST), most if final else min(most, _MOST_MODEL)), time.monotonic()
            if spent > 0.0 and (left := deadline.left()) < np.inf:
                # the time of a pass grows like the square of its points
                more = min(more, int(points * math.sqrt(max(left, 0.0) / spent)))
                if more <= points:
                    return lower, upper
            points = more
            try:
                self._pass(points, aim, final)
            except deadline.OutOfTime:
                return lower, upper
            spent = time.monotonic() - begin

    def _aim(self, lower: float, upper: float, target: float, wants_epsilon: bool) -> Aim:
        least = math.exp(self._log_least)
        if not wants_epsilon:
            return Aim(np.array([target]), least)
        apart = max(min(upper, self._cap) - lower, 0.0)  # the Renyi estimate limits a loose upper bound
        return Aim(lower + np.array([0.0, 1e-3, 0.03, 0.3, 1.0]) * apart, least)

    # answers

    def _answer(self, target: float, wants_epsilon: bool) -> tuple[float, float]:
        from ..kernels import convolve

        ends = []
        for side in ("down", "up"):
            one, two = (getattr(self._losses[i], side) for i in self.tree.root)
            curve, beyond = np.empty((2, two[0].size))
            convolve.tails(*two, curve, beyond)
            error = self._error(one[0].size, two[0].size) + self._scale
            factor, more = (1.0 + error, self._outside) if side == "up" else (1.0 - error, 0.0)

            def delta(epsilon: float, one=one, two=two, curve=curve, beyond=beyond, factor=factor, more=more) -> float:
                return convolve.hockey_stick(*one, two[0], curve, beyond, epsilon) * factor + more

            sign = 1.0 if side == "up" else -1.0
            if wants_epsilon:
                low, high = _root(delta, math.exp(target), self._cap)
                found = high if side == "up" else low
                zero = side == "up" and delta(-self._offset) <= math.exp(target)
                ends.append(0.0 if zero else max(found * (1.0 + sign * self._scale) + sign * self._offset, 0.0))
            else:
                value = delta((target - sign * self._offset) / (1.0 + sign * self._scale))
                # a few units in the last place of the largest logarithm
                ends.append(min(math.log(value) + sign * 2.0**-42, 0.0) if value > 0.0 else -np.inf)
        return ends[0], ends[1]

    def _error(self, one: int, two: int) -> float:
        """Relative error of delta as a sum over the last two partial sums, which have these sizes."""
        nodes, total = self.tree.nodes, roundoff_pairs(one, two)
        for (a, b), uses in zip(nodes, self.tree.uses, strict=True):
            step = MASS_ERROR if a < 0 else roundoff_pairs(self._losses[a].knots.size, self._losses[b].knots.size)
            total += uses * step
        return total

    # discrete losses

    def _leaf(self, bucket: int, knots: NDArray) -> DiscreteLoss:
        cells = np.stack(self._family.masses(bucket, knots))
        return discrete_loss(knots, cells, cells, MASS_ERROR)

    def _sum(self, one: DiscreteLoss, two: DiscreteLoss, knots: NDArray) -> DiscreteLoss:
        from ..kernels import convolve

        up, down = np.empty((2, 2, knots.size - 1))
        pairs = one.knots.size * two.knots.size
        sides = [(*one.up, *two.up, knots, *up), (*one.down, *two.down, knots, *down)]
        for _ in in_order(lambda side: convolve.compose(*side), sides, alone=pairs < _QUICK):
            pass
        return discrete_loss(knots, up, down, roundoff_pairs(one.knots.size, two.knots.size))

    def _ends(self, bucket: int) -> tuple[float, float]:
        low, high = self._family.losses(bucket, _REACH, 2)
        return float(low), float(high)

    # grids

    def _rough(self, target: float, wants_epsilon: bool) -> None:
        """First pass: steps on grids even in the Gaussian's variable, partial sums on some of the pairs' sums."""
        reach = _REACH
        if wants_epsilon:
            reach = min(_REACH, math.sqrt(2.0 * (math.log(1e4 * self._steps) - target)))
        steps = {}
        for a, bucket in self.tree.nodes:
            if a < 0:
                knots = np.concatenate([self._ends(bucket), self._family.losses(bucket, reach, _ROUGH)])
                steps[bucket] = self._leaf(bucket, np.unique(knots))
        self._tilt, self._cap, log_delta = self._chernoff(steps, target, wants_epsilon)
        self._log_least = max(log_delta - 14.0, -690.0)
        self._losses = []
        for a, b in self.tree.nodes:
            if a < 0:
                self._losses.append(steps[b])
            else:
                one, two = self._losses[a], self._losses[b]
                self._losses.append(self._sum(one, two, self._rough_grid(one, two)))
        self._model = self._losses
        self._rest = self._others(lambda _, one, two: self._rough_grid(one, two))

    def _chernoff(
        self, steps: dict[int, DiscreteLoss], target: float, wants_epsilon: bool
    ) -> tuple[float, float, float]:
        """Estimates of the Renyi tilt, epsilon and log delta, from the lower losses; rough grids lift the upper."""
        k = np.zeros(_TILTS.size)
        for (a, bucket), uses in zip(self.tree.nodes, self.tree.uses, strict=True):
            if a < 0:
                loss, mass = steps[bucket].down
                some = mass > 0.0
                exponent = np.multiply.outer(_TILTS, loss[some]) + np.log(mass[some])
                k += uses * np.logaddexp.reduce(exponent, axis=1)
        k += _TILTS * np.log(_TILTS) - (1.0 + _TILTS) * np.log1p(_TILTS)
        if not wants_epsilon:
            with np.errstate(over="ignore"):
                log_delta = k - _TILTS * target
            return float(_TILTS[np.argmin(log_delta)]), target, min(float(log_delta.min()), 0.0)
        epsilon = (k - target) / _TILTS
        return float(_TILTS[np.argmin(epsilon)]), max(float(epsilon.min()), 0.0), target

    def _rough_grid(self, one: DiscreteLoss, two: DiscreteLoss) -> NDArray:
        """Some of the pairs' sums: at equal steps of the log mass above, the log mass below, and the tilted mass."""
        (x, p), (y, r) = (thinned(part, _PAIRED) for part in (one, two))
        sums = np.add.outer(x, y).ravel()
        order = np.argsort(sums)
        sums, mass = sums[order], np.multiply.outer(p, r).ravel()[order]
        above, below = np.cumsum(mass[::-1])[::-1], np.cumsum(mass)
        few = int(_ROUGH / 2 + min(-self._log_least, 700.0) / _ROUGH_STEP)
        steps = np.linspace(0.0, self._log_least, few)
        high = sums[np.searchsorted(-above, -np.exp(steps)) - 1]
        low = sums[np.minimum(np.searchsorted(below, np.exp(steps[:: max(few // 100, 1)])), sums.size - 1)]
        with np.errstate(divide="ignore"):
            tilted = np.log(mass) + self._tilt * sums
        tilted = np.cumsum(np.exp((tilted - tilted.max()) / 3.0))
        heavy = sums[np.searchsorted(tilted, np.linspace(0.0, tilted[-1], _ROUGH // 2)[1:-1])]
        return np.unique(np.concatenate([_range(one, two), high, low, heavy]))

    def _others(self, grid: Callable[[int, DiscreteLoss, DiscreteLoss], NDArray]) -> list[DiscreteLoss]:
        """The loss of all steps outside of each node; `grid` places the grid of such a sum."""
        found: dict[int, DiscreteLoss] = {}
        a, b = self.tree.root
        found[a], found[b] = self._losses[b], self._losses[a]
        for i in range(len(self.tree.nodes) - 1, -1, -1):
            a, b = self.tree.nodes[i]
            for child, other in ((a, b), (b, a)):
                if a >= 0 and child not in found:
                    one, two = found[i], self._losses[other]
                    found[child] = self._sum(one, two, grid(child, one, two))
        return [found[i] for i in range(len(self.tree.nodes))]

    def _pass(self, points: int, aim: Aim, final: bool) -> None:
        """Convolve again on grids of this size, placed by the model: the losses of the last pass that was not final."""
        model, rest, self._losses = self._model, self._rest, []
        for i, (a, b) in enumerate(self.tree.nodes):
            if a < 0:
                self._losses.append(self._leaf(b, place(model[i], rest[i], aim, self._ends(b), points)))
            else:
                one, two = self._losses[a], self._losses[b]
                self._losses.append(self._sum(one, two, place(model[i], rest[i], aim, _range(one, two), points)))
        if not final:
            self._model = self._losses
            self._rest = self._others(lambda i, one, two: place(rest[i], model[i], aim, _range(one, two), points))


def _range(one: DiscreteLoss, two: DiscreteLoss) -> tuple[float, float]:
    return one.knots[0] + two.knots[0], one.knots[-1] + two.knots[-1]


def _root(delta: Callable[[float], float], goal: float, start: float) -> tuple[float, float]:
    """Neighbouring epsilons: delta exceeds the goal at the first only; (0, 0) if delta(0) is at most the goal."""
    low, high = 0.0, max(start, 1e-12)
    if delta(0.0) <= goal:
        return 0.0, 0.0
    while delta(high) > goal:
        low, high = high, 2.0 * high
        if high > 1e9:
            return low, np.inf
    while high - low > 2.0**-46 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if delta(middle) > goal else (low, middle)
    return low, high
