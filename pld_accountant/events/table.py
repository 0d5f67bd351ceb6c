"""`Events`: the rows of an event table, checked, with the norms of one step added up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import validate
from . import ids
from .source import arrow_events

__all__ = ["Events", "Kind", "read_events"]

_MISSING = {"", "nan", "none", "null", "nat", "n/a", "na"}  # texts that other programs write for no value

Kind = tuple[float, float]
"""Noise multiplier and sample rate of a step."""


@dataclass(frozen=True)
class Events:
    """Everybody's events, in order of people.

    Attributes
    ----------
    people : pyarrow.Array
        Distinct ids, ascending; also of people without events, if they were named.
    person : ndarray of int64, shape (events,)
        Ascending places in `people`.
    norm : ndarray of float64, shape (events,)
        In the unit of the clipping norm; at least 0.
    count : ndarray of int64, shape (events,)
        Number of steps with this norm.
    kind : ndarray of int64, shape (events,)
        Place in `kinds`.
    kinds : tuple of (noise multiplier, sample rate)
        Ascending by rate, then by noise.
    schedule : tuple of (noise multiplier, sample rate, steps)
        The steps of a person who takes part in every step.
    labels : ndarray of shape (people,) or None
        The group of every person.
    schedule_from_events : bool
        Whether the schedule was counted from the events.
    """

    people: Any
    person: NDArray
    norm: NDArray
    count: NDArray
    kind: NDArray
    kinds: tuple[Kind, ...]
    schedule: tuple[tuple[float, float, int], ...]
    labels: NDArray | None = None
    schedule_from_events: bool = False

    def __len__(self) -> int:
        return self.person.size

    def part(self, start: int, stop: int) -> Events:
        """The events of the people from `start` to `stop`, with the schedule of all."""
        a, b = np.searchsorted(self.person, [start, stop])
        return replace(
            self,
            people=self.people[start:stop],
            person=self.person[a:b] - start,
            norm=self.norm[a:b],
            count=self.count[a:b],
            kind=self.kind[a:b],
            labels=None if self.labels is None else self.labels[start:stop],
        )


def read_events(
    source: Any,
    *,
    max_grad_norm: float,
    noise_multiplier: float | None = None,
    sample_rate: float | None = None,
    people: Any = None,
    schedule: Sequence[tuple[float, float, int]] | None = None,
    columns: Mapping[str, str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Events:
    """Read and check a table of events; the arguments are those of `Ledger.from_events` and of `arrow_events`."""
    if isinstance(source, Events):
        return source
    clip = validate.clipping_norm(max_grad_norm)
    schedule = None if schedule is None else validate.schedule(schedule)
    table = arrow_events(source, columns, progress)
    there = table.schema.names
    everybody, person = _people(table.column("person"), people)
    norm = _norms(table, clip)
    count = _counts(table)
    sigma = _parameter(table, "noise_multiplier", noise_multiplier, {s for s, _, _ in schedule or ()})
    rate = _parameter(table, "sample_rate", sample_rate, {q for _, q, _ in schedule or ()})
    kinds, kind = _kinds(sigma, rate, len(person))
    labels = _labels(table.column("group"), person, len(everybody)) if "group" in there else None
    found = np.zeros(len(kinds), dtype=np.int64)
    if "step" in there:
        if "count" in there:
            raise ValueError("events have a column 'step' or a column 'count', not both: a row of a step is one record")
        step = _step_codes(table.column("step"))
        _one_kind_a_step(step, kind, table.column("step"))
        of_step = np.zeros(step.max() + 1 if step.size else 0, dtype=np.int64)
        of_step[step] = kind
        found = np.bincount(of_step, minlength=len(kinds))
        person, norm, count, kind = _added_up(person, step, norm, kind)
    else:
        order = np.lexsort((norm, kind, person))
        person, norm, count, kind = person[order], norm[order], count[order], kind[order]
    most = _most_steps(person, count, kind, len(kinds), len(everybody))
    stated = _schedule(schedule, kinds, np.maximum(most, found), most)
    used = tuple((s, q) for s, q, _ in stated)
    renumbered = np.array([used.index(one) if one in used else -1 for one in kinds], dtype=np.int64)
    return Events(everybody, person, norm, count, renumbered[kind], used, stated, labels, schedule is None)


# --------------------------------------------------------------------------------------------------------- columns


def _people(column: Any, people: Any) -> tuple[Any, NDArray]:
    """The sorted ids of everybody, and each row's place among them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = ids.as_ids(column, "person")
    coded = pc.dictionary_encode(rows)
    found, codes = coded.dictionary, coded.indices.to_numpy(zero_copy_only=False)
    if people is not None:
        named = ids.distinct(people)
        strangers = ids.positions(found, named) < 0
        if strangers.any():
            one = found.filter(pa.array(strangers))[0].as_py()
            raise ValueError(f"{int(strangers.sum())} people have events but are not in people, for example {one!r}")
        everybody = ids.joined(found, named)
    else:
        everybody = found
    if not len(everybody):
        raise ValueError("there are no events and no people")
    order = pc.sort_indices(everybody).to_numpy(zero_copy_only=False)
    place = np.empty(order.size, dtype=np.int64)
    place[order] = np.arange(order.size)
    return everybody.take(pa.array(order)), place[codes]


