"""Sums of p_j exp(i omega d_j) - p_j at equally spaced omega: what `mechanisms.exponential_sums` does node by node.

Legend
    p, d      weights, at least 0, and losses
    reach     losses up to this modulus are near, the others far
    size      points of a grid on the circle; a loss d lies at d scale grid points
    decay     g: the far weights are spread over the grid with the window exp(-g k^2), k in grid points
"""

import math

import numpy as np

from ._jit import inline, jit


@inline
def _add(total, carry, place, value):
    """Add a value to total[place]; what rounding loses is added to carry[place]."""
    before = total[place]
    after = before + value
    kept = after - before
    carry[place] += (before - (after - kept)) + (value - kept)
    total[place] = after


@jit("f8(f8[::1], f8[::1], f8, f8[::1])")
def near_moments(p, d, reach, moments):
    """Write the sums of p (d / reach)^k over the near losses, k = 1, 2, ...; return the mass of the far ones."""
    carry = np.zeros(moments.size)
    far, far_carry = np.zeros(1), np.zeros(1)
    moments[:] = 0.0
    for j in range(d.size):
        if abs(d[j]) > reach:
            _add(far, far_carry, 0, p[j])
            continue
        z = d[j] / reach
        term = p[j]
        for k in range(moments.size):
            term *= z
            _add(moments, carry, k, term)
    moments += carry
    return far[0] + far_carry[0]


@jit("void(f8[::1], f8, f8[::1], f8[::1])")
def taylor(coefficients, step, re, im):
    """Write the sum of c_k (i z)^k, k = 1, 2, ..., at z = step, 2 step, ...; the number of coefficients is even."""
    n = coefficients.size
    for j in range(re.size):
        z = (j + 1) * step
        square = -z * z
        even, odd = 0.0, 0.0
        for k in range(n - 2, -1, -2):
            odd = odd * square + coefficients[k]
            even = even * square + coefficients[k + 1]
        re[j] = even * square
        im[j] = odd * z


@jit("void(f8[::1], f8[::1], f8, f8, f8, i8, f8[::1])")
def spread(p, d, reach, scale, decay, half, grid):
    """Write the far weights to the grid, each spread over the 2 `half` grid points around its place.

    The grid must have at least 2 `half` points: places are wrapped around the circle once.
    """
    size = grid.size
    carry = np.zeros(size)
    window = np.exp(-decay * np.arange(half + 1.0) ** 2)
    grid[:] = 0.0
    for j in range(d.size):
        if abs(d[j]) <= reach:
            continue
        place = d[j] * scale
        first = math.floor(place)
        part = place - first
        first = first % size
        middle = p[j] * math.exp(-decay * part * part)
        up = math.exp(2.0 * decay * part)
        down = 1.0 / up
        factor = middle
        for k in range(half + 1):
            at = first + k
            _add(grid, carry, at if at < size else at - size, factor * window[k])
            factor *= up
        factor = middle
        for k in range(1, half):
            factor *= down
            at = first - k
            _add(grid, carry, at if at >= 0 else at + size, factor * window[k])
    grid += carry
