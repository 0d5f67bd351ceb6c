"""`PackedTally`: a tally that costs what is used: a bit for each bucket, and a counter for each bucket in use.

People are kept in blocks.  A block holds the bits, and the counts and lower weights of its buckets in use one after
another, in the smallest type that holds the block's largest.  A person with 30 distinct norms who took a step with each
costs 32 bytes of bits (256 buckets) and 3 bytes for each bucket in use, where a `Tally` takes 6 bytes a bucket.

Everything is done block by block: a block is unpacked to a `Tally` and, if it changes, packed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .buckets import Buckets
from .tally import Tally

__all__ = ["BLOCK", "PackedBlock", "PackedTally", "merged"]

BLOCK = 65_536
"""People who are unpacked together: 100 MB with 256 buckets."""

_COUNTS = np.uint8, np.uint16, np.uint32
_WEIGHTS = np.uint8, np.uint16, np.uint32, np.int64


def _narrow(values: NDArray, kinds: Sequence[type]) -> NDArray:
    """In the first of these types that holds the largest value."""
    most = int(values.max(initial=0))
    return values.astype(next(kind for kind in kinds if most <= np.iinfo(kind).max))


@dataclass(frozen=True)
class PackedBlock:
    """Counts of some people.

    Attributes
    ----------
    bits : ndarray of uint8, shape (people, buckets of all groups over 8)
        Which buckets are in use, as `numpy.packbits` writes them.
    counts, lower_weights : ndarray, shape (buckets in use,)
        Person after person.
    """

    bits: NDArray
    counts: NDArray
    lower_weights: NDArray

    @classmethod
    def pack(cls, tally: Tally) -> PackedBlock:
        """The counts of a tally."""
        used = tally.counts > 0
        counts, weights = tally.counts[used], tally.lower_weights[used]
        return cls(np.packbits(used, axis=1), _narrow(counts, _COUNTS), _narrow(weights, _WEIGHTS))

    @property
    def nbytes(self) -> int:
        return self.bits.nbytes + self.counts.nbytes + self.lower_weights.nbytes

    def check(self, width: int) -> None:
        """Raise `ValueError` unless this is what `pack` makes of counts with so many columns."""
        good = self.bits.dtype == np.uint8 and self.bits.ndim == 2 and self.bits.shape[1] == -(-width // 8)
        good = good and 1 <= len(self.bits) <= BLOCK and self.counts.ndim == 1
        good = good and self.counts.dtype in _COUNTS and self.lower_weights.dtype in _WEIGHTS
        if not good or self.counts.shape != self.lower_weights.shape:
            raise ValueError("its packed counts have a wrong shape or type")
        used = np.unpackbits(self.bits, axis=1)
        if used[:, width:].any() or int(used.sum(dtype=np.int64)) != self.counts.size:
            raise ValueError("its packed counts do not fit their bits")
        if not self.counts.all() or np.any(self.lower_weights < 0):
            raise ValueError("its packed counts hold a bucket that is not used")

    def unpack(self, tally: Tally) -> None:
        """Write the counts to a tally of these people without steps."""
        used = np.unpackbits(self.bits, axis=1, count=tally.counts.shape[1]).astype(bool)
        tally.counts[used], tally.lower_weights[used] = self.counts, self.lower_weights


class PackedTally:
    """As `Tally`, for people whose counts are packed.

    Attributes
    ----------
    buckets, groups, schedule
        As in `Tally`.
    blocks : list of PackedBlock
        One after another.
    """

    def __init__(
        self,
        buckets: int,
        groups: Sequence[Buckets],
        schedule: dict[tuple[float, float], int],
        blocks: list[PackedBlock],
    ) -> None:
        self.buckets, self.groups, self.schedule, self.blocks = buckets, list(groups), dict(schedule), blocks

    @classmethod
    def of(cls, parts: Iterable[Tally]) -> PackedTally:
        """The people of some tallies, which have the same groups and the same schedule; at least one."""
        blocks, last = [], None
        for last in parts:
            blocks += [PackedBlock.pack(last.of_rows(rows)) for rows in _rows(len(last.counts))]
        assert last is not None
        return cls(last.buckets, last.groups, last.schedule, blocks)

    def __len__(self) -> int:
        return sum(len(block.bits) for block in self.blocks)

    @property
    def nbytes(self) -> int:
        """Bytes of the counters."""
        return sum(block.nbytes for block in self.blocks)

    @property
    def steps(self) -> int:
        """Number of steps counted."""
        return sum(self.schedule.values())

    @property
    def counts(self) -> NDArray:
        """As in `Tally`: unpacked, a copy."""
        return self.dense().counts

    def positive(self) -> tuple[int, dict[float, int]]:
        """As `Tally.positive`, of the first block."""
        return next(self.parts()).positive()

    def parts(self) -> Iterator[Tally]:
        """The tally of each block."""
        for block in self.blocks:
            yield self._unpacked(block)

    def _unpacked(self, block: PackedBlock) -> Tally:
        tally = Tally.empty(len(block.bits), self.buckets, self.groups, self.schedule)
        block.unpack(tally)
        return tally

    def dense(self) -> Tally:
        """The tally of everybody."""
        whole, start = Tally.empty(len(self), self.buckets, self.groups, self.schedule), 0
        for part in self.parts():
            rows = slice(start, start + len(part.counts))
            whole.counts[rows], whole.lower_weights[rows] = part.counts, part.lower_weights
            start = rows.stop
        return whole

    def of_rows(self, rows: NDArray) -> PackedTally:
        """As `Tally.of_rows`; fast if the rows ascend."""
        return PackedTally.of(self._dense_rows(some) for some in (rows[part] for part in _rows(rows.size)))

    def _dense_rows(self, rows: NDArray) -> Tally:
        """The tally of the people of these rows; -1 stands for somebody without steps."""
        ends = np.cumsum([0, *(len(block.bits) for block in self.blocks)])
        out = Tally.empty(rows.size, self.buckets, self.groups, self.schedule)
        for block, (first, end) in zip(self.blocks, pairwise(ends), strict=True):
            wanted = np.flatnonzero((rows >= first) & (rows < end))
            if wanted.size:
                tally = self._unpacked(block)
                out.counts[wanted] = tally.counts[rows[wanted] - first]
                out.lower_weights[wanted] = tally.lower_weights[rows[wanted] - first]
        return out

    def merge(self, other: PackedTally, *, same_steps: bool = False) -> None:
        """As `Tally.merge`."""
        start, merged = 0, []
        for own in self.parts():
            stop = start + len(own.counts)
            own.merge(other._dense_rows(np.arange(start, stop)), same_steps=same_steps)
            merged.append(PackedBlock.pack(own))
            start, groups, schedule = stop, own.groups, own.schedule
        self.blocks, self.groups, self.schedule = merged, groups, schedule

    def joined(self, other: PackedTally) -> PackedTally | None:
        """These people, followed by those of another tally with the same groups and schedule; None if they differ."""
        places = [[(g.noise_multiplier, g.sample_rate, g.edges.tobytes()) for g in t.groups] for t in (self, other)]
        if places[0] != places[1] or self.schedule != other.schedule:
            return None
        return PackedTally(self.buckets, self.groups, self.schedule, [*self.blocks, *other.blocks])


def merged(
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


def _rows(people: int) -> list[NDArray]:
    return [np.arange(a, min(a + BLOCK, people)) for a in range(0, people, BLOCK)]
