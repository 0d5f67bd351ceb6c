"""Counting norms into buckets of noise ratios, rounded the safe way.

Legend
    t        step of a block;  i = person;  k = bucket
    s        relative norm: min(norm, clip) * scale, in (0, 1] = smallest noise multiplier over the person's own
    edges    ascending upper edges of the buckets in s, the last one 1;  bucket k holds edges[k-1] < s <= edges[k]
    first    first[c] = the first bucket whose edge is not below c / (cells of the look-up table)
    slope, offset    per bucket: a step at s wins by (edge - s) slope - offset, in units, see `counting.interpolation`
    short    (people, buckets): what the steps in a bucket win, rounded down, in these units

A relative norm is raised by four units of round-off before it is compared, so none falls below its bucket.

float32 is taken as it is and widened in the register, which is exact.  Counting waits for memory: each norm meets the
counters of a person of its own.  So the counters of a whole tile are asked for before the first of them is raised.
"""

import numpy as np

from ._jit import inline, jit, pjit, prange, prefetch

_RAISE = 1.0 + 2.0**-50
_TILE = 128


# a memory map that is open for reading only is read in place
_NORMS = tuple(f"Array({kind}, 2, 'C', readonly=True)" for kind in ("f4", "f8"))


@jit(*(f"b1({norms})" for norms in _NORMS))
def all_norms(norms):
    """Whether every norm is finite and not negative."""
    good = True
    for t in range(norms.shape[0]):
        for i in range(norms.shape[1]):
            good &= (norms[t, i] >= 0.0) & (norms[t, i] < np.inf)
    return good


@inline
def _bucket(s, edges, first):
    """The bucket of a relative norm."""
    k = np.int64(first[np.int64(s * (first.size - 1))])
    # nearly every cell of the table holds one edge at most: no jump to foretell
    k += edges[k] < s
    while edges[k] < s:
        k += 1
    return k


@pjit(
    *(
        f"void({norms}, f8, f8, f8[::1], f8[:, ::1], i2[::1], u4, {c}[:, ::1], {w}[:, ::1], i8)"
        for norms in _NORMS
        for c, w in (("u2", "i4"), ("u4", "i4"), ("u4", "i8"))
    )
)
def count_down(norms, clip, scale, edges, slope_offset, first, repeat, counts, short, offset):
    """counts[i, offset + k] += repeat for every norm above 0, the noise ratio going down to its bucket's edge, and
    short[i, offset + k] += repeat times what the step wins; slope_offset (2, buckets)."""
    steps, people = norms.shape
    slope, loss = slope_offset[0], slope_offset[1]
    for tile in prange((people + _TILE - 1) // _TILE):
        start, stop = tile * _TILE, min(people, (tile + 1) * _TILE)
        column = np.empty(_TILE, dtype=np.int64)
        won = np.empty(_TILE, dtype=np.int32)
        for t in range(steps):
            for i in range(start, stop):
                s = min(min(np.float64(norms[t, i]), clip) * scale * _RAISE, 1.0)
                k = _bucket(s, edges, first)
                won[i - start] = np.int32(max((edges[k] - s) * slope[k] - loss[k], 0.0))
                column[i - start] = offset + k
                prefetch(counts, i, offset + k)
                prefetch(short, i, offset + k)
            for i in range(start, stop):
                times = repeat * np.uint32(norms[t, i] > 0.0)
                counts[i, column[i - start]] += times
                short[i, column[i - start]] += np.int64(times) * np.int64(won[i - start])


@pjit("void(f8[::1], f8, f8, f8[::1], i2[::1], i2[::1])")
def place_down(norms, clip, scale, edges, first, bucket):
    """bucket (people,): each norm's bucket as `count_down` counts it; -1 for a norm of 0."""
    for i in prange(norms.size):
        s = min(min(norms[i], clip) * scale * _RAISE, 1.0)
        bucket[i] = _bucket(s, edges, first) if norms[i] > 0.0 else -1
