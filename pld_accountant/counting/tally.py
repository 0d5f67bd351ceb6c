"""`Tally`: everybody's counts of steps in buckets, kept as the steps are recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from .. import validate
from ..threads import blocks, for_blocks
from . import counters
from .buckets import Buckets, choose_group
from .counts import InterpolatedCounts, WholeCounts, lower_edges
from .interpolation import UNITS, lower_weight_line

__all__ = ["Tally"]

_FEW_NORMS = 16_384  # that take about 0.2 milliseconds to count
_SAMPLE = 10_000  # people who stand for many
_MOST_DISTINCT = (
    0.5  # share of kinds in the sample, above which everybody is bounded: copies of counts cost time and memory
)


class Tally:
    """Counts of many people's relative norms in groups of buckets.

    Attributes
    ----------
    buckets : int
        Buckets of each new group.
    groups : list of Buckets
        One after another along the columns of the counts.
    counts : ndarray of uint16 or uint32, shape (people, buckets of all groups)
        Steps in each bucket.
    lower_weights : ndarray of int32 or int64, of the same shape
        Sums of their lower weights, in units of `interpolation`.
    schedule : dict
        Steps by (noise multiplier, sample rate), in the order in which these were first recorded.
    """

    def __init__(self, people: int, buckets: int) -> None:
        self.buckets = buckets
        self.groups: list[Buckets] = []
        self.counts: NDArray = np.zeros((people, 0), dtype=np.uint16)
        self.lower_weights: NDArray = np.zeros((people, 0), dtype=np.int32)
        self.schedule: dict[tuple[float, float], int] = {}

    @classmethod
    def empty(
        cls, people: int, buckets: int, groups: Sequence[Buckets], schedule: Mapping[tuple[float, float], int]
    ) -> Tally:
        """People without steps, with counters for the steps of a schedule."""
        new = cls(people, buckets)
        new._make_room(sum(schedule.values()))
        new.groups, new.schedule = list(groups), dict(schedule)
        shape = people, sum(group.size for group in groups)
        new.counts = counters.zeros(shape, new.counts.dtype)
        new.lower_weights = counters.zeros(shape, new.lower_weights.dtype)
        return new

    def __len__(self) -> int:
        """Number of people."""
        return len(self.counts)

    @property
    def steps(self) -> int:
        """Number of steps counted."""
        return sum(self.schedule.values())

    @property
    def nbytes(self) -> int:
        """Bytes of the counters."""
        return self.counts.nbytes + self.lower_weights.nbytes

    def count(
        self, norms: NDArray, repeat: int, sigma: float, rate: float, max_grad_norm: float, *, first_row: int
    ) -> None:
        """Count norms of shape (steps, people), each step `repeat` times, or raise `ValueError` and count nothing.

        `first_row` is the number of the first step in messages.  See `Ledger.record`.
        """
        from ..kernels import count

        if not count.all_norms(norms):
            raise validate.norm_error(norms, first_row=first_row)
        steps = len(norms) * repeat
        if not steps:
            return
        self._make_room(steps)
        group, offset = self._group(sigma, rate)
        # before the counts: at an interrupt nobody may have more steps than the schedule
        self.schedule[sigma, rate] = self.schedule.get((sigma, rate), 0) + steps
        buckets = _places(group, sigma, max_grad_norm)
        added = np.uint32(repeat), self.counts, self.lower_weights, offset

        def count_some(people: slice) -> None:
            count.count_down(norms, people.start, people.stop, *buckets, *added)

        for_blocks(count_some, len(self.counts), -(-_FEW_NORMS // len(norms)))

    def count_events(
        self,
        person: NDArray[np.int64],
        kind: NDArray,
        norm: NDArray,
        times: NDArray[np.int64],
        schedule: Sequence[tuple[float, float, int]],
        max_grad_norm: float,
    ) -> None:
        """Count events: the person took `times` steps of the kind with this norm; the tally is empty before.

        Parameters
        ----------
        person, kind, norm, times : ndarray, shape (events,)
            kind is the place in the schedule.
        schedule : sequence of (noise multiplier, sample rate, steps)
            Nobody takes more steps of a kind than it says.
        """
        from ..kernels import count

        self._make_room(sum(steps for _, _, steps in schedule))
        # buckets in the order of the schedule: tallies with one schedule have the same buckets
        places = [self._group(sigma, rate) for sigma, rate, _ in schedule]
        for k, (sigma, rate, steps) in enumerate(schedule):
            group, offset = places[k]
            of = np.flatnonzero(kind == k)
            events = person[of], np.ascontiguousarray(norm[of], dtype=np.float64), times[of]
            count.add_events(*events, *_places(group, sigma, max_grad_norm), self.counts, self.lower_weights, offset)
            self.schedule[sigma, rate] = steps

    def of_rows(self, rows: NDArray) -> Tally:
        """The tally of the people of these rows; -1 stands for somebody without steps."""
        new = Tally(rows.size, self.buckets)
        new.groups, new.schedule = list(self.groups), dict(self.schedule)
        known = np.flatnonzero(rows >= 0)
        for name in ("counts", "lower_weights"):
            old = getattr(self, name)
            moved = counters.zeros((rows.size, old.shape[1]), old.dtype)
            moved[known] = old[rows[known]]
            setattr(new, name, moved)
        return new

    def merge(self, other: Tally, *, same_steps: bool = False) -> None:
        """Add the counts of another tally of the same people.

        With `same_steps` nobody has steps in both, and the steps of the schedules are the same ones.
        """
        self._make_room(other.steps)
        start = 0
        for group in other.groups:
            columns = slice(start, start + group.size)
            counts = other.counts[:, columns].astype(self.counts.dtype)
            lower_weights = other.lower_weights[:, columns].astype(self.lower_weights.dtype)
            start += group.size
            offset = 0
            for own in self.groups:
                if own.sample_rate == group.sample_rate and np.array_equal(own.sigma, group.sigma):
                    self.counts[:, offset : offset + own.size] += counts
                    self.lower_weights[:, offset : offset + own.size] += lower_weights
                    break
                offset += own.size
            else:
                self._append(group, counts, lower_weights)
        for key, steps in other.schedule.items():
            own_steps = self.schedule.get(key, 0)
            self.schedule[key] = max(own_steps, steps) if same_steps else own_steps + steps

    def _make_room(self, steps: int) -> None:
        """Widen the counters if the new steps could make one overflow."""
        most = self.steps + steps
        if most > np.iinfo(np.uint32).max:
            raise ValueError(f"a ledger holds at most {np.iinfo(np.uint32).max} steps, got {most}")
        if most > np.iinfo(np.uint16).max and self.counts.dtype == np.uint16:
            self.counts = self.counts.astype(np.uint32)
        if most * UNITS > np.iinfo(self.lower_weights.dtype).max:
            self.lower_weights = self.lower_weights.astype(np.int64)

    def _group(self, sigma: float, rate: float) -> tuple[Buckets, int]:
        """Buckets for this noise multiplier and rate, made if there are none, and their first column."""
        number, lowest = choose_group(self.groups, sigma, rate)
        if number >= 0:
            return self.groups[number], sum(group.size for group in self.groups[:number])
        new, offset = Buckets.make(lowest, rate, self.buckets), self.counts.shape[1]
        shape = (len(self.counts), new.size)
        self._append(new, counters.zeros(shape, self.counts.dtype), counters.zeros(shape, self.lower_weights.dtype))
        return new, offset

    def _append(self, group: Buckets, counts: NDArray, lower_weights: NDArray) -> None:
        if self.groups:
            counts = np.concatenate([self.counts, counts], axis=1)
            lower_weights = np.concatenate([self.lower_weights, lower_weights], axis=1)
        self.counts, self.lower_weights = counts, lower_weights
        self.groups.append(group)

    def positive(self) -> tuple[int, dict[float, int]]:
        """A number of people, and how many of their norms at each sample rate are above 0; a sample of many people."""
        sample = self._sample()
        total = self.counts[sample].sum(axis=0, dtype=np.int64)
        found: dict[float, int] = {}
        for group, part in zip(self.groups, np.split(total, np.cumsum([g.size for g in self.groups])), strict=False):
            found[group.sample_rate] = found.get(group.sample_rate, 0) + int(part.sum())
        return sample.size, found

    def _sample(self) -> NDArray:
        """People at even distances."""
        people = len(self.counts)
        return np.unique(np.linspace(0, people - 1, min(people, _SAMPLE)).astype(np.int64))

    def distinct(self) -> tuple[NDArray, NDArray] | None:
        """One person of each kind, by equal counts, and everybody's kind; None if kinds are about as many as people.

        A sample of people decides whether everybody's counts are compared.
        """
        people, sample = len(self.counts), self._sample()
        if np.unique(self._hashes(sample)).size > _MOST_DISTINCT * sample.size:
            return None
        hashes = np.concatenate([self._hashes(block) for block in blocks(people)])
        _, first, place = np.unique(hashes, return_index=True, return_inverse=True)
        place = place.reshape(-1)
        for block in blocks(people):
            other = first[place[block]]
            for values in (self.counts, self.lower_weights):
                if not np.array_equal(values[block], values[other]):
                    return None  # different counts with one hash
        return first, place

    def _hashes(self, who: slice | NDArray) -> NDArray:
        """A 64-bit number of each person's counts."""
        odd = np.random.default_rng(0).integers(1 << 63, size=(2, self.counts.shape[1]), dtype=np.uint64) | np.uint64(1)
        parts = (self.counts, self.lower_weights)
        return np.asarray(sum(part[who].astype(np.uint64) @ factor for part, factor in zip(parts, odd, strict=True)))

    def interpolated(self, log_delta: float | None = None) -> InterpolatedCounts:
        """The counts in fractions, for the upper bound, or for the lower bound down to this log delta."""
        return InterpolatedCounts(self.counts, self.lower_weights, self.groups, log_delta)

    def whole(self, *, lower: bool = False) -> WholeCounts:
        """Whole counts of the steps, at the upper or at the lower edges of their buckets."""
        return WholeCounts(self.counts, lower_edges(self.groups) if lower else None)

    def rows(self) -> tuple[NDArray, NDArray]:
        """Noise multiplier and sample rate of a step at each upper edge: (buckets of all groups,) each."""
        rates = [np.full(group.size, group.sample_rate) for group in self.groups]
        return np.concatenate([group.sigma for group in self.groups]), np.concatenate(rates)


def _places(group: Buckets, sigma: float, max_grad_norm: float) -> tuple[float, float, NDArray, NDArray, NDArray]:
    """The arguments of `kernels.count` that place norms in a group's buckets."""
    return max_grad_norm, group.scale(sigma, max_grad_norm), group.edges, lower_weight_line(group), group.first
