"""Counting norms into buckets of noise ratios, rounded the safe way.

Legend
    t        step of a block;  i = person;  k = bucket
    s        relative norm: min(norm, clip) * scale, in (0, 1] = smallest noise multiplier over the person's own
    edges    ascending upper edges of the buckets in s, the last one 1;  bucket k holds edges[k-1] < s <= edges[k]
    first    first[c] = the first bucket whose edge is not below c / (cells of the look-up table)

A relative norm is raised by four units of round-off before it is compared, so none falls below its bucket.
"""

import numpy as np

from ._jit import inline, jit, pjit, prange

_RAISE = 1.0 + 2.0**-50
_TILE = 128


@jit("b1(f8[:, ::1])")
def all_norms(norms):
    """Whether every norm is finite and not negative."""
    good = True
    for t in range(norms.shape[0]):
        for i in range(norms.shape[1]):
            good &= (norms[t, i] >= 0.0) & (norms[t, i] < np.inf)
    return good


@inline
def _bucket(norm, clip, scale, edges, first):
    """The bucket of a norm above 0."""
    cells = first.size - 1
    s = min(norm, clip) * scale * _RAISE
    k = np.int64(first[min(np.int64(s * cells), cells)])
    while k < edges.size - 1 and edges[k] < s:
        k += 1
    return k


@pjit(
    "void(f8[:, ::1], f8, f8, f8[::1], i2[::1], u4, u2[:, ::1], i8)",
    "void(f8[:, ::1], f8, f8, f8[::1], i2[::1], u4, u4[:, ::1], i8)",
)
def count_down(norms, clip, scale, edges, first, repeat, counts, offset):
    """counts[i, offset + k] += repeat for every norm above 0; the noise ratio goes down to its bucket's edge."""
    steps, people = norms.shape
    for tile in prange((people + _TILE - 1) // _TILE):
        stop = min(people, (tile + 1) * _TILE)
        for t in range(steps):
            for i in range(tile * _TILE, stop):
                norm = norms[t, i]
                if norm > 0.0:
                    counts[i, offset + _bucket(norm, clip, scale, edges, first)] += repeat


@pjit("void(f8[::1], f8, f8, f8[::1], i2[::1], i2[::1])")
def place_down(norms, clip, scale, edges, first, bucket):
    """bucket (people,): each norm's bucket as `count_down` counts it; -1 for a norm of 0."""
    for i in prange(norms.size):
        bucket[i] = _bucket(norms[i], clip, scale, edges, first) if norms[i] > 0.0 else -1
