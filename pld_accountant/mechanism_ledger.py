"""`MechanismLedger`: how often each person took part in each of any mechanisms, and the privacy loss that follows."""

from __future__ import annotations

import json
import math
import operator
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import deadline, validate
from .composition import Composition, compose
from .composition.base import UNKNOWN
from .composition.counted_rows import CountedRows
from .events import ids
from .files.saved_state import SavedArrays, SavedState
from .files.store import StoreError
from .mechanisms.base import ScalableMechanism, directions
from .mechanisms.text import parsed, written
from .named_people import NamedPeople, Progress
from .results import Bounds, Guarantee, Status, everybody, stacked

__all__ = ["MechanismLedger"]

_ROUNDING = 2.0**-50  # relative, of a share and of a bound in closed form
_MOST_TIMES = 2**31
_MOST_COUNT = 2**53

_GUARANTEE = Guarantee(
    kind="fixed steps",
    proven_adaptive=False,
    sentence=(
        "Each number bounds the privacy loss of that person for these mechanisms and contributions, between the "
        "neighbours that the mechanisms name. It is a guarantee when they were fixed or capped beforehand, and a "
        "diagnostic when they depended on what was released; a filter guarantees its budget, not this number. "
        "The numbers depend on the data and are themselves sensitive."
    ),
    reference="Zhu, Dong and Wang (2022), Theorem 10; Feldman and Zrnic (2021), after Definition 2.5",
)


