"""`Composition`: the questions to the privacy loss of one person, and what their answers mean."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .. import deadline, validate
from ..engine import renyi
from ..engine.question import DeltaAt, EpsilonAt, Question
from ..engine.working import warn_of_contradiction
from ..locked import Locked
from ..mechanisms.base import Direction, directions
from ..notions.tradeoff import Curve, ProfileCurve
from ..results import Bounds, Status, shaped
from ..results import Method as Proof

__all__ = ["ROUNDING", "UNKNOWN", "Composition", "OwnCurve", "between", "spare"]

ROUNDING = 2.0**-40
"""Relative, above the errors of masses at infinity."""
UNKNOWN = Bounds(0.0, np.nan, np.inf, status=Status.NOT_CERTIFIED, method=Proof.NONE)
"""Nothing is known of an epsilon."""


_Question = TypeVar("_Question")


def spare(ask: Callable[[], Bounds]) -> Bounds:
    """Bounds that an answer can do without: 0 and inf if the time is over."""
    with suppress(deadline.OutOfTime), deadline.strict():
        return ask()
    return Bounds(0.0, np.nan, np.inf)


def between(lower: float, upper: float, status: Status, method: Proof) -> Bounds:
    """Bounds from a composition below and one above; `UNKNOWN` if they contradict each other by more than round-off."""
    if lower > upper * (1.0 + _CROSSED):
        warn_of_contradiction(1, 1)
        return UNKNOWN
    lower = min(lower, upper)
    middle = 0.5 * (lower + upper) if np.isfinite(upper) or lower == upper else np.nan
    return Bounds(lower, middle, upper, status, method)


def _outwards(low: float, high: float) -> tuple[float, float]:
    """The next doubles below and above: relative room is nothing to numbers below 1e-308.  The lower is at least 0."""
    return max(math.nextafter(low, -math.inf), 0.0), math.nextafter(high, math.inf)


def _of_tests(
    curve: ProfileCurve, infinite: Callable[[], tuple[float, float]], levels: Sequence[float], successes: bool
) -> list[tuple[float, float]]:
    """Bounds of the largest rate of true positives of tests with these rates of false positives, or of 1 less it.

    infinite: gives bounds of the chance of an infinite loss.
    """
    found: dict[float, tuple[float, float]] = {}
    for level in {0.0, 1.0}.intersection(levels):
        # without false positives only infinite losses are detected
        low, high = (1.0, 1.0) if level else infinite()
        found[level] = (low, high) if successes else (_rest_of(high, 0.0), _rest_of(low, 1.0))
    inside = sorted(set(levels) - found.keys())
    few = [level for level in inside if successes or level <= _FEW_ALARMS]
    for level, (low, high) in zip(few, curve.true_positives(few), strict=True):
        if successes:
            found[level] = low, high
        elif high < 0.5:
            # of an error near 1, the distance from 1 counts
            found[level] = _rest_of(high, 0.0), _rest_of(low, 1.0)
    others = [level for level in inside if level not in found]
    found |= zip(others, curve.type_two(others), strict=True)
    return [found[level] for level in levels]


def _rest_of(chance: float, towards: float) -> float:
    """1 less a chance, rounded towards 0 or 1; exact for a chance of 0 or 1."""
    return math.nextafter(1.0 - chance, towards) if 0.0 < chance < 1.0 else 1.0 - chance


class OwnCurve:
    """A composition's curve in one direction, a question for each point, for `engine.dominating_mu`."""

    def __init__(self, composition: Composition, direction: Direction) -> None:
        self._composition, self._direction = composition, direction

    def deltas(self, epsilon: NDArray) -> NDArray:
        """Lower and upper delta at each epsilon, (points, 2)."""
        return np.array(self._ask([DeltaAt(e) for e in epsilon.tolist()]))

    def epsilon(self, delta: float) -> tuple[float, float]:
        """Lower and upper epsilon."""
        return self._ask([EpsilonAt(delta)])[0]

    def _ask(self, questions: Sequence[Question]) -> list[tuple[float, float]]:
        run, wanted, ends = self._composition, (self._direction,), []
        together = run._together(questions, wanted, _WIDE) if len(questions) > 1 else [None]
        for question, found in zip(questions, together, strict=True):
            deadline.check()
            one = run._answer(question, wanted, _WIDE) if found is None else found
            ends.append((float(one.lower), float(one.upper)))
        return ends


