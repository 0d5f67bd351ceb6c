"""How many of a person's steps count at each edge, in fractions of a step (see `counting.interpolation`).

Legend
    i              person, in the order of `who`;  k = bucket, its steps between the edges k - 1 and k
    counts         (people, buckets): steps
    lower_weights  (people, buckets): sums of the steps' lower weights, in units
    l              mean place of a person's steps in their bucket: 0 at the lower edge, 1 at the upper edge
    out            (people of `who`, buckets): steps at the upper edge of each bucket
"""

import math

import numpy as np

from ._jit import jit

_KINDS = (("u2", "i4"), ("u4", "i4"), ("u4", "i8"))


@jit(*(f"void({c}[:, ::1], {w}[:, ::1], i8[::1], f8, f8[:, ::1])" for c, w in _KINDS))
def counts_up(counts, lower_weights, who, unit, out):
    """For the upper bound: the lower weight counts at the lower edge, the rest at the upper edge."""
    last = counts.shape[1] - 1
    for i in range(who.size):
        n, lower = counts[who[i]], lower_weights[who[i]]
        for k in range(last):
            out[i, k] = np.float64(n[k]) + unit * (np.float64(lower[k + 1]) - np.float64(lower[k]))
        out[i, last] = n[last] - unit * lower[last]


@jit(
    *(f"void({c}[:, ::1], {w}[:, ::1], i8[::1], f8, f8[::1], f8[::1], f8[::1], b1[::1], f8[:, ::1])" for c, w in _KINDS)
)
def counts_down(counts, lower_weights, who, unit, rho, scale, rounding, free, out):
    """For the lower bound: n scale (exp(rho l) - 1) of n steps count at their upper edge, l their mean place.

    l is 1 less the mean lower weight and `rounding`.  The other steps count at the lower edge, or not at all if that
    edge is `free`.
    """
    last = counts.shape[1] - 1
    for i in range(who.size):
        n, lower = counts[who[i]], lower_weights[who[i]]
        above = 0.0
        for r in range(last + 1):
            k = last - r
            upper = 0.0
            if n[k] > 0:
                place = max(1.0 - rounding[k] - unit * lower[k] / n[k], 0.0)
                upper = n[k] * scale[k] * math.expm1(rho[k] * place)
            out[i, k] = upper + above
            above = 0.0 if free[k] else n[k] - upper