class MechanismLedger(NamedPeople, SavedState):
    """Counts of the mechanisms that each of many people took part in, and their individual privacy loss.

    It is for what `Ledger` and `LaplaceLedger` do not count: balls-in-bins batches, batches with a largest size,
    discrete noise, randomized response, and releases of several kinds.

    Parameters
    ----------
    num_examples : int
        Number of people, at least 1.
    buckets : int
        Number of buckets of norms that `record_norms` tells apart, 2 to 4096.

    Raises
    ------
    ValueError
        For a parameter out of range.

    Notes
    -----
    Several threads may use one ledger.  `copy.copy`, `copy.deepcopy` and `pickle` make an independent one.  `save` and
    `load` keep it in a file, if its mechanisms are those of `pa.compose`'s texts: not a user's own laws.  `summarise`,
    `write_report` and the commands ``epsilon``, ``report``, ``merge``, ``verify`` and ``describe`` take it.

    **Memory**: 8 bytes for each person and mechanism, a bucket of norms being a mechanism; up to ten times that during
    a question.

    Examples
    --------
    Five epochs of balls in bins: each record picks one of 100 batches in each.

    >>> import pld_accountant as pa
    >>> ledger = pa.MechanismLedger(3, buckets=4)
    >>> ledger.record_norms(pa.RandomAllocation(1.0, 100), [0.2, 0.5, 7.0], max_norm=1.0, times=5)
    >>> ledger.epsilon(1e-5).upper.round(2)
    array([0.18, 0.41, 1.21])

    A statistical office: everybody is in the counts, and some answer a survey.

    >>> office = pa.MechanismLedger(3)
    >>> office.record(pa.DiscreteGaussian(20), [12, 12, 0])
    >>> office.record(pa.RandomizedResponse(0.5), np.array([True, False, False]))
    >>> office.epsilon(1e-6).upper.round(2)
    array([1.8 , 0.71, 0.  ])
    """

    def __init__(self, num_examples: int, *, buckets: int = 64) -> None:
        self._number = validate.count(num_examples, "num_examples", least=1)
        self.buckets = validate.buckets(buckets)
        super().__init__({"num_examples": self._number, "buckets": self.buckets})
        # a column: a mechanism for the upper bound, and one for the lower (None: nothing)
        self._counts: dict[tuple[Any, Any], NDArray] = {}
        self._planned: dict[Any, int] = {}
        self._counted = False  # whether a part of the plan was counted from people's records
        self._found: CountedRows | None = None

    def __repr__(self) -> str:
        return f"MechanismLedger({self.num_examples}, buckets={self.buckets}; {self.steps} steps)"

    def _copied(self) -> dict[str, Any]:
        return {**self.__dict__, "_found": None}  # tables are made anew

    @property
    def num_examples(self) -> int:
        """Number of people."""
        return self._number

    @property
    def steps(self) -> int:
        """Number of mechanisms run, for somebody who took part as often as anybody in each."""
        return sum(self._planned.values())

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of all numbers of the ledger."""
        return _GUARANTEE

    @property
    def schedule(self) -> tuple[tuple[str, int], ...]:
        """(mechanism, how often it ran), in the order in which they were first recorded."""
        return tuple((repr(mechanism), number) for mechanism, number in self._planned.items())

    @property
    def schedule_from_events(self) -> bool:
        """Whether numbers of runs were counted from people: then `schedule` and `worst_case` depend on their data."""
        return self._counted

    @property
    def looks_sampled(self) -> bool:
        """False: these counts do not show whether people were left out when they were not sampled."""
        return False

    @property
    def run_parameters(self) -> dict[str, Any]:
        """The parameters that all steps share, for outputs."""
        return {"buckets": self.buckets}

    def record(self, mechanism: Any, times: Any = 1, *, planned: int | None = None) -> None:
        """Count a mechanism for everybody, or for each person as often as they took part in it.

        Parameters
        ----------
        mechanism
            Anything that `compose` takes, or a list of steps as `TreeAggregation` gives it, with its noise relative to
            *these* people's contributions.
        times : int or array_like of int or bool, shape (num_examples,)
            How often each person took part; in a sampled mechanism, how often they could be sampled, sampled or not.
        planned : int, optional
            How often it ran, for the worst case; nobody may have taken part more often.  By default once if `times` is
            an array of bool, else the largest of `times`, which depends on people's data if it is an array.

        Raises
        ------
        ValueError
            For something that is no mechanism, bad numbers, or a batch of fewer records than people take part; then
            nothing is counted.

        Warns
        -----
        UserWarning
            As `compose`, if samples of different relations are counted for one person.

        Notes
        -----
        If people's data decide which mechanisms are recorded, the worst case depends on them, too.  For contributions
        of different sizes see `record_contributions` and `record_norms`.
        """
        numbers, most, counted = self._times(times, planned)
        parts = self._checked(mechanism, numbers).counts
        self._plan({part: n * most for part, n in parts.items()}, counted=counted)
        self._add({(part, part): n * numbers for part, n in parts.items()})

    def record_contributions(
        self,
        make: Callable[[Any], Any],
        contributions: Any,
        *,
        largest: float,
        times: Any = 1,
        planned: int | None = None,
    ) -> None:
        """Count a mechanism whose noise is relative to each person's own contribution, such as a number of visits.

        Parameters
        ----------
        make : callable
            ``make(k)`` is what somebody with the contribution k takes part in: anything that `record` takes.  Larger
            contributions must lose more.
        contributions : array_like of int or float, shape (num_examples,)
            At least 0; who contributes 0 takes part in nothing.
        largest : int or float
            The largest contribution that is allowed, above 0, fixed without looking at the data.  The worst case takes
            part in ``make(largest)``.
        times, planned
            As in `record`.

        Raises
        ------
        ValueError
            For a contribution above `largest`; if ``make(largest)`` is proven to lose less than another; otherwise as
            `record`.  Then nothing is counted.

        Examples
        --------
        >>> import pld_accountant as pa
        >>> ledger = pa.MechanismLedger(4)
        >>> ledger.record_contributions(lambda k: pa.DiscreteLaplace(0.1, sensitivity=k), [1, 3, 3, 0], largest=5)
        >>> ledger.epsilon(1e-6).upper.round(2)
        array([0.1, 0.3, 0.3, 0. ])
        >>> round(ledger.worst_case().epsilon(1e-6).upper, 2)
        0.5
        """
        numbers, most, counted = self._times(times, planned)
        validate.in_order(contributions, "contributions")
        own = validate.numbers(contributions, "contributions")
        if own.shape != (self.num_examples,) or not np.all((own >= 0.0) & (own < np.inf)):
            raise ValueError(f"contributions must be {self.num_examples} finite numbers of at least 0, got {own!r}")
        validate.positive(largest, "largest")
        if np.any(own > largest):
            person = int(np.argmax(own))
            raise ValueError(f"person {person} contributes {float(own[person])!r}, more than the largest, {largest!r}")
        worst = self._checked(make(largest), np.where(own > 0.0, numbers, 0))
        limit = worst.advantage().upper
        columns: dict[tuple[Any, Any], NDArray] = {}
        for k in np.unique(own[(own > 0.0) & (numbers > 0)]).tolist():
            here = np.where(own == k, numbers, 0)
            step = self._checked(make(int(k) if k == int(k) else k), here)
            if step.advantage().lower > limit:
                raise ValueError(f"make({largest:g}) must lose the most, but make({k:g}) loses more")
            for part, n in step.counts.items():
                columns[part, part] = columns.get((part, part), 0) + n * here
        self._plan({part: n * most for part, n in worst.counts.items()}, counted=counted)
        self._add(columns)

    def record_norms(
        self, mechanism: Any, norms: Any, *, max_norm: float = 1.0, times: Any = 1, planned: int | None = None
    ) -> None:
        """Count a mechanism by everybody's own contribution to it.

        Parameters
        ----------
        mechanism : Gaussian, SampledGaussian, Laplace, RandomAllocation or TruncatedPoisson
            The step of somebody whose contribution is the largest that is allowed, or any mechanism with the method
            `mechanisms.base.ScalableMechanism.scaled`.
        norms : array_like, shape (num_examples,)
            Everybody's contribution before clipping, sampled or not: its norm, at least 0 and finite.  For an epoch of
            `RandomAllocation`, the largest norm in the epoch: both bounds are those of somebody with this norm at every
            step.
        max_norm : float
            The clipping norm, above 0; a larger norm counts as this.
        times : int or array_like of int or bool, shape (num_examples,)
            How often each person took part with this norm.
        planned : int, optional
            As in `record`.

        Raises
        ------
        ValueError
            For a mechanism that cannot be scaled, as `FixedSizeBatch`: a person with a small norm may be replaced by
            one with a large norm.  For bad norms or numbers; then nothing is counted.

        **Error**: the upper bound counts a norm at the upper edge of its bucket, the lower bound at the lower edge; a
        norm that is an edge counts at it for both.  With 64 buckets the bounds are about 2 % of the worst case's
        epsilon apart.  The lower bound of a `Laplace` mechanism with several answers is that of somebody who changes
        one answer by the whole norm, as for `LaplaceLedger`.
        """
        if not isinstance(mechanism, ScalableMechanism):
            raise ValueError(
                f"{mechanism!r} has no version for smaller contributions; count it by `record` as it is, or as a "
                "mechanism that is proven for them"
            )
        numbers, most, counted = self._times(times, planned)
        self._checked(mechanism, numbers)
        given = validate.step_norms(norms, self.num_examples)
        edges = self._edges(validate.clipping_norm(max_norm, "max_norm"))
        bucket = np.searchsorted(edges, np.minimum(given, edges[-1]))
        at_edge = edges[bucket] == np.minimum(given, edges[-1])
        columns = {}
        for k in np.unique(bucket[numbers > 0]).tolist():
            upper = mechanism.scaled(_share_above(k, self.buckets))
            for exact in (True, False):
                here = np.where((bucket == k) & (at_edge == exact), numbers, 0)
                if here.any() and upper is not None:
                    # an edge is rounded, which the lower bound allows for; a clipped norm is exact
                    below = k if exact else k - 1
                    share = below / self.buckets * (1.0 - _ROUNDING)
                    columns[upper, upper if exact and k == self.buckets else mechanism.scaled(share)] = here
        self._plan({mechanism: most}, counted=counted)
        self._add(columns)

    def _checked(self, mechanism: Any, numbers: NDArray) -> Composition:
        """One step of a mechanism or list of steps, taken so often by each person.

        Raise `ValueError` if it is none, or if more people took part than it has records; and warn if somebody took
        part in samples of different relations.
        """
        try:
            step = compose(mechanism if isinstance(mechanism, list) else [(mechanism, 1)])
        except ValueError:
            raise ValueError(f"mechanism must be one such as SampledGaussian, got {mechanism!r}") from None
        people = numbers > 0
        for part in step.counts:
            records = _records(part)
            if records is not None and records < np.count_nonzero(people):
                raise ValueError(f"{part!r} has {records} records, and {np.count_nonzero(people)} people took part")
        if any(getattr(part, "neighbours", None) for part in step.counts):
            others = [(upper, 1) for (upper, _), n in self._counts.items() if np.any(people & (n > 0))]
            compose([*others, (step, 1)])  # which warns
        return step

    @property
    def _several_relations(self) -> bool:
        """Whether samples of different relations are planned; the worst case is then no person's composition."""
        return len({getattr(mechanism, "neighbours", None) for mechanism in self._planned} - {None}) > 1

    def _edges(self, max_norm: float) -> NDArray:
        """The upper edges k max_norm / buckets, rounded down, k = 0 to buckets."""
        exact = [Fraction(max_norm) * k / self.buckets for k in range(self.buckets + 1)]
        nearest = np.array([float(edge) for edge in exact])
        above = np.array([Fraction(edge) > true for edge, true in zip(nearest.tolist(), exact, strict=True)])
        return np.where(above, np.nextafter(nearest, 0.0), nearest)

    def _times(self, times: Any, planned: int | None) -> tuple[NDArray, int, bool]:
        """Checked numbers of times, (num_examples,) int64; how often the mechanism ran, and whether they tell it."""
        validate.in_order(times, "times")
        given = np.asarray(times)
        if given.dtype.kind not in "biuf" or given.shape not in ((), (self.num_examples,)):
            raise ValueError(f"times must be a whole number or an array of shape ({self.num_examples},), got {times!r}")
        if np.ma.is_masked(times) or not np.all((given >= 0) & (given <= _MOST_TIMES) & (given == np.floor(given))):
            raise ValueError(f"times must be whole numbers from 0 to {_MOST_TIMES:,}, got {times!r}")
        numbers = np.broadcast_to(given, (self.num_examples,)).astype(np.int64)
        most = int(numbers.max())
        if planned is not None:
            return numbers, validate.count(planned, "planned", least=most, most=_MOST_TIMES), False
        once = given.dtype == bool
        return numbers, 1 if once else most, bool(given.ndim) and not once

    def _plan(self, steps: dict[Any, int], *, counted: bool) -> None:
        """Count the worst case's steps, or raise `ValueError` if they are more than integers hold."""
        more = {m: self._planned.get(m, 0) + number for m, number in steps.items() if number}
        self._plan_all(self._planned | more, counted=counted)

    def _plan_all(self, total: dict[Any, int], *, counted: bool) -> None:
        if sum(total.values()) > _MOST_COUNT:
            raise ValueError(f"a person's steps must be at most {_MOST_COUNT:,}, got {sum(total.values()):,}")
        self._planned = total
        self._counted |= counted

    def _add(self, columns: dict[tuple[Any, Any], NDArray]) -> None:
        self._found = None
        for column, numbers in columns.items():
            if numbers.any():
                self._counts[column] = self._counts.get(column, 0) + numbers

    def _join(self, other: MechanismLedger, rows: tuple[NDArray, NDArray] | None, *, same_steps: bool) -> None:
        """See `NamedPeople`."""
        own, theirs = rows or (np.arange(self.num_examples),) * 2
        counts = {column: _of_rows(numbers, own) for column, numbers in self._counts.items()}
        for column, numbers in other._counts.items():
            counts[column] = counts.get(column, 0) + _of_rows(numbers, theirs)
        limits = {limit for upper, _ in counts if (limit := _records(upper)) is not None}
        for records in limits if same_steps else ():
            took_part = np.any([n > 0 for (upper, _), n in counts.items() if _records(upper) == records], axis=0)
            if np.count_nonzero(took_part) > records:
                raise ValueError(f"{np.count_nonzero(took_part)} people took part in batches of {records} records")
        merged = max if same_steps else operator.add
        planned = {m: merged(self._planned.get(m, 0), n) for m, n in other._planned.items()}
        self._plan_all(self._planned | planned, counted=other._counted)
        self._counts, self._number, self._found = counts, own.size, None
        _warn_of_relations(counts)
        self._parameters["num_examples"] = own.size

    def _take_rows(self, rows: NDArray) -> None:
        """See `NamedPeople`."""
        taken = ((column, _of_rows(numbers, rows)) for column, numbers in self._counts.items())
        self._counts = {column: numbers for column, numbers in taken if numbers.any()}
        self._number, self._found, self._parameters["num_examples"] = rows.size, None, rows.size

    def _rearranged(self, people: Any, rows: NDArray) -> MechanismLedger:
        """See `NamedPeople`."""
        new = MechanismLedger(rows.size, buckets=self.buckets)
        new._counts, new._planned, new._counted = self._counts, dict(self._planned), self._counted
        new._take_rows(rows)
        new._people = people
        return new

    def _state(self) -> dict[str, NDArray]:
        columns = [[written(upper), lower and written(lower)] for upper, lower in self._counts]
        planned = [[written(mechanism), n] for mechanism, n in self._planned.items()]
        text = json.dumps({"columns": columns, "planned": planned, "counted": self._counted})
        # a row of zeros first, so that there is one if nothing was recorded
        counts = np.array([np.zeros(self.num_examples), *self._counts.values()], dtype=np.int64)
        return {"mechanisms": np.frombuffer(text.encode(), dtype=np.uint8), "counts": counts, **self._ids()}

    def _restore(self, saved: SavedArrays) -> None:
        """See `SavedState`; a mechanism must be shown by the text that it is made from."""
        made = json.loads(saved.take("mechanisms", np.uint8, (None,)).tobytes())
        columns, planned = (made.pop(name) for name in ("columns", "planned"))
        self._counted = validate.flag(made.pop("counted"), "counted")
        self._restore_ids(saved.optional(ids.ARRAYS))
        shape = len(columns) + 1, self.num_examples
        counts = saved.take("counts", np.int64, shape, least=0, most=_MOST_COUNT)
        if made or counts[0].any():
            raise StoreError("it has unknown parts")

        def mechanism(text: str) -> Any:
            ((found, _),) = parsed(text)
            if written(found) != text:
                raise StoreError(f"{text} is not how a mechanism is written")
            return found

        for (upper, lower), numbers in zip(columns, counts[1:], strict=True):
            column = mechanism(upper), lower and mechanism(lower)
            if column in self._counts or not numbers.any():
                raise StoreError("it has a column twice, or one without steps")
            self._counts[column] = numbers
        for text, number in planned:
            self._planned[mechanism(text)] = validate.count(number, "planned", least=1, most=_MOST_COUNT)
        self.worst_case()

    def composition(self, person: Any) -> Composition:
        """All that one person took part in, at the upper edges of the norms' buckets: for further questions.

        Parameters
        ----------
        person : int or str
            The person's id; the number of the person if nobody was named.

        Raises
        ------
        ValueError
            If the person is not in this ledger.

        Examples
        --------
        >>> import pld_accountant as pa
        >>> ledger = pa.MechanismLedger(2)
        >>> ledger.record(pa.Gaussian(2.0), [3, 0])
        >>> ledger.composition(0)
        compose([(SampledGaussian(noise_multiplier=2.0, sample_rate=1.0), 3)])
        """
        at = int(self._rows_of([person])[1][0])
        return compose([(upper, int(n[at])) for (upper, _), n in self._counts.items()])

    def worst_case(self) -> Composition:
        """The composition of a person who took part whenever a mechanism ran, with the largest norm.

        It depends on the people's data if `schedule_from_events` is true.
        """
        return compose(list(self._planned.items()))

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
            Called as ``progress(done, total)``, counted in different rows of counts.
        seconds : float, optional
            After this time methods stop: bounds are certified as they are, and may be wide or missing.

        Returns
        -------
        Bounds
            Arrays of shape (num_examples,), or (len(delta), num_examples) for several deltas.

        Raises
        ------
        ValueError
            For a delta outside (0, 1), or an unknown direction or kind of bounds.

        **Error**: the true value lies between the bounds.  Up to 8 different rows of counts are composed one by one,
        as closely as `compose` does.  More rows share tables on a grid, which adds up to about 0.1 % of the largest
        epsilon for thousands of steps, and more beyond: 15 % were seen at half a million Laplace steps.  The
        mechanisms' own distance and that of the buckets' edges come on top.  No upper bound exceeds the worst case's.
        If only that one is found for a person, the status is RENYI_ONLY; if it is infinite, the bounds are 0 and inf
        and the status is NOT_CERTIFIED.
        **Cost**: 0.1 to 3 milliseconds for each different row of counts, more for more steps, after tables of all
        mechanisms: tens of milliseconds for each, 0.1 seconds for an epoch of `RandomAllocation`.  Rows that the
        tables do not serve, and rows with a `ZeroConcentratedDP` or a `RenyiDP`, are composed one by one, in 10
        milliseconds to seconds.
        """
        return self._answers(delta, validate.delta, "epsilon", direction, bounds, progress, seconds)

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

        With more than 8 different rows, deltas below 1e-30 may be reported as 0 and the Renyi bound.

        Examples
        --------
        >>> import pld_accountant as pa
        >>> ledger = pa.MechanismLedger(2)
        >>> ledger.record(pa.PureDP(1.0), [1, 2])
        >>> ledger.delta(1.0).upper.round(3)
        array([0.   , 0.338])
        """

        def checked(value: Any) -> float:
            return validate.nonnegative(value, "epsilon")

        return self._answers(epsilon, checked, "delta", direction, bounds, progress, seconds)

    def rdp_epsilon(self, delta: float) -> NDArray:
        """The Renyi bound of each person's epsilon, the divergences of the mechanisms added up: (num_examples,).

        It is infinite where a mechanism has no finite Renyi divergence, as `RandomAllocation`.

        Examples
        --------
        >>> import pld_accountant as pa
        >>> ledger = pa.MechanismLedger(2)
        >>> ledger.record(pa.DiscreteGaussian(20), [12, 0])
        >>> ledger.rdp_epsilon(1e-6).round(2)
        array([0.77, 0.  ])
        """
        target = validate.delta(delta)
        self._found = self._found or CountedRows(self._counts, self.num_examples)
        return np.minimum(self._found.rdp_epsilon(target), self.worst_case().rdp_epsilon(target))

    def _answers(
        self,
        values: Any,
        check: Callable[[Any], float],
        question: str,
        direction: str,
        bounds: str,
        progress: Progress | None,
        seconds: float | None,
    ) -> Bounds:
        lower, wanted = validate.wants_lower(bounds), directions(direction)
        asked, found = [check(value) for value in validate.sequence(values)], []
        with deadline.limited(seconds, essentials=True):
            for k, value in enumerate(asked):
                # first, because a limit of time may leave people with nothing else
                most = UNKNOWN if self._several_relations else getattr(self.worst_case(), question)(value, direction)
                try:
                    self._found = self._found or CountedRows(self._counts, self.num_examples)
                    tell = _share(progress, k, len(asked))
                    one = self._found.answer(question, value, wanted, lower=lower, progress=tell)
                except deadline.OutOfTime:
                    one = everybody(UNKNOWN, self.num_examples)
                found.append(_capped(one, most))
        return found[0] if np.ndim(values) == 0 else stacked(found)


