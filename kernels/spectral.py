"""Characteristic functions of the Poisson-subsampled Gaussian's privacy loss, without a grid on the loss.

Legend
    k       bucket: one (noise multiplier sigma, sample rate q)
    x       the Gaussian's own variable;  g(x) = 1 - q + q exp((2x-1)/(2 sigma^2))
    loss    L = +log g (remove) or -log g (add);  sign = +1 or -1
    a       exponent of g in the tilted integrand: 1 + theta (remove), -theta (add)
    psi     N(x; 0, sigma^2) g(x)^a, the tilted law up to its mass exp(K(theta))
    w       q e^t / g, the share of the sampled part in g;  (log psi)' = (a w(x) - x) / sigma^2
    r       psi / (dL/dx): density of the tilted law on the loss axis, up to the same mass
    d       L minus its tilted mean
    ends    interval of x that holds the nodes: all of the law but for tails of no account, or that part of it which is
            wanted
    gauss   (2, points): abscissas and weights of Gauss-Legendre on [-1, 1]; without points the law is whole

The rule is the trapezoidal one for the whole law, or Gauss-Legendre on equal panels for a part of it.

All results are normalised: phi(omega) = E_theta[exp(i omega L)] of that law or part.
"""

import math

import numpy as np

from ._jit import inline, jit, pjit, prange

_LOG_SQRT_2PI = 0.9189385332046727
_TINY = 1e-300
_SUM = 128  # terms that are added up plainly
_RESTART = 32  # frequencies between two fresh evaluations of exp(i omega d)


@inline
def _log_g(x, sigma, q):
    """log g(x), accurate where g is near 1 and where it overflows."""
    t = (2.0 * x - 1.0) / (2.0 * sigma * sigma)
    if q == 1.0:
        return t
    if t > 36.0:
        return t + math.log(q) + math.log1p((1.0 - q) / q * math.exp(-t))
    y = q * math.expm1(t)
    # 1 + y would lose the digits of a small g
    return math.log1p(y) if y > -0.5 else math.log((1.0 - q) + q * math.exp(t))


@inline
def _share(x, sigma, q):
    """w(x), which grows from 0 to 1."""
    if q == 1.0:
        return 1.0
    t = (2.0 * x - 1.0) / (2.0 * sigma * sigma) + math.log(q) - math.log1p(-q)
    return 1.0 / (1.0 + math.exp(-t)) if t > 0.0 else math.exp(t) / (1.0 + math.exp(t))


@pjit("void(f8[::1], f8[::1], f8, f8, f8[:, ::1])")
def middle(sigma, q, sign, theta, ends):
    """ends[k] = an interval of x that holds every critical point x = a w(x) of psi.

    Removal: [0, a].  Addition, where a w falls: one critical point, at which bisection closes in from both sides.
    """
    for k in prange(sigma.size):
        if sign > 0.0:
            ends[k, 0], ends[k, 1] = 0.0, 1.0 + theta
            continue
        low, high = -theta * _share(0.0, sigma[k], q[k]) * (1.0 + 1e-12), 0.0
        for _ in range(60):
            x = 0.5 * (low + high)
            if x < -theta * _share(x, sigma[k], q[k]):
                low = x
            else:
                high = x
            if high - low <= 0.01 * sigma[k]:
                break
        ends[k, 0], ends[k, 1] = low - 1e-9 * sigma[k], high + 1e-9 * sigma[k]


@inline
def _log_psi(x, sigma, q, a):
    return -0.5 * (x / sigma) ** 2 + a * _log_g(x, sigma, q)


@jit("f8(f8, f8, f8, f8, f8, f8, i8, i8, f8[::1])")
def panel_error(sigma, q, theta, low, top, width, points, panels, ellipses):
    """See `error_budget.panel_error`."""
    a = 1.0 + theta
    r = 0.5 * (top - low) / panels
    log_mass = -np.inf
    for p in range(panels):
        log_mass = max(log_mass, _log_psi(low + r * (2 * p + 1), sigma, q, a))
    log_mass += math.log(2.0 * r) - 0.5 * (r / sigma) ** 2
    best = 0.0
    for rho in ellipses:
        along, off = 0.5 * r * (rho + 1.0 / rho), 0.5 * r * (rho - 1.0 / rho)
        if off >= 3.1 * sigma * sigma:
            break
        largest = -np.inf
        for p in range(panels):
            centre = low + r * (2 * p + 1)
            largest = max(largest, _log_psi(centre - along, sigma, q, a), _log_psi(centre + along, sigma, q, a))
        growth = 0.5 * ((along / sigma) ** 2 + (off / sigma) ** 2) + width * off / (sigma * sigma)
        rate = math.log(64.0 / 15.0 * r / (1.0 - 1.0 / rho**2)) - (2.0 * points - 2.0) * math.log(rho)
        best = min(best, math.log(panels) + largest + growth + rate - log_mass)
    return math.exp(best)


