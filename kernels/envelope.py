"""Proven upper bounds of one step's tilted characteristic function beyond a frequency, without sampling the function.

Legend: as in `characterise`, in addition
    j       cell of a fine grid in x;  mass[j] = lower bound of its tilted probability
    W       frequency;  level = index into an ascending array of frequencies
    env     log of an upper bound of sup |phi(omega)| over omega >= W

The envelope is the smallest of three bounds.

1. Pairs.  L and L' are independent losses, y = omega |L - L'|, omega in [W, rho W], rho = sqrt 2:
       1 - |phi|^2 = E[1 - cos y] >= 0.4596 E[min(1, (W |L - L'|)^2); |L - L'| <= (2 pi - 1) / (rho W)],
   because 1 - cos y >= 0.4596 min(1, y^2) for 0 <= y <= 2 pi - 1.
2. Cuts.  T is the tilted probability beyond a cut, f the density of the loss there.  Integration by parts gives
       |phi| <= 1 - T + TV(f beyond the cut, jump included) / omega.
   Without a cut, |phi| <= TV(f) / omega.
3. Shifts.  The path of integration runs along Im x = b, |b| < pi sigma^2, to a sharp end and there back to the line:
       |phi| <= exp(b^2 / (2 sigma^2)) (E[(|g(x + ib)| / g)^a exp(-omega |arg g(x + ib)|)] + |b| psi(end)).
   The sign of b is the one for which the bound falls with omega.  It falls exponentially if the sampled part of g is
   large.

A part with a lower end has cuts and pairs only.
"""

import math

import numpy as np

from ._jit import inline, jit
from ._loss import LOG_SQRT_2PI, log_g_at, log_normal, share_at

_RATIO = math.sqrt(2.0)  # of two levels
_COSINE = 0.4596  # (1 - cos 1) = 0.45969...
_ANGLES = np.array([0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.3, 1.6, 1.9, 2.2, 2.5, 2.8, 3.0])
_BEND = 0.2  # largest bend of log r within a cell; a larger one is divided into more cells
_MORE = 4  # times the least number of cells, at most
_OUTSIDE = 1e-10  # ten times the bound of the tilted mass outside of the cells
_LEAST_FALL = 1e-26  # factors are rounded up to this, so that none underflows
_LEAST_WIDTH = 1e-290  # a range of losses below this has lost its digits
_KEEP = 0.999999999  # absorbs the round-off of sums over cells


@inline
def _kept(sigma, a):
    """The share of a mass that the round-off of its exponent leaves: its terms are about (a / sigma)^2."""
    return max(_KEEP - 2.0**-48 * (1.0 + a * a) / (sigma * sigma), 1e-9)


@inline
def _cells(sigma, q, sign, theta, k, low, high, n, mass, loss, log_r):
    """Write lower bounds of the masses of n cells of [low, high], and log g and log r at their edges."""
    a = 1.0 + theta if sign > 0 else -theta
    step, kept = (high - low) / n, _kept(sigma, a)
    # (log psi)'' <= bulge: psi is at least its log-linear chord times exp(-bulge step^2 / 8).
    # The mean of a log-linear function is at least the geometric mean of its end values.
    precision = 1.0 / (sigma * sigma)
    bulge = max(0.0, 0.25 * a * precision * precision - precision)
    shrink = bulge * step * step / 8.0
    previous = 0.0
    for j in range(n + 1):
        x = low + j * step
        lg = log_g_at(x, sigma, q)
        t = (2.0 * x - 1.0) / (2.0 * sigma * sigma)
        log_psi = log_normal(x, sigma) - LOG_SQRT_2PI - math.log(sigma) + a * lg - k
        loss[j] = lg
        # dL/dx = w / sigma^2, w = q e^t / g
        log_r[j] = log_psi + 2.0 * math.log(sigma) - (math.log(q) + t - lg)
        if j > 0:
            mass[j - 1] = kept * step * math.exp(0.5 * (previous + log_psi) - shrink)
        previous = log_psi


