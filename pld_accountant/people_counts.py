"""`PeopleCounts`: counts of every person's relative norms: recording, merging, selecting, compressing and saving."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from . import ledger_file, validate
from .counting.packed import BLOCK, PackedTally, merged
from .counting.tally import Tally
from .events import ids
from .events.table import Events, read_events
from .files.npy import release_pages
from .files.saved_state import Load, agree
from .named_people import NamedPeople, Progress

__all__ = ["PeopleCounts", "Progress"]

_BLOCK_BYTES = 1 << 26

# when a log looks as if only sampled people had been recorded
_EXPECTED = 100  # sampled norms, at least
_FULL = 0.9  # sample rate, at most
_DEVIATIONS, _NEAR = 5.0, 0.02  # standard deviations, and the share of the expected number, by which it may be off

_C = TypeVar("_C", bound="PeopleCounts")


def _load(cls: type[_C], path: str | os.PathLike[str], **expected: Any) -> _C:
    """Read a ledger back.

    On the class, it makes a new ledger; parameters given as keywords must agree with the file.  On a ledger, it
    replaces the steps and people of this ledger, whose parameters must agree.

    Raises
    ------
    FileNotFoundError
    StoreError
        If the file was cut or altered, is not a ledger of this format version, holds what no ledger can hold, or has
        other parameters.
    """
    with ledger_file.opened(path, cls._KIND) as (header, saved):
        ledger = cls(**{name: header[name] for name in ledger_file.PARAMETERS})
        named = saved.optional(ids.ARRAYS)
        ledger._counted = validate.flag(header.pop(ledger_file.COUNTED, False), ledger_file.COUNTED)
        ledger._tally = ledger_file.tally_of(header, saved, ledger._parameters)
        ledger._restore_ids(named)
    agree(path, expected, ledger._parameters)
    return ledger


class PeopleCounts(NamedPeople):
    """Counts of many people's relative norms in buckets, and their ids; the parameters are those of `Ledger`."""

    _KIND: ClassVar = ledger_file.KIND

    def __init__(
        self,
        num_examples: int,
        *,
        noise_multiplier: float,
        sample_rate: float,
        max_grad_norm: float,
        buckets: int = 256,
    ) -> None:
        people = validate.count(num_examples, "num_examples", least=1)
        self.noise_multiplier = validate.noise_multiplier(noise_multiplier)
        self.sample_rate = validate.sample_rate(sample_rate)
        self.max_grad_norm = validate.clipping_norm(max_grad_norm)
        self.buckets = validate.buckets(buckets)
        self._tally: Tally | PackedTally = Tally(people, self.buckets)
        self._counted = False  # whether the schedule was counted from events

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.num_examples}, noise_multiplier={self.noise_multiplier}, "
            f"sample_rate={self.sample_rate}, "
            f"max_grad_norm={self.max_grad_norm}, buckets={self.buckets}; {self.steps} steps)"
        )

    @property
    def num_examples(self) -> int:
        """Number of people."""
        return len(self._tally)

    @property
    def steps(self) -> int:
        """Number of steps recorded."""
        return self._tally.steps

    @property
    def schedule_from_events(self) -> bool:
        """Whether steps were counted from events: then `schedule` and `worst_case` depend on people's data."""
        return self._counted

    @property
    def looks_sampled(self) -> bool:
        """Whether the share of norms above 0 is about the sample rate, as in a log of sampled people only.

        The epsilons of such a log are too small: a ledger needs everybody's norm at every step.
        """
        return bool(self._sampled_shares())

    def _sampled_shares(self) -> dict[float, float]:
        """The share of norms above 0 at each sample rate, where it is about the rate."""
        steps: dict[float, int] = {}
        for _, rate, number in self.schedule:
            steps[rate] = steps.get(rate, 0) + number
        people, above = self._tally.positive()
        found = {}
        for rate, positive in above.items():
            norms = people * steps[rate]
            expected = norms * rate
            room = _DEVIATIONS * math.sqrt(expected * (1.0 - rate)) + _NEAR * expected
            if expected >= _EXPECTED and rate <= _FULL and abs(positive - expected) <= room:
                found[rate] = positive / norms
        return found

    @property
    def schedule(self) -> tuple[tuple[float, float, int], ...]:
        """(noise multiplier, sample rate, steps), in the order in which they were first recorded."""
        return tuple((sigma, rate, steps) for (sigma, rate), steps in self._tally.schedule.items())

    @property
    def counts(self) -> NDArray:
        """Steps per person and bucket, shape (num_examples, buckets of all groups); a read-only view.

        Later steps change the view; `copy.copy` of the ledger keeps a state.  A compressed ledger gives a copy.
        """
        view = self._tally.counts.view()
        view.flags.writeable = False
        return view

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

        Notes
        -----
        If it is interrupted (Ctrl-C), the step may be counted for some people only: record it again.

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
        cls: type[_C],
        norms: Any,
        *,
        noise_multiplier: float,
        sample_rate: float,
        max_grad_norm: float,
        buckets: int = 256,
        progress: Progress | None = None,
    ) -> _C:
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
        >>> import pld_accountant as pa
        >>> log = np.full((100, 3), [0.1, 1.0, 9.0])
        >>> pa.Ledger.from_norms(log, noise_multiplier=2, sample_rate=0.01, max_grad_norm=1).steps
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
            release_pages(given)
            if progress is not None:
                progress(min(start + block, steps), steps)
        return ledger

    @classmethod
    def from_events(
        cls: type[_C],
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
    ) -> _C:
        """A ledger of a table with a row for each part that a person took in a query or a training step.

        Parameters
        ----------
        events : path, table of Arrow, pandas or polars, or mapping of arrays
            A Parquet file, a folder of Parquet files, a CSV file with a header (extra ``parquet``), or a table; rows in
            any order.  In a CSV, ids, steps and groups are texts.  Columns, others are ignored:

            - ``person``: an integer, a text or a UUID;
            - ``norm``, before clipping; or ``sensitivity``, which is not clipped and must not exceed `max_grad_norm`;
            - ``count``, optional: number of steps with this norm; 1 by default;
            - ``noise_multiplier`` and ``sample_rate``, if they are not given for all steps;
            - ``step``, optional, instead of ``count``: any name of the step.  If a person has several records in one
              step, their norms are added up before they are clipped;
            - ``group``, optional: the same in all rows of a person.

            A person without a row in a step has norm 0 there, which costs nothing.  With a sample rate below 1, a row
            is needed for every step in which the person could have been sampled, sampled or not.
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

        **Error**: as `record`.  Several records of a person in a step count as one record whose norm is the sum of the
        norms: this holds if the step draws people, by one coin for all of a person's records, adds these up and clips
        the sum.  The norm of the sum is at most the sum of the norms, so the upper bound stays an upper bound.  The
        lower bound and the estimate are those of a person whose norm equals the sum.
        **Cost**: memory for the columns and the counts; about 0.3 microseconds an event.

        Examples
        --------
        >>> import pld_accountant as pa
        >>> table = {"person": ["ann", "bob", "ann"], "norm": [0.3, 1.0, 0.5], "count": [100, 50, 10]}
        >>> ledger = pa.Ledger.from_events(table, noise_multiplier=2, sample_rate=0.01, max_grad_norm=1)
        >>> ledger.people.tolist(), ledger.steps
        (['ann', 'bob'], 110)
        """
        packed = validate.flag(compressed, "compressed")
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
        ledger._people, ledger._counted = found.people, found.schedule_from_events

        def tally_of(part: Events) -> Tally:
            tally = Tally(len(part.people), ledger.buckets)
            tally.count_events(part.person, part.kind, part.norm, part.count, part.schedule, ledger.max_grad_norm)
            return tally

        if packed:
            ends = range(0, len(found.people), BLOCK)
            ledger._tally = PackedTally.of(tally_of(found.part(a, min(a + BLOCK, len(found.people)))) for a in ends)
        else:
            ledger._tally = tally_of(found)
        return ledger

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
        return self._tally.nbytes

    def _unpacked(self) -> Tally:
        """The counters, for more steps."""
        if isinstance(self._tally, PackedTally):
            self._tally = self._tally.dense()
        return self._tally

    def _join(self: _C, other: _C, rows: tuple[NDArray, NDArray] | None, *, same_steps: bool) -> None:
        """See `NamedPeople`."""
        self._tally = merged(self._tally, other._tally, rows, same_steps=same_steps)
        self._counted |= other._counted

    def _take_rows(self, rows: NDArray) -> None:
        """See `NamedPeople`."""
        self._tally = self._tally.of_rows(rows)

    def _rearranged(self: _C, people: Any, rows: NDArray) -> _C:
        """See `NamedPeople`."""
        new = type(self)(**self._parameters | {"num_examples": rows.size})
        new._people, new._tally, new._counted = people, self._tally.of_rows(rows), self._counted
        return new

    def save(self, path: str | os.PathLike[str] | BinaryIO) -> None:
        """Write the ledger to a path, completely or not at all, or to a file that is open for writing bytes."""
        ledger_file.save(path, self._parameters, self._tally, self._ids(), self._KIND, counted=self._counted)

    load = Load(_load, lambda ledger: ledger._parameters)

    @property
    def _parameters(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ledger_file.PARAMETERS}
