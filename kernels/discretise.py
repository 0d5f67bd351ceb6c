"""The privacy loss of one step on a uniform grid: an upper and a lower bound of its hockey-stick curve H.

Legend
    cell m      losses in [e_m, e_m + h], e_m = start + m h;  knot m = its left end
    p, b        mass of the cell under P; the part of this mass that connect-the-dots moves to the right end
    H(gamma)    = integral of (P - gamma Q)+, convex in gamma = e^epsilon
    gap         distance between the chord of H over a cell and the tangents of H, where two tangents meet
    sign, x, g  as in `_loss`: the loss is sign * log g(x), P has the density N(x; 0, sigma^2) g(x)^(sign > 0)
    u           of a cell: p less e^(left end) times the mass under Q

Up: connect the dots.  The chord of H over each cell is a hockey-stick curve above H whose kinks lie on the grid.
Down: the curve is lowered at the knots until its chords lie below the tangents of H at both ends and in the middle of
each cell.
Composition preserves both orders: a curve that lies above (below) H for every gamma stays above (below) it.

References: Doroshenko, Ghazi, Kamath, Kumar, Manurangsi, "Connect the dots: tighter discrete approximations of privacy
loss distributions", PoPETs 2022.  The lowered knots are this project's; they are valid because H is convex.
"""

import math

import numpy as np

from ._jit import inline, jit
from ._loss import LOG_SQRT_2PI, log_g_at, x_of_log_g

# Gauss-Legendre rules on [-1, 1]: three points if a cell is tiny, else five.
_NODE_3 = (-0.7745966692414834, 0.0, 0.7745966692414834)
_WEIGHT_3 = (0.5555555555555556, 0.8888888888888888, 0.5555555555555556)
_NODE = (-0.906179845938664, -0.5384693101056831, 0.0, 0.5384693101056831, 0.906179845938664)
_WEIGHT = (0.23692688505618908, 0.47862867049936647, 0.5688888888888889, 0.47862867049936647, 0.23692688505618908)

_SAFE = 1.000000001
_DIGITS = 1e-3  # a difference of masses that is a smaller share of them has lost digits


@inline
def _cell(sigma, q, sign, left, start, stop):
    """The mass p under P of the losses from `start` to `stop`, and p minus e^left times their mass under Q.

    The integrals run over x, in pieces on which the Gauss rule is exact to 1e-15, relative.
    """
    if sign > 0:
        x0, x1 = x_of_log_g(start, sigma, q), x_of_log_g(stop, sigma, q)
    else:
        x0, x1 = x_of_log_g(-stop, sigma, q), x_of_log_g(-start, sigma, q)
    x0, x1 = max(x0, -38.0 * sigma), min(x1, 38.0 * sigma + 1.0)
    p = 0.0
    up = 0.0
    x = x0
    while x < x1:
        z = x / sigma
        reach = 0.5 * sigma / (max(abs(z), abs((x - 1.0) / sigma)) + 2.0)
        y = min(x + reach, x1)
        centre, half = 0.5 * (x + y), 0.5 * (y - x)
        short = y - x < 0.04 * reach
        for i in range(3 if short else 5):
            v = centre + half * (_NODE_3[i] if short else _NODE[i])
            lg = log_g_at(v, sigma, q)
            log_density = -0.5 * (v / sigma) ** 2 - LOG_SQRT_2PI - math.log(sigma)
            if sign > 0:
                log_density += lg
            mass = half * (_WEIGHT_3[i] if short else _WEIGHT[i]) * math.exp(log_density)
            p += mass
            up -= mass * math.expm1(left - sign * lg)
        x = y
    return p, up


@inline
def _gaps(p1, u1, p2, u2, own2, h, b, gap):
    """Write how far the chord of a cell exceeds the tangents where two of them meet, and at which share of the cell.

    p = masses of the two halves under P; q = p - u are those under Q times e^left, and u keeps the digits of losses far
    below 2^-53; own2 is the u of the right half that refers to its own left end, the middle of the cell.  gap = g1, t1,
    g2, t2.  The chord of the lowered curve stays below the tangents if (1 - t) down_left + t down_right >= g for both
    pairs (g, t).

    With the ratio r = p / q of a half, t = (r - 1) / (e^h - 1), and g is at most b (1 - r e^-h), which is at most
    b (1 - t).  In a wide cell r may be too large to be known; then (b, 0) serves as (g, t).
    """
    gap[0], gap[1], gap[2], gap[3] = 0.0, 0.25, 0.0, 0.75
    if p1 > 0.0:
        q1 = p1 - u1
        if q1 <= _DIGITS * p1:
            gap[0], gap[1] = b * _SAFE, 0.0
        else:
            gap[1] = min(max(u1 / q1 / math.expm1(h), 0.0), 1.0)
            # log(p1 / q1), and p2 - q2 p1 / q1
            log_ratio, beside = -math.log1p(-u1 / p1), (p1 * u2 - p2 * u1) / q1
            gap[0] = max(b * -math.expm1(log_ratio - h) - beside, 0.0) * _SAFE
    if p2 > 0.0:
        q2 = p2 - own2  # under Q times e^middle
        if q2 <= _DIGITS * p2:
            gap[2], gap[3] = b * _SAFE, 0.0
        else:
            gap[3] = min(max(u2 / (q2 * math.exp(-0.5 * h)) / math.expm1(h), gap[1]), 1.0)
            gap[2] = max(b * -math.expm1(-math.log1p(-own2 / p2) - 0.5 * h), 0.0) * _SAFE


