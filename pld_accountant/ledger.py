"""`Ledger`: counts of every person's gradient norms in buckets, and the privacy loss that follows from the counts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from . import deadline, validate
from .composition import Composition, compose
from .counting.packed import PackedTally
from .counting.tally import Tally
from .engine import dominating_mu, renyi
from .engine.question import DeltaAt, EpsilonAt, Question
from .engine.solver import bounds as solve_bounds
from .mechanisms.base import Direction, Mechanism, StepFamily, directions
from .mechanisms.sampled_gaussian import SampledGaussian, SampledGaussianSteps
from .notions import gdp
from .people_counts import PeopleCounts, Progress
from .results import Bounds, Guarantee, Status, everybody, joined, stacked
from .results import Method as Proof
from .tables.makers import TableMakers

__all__ = ["Ledger"]

_LOWER = 1.0 - 2.0**-36  # a relative norm is raised by 2^-50 before it is counted; lower bounds allow for it

_LARGE = -0.5  # if log delta is at least this, the lower bound counts whole steps

_L = TypeVar("_L", bound="Ledger")
_R = TypeVar("_R")

_SAMPLING = "Sampling is assumed to be Poisson. "
_GUARANTEE = Guarantee(
    kind="fixed norms",
    proven_adaptive=False,
    sentence=(
        "Each number bounds the privacy loss of that person for this sequence of norms, when one record is added or "
        "removed. It is a guarantee when the norms were fixed or capped beforehand, and a diagnostic when they came "
        "from an adaptive run; a filter guarantees its budget, not this number. "
        + _SAMPLING
        + "The numbers depend on the data and are themselves sensitive."
    ),
    reference=(
        "Zhu, Dong and Wang (2022), Theorem 10; Koskela, Tobaben and Honkela (2023), Section 5; "
        "Feldman and Zrnic (2021), after Definition 2.5"
    ),
)


def _joined(found: Sequence[Bounds], worst: Bounds, lower: bool, near: float) -> Bounds:
    """The larger of the directions' upper bounds, capped by the worst case; the last of `found` is the lower side.

    The estimate is the share `near` of the width below the upper bound.
    """
    above = found[:-1] if lower else found
    upper, status, method = above[0].upper, above[0].status, above[0].method
    for other in above[1:]:
        # a direction below another is not tightened, and what its bound is worth does not matter
        larger = other.upper > upper
        upper, method = np.where(larger, other.upper, upper), np.where(larger, other.method, method)
        status = np.where(larger, np.maximum(status, other.status), status)
    capped = upper > worst.upper
    upper, method = np.minimum(upper, worst.upper), np.where(capped, np.uint8(worst.method), method)
    status = np.where(capped & (status == Status.NOT_CERTIFIED), np.uint8(Status.RENYI_ONLY), status)
    if not lower:
        nothing = np.full(upper.shape, np.nan)
        return Bounds(nothing, nothing, upper, status, method)
    least = np.where(status != Status.NOT_CERTIFIED, np.minimum(found[-1].lower * _LOWER, upper), 0.0)
    nearer = np.where(np.isfinite(upper), upper - near * (upper - least), np.nan)
    return Bounds(least, nearer, upper, status, method)


def _reporter(total: int, progress: Progress | None) -> Callable[[int], None]:
    """A function that adds up the numbers it is called with and calls `progress(done, total)`."""
    done = 0

    def report(number: int) -> None:
        nonlocal done
        done += number
        if progress is not None:
            progress(min(done, total), total)

    return report


def _share(progress: Progress, before: int, people: int, total: int) -> Progress:
    """A reporter of the progress of some people among all."""
    return lambda done, whole: progress(before + people * done // max(whole, 1), total)


class Ledger(PeopleCounts):
    """Counts of many people's relative norms, and their individual privacy loss.

    Parameters
    ----------
    num_examples : int
        Number of people, at least 1.
    noise_multiplier : float
        Noise standard deviation over the clipping norm, for all steps unless `record` is given another.
    sample_rate : float
        Poisson sampling rate in (0, 1], for all steps unless `record` is given another.
    max_grad_norm : float
        Clipping norm, in the unit of the norms; between 1e-100 and 1e100.
    buckets : int
        Number of buckets of relative norms (clipped norm over clipping norm), 2 to 4096.  More buckets give
        tighter bounds and cost 6 bytes each a person.

    Raises
    ------
    ValueError
        For a parameter out of range.

    Notes
    -----
    Several threads may use one ledger.  Each call holds the ledger's lock: while one thread computes `epsilon`, a
    `record` in another thread waits.  A callback `progress` must not wait for another thread that uses the ledger.

    `copy.copy`, `copy.deepcopy` and `pickle` make an independent ledger.

    Examples
    --------
    >>> ledger = Ledger(3, noise_multiplier=2, sample_rate=0.005, max_grad_norm=5)
    >>> ledger.record(np.array([0.0, 1.0, 7.5]), repeat=10_000)
    >>> ledger.epsilon(1e-5).upper.round(3)
    array([0.   , 0.161, 1.004])
    """

    noise: ClassVar = "gaussian"
    """The noise of the steps, as `PartitionJob` and the command line call it."""

    # interpolated steps lie near the upper bound: the estimate is this share of the width below it
    _NEAR_UPPER: ClassVar = 0.03

    _worst: tuple[Any, Composition] | None = None  # a schedule and its worst case

    @cached_property
    def _makers(self) -> dict[Direction, TableMakers]:
        """The makers of tables for steps at all upper edges."""
        return {}

    @property
    def run_parameters(self) -> dict[str, Any]:
        """The parameters that all steps share, for outputs.  The schedule has noise and rates that differ."""
        names = ["max_grad_norm", "buckets"]
        if {(sigma, rate) for sigma, rate, _ in self.schedule} <= {(self.noise_multiplier, self.sample_rate)}:
            names = ["noise_multiplier", "sample_rate", *names]
        if self.noise != "gaussian":
            names = ["noise", *names]
        return {name: getattr(self, name) for name in names}

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of all numbers of a ledger."""
        if self.schedule and all(rate == 1.0 for _, rate, _ in self.schedule):
            return replace(_GUARANTEE, sentence=_GUARANTEE.sentence.replace(_SAMPLING, ""))
        return _GUARANTEE

    def _rearranged(self: _L, people: Any, rows: NDArray) -> _L:
        new = super()._rearranged(people, rows)
        new._makers = dict(self._makers)  # tables depend on the buckets only
        return new

    @property
    def _full_batches(self) -> bool:
        """Whether all steps are full batches of the Gaussian mechanism, whose composition has a closed form."""
        return self.noise == "gaussian" and all(rate == 1.0 for _, rate, _ in self.schedule)

    def _share_tables(self, other: Ledger) -> None:
        """Use the tables of another ledger if it has the same noise and buckets; both must then stay in one thread."""

        def places(ledger: Ledger) -> list[tuple[float, float, bytes]]:
            return [(g.noise_multiplier, g.sample_rate, g.edges.tobytes()) for g in ledger._tally.groups]

        if self.noise == other.noise and places(self) == places(other):
            self._makers = other._makers

    def _of(self, direction: Direction) -> TableMakers:
        """The makers of tables for steps at all upper edges."""
        tally = self._unpacked()
        if direction not in self._makers or self._makers[direction].steps.size != tally.counts.shape[1]:
            self._makers[direction] = self._tables(tally, direction)
        return self._makers[direction]

    @staticmethod
    def _tables(tally: Tally, direction: Direction) -> TableMakers:
        neighbours = tally.interpolated().neighbours()
        return TableMakers(SampledGaussianSteps(*tally.rows(), direction), neighbours, keep=True)

    def _keep_tables(self) -> None:
        for makers in self._makers.values():
            makers.keep()

    def epsilon(
        self,
        delta: Any,
        direction: str = "both",
        *,
        bounds: str = "all",
        progress: Progress | None = None,
        seconds: float | None = None,
    ) -> Bounds:
        """Bounds of every person's epsilon(delta).

        Parameters
        ----------
        delta : float or sequence of float
            In (0, 1).
        direction : {"both", "remove", "add"}
            Whether the person's record is removed or added; "both" gives the larger of the two.
        bounds : {"all", "upper"}
            With "upper" the lower bound and the estimate are NaN, which saves about half of the time.
        progress : callable, optional
            Called as ``progress(done, total)``, counted in people times passes.
        seconds : float, optional
            As for `Composition.epsilon`.  People who have no bounds by then get the Renyi bound.

        Returns
        -------
        Bounds
            Arrays of shape (num_examples,), or (len(delta), num_examples) for several deltas.

        Raises
        ------
        ValueError
            For a delta outside (0, 1), or an unknown direction or kind of bounds.

        **Error**: with 256 buckets the upper bound typically exceeds the true epsilon by at most a relative 1e-4.  For
        deltas down to 1e-15 the bounds differ by at most 0.5 % of the worst case's epsilon.  They may differ by more
        for smaller deltas, for fewer than 17 steps (by 1.7 % at ten steps and delta 1e-15), and for rare steps, of
        which a person expects to be sampled in less than one.  The latter are the worst: 2 % was seen at 2,000 steps of
        rate 1e-4 and delta 1e-12, 21 % at 1,000 steps of rate 1e-5 and delta 1e-15, and 6 % and people without a lower
        bound at 14 steps of rate 1e-5, noise multiplier 0.53 and delta 4e-12.
        No upper bound exceeds the worst case's; within a limit of time, the worst case's own bound may be wider, too.
        If nothing but
        the Renyi bound or the worst case's bound is found for a person, the smaller one is the upper bound and the
        status is RENYI_ONLY.  If both are infinite, the bounds are 0 and inf and the status is NOT_CERTIFIED.
        **Cost**: a few microseconds a person and pass; more for about ten steps or fewer, and for deltas below 1e-15;
        tens of milliseconds for rare steps with little noise.
        The first question needs tables of the buckets, a second or more.  They are kept on disk for later processes, in
        ``$PLD_ACCOUNTANT_CACHE``, by default the user's cache folder; an empty variable means that nothing is kept.
        **Threads**: the number of threads changes no bit of the result.  The order of people, and what was asked
        before, may change the bounds by about a billionth; the true value always lies between them.
        """
        return self._answers(delta, lambda v: EpsilonAt(validate.delta(v)), direction, bounds, progress, seconds)

    def delta(
        self,
        epsilon: Any,
        direction: str = "both",
        *,
        bounds: str = "all",
        progress: Progress | None = None,
        seconds: float | None = None,
    ) -> Bounds:
        """Bounds of every person's delta(epsilon), epsilon >= 0 and finite; otherwise as `epsilon`.

        For many people at once, deltas below 1e-70 are reported as 0 and the Renyi bound, or the worst case's bound if
        that is smaller; those of few rare steps below 1e-17, and those of a `LaplaceLedger` below 1e-30.

        Examples
        --------
        >>> ledger = Ledger(1, noise_multiplier=2, sample_rate=0.005, max_grad_norm=5)
        >>> ledger.record([6.0], repeat=10_000)
        >>> print(f"{ledger.delta(1.0).upper[0]:.4e}")
        1.0630e-05
        """

        def ask(value: Any) -> Question:
            return DeltaAt(validate.nonnegative(value, "epsilon"))

        return self._answers(epsilon, ask, direction, bounds, progress, seconds)

    def _answers(
        self,
        values: Any,
        ask: Callable[[Any], Question],
        direction: str,
        bounds: str,
        progress: Progress | None,
        seconds: float | None,
    ) -> Bounds:
        lower, wanted = validate.wants_lower(bounds), directions(direction)
        questions = [ask(v) for v in validate.sequence(values)]
        self._warn_of_sampled_logs()
        with deadline.limited(seconds):
            # first, because a limit of time may leave most people with nothing else
            caps = self._caps(questions, "both" if len(wanted) > 1 else wanted[0])
            if isinstance(self._tally, PackedTally):
                parts = self._by_blocks(
                    lambda block, tell: block._bounds(questions, wanted, caps, lower, tell), progress
                )
                found = [joined(of_blocks) for of_blocks in zip(*parts, strict=True)]
            else:
                found = self._bounds(questions, wanted, caps, lower, progress)
        return found[0] if np.ndim(values) == 0 else stacked(found)

    def _warn_of_sampled_logs(self) -> None:
        """Warn if only sampled people may have been recorded."""
        for rate, share in self._sampled_shares().items():
            warnings.warn(
                f"{100.0 * share:.3g} % of the norms at sample rate {rate:g} are above 0, as if only sampled people "
                "had been recorded: then the epsilons are too small. Record everybody's norm at every step, sampled "
                "or not",
                stacklevel=5,
            )

    def _caps(self, questions: Sequence[Question], direction: str) -> list[Bounds]:
        """The worst case's bounds."""
        worst = self.worst_case()
        return [
            worst.epsilon(float(q.delta), direction)
            if isinstance(q, EpsilonAt)
            else worst.delta(float(np.asarray(q.target)), direction)
            for q in questions
        ]

    def _bounds(
        self,
        questions: Sequence[Question],
        wanted: Sequence[Direction],
        caps: Sequence[Bounds],
        lower: bool,
        progress: Progress | None,
    ) -> list[Bounds]:
        people, tally = self.num_examples, self._unpacked()
        wanted = wanted[:1] if self._full_batches else wanted
        if not tally.groups:
            return [everybody(Bounds(0.0, 0.0, 0.0), people)] * len(questions)
        if (kinds := tally.distinct()) is not None:
            first, place = kinds
            tell = None if progress is None else _share(progress, 0, people, people)
            some = self._of_tally(tally.of_rows(first))._bounds(questions, wanted, caps, lower, tell)
            return [one[place] for one in some]
        report = _reporter(people * (len(wanted) + lower) * len(questions), progress)
        sides = self._sides(tally, questions, wanted, lower, report)
        self._keep_tables()
        found = [_joined(found, cap, lower, self._NEAR_UPPER) for *found, cap in zip(*sides, caps, strict=True)]
        return [
            self._with_renyi(one, float(q.delta)) if isinstance(q, EpsilonAt) else one
            for one, q in zip(found, questions, strict=True)
        ]

    def _with_renyi(self, found: Bounds, delta: float) -> Bounds:
        """A person with a Renyi bound alone gets that of `rdp_epsilon`: at closer orders, without a limit of time."""
        who = np.flatnonzero(found.status == Status.RENYI_ONLY)
        if not who.size:
            return found
        upper, method = found.upper.copy(), found.method.copy()
        # removal has the larger divergence at every order, so its bound holds for both directions
        own = renyi.best_epsilon(self._unpacked().whole().of(who), self._of("remove").steps.log_moments, delta)
        method[who[own < upper[who]]] = Proof.RENYI
        upper[who] = np.minimum(upper[who], own)
        lower, middle = (np.minimum(one, upper) for one in (found.lower, found.estimate))
        return Bounds(lower, middle, upper, found.status, method)

    def _sides(
        self,
        tally: Tally,
        questions: Sequence[Question],
        wanted: Sequence[Direction],
        lower: bool,
        report: Callable[[int], None],
    ) -> list[list[Bounds]]:
        """Upper bounds in each direction, and lower bounds last if they are wanted; one of each for each question."""
        above = tally.interpolated()
        sides: list[list[Bounds]] = []
        for d in wanted:
            known = [one.upper for one in sides[0]] if sides else None
            found = solve_bounds(above, self._of(d), questions, whole=tally.whole(), progress=report, known=known)
            sides.append(found)
        if lower:
            whole, makers = tally.whole(lower=True), self._of(wanted[0])
            targets = [float(np.asarray(q.target)) for q in questions]
            if questions[0].wants_epsilon and max(targets) < _LARGE:
                below = tally.interpolated(min(targets))
                sides.append(solve_bounds(below, makers, questions, whole=whole, progress=report))
            else:
                sides.append(solve_bounds(whole, makers, questions, progress=report))
        return sides

    def mu(
        self,
        min_delta: float = 1e-10,
        direction: str = "both",
        *,
        progress: Progress | None = None,
        seconds: float | None = None,
    ) -> Bounds:
        """The smallest mu whose Gaussian curve lies above a person's at every epsilon >= 0 with delta >= min_delta.

        Parameters
        ----------
        min_delta : float
            In (0, 1).
        direction : {"both", "remove", "add"}
        progress : callable, optional
            Called as ``progress(done, total)``, counted in people times passes.
        seconds : float, optional
            People whose curves are not known by then get the mu of their steps without sampling, a loose upper bound
            whose method is CLOSED_FORM, and perhaps no lower bound.

        Returns
        -------
        Bounds
            Arrays of shape (num_examples,).

        Notes
        -----
        mu describes the curve; it does not imply mu-GDP.  See `Composition.mu`.

        **Cost**: about 0.1 milliseconds a person on one core; tens of milliseconds for rare steps.
        """
        if isinstance(self._tally, PackedTally):
            with deadline.limited(seconds):
                return joined(
                    self._by_blocks(lambda block, tell: block.mu(min_delta, direction, progress=tell), progress)
                )
        with deadline.limited(seconds):
            return self._mu(validate.delta(min_delta, "min_delta"), directions(direction), progress)

    def _mu(self, min_delta: float, wanted: tuple[Direction, ...], progress: Progress | None) -> Bounds:
        tally = self._unpacked()
        if not tally.groups:
            return everybody(Bounds(0.0, 0.0, 0.0), self.num_examples)
        first, *others = wanted
        if self._full_batches:
            return self._full_batch_mu(tally, self._of(first).steps, min_delta)
        report = _reporter(self.num_examples * (len(wanted) + 1), progress)
        counts = tally.whole()
        upper, touch, end = dominating_mu.touching(counts, self._of(first), min_delta, progress=report)
        for d in others:
            # the curve of addition is usually the lower one, so the end of the first direction's range suffices
            upper, _, _ = dominating_mu.touching(counts, self._of(d), min_delta, floor=upper, end=end, progress=report)
        share = np.where(end > 0.0, touch / np.where(end > 0.0, end, 1.0), 1.0)
        below = dominating_mu.mu_lower(
            tally.whole(lower=True), self._of(first), min_delta, share=share, progress=report
        )
        self._keep_tables()
        # of every person a mu is known that ignores sampling
        most = dominating_mu.undiminished_mu(counts, self._of(first).steps)
        method = np.where(most <= upper, Proof.CLOSED_FORM, Proof.TRANSFORM).astype(np.uint8)
        upper = np.minimum(upper, most)
        finite = np.isfinite(upper)
        lower = np.where(finite, np.minimum(below * _LOWER, upper), 0.0)
        middle = np.where(finite, 0.5 * (lower + upper), np.nan)
        status = np.where(finite, Status.CERTIFIED, Status.NOT_CERTIFIED).astype(np.uint8)
        method[~finite] = Proof.NONE
        return Bounds(lower, middle, upper, status, method)

    def _full_batch_mu(self, tally: Tally, steps: StepFamily, min_delta: float) -> Bounds:
        """That of the Gaussian mechanism, unless its delta is at most min_delta everywhere."""
        upper = dominating_mu.undiminished_mu(tally.interpolated(), steps)
        lower = dominating_mu.undiminished_mu(tally.interpolated(float(np.log(min_delta))), steps) * _LOWER
        lower = np.minimum(np.where(gdp.delta(0.0, lower) > min_delta, lower, 0.0), upper)
        known = np.zeros(upper.size, dtype=np.uint8)
        return Bounds(lower, 0.5 * (lower + upper), upper, known + Status.CERTIFIED, known + Proof.CLOSED_FORM)

    def rdp_epsilon(self, delta: float, *, orders: Any = None) -> NDArray:
        """The Renyi bound of each person's epsilon, at the best order: an upper bound, looser than `epsilon`.

        Parameters
        ----------
        delta : float
            In (0, 1).
        orders : sequence of float, optional
            The orders to choose from, above 1.  Then a person's number is a function of that person's own counts and
            of the schedule, bit for bit: no other person changes it.  `release` needs this.  By default the orders are
            refined where the people's best orders lie, which is tighter.

        Returns
        -------
        ndarray, shape (num_examples,)

        **Cost**: one matrix product.
        """
        if isinstance(self._tally, PackedTally):
            return np.concatenate(self._by_blocks(lambda block, _: block.rdp_epsilon(delta, orders=orders)))
        delta = validate.delta(delta)
        theta = None if orders is None else np.asarray(orders, dtype=np.float64) - 1.0
        if theta is not None and not (theta.ndim == 1 and theta.size and np.all((theta > 0.0) & np.isfinite(theta))):
            raise ValueError(f"orders must be a sequence of finite numbers above 1, got {orders!r}")
        tally = self._unpacked()
        if not tally.groups:
            return np.zeros(self.num_examples)
        if theta is not None:
            return renyi.epsilon_at_orders(tally.whole(), self._of("remove").steps, delta, theta, self.steps)
        # Individuals are minimised over a grid of orders, the worst case over all orders; no individual exceeds it.
        worst, whole = self.worst_case().rdp_epsilon(delta), tally.whole()
        found = np.minimum(renyi.best_epsilon(whole, self._of("remove").steps.log_moments, delta), worst)
        return np.where(whole.steps() > 0, found, 0.0)

    def worst_case(self) -> Composition:
        """The hypothetical person who is clipped at every step; no individual's bound exceeds theirs."""
        if self._worst is None or self._worst[0] != self.schedule:
            self._worst = self.schedule, compose((self._clipped(s, q), n) for s, q, n in self.schedule)
        return self._worst[1]

    @staticmethod
    def _clipped(noise_multiplier: float, sample_rate: float) -> Mechanism:
        """A step of somebody who is clipped."""
        return SampledGaussian(noise_multiplier, sample_rate)

    def _of_tally(self: _L, tally: Tally) -> _L:
        """A ledger of some of the people, which uses these tables and the worst case."""
        some = type(self)(**self._parameters | {"num_examples": len(tally.counts)})
        some._tally, some._makers, some._worst = tally, self._makers, self._worst
        return some

    def _by_blocks(self, ask: Callable[[Ledger, Progress | None], _R], progress: Progress | None = None) -> list[_R]:
        """The answers of ledgers of the people of each block; all use one set of tables."""
        assert isinstance(self._tally, PackedTally)
        found, done = [], 0
        self.worst_case()
        for part in self._tally.parts():
            block = self._of_tally(part)
            tell = None if progress is None else _share(progress, done, block.num_examples, self.num_examples)
            found.append(ask(block, tell))
            done += block.num_examples
        return found
