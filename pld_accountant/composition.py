"""`compose`: the privacy loss of one worst-case person over a list of mechanisms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import validate
from .counting.counts import WholeCounts
from .engine import dominating_mu, renyi
from .engine.method import Method, deadline
from .engine.question import DeltaAt, EpsilonAt, Question
from .engine.schedule import ENCLOSING
from .engine.solver import bounds
from .locked import Locked
from .mechanisms.base import Direction, Enclosed, Mechanism, directions
from .mechanisms.discrete import Discrete
from .mechanisms.gaussian import Gaussian, full_batch_delta, full_batch_epsilon, full_batch_mu
from .mechanisms.laplace import Laplace
from .mechanisms.mixed import mixed
from .mechanisms.renyi_boxes import RenyiBox, RenyiDP, ZeroConcentratedDP
from .mechanisms.sampled_gaussian import SampledGaussian
from .notions import gdp
from .notions.tradeoff import ProfileCurve
from .results import Bounds, Status
from .results import Method as Proof
from .tables.makers import TableMakers

if TYPE_CHECKING:
    from .engine.atoms import AtomSum
    from .engine.lattice import LatticeSum

__all__ = ["Composition", "compose"]

_LARGEST_MU = 1e100  # above this, squares in the closed form may overflow
_MOST_STEPS = 2**53  # above this, a double does not hold every whole number
_ROUNDING = 2.0**-40  # relative, above the errors of masses at infinity
_UP = 1.0 + 2.0**-50  # the round-off of a product with an exponential
_OTHER: dict[Direction, Direction] = {"remove": "add", "add": "remove"}
_UNKNOWN = Bounds(0.0, np.nan, np.inf, status=Status.NOT_CERTIFIED, method=Proof.NONE)


def larger(a: Bounds, b: Bounds) -> Bounds:
    """Bounds of the larger of two quantities, with the less favourable status."""
    lower, estimate, upper = (np.maximum(x, y) for x, y in zip(a, b, strict=True))
    method = np.where(np.asarray(b.upper) > np.asarray(a.upper), b.method, a.method)
    return Bounds(lower, estimate, upper, np.maximum(a.status, b.status), method)


def _one_element(
    lower: float, estimate: float, upper: float, status: int = Status.CERTIFIED, method: int = Proof.CLOSED_FORM
) -> Bounds:
    low, middle, high = (np.array([value], dtype=np.float64) for value in (lower, estimate, upper))
    return Bounds(low, middle, high, np.array([status]), np.array([method]))


def compose(steps: Iterable[tuple[Mechanism, int]]) -> Composition:
    """Compose mechanisms that are fixed in advance.

    Parameters
    ----------
    steps : iterable of (mechanism, count)
        Each mechanism and how often it runs, in any order.

    Returns
    -------
    Composition

    Raises
    ------
    ValueError
        If an entry is not a mechanism, a count is not a whole number of at least 0, or there are more than 2^53 steps
        in all.

    Examples
    --------
    >>> c = compose([(SampledGaussian(2, 0.005), 10_000)])
    >>> round(c.epsilon(1e-5).upper, 6)
    1.004113
    """
    counts: dict[Mechanism | Enclosed, int] = {}
    boxes: dict[RenyiBox, int] = {}
    for entry in steps:
        try:
            mechanism, number = entry
        except (TypeError, ValueError):
            raise ValueError(f"steps must hold pairs (mechanism, count), got {entry!r}") from None
        if isinstance(mechanism, RenyiBox):
            boxes[mechanism] = boxes.get(mechanism, 0) + validate.count(number, "count")
            continue
        if not isinstance(mechanism, (Mechanism, Enclosed)) or isinstance(mechanism, type):
            raise ValueError(f"steps must hold mechanisms such as SampledGaussian, got {mechanism!r}")
        step = SampledGaussian(mechanism.noise_multiplier, 1.0) if isinstance(mechanism, Gaussian) else mechanism
        counts[step] = counts.get(step, 0) + validate.count(number, "count")
    total = sum(counts.values()) + sum(boxes.values())
    if total > _MOST_STEPS:
        raise ValueError(f"steps must be at most {_MOST_STEPS} in all, got {total}")
    known = {step: n for step, n in counts.items() if n}
    return (
        RenyiComposition(known, {box: n for box, n in boxes.items() if n})
        if any(boxes.values())
        else Composition(known)
    )


class Composition(Locked):
    """The privacy loss of one person over a fixed list of mechanisms.  Made by `compose`.

    Several threads may use one composition; their questions are answered one after another.
    """

    def __init__(self, counts: Mapping[Any, int]) -> None:
        self._counts = dict(sorted(counts.items(), key=lambda part: _order(part[0])))
        self._makers: dict[Direction, TableMakers] = {}
        self._lattices: dict[Direction, LatticeSum | AtomSum | None] = {}
        self._logs_finite: dict[Direction, float] = {}
        self._methods: tuple[Method, ...] | None = None

    def __repr__(self) -> str:
        inside = ", ".join(f"({mechanism}, {n})" for mechanism, n in self._counts.items())
        return f"compose([{inside}])"

    @property
    def steps(self) -> int:
        """Number of mechanisms run in all."""
        return sum(self._counts.values())

    @property
    def _row(self) -> WholeCounts:
        return WholeCounts(np.array([list(self._counts.values())], dtype=np.int64))

    @cached_property
    def _enclosing(self) -> tuple[tuple[Composition, float], tuple[Composition, float]] | None:
        """Compositions below and above, with the logs of their deltas' errors, if a step is known by others only."""
        if not any(isinstance(m, Enclosed) for m in self._counts):
            return None
        ends = []
        for side in ("below", "above"):
            steps, slack = [], 0.0
            for m, n in self._counts.items():
                parts, error = getattr(m, side)() if isinstance(m, Enclosed) else ([(m, 1)], 0.0)
                steps += [(part, n * count) for part, count in parts]
                slack += n * error
            composed = compose(steps)
            if not all(isinstance(m, SampledGaussian) for m in composed._counts):
                composed._methods = ENCLOSING
            ends.append((composed, slack * (1.0 + 2.0**-40)))
        return ends[0], ends[1]

    @cached_property
    def _full_batch(self) -> float | None:
        """mu if every step is a full batch of the Gaussian mechanism, whose composition has a closed form."""
        if any(not isinstance(m, SampledGaussian) or m.sample_rate < 1.0 for m in self._counts):
            return None
        sigma = np.array([mechanism.noise_multiplier for mechanism in self._counts])
        return full_batch_mu(sigma, np.array(list(self._counts.values())))

    def _of(self, direction: Direction) -> TableMakers:
        if direction not in self._makers:
            kinds = [list(group) for _, group in groupby(self._counts, key=type)]
            parts = [kind[0].steps(kind, direction) for kind in kinds]
            self._makers[direction] = TableMakers(mixed(parts))
        return self._makers[direction]

    def epsilon(self, delta: float, direction: str = "both", *, seconds: float | None = None) -> Bounds:
        """Bounds of epsilon(delta).

        Parameters
        ----------
        delta : float
            In (0, 1), down to 1e-100 and below; or 0, for the largest loss (infinite for Gaussian noise).
        direction : {"both", "remove", "add"}
            Whether the record is removed or added; "both" gives the larger epsilon of the two.
        seconds : float, optional
            After this time no further method is tried: the bounds are certified as they are, and may be wide.  With a
            limit, the result depends on the speed of the machine.  A method that has begun is finished.

        Returns
        -------
        Bounds
            Floats, in nats.  If only the Renyi bound is found, it is the upper bound and the status is RENYI_ONLY.  If
            it is infinite, the bounds are 0 and inf and the status is NOT_CERTIFIED.

        Raises
        ------
        ValueError
            For a delta outside (0, 1), an unknown direction, or seconds that are not above 0.

        **Error**: the true value lies between the bounds, which differ by a relative 1e-6 at most in all cases tried,
        and by 1e-9 typically.
        **Cost**: a few milliseconds; few or rare steps take up to seconds.

        Examples
        --------
        >>> b = compose([(Gaussian(100), 420)]).epsilon(1e-5)
        >>> round(b.estimate, 6)
        0.745138
        """
        if np.ndim(delta) == 0 and delta == 0:
            return self._largest_loss(directions(direction))
        return self._answer(EpsilonAt(validate.delta(delta)), directions(direction), deadline(seconds))

    def _largest_loss(self, wanted: tuple[Direction, ...]) -> Bounds:
        """The largest loss that has a probability above 0: epsilon at delta = 0."""
        if self._enclosing is not None:
            (low, _), (high, _) = self._enclosing
            lower, upper = low._largest_loss(wanted).lower, high._largest_loss(wanted).upper
            return Bounds(upper if np.isinf(upper) else lower, upper, upper)
        total = 0.0
        for direction in wanted if self._counts else ():
            if self._log_finite(direction) < 0.0:
                return Bounds(np.inf, np.inf, np.inf)
            total = max(total, float(self._row.times(self._of(direction).steps.largest_loss()[:, None])[0, 0]))
        slack = _ROUNDING * (total + self.steps) if 0.0 < total < np.inf else 0.0
        return Bounds(max(total - slack, 0.0), total, total + slack)

    def delta(self, epsilon: float, direction: str = "both", *, seconds: float | None = None) -> Bounds:
        """Bounds of delta(epsilon), epsilon finite; otherwise as `epsilon`.

        At a negative epsilon it is 1 - e^epsilon + e^epsilon delta'(-epsilon), with delta' of the other direction,
        because the integrals of (P - e^epsilon Q)+ and (e^epsilon Q - P)+ differ by 1 - e^epsilon.

        Examples
        --------
        >>> b = compose([(SampledGaussian(2, 0.005), 10_000)]).delta(1.0)
        >>> f"{b.estimate:.4e}"
        '1.0630e-05'
        """
        wanted = directions(direction)
        if np.ndim(epsilon) == 0 and epsilon < 0:
            far = DeltaAt(validate.nonnegative(-epsilon, "-epsilon"))
            d = self._answer(far, tuple(_OTHER[one] for one in wanted), deadline(seconds))
            shrunk, rest = math.exp(epsilon), -math.expm1(epsilon)
            low, middle, high = (rest + shrunk * value for value in d)
            return Bounds(low * (1.0 - 2.0**-48), middle, min(high * (1.0 + 2.0**-48), 1.0), d.status, d.method)
        question = DeltaAt(validate.nonnegative(epsilon, "epsilon"))
        return self._answer(question, wanted, deadline(seconds))

    def _answer(self, question: Question, wanted: tuple[Direction, ...], end: float) -> Bounds:
        if not self._counts:
            return Bounds(0.0, 0.0, 0.0)
        mu = self._full_batch
        if mu is not None:
            return _full_batch_bounds(mu, question)
        first, *others = wanted
        found = self._one(first, question, end)
        for direction in others:
            if not self._surely_below(found, question, direction):
                found = larger(found, self._one(direction, question, end))
        return found[0]

    def _one(self, direction: Direction, question: Question, end: float) -> Bounds:
        """The answer in one direction, arrays of one element."""
        if self._enclosing is not None:
            return self._between(direction, question, end)
        lattice = self._lattice(direction)
        if lattice is not None:
            if isinstance(question, EpsilonAt):
                lower, upper = lattice.epsilon(float(question.delta))
            else:
                lower, upper = lattice.delta(float(np.asarray(question.target)))
            middle = upper if np.isinf(upper) else 0.5 * (lower + upper)
            return _one_element(lower, middle, upper, method=Proof.LATTICE)
        if not self._log_finite(direction):
            return bounds(self._row, self._of(direction), [question], methods=self._methods, deadline=end)[0]
        return self._with_infinite(direction, question, end)

    def _between(self, direction: Direction, question: Question, end: float) -> Bounds:
        """The lower bound of the composition below, and the upper bound of the one above."""
        assert self._enclosing is not None
        (low, shrunk), (high, grown) = self._enclosing
        if isinstance(question, EpsilonAt):
            delta = float(question.delta)
            more, less = delta * math.exp(shrunk) * _UP, delta * math.exp(-grown) / _UP
            below = low._answer(EpsilonAt(more), (direction,), end) if more < 1.0 else Bounds(0.0, 0.0, 0.0)
            above = high._answer(EpsilonAt(less), (direction,), end)
            lower, upper = float(below.lower), float(above.upper)
        else:
            below, above = (c._answer(question, (direction,), end) for c in (low, high))
            lower = float(below.lower) * math.exp(-shrunk) / _UP
            upper = min(float(above.upper) * math.exp(grown) * _UP, 1.0)
        status = max(int(below.status), int(above.status))
        middle = 0.5 * (lower + upper) if np.isfinite(upper) else np.nan
        return _one_element(lower, middle, upper, status, int(above.method))

    def _log_finite(self, direction: Direction) -> float:
        """log of the chance that no step's loss is infinite; only discrete laws have infinite losses."""
        if direction not in self._logs_finite:
            laws = [(m.law(direction).infinite, n) for m, n in self._counts.items() if isinstance(m, Discrete)]
            self._logs_finite[direction] = sum(n * (np.log1p(-mass) if mass < 1.0 else -np.inf) for mass, n in laws)
        return self._logs_finite[direction]

    def _with_infinite(self, direction: Direction, question: Question, end: float) -> Bounds:
        """delta = D + (1 - D) delta', D the chance of an infinite loss; delta' of the losses given that none is.

        Given that all losses are finite, each is larger by -log(1 - its infinite mass) (`DiscreteSteps`).
        """
        log_finite = self._log_finite(direction)
        infinite = -float(np.expm1(log_finite))
        above, below = infinite * (1.0 + _ROUNDING), infinite * (1.0 - _ROUNDING)
        if isinstance(question, EpsilonAt):
            delta = float(question.delta)
            if delta < below or infinite >= 1.0:
                return _one_element(np.inf, np.inf, np.inf)
            if delta <= above:
                return _one_element(0.0, np.nan, np.inf, Status.NOT_CERTIFIED, Proof.NONE)
            least, most = (delta - above) / (1.0 - below), (delta - below) / (1.0 - above)
            ends = [EpsilonAt(value) for value in (most * (1.0 + _ROUNDING), least * (1.0 - _ROUNDING)) if value < 1.0]
            found = bounds(self._row, self._of(direction), ends, methods=self._methods, deadline=end)
            low = float(found[0].lower[0]) if len(ends) == 2 else 0.0
            low, high = low + log_finite - _ROUNDING * abs(log_finite), float(found[-1].upper[0]) + log_finite
            high += _ROUNDING * abs(log_finite)
            lower, upper = max(low, 0.0), max(high, 0.0)
            if not np.isfinite(upper):
                return _one_element(0.0, np.nan, np.inf, Status.NOT_CERTIFIED, Proof.NONE)
            return _one_element(lower, 0.5 * (lower + upper), upper, found[-1].status[0], found[-1].method[0])
        if infinite >= 1.0:
            return _one_element(1.0 - _ROUNDING, 1.0, 1.0)
        epsilon = float(np.asarray(question.target)) - log_finite
        room = _ROUNDING * abs(log_finite)
        asked = [DeltaAt(epsilon + room), DeltaAt(max(epsilon - room, 0.0))]
        far, near = bounds(self._row, self._of(direction), asked, methods=self._methods, deadline=end)
        lower = below + (1.0 - above) * float(far.lower[0])
        upper = min(above + (1.0 - below) * float(near.upper[0]) * (1.0 + _ROUNDING), 1.0)
        return _one_element(lower, 0.5 * (lower + upper), upper, near.status[0], near.method[0])

    def _lattice(self, direction: Direction) -> LatticeSum | AtomSum | None:
        """The sum of discrete laws if their losses lie on one lattice, or are few."""
        if direction not in self._lattices:
            pairs = [m for m in self._counts if isinstance(m, Discrete)]
            self._lattices[direction] = None
            if len(pairs) == len(self._counts):
                from .engine.atoms import AtomSum
                from .engine.lattice import LatticeSum

                laws, counts = [m.law(direction) for m in pairs], list(self._counts.values())
                self._lattices[direction] = LatticeSum.of(laws, counts) or AtomSum.of(laws, counts)
        return self._lattices[direction]

    def _surely_below(self, found: Bounds, question: Question, direction: Direction) -> bool:
        """Whether the Renyi bound alone proves that this direction's answer is below another direction's."""
        if self._enclosing is not None or self._lattice(direction) is not None or self._log_finite(direction):
            return False
        makers = self._of(direction)
        most = float(renyi.renyi_bounds(self._row, makers.any(interpolated=False), question)[0])
        return bool((most if question.wants_epsilon else np.exp(most)) < found.lower[0])

    def mu(self, min_delta: float = 1e-10, direction: str = "both") -> Bounds:
        """The smallest mu whose Gaussian curve lies above delta at every epsilon >= 0 with delta >= min_delta.

        Parameters
        ----------
        min_delta : float
            Smallest delta at which the curves are compared, in (0, 1).
        direction : {"both", "remove", "add"}

        Returns
        -------
        Bounds
            Floats.

        Notes
        -----
        mu describes the curve; it does not imply mu-GDP: below min_delta the curve of the subsampled Gaussian exceeds
        that of every small mu.  For mechanisms fixed in advance, mu implies
        (epsilon, delta_Gauss(epsilon; mu) + min_delta)-DP.

        Examples
        --------
        >>> round(compose([(Gaussian(100), 420)]).mu().upper, 6)
        0.204939
        >>> round(compose([(SampledGaussian(2, 0.005), 10_000)]).mu(1e-5).upper, 3)
        0.269
        """
        min_delta = validate.delta(min_delta, "min_delta")
        wanted = directions(direction)
        if not self._counts:
            return Bounds(0.0, 0.0, 0.0)
        mu = self._full_batch
        if mu is not None:
            if gdp.delta(0.0, mu * (1.0 + 2.0**-48)) < min_delta:
                return Bounds(0.0, 0.0, 0.0)
            return Bounds(mu * (1.0 - 2.0**-48), mu, mu * (1.0 + 2.0**-48))
        if self._enclosing is not None:
            (low, shrunk), (high, grown) = self._enclosing
            most = high.mu(min_delta, direction) if shrunk == grown == 0.0 else _UNKNOWN
            if not np.isfinite(most.upper):
                return _UNKNOWN
            least = float(low.mu(min_delta, direction).lower)
            return Bounds(least, 0.5 * (least + most.upper), most.upper, most.status, most.method)
        if any(self._log_finite(d) for d in wanted):
            return _UNKNOWN
        above = np.zeros(1)
        for d in wanted:
            above = dominating_mu.mu_upper(self._row, self._of(d), min_delta, floor=above)
        upper = float(above[0])
        if not np.isfinite(upper):
            return _UNKNOWN
        lower = max(float(dominating_mu.mu_lower(self._row, self._of(d), min_delta)[0]) for d in wanted)
        return Bounds(lower, 0.5 * (lower + upper), upper, method=Proof.TRANSFORM)

    def tradeoff(self, alpha: Any, direction: str = "both") -> Bounds:
        """Bounds of the trade-off function: the smallest type II error of a test with type I error alpha.

        Parameters
        ----------
        alpha : float or array_like
            Rates of false positives, in (0, 1).
        direction : {"both", "remove", "add"}
            "remove": the null hypothesis is that the record is not there; "add": that it is there; "both" gives the
            smaller error of the two.

        Returns
        -------
        Bounds
            `lower` is what may be promised: no test does better.  The larger the trade-off, the more privacy.

        Raises
        ------
        ValueError
            For an alpha outside (0, 1), or an unknown direction.

        **Error**: the bounds are a relative 1e-5 apart where those of delta are as close.
        **Cost**: about twenty evaluations of `delta` for the first alpha and direction, fewer for each other alpha.

        References
        ----------
        Dong, Roth and Su (2022), Proposition 6 (duality); `notions.tradeoff.ProfileCurve` derives both bounds.

        Examples
        --------
        >>> b = compose([(Gaussian(1.0), 1)]).tradeoff(0.01)
        >>> bool(b.lower <= 0.9076378)
        True
        >>> round(b.lower, 4)
        0.9076
        """
        return self._of_tests(alpha, direction, successes=False)

    def attack_success(self, false_positive_rate: Any, direction: str = "both") -> Bounds:
        """Bounds of the largest rate of true positives of a test with this rate of false positives: 1 - `tradeoff`.

        Somebody who tries to find out whether a record was used (a membership inference attack) and accuses innocent
        records at the given rate detects the record with probability `upper` at most.

        **Error**: as `tradeoff`, plus an absolute 1e-14.

        Examples
        --------
        >>> run = compose([(SampledGaussian(2, 0.005), 10_000)])
        >>> round(run.attack_success(0.01).upper, 4)
        0.0198
        """
        return self._of_tests(false_positive_rate, direction, successes=True)

    def _of_tests(self, alpha: Any, direction: str, *, successes: bool) -> Bounds:
        levels = validate.numbers(alpha, "false_positive_rate" if successes else "alpha")
        if not np.all((levels > 0.0) & (levels < 1.0)):
            word = "false_positive_rate" if successes else "alpha"
            raise ValueError(f"{word} must lie in (0, 1), got {alpha!r}")
        ends = []
        status = Status.CERTIFIED
        for one in directions(direction):
            worst = [Status.CERTIFIED]
            sides = (self._two_sided(side, worst) for side in (one, _OTHER[one]))
            curve = ProfileCurve(*sides)
            ask = curve.true_positives if successes else curve.type_two
            ends.append(np.array([ask(float(a)) for a in levels.reshape(-1)]).reshape(levels.size, 2))
            status = max(status, *worst)
        choose = np.maximum if successes else np.minimum
        both = ends[0] if len(ends) == 1 else choose(ends[0], ends[1])
        lower, upper = (both[:, k].reshape(levels.shape) for k in (0, 1))
        if not levels.ndim:
            lower, upper = float(lower), float(upper)
        proofs = np.full(levels.shape, Proof.CONJUGATE)[()] if levels.ndim else Proof.CONJUGATE
        statuses = np.full(levels.shape, status) if levels.ndim else status
        return Bounds(lower, 0.5 * (lower + upper), upper, statuses, proofs)

    def _two_sided(self, direction: Direction, worst: list[Status]) -> Callable[[float], tuple[float, float]]:
        """Lower and upper delta in one direction; the least favourable status is added to `worst`."""

        def ask(epsilon: float) -> tuple[float, float]:
            found = self.delta(epsilon, direction)
            worst.append(Status(found.status))
            return found.lower, found.upper

        return ask

    def advantage(self) -> Bounds:
        """Bounds of the largest difference between the rates of true and of false positives: delta(0).

        It is the total variation distance of the outputs with and without the record.

        References
        ----------
        Kulynych, Gomez, Kaissis, Calmon and Troncoso (2024), Section 2.

        Examples
        --------
        >>> round(compose([(SampledGaussian(2, 0.005), 10_000)]).advantage().upper, 4)
        0.1059
        """
        return self.delta(0.0)

    def bayes_risk(self, prior: float) -> Bounds:
        """Bounds of the smallest probability of error of somebody who believes beforehand, with probability `prior`,
        that the record was used.

        Parameters
        ----------
        prior : float
            In (0, 1).

        Returns
        -------
        Bounds
            Without any output the error is min(prior, 1 - prior).  `lower` may be promised.

        Notes
        -----
        The best decision compares the loss with log((1 - prior) / prior), so the error is
        prior (1 - delta(log((1 - prior) / prior))), delta under removal.

        Raises
        ------
        ValueError
            For a prior outside (0, 1).

        **Error**: as `delta`.

        Examples
        --------
        >>> run = compose([(SampledGaussian(2, 0.005), 10_000)])
        >>> round(run.bayes_risk(0.5).lower, 4), round(run.bayes_risk(0.1).lower, 4)
        (0.4471, 0.1)
        """
        prior = validate.delta(prior, "prior")
        less, direction = (prior, "remove") if prior <= 0.5 else (1.0 - prior, "add")
        d = self.delta(math.log1p((1.0 - 2.0 * less) / less), direction)
        # delta changes by less than epsilon does, whose rounding is relative
        slack = 2.0**-48 * (1.0 - math.log(less))
        low, middle, high = (less * (1.0 - value) for value in (min(d.upper, 1.0), d.estimate, max(d.lower, 0.0)))
        return Bounds(max(low - less * slack, 0.0), middle, high + less * slack, d.status, d.method)

    def rdp(self, alpha: Any) -> NDArray:
        """Renyi divergence of the composition at orders alpha > 1, integer or not; the larger of the two directions.

        **Error**: rounded up, by at most a relative 1e-12 plus 1e-14 / (alpha - 1) a step; for mixtures of
        Gaussians about 1e-11 / (alpha - 1) a step, and the Gaussian divergence of their largest shift where they need
        millions of nodes; for sampled Laplace steps, as loose as chords of 4,096 cells.
        A mechanism with infinite losses has an infinite divergence.

        Examples
        --------
        >>> compose([(Gaussian(100), 420)]).rdp([2.0, 21.5]).round(6)
        array([0.042 , 0.4515])
        """
        orders = np.asarray(alpha, dtype=np.float64)
        total = np.zeros(orders.shape)
        if self._enclosing is not None:
            return self._enclosing[1][0].rdp(alpha)
        if self._counts:
            theta = validate.orders(orders).reshape(-1) - 1.0
            k = np.full(theta.size, -np.inf)
            for direction in self._larger_moments:
                if self._log_finite(direction):
                    return np.full(orders.shape, np.inf)
                k = np.maximum(k, self._row.times(self._of(direction).steps.log_moments(theta, exact=True))[0])
            total = (k / theta).reshape(orders.shape)
        return total

    @property
    def _larger_moments(self) -> tuple[Direction, ...]:
        """The directions that may have the larger Renyi divergence at some order.

        Removal alone for Laplace and sampled Gaussians (Mironov, Talwar and Zhang 2019, Section 3.2).
        """
        known = all(isinstance(m, (SampledGaussian, Laplace)) for m in self._counts)
        return ("remove",) if known else ("remove", "add")

    def rdp_epsilon(self, delta: float) -> float:
        """The Renyi bound of epsilon at `delta`, at the best order: an upper bound, looser than `epsilon`.

        Examples
        --------
        >>> round(compose([(Gaussian(100), 420)]).rdp_epsilon(1e-5), 4)
        0.8156
        """
        delta = validate.delta(delta)
        if not self._counts:
            return 0.0
        if self._enclosing is not None:
            return self._enclosing[1][0].rdp_epsilon(delta)
        if any(self._log_finite(direction) for direction in self._larger_moments):
            return float("inf")
        return max(renyi.optimal_epsilon(self._row, self._of(d).steps, delta) for d in self._larger_moments)


