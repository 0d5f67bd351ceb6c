"""`Ledger`: counts of every person's gradient norms in buckets, and the privacy loss that follows from the counts."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from . import ledger_file, validate
from .composition import Composition, compose
from .counting.packed import BLOCK, PackedTally
from .counting.tally import Tally
from .engine import dominating_mu, renyi
from .engine.method import Effort
from .engine.question import DeltaAt, EpsilonAt, Question
from .engine.solver import bounds as solve_bounds
from .events import ids
from .events.table import Events, read_events
from .locked import Locked, held, unlocked
from .mechanisms.base import Direction, directions
from .mechanisms.sampled_gaussian import SampledGaussian, SampledGaussianSteps
from .results import Bounds, Guarantee, Status
from .results import Method as Proof
from .tables.makers import TableMakers

__all__ = ["Ledger"]

_BLOCK_BYTES = 1 << 26
_LOWER = 1.0 - 2.0**-36  # a relative norm is raised by 2^-50 before it is counted; lower bounds allow for it

_LARGE = -0.5  # if log delta is at least this, the lower bound counts whole steps

Progress = Callable[[int, int], None]
R = TypeVar("R")


_GUARANTEE = Guarantee(
    kind="fixed norms",
    proven_adaptive=False,
    sentence=(
        "Each number bounds the privacy loss of that person for this sequence of norms: it is exact when the norms "
        "were fixed or capped beforehand, and a diagnostic, not a guarantee, when they came from an adaptive run "
        "without a filter. Sampling is assumed to be Poisson. The numbers depend on the data and are themselves "
        "sensitive."
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
        larger = other.upper > upper
        upper, method = np.where(larger, other.upper, upper), np.where(larger, other.method, method)
        status = np.maximum(status, other.status)
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


def _merged(
    own: Tally | PackedTally,
    other: Tally | PackedTally,
    rows: tuple[NDArray, NDArray] | None = None,
    *,
    same_steps: bool = False,
) -> Tally | PackedTally:
    """The sum of two tallies, of these rows of both or of the same people; packed if one of them is."""
    if isinstance(own, PackedTally) or isinstance(other, PackedTally):
        a, b = (t if isinstance(t, PackedTally) else PackedTally.of([t]) for t in (own, other))
        # nobody is in both, so that all of the other's people come last
        if same_steps and (joined := a.joined(b)) is not None:
            return joined
        if rows is not None:
            a, b = a.of_rows(rows[0]), b.of_rows(rows[1])
        a.merge(b, same_steps=same_steps)
        return a
    first, second = (own, other) if rows is None else (own.of_rows(rows[0]), other.of_rows(rows[1]))
    first.merge(second, same_steps=same_steps)
    return first


def _joined_people(parts: Sequence[Bounds]) -> Bounds:
    """Bounds of more and more people, along the last axis."""
    names = ("lower", "estimate", "upper", "status", "method")
    return Bounds(*(np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in names))


def _let_go(norms: Any) -> None:
    """Release the pages of a file that is mapped for reading: they would count as memory of this process."""
    mapped = False
    while isinstance(norms, np.ndarray):
        # a writable map keeps its pages, which may hold the only copy of the data
        mapped = mapped or (isinstance(norms, np.memmap) and norms.mode == "r")
        norms = norms.base
    if mapped and isinstance(norms, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        norms.madvise(mmap.MADV_DONTNEED)


class Ledger(Locked):
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

    _KIND: ClassVar = ledger_file.KIND
    # interpolated steps lie near the upper bound: the estimate is this share of the width below it
    _NEAR_UPPER: ClassVar = 0.03

    def __init__(
        self,
        num_examples: int,
        *,
        noise_multiplier: float,
        sample_rate: float,
        max_grad_norm: float,
        buckets: int = 256,
    ) -> None:
        self.num_examples = validate.count(num_examples, "num_examples", least=1)
        self.noise_multiplier = validate.noise_multiplier(noise_multiplier)
        self.sample_rate = validate.sample_rate(sample_rate)
        self.max_grad_norm = validate.positive(max_grad_norm, "max_grad_norm")
        if not 1e-100 <= self.max_grad_norm <= 1e100:
            # if the scale of the norms overflowed, norms would count in the wrong bucket
            raise ValueError(f"max_grad_norm must lie between 1e-100 and 1e100, got {max_grad_norm!r}")
        self.buckets = validate.count(buckets, "buckets", least=2)
        if self.buckets > 4096:
            raise ValueError(f"buckets must be at most 4096, got {buckets}")
        self._tally: Tally | PackedTally = Tally(self.num_examples, self.buckets)
        self._makers: dict[Direction, TableMakers] = {}
        self._people: Any = None  # a pyarrow.Array of distinct ids, see `events.ids`

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.num_examples}, noise_multiplier={self.noise_multiplier}, "
            f"sample_rate={self.sample_rate}, "
            f"max_grad_norm={self.max_grad_norm}, buckets={self.buckets}; {self.steps} steps)"
        )

    @property
    def steps(self) -> int:
        """Number of steps recorded."""
        return self._tally.steps

    @property
    def schedule(self) -> tuple[tuple[float, float, int], ...]:
        """(noise multiplier, sample rate, steps), in the order in which they were first recorded."""
        return tuple((sigma, rate, steps) for (sigma, rate), steps in self._tally.schedule.items())

    @property
    def people(self) -> NDArray:
        """Everybody's id: (num_examples,) int64 or str; their numbers 0, 1, 2, ... if nobody was named.

        People are named by `from_events`, or by ``ledger.people = ids``: distinct integers, texts or UUIDs, in the
        order of the ledger.  UUIDs become texts.
        """
        return np.arange(self.num_examples) if self._people is None else ids.as_numpy(self._people)

    @people.setter
    def people(self, names: Any) -> None:
        found = ids.distinct(names)
        if len(found) != self.num_examples:
            raise ValueError(f"people must be {self.num_examples} ids, got {len(found)}")
        self._people = found

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of all numbers of a ledger."""
        return _GUARANTEE

    @property
    def counts(self) -> NDArray:
        """Steps per person and bucket, shape (num_examples, buckets of all groups); a read-only view.

        Later steps change the view; `copy.copy` of the ledger keeps a state.  A compressed ledger gives a copy.
        """
        view = self._tally.counts.view()
        view.flags.writeable = False
        return view

    # ------------------------------------------------------------------ recording

    def record(
        self,
        norms: Any,
        repeat: int = 1,
        *,
        noise_multiplier: float | None = None,
        sample_rate: float | None = None,
    ) -> None:
        """Count one step, or a block of steps.

        Parameters
        ----------
        norms : array_like, shape (num_examples,) or (steps, num_examples)
            Gradient norms before clipping, of *every* person whether sampled or not; at least 0 and finite.  A norm
            above max_grad_norm counts as max_grad_norm; 0 costs nothing.
        repeat : int
            Number of steps with these norms.
        noise_multiplier, sample_rate : float, optional
            Values for these steps, if they differ from the ledger's.

        Raises
        ------
        ValueError
            For a bad norm (the message names its place), a wrong shape or a bad parameter.  Then nothing is counted.

        **Error**: a step is divided between the edges of its bucket such that the upper bound stays an upper bound
        (`counting.interpolation`).
        **Cost**: 5 to 10 ns a norm and core for float32 and float64; other types are converted first.
        """
        sigma = self.noise_multiplier if noise_multiplier is None else validate.noise_multiplier(noise_multiplier)
        rate = self.sample_rate if sample_rate is None else validate.sample_rate(sample_rate)
        times = validate.count(repeat, "repeat", least=1)
        block = np.atleast_2d(validate.norms(norms, self.num_examples, as_given=True))
        tally = self._unpacked()
        tally.count(block, times, sigma, rate, self.max_grad_norm, first_row=tally.steps)

    @classmethod
    def from_norms(
        cls,
        norms: Any,
        *,
        noise_multiplier: float,
        sample_rate: float,
        max_grad_norm: float,
        buckets: int = 256,
        progress: Progress | None = None,
    ) -> Ledger:
        """A ledger of a whole log of norms, read in blocks of steps.

        Parameters
        ----------
        norms : array-like, shape (steps, num_examples)
            An array, a memory map, or anything with ``shape`` and slicing by rows (zarr, h5py).
        progress : callable, optional
            Called as ``progress(steps_done, steps)``.

        Raises
        ------
        ValueError
            As `record`.

        **Cost**: memory for the counts and one block of 64 MiB, for any size of the log; 5 to 10 ns a norm and core.

        Examples
        --------
        >>> log = np.full((100, 3), [0.1, 1.0, 9.0])
        >>> Ledger.from_norms(log, noise_multiplier=2, sample_rate=0.01, max_grad_norm=1).steps
        100
        """
        source = norms if hasattr(norms, "shape") and hasattr(norms, "__getitem__") else np.asarray(norms)
        if len(source.shape) != 2:
            raise ValueError(f"norms must have shape (steps, num_examples), got {tuple(source.shape)}")
        steps, people = (int(n) for n in source.shape)
        ledger = cls(
            people,
            noise_multiplier=noise_multiplier,
            sample_rate=sample_rate,
            max_grad_norm=max_grad_norm,
            buckets=buckets,
        )
        step = ledger.noise_multiplier, ledger.sample_rate, ledger.max_grad_norm
        block = max(1, _BLOCK_BYTES // (8 * people))
        for start in range(0, steps, block):
            given = source[start : start + block]
            part = validate.norms(given, people, as_given=True)
            ledger._unpacked().count(part, 1, *step, first_row=start)
            _let_go(given)
            if progress is not None:
                progress(min(start + block, steps), steps)
        return ledger

    @classmethod
    def from_events(
        cls,
        events: Any,
        *,
        max_grad_norm: float,
        noise_multiplier: float | None = None,
        sample_rate: float | None = None,
        people: Any = None,
        schedule: Sequence[tuple[float, float, int]] | None = None,
        columns: Mapping[str, str] | None = None,
        buckets: int = 256,
        compressed: bool = False,
    ) -> Ledger:
        """A ledger of a table with a row for each part that a person took in a query or a training step.

        Parameters
        ----------
        events : path, table of Arrow, pandas or polars, or mapping of arrays
            A Parquet file, a folder of Parquet files, or a table; rows in any order.  Columns, others are ignored:

            - ``person``: an integer, a text or a UUID;
            - ``norm``, before clipping; or ``sensitivity``, which is not clipped and must not exceed `max_grad_norm`;
            - ``count``, optional: number of steps with this norm; 1 by default;
            - ``noise_multiplier`` and ``sample_rate``, if they are not given for all steps;
            - ``step``, optional, instead of ``count``: any name of the step.  If a person has several records in one
              step, their norms are added up before they are clipped;
            - ``group``, optional: the same in all rows of a person.

            A person without a row in a step has norm 0 there, which costs nothing.
        max_grad_norm : float
            Clipping norm of a *person's* contribution to a step.
        people : array_like, optional
            Ids of everybody, also of people without events.
        schedule : sequence of (noise multiplier, sample rate, steps), optional
            The steps of a person who takes part in every step; nobody may have taken more.  If all of them have one
            noise multiplier or one sample rate, it need not be given again.  By default the distinct steps, or the most
            steps that one person took.
        columns : mapping of str to str, optional
            The table's names of the columns, for example ``{"person": "user_id"}``.
        compressed : bool
            Whether the ledger is compressed while it is made, see `compress`.

        Returns
        -------
        Ledger
            People in ascending order of their ids, `people`.

        Raises
        ------
        ValueError
            For a bad, missing or contradictory value; the message names the column.  `ReadError`, a ValueError, for a
            file that cannot be read.

        **Error**: as `record`.  The norm of a sum of records is at most the sum of the norms, so the upper bound stays
        an upper bound.  The lower bound and the estimate are those of a person whose norm equals the sum.
        **Cost**: memory for the columns and the counts; about 0.3 microseconds an event.

        Examples
        --------
        >>> table = {"person": ["ann", "bob", "ann"], "norm": [0.3, 1.0, 0.5], "count": [100, 50, 10]}
        >>> ledger = Ledger.from_events(table, noise_multiplier=2, sample_rate=0.01, max_grad_norm=1)
        >>> ledger.people.tolist(), ledger.steps
        (['ann', 'bob'], 110)
        """
        found = read_events(
            events,
            max_grad_norm=max_grad_norm,
            noise_multiplier=noise_multiplier,
            sample_rate=sample_rate,
            people=people,
            schedule=schedule,
            columns=columns,
        )
        first = found.kinds[0] if found.kinds else (noise_multiplier or 1.0, sample_rate or 1.0)
        sigma = first[0] if noise_multiplier is None else noise_multiplier
        rate = first[1] if sample_rate is None else sample_rate
        ledger = cls(
            len(found.people),
            noise_multiplier=sigma,
            sample_rate=rate,
            max_grad_norm=max_grad_norm,
            buckets=buckets,
        )
        ledger._people = found.people

        def tally_of(part: Events) -> Tally:
            tally = Tally(len(part.people), buckets)
            tally.count_events(part.person, part.kind, part.norm, part.count, part.schedule, ledger.max_grad_norm)
            return tally

        if compressed:
            ends = range(0, len(found.people), BLOCK)
            ledger._tally = PackedTally.of(tally_of(found.part(a, min(a + BLOCK, len(found.people)))) for a in ends)
        else:
            ledger._tally = tally_of(found)
        return ledger

    # ------------------------------------------------------------------ memory

    def compress(self) -> None:
        """Keep a bit for each bucket and counters for the buckets in use only, until the next `record`.

        A person with k buckets in use then costs buckets / 8 + 3 k to 6 k bytes, where a bucket costs 6 bytes
        otherwise.  Epsilons are computed for 65,536 people at a time; `save` writes and `load` reads what is kept.
        Merging, selecting and adding people keep a ledger compressed.

        **Error**: none; the counts are the same.
        **Cost**: 1 to 10 microseconds a person, for compressing and for each use of the counts.
        """
        if isinstance(self._tally, Tally):
            self._tally = PackedTally.of([self._tally])

    @property
    def compressed(self) -> bool:
        """Whether the counts are compressed."""
        return isinstance(self._tally, PackedTally)

    @property
    def nbytes(self) -> int:
        """Bytes of the counts."""
        if isinstance(self._tally, PackedTally):
            return self._tally.nbytes
        return int(self._tally.counts.nbytes + self._tally.lower_weights.nbytes)

    def _unpacked(self) -> Tally:
        """The counters, for more steps."""
        if isinstance(self._tally, PackedTally):
            self._tally = self._tally.dense()
        return self._tally

    def _by_blocks(self, ask: Callable[[Ledger, Progress | None], R], progress: Progress | None = None) -> list[R]:
        """The answers of ledgers of the people of each block; all use one set of tables."""
        assert isinstance(self._tally, PackedTally)
        found, done = [], 0
        for part in self._tally.parts():
            block = type(self)(len(part.counts), **{name: getattr(self, name) for name in ledger_file.PARAMETERS[1:]})
            block._tally, block._makers = part, self._makers
            tell = None if progress is None else _share(progress, done, block.num_examples, self.num_examples)
            found.append(ask(block, tell))
            done += block.num_examples
        return found

    @unlocked
    def merge(self, other: Ledger, *, same_steps: bool = False) -> None:
        """Add the steps of another ledger.

        If people have ids, people are matched by id, and people of the other ledger who are new here come last.  A
        person who is missing in one of the ledgers took no part in its steps.

        Parameters
        ----------
        other : Ledger
            Of the same people, or with ids if this ledger has ids.
        same_steps : bool
            Whether `other` holds *other people in the same steps*, such as another part of one table.  Then nobody may
            be in both, and the steps are counted once in the schedule of the worst case.

        Raises
        ------
        ValueError
            If `other` is no ledger, people cannot be matched, or somebody is in both ledgers of the same steps.  Then
            nothing has changed.
        """
        if type(other) is not type(self):
            raise ValueError(f"other must be a ledger of the same {self.num_examples} people, got {other!r}")
        with held(self, other):
            named = self._people is not None, other._people is not None
            if named[0] != named[1]:
                raise ValueError("one ledger has ids of people and the other has none; set `people` of both")
            if not any(named):
                if same_steps or other.num_examples != self.num_examples:
                    raise ValueError(f"other must be a ledger of the same {self.num_examples} people, got {other!r}")
                self._tally = _merged(self._tally, other._tally)
                return
            own, theirs = self._people, other._people
            if same_steps and (both := int((ids.positions(theirs, own) >= 0).sum())):
                raise ValueError(f"{both} people are in both ledgers; their steps would be counted twice")
            everybody = ids.joined(own, theirs)
            merged = _merged(
                self._tally,
                other._tally,
                (ids.positions(everybody, own), ids.positions(everybody, theirs)),
                same_steps=same_steps,
            )
            self._people, self._tally, self.num_examples = everybody, merged, len(everybody)

    def select(self, people: Any) -> Ledger:
        """A ledger of some people, in this order, with all steps of the schedule.

        Parameters
        ----------
        people : array_like
            Distinct ids; numbers of people if nobody was named.

        Raises
        ------
        ValueError
            If somebody is not in this ledger.
        """
        if self._people is None:
            rows = np.asarray(people)
            if rows.ndim != 1 or rows.dtype.kind not in "iu" or np.unique(rows).size < rows.size:
                raise ValueError("people must be distinct numbers of people; this ledger has no ids")
            if rows.size and not (rows.min() >= 0 and rows.max() < self.num_examples):
                raise ValueError(f"people must lie between 0 and {self.num_examples - 1}")
            return self._rearranged(None, rows.astype(np.int64))
        wanted = ids.distinct(people)
        rows = ids.positions(wanted, self._people)
        if np.any(rows < 0):
            raise ValueError(f"{wanted[int(np.argmin(rows))].as_py()!r} is not in this ledger")
        return self._rearranged(wanted, rows)

    def add_people(self, people: Any) -> None:
        """Add people who took no part in the steps so far; they come last.

        Raises
        ------
        ValueError
            If the ledger has no ids, or somebody is in it already.
        """
        if self._people is None:
            raise ValueError("this ledger has no ids; set `people` first")
        new = ids.distinct(people)
        rows = ids.positions(new, self._people)
        if np.any(rows >= 0):
            raise ValueError(f"{new[int(np.argmax(rows))].as_py()!r} is in this ledger already")
        everybody = ids.joined(self._people, new)
        self._tally = self._tally.of_rows(ids.positions(everybody, self._people))
        self._people, self.num_examples = everybody, len(everybody)

    def _rearranged(self, people: Any, rows: NDArray) -> Ledger:
        """A ledger of the people of these rows; -1 stands for somebody without steps."""
        new = type(self)(rows.size, **{name: getattr(self, name) for name in ledger_file.PARAMETERS[1:]})
        new._people, new._tally = people, self._tally.of_rows(rows)
        new._makers = dict(self._makers)  # tables depend on the buckets only
        return new

    def _share_tables(self, other: Ledger) -> None:
        """Use the tables of another ledger if it has the same buckets; both must then stay in one thread."""

        def places(ledger: Ledger) -> list[tuple[float, float, bytes]]:
            return [(g.noise_multiplier, g.sample_rate, g.edges.tobytes()) for g in ledger._tally.groups]

        if places(self) == places(other):
            self._makers = other._makers

    # ------------------------------------------------------------------ privacy loss

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
            With "upper" the lower bound and the estimate are NaN, which saves a third of the time.
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
        for smaller deltas, and for fewer than 17 steps at deltas below 1e-10 (1.7 % at ten steps and delta 1e-15).
        No upper bound exceeds the worst case's.  If nothing but the Renyi bound or the worst case's bound is found for
        a person, the smaller one is the upper bound and the status is RENYI_ONLY.  If both are infinite, the bounds are
        0 and inf and the status is NOT_CERTIFIED.
        **Cost**: a few microseconds a person and pass; more for about ten steps or fewer, and for deltas below 1e-15.
        The first question needs tables of the buckets, a second or more.  They are kept on disk for later processes, in
        ``$PLD_ACCOUNTANT_CACHE``, by default the user's cache folder; an empty variable means that nothing is kept.
        **Threads**: the number of threads changes no bit of the result.  The order of people may change the bounds, but
        the true value always lies between them.
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
        that is smaller.

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
        if isinstance(self._tally, PackedTally):
            until = Effort.of(seconds).deadline

            def one(block: Ledger, tell: Progress | None) -> Bounds:
                left = None if seconds is None else max(until - time.monotonic(), 1e-9)
                return block._answers(values, ask, direction, bounds, tell, left)

            return _joined_people(self._by_blocks(one, progress))
        effort = Effort.of(seconds)
        if bounds not in ("all", "upper"):
            raise ValueError(f"bounds must be 'all' or 'upper', got {bounds!r}")
        wanted = directions(direction)
        if np.ndim(values) > 1 or np.size(values) == 0:
            raise ValueError(f"several values must form a sequence of numbers, got {values!r}")
        questions = [ask(v) for v in ([values] if np.ndim(values) == 0 else values)]
        found = self._bounds(questions, wanted, bounds == "all", progress, effort)
        if np.ndim(values) == 0:
            return found[0]
        parts = ("lower", "estimate", "upper", "status", "method")
        return Bounds(*(np.stack([getattr(b, name) for b in found]) for name in parts))

    def _bounds(
        self,
        questions: Sequence[Question],
        wanted: Sequence[Direction],
        lower: bool,
        progress: Progress | None,
        effort: Effort,
    ) -> list[Bounds]:
        people, tally = self.num_examples, self._unpacked()
        if not tally.groups:
            zero, certified = np.zeros(people), np.zeros(people, dtype=np.uint8)
            return [Bounds(zero, zero, zero, certified, certified) for _ in questions]
        report = _reporter(people * (len(wanted) + lower) * len(questions), progress)
        sides = self._sides(tally, questions, wanted, lower, report, effort)
        self._keep_tables()
        worst = self.worst_case()
        direction = "both" if len(wanted) > 1 else wanted[0]
        caps = [
            worst.epsilon(float(q.delta), direction)
            if isinstance(q, EpsilonAt)
            else worst.delta(float(np.asarray(q.target)), direction)
            for q in questions
        ]
        return [_joined(found, cap, lower, self._NEAR_UPPER) for *found, cap in zip(*sides, caps, strict=True)]

    def _sides(
        self,
        tally: Tally,
        questions: Sequence[Question],
        wanted: Sequence[Direction],
        lower: bool,
        report: Callable[[int], None],
        effort: Effort,
    ) -> list[list[Bounds]]:
        """Upper bounds in each direction, and lower bounds last if they are wanted; one of each for each question."""
        above = tally.interpolated()
        sides = [
            solve_bounds(above, self._of(d), questions, whole=tally.whole(), progress=report, effort=effort)
            for d in wanted
        ]
        if lower:
            whole, makers = tally.whole(lower=True), self._of(wanted[0])
            targets = [float(np.asarray(q.target)) for q in questions]
            if questions[0].wants_epsilon and max(targets) < _LARGE:
                below = tally.interpolated(min(targets))
                sides.append(solve_bounds(below, makers, questions, whole=whole, progress=report, effort=effort))
            else:
                sides.append(solve_bounds(whole, makers, questions, progress=report, effort=effort))
        return sides

    def mu(self, min_delta: float = 1e-10, direction: str = "both", *, progress: Progress | None = None) -> Bounds:
        """The smallest mu whose Gaussian curve lies above a person's at every epsilon >= 0 with delta >= min_delta.

        Parameters
        ----------
        min_delta : float
            In (0, 1).
        direction : {"both", "remove", "add"}
        progress : callable, optional
            Called as ``progress(done, total)``, counted in people times passes.

        Returns
        -------
        Bounds
            Arrays of shape (num_examples,).

        Notes
        -----
        mu describes the curve; it does not imply mu-GDP.  See `Composition.mu`.

        **Cost**: about 0.1 milliseconds a person on one core.
        """
        if isinstance(self._tally, PackedTally):
            return _joined_people(
                self._by_blocks(lambda block, tell: block.mu(min_delta, direction, progress=tell), progress)
            )
        min_delta = validate.delta(min_delta, "min_delta")
        wanted = directions(direction)
        tally = self._unpacked()
        if not tally.groups:
            zero = np.zeros(self.num_examples)
            return Bounds(zero, zero, zero, status=np.zeros(self.num_examples, dtype=np.uint8))
        first, *others = wanted
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
        finite = np.isfinite(upper)
        lower = np.where(finite, below * _LOWER, 0.0)
        middle = np.where(finite, 0.5 * (lower + upper), np.nan)
        status = np.where(finite, Status.CERTIFIED, Status.NOT_CERTIFIED).astype(np.uint8)
        method = np.where(finite, Proof.TRANSFORM, Proof.NONE).astype(np.uint8)
        return Bounds(lower, middle, upper, status, method)

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
        worst = self.worst_case().rdp_epsilon(delta)
        return np.minimum(renyi.best_epsilon(tally.whole(), self._of("remove").steps, delta), worst)

    def worst_case(self) -> Composition:
        """The hypothetical person who is clipped at every step; no individual's bound exceeds theirs."""
        return compose((SampledGaussian(s, q), n) for (s, q), n in self._tally.schedule.items())

    # ------------------------------------------------------------------ files

    def save(self, path: str | os.PathLike[str] | BinaryIO) -> None:
        """Write the ledger to a path, completely or not at all, or to a file that is open for writing bytes."""
        named = {} if self._people is None else ids.to_arrays(self._people)
        ledger_file.save(path, self._parameters, self._tally, named, self._KIND)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Ledger:
        """Read a ledger back.

        Raises
        ------
        FileNotFoundError
        StoreError
            If the file was cut or altered, is not a ledger of this format version, or holds what no ledger can hold.
        """
        with ledger_file.opened(path, cls._KIND) as saved:
            ledger = cls(**saved.parameters())
            named = saved.take(ids.ARRAYS)
            ledger._tally = saved.tally(ledger._parameters)
            ledger._people = ids.from_arrays(named, ledger.num_examples) if named else None
        return ledger

    @property
    def _parameters(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ledger_file.PARAMETERS}