@pjit("void(f8[::1], f8[::1], f8, f8[:, ::1], f8, i8, i8, f8[::1], f8, i8[::1], f8[::1])")
def choose_panels(sigma, q, theta, ends, width, points, limit, ellipses, tolerance, panels, error):
    """The number of panels of the interval at which the error falls to the tolerance; limit + 1 if none does."""
    for k in prange(sigma.size):
        n = 2
        error[k] = 1.0
        while n <= limit and q[k] < 1.0:
            error[k] = panel_error(sigma[k], q[k], theta, ends[k, 0], ends[k, 1], width, points, n, ellipses)
            if error[k] <= tolerance:
                break
            n = n * 7 // 5 + 1
        panels[k] = n if error[k] <= tolerance else limit + 1


@inline
def _dot(weight, values):
    """Sum of products, in blocks: the round-off is that of `_additions` additions, not of one for each term."""
    total = 0.0
    for start in range(0, values.size, _SUM):
        total += np.dot(weight[start : start + _SUM], values[start : start + _SUM])
    return total


@inline
def _additions(n):
    return min(n, _SUM + n // _SUM + 1.0)


@inline
def _place(low, high, gauss, x, log_h):
    """Nodes and the logarithms of their weights on [low, high]: a uniform grid, or panels."""
    n = x.size
    points = gauss.shape[1]
    if points == 0:
        step = (high - low) / (n - 1)
        for j in range(n):
            x[j] = low + j * step
            log_h[j] = math.log(step)
        return
    half = 0.5 * (high - low) / (n // points)
    for j in range(n):
        x[j] = low + half * (2 * (j // points) + 1 + gauss[0, j % points])
        log_h[j] = math.log(half * gauss[1, j % points])


@inline
def _outside(sigma, low, high, gauss):
    """N(0, sigma^2)'s mass outside of a part."""
    if gauss.shape[1] == 0:
        return 0.0
    return 0.5 * (math.erfc(high / sigma * math.sqrt(0.5)) + math.erfc(-low / sigma * math.sqrt(0.5)))


@inline
def _tilted_nodes(sigma, q, sign, theta, outside, x, log_h, log_g, weight):
    """Fill log_g and the tilted probabilities at the nodes; return K(theta), the kept range, K's round-off in units.

    outside = N(0, sigma^2)'s mass outside of the part.

    The unit of round-off is 2^-53: each term of a sum carries the error of its exponent, (x/sigma)^2 / 2 + |a log g|,
    and one unit for each addition.
    """
    n = x.size
    terms = np.empty(n)
    ones = np.ones(n)
    additions = _additions(n)
    a = 1.0 + theta if sign > 0 else -theta
    top = -np.inf
    for j in range(n):
        log_g[j] = _log_g(x[j], sigma, q)
        weight[j] = -0.5 * (x[j] / sigma) ** 2 - _LOG_SQRT_2PI - math.log(sigma) + log_h[j] + a * log_g[j]
        top = max(top, weight[j])
    units = 0.0
    # K = log E[g^a].  Near 0 it is summed as E[expm1(a log g)], less the mass outside: the exact mass 1 never enters,
    # and the absolute error shrinks with the step.  Far from 0 the largest exponent is taken out.
    if top < 30.0 and outside < 0.5:
        for j in range(n):
            e = a * log_g[j]
            base = math.exp(weight[j] - e)
            terms[j] = base * math.expm1(e) if e < 1.0 else math.exp(weight[j]) - base
            units += abs(terms[j]) * (2.0 * abs(e) + (x[j] / sigma) ** 2 + additions + 40.0)
        total = _dot(ones, terms) - outside
        k = math.log1p(total)
        units /= 1.0 + total
    else:
        for j in range(n):
            terms[j] = math.exp(weight[j] - top)
            units += terms[j] * (2.0 * abs(a * log_g[j]) + (x[j] / sigma) ** 2 + additions + 40.0)
        total = _dot(ones, terms)
        k = top + math.log(total)
        units = units / total + abs(k)
    first, last = n, -1
    for j in range(n):
        weight[j] = math.exp(weight[j] - k)
        if weight[j] > 1e-21:
            first = min(first, j)
            last = j
    return k, first, last, units


@pjit("void(f8[::1], f8[::1], f8, f8, f8[:, ::1], f8[:, ::1], i8[::1], f8[::1], f8[::1])")
def log_moments(sigma, q, sign, theta, ends, gauss, nodes, k_out, units_out):
    """K(theta) = log E[exp(theta L)] and its round-off in units for every bucket.

    0 nodes ask for the Gaussian bound, K(theta) <= theta (theta + 1) / (2 sigma^2), which holds because sampling is a
    post-processing (MATH, Prop. B).
    """
    for k in prange(sigma.size):
        if q[k] == 1.0 or nodes[k] == 0:
            k_out[k] = theta * (theta + 1.0) / (2.0 * sigma[k] ** 2)
            units_out[k] = 8.0 * abs(k_out[k])
            continue
        n = nodes[k]
        x, log_h = np.empty(n), np.empty(n)
        _place(ends[k, 0], ends[k, 1], gauss, x, log_h)
        outside = _outside(sigma[k], ends[k, 0], ends[k, 1], gauss)
        value, _, _, units = _tilted_nodes(sigma[k], q[k], sign, theta, outside, x, log_h, np.empty(n), np.empty(n))
        k_out[k] = value
        units_out[k] = units


@jit("void(f8[::1], f8[::1], f8, f8, f8[::1], f8[::1])")
def _harmonics(weight, d, sums, spacing, re, im):
    """log E[exp(i omega d)] at omega = j spacing, j = 1..m, d centred; sums = sum of the weights.

    exp(i y) - 1 is carried from one frequency to the next, never exp(i y): its error is relative to |y|, so that the
    error of the logarithm shrinks with the step and ten million steps keep their digits.  It is evaluated afresh every
    so often, before the errors of the recurrence add up.
    """
    n = d.size
    cos_d = np.empty(n)
    sin_d = np.empty(n)
    cos_y = np.zeros(n)
    sin_y = np.zeros(n)
    for i in range(n):
        half = math.sin(0.5 * spacing * d[i])
        cos_d[i] = -2.0 * half * half
        sin_d[i] = math.sin(spacing * d[i])
    for j in range(re.size):
        if j % _RESTART == 0:
            omega = (j + 1) * spacing
            for i in range(n):
                half = math.sin(0.5 * omega * d[i])
                cos_y[i] = -2.0 * half * half
                sin_y[i] = math.sin(omega * d[i])
        else:
            for i in range(n):
                c, s, cd, sd = cos_y[i], sin_y[i], cos_d[i], sin_d[i]
                cos_y[i] = c * cd - s * sd + c + cd
                sin_y[i] = s * cd + c * sd + s + sd
        c = _dot(weight, cos_y) / sums
        s = _dot(weight, sin_y) / sums
        excess = 2.0 * c + c * c + s * s
        re[j] = 0.5 * (math.log1p(excess) if excess > -0.5 else math.log(max((1.0 + c) ** 2 + s * s, _TINY)))
        im[j] = math.atan2(s, 1.0 + c)


@pjit("void(f8[::1], f8[::1], f8, f8, f8[:, ::1], f8[:, ::1], f8, i8[::1], f8[:, ::1], f8[:, ::1], f8[:, ::1])")
def spectrum(sigma, q, sign, theta, ends, gauss, spacing, nodes, moments, re, im):
    """Centred log phi at omega = spacing, 2 spacing, ..., for every bucket.

    moments[k] = K, mean, round-off of K in units, E_theta|d|, E_theta[|d| (error of a weight in units)], mass of the
    nodes left out, and the ends of the interval of x that holds all but 1e-12 of the tilted law.
    """
    for k in prange(sigma.size):
        if q[k] == 1.0:
            variance = 1.0 / sigma[k] ** 2
            moments[k, 0] = theta * (theta + 1.0) * variance / 2.0
            moments[k, 1] = (theta + 0.5) * variance
            moments[k, 2] = 8.0 * moments[k, 0]
            moments[k, 3] = math.sqrt(variance)
            moments[k, 4] = 8.0 * moments[k, 3]
            moments[k, 5:] = 0.0
            for j in range(re.shape[1]):
                re[k, j] = -0.5 * variance * ((j + 1) * spacing) ** 2
                im[k, j] = 0.0
            continue
        n = nodes[k]
        a = 1.0 + theta if sign > 0 else -theta
        x, log_h = np.empty(n), np.empty(n)
        _place(ends[k, 0], ends[k, 1], gauss, x, log_h)
        log_g = np.empty(n)
        weight = np.empty(n)
        outside = _outside(sigma[k], ends[k, 0], ends[k, 1], gauss)
        value, first, last, units = _tilted_nodes(sigma[k], q[k], sign, theta, outside, x, log_h, log_g, weight)
        w = weight[first : last + 1].copy()
        d = sign * log_g[first : last + 1]
        sums = _dot(np.ones(w.size), w)
        mean = _dot(w, d) / sums
        d = d - mean
        residual = _dot(w, d) / sums
        d = d - residual
        mean += residual
        _harmonics(w, d, sums, spacing, re[k], im[k])
        spread = 0.0
        weighted = 0.0
        inner, outer = n, -1
        for j in range(first, last + 1):
            part = weight[j] * abs(d[j - first])
            spread += part
            weighted += part * (2.0 * abs(a * log_g[j]) + (x[j] / sigma[k]) ** 2 + _additions(w.size) + 40.0)
            if weight[j] > 1e-14:
                inner = min(inner, j)
                outer = j
        moments[k, 0] = value
        moments[k, 1] = mean
        moments[k, 2] = units
        moments[k, 3] = spread
        moments[k, 4] = weighted
        moments[k, 5] = max(weight[:first].sum() + weight[last + 1 :].sum(), _TINY)
        moments[k, 6] = x[max(inner - 1, 0)]
        moments[k, 7] = x[outer + 1] if outer + 1 < n else 2.0 * x[n - 1] - x[n - 2]
        if gauss.shape[1] > 0:
            moments[k, 7] = min(moments[k, 7], ends[k, 1])
