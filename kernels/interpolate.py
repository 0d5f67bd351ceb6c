"""How many of a person's steps count at each edge, in fractions of a step (see `lotteries`).

Legend
    i        person, in the order of `who`;  k = bucket, its steps between the edges k - 1 and k
    counts   (people, buckets): steps;  short (people, buckets): what they win, in units
    out      (persons, buckets): steps at the upper edge of each bucket
"""

import math

import numpy as np

from ._jit import jit

_KINDS = (("u2", "i4"), ("u4", "i4"), ("u4", "i8"))


@jit(*(f"void({c}[:, ::1], {w}[:, ::1], i8[::1], f8, f8[:, ::1])" for c, w in _KINDS))
def shares_up(counts, short, who, unit, out):
    """What a step wins counts at its lower edge, the rest at its upper one."""
    last = counts.shape[1] - 1
    for i in range(who.size):
        n, won = counts[who[i]], short[who[i]]
        for k in range(last):
            out[i, k] = np.float64(n[k]) + unit * (np.float64(won[k + 1]) - np.float64(won[k]))
        out[i, last] = n[last] - unit * won[last]


@jit(
    *(f"void({c}[:, ::1], {w}[:, ::1], i8[::1], f8, f8[::1], f8[::1], f8[::1], b1[::1], f8[:, ::1])" for c, w in _KINDS)
)
def shares_down(counts, short, who, unit, rho, scale, lost, free, out):
    """Of n steps, n scale (exp(rho l) - 1) count at their upper edge, l the part that they do not win on average, less
    `lost`; the rest counts at the lower edge, or not at all where that is `free`."""
    last = counts.shape[1] - 1
    for i in range(who.size):
        n, won = counts[who[i]], short[who[i]]
        above = 0.0
        for r in range(last + 1):
            k = last - r
            upper = 0.0
            if n[k] > 0:
                upper = n[k] * scale[k] * math.expm1(rho[k] * max(1.0 - lost[k] - unit * won[k] / n[k], 0.0))
            out[i, k] = upper + above
            above = 0.0 if free[k] else n[k] - upper