@inline
def _right_end(gap):
    """How much a cell's right end is lowered: both conditions hold with equality, unless an end would rise."""
    g1, t1, g2, t2 = gap[0], gap[1], gap[2], gap[3]
    if t2 - t1 > 1e-3:
        right = (g2 * (1.0 - t1) - g1 * (1.0 - t2)) / (t2 - t1)
        left = (g1 * t2 - g2 * t1) / (t2 - t1)
        if left >= 0.0:
            return max(right, 0.0) * _SAFE
    elif t1 + t2 < 1.0:
        return 0.0
    return max(g1 / max(t1, 1e-3), g2 / max(t2, 1e-3)) * _SAFE


@inline
def _left_end(gap, right):
    """The smallest lowering of a cell's left end, given the lowering of its right end."""
    first = (gap[0] - gap[1] * right) / max(1.0 - gap[1], 1e-300)
    second = (gap[2] - gap[3] * right) / max(1.0 - gap[3], 1e-300)
    return max(first, second, 0.0) * _SAFE


@inline
def _convex(mass, h):
    """Remove negative masses (kinks that bend the wrong way): move each to the knots beside it, which lowers the curve.

    A negative atom is split over its neighbours so that its masses under P and Q are kept.  If the first atom is
    negative, its P mass moves to the next knot.
    """
    n = mass.size
    before = np.empty(n, dtype=np.int64)
    for m in range(n):
        before[m] = m - 1
    for m in range(n - 1):
        at = m
        while at >= 0 and mass[at] < 0.0:
            negative = mass[at]
            mass[at] = 0.0
            previous = before[at]
            if previous < 0:
                mass[m + 1] += negative
            else:
                down, up = (at - previous) * h, (m + 1 - at) * h
                part = negative * math.expm1(-down) / math.expm1(-(down + up))
                mass[m + 1] += part
                mass[previous] += negative - part
            at = previous
        before[m + 1] = at


@jit("void(f8, f8, f8, f8[::1], f8[::1])")
def losses(sigma, q, sign, x, loss):
    for i in range(x.size):
        loss[i] = sign * log_g_at(x[i], sigma, q)


@jit("void(f8, f8, f8, f8[::1], f8[::1], f8[::1])")
def masses(sigma, q, sign, knots, p, u):
    """Write p and u of the cells between ascending losses."""
    for k in range(p.size):
        p[k], up = _cell(sigma, q, sign, knots[k], knots[k], knots[k + 1])
        u[k] = min(max(up, 0.0), p[k])


@jit("void(f8[::1], f8[::1], f8, f8[::1], f8[::1], f8[:, ::1])")
def join_halves(p_half, u_half, h, p, b, gap):
    """Write p, b and the gaps of cells of width h, from p and u of two halves for each cell.

    u of the right half refers to the middle of the cell.  Only positive numbers are added.
    """
    fall = -math.expm1(-0.5 * h)
    for m in range(p.size):
        p1, p2 = p_half[2 * m], p_half[2 * m + 1]
        u1 = u_half[2 * m]
        u2 = p2 * fall + u_half[2 * m + 1] * (1.0 - fall)
        p[m] = p1 + p2
        b[m] = min(max((u1 + u2) / -math.expm1(-h), 0.0), p[m])
        _gaps(p1, u1, p2, u2, u_half[2 * m + 1], h, b[m], gap[m])


@inline
def _connect(p, b, mass):
    mass[:] = 0.0
    for m in range(p.size):
        mass[m] += p[m] - b[m]
        mass[m + 1] += b[m]


@jit("void(f8[::1], f8[::1], f8[::1])")
def connect_up(p, b, mass):
    """Write mass[m] at knot m, m = 0 .. cells: connect the dots; the caller adds the mass beyond the cells."""
    _connect(p, b, mass)


@jit("void(f8[::1], f8[::1], f8[:, ::1], f8, f8[::1])")
def connect_down(p, b, gap, h, mass):
    """Write mass[m] at knot m, m = 0 .. cells: below H everywhere; the mass beyond the cells is dropped.

    From right to left, each knot is lowered by the larger amount that its two cells need, but never below 0.  If 0
    limits the lowering, the left neighbour is lowered more.
    """
    n = p.size
    fall, rise = -math.expm1(-h), math.expm1(h)
    _connect(p, b, mass)
    curve = np.zeros(n + 1)  # H of the connected dots at the knots
    lower = np.zeros(n + 1)
    zero = n  # the lowered curve is 0 from this knot on
    beyond = 0.0  # gamma times the mass under Q beyond the knot
    for r in range(n):
        m = n - 1 - r
        beyond += mass[m + 1]
        curve[m] = curve[m + 1] + fall * beyond
        beyond *= 1.0 - fall
        lower[m] = _left_end(gap[m], lower[m + 1])
        if m > 0:
            lower[m] = max(lower[m], _right_end(gap[m - 1]))
        if lower[m] >= curve[m]:
            lower[m] = curve[m]
            if zero == m + 1:
                zero = m
    before = lower[0]
    for m in range(zero):
        mass[m] += (lower[m] - before) / fall - (lower[m + 1] - lower[m]) / rise
        before = lower[m]
    mass[zero:] = 0.0
    if zero > 0:
        mass[zero] = (curve[zero - 1] - lower[zero - 1]) / fall
        _convex(mass[: zero + 1], h)
