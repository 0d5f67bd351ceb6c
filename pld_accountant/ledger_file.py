"""Files of ledgers: parameters and a tally, written whole, and checked before they are used.

A file is not trusted, even if its checksum is right: `tally_of` takes over what `Ledger.record` and `Ledger.merge`
could have made, and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np

from . import validate
from .counting.buckets import Buckets
from .counting.interpolation import UNITS
from .counting.packed import PackedBlock, PackedTally
from .counting.tally import Tally
from .files import store
from .files.saved_state import SavedArrays

__all__ = ["COUNTED", "KIND", "LAPLACE_KIND", "PARAMETERS", "VERSION", "opened", "save", "tally_of"]

KIND, LAPLACE_KIND, VERSION = "pld-accountant ledger", "pld-accountant Laplace ledger", 2
PARAMETERS = ("num_examples", "noise_multiplier", "sample_rate", "max_grad_norm", "buckets")
COUNTED = "schedule_from_events"
_ROWS = 4096  # people whose counts are checked at once


def save(
    path: str | os.PathLike[str] | BinaryIO,
    parameters: Mapping[str, Any],
    tally: Tally | PackedTally,
    more: Mapping[str, np.ndarray],
    kind: str = KIND,
    *,
    counted: bool = False,
) -> None:
    """Write a ledger's parameters, counts and some more arrays to a path, or to a file open for writing bytes.

    counted: whether the schedule's steps were counted from events.
    """
    arrays = {f"edges{i}": g.edges for i, g in enumerate(tally.groups)} | dict(more)
    if isinstance(tally, PackedTally):
        for i, block in enumerate(tally.blocks):
            arrays |= {f"bits{i}": block.bits, f"counts{i}": block.counts, f"short{i}": block.lower_weights}
    else:
        arrays |= {"counts": tally.counts, "short": tally.lower_weights}
    header = _header(parameters, tally) | ({COUNTED: True} if counted else {})
    store.save(path, kind, VERSION, header, arrays)


@contextmanager
def opened(path: str | os.PathLike[str], kind: str = KIND) -> Iterator[tuple[dict[str, Any], SavedArrays]]:
    """Header and arrays of a file, not yet checked; every error of the block becomes a `StoreError` that names it."""
    header, arrays = store.load(path, kind, VERSION)
    with store.refuse_invalid(path, kind):
        yield header, SavedArrays(arrays)


def _header(parameters: Mapping[str, Any], tally: Tally | PackedTally) -> dict[str, Any]:
    """The parts of a saved ledger that are not arrays."""
    return {
        **parameters,
        "groups": [[g.noise_multiplier, g.sample_rate] for g in tally.groups],
        "schedule": [[sigma, rate, steps] for (sigma, rate), steps in tally.schedule.items()],
    }


def tally_of(header: Mapping[str, Any], saved: SavedArrays, parameters: Mapping[str, Any]) -> Tally | PackedTally:
    """The groups, the schedule and the counts, for a ledger with these checked parameters, or `ValueError`.

    The conditions are those that `Tally.count` and `Tally.merge` keep, so the counters neither overflow nor
    disagree.  No array and no part of the header may be left over.
    """
    tally = Tally(parameters["num_examples"], parameters["buckets"])
    for i, (sigma, rate) in enumerate(header["groups"]):
        tally.groups.append(Buckets(rate, sigma, saved.take(f"edges{i}", np.float64, (None,))))
    for sigma, rate, steps in header["schedule"]:
        key = validate.noise_multiplier(sigma), validate.sample_rate(rate)
        tally.schedule[key] = validate.count(steps, "steps")
    if _header(parameters, tally) != header:
        raise ValueError("its header has unknown parts, or a value of another type")
    fits = [[group.can_count(*step) for group in tally.groups] for step in tally.schedule]
    if not all(map(any, fits)) or not all(map(any, zip(*fits, strict=True))) or bool(fits) != bool(tally.groups):
        raise ValueError("its schedule and its groups of buckets do not match")
    if "bits0" in saved:
        packed = _packed(saved, parameters["num_examples"], tally)
        saved.finish()
        return packed
    shape = parameters["num_examples"], sum(group.size for group in tally.groups)
    tally.counts = saved.take("counts", (np.uint16, np.uint32), shape)
    tally.lower_weights = saved.take("short", (np.int32, np.int64), shape, least=0)
    saved.finish()
    _check_counts(tally)
    return tally


def _packed(saved: SavedArrays, people: int, like: Tally) -> PackedTally:
    """Packed counts for the groups and the schedule of a tally, checked block by block."""
    if like.steps > np.iinfo(np.uint32).max:
        raise ValueError("it has more steps than its counters hold")
    width, found = sum(group.size for group in like.groups), 0
    blocks: list[PackedBlock] = []
    while found < people:
        i = len(blocks)
        bits = saved.take(f"bits{i}", np.uint8, (None, -(-width // 8)))
        in_use = int(np.unpackbits(bits).sum(dtype=np.int64))
        counts = saved.take(f"counts{i}", (np.uint8, np.uint16, np.uint32), (in_use,))
        weights = saved.take(f"short{i}", (np.uint8, np.uint16, np.uint32, np.int64), counts.shape)
        blocks.append(PackedBlock(bits, counts, weights))
        blocks[-1].check(width)
        found += len(bits)
    if found != people:
        raise ValueError(f"its counts are those of {found} people, not of {people}")
    packed = PackedTally(like.buckets, like.groups, like.schedule, blocks)
    for part in packed.parts():
        _check_counts(part)
    return packed


def _check_counts(tally: Tally) -> None:
    """Raise `ValueError` if the counts could not have been counted."""
    counts, lower_weights, steps = tally.counts, tally.lower_weights, tally.steps
    if steps > np.iinfo(counts.dtype).max or steps * UNITS > np.iinfo(lower_weights.dtype).max:
        raise ValueError("it has more steps than its counters hold")
    if (counts.dtype, lower_weights.dtype) == (np.uint16, np.int64):
        raise ValueError("counts and short have types that do not occur together")
    for start in range(0, len(counts), _ROWS):
        some = counts[start : start + _ROWS].astype(np.int64)
        if some.sum(axis=1).max() > steps:
            raise ValueError("counts hold more steps for a person than the schedule")
        if np.any(lower_weights[start : start + _ROWS] > UNITS * some):
            raise ValueError("short exceeds the weight of the counted steps")