def _column(table: Any, name: str) -> NDArray:
    import pyarrow as pa

    column = table.column(name)
    if column.null_count:
        raise ValueError(f"the column {name!r} has {column.null_count} missing values")
    # a norm is raised before it is counted, by more than the round-off of a decimal number
    array = np.asarray((column.cast("float64") if pa.types.is_decimal(column.type) else column).to_numpy())
    if array.dtype.kind not in "fiu":
        raise ValueError(f"the column {name!r} must hold real numbers, got {validate.not_real(array.dtype)}")
    return array


def _norms(table: Any, clip: float) -> NDArray:
    name = "norm" if "norm" in table.schema.names else "sensitivity"
    norm = _column(table, name).astype(np.float64)
    bad = ~((norm >= 0.0) & (norm < np.inf))
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"the column {name!r} must be finite and at least 0, got {norm[row]} in row {row}")
    if name == "sensitivity" and np.any(norm > clip):
        row = int(np.argmax(norm > clip))
        raise ValueError(
            f"the sensitivity {norm[row]} in row {row} exceeds max_grad_norm={clip:g}: a sensitivity is not clipped; "
            "if the mechanism clips, name the column 'norm'"
        )
    return norm


def _counts(table: Any) -> NDArray:
    if "count" not in table.schema.names:
        return np.ones(table.num_rows, dtype=np.int64)
    count = _column(table, "count")
    bad = ~((count >= 1) & (count == np.floor(count)) & (count < 2.0**32))
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"the column 'count' must hold whole numbers of at least 1, got {count[row]} in row {row}")
    return count.astype(np.int64)


def _parameter(table: Any, name: str, value: float | None, scheduled: set[float]) -> NDArray | float:
    """A column, or the value for all events, which is the schedule's if that has only one."""
    if name in table.schema.names:
        if value is not None:
            raise ValueError(f"{name} was given, and the events have a column of this name; one of them must go")
        return _column(table, name).astype(np.float64)
    if value is None and len(scheduled) == 1:
        (value,) = scheduled
    if value is None:
        raise ValueError(f"{name} must be given: the events have no column of this name")
    return float(getattr(validate, name)(value))


def _kinds(sigma: NDArray | float, rate: NDArray | float, events: int) -> tuple[list[Kind], NDArray]:
    if isinstance(sigma, float) and isinstance(rate, float):
        return [(sigma, rate)], np.zeros(events, dtype=np.int64)
    both = np.stack([np.broadcast_to(rate, (events,)), np.broadcast_to(sigma, (events,))], axis=1)
    found, place = np.unique(both, axis=0, return_inverse=True)
    return [(validate.noise_multiplier(s), validate.sample_rate(q)) for q, s in found.tolist()], place.reshape(-1)


