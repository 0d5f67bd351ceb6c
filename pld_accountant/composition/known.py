"""`KnownComposition`: mechanisms whose privacy losses are known, composed by the engine."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import deadline, validate
from ..counting.counts import WholeCounts
from ..engine import dominating_mu, renyi
from ..engine.discrete_sum import DiscreteSum, infinite_mass
from ..engine.dominating_mu import OneCurve
from ..engine.method import HANDFUL, Method
from ..engine.question import DeltaAt, EpsilonAt, Question, together
from ..engine.solver import bounds, several
from ..mechanisms.base import Direction, StepFamily
from ..mechanisms.discrete import Discrete, DiscretePair
from ..mechanisms.gaussian import full_batch_delta, full_batch_epsilon, full_batch_mu
from ..mechanisms.gaussian_mixture import GaussianMixture
from ..mechanisms.laplace import Laplace
from ..mechanisms.mixed import mixed
from ..mechanisms.sampled_gaussian import SampledGaussian
from ..notions import gdp
from ..notions.tradeoff import Curve
from ..results import Bounds, Status, everybody
from ..results import Method as Proof
from ..tables.makers import TableMakers
from .base import ROUNDING, UNKNOWN, Composition, OwnCurve

__all__ = ["KnownComposition", "failure_loss", "family_of", "loses_nothing", "order_of"]

_ZERO = 2.0**-52  # a loss of round-off
_CLOSE = 1e-8  # relative: how far a lower bound of epsilon may move before a second question is asked
_NO_BETTER = 1e-6  # relative: how close to a lower bound a Renyi bound is left alone
_LITTLE = 1e-10  # delta of finite losses, over the chance of infinite ones, that needs no closer bound
_TAIL = 1e-100  # a smaller chance of infinite losses is that of a tail which a table leaves out
_UP = 1.0 + 2.0**-50  # the round-off of a sum
_ONE_PAIR = SampledGaussian, GaussianMixture, Laplace, DiscretePair  # removal and addition have one pair, reversed
_LARGEST_MU = 1e100  # above this, squares in the closed form may overflow


class KnownComposition(Composition):
    """A composition of mechanisms whose losses are known.

    Parameters
    ----------
    counts : mapping of Mechanism to int
        How often each runs.
    methods : tuple of Method, optional
        The methods to try, in this order; by default those that suit the mechanisms.
    """

    def __init__(self, counts: Mapping[Any, int], methods: tuple[Method, ...] | None = None) -> None:
        self._counts = dict(sorted(counts.items(), key=lambda part: order_of(part[0])))
        self._methods = methods
        self._makers: dict[Direction, TableMakers] = {}
        self._lattices: dict[Direction, DiscreteSum | None] = {}
        self._logs_finite: dict[Direction, tuple[float, float]] = {}

    @cached_property
    def _costly(self) -> dict[Any, int]:
        """Without mechanisms that lose nothing or everything."""
        return {m: n for m, n in self._counts.items() if not loses_nothing(m)}

    @property
    def _row(self) -> WholeCounts:
        return WholeCounts(np.array([list(self._costly.values())], dtype=np.int64))

    @property
    def _full_batch(self) -> float | None:
        """mu if every step is a full batch of the Gaussian mechanism, whose composition has a closed form."""
        if any(not isinstance(m, SampledGaussian) or m.sample_rate < 1.0 for m in self._counts):
            return None
        sigma = np.array([mechanism.noise_multiplier for mechanism in self._counts])
        return full_batch_mu(sigma, np.array(list(self._counts.values())))

    def _of(self, direction: Direction) -> TableMakers:
        if direction not in self._makers:
            self._makers[direction] = TableMakers(family_of(self._costly, direction))
        return self._makers[direction]

    def _answer(self, question: Question, wanted: tuple[Direction, ...], width: float) -> Bounds:
        if not self._counts:
            return Bounds(0.0, 0.0, 0.0)
        mu = self._full_batch
        if mu is not None:
            return _full_batch_bounds(mu, question)
        if (
            isinstance(question, DeltaAt)
            and not np.any(question.target)
            and all(isinstance(m, _ONE_PAIR) for m in self._counts)
        ):
            wanted = wanted[:1]  # delta at epsilon 0 is the total variation, the same in both orders
        first, *others = self._distinct(wanted)
        with deadline.shared(1 + len(others)):
            found = self._one(first, question, width)
        for direction in others:
            found = larger(found, self._one(direction, question, width, found.lower))
        return found[0]

    def _together(
        self, questions: Sequence[Question], wanted: tuple[Direction, ...], width: float
    ) -> list[Bounds | None]:
        """See `Composition`; questions that shared tables and integrals answer closely enough."""
        ways = self._distinct(wanted)
        shared = self._costly and self._full_batch is None and all(self._lattice(d) is None for d in ways)
        if not (shared and (isinstance(questions[0], DeltaAt) or all(self._all_count(d) for d in ways))):
            return [None] * len(questions)
        found: list[Bounds | None] = []
        most = max(HANDFUL // len(self._costly), 1)
        for start in range(0, len(questions), most):
            question = together(questions[start : start + most])
            best, alone = self._several(ways[0], question, width)
            for direction in ways[1:]:
                one, left = self._several(direction, question, width, best.lower)
                best, alone = larger(best, one), alone | left
            found += [None if left else best[k] for k, left in enumerate(alone.tolist())]
        return found

    def _several(
        self, direction: Direction, question: Question, width: float, known: NDArray | None = None
    ) -> tuple[Bounds, NDArray]:
        """Answers to several questions in one direction, and which of them must be asked alone.

        Beside infinite losses, these are also the questions whose two bounds need delta' at two epsilons.
        """
        rows = self._row.of(np.zeros(np.size(question.target), dtype=np.int64))
        alone, infinite = np.zeros(len(rows), dtype=bool), not self._all_count(direction)
        if infinite:
            asked = [self._asked(direction, epsilon)[0] for epsilon in np.asarray(question.target).tolist()]
            alone, question = np.array([len(one) > 1 for one in asked]), together([one[0] for one in asked])
            most = self._infinite_ends(direction)[1]
            known = None if known is None else np.maximum(known - most, 0.0) * (1.0 - ROUNDING)
        found, left = several(rows, self._of(direction), question, methods=self._methods, width=width, known=known)
        left = left | alone | _blunt(found, known)
        # where one epsilon serves both bounds, delta' cannot be larger besides
        return (self._beside_infinite(direction, found, found) if infinite else found), left

    def _largest_loss(self, wanted: tuple[Direction, ...]) -> Bounds:
        total = 0.0
        for direction in wanted if self._counts else ():
            if self._log_finite(direction) < 0.0:
                return Bounds(np.inf, np.inf, np.inf)
            total = max(total, self._largest_finite(direction))
        slack = ROUNDING * (total + self.steps) if 0.0 < total < np.inf else 0.0
        return Bounds(max(total - slack, 0.0), total, total + slack)

    def _largest_finite(self, direction: Direction) -> float:
        """The largest sum of finite losses, given that all are finite."""
        if not self._costly:
            return self._of_failures(direction)
        return float(self._row.times(self._of(direction).steps.largest_loss()[:, None])[0, 0])

    def _all_count(self, direction: Direction) -> bool:
        """Whether the costly steps are all steps, and no loss is infinite."""
        return len(self._costly) == len(self._counts) and not self._log_finite(direction)

    def _of_failures(self, direction: Direction) -> float:
        """A bound of the sum of the finite losses of mechanisms that lose nothing or everything: their round-off."""
        free = ((m, n) for m, n in self._counts.items() if m not in self._costly)
        return sum(n * failure_loss(m, direction) for m, n in free) * (1.0 + ROUNDING)

    def _one(self, direction: Direction, question: Question, width: float, known: NDArray | None = None) -> Bounds:
        """The answer in one direction, arrays of one element; `known` as for `engine.solver.bounds`."""
        lattice = self._lattice(direction)
        if lattice is not None:
            if isinstance(question, EpsilonAt):
                lower, upper = lattice.epsilon(float(question.delta))
                if lower < upper == np.inf:
                    return everybody(UNKNOWN, 1)
            else:
                lower, upper = lattice.delta(float(np.asarray(question.target)))
            middle = upper if np.isinf(upper) else 0.5 * (lower + upper)
            return _one_element(lower, middle, upper, method=Proof.LATTICE)
        if self._all_count(direction):
            found = self._finite(direction, [question], width, known)[0]
            if isinstance(question, EpsilonAt) and _blunt(found, known)[0] and deadline.left() > 0.0:
                # the best of all orders is better than the best of a grid where the log-moments bend sharply
                best = renyi.optimal_epsilon(self._row, self._of(direction).steps, float(question.delta))
                upper = max(min(best, found.upper[0]), found.lower[0])
                found = replace(found, estimate=np.full(1, upper), upper=np.full(1, upper))
            return found
        return self._with_infinite(direction, question, width, known)

    def _finite(
        self, direction: Direction, questions: Sequence[Question], width: float, known: NDArray | None = None
    ) -> list[Bounds]:
        """The answers given that no loss is infinite; `known` as for `engine.solver.bounds`."""
        least = None if known is None else [known] * len(questions)
        return bounds(self._row, self._of(direction), questions, methods=self._methods, width=width, known=least)

    def _renyi(self, direction: Direction, question: Question) -> float:
        """The Renyi bound of epsilon or log delta given that no loss is infinite."""
        return float(renyi.renyi_bounds(self._row, self._of(direction).any(interpolated=False), question)[0])

    def _rough_delta(self, direction: Direction, epsilon: float) -> float:
        """See `Composition`; the Renyi bound, and the chance of infinite losses (`_with_infinite`)."""
        moved, room = self._moved(direction)
        at = epsilon - moved - room
        if at <= 0.0 or not self._costly:
            return 1.0
        finite = math.exp(min(self._renyi(direction, DeltaAt(at)), 0.0))
        return min((self._infinite_ends(direction)[1] + finite) * _UP, 1.0)

    def _log_finite(self, direction: Direction) -> float:
        """log of the chance that no step's loss is infinite."""
        return self._logs(direction)[0]

    def _logs(self, direction: Direction) -> tuple[float, float]:
        """`_log_finite`, and the part of the costly steps; only discrete laws have infinite losses."""
        if direction not in self._logs_finite:
            self._logs_finite[direction] = self._logs_of(direction)
        return self._logs_finite[direction]

    def _moved(self, direction: Direction) -> tuple[float, float]:
        """By how much epsilon exceeds that of the losses given that all are finite, and the round-off of this."""
        log_finite, moved = self._logs(direction)
        return moved, ROUNDING * abs(log_finite) + self._of_failures(direction)

    def _logs_of(self, direction: Direction, without: Container[Any] = ()) -> tuple[float, float]:
        """`_logs` without some mechanisms."""
        some = [m for m in self._counts if isinstance(m, Discrete) and m not in without]
        laws = {m: m.law(direction).infinite for m in some}
        logs = {m: self._counts[m] * np.log1p(-mass) if mass < 1.0 else -np.inf for m, mass in laws.items()}
        return sum(logs.values()), sum(log for m, log in logs.items() if m in self._costly)

    def _with_infinite(self, direction: Direction, question: Question, width: float, known: NDArray | None) -> Bounds:
        """delta = D + (1 - D) delta', D the chance of an infinite loss; delta' of the losses given that none is.

        Given that all losses are finite, each is larger by -log(1 - its infinite mass) (`DiscreteSteps`).
        """
        moved, room = self._moved(direction)
        below, above = self._infinite_ends(direction)
        if isinstance(question, EpsilonAt):
            delta = float(question.delta)
            if delta < below:
                return _one_element(np.inf, np.inf, np.inf)
            if delta < above or (delta == above and below < above):
                return everybody(UNKNOWN, 1)
            if not self._costly:
                return _one_element(0.0, 0.0, self._of_failures(direction))
            if delta == above:
                largest = self._largest_finite(direction) + moved + room
                return _one_element(largest if np.isinf(largest) else 0.0, largest, max(largest, 0.0))
            deltas = (delta - above) / (1.0 - below), (delta - below) / (1.0 - above)
            wanted = None if known is None else known - moved - room
            low, found = self._epsilon_between(direction, deltas, width, wanted)
            lower, upper = max(low + moved - room, 0.0), max(float(found.upper[0]) + moved + room, 0.0)
            if not np.isfinite(upper):
                return everybody(UNKNOWN, 1)
            return _one_element(lower, 0.5 * (lower + upper), upper, found.status[0], found.method[0])
        if above >= 1.0:
            return _one_element(below, 1.0, 1.0)
        if not self._costly:
            return _one_element(below, 0.5 * (below + above), min((above + self._of_failures(direction)) * _UP, 1.0))
        asked, missing = self._asked(direction, float(np.asarray(question.target)))
        if below > _TAIL:
            most = math.exp(min(self._renyi(direction, asked[0]), 0.0)) + missing
            if most <= _LITTLE * below:
                return _one_element(below, 0.5 * (below + above), min((above + most) * _UP, 1.0), method=Proof.RENYI)
        near, *others = self._finite(direction, asked, width)
        return self._beside_infinite(direction, near, others[-1] if others else near, missing)

    def _asked(self, direction: Direction, epsilon: float) -> tuple[list[DeltaAt], float]:
        """The epsilons at which delta' bounds delta, and by how much delta' may exceed its value at the first.

        The first serves the upper bound, the last the lower bound.  They are one if nothing is rounded, as where
        infinite losses underflow.
        """
        moved, room = self._moved(direction)
        at = epsilon - moved
        # delta' falls at most as fast as epsilon grows, also below 0
        return [DeltaAt(value) for value in sorted({max(at - room, 0.0), at + room})], max(room - at, 0.0)

    def _beside_infinite(self, direction: Direction, near: Bounds, far: Bounds, missing: float = 0.0) -> Bounds:
        """delta = D + (1 - D) delta', rounded outwards: its upper bound from `near`, its lower bound from `far`."""
        below, above = self._infinite_ends(direction)
        less = (1.0 - above) * far.lower * (1.0 - ROUNDING)
        more = (1.0 - below) * (near.upper + missing) * (1.0 + ROUNDING)
        lower = np.where(less > 0.0, np.nextafter(below + less, 0.0), below)
        upper = np.where(more > 0.0, np.minimum(np.nextafter(above + more, 2.0), 1.0), above)
        return Bounds(lower, 0.5 * (lower + upper), upper, near.status, near.method)

    def _epsilon_between(
        self, direction: Direction, deltas: tuple[float, float], width: float, known: NDArray | None
    ) -> tuple[float, Bounds]:
        """A lower bound of epsilon' at the larger of two close deltas, and bounds of epsilon' at the smaller.

        One question serves both (`_lower_at`).  A second one is asked if the deltas are too far apart for that.
        """
        asked, most = EpsilonAt(deltas[0] * (1.0 - ROUNDING)), deltas[1] * (1.0 + ROUNDING)
        found = self._finite(direction, [asked], width, known)[0]
        given = float(found.lower[0])
        low = self._lower_at(direction, most, given, asked)
        if low < (1.0 - _CLOSE) * given and most < 1.0:
            low = float(self._finite(direction, [EpsilonAt(most)], width)[0].lower[0])
        return low, found

    def _infinite_ends(self, direction: Direction, without: Container[Any] = ()) -> tuple[float, float]:
        """Bounds of the chance that some step's loss is infinite; some mechanisms do not count."""
        some = [m for m in self._counts if isinstance(m, Discrete) and m not in without]
        return infinite_mass([m.law(direction) for m in some], [self._counts[m] for m in some])

    def _infinite(self, direction: Direction, delta: Curve) -> tuple[float, float]:
        """See `Composition`; the discrete laws know it."""
        lower, upper = (min(max(0.0, float(end)), 1.0) for end in self._infinite_ends(direction))
        return lower, upper

    def _lower_at(self, direction: Direction, delta: float, lower: float, question: EpsilonAt) -> float:
        """A lower bound of epsilon' at a delta slightly above that of a question, from the answer's lower bound.

        delta' is convex in x = exp(epsilon').  With the Renyi bound x' of half of the question's delta, delta' falls
        at least by delta / 2 between x and x', and at least as steeply before x.
        """
        asked = float(question.delta)
        if not 0.0 < lower < np.inf:
            return lower
        far = self._renyi(direction, EpsilonAt(0.5 * asked))
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            back = 2.0 * np.expm1(max(far - lower, 0.0)) * (delta / asked - 1.0 + ROUNDING)
            return lower + float(np.log1p(-back)) if back < 1.0 else 0.0

    def _lattice(self, direction: Direction) -> DiscreteSum | None:
        """The sum of discrete laws if their losses lie on few lattices."""
        if direction not in self._lattices:
            pairs = [m for m in self._counts if isinstance(m, Discrete)]
            if len(pairs) < len(self._counts):
                self._lattices[direction] = None
            else:
                from ..engine.lattice import LatticeSum

                with suppress(deadline.OutOfTime), deadline.strict():
                    laws, counts = [m.law(direction) for m in pairs], list(self._counts.values())
                    self._lattices[direction] = LatticeSum.of(laws, counts)
        return self._lattices.get(direction)

    def _mu(self, min_delta: float, wanted: tuple[Direction, ...]) -> Bounds:
        if not self._counts:
            return Bounds(0.0, 0.0, 0.0)
        mu = self._full_batch
        if mu is not None:
            if gdp.delta(0.0, mu * (1.0 + 2.0**-48)) < min_delta:
                return Bounds(0.0, 0.0, 0.0)
            return Bounds(mu * (1.0 - 2.0**-48), mu, mu * (1.0 + 2.0**-48))
        wanted = self._distinct(wanted)
        if max(self._infinite_ends(d)[0] for d in wanted) > min_delta:
            return Bounds(np.inf, np.inf, np.inf)  # no epsilon brings delta down to min_delta
        if not self._costly:
            most = max(self._infinite_ends(d)[1] + self._of_failures(d) for d in wanted)
            return Bounds(0.0, 0.0, 0.0) if most < min_delta else UNKNOWN
        curves = {d: self._lattice(d) or (None if self._all_count(d) else OwnCurve(self, d)) for d in wanted}
        method = Proof.LATTICE if all(self._lattice(d) for d in wanted) else Proof.TRANSFORM
        return self.mu_of(curves, min_delta, method)

    def mu_of(self, curves: Mapping[Direction, OneCurve | None], min_delta: float, method: Proof) -> Bounds:
        """mu of a curve in each direction; None: that of these steps."""
        above = np.zeros(1)
        for d, curve in curves.items():
            above = dominating_mu.touching(self._row, self._of(d), min_delta, floor=above, curve=curve)[0]
        upper = float(above[0])
        if not np.isfinite(upper):
            return UNKNOWN
        lower = max(
            float(dominating_mu.mu_lower(self._row, self._of(d), min_delta, curve=curve)[0])
            for d, curve in curves.items()
        )
        return Bounds(lower, 0.5 * (lower + upper), upper, method=method)

    @cached_property
    def _concentrated(self) -> dict[Any, float]:
        """rho of the mechanisms whose log-moments are at most rho theta (1 + theta), infinite losses included."""
        return {m: m.rho for m in self._counts if isinstance(m, DiscretePair) and m.rho is not None}

    def infinite(self, direction: Direction) -> float:
        """An upper bound of the chance that some step's loss is infinite, which `log_moments` leave out."""
        return self._infinite_ends(direction, self._concentrated)[1]

    def log_moments(self, direction: Direction, theta: NDArray) -> NDArray:
        """Upper bounds of log E[e^(theta L); L finite], L the sum of all losses; shape of theta."""
        rho = sum(self._counts[m] * value for m, value in self._concentrated.items())
        found = rho * theta * (1.0 + theta) * (1.0 + ROUNDING)
        counts = {m: 0 if m in self._concentrated else n for m, n in self._costly.items()}
        if any(counts.values()):
            row = WholeCounts(np.array([list(counts.values())], dtype=np.int64))
            found += row.times(self._of(direction).steps.log_moments(theta, exact=True))[0]
        log_finite, moved = self._logs_of(direction, self._concentrated)
        return np.asarray(
            found + (log_finite + theta * moved) * (1.0 - ROUNDING) + theta * self._of_failures(direction)
        )

    def _rdp(self, orders: NDArray) -> NDArray:
        if any(self.infinite(direction) for direction in self.larger_moments):
            return np.full(orders.shape, np.inf)
        theta = orders - 1.0
        return np.asarray(np.max([self.log_moments(d, theta) for d in self.larger_moments], axis=0) / theta)

    def rdp_epsilon(self, delta: float) -> float:
        delta = validate.delta(delta)
        if not self._counts:
            return 0.0
        if any(self.infinite(direction) for direction in self.larger_moments):
            return float("inf")
        if self._concentrated:
            moments = [partial(self.log_moments, d) for d in self.larger_moments]
            return max(0.0, *(renyi.optimum(of, EpsilonAt(delta)) for of in moments))
        of_costly = [
            renyi.optimal_epsilon(self._row, self._of(d).steps, delta) if self._costly else 0.0
            for d in self.larger_moments
        ]
        return max(of_costly) + max(self._of_failures(d) for d in self.larger_moments)

    @property
    def larger_moments(self) -> tuple[Direction, ...]:
        """The directions that may have the larger Renyi divergence at some order.

        Removal alone for Laplace and sampled Gaussians (Mironov, Talwar and Zhang 2019, Section 3.2).
        """
        known = all(isinstance(m, (SampledGaussian, Laplace)) for m in self._counts)
        return ("remove",) if known else ("remove", "add")


