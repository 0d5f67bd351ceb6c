"""Direct convolution of few or rare steps, on grids placed where the answer is decided: no tilt, period or band.

A partial sum of the losses is held as two discrete distributions, one above and one below the true one.  Two partial
sums are added pair by pair, and the sums brought back to a grid: up by sharing each mass between the ends of its cell,
down by merging each cell into one atom.  Both keep the masses under P and under Q.  So the first is a chord of the
hockey-stick curve, which is convex in e^epsilon, and the second a post-processing; both orders survive composition.
Only positive numbers are added, so delta = 1e-100 is as accurate as 1e-5.  The sum of the last two partial sums is
never formed.

With f and r the densities of a partial sum and of the other steps' sum, a cell of width h at the loss l adds about
f(l) r(epsilon - l) h^3 / 12 to the curve above, and takes half as much from the curve below.  A rough pass finds f and
r; the next passes place h like the inverse cube root of their product.  The bounds are valid on any grid.

References: Doroshenko, Ghazi, Kamath, Kumar, Manurangsi, "Connect the dots: tighter discrete approximations of privacy
loss distributions", PoPETs 2022, for the chords.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .. import results
from ..counting.counts import WholeCounts
from ..mechanisms.base import StepFamily
from ..threads import in_order
from .convolution_tree import Aim, Law, law, place, plant, thinned
from .method import Job, Method
from .question import Question
from .working import WorkingBounds

__all__ = ["Convolution", "ConvolvedLoss"]

_REACH = 38.0  # truncation of one step, in standard deviations
_ROUGH, _FIRST, _MOST_MODEL = 300, 500, 2_000
_ENOUGH = 100.0  # times the width wanted: where a pass is a good enough model for the last ones
_PAIRED = 250
_ROUGH_STEP = 0.4
_LEAF = 100_000  # points where nothing is composed before the end
_TRIES = 3
_QUICK = 1e6  # pairs that are added up before a thread has started
_TILTS = 2.0 ** np.arange(-4.0, 46.0, 0.5)
_LEAST_NOISE = 0.01  # the cells of one step cost time like 1 / sigma^2
_MOST_SUMS = 48  # partial sums

LEAF = 1e-12
"""Relative error of a cell's masses of one step (`mechanisms.base.StepFamily.masses`)."""


@dataclass(frozen=True)
class Convolution(Method):
    """Direct convolution, person by person, for whole counts that are the sum of few partial sums.

    Attributes
    ----------
    wanted : float
        The width at which it stops, as for `width`.
    pairs : float
        How many pairs of atoms may be added up, all people together.
    """

    wanted: float = 1e-4
    pairs: float = 8e8

    def improve(self, job: Job, working: WorkingBounds, who: NDArray) -> None:
        """See `Method`."""
        assert isinstance(job.counts, WholeCounts)
        for person in who:
            counts, steps = job.counts.of_rows(int(person)), job.makers.steps
            if steps.gaussian_mu()[counts > 0].max() > 1.0 / _LEAST_NOISE:
                continue
            loss = ConvolvedLoss(steps, counts)
            if loss.tree.sums > _MOST_SUMS:
                continue
            at = np.array([person])
            question = job.question.of(at)
            known = 1.0
            if not question.wants_epsilon:
                known = min(max(-float(np.nan_to_num(working.renyi[person], nan=-1.0)), 1.0), 700.0)
            lower, upper = loss.bounds(question, self.wanted * known, self.pairs / who.size)
            if not np.isfinite(upper):
                continue
            found = WorkingBounds.unknown(1, question)
            middle = (2.0 * lower + upper) / 3.0 if np.isfinite(lower) else upper
            found.settle(np.array([0]), lower, middle, upper, results.Method.CONVOLUTION)
            working.merge(at, found)


