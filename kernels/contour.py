"""Sums over the nodes of paths: complex powers, their bounds around an exponent, and the errors of rules.

Legend
    A           exponent, a real and an imaginary part
    j           node: loss l_j and weight w_j, real and imaginary parts (`mechanisms.node_sums`)
    e^(A l_j)   power: its modulus is e^(Re A l), its argument is Im A l

The exponential, the cosine and the sine are polynomials here, so that the compiler makes vector instructions of the
loops that call them: those of the C library take several times as long.  The exponential errs by at most 4 units of
2^-53 of itself, and cos y + i sin y by at most 3 units.
"""

import math

import numpy as np

from ._jit import inline, jit

_ROUND = 1.5 * 2.0**52  # added and subtracted, it rounds to an integer
_LEAST, _MOST = -708.0, 709.0  # exponents of powers between the least and the largest normal double
_SCALE = np.ldexp(1.0, np.arange(-1023, 1024))
_LOG2 = math.log(2.0)
_LOG2_HIGH = 6.93147180369123816490e-01  # 32 bits, so that up to 2^20 times it is exact, as are the next two
_LOG2_LOW = 1.90821492927058770002e-10
_RIGHT_1, _RIGHT_2, _RIGHT_3 = 1.57079632673412561417, 6.07710050630396597660e-11, 2.02226624879595063154e-21
_LARGEST_ANGLE = 2.0**20  # beyond, a power that is not 0 counts as infinite
_UNIT = 2.0**-53
_BLOCK = 32  # terms that are added up before their sum is


@inline
def _reduced(x):
    """exp(r) - 1 and 2^k, x = k log 2 + r, |r| <= 0.35; the remainder of the series is below a tenth of a unit."""
    k = (x / _LOG2 + _ROUND) - _ROUND
    r = (x - k * _LOG2_HIGH) - k * _LOG2_LOW
    p = 1.0 / 6227020800.0
    p = p * r + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    return r + r * r * p, _SCALE[np.int64(k) + 1023]


@inline
def exponential(x):
    """exp(x), but 0 where x is below -708, and infinite above 709."""
    inside = _LEAST < x < _MOST
    less, scale = _reduced(x if inside else 0.0)
    return (1.0 + less) * scale if inside else (0.0 if x <= _LEAST else x + np.inf)


@inline
def cosine_and_sine(y):
    """cos y and sin y, |y| <= 2^20.

    With y = k pi / 2 + r, |r| <= 0.8, the remainders of both series are below a tenth of a unit of 1.
    """
    k = (y * (2.0 / math.pi) + _ROUND) - _ROUND
    r = ((y - k * _RIGHT_1) - k * _RIGHT_2) - k * _RIGHT_3
    z = r * r
    p = -1.0 / 1307674368000.0
    p = p * z + 1.0 / 6227020800.0
    p = p * z - 1.0 / 39916800.0
    p = p * z + 1.0 / 362880.0
    p = p * z - 1.0 / 5040.0
    p = p * z + 1.0 / 120.0
    p = p * z - 1.0 / 6.0
    s = r + r * z * p
    p = 1.0 / 20922789888000.0
    p = p * z - 1.0 / 87178291200.0
    p = p * z + 1.0 / 479001600.0
    p = p * z - 1.0 / 3628800.0
    p = p * z + 1.0 / 40320.0
    p = p * z - 1.0 / 720.0
    p = p * z + 1.0 / 24.0
    c = 1.0 - (0.5 * z - z * z * p)
    quarter = np.int64(k) & 3
    even = (quarter & 1) == 0
    cosine = c if even else s
    sine = s if even else c
    return (-cosine if ((quarter + 1) & 2) != 0 else cosine), (-sine if (quarter & 2) != 0 else sine)


@inline
def _turned(size, y):
    """The modulus of a power, and its real and imaginary part, from its modulus and its argument."""
    near = abs(y) <= _LARGEST_ANGLE
    cosine, sine = cosine_and_sine(y if near else 0.0)
    size = size if near or size == 0.0 else np.inf
    return size, size * cosine, size * sine


@inline
def exponential_less_one(x):
    """exp(x) - 1 with the limits of `exponential`, accurate where it is small."""
    inside = _LEAST < x < _MOST
    less, scale = _reduced(x if inside else 0.0)
    return scale * less + (scale - 1.0) if inside else (-1.0 if x <= _LEAST else x + np.inf)