@inline
def _pairs(mass, loss, w, prefix):
    """Lower bound of 1 - |phi|^2 over [w, _RATIO w] from pairs of cells.

    prefix[j] = sums of mass, mass u, mass u^2 over the cells before j, u = left edge of the cell, v = right edge, both
    from 0 to 1.  The losses of cells i < j are at least u_j - v_i and at most v_j - u_i apart.
    """
    n = mass.size
    near = 1.0 / w
    far = (2.0 * math.pi - 1.0) / (_RATIO * w)
    quadratic = 0.0
    plateau = 0.0
    noise = 4e-16 * n
    mid = 0
    end = 0
    for i in range(n):
        v = loss[i + 1]
        mid = max(mid, i + 1)
        while mid < n and loss[mid] - v < near and loss[mid + 1] - loss[i] <= far:
            mid += 1
        end = max(end, mid)
        while end < n and loss[end + 1] - loss[i] <= far:
            end += 1
        # cells i+1 .. mid-1 are nearer than 1/w, cells mid .. end-1 lie on the plateau of min(1, y^2)
        p0 = prefix[mid, 0] - prefix[i + 1, 0]
        p1 = prefix[mid, 1] - prefix[i + 1, 1]
        p2 = prefix[mid, 2] - prefix[i + 1, 2]
        allowance = noise * (prefix[mid, 2] + 2.0 * v * prefix[mid, 1] + v * v * prefix[mid, 0])
        quadratic += mass[i] * max(p2 - 2.0 * v * p1 + v * v * p0 - allowance, 0.0)
        plateau += mass[i] * max(prefix[end, 0] - prefix[mid, 0] - noise, 0.0)
    return _KEEP * _COSINE * 2.0 * (w * w * quadratic + plateau)


@inline
def _cuts(mass, log_r, wiggle, outside_low, outside_high, levels, bound):
    """Replace bound[level] by the best cut from the right or from the left, if smaller.

    The variation of the density r beyond a cut, with its jump at the cut, has three parts: the changes from edge to
    edge; the excess of up to three extrema inside cells (`wiggle`, relative); and the variation beyond the grid.
    """
    n = mass.size
    for side in range(2):
        tail = 0.0
        edge = log_r[n] if side == 0 else log_r[0]
        beyond = outside_high if side == 0 else outside_low
        peak = max(beyond, edge)
        r = math.exp(min(edge, 700.0))
        # beyond the grid r falls, or has at most two maxima, so that it varies by at most 4 sup r
        variation = r if beyond <= edge else 5.0 * math.exp(min(beyond, 700.0))
        for i in range(n):
            j = n - 1 - i if side == 0 else i
            tail += mass[j]
            edge = log_r[j] if side == 0 else log_r[j + 1]
            value = math.exp(min(edge, 700.0))
            peak = max(peak, math.log(max(value, r, 1e-300)))
            variation += abs(value - r)
            r = value
            total = (variation + r + 6.0 * wiggle * math.exp(min(peak, 700.0))) / _KEEP
            for level in range(levels.size):
                bound[level] = min(bound[level], 1.0 - tail + total / levels[level])
        if side == 0:
            rest = r if outside_low <= log_r[0] else 5.0 * math.exp(min(outside_low, 700.0))
            total += (rest - r) / _KEEP
            for level in range(levels.size):
                bound[level] = min(bound[level], total / levels[level])


@inline
def _psi(x, sigma, q, a, k):
    """The tilted density at x; a = 1 + theta under removal, -theta under addition."""
    return math.exp(log_normal(x, sigma) + (-LOG_SQRT_2PI - math.log(sigma) - k) + a * log_g_at(x, sigma, q))


@inline
def _shift_cells(sigma, q, a, k, low, step, n, mass, spare, inverse):
    """Write the quantities of each cell that no shift changes, see steps 1 to 3 of `_shifts`.

    mass[j] = upper bound of the tilted mass;  spare[j] = the chosen w (1 - w);  inverse[j] = (1 - w) / w, left edge.
    """
    bulge = step * step / (8.0 * sigma * sigma) * (1.0 + max(0.0, -a) / (4.0 * sigma * sigma))
    log_q, log_rest, kept = math.log(q), math.log1p(-q), _kept(sigma, a)
    previous = share = 0.0
    for j in range(n + 1):
        x = low + j * step
        psi = _psi(x, sigma, q, a, k)
        t = (2.0 * x - 1.0) / (2.0 * sigma * sigma) + log_q - log_rest
        w = share_at(t)
        if j < n:
            inverse[j] = math.exp(min(-t, 700.0))
        if j > 0:
            mass[j - 1] = 0.5 * step * (previous + psi) * math.exp(bulge) / kept
            left, right = share * (1.0 - share), w * (1.0 - w)
            spare[j - 1] = min(left, right) if a > 0.0 else 0.25 if share < 0.5 < w else max(left, right)
        previous, share = psi, w