def _of_rows(numbers: NDArray, rows: NDArray) -> NDArray:
    """The numbers of the people of these rows; 0 for a row of -1."""
    return np.where(rows >= 0, numbers[rows], 0)


def _warn_of_relations(counts: dict[tuple[Any, Any], NDArray]) -> None:
    """Warn if somebody took part in samples of different relations."""
    took_part: dict[str, NDArray] = {}
    for (upper, _), numbers in counts.items():
        relation = getattr(upper, "neighbours", None)
        if relation is not None:
            took_part[relation] = took_part.get(relation, False) | (numbers > 0)
    several = np.flatnonzero(np.sum([*took_part.values()], axis=0) > 1)
    if several.size:
        compose([(upper, 1) for (upper, _), numbers in counts.items() if numbers[several[0]]])  # which warns


def _records(mechanism: Any) -> int | None:
    """The number of records that batches are drawn from, if the mechanism depends on it."""
    return getattr(mechanism, "records", None)


def _share(progress: Progress | None, k: int, questions: int) -> Progress:
    """Progress of the k-th question as a part of that of all."""

    def tell(done: int, total: int) -> None:
        if progress is not None:
            progress(k * total + done, questions * total)

    return tell


def _capped(found: Bounds, most: Bounds) -> Bounds:
    """Everybody's bounds, capped by the worst case's; not those of people who are proven to lose more."""
    above = (found.lower > most.upper * (1.0 + _ROUNDING)) & (found.status != Status.NOT_CERTIFIED)
    if above.any():
        warnings.warn(
            f"the worst case is no bound for {int(above.sum())} of {above.size} people: make(largest) of "
            "`record_contributions` does not lose the most",
            RuntimeWarning,
            stacklevel=5,
        )
    capped = (found.upper > most.upper) & ~above
    upper = np.where(capped, most.upper, found.upper)
    method = np.where(capped, np.uint8(most.method), found.method)
    status = np.where(capped & (found.status == Status.NOT_CERTIFIED), np.uint8(Status.RENYI_ONLY), found.status)
    lower = np.minimum(found.lower, upper)
    return Bounds(lower, np.where(capped, 0.5 * (lower + upper), found.estimate), upper, status, method)


def _share_above(k: int, buckets: int) -> float:
    """k / buckets, rounded up."""
    share = k / buckets
    return share if Fraction(share) >= Fraction(k, buckets) else math.nextafter(share, 1.0)