_UP = 1.0 + 2.0**-50  # the round-off of products
_TINY = 1e-9  # relative width of bounds that are certified on both sides, however they were found
_CROSSED = 1e-9  # round-off by which a lower bound may exceed an upper bound, relative
_FAR = 1e6  # an epsilon beyond which lie infinite losses, and what counts as such
_WIDE = 1e-4  # relative to log delta: points of a curve, and bounds with which a search on trade-offs begins
_AS_CLOSE = 2e-5  # relative: the distance of bounds of tests, if those of the curve are close
_FEW_ALARMS = 1e-3  # rate of false positives up to which a test's true positives tell its other error
_NEGLIGIBLE = 1e-20  # delta whose digits do not matter to most trade-offs
_SHARED = 4  # one question of several may take this part of the time that is left
_OTHER: dict[Direction, Direction] = {"remove": "add", "add": "remove"}
_NEAR_ONE = 1.0 + 10.0 ** np.arange(-6.0, -1.0)  # orders that stand for 1; closer ones have more round-off


class Composition(Locked, ABC):
    """The privacy loss of one person over a fixed list of mechanisms.  Made by `compose`.

    Several threads may use one composition; their questions are answered one after another.  Two compositions are equal
    if the same mechanisms run equally often.
    """

    _counts: dict[Any, int]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Composition) and self._counts == other._counts

    def __hash__(self) -> int:
        return hash(frozenset(self._counts.items()))

    def __repr__(self) -> str:
        inside = ", ".join(f"({mechanism}, {n})" for mechanism, n in self._counts.items())
        return f"compose([{inside}])"

    @property
    def counts(self) -> dict[Any, int]:
        """Each mechanism, and how often it runs; full batches as ``SampledGaussian`` of rate 1."""
        return dict(self._counts)

    @property
    def steps(self) -> int:
        """Number of mechanisms run in all."""
        return sum(self._counts.values())

    @abstractmethod
    def _answer(self, question: Question, wanted: tuple[Direction, ...], width: float) -> Bounds:
        """The larger answer of the directions, floats."""

    def _lower(self, question: Question, wanted: tuple[Direction, ...], width: float) -> tuple[float, Status]:
        """The lower bound of `_answer`, and its status; 0 if the time is over."""
        found = spare(lambda: self._answer(question, wanted, width))
        return float(found.lower), Status(found.status)

    def _together(
        self, questions: Sequence[Question], wanted: tuple[Direction, ...], width: float
    ) -> list[Bounds | None]:
        """What `_answer` gives for each of several questions of one kind; None: it must be asked alone."""
        return [None] * len(questions)

    @property
    def _symmetric(self) -> bool:
        """Whether the losses have the same law in both directions, as where every step is symmetric."""
        return all(getattr(mechanism, "symmetric", False) for mechanism in self._counts)

    def _distinct(self, wanted: tuple[Direction, ...]) -> tuple[Direction, ...]:
        """The directions to compute: removal if both have the same losses."""
        return ("remove",) if self._symmetric else wanted

    @abstractmethod
    def _largest_loss(self, wanted: tuple[Direction, ...]) -> Bounds:
        """The largest loss that has a probability above 0: epsilon at delta = 0."""

    def _rough_delta(self, direction: Direction, epsilon: float) -> float:
        """An upper bound of delta that takes a millisecond; 1 if there is none."""
        return 1.0

    def _infinite(self, direction: Direction, delta: Curve) -> tuple[float, float]:
        """Bounds of the chance that some step's loss is infinite; delta: the two-sided curve."""
        return 0.0, min(delta([_FAR], False)[0][1], 1.0)

    @abstractmethod
    def _mu(self, min_delta: float, wanted: tuple[Direction, ...]) -> Bounds:
        """`mu`, of checked arguments."""

    def log_moments_of_both(self, theta: NDArray) -> NDArray:
        """Upper bounds of the log-moments of the loss, in both directions, from `rdp`; shape of theta."""
        # the divergence grows with the order, so that a larger one may stand for a rounded one
        return np.asarray(self._rdp(np.nextafter(1.0 + theta, np.inf)) * theta * _UP)

    def _capped(self, found: Bounds, question: Question) -> Bounds:
        """These bounds, or the Renyi bound where it is smaller."""
        most = renyi.optimum(self.log_moments_of_both, question)
        epsilon = isinstance(question, EpsilonAt)
        most = max(most, 0.0) if epsilon else math.nextafter(math.exp(min(most, 0.0)), math.inf)
        if not most < found.upper:
            return found
        status = Status.RENYI_ONLY if found.status == Status.NOT_CERTIFIED else Status(found.status)
        return between(float(found.lower), most, status, Proof.RENYI)

    def epsilon(
        self,
        delta: Any,
        direction: str = "both",
        *,
        seconds: float | None = None,
        tolerance: float | None = None,
    ) -> Bounds:
        """Bounds of epsilon(delta).

        Parameters
        ----------
        delta : float or array_like
            In (0, 1), down to 1e-100 and below; or 0, for the largest loss (infinite for Gaussian noise); or 1, which
            no delta exceeds, so that epsilon is 0.
        direction : {"both", "remove", "add"}
            Whether the record is removed or added; "both" gives the larger epsilon of the two.
        seconds : float, optional
            After this time methods stop: the bounds are certified as they are, and may be wide.  The Renyi bound may
            take a quarter longer, and half a second at least; if it is not there by then, nothing is known.  Work stops
            between its pieces, of tenths of a second.  With a limit, the result depends on the speed of the machine.
            The deltas of an array share the time: each may take a quarter of what is left.  Nothing is known of those
            that no time is left for.
        tolerance : float, optional
            In (0, 1): certified bounds this close, relative, are close enough.  At 1e-3, few or rare steps take a tenth
            of a second instead of up to seconds.  At 1e-6 and below, methods go on as long as they come closer.  By
            default they stop at 1e-5 where this takes longer, for deltas of 1e-15 and above.

        Returns
        -------
        Bounds
            In nats: floats, or arrays of the shape of `delta`.  If only the Renyi bound is found, it is the upper
            bound and the status is RENYI_ONLY.  If it is infinite, the bounds are 0 and inf and the status is
            NOT_CERTIFIED.

        Raises
        ------
        ValueError
            For a delta outside [0, 1], an unknown direction, or seconds or a tolerance out of range.

        **Error**: the true value lies between the bounds.  For Gaussian, Laplace and discrete steps, sampled or not,
        they differ by a relative 1e-9 typically, and seldom by more than 1e-6 for delta >= 1e-15; by up to 1e-5 for few
        steps of Laplace noise or of atoms beside noise, unless the tolerance is 1e-6.  The other mechanisms
        say how far apart their bounds are.
        **Cost**: a few milliseconds; few or rare steps take up to seconds.  The deltas of an array share their work:
        those of sampled Gaussian or Laplace noise take a tenth of this each.

        Examples
        --------
        >>> import pld_accountant as pa
        >>> run = pa.compose([(pa.Gaussian(100), 420)])
        >>> round(run.epsilon(1e-5).estimate, 6)
        0.745138
        >>> run.epsilon([1e-5, 1e-8]).upper.round(6)
        array([0.745138, 1.047794])
        """
        wanted = directions(direction)

        def check(d: float) -> EpsilonAt | float:
            if not 0.0 <= d <= 1.0:
                raise ValueError(f"delta must lie in [0, 1], got {d!r}")
            return d if d in (0.0, 1.0) else EpsilonAt(d)

        def ask(question: EpsilonAt | float, width: float) -> Bounds:
            if isinstance(question, EpsilonAt):
                return self._answer(question, wanted, width)
            return Bounds(0.0, 0.0, 0.0) if question else self._largest_loss(wanted)

        return self._each(delta, "delta", check, ask, seconds, tolerance, together=wanted)

    def delta(
        self,
        epsilon: Any,
        direction: str = "both",
        *,
        seconds: float | None = None,
        tolerance: float | None = None,
    ) -> Bounds:
        """Bounds of delta(epsilon), epsilon any number, inf and -inf included; otherwise as `epsilon`.

        A `tolerance` is relative to log delta.  At inf, delta is the chance of an infinite loss.

        At a negative epsilon it is 1 - e^epsilon + e^epsilon delta'(-epsilon), with delta' of the other direction,
        because the integrals of (P - e^epsilon Q)+ and (e^epsilon Q - P)+ differ by 1 - e^epsilon.

        Examples
        --------
        >>> import pld_accountant as pa
        >>> b = pa.compose([(pa.SampledGaussian(2, 0.005), 10_000)]).delta(1.0)
        >>> f"{b.estimate:.4e}"
        '1.0630e-05'
        """
        wanted = directions(direction)

        def check(at: float) -> DeltaAt | float:
            return DeltaAt(at) if 0.0 <= validate.not_nan(at, "epsilon") < math.inf else at

        def ask(at: DeltaAt | float, width: float) -> Bounds:
            if isinstance(at, DeltaAt):
                return self._answer(at, wanted, width)
            if at == -math.inf:
                return Bounds(1.0, 1.0, 1.0)
            if at == math.inf:
                return self._at_infinity(wanted)
            d = self._answer(DeltaAt(-at), tuple(_OTHER[one] for one in wanted), width)
            shrunk, rest = math.exp(at), -math.expm1(at)
            low, middle, high = (rest + shrunk * min(value, 1.0) for value in d)
            middle = 0.5 * (low + high) if math.isnan(middle) else middle
            low, high = _outwards(low * (1.0 - 2.0**-48), high * (1.0 + 2.0**-48))
            high = min(high, 1.0)
            # a bound that is loose for delta' alone is close beside the rest
            status = Status.CERTIFIED if high - low <= _TINY * high else d.status
            return Bounds(low, middle, high, status, d.method)

        return self._each(epsilon, "epsilon", check, ask, seconds, tolerance, together=wanted)

    def _at_infinity(self, wanted: tuple[Direction, ...]) -> Bounds:
        """The chance of an infinite loss, the larger of the directions."""
        worst = [Status.CERTIFIED]
        ends = [self._infinite(one, self._two_sided(one, worst)) for one in self._distinct(wanted)]
        lower, upper = (max(end) for end in zip(*ends, strict=True))
        return Bounds(lower, 0.5 * (lower + upper), upper, max(worst))

    def _each(
        self,
        values: Any,
        name: str,
        check: Callable[[float], _Question],
        ask: Callable[[_Question, float], Bounds],
        seconds: float | None = None,
        tolerance: float | None = None,
        *,
        together: tuple[Direction, ...] = (),
    ) -> Bounds:
        """The answer for a number, or for each of an array, within the time of all and as close as is asked.

        together: the directions of questions to the engine, which may be answered at once.
        """
        width = 0.0 if tolerance is None else validate.delta(tolerance, "tolerance")
        numbers = validate.numbers(values, name)
        questions = [check(value) for value in numbers.ravel().tolist()]
        found: list[Bounds | None] = [None] * len(questions)
        with deadline.limited(seconds, essentials=True), suppress(deadline.OutOfTime):
            several = {k: question for k, question in enumerate(questions) if isinstance(question, Question)}
            if together and len(several) > 1:
                with deadline.shared(_SHARED):
                    for k, one in zip(several, self._together([*several.values()], together, width), strict=True):
                        found[k] = one
            alone = [k for k, one in enumerate(found) if one is None]
            for place, k in enumerate(alone):
                deadline.check()
                with deadline.shared(min(len(alone) - place, _SHARED)):
                    found[k] = ask(questions[k], width)
        answers = [UNKNOWN if one is None else one for one in found]
        return answers[0] if numbers.ndim == 0 else shaped(answers, numbers.shape)

    def mu(self, min_delta: float = 1e-10, direction: str = "both", *, seconds: float | None = None) -> Bounds:
        """The smallest mu whose Gaussian curve lies above delta at every epsilon >= 0 with delta >= min_delta.

        Parameters
        ----------
        min_delta : float
            Smallest delta at which the curves are compared, in (0, 1).
        direction : {"both", "remove", "add"}
        seconds : float, optional
            After this time points of the curve have wide bounds; a quarter later, and half a second at least, nothing
            is known.

        Returns
        -------
        Bounds
            Floats; 0 and inf, with the status NOT_CERTIFIED, if no mu was proven.  Both are inf if the chance of an
            infinite loss exceeds `min_delta`.

        **Cost**: tenths of a second; sampled discrete laws, and few steps, take up to 10 seconds; a
        `DensityPair` takes up to a minute.

        Notes
        -----
        mu describes the curve; it does not imply mu-GDP: below min_delta the curve of the subsampled Gaussian exceeds
        that of every small mu.  For mechanisms fixed in advance, mu implies
        (epsilon, delta_Gauss(epsilon; mu) + min_delta)-DP.

        Examples
        --------
        >>> import pld_accountant as pa
        >>> round(pa.compose([(pa.Gaussian(100), 420)]).mu().upper, 6)
        0.204939
        >>> round(pa.compose([(pa.SampledGaussian(2, 0.005), 10_000)]).mu(1e-5).upper, 3)
        0.269
        """
        at, wanted = validate.delta(min_delta, "min_delta"), directions(direction)
        try:
            with deadline.limited(seconds, essentials=True):
                return self._mu(at, wanted)
        except deadline.OutOfTime:
            return UNKNOWN

    def tradeoff(self, alpha: Any, direction: str = "both", *, seconds: float | None = None) -> Bounds:
        """Bounds of the trade-off function: the smallest type II error of a test with type I error alpha.

        Parameters
        ----------
        alpha : float or array_like
            Rates of false positives, in [0, 1].
        direction : {"both", "remove", "add"}
            "remove": the null hypothesis is that the record is not there; "add": that it is there; "both" gives the
            smaller error of the two.
        seconds : float, optional
            As for `epsilon`, for all alphas together.

        Returns
        -------
        Bounds
            `lower` is what may be promised: no test does better.  The larger the trade-off, the more privacy.

        Raises
        ------
        ValueError
            For an alpha outside [0, 1], or an unknown direction.

        **Error**: the bounds are a relative 1e-5 apart, or twice as far as those of delta if these are further apart;
        up to alpha = 1e-3, 1 - `attack_success` is as close.
        **Cost**: about thirty evaluations of `delta` for an alpha, fifteen if one direction is asked or both are alike;
        for each alpha of a long array, less than ten, which share their work.

        References
        ----------
        Dong, Roth and Su (2022), Proposition 6 (duality); `notions.tradeoff.ProfileCurve` derives both bounds.

        Examples
        --------
        >>> import pld_accountant as pa
        >>> b = pa.compose([(pa.Gaussian(1.0), 1)]).tradeoff(0.01)
        >>> bool(b.lower <= 0.9076378)
        True
        >>> round(b.lower, 4)
        0.9076
        """
        return self._of_tests(alpha, direction, seconds, successes=False)

    def attack_success(
        self, false_positive_rate: Any, direction: str = "both", *, seconds: float | None = None
    ) -> Bounds:
        """Bounds of the largest rate of true positives of a test with this rate of false positives: 1 - `tradeoff`.

        Somebody who tries to find out whether a record was used (a membership inference attack) and accuses innocent
        records at the given rate detects the record with probability `upper` at most.

        **Error**: as `tradeoff`, plus an absolute 1e-14; 1e-12 if several rates are asked together.

        Examples
        --------
        >>> import pld_accountant as pa
        >>> run = pa.compose([(pa.SampledGaussian(2, 0.005), 10_000)])
        >>> round(run.attack_success(0.01).upper, 4)
        0.0198
        """
        return self._of_tests(false_positive_rate, direction, seconds, successes=True)

    def _of_tests(self, alpha: Any, direction: str, seconds: float | None, *, successes: bool) -> Bounds:
        name, choose = ("false_positive_rate", np.maximum) if successes else ("alpha", np.minimum)
        wanted = directions(direction)
        levels = validate.numbers(alpha, name)
        for level in levels.ravel().tolist():
            if not 0.0 <= level <= 1.0:
                raise ValueError(f"{name} must lie in [0, 1], got {level!r}")
        worst = [Status.CERTIFIED]
        sides = {side: self._two_sided(side, worst) for side in _OTHER}
        found = []
        with deadline.limited(seconds, essentials=True):
            for one in self._distinct(wanted):
                curve = ProfileCurve(sides[one], sides[_OTHER[one]])
                infinite = partial(self._infinite, one, sides[one])
                found.append(_of_tests(curve, infinite, levels.ravel().tolist(), successes))
        ends = choose.reduce(np.reshape(found, (len(found), *levels.shape, 2)))
        lower, upper = ends[..., 0], ends[..., 1]
        # of bounds this close it does not matter what is known elsewhere
        status = np.where(upper - lower <= _AS_CLOSE * upper, Status.CERTIFIED, max(worst)).astype(np.uint8)
        return Bounds(lower, 0.5 * (lower + upper), upper, status, np.full(levels.shape, Proof.CONJUGATE, np.uint8))[()]

    def _two_sided(self, direction: Direction, worst: list[Status]) -> Curve:
        """Lower and upper delta in one direction at several epsilons; the least favourable status is added to `worst`.

        If wide bounds are enough, those of a tiny delta are 0 and its Renyi bound: close ones may take seconds.
        """

        def ask(epsilons: list[float], wide: bool) -> list[tuple[float, float]]:
            try:
                most = [self._rough_delta(direction, e) if wide else 1.0 for e in epsilons]
                asked = [e for e, delta in zip(epsilons, most, strict=True) if delta >= _NEGLIGIBLE]
                with deadline.shared(_SHARED):
                    found = self.delta(asked, direction, tolerance=_WIDE if wide else None)
            except deadline.OutOfTime:
                worst.append(Status.NOT_CERTIFIED)
                return [(0.0, 1.0)] * len(epsilons)
            worst.append(Status(found.status.max(initial=Status.CERTIFIED)))
            known = dict(zip(asked, zip(found.lower.tolist(), found.upper.tolist(), strict=True), strict=True))
            return [known.get(e, (0.0, delta)) for e, delta in zip(epsilons, most, strict=True)]

        return ask

    def advantage(self, *, seconds: float | None = None) -> Bounds:
        """Bounds of the largest difference between the rates of true and of false positives: delta(0).

        seconds: as for `delta`.

        It is the total variation distance of the outputs with and without the record.

        References
        ----------
        Kulynych, Gomez, Kaissis, Calmon and Troncoso (2024), Section 2.

        Examples
        --------
        >>> import pld_accountant as pa
        >>> round(pa.compose([(pa.SampledGaussian(2, 0.005), 10_000)]).advantage().upper, 4)
        0.1059
        """
        return self.delta(0.0, seconds=seconds)

    def bayes_risk(self, prior: Any, *, seconds: float | None = None) -> Bounds:
        """Bounds of the smallest probability of error of somebody who believes beforehand, with probability `prior`,
        that the record was used.

        Parameters
        ----------
        prior : float or array_like
            In (0, 1).
        seconds : float, optional
            As for `delta`.

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
        >>> import pld_accountant as pa
        >>> run = pa.compose([(pa.SampledGaussian(2, 0.005), 10_000)])
        >>> round(run.bayes_risk(0.5).lower, 4), round(run.bayes_risk(0.1).lower, 4)
        (0.4471, 0.1)
        """
        return self._each(prior, "prior", lambda p: validate.delta(p, "prior"), self._risk, seconds)

    def _risk(self, prior: float, width: float) -> Bounds:
        """`bayes_risk` of a checked prior."""
        less, direction = (prior, "remove") if prior <= 0.5 else (1.0 - prior, "add")
        d = self._answer(DeltaAt(math.log1p((1.0 - 2.0 * less) / less)), directions(direction), width)
        # delta changes by less than epsilon does, whose rounding is relative
        slack = 2.0**-48 * (1.0 - math.log(less))
        low, middle, high = (less * (1.0 - value) for value in (min(d.upper, 1.0), d.estimate, max(d.lower, 0.0)))
        low, high = _outwards(low - less * slack, high + less * slack)
        return Bounds(low, middle, high, d.status, d.method)

    def rdp(self, alpha: Any) -> NDArray:
        """Renyi divergence of the composition at orders alpha >= 1, integer or not; the larger of the two directions.

        Order 1 is the Kullback-Leibler divergence, rounded up to that of an order close to 1; order inf is the largest
        loss.

        **Error**: rounded up, by at most a relative 1e-12 plus 1e-14 / (alpha - 1) a step; for mixtures of
        Gaussians about 1e-11 / (alpha - 1) a step, and the Gaussian divergence of their largest shift where they need
        millions of nodes; for sampled Laplace steps, as loose as chords of 4,096 cells.
        A mechanism with infinite losses has an infinite divergence.

        Examples
        --------
        >>> import pld_accountant as pa
        >>> pa.compose([(pa.Gaussian(100), 420)]).rdp([2.0, 21.5]).round(6)
        array([0.042 , 0.4515])
        >>> pa.compose([(pa.Laplace(2), 3)]).rdp([1.0, np.inf]).round(4)
        array([0.3196, 1.5   ])
        """
        orders = validate.numbers(alpha, "alpha")
        if not np.all(orders >= 1.0):
            raise ValueError(f"alpha must be at least 1, got {alpha!r}")
        flat = orders.reshape(-1)
        found = np.empty(flat.shape)
        first, last = flat == 1.0, flat == np.inf
        if np.any(others := ~(first | last)):
            found[others] = self._rdp(flat[others])
        if np.any(first):
            # the divergence grows with the order
            found[first] = np.min(self._rdp(_NEAR_ONE))
        if np.any(last):
            found[last] = self._largest_loss(directions("both")).upper
        return found.reshape(orders.shape)

    @abstractmethod
    def _rdp(self, orders: NDArray) -> NDArray:
        """`rdp` at finite orders above 1, (orders,)."""

    @abstractmethod
    def rdp_epsilon(self, delta: float) -> float:
        """The Renyi bound of epsilon at `delta`, at the best order: an upper bound, looser than `epsilon`.

        Examples
        --------
        >>> import pld_accountant as pa
        >>> round(pa.compose([(pa.Gaussian(100), 420)]).rdp_epsilon(1e-5), 4)
        0.8156
        """