@inline
def _shifts(sigma, q, a, k, low, step, n, top, levels, bound):
    """Replace bound[level] by the best shift by phi = b / sigma^2 in `_ANGLES`, if smaller.

    top is the part's end, or inf.

    1. In a cell psi is at most its log-linear chord times exp(step^2 / (8 sigma^2) (1 + max(0, -a) / (4 sigma^2))).
    2. arg g grows with x, so its value at the left edge bounds it from below in the cell.
    3. |g(x + ib)|^2 = g^2 (1 - 2 w (1 - w) (1 - cos phi)).  w (1 - w) has one maximum, 1/4.  Each cell takes the value
       of w (1 - w) that makes the bound larger.
    4. The tilted mass outside of the cells is below `_OUTSIDE`.
    5. Levels ascend by sqrt 2.  So the factors exp(-level arg g) of a level are the squares of those two levels before.
    """
    mass, spare, inverse = np.empty(n), np.empty(n), np.empty(n)
    tilted, falls, next_falls = np.empty(n), np.empty(n), np.empty(n)
    _shift_cells(sigma, q, a, k, low, step, n, mass, spare, inverse)
    end = _psi(top, sigma, q, a, k) if top < np.inf else 0.0
    for phi in _ANGLES:
        b = phi * sigma * sigma
        log_growth = -log_normal(b, sigma)
        # |g(x + ib)| / g is at least cos(phi / 2)
        log_outside = math.log(_OUTSIDE) + max(0.0, -a) * -math.log(math.cos(0.5 * phi))
        if log_growth + log_outside > 0.0:
            break
        base, growth = math.exp(log_outside) + b * end, math.exp(log_growth)
        # every sum is at least its first term
        number = levels.size
        while number > 0 and bound[number - 1] <= base * growth / _KEEP:
            number -= 1
        if number == 0:
            continue
        sine, cosine = math.sin(phi), math.cos(phi)
        for j in range(n):
            tilted[j] = mass[j] * ((1.0 - 2.0 * spare[j] * (1.0 - cosine)) ** (0.5 * a) / _KEEP)
            argument = math.atan2(sine, inverse[j] + cosine) * _KEEP
            falls[j] = math.exp(-levels[0] * argument)
            next_falls[j] = math.exp(-levels[min(1, levels.size - 1)] * argument)
        # four sums at once, because each addition waits for the one before it
        for level in range(0, number, 4):
            first = second = third = fourth = base
            for j in range(n):
                p, f, g = tilted[j], falls[j], next_falls[j]
                first += p * f
                second += p * g
                f = max(f * f, _LEAST_FALL)
                g = max(g * g, _LEAST_FALL)
                third += p * f
                fourth += p * g
                falls[j] = max(f * f, _LEAST_FALL)
                next_falls[j] = max(g * g, _LEAST_FALL)
            sums = first, second, third, fourth
            for i in range(min(4, number - level)):
                bound[level + i] = min(bound[level + i], sums[i] * growth / _KEEP)


@inline
def _log_r_beyond(sigma, q, sign, theta, k, start, stop, n):
    """Upper bound of log sup r on [start, stop] from n cells; (log r)'' >= -dip bounds log r between the edges."""
    a = 1.0 + theta if sign > 0 else -theta
    step = (stop - start) / n
    precision = 1.0 / (sigma * sigma)
    dip = precision + 0.25 * max(0.0, -(1.0 + a)) * precision * precision
    top = -np.inf
    for j in range(n + 1):
        x = start + j * step
        lg = log_g_at(x, sigma, q)
        t = (2.0 * x - 1.0) / (2.0 * sigma * sigma)
        top = max(top, log_normal(x, sigma) - LOG_SQRT_2PI + math.log(sigma) + (1.0 + a) * lg - math.log(q) - t - k)
    return top + dip * step * step / 8.0