@jit("void(f8[:], f8[:], f8[::1], f8[::1], f8[:, ::1])")
def mixture_less_one(centre, weight, x, y, less):
    """Write h(x + i y) - 1 of a mixture, real and imaginary part (`mechanisms.positive_mixture`)."""
    less[:] = 0.0
    grown = np.empty(x.size)
    for j in range(centre.size):
        c, w = centre[j], weight[j]
        for i in range(x.size):
            grown[i] = exponential_less_one(c * x[i] - 0.5 * c * c)
        for i in range(x.size):
            # of half of the angle, so that 1 - cos is accurate where it is small
            cosine, sine = cosine_and_sine(0.5 * c * y[i])
            less[0, i] += w * (grown[i] - 2.0 * sine * sine * (1.0 + grown[i]))
            less[1, i] += w * (2.0 * sine * cosine * (1.0 + grown[i]))


@inline
def _add_powers(x, y, nodes, start, stop, sums):
    """Add, for each exponent, the terms of some nodes, in blocks: real and imaginary part, and two errors."""
    size, part = np.empty(x.size), np.empty(sums.shape)
    for begin in range(start, stop, _BLOCK):
        part[:] = 0.0
        for j in range(begin, min(begin + _BLOCK, stop)):
            loss, turn, real, imaginary = nodes[0, j], nodes[1, j], nodes[2, j], nodes[3, j]
            for i in range(x.size):
                size[i] = exponential(x[i] * loss - y[i] * turn)
            for i in range(x.size):
                modulus, cosine, sine = _turned(size[i], y[i] * loss + x[i] * turn)
                part[0, i] += cosine * real - sine * imaginary
                part[1, i] += cosine * imaginary + sine * real
                part[2, i] += modulus * nodes[4, j]
                part[3, i] += modulus * nodes[5, j]
        sums += part


@jit("void(f8[::1], f8[::1], f8[:, ::1], i8, i8, i8, c16[::1], f8[::1], f8[:, ::1])")
def moments(x, y, nodes, first, last, end, small, units, found):
    """The sums of `mechanisms.node_sums.NodeSums.at`, at each exponent x + i y.

    nodes       (6, nodes): real and imaginary parts of l and of w; errors of a term, over its power and that times |A|
    first, last, end: the large losses of M are those from `first` to `end`; M_mid is a sum over those before `last`
    small       of the small losses, the coefficients of A^2, A^3, ...; what else A is multiplied by; a constant
    units       errors, over 1, |A| and |A|^2
    found       (6, exponents): real and imaginary parts and error of the sum for M, and the same of M_mid
    """
    sums = np.zeros((3, 4, x.size))
    _add_powers(x, y, nodes, 0, first, sums[0])
    _add_powers(x, y, nodes, first, last, sums[1])
    _add_powers(x, y, nodes, last, end, sums[2])
    powers = small.size - 2
    for i in range(x.size):
        a, size = complex(x[i], y[i]), math.hypot(x[i], y[i])
        series = 0.0j
        for k in range(powers - 1, -1, -1):
            series = series * a + small[k]
        less = a * (series * a - small[powers]) - small[powers + 1]
        found[0, i] = less.real + (sums[1, 0, i] + sums[2, 0, i])
        found[1, i] = less.imag + (sums[1, 1, i] + sums[2, 1, i])
        own, passed = sums[1, 2, i] + sums[2, 2, i], sums[1, 3, i] + sums[2, 3, i]
        found[2, i] = _UNIT * (own + units[0] + size * (passed + units[1] + size * units[2]))
        found[3, i] = sums[0, 0, i] + sums[1, 0, i]
        found[4, i] = sums[0, 1, i] + sums[1, 1, i]
        found[5, i] = _UNIT * (sums[0, 2, i] + sums[1, 2, i] + size * (sums[0, 3, i] + sums[1, 3, i]))