def larger(a: Bounds, b: Bounds) -> Bounds:
    """Bounds of the larger of two quantities, with the less favourable status; b is no use where it is below a."""
    below = np.asarray(b.upper) <= np.asarray(a.lower)
    if np.all(below):
        return a
    lower, estimate, upper = (np.where(below, x, np.maximum(x, y)) for x, y in zip(a, b, strict=True))
    method = np.where(np.asarray(b.upper) > np.asarray(a.upper), b.method, a.method)
    return Bounds(lower, estimate, upper, np.where(below, a.status, np.maximum(a.status, b.status)), method)


def _blunt(found: Bounds, known: NDArray | None) -> NDArray:
    """Which answers are Renyi bounds that the best order may still lower; `known` as for `engine.solver.bounds`."""
    least = found.lower if known is None else np.maximum(found.lower, known)
    return np.asarray((found.method == Proof.RENYI) & (least < (1.0 - _NO_BETTER) * found.upper))


def family_of(mechanisms: Iterable[Any], direction: Direction) -> StepFamily:
    """One family with a row for each of these mechanisms, of which those of one kind are neighbours."""
    kinds = [list(group) for _, group in groupby(mechanisms, key=type)]
    return mixed([kind[0].steps(kind, direction) for kind in kinds])


def loses_nothing(mechanism: Any) -> bool:
    """Whether its finite loss is 0, in both directions, as that of ``ApproximateDP(0, delta)``."""
    if not isinstance(mechanism, Discrete):
        return False
    laws = (mechanism.law("remove"), mechanism.law("add"))
    return all(law.losses.size == 1 and abs(law.losses[0]) <= _ZERO for law in laws)


def failure_loss(mechanism: Discrete, direction: Direction) -> float:
    """A bound of the finite loss of a mechanism that `loses_nothing`: its round-off."""
    return _ZERO + mechanism.law(direction).largest_loss_error


def _one_element(
    lower: float, estimate: float, upper: float, status: int = Status.CERTIFIED, method: int = Proof.CLOSED_FORM
) -> Bounds:
    return everybody(Bounds(lower, estimate, upper, status, method), 1)


def order_of(mechanism: Any) -> tuple[str, float, float]:
    """Sort key: mechanisms of one kind are neighbours, in the order of their noise."""
    return type(mechanism).__name__, mechanism.noise_multiplier, getattr(mechanism, "sample_rate", 1.0)


def _full_batch_bounds(mu: float, question: Question) -> Bounds:
    """Bounds for full-batch steps, from the closed form of the Gaussian mechanism."""
    if not mu < _LARGEST_MU:
        return UNKNOWN
    if isinstance(question, EpsilonAt):
        lower, upper = full_batch_epsilon(mu, float(question.delta))
        return Bounds(lower, 0.5 * (lower + upper), upper)
    found = full_batch_delta(mu, float(np.asarray(question.target)))
    return UNKNOWN if found is None else Bounds(*found)
