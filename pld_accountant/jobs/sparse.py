"""`SparseLedger`: counts of many people in the memory that they use.

A `Ledger` spends 6 bytes a person and bucket.  Here the counts of a block of people are kept in the smallest integers
that hold them, and only the buckets that a person used are kept if that is less.  A question unpacks one block after
the other into a `Ledger`, so the numbers are those of a ledger of the block's people.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..composition import Composition
from ..counting.interpolation import UNITS
from ..events import ids
from ..files import store
from ..ledger import Ledger
from ..locked import Locked
from ..results import Bounds, Guarantee

__all__ = ["SparseLedger"]

_MOST = 255  # steps of an entry: 8 bits, and their weights take 16
_BLOCK = 1 << 16  # people unpacked at once: 100 MB of counts at 256 buckets
_KIND, _VERSION = "pld-accountant sparse ledger", 1
_PARTS = ("ends", "column", "count", "weight")
Progress = Callable[[int, int], None]


def _split(ends: NDArray, column: NDArray, count: NDArray, weight: NDArray, parts: NDArray) -> tuple[NDArray, ...]:
    """Entries of at most `_MOST` steps each, whose weights fit 16 bits: several in a row for more steps in a bucket."""
    last = np.cumsum(parts)
    entries = int(last[-1]) if last.size else 0
    nth = np.arange(entries) - np.repeat(last - parts, parts)
    left = np.repeat(count, parts) - _MOST * nth
    steps = np.minimum(left, _MOST)
    # the weight of an entry is at most 256 units a step: fill the first entries
    room = np.repeat(weight, parts) - UNITS * _MOST * nth
    shares = np.clip(room, 0, UNITS * steps)
    new_ends = np.concatenate([[0], last])[ends]
    return _smallest(new_ends), np.repeat(column, parts), steps.astype(np.uint8), shares.astype(np.uint16)


def _smallest(values: NDArray) -> NDArray:
    """The same integers, of at least 0, in the smallest unsigned type."""
    most = int(values.max()) if values.size else 0
    return values.astype(np.min_scalar_type(most))


class _Block:
    """The counts of some people.

    Attributes
    ----------
    ends : ndarray, shape (people,)
        Where each person's entries end; empty if every bucket has an entry.
    column, count, weight : ndarray, shape (entries,)
        Bucket, steps, and sum of lower weights; `column` is empty if every bucket has an entry.
    """

    def __init__(self, people: int, ends: NDArray, column: NDArray, count: NDArray, weight: NDArray) -> None:
        self.people, self.ends, self.column, self.count, self.weight = people, ends, column, count, weight

    @classmethod
    def of(cls, counts: NDArray, weights: NDArray) -> _Block:
        """Packed counts: with an entry for every bucket, or for those that were used if that takes less."""
        used = counts > 0
        count, weight = counts[used].astype(np.int64), weights[used].astype(np.int64)
        column = np.nonzero(used)[1].astype(np.min_scalar_type(max(counts.shape[1] - 1, 0)))
        ends = np.cumsum(used.sum(axis=1))
        dense = counts.size * sum(_smallest(part).itemsize for part in (count, weight))
        parts = -(-count // _MOST)
        if parts.sum() * (column.itemsize + 3) + 4 * ends.size >= dense:
            nothing = np.zeros(0, np.uint8)
            flat = (part.reshape(-1).astype(_smallest(like).dtype) for part, like in ((counts, count), (weights, weight)))
            return cls(len(counts), nothing, nothing, *flat)
        return cls(len(counts), *_split(ends, column, count, weight, parts))

    def unpacked(self, width: int, start: int, stop: int) -> tuple[NDArray, NDArray]:
        """The counts and the lower weights of the people from `start` to `stop`, as int64 or smaller."""
        people = stop - start
        if not self.ends.size:
            entries = slice(start * width, stop * width)
            return self.count[entries].reshape(people, width), self.weight[entries].reshape(people, width)
        ends = np.concatenate([[0], self.ends]).astype(np.int64)[start : stop + 1]
        entries = slice(ends[0], ends[-1])
        place = np.repeat(np.arange(people), np.diff(ends)) * width + self.column[entries]
        again = np.flatnonzero(place[1:] == place[:-1]) + 1  # further entries of the same person and bucket
        found = []
        for part in (self.count[entries], self.weight[entries]):
            whole = np.zeros(people * width, np.uint32)
            whole[place] = 0 if again.size else part
            if again.size:
                np.add.at(whole, place, part)
            found.append(whole.reshape(people, width))
        return found[0], found[1]

    @property
    def nbytes(self) -> int:
        return sum(getattr(self, name).nbytes for name in _PARTS)


class SparseLedger(Locked):
    """Counts of many people in the memory that they use; made from a `Ledger`, and extended by further people.

    Parameters
    ----------
    ledger : Ledger

    Notes
    -----
    No step can be recorded in it.  Record steps in a `Ledger` of a part of the people, then `extend` this ledger by it.

    **Cost**: 4 bytes a person, and 4 bytes for each bucket that a person used (5 with more than 256 buckets) and for
    each further 255 steps in it; or 3 bytes for each bucket, used or not, if that is less and nobody has more than 255
    steps in one.

    Examples
    --------
    >>> first = Ledger.from_events({"person": ["a", "b"], "norm": [1.0, 0.5], "count": [9, 10]},
    ...                            noise_multiplier=2, sample_rate=0.01, max_grad_norm=1)
    >>> sparse = SparseLedger(first)
    >>> sparse.nbytes < 100, sparse.epsilon(1e-5) == first.epsilon(1e-5)
    (True, True)
    """

    def __init__(self, ledger: Ledger) -> None:
        if not isinstance(ledger, Ledger):
            raise ValueError(f"ledger must be a Ledger, got {ledger!r}")
        self._form = ledger.select(ledger.people[:1])  # the buckets and the tables
        self._people = ledger._people
        self._blocks: list[_Block] = []
        self._append(ledger)

    def _append(self, ledger: Ledger) -> None:
        for start in range(0, ledger.num_examples, _BLOCK):
            people = slice(start, start + _BLOCK)
            self._blocks.append(_Block.of(ledger._counts[people], ledger._lower_weights[people]))

    def __repr__(self) -> str:
        return f"SparseLedger({self.num_examples} people, {self.steps} steps; {self.nbytes / 1e6:.1f} MB)"

    @property
    def num_examples(self) -> int:
        """Number of people."""
        return sum(block.people for block in self._blocks)

    @property
    def nbytes(self) -> int:
        """Bytes of the counts and of the ids."""
        return sum(b.nbytes for b in self._blocks) + (0 if self._people is None else int(self._people.nbytes))

    @property
    def people(self) -> NDArray:
        """As `Ledger.people`."""
        return np.arange(self.num_examples) if self._people is None else ids.as_numpy(self._people)

    @property
    def noise_multiplier(self) -> float:
        """As of the ledger."""
        return self._form.noise_multiplier

    @property
    def sample_rate(self) -> float:
        """As of the ledger."""
        return self._form.sample_rate

    @property
    def max_grad_norm(self) -> float:
        """As of the ledger."""
        return self._form.max_grad_norm

    @property
    def buckets(self) -> int:
        """As of the ledger."""
        return self._form.buckets

    @property
    def steps(self) -> int:
        """Number of steps in the schedule."""
        return self._form.steps

    @property
    def schedule(self) -> tuple[tuple[float, float, int], ...]:
        """As `Ledger.schedule`."""
        return self._form.schedule

    @property
    def guarantee(self) -> Guarantee:
        """As `Ledger.guarantee`."""
        return self._form.guarantee

    def worst_case(self) -> Composition:
        """As `Ledger.worst_case`."""
        return self._form.worst_case()

    def extend(self, ledger: Ledger) -> None:
        """Add other people in the same steps.

        Raises
        ------
        ValueError
            If the ledger has another schedule or other buckets, or somebody is in both.  Then nothing has changed.

        **Cost**: with ids of people, a look-up of the new ids among all.
        """
        if not isinstance(ledger, Ledger) or _layout(ledger) != _layout(self._form):
            raise ValueError("the ledger must have the schedule and the buckets of this one; see `schedule`")
        if (ledger._people is None) != (self._people is None):
            raise ValueError("one ledger has ids of people and the other has none")
        if self._people is not None:
            import pyarrow

            if both := int((ids.positions(ledger._people, self._people) >= 0).sum()):
                raise ValueError(f"{both} people are in both ledgers; their steps would be counted twice")
            self._people = pyarrow.concat_arrays([self._people, ledger._people])
        self._append(ledger)

    def parts(self) -> Iterator[Ledger]:
        """One `Ledger` after the other with the people of a block, in order; all share one set of tables."""
        width = sum(group.size for group in self._form._groups)
        first = 0
        for block in self._blocks:
            for start in range(0, block.people, _BLOCK):
                stop = min(start + _BLOCK, block.people)
                yield self._part(*block.unpacked(width, start, stop), first + start)
            first += block.people

    def _part(self, counts: NDArray, weights: NDArray, first: int) -> Ledger:
        part = self._form._rearranged(None, np.full(len(counts), -1))
        part._people = None if self._people is None else self._people[first : first + len(counts)]
        part._counts = counts.astype(self._form._counts.dtype)
        part._lower_weights = weights.astype(self._form._lower_weights.dtype)
        part._makers = self._form._makers  # shared: what one part makes serves the next
        return part

    def _joined(self, ask: Callable[[Ledger], Any], progress: Progress | None) -> list[Any]:
        found, done = [], 0
        for part in self.parts():
            found.append(ask(part))
            done += part.num_examples
            if progress is not None:
                progress(done, self.num_examples)
        return found

    def epsilon(
        self, delta: Any, direction: str = "both", *, bounds: str = "all", progress: Progress | None = None
    ) -> Bounds:
        """As `Ledger.epsilon`, of one block of people after the other."""
        return _stacked(self._joined(lambda part: part.epsilon(delta, direction, bounds=bounds), progress))

    def delta(
        self, epsilon: Any, direction: str = "both", *, bounds: str = "all", progress: Progress | None = None
    ) -> Bounds:
        """As `Ledger.delta`, of one block of people after the other."""
        return _stacked(self._joined(lambda part: part.delta(epsilon, direction, bounds=bounds), progress))

    def rdp_epsilon(self, delta: float) -> NDArray:
        """As `Ledger.rdp_epsilon`."""
        return np.concatenate(self._joined(lambda part: part.rdp_epsilon(delta), None))

    def mu(self, min_delta: float = 1e-10, direction: str = "both", *, progress: Progress | None = None) -> Bounds:
        """As `Ledger.mu`, of one block of people after the other."""
        return _stacked(self._joined(lambda part: part.mu(min_delta, direction), progress))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ledger to a file, completely or not at all."""
        arrays = {f"edges{i}": g.edges for i, g in enumerate(self._form._groups)}
        for i, block in enumerate(self._blocks):
            arrays |= {f"{name}{i}": getattr(block, name) for name in _PARTS}
        arrays |= {} if self._people is None else ids.to_arrays(self._people)
        header = {"form": self._form._header(), "blocks": [block.people for block in self._blocks]}
        store.save(path, _KIND, _VERSION, header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SparseLedger:
        """Read a ledger back; every block is unpacked and checked once, as `Ledger.load` checks.

        Raises
        ------
        FileNotFoundError
        StoreError
            As `Ledger.load`.
        """
        from ..files.saved_state import SavedArrays

        header, arrays = store.load(path, _KIND, _VERSION)
        with store.refuse_invalid(path, _KIND):
            named = {name: arrays.pop(name) for name in ids.ARRAYS if name in arrays}
            form, sizes = header["form"], [int(n) for n in header["blocks"]]
            blocks = [_Block(n, *(arrays.pop(f"{name}{i}") for name in _PARTS)) for i, n in enumerate(sizes)]
            edges = dict(arrays)
            names = ("noise_multiplier", "sample_rate", "max_grad_norm", "buckets")
            width = sum(edge.size for edge in edges.values())
            new = cls.__new__(cls)
            steps = sum(steps for _, _, steps in form["schedule"])
            for block in blocks:
                if min(block.people, *((block.count.size,) if width else ())) < 0 or not block.people:
                    raise ValueError("it has a block without people")
                ledger = Ledger(block.people, **{name: form[name] for name in names})
                ledger._make_room(steps)
                types = ledger._counts.dtype, ledger._lower_weights.dtype
                counts, weights = block.unpacked(width, 0, block.people)
                checked = {**edges, "counts": counts.astype(types[0]), "short": weights.astype(types[1])}
                ledger._restore({**form, "num_examples": block.people}, SavedArrays(checked))
                if block is blocks[0]:
                    new._form = ledger.select([0])
            new._blocks = blocks
            new._people = ids.from_arrays(named, sum(sizes)) if named else None
        return new


def _layout(ledger: Ledger) -> tuple[Any, ...]:
    groups = [(g.noise_multiplier, g.sample_rate, g.edges.tobytes()) for g in ledger._groups]
    return groups, ledger.schedule, ledger.max_grad_norm


def _stacked(parts: list[Bounds]) -> Bounds:
    names = ("lower", "estimate", "upper", "status", "method")
    return Bounds(*(np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in names))