def roundoff_pairs(one: int, two: int) -> float:
    """Relative error of the masses of a sum of laws of these sizes (`kernels.convolve`), beside that of the laws.

    All terms are positive.  A cell's additions form chains of at most 16 x two within a block of 16 losses of the
    first law and one / 16 over the blocks; sums over the second law made beforehand are 4 x two roundings deep; a
    product, 1 - exp(-d) and the sharing between the ends of a cell cost at most 30.
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
        # mass of all steps beyond 38 standard deviations, where their grids end: each below 6e-316
        self._outside = 1e-315 * self._steps
        self._scale, self._offset = steps.loss_roundoff(counts, self.tree.depth)
        self._tilt, self._cap, self._log_least = 0.0, np.inf, 0.0
        self._laws: list[Law] = []
        self._model: list[Law] = []
        self._rest: list[Law] = []

    def bounds(self, question: Question, width: float, pairs: float) -> tuple[float, float]:
        """Lower and upper epsilon or log delta.

        Parameters
        ----------
        width : float
            At which to stop: relative for epsilon, absolute for log delta.
        pairs : float
            How many pairs of atoms the largest pass may add up, about.
        """
        target, wants_epsilon = float(np.ravel(question.given)[0]), question.wants_epsilon
        most = int(math.sqrt(pairs / (2 * self.tree.sums))) if self.tree.sums else _LEAF
        self._rough(target, wants_epsilon)
        points, final, tries = _ROUGH, False, 0
        lower, upper = -np.inf, np.inf
        while True:
            low, high = self._answer(target, wants_epsilon)
            lower, upper = max(lower, low), min(upper, high)
            with np.errstate(invalid="ignore"):
                apart = (upper - lower) / upper if wants_epsilon and upper > 0.0 else upper - lower
            if not apart > width or points >= most or tries == _TRIES:
                return lower, upper
            aim = self._aim(lower, upper, target, wants_epsilon)
            final = final or (points >= _FIRST and (apart < _ENOUGH * width or points >= _MOST_MODEL))
            tries += final
            wanted = 1.2 * points * math.sqrt(min(apart / width, 1e4)) if final else 2.0 * points
            points = min(max(int(wanted), _FIRST), most if final else min(most, _MOST_MODEL))
            self._pass(points, aim, final)

    def _aim(self, lower: float, upper: float, target: float, wants_epsilon: bool) -> Aim:
        least = math.exp(self._log_least)
        if not wants_epsilon:
            return Aim(np.array([target]), least)
        apart = max(min(upper, self._cap) - lower, 0.0)  # an upper bound far off says nothing
        return Aim(lower + np.array([0.0, 1e-3, 0.03, 0.3, 1.0]) * apart, least)

    # answers

    def _answer(self, target: float, wants_epsilon: bool) -> tuple[float, float]:
        from ..kernels import convolve

        ends = []
        for side in ("down", "up"):
            one, two = (getattr(self._laws[i], side) for i in self.tree.root)
            curve, beyond = np.empty((2, two[0].size))
            convolve.tails(*two, curve, beyond)
            error = self._error(one[0].size, two[0].size) + self._scale
            factor, more = (1.0 + error, self._outside) if side == "up" else (1.0 - error, 0.0)

            def delta(
                epsilon: float, one=one, two=two, curve=curve, beyond=beyond, factor=factor, more=more
            ) -> float:  # fmt: skip
                return convolve.hockey_stick(*one, two[0], curve, beyond, epsilon) * factor + more

            sign = 1.0 if side == "up" else -1.0
            if wants_epsilon:
                low, high = _root(delta, math.exp(target), self._cap)
                found = high if side == "up" else low
                zero = side == "up" and delta(-self._offset) <= math.exp(target)
                ends.append(0.0 if zero else max(found * (1.0 + sign * self._scale) + sign * self._offset, 0.0))
            else:
                value = delta((target - sign * self._offset) / (1.0 + sign * self._scale))
                ends.append(min(math.log(value) + sign * 2.0**-44, 0.0) if value > 0.0 else -np.inf)
        return ends[0], ends[1]

    def _error(self, one: int, two: int) -> float:
        """Relative error of delta as the sum over the last two laws, of these sizes."""
        nodes, total = self.tree.nodes, roundoff_pairs(one, two)
        for (a, b), uses in zip(nodes, self.tree.uses, strict=True):
            step = LEAF if a < 0 else roundoff_pairs(self._laws[a].knots.size, self._laws[b].knots.size)
            total += uses * step
        return total

    # laws

    def _leaf(self, bucket: int, knots: NDArray) -> Law:
        cells = np.stack(self._family.masses(bucket, knots))
        return law(knots, cells, cells, LEAF)

    def _sum(self, one: Law, two: Law, knots: NDArray) -> Law:
        from ..kernels import convolve

        up, down = np.empty((2, 2, knots.size - 1))
        pairs = one.knots.size * two.knots.size
        sides = [(*one.up, *two.up, knots, *up), (*one.down, *two.down, knots, *down)]
        for _ in in_order(lambda side: convolve.compose(*side), sides, alone=pairs < _QUICK):
            pass
        return law(knots, up, down, roundoff_pairs(one.knots.size, two.knots.size))

    def _ends(self, bucket: int) -> tuple[float, float]:
        low, high = self._family.losses(bucket, _REACH, 2)
        return float(low), float(high)

    # grids

    def _rough(self, target: float, wants_epsilon: bool) -> None:
        """A first pass: steps on even grids in the Gaussian's variable, sums on some of the pairs' sums."""
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
        self._laws = []
        for a, b in self.tree.nodes:
            if a < 0:
                self._laws.append(steps[b])
            else:
                one, two = self._laws[a], self._laws[b]
                self._laws.append(self._sum(one, two, self._rough_grid(one, two)))
        self._model = self._laws
        self._rest = self._others(lambda _, one, two: self._rough_grid(one, two))

    def _chernoff(self, steps: dict[int, Law], target: float, wants_epsilon: bool) -> tuple[float, float, float]:
        """About Renyi accounting's tilt, epsilon and log delta, from the lower laws: rough grids lift upper ones."""
        k = np.zeros(_TILTS.size)
        for (a, bucket), uses in zip(self.tree.nodes, self.tree.uses, strict=True):
            if a < 0:
                loss, mass = steps[bucket].down
                some = mass > 0.0
                exponent = np.multiply.outer(_TILTS, loss[some]) + np.log(mass[some])
                k += uses * np.logaddexp.reduce(exponent, axis=1)
        k += _TILTS * np.log(_TILTS) - (1.0 + _TILTS) * np.log1p(_TILTS)
        if not wants_epsilon:
            log_delta = k - _TILTS * target
            return float(_TILTS[np.argmin(log_delta)]), target, float(log_delta.min())
        epsilon = (k - target) / _TILTS
        return float(_TILTS[np.argmin(epsilon)]), max(float(epsilon.min()), 0.0), target

    def _rough_grid(self, one: Law, two: Law) -> NDArray:
        """Some of the pairs' sums: at equal steps of the log of the mass above, of that below, and of tilted mass."""
        (x, p), (y, r) = (thinned(part, _PAIRED) for part in (one, two))
        sums = np.add.outer(x, y).ravel()
        order = np.argsort(sums)
        sums, mass = sums[order], np.multiply.outer(p, r).ravel()[order]
        above, below = np.cumsum(mass[::-1])[::-1], np.cumsum(mass)
        few = int(_ROUGH / 2 + min(-self._log_least, 700.0) / _ROUGH_STEP)
        steps = np.linspace(0.0, self._log_least, few)
        high = sums[np.searchsorted(-above, -np.exp(steps)) - 1]
        low = sums[np.minimum(np.searchsorted(below, np.exp(steps[:: few // 100])), sums.size - 1)]
        with np.errstate(divide="ignore"):
            tilted = np.log(mass) + self._tilt * sums
        tilted = np.cumsum(np.exp((tilted - tilted.max()) / 3.0))
        heavy = sums[np.searchsorted(tilted, np.linspace(0.0, tilted[-1], _ROUGH // 2)[1:-1])]
        return np.unique(np.concatenate([_range(one, two), high, low, heavy]))

    def _others(self, grid: Callable[[int, Law, Law], NDArray]) -> list[Law]:
        """Of every node, the law of all the other steps; `grid` places the sum for a node."""
        found: dict[int, Law] = {}
        a, b = self.tree.root
        found[a], found[b] = self._laws[b], self._laws[a]
        for i in range(len(self.tree.nodes) - 1, -1, -1):
            a, b = self.tree.nodes[i]
            for child, other in ((a, b), (b, a)):
                if a >= 0 and child not in found:
                    one, two = found[i], self._laws[other]
                    found[child] = self._sum(one, two, grid(child, one, two))
        return [found[i] for i in range(len(self.tree.nodes))]

    def _pass(self, points: int, aim: Aim, final: bool) -> None:
        """All laws once more, on grids of this size placed by the model: the last laws but the final ones."""
        model, rest, self._laws = self._model, self._rest, []
        for i, (a, b) in enumerate(self.tree.nodes):
            if a < 0:
                self._laws.append(self._leaf(b, place(model[i], rest[i], aim, self._ends(b), points)))
            else:
                one, two = self._laws[a], self._laws[b]
                self._laws.append(self._sum(one, two, place(model[i], rest[i], aim, _range(one, two), points)))
        if not final:
            self._model = self._laws
            self._rest = self._others(lambda i, one, two: place(rest[i], model[i], aim, _range(one, two), points))


def _range(one: Law, two: Law) -> tuple[float, float]:
    return one.knots[0] + two.knots[0], one.knots[-1] + two.knots[-1]


def _root(delta: Callable[[float], float], goal: float, start: float) -> tuple[float, float]:
    """Neighbouring epsilon with delta above the goal at the first and not above it at the second; (0, 0) if at 0."""
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
