"""Count norms into buckets of relative norms, rounded to the side of larger loss.

Legend
    t        step of a block;  i = person;  k = bucket
    s        relative norm: min(norm, clip) * scale, in (0, 1]; scale = `counting.buckets.Buckets.scale`
    edges    ascending upper edges of the buckets in s, the last one 1;  bucket k holds edges[k-1] < s <= edges[k]
    first    first[c] = the first bucket whose edge is not below c / (cells of the look-up table)
    slope_offset    (2, buckets): a step at s has the lower weight (edge - s) slope - offset, in units of
                    1 / `counting.interpolation.UNITS`; a negative weight counts as 0
    short    (people, buckets): sums of the steps' lower weights, each rounded down, in these units; the
             `lower_weights` of `kernels.interpolate`

A relative norm is raised by 2^-50 of itself before it is compared, so no norm falls below its bucket.

float32 is read as it is and widened in the register, which is exact.  Counting waits for memory, because each norm
needs the counters of another person.  So the counters of a whole tile are prefetched before the first is raised.
"""

import numpy as np

from ._jit import inline, jit, prefetch

_RAISE = 1.0 + 2.0**-50
_TILE = 128


# read-only arrays: a memory map that is open for reading is read in place
_NORMS = tuple(f"Array({kind}, 2, 'C', readonly=True)" for kind in ("f4", "f8"))
_COUNTERS = ("u2", "i4"), ("u4", "i4"), ("u4", "i8")  # counts and sums of lower weights


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
    # nearly every cell of the table holds at most one edge: this line avoids a branch that the processor must predict
    k += edges[k] < s
    while edges[k] < s:
        k += 1
    return k


@jit(
    *(
        f"void({norms}, i8, i8, f8, f8, f8[::1], f8[:, ::1], i2[::1], u4, {c}[:, ::1], {w}[:, ::1], i8)"
        for norms in _NORMS
        for c, w in _COUNTERS
    )
)
def count_down(norms, start, stop, clip, scale, edges, slope_offset, first, repeat, counts, short, offset):
    """For every norm above 0, add `repeat` to counts[i, offset + k] and `repeat` lower weights to short[i, offset + k].

    i runs over the people from `start` to `stop`.

    Error: the relative norm is raised by 2^-50 of itself, and the lower weight is rounded down.
    """
    slope, loss = slope_offset[0], slope_offset[1]
    column = np.empty(_TILE, dtype=np.int64)
    won = np.empty(_TILE, dtype=np.int32)
    for first_person in range(start, stop, _TILE):
        last = min(stop, first_person + _TILE)
        for t in range(norms.shape[0]):
            for i in range(first_person, last):
                s = min(min(np.float64(norms[t, i]), clip) * scale * _RAISE, 1.0)
                k = _bucket(s, edges, first)
                won[i - first_person] = np.int32(max((edges[k] - s) * slope[k] - loss[k], 0.0))
                column[i - first_person] = offset + k
                prefetch(counts, i, offset + k)
                prefetch(short, i, offset + k)
            for i in range(first_person, last):
                times = repeat * np.uint32(norms[t, i] > 0.0)
                counts[i, column[i - first_person]] += times
                short[i, column[i - first_person]] += np.int64(times) * np.int64(won[i - first_person])


@jit("void(f8[::1], f8, f8, f8[::1], i2[::1], i2[::1])")
def place_down(norms, clip, scale, edges, first, bucket):
    """Write each norm's bucket, as `count_down` counts it, to bucket (people,); -1 for a norm of 0."""
    for i in range(norms.size):
        s = min(min(norms[i], clip) * scale * _RAISE, 1.0)
        bucket[i] = _bucket(s, edges, first) if norms[i] > 0.0 else -1


@jit(
    *(
        f"void(i8[::1], f8[::1], i8[::1], f8, f8, f8[::1], f8[:, ::1], i2[::1], {c}[:, ::1], {w}[:, ::1], i8)"
        for c, w in _COUNTERS
    )
)
def add_events(person, norms, times, clip, scale, edges, slope_offset, first, counts, short, offset):
    """Count events as `count_down` does: the person took times[e] steps with the norm norms[e]."""
    slope, loss = slope_offset[0], slope_offset[1]
    for e in range(person.size):
        if norms[e] > 0.0:
            s = min(min(norms[e], clip) * scale * _RAISE, 1.0)
            k = _bucket(s, edges, first)
            won = np.int32(max((edges[k] - s) * slope[k] - loss[k], 0.0))
            counts[person[e], offset + k] += np.uint32(times[e])
            short[person[e], offset + k] += times[e] * np.int64(won)