class RenyiComposition(Composition):
    """A composition with black boxes of which only Renyi guarantees are known.  Made by `compose`.

    Upper bounds are the Renyi bound of all steps together, at the best real order; their status is RENYI_ONLY.  The
    truth is the largest value over all mechanisms that satisfy what is known, so that lower bounds come from one of
    them: Gaussian noise for every `ZeroConcentratedDP` without a xi, and nothing for the other boxes.

    Notes
    -----
    Let D be the chance that a discrete step has an infinite loss, and F the event that none has.  With K the sum of the
    log-moments E[e^(theta L); F] of the steps and of the boxes' bounds,
    delta(epsilon) <= D + c(theta) exp(K(theta) - theta epsilon) (Canonne, Kamath and Steinke 2020, Proposition 12).
    Log-moments add over steps (Mironov 2017, Proposition 1).
    """

    def __init__(self, counts: Mapping[Any, int], boxes: Mapping[RenyiBox, int]) -> None:
        super().__init__(counts)
        self._boxes = dict(boxes)
        witness = dict(self._counts)
        for box, n in self._boxes.items():
            if isinstance(box, ZeroConcentratedDP) and box.xi == 0.0:
                step = SampledGaussian((1.0 + 2.0**-50) / math.sqrt(2.0 * box.rho), 1.0)
                witness[step] = witness.get(step, 0) + n
        self._witness = Composition(witness)

    def __repr__(self) -> str:
        inside = ", ".join(f"({mechanism}, {n})" for mechanism, n in {**self._counts, **self._boxes}.items())
        return f"compose([{inside}])"

    @property
    def steps(self) -> int:
        """Number of mechanisms run in all."""
        return sum(self._counts.values()) + sum(self._boxes.values())

    def _of_boxes(self, theta: NDArray) -> NDArray:
        return sum((n * box.log_moments(theta) for box, n in self._boxes.items()), np.zeros(theta.shape))

    def _answer(self, question: Question, wanted: tuple[Direction, ...], end: float) -> Bounds:
        upper = max(self._renyi(question, direction) for direction in wanted)
        lower = self._witness._answer(question, wanted, end).lower
        if not np.isfinite(upper):
            return Bounds(lower, np.nan, np.inf, Status.NOT_CERTIFIED, Proof.NONE) if lower == np.inf else _UNKNOWN
        return Bounds(min(lower, upper), upper, upper, Status.RENYI_ONLY, Proof.RENYI)

    def _renyi(self, question: Question, direction: Direction) -> float:
        """The upper bound of epsilon or delta in one direction."""
        log_finite = self._log_finite(direction) if self._counts else 0.0
        infinite = -math.expm1(log_finite) * (1.0 + _ROUNDING)

        def moments(theta: NDArray) -> NDArray:
            total = self._of_boxes(theta)
            if self._counts:
                steps = self._of(direction).steps
                total = total + self._row.times(steps.log_moments(theta, exact=True))[0]
            # the moments of discrete steps are those given F; see `_with_infinite`
            return total + (1.0 + theta) * log_finite * (1.0 - _ROUNDING)

        corners = [t - 1.0 for box in self._boxes if isinstance(box, RenyiDP) for t in box.orders if t < np.inf]
        if isinstance(question, EpsilonAt):
            rest = (float(question.delta) - infinite) * (1.0 - 2.0**-50)
            return max(renyi.optimum(moments, EpsilonAt(rest), corners), 0.0) if rest > 0.0 else np.inf
        log_delta = renyi.optimum(moments, question, corners)
        return min(infinite + math.exp(min(log_delta, 0.0)) * (1.0 + 2.0**-50), 1.0)

    def _largest_loss(self, wanted: tuple[Direction, ...]) -> Bounds:
        """Finite where every box has a divergence of order infinity."""
        known = super()._largest_loss(wanted)
        total = sum(n * _pure(box) for box, n in self._boxes.items()) + known.upper
        lower = self._witness._largest_loss(wanted).lower
        return Bounds(lower, total, total * (1.0 + _ROUNDING), Status.RENYI_ONLY, Proof.RENYI)

    def mu(self, min_delta: float = 1e-10, direction: str = "both") -> Bounds:
        """Not certified: no Gaussian curve is known to lie above one of which only Renyi divergences are known."""
        validate.delta(min_delta, "min_delta")
        directions(direction)
        return _UNKNOWN

    def rdp(self, alpha: Any) -> NDArray:
        """Upper bounds of the Renyi divergence at orders alpha > 1; inf where a box says nothing."""
        orders = validate.orders(np.asarray(alpha, dtype=np.float64))
        theta = orders.reshape(-1) - 1.0
        return np.asarray(super().rdp(orders) + (self._of_boxes(theta) / theta).reshape(orders.shape))

    def rdp_epsilon(self, delta: float) -> float:
        """The Renyi bound of epsilon at `delta`: what `epsilon` has as its upper bound."""
        question = EpsilonAt(validate.delta(delta))
        return max(self._renyi(question, direction) for direction in directions("both"))


def _pure(box: RenyiBox) -> float:
    """The divergence of order infinity."""
    return box.epsilons[-1] if isinstance(box, RenyiDP) and box.orders[-1] == np.inf else np.inf


def _order(mechanism: Any) -> tuple[str, float, float]:
    """Sort key: mechanisms of one kind are neighbours, in the order of their noise."""
    return type(mechanism).__name__, mechanism.noise_multiplier, getattr(mechanism, "sample_rate", 1.0)


def _full_batch_bounds(mu: float, question: Question) -> Bounds:
    """Bounds for full-batch steps, from the closed form of the Gaussian mechanism."""
    if not mu < _LARGEST_MU:
        return _UNKNOWN
    if isinstance(question, EpsilonAt):
        lower, upper = full_batch_epsilon(mu, float(question.delta))
        return Bounds(lower, 0.5 * (lower + upper), upper)
    found = full_batch_delta(mu, float(np.asarray(question.target)))
    return _UNKNOWN if found is None else Bounds(*found)