@jit("void(f8, f8, f8[:, ::1], f8[:, ::1], i8, i8, f8[::1])")
def around(x, y, corners, nodes, first, last, found):
    """Bounds of two sums of w e^(A l) at all A + d, d in a polygon around 0 (`mechanisms.node_sums`).

    x, y        A
    corners     (2, corners) of the polygon
    nodes       (5, nodes): real and imaginary parts of l, log |w|, real and imaginary parts of w / |w|
    first, last the first sum, M_low, is over the nodes from `first` on, the second, M_mid, over those before `last`
    found       log |M_low(A)|; m, real and imaginary; bounds of |M_low(A + d)| and |M_mid(A + d)|, both over
                |M_low(A) e^(d m)|
    """
    loss, turn, log_weight = nodes[0], nodes[1], nodes[2]
    n = loss.size
    log_size, size, real, imaginary, most = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.zeros(n)
    found[:] = np.inf
    top = -np.inf
    for j in range(n):
        log_size[j] = x * loss[j] - y * turn[j] + log_weight[j]
    for j in range(first, n):
        top = max(top, log_size[j])
    for j in range(n):
        size[j] = exponential(log_size[j] - top)
    for j in range(n):
        modulus, cosine, sine = _turned(size[j], y * loss[j] + x * turn[j])
        size[j] = modulus
        real[j] = cosine * nodes[3, j] - sine * nodes[4, j]
        imaginary[j] = cosine * nodes[4, j] + sine * nodes[3, j]
    total, total_turn, mean, mean_turn = 0.0, 0.0, 0.0, 0.0
    for j in range(first, n):
        total += real[j]
        total_turn += imaginary[j]
        mean += real[j] * loss[j] - imaginary[j] * turn[j]
        mean_turn += real[j] * turn[j] + imaginary[j] * loss[j]
    square = total * total + total_turn * total_turn
    if not 0.0 < square < np.inf:
        return
    mean, mean_turn = (
        (mean * total + mean_turn * total_turn) / square,
        (mean_turn * total - mean * total_turn) / square,
    )
    log_total = top + 0.5 * math.log(square)
    moved, at_corners, mid_at_corners = np.empty(n), 0.0, 0.0
    for k in range(corners.shape[1]):
        right, up = corners[0, k], corners[1, k]
        for j in range(n):
            by = right * (loss[j] - mean) - up * (turn[j] - mean_turn)
            moved[j] = exponential(log_size[j] - log_total + by)
        mid, whole = 0.0, 0.0
        for j in range(n):
            most[j] = max(most[j], moved[j])
        for j in range(last):
            mid += moved[j]
        for j in range(first, n):
            whole += moved[j]
        at_corners, mid_at_corners = max(at_corners, whole), max(mid_at_corners, mid)
    reach, modulus = 0.0, math.hypot(x, y)
    for k in range(corners.shape[1]):
        reach = max(reach, math.hypot(corners[0, k], corners[1, k]))
    bent, linear = 0.0, 1.0 + reach * math.hypot(mean, mean_turn)
    for j in range(first, n):
        share = size[j] / math.sqrt(square)
        right, up = loss[j] - mean, turn[j] - mean_turn
        of_loss = math.sqrt(loss[j] * loss[j] + turn[j] * turn[j])
        off = _UNIT * share * (n + 24.0 + 4.0 * modulus * of_loss)
        bent += off * (linear + reach * of_loss) + 0.5 * reach * reach * (right * right + up * up) * max(share, most[j])
    found[0], found[1], found[2] = log_total, mean, mean_turn
    found[3], found[4] = min(1.0 + bent, at_corners), mid_at_corners


@inline
def _log_bound(box, x, y):
    """log of the bound of |f| on a box."""
    return box[0] + max(x * box[1], x * box[2]) - y * box[3] + max((1.0 - x) * box[4], (1.0 - x) * box[5])


@jit("f8(f8[:, ::1], f8[::1], f8, f8)")
def upper_sum(boxes, size, x, y):
    """The sum of the bounds of |f| on boxes, each times a size."""
    total = 0.0
    for i in range(size.size):
        total += size[i] * exponential(_log_bound(boxes[i], x, y))
    return total


@jit("f8(f8[:, :, :, ::1], f8[:, ::1], f8, f8, f8, f8)")
def rule_error(boxes, rate, x, y, other_x, other_y):
    """Bound of the errors of a path's rule at the exponents x + i y and at another one.

    boxes       (panels, ellipses, slices, 6), see `mechanisms.complex_moments.boxes_of`
    rate        (panels, ellipses): log of the error over the largest modulus on the ellipse

    The integrand is f or f - N h_Q, whose modulus is at most twice the larger one of the two terms.
    """
    total = 0.0
    for i in range(rate.shape[0]):
        least = np.inf
        for e in range(rate.shape[1]):
            largest = -np.inf
            for s in range(boxes.shape[2]):
                box = boxes[i, e, s]
                one, other = _log_bound(box, x, y), _log_bound(box, other_x, other_y)
                # a comparison with NaN is false
                bounded = one < np.inf and other < np.inf
                largest = max(largest, one, other, box[0] + box[4]) if bounded else np.inf
            least = min(least, largest + rate[i, e])
        total += 2.0 * exponential(least)
    return total