def _step_codes(column: Any) -> NDArray:
    """A number for each distinct step; rows of the same step are records of one, and are added up."""
    coded = ids.coded(column, "the column 'step'")
    names = coded.dictionary.to_numpy(zero_copy_only=False)
    codes = np.asarray(coded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)
    missing = np.zeros(names.size, dtype=bool)
    if names.dtype.kind == "f":
        missing = ~np.isfinite(names)
    elif names.dtype.kind == "O":
        missing[:] = [isinstance(name, str) and name.strip().lower() in _MISSING for name in names]
    lost = missing[codes]
    if lost.any():
        row = int(np.argmax(lost))
        raise ValueError(f"the column 'step' has {int(lost.sum())} missing values: {names[codes[row]]} in row {row}")
    return codes if names.dtype.kind != "f" else np.unique(names, return_inverse=True)[1].reshape(-1)[codes]


def _labels(column: Any, person: NDArray, people: int) -> NDArray:
    """Everybody's group; people without events have the group ''."""
    coded = ids.coded(column, "the column 'group'")
    codes = np.asarray(coded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)
    names = np.asarray(coded.dictionary.to_numpy(zero_copy_only=False))
    of = np.full(people, -1, dtype=np.int64)
    of[person] = codes
    if np.any(of[person] != codes):
        row = int(np.argmax(of[person] != codes))
        one, other = names[[codes[row], of[person[row]]]].tolist()
        raise ValueError(f"the person in row {row} has two groups, {one!r} and {other!r}")
    if names.dtype.kind in "iu" and np.all(of >= 0):
        return names[of]
    return np.append(names.astype(str), "")[of]


# ----------------------------------------------------------------------------------------------------------- steps


def _one_kind_a_step(step: NDArray, kind: NDArray, column: Any) -> None:
    of = np.zeros(step.max() + 1 if step.size else 0, dtype=np.int64)
    of[step] = kind
    differs = of[step] != kind
    if differs.any():
        name = column[int(np.argmax(differs))].as_py()
        raise ValueError(f"the step {name!r} has several noise multipliers or sample rates")


def _added_up(person: NDArray, step: NDArray, norm: NDArray, kind: NDArray) -> tuple[NDArray, ...]:
    """One row for each person and step, whose norm is the sum over the person's records, rounded up."""
    order = np.lexsort((norm, step, person))
    person, step, norm, kind = person[order], step[order], norm[order], kind[order]
    if not person.size:
        return person, norm, np.ones(0, dtype=np.int64), kind
    new = np.append(True, (person[1:] != person[:-1]) | (step[1:] != step[:-1]))
    first = np.flatnonzero(new)
    records = np.diff(np.append(first, person.size))
    # k additions lose at most k 2^-53 of the sum of numbers that are not negative
    total = np.add.reduceat(norm, first) * (1.0 + np.where(records > 1, records * 2.0**-52, 0.0))
    again = np.lexsort((total, kind[first], person[first]))
    chosen = first[again]
    return person[chosen], np.minimum(total[again], np.finfo(float).max), np.ones(first.size, np.int64), kind[chosen]


def _most_steps(person: NDArray, count: NDArray, kind: NDArray, kinds: int, people: int) -> NDArray:
    """The most steps of each kind that one person took."""
    most = np.zeros(kinds, dtype=np.int64)
    for k in range(kinds):
        of = kind == k
        if of.any():
            taken = np.bincount(person[of], weights=count[of], minlength=people)
            most[k] = int(taken.max())
    return most


def _schedule(
    given: Sequence[tuple[float, float, int]] | None, kinds: Sequence[Kind], found: NDArray, most: NDArray
) -> tuple[tuple[float, float, int], ...]:
    if given is None:
        return tuple((s, q, int(n)) for (s, q), n in zip(kinds, found, strict=True) if n)
    stated: dict[Kind, int] = {}
    for sigma, rate, steps in given:
        stated[sigma, rate] = stated.get((sigma, rate), 0) + steps
    for key, taken in zip(kinds, most, strict=True):
        if taken > stated.get(key, 0):
            raise ValueError(
                f"a person took {taken} steps with noise multiplier {key[0]:g} and sample rate {key[1]:g}, "
                f"but the schedule has {stated.get(key, 0)}"
            )
    return tuple((s, q, n) for (s, q), n in sorted(stated.items(), key=lambda item: (item[0][1], item[0][0])))
