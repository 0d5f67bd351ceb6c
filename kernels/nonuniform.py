"""Sums of p_j exp(i omega d_j) - p_j at equally spaced omega: what `mechanisms.exponential_sums` does node by node.

Legend
    p, d      (rows, nodes): weights, at least 0, and losses
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


@jit("void(f8[:, ::1], f8[:, ::1], f8, f8[:, ::1], f8[::1])", interpreted=2)
def near_moments(p, d, reach, moments, far):
    """Write each row's sums of p (d / reach)^k over the near losses, k = 1, 2, ..., and the mass of the far ones."""
    moments[:] = 0.0
    far[:] = 0.0
    for i in range(p.shape[0]):
        carry, far_carry = np.zeros(moments.shape[1]), np.zeros(1)
        for j in range(p.shape[1]):
            if p[i, j] == 0.0:
                continue
            if abs(d[i, j]) > reach:
                _add(far[i : i + 1], far_carry, 0, p[i, j])
                continue
            z = d[i, j] / reach
            term = p[i, j]
            for k in range(carry.size):
                term *= z
                _add(moments[i], carry, k, term)
        moments[i] += carry
        far[i] += far_carry[0]


@jit("void(f8[:, ::1], f8, f8[:, ::1], f8[:, ::1])", interpreted=2)
def taylor(coefficients, step, re, im):
    """Write each row's sum of c_k (i z)^k, k = 1, 2, ..., at z = step, 2 step, ...; the number of them is even."""
    n = coefficients.shape[1]
    for i in range(coefficients.shape[0]):
        for j in range(re.shape[1]):
            z = (j + 1) * step
            square = -z * z
            even, odd = 0.0, 0.0
            for k in range(n - 2, -1, -2):
                odd = odd * square + coefficients[i, k]
                even = even * square + coefficients[i, k + 1]
            re[i, j] = even * square
            im[i, j] = odd * z


@jit("void(f8[:, ::1], f8[:, ::1], f8, f8, f8, i8, f8[:, ::1])", interpreted=2)
def spread(p, d, reach, scale, decay, half, grid):
    """Write each row's far weights to its grid, each spread over the 2 `half` grid points around its place.

    A grid must have at least 2 `half` points: places are wrapped around the circle once.
    """
    size = grid.shape[1]
    window = np.empty(half + 1)
    for k in range(half + 1):
        window[k] = math.exp(-decay * k * k)
    grid[:] = 0.0
    for i in range(p.shape[0]):
        row, carry = grid[i], np.zeros(size)
        for j in range(p.shape[1]):
            if abs(d[i, j]) <= reach or p[i, j] == 0.0:
                continue
            place = d[i, j] * scale
            first = math.floor(place)
            part = place - first
            first = first % size
            middle = p[i, j] * math.exp(-decay * part * part)
            up = math.exp(2.0 * decay * part)
            down = 1.0 / up
            factor = middle
            for k in range(half + 1):
                at = first + k
                _add(row, carry, at if at < size else at - size, factor * window[k])
                factor *= up
            factor = middle
            for k in range(1, half):
                factor *= down
                at = first - k
                _add(row, carry, at if at >= 0 else at + size, factor * window[k])
        row += carry