@jit("void(f8[::1], f8[::1], f8, f8[::1], f8[:, ::1], f8[::1], f8[:, ::1], i8, f8[::1], f8[:, ::1])", interpreted=2)
def envelope(sigma, q, sign, theta, part, k, span, cells, levels, env):
    """Write env[bucket, level] for every bucket.

    cells = least number of cells;  k = K(theta) of each bucket;  span[bucket] = an interval of x outside of which the
    tilted mass is at most 1e-11;  levels ascend by `_RATIO`.  Beyond the last level only cuts and shifts hold, because
    both fall with the frequency.
    """
    for b in range(sigma.size):
        if q[b] == 1.0:
            for level in range(levels.size):
                env[b, level] = log_normal(levels[level], sigma[b])
            continue
        s = sigma[b]
        a = 1.0 + theta[b] if sign > 0 else -theta[b]
        low, high = span[b, 0], span[b, 1]
        # r has its critical points in [min(-1, a), max(-1, a)] and falls outside of this interval.
        far_low, far_high = min(-1.0, a), max(-1.0, a)
        far_low, far_high = max(far_low, part[b, 0]), min(far_high, part[b, 1])
        # between two edges log r rises above or falls below its chord by at most bend step^2 / 8
        precision = 1.0 / (s * s)
        dip = precision + 0.25 * max(0.0, -(1.0 + a)) * precision * precision
        bend = max(dip, 0.25 * (1.0 + a) * precision * precision - precision)
        n = 2 * math.ceil(0.5 * min(max((high - low) * math.sqrt(bend / (8.0 * _BEND)), cells), _MORE * cells))
        step = (high - low) / n
        wiggle = math.expm1(bend * step * step / 8.0)
        mass, loss, log_r = np.empty(n), np.empty(n + 1), np.empty(n + 1)
        _cells(s, q[b], sign, theta[b], k[b], low, high, n, mass, loss, log_r)
        outside_low = log_r[0]
        outside_high = log_r[n]
        if far_low < low:
            outside_low = max(outside_low, _log_r_beyond(s, q[b], sign, theta[b], k[b], far_low, low, n))
        if far_high > high:
            outside_high = max(outside_high, _log_r_beyond(s, q[b], sign, theta[b], k[b], high, far_high, n))
        # losses in units of their range, which rare steps make as small as numbers are
        width = loss[n] - loss[0]
        if not width > _LEAST_WIDTH:
            env[b, :] = 0.0
            continue
        first = loss[0]
        for j in range(n + 1):
            loss[j] = (loss[j] - first) / width
            log_r[j] += math.log(width)
        scaled = levels * width
        bound = np.ones(levels.size)
        _cuts(mass, log_r, wiggle, outside_low + math.log(width), outside_high + math.log(width), scaled, bound)
        if part[b, 0] == -np.inf:
            # shifts cost most, and are the least sensitive to the cells
            _shifts(s, q[b], a, k[b], low, 2.0 * step, n // 2, part[b, 1], levels, bound)
        prefix = np.zeros((n + 1, 3))
        for j in range(n):
            u = loss[j]
            prefix[j + 1, 0] = prefix[j, 0] + mass[j]
            prefix[j + 1, 1] = prefix[j, 1] + mass[j] * u
            prefix[j + 1, 2] = prefix[j, 2] + mass[j] * u * u
        narrow = _pairs(mass, loss, 0.1, prefix) * 100.0
        running = bound[levels.size - 1]
        for i in range(levels.size):
            level = levels.size - 1 - i
            w = scaled[level]
            if i > 0:
                if w <= 1.0 / _RATIO:
                    square = narrow * w * w
                elif bound[level] > 0.5:
                    square = _pairs(mass, loss, w, prefix)
                else:
                    square = 0.0
                shell = min(math.sqrt(max(1.0 - square, 0.0)), bound[level])
                running = max(running, shell)
            env[b, level] = math.log(max(min(running, 1.0), 1e-300))
