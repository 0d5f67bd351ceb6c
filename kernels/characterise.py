"""Characteristic functions of the Poisson-subsampled Gaussian's privacy loss, without a grid on the loss.

Legend
    k       row: one (noise multiplier sigma, sample rate q, tilt theta)
    x       the Gaussian's own variable;  g(x) = 1 - q + q exp((2x-1)/(2 sigma^2))
    loss    L = +log g (remove) or -log g (add);  sign = +1 or -1
    a       exponent of g in the tilted integrand: 1 + theta (remove), -theta (add)
    psi     N(x; 0, sigma^2) g(x)^a, the tilted density before division by its mass exp(K(theta))
    w       q e^t / g, the share of the sampled part in g;  (log psi)' = (a w(x) - x) / sigma^2
    r       psi / (dL/dx): tilted density on the loss axis, before division by the same mass
    d       L minus its tilted mean
    part    (low, high): the x of the part of the distribution to integrate; (-inf, inf) is the whole
    ends    interval of x that holds the nodes;  `mechanisms.quadrature.tail_error` bounds the mass beyond
    gauss   (2, points): abscissas and weights of Gauss-Legendre on [-1, 1];  no points: the trapezoidal rule

The rule is the trapezoidal rule for the whole distribution, and Gauss-Legendre on equal panels for a part; or for the
whole distribution under addition, where the trapezoidal rule would need many nodes.

All results are normalised: phi(omega) = E_theta[exp(i omega L)] over the part, which
`mechanisms.exponential_sums` adds up.
"""

import math

import numpy as np

from . import _columns as c
from ._jit import inline, jit
from ._loss import LOG_SQRT_2PI, SQRT_HALF, log_g_at, log_normal, sampled_share

_TINY = 1e-300


@jit("void(f8[::1], f8[::1], f8, f8[::1], f8[:, ::1], f8, f8[:, ::1])", interpreted=512)
def interval(sigma, q, sign, theta, part, deviations, ends):
    """Write an interval of x that holds the tilted part to ends[k].

    The interval reaches `deviations` standard deviations beyond all maxima of the tilted density, or to the part's
    ends.
    `mechanisms.quadrature.tail_error` bounds the mass beyond it.
    """
    reach = deviations * sigma
    for k in range(sigma.size):
        low, high = 0.0, 1.0 + theta[k]
        if sign > 0.0:
            ends[k, 0], ends[k, 1] = low - reach[k], high + reach[k]
            if part[k, 0] > -np.inf or part[k, 1] < np.inf:
                ends[k, 0], ends[k, 1] = max(part[k, 0], ends[k, 0]), part[k, 1]
            continue
        low, high = -theta[k] * sampled_share(0.0, sigma[k], q[k]) * (1.0 + 1e-12), 0.0
        for _ in range(60):
            x = 0.5 * (low + high)
            if x < -theta[k] * sampled_share(x, sigma[k], q[k]):
                low = x
            else:
                high = x
            if high - low <= 0.01 * sigma[k]:
                break
        ends[k, 0], ends[k, 1] = low - reach[k] * (1.0 + 1e-9), high + reach[k] * (1.0 + 1e-9)


@inline
def _log_psi(x, sigma, q, a):
    return log_normal(x, sigma) + a * log_g_at(x, sigma, q)


@inline
def _turn(x, sigma, q, phi):
    """Upper bound of |arg g| left of x and less than phi sigma^2 off the real line, phi <= pi."""
    t = (2.0 * x - 1.0) / (2.0 * sigma * sigma) + math.log(q) - math.log1p(-q)
    r = math.exp(min(t, 700.0))
    # the angle of 1 + r exp(i p) grows with r, and with p until cos p = -r; there it is arcsin(r)
    return math.atan2(r * math.sin(phi), 1.0 + r * math.cos(phi)) if math.cos(phi) >= -r else math.asin(r)


@inline
def _spare(x, sigma, q):
    """Upper bound of w (1 - w) left of x."""
    w = sampled_share(x, sigma, q)
    return w * (1.0 - w) if w < 0.5 else 0.25


@inline
def _curvature(x, sigma, q, sign, theta):
    """Upper bound of -sigma^2 (log psi)'' left of x."""
    return 1.0 if sign > 0.0 else 1.0 + theta * _spare(x, sigma, q) / (sigma * sigma)


@inline
def _log_mass(centre, r, sigma, q, sign, theta):
    """Lower bound of the log of psi's integral over a panel: step 6 of `panel_error`."""
    a = 1.0 + theta if sign > 0.0 else -theta
    fall = _curvature(centre + r, sigma, q, sign, theta) * log_normal(r, sigma)
    return _log_psi(centre, sigma, q, a) + math.log(2.0 * r) + fall


@inline
def _log_height(centre, along, off, sigma, q, sign, theta, width):
    """Upper bound of log |psi(z) g(z)^(i omega)|, |omega| <= width, at most `along` from the centre and `off` the line.

    Steps 3 to 5 of `panel_error`.
    """
    a = 1.0 + theta if sign > 0.0 else -theta
    end, phi = centre + along, off / (sigma * sigma)
    height = max(_log_psi(centre - along, sigma, q, a), _log_psi(end, sigma, q, a))
    height -= _curvature(end, sigma, q, sign, theta) * log_normal(along, sigma) + log_normal(off, sigma)
    if sign < 0.0:
        height -= 0.5 * theta * math.log1p(-2.0 * _spare(end, sigma, q) * (1.0 - math.cos(phi)))
    return height + width * _turn(end, sigma, q, phi) if width > 0.0 else height


@inline
def panel_error(sigma, q, sign, theta, low, top, width, points, panels, ellipses, tolerance):
    """Bound the error of phi(omega), |omega| <= width, by Gauss-Legendre on equal panels of [low, top].

    The error is absolute, in the normalised phi, and at most 1; it is 1 if it exceeds the tolerance.  n = `points` is
    the number of nodes of one panel, r its half-width.

    1. On [-1, 1] the n-point rule errs by at most (64 / 15) M rho^(2 - 2 n) / (1 - rho^-2), if the integrand is at most
       M in modulus on the ellipse with foci -1, 1 and half-axes (rho +- 1 / rho) / 2.
    2. On a panel this ellipse reaches A = r (rho + 1 / rho) / 2 along the real line and B = r (rho - 1 / rho) / 2 off
       it.  The integrand is analytic for B < pi sigma^2.
    3. Off the line the integrand grows as in `mechanisms.quadrature`: the normal density by at most
       exp(B^2 / (2 sigma^2)), |g| not at all, and exp(i omega log g) by at most exp(width |arg g|).  Under addition
       |g|^-theta grows, too: |g(x + iy)|^2 = g(x)^2 (1 - 2 w (1 - w) (1 - cos(y / sigma^2))).
    4. |arg g| is bounded panel by panel (`_turn`).  Write g / (1 - q) = 1 + s exp(i phi).  Its angle grows with s, and
       with phi until cos phi = -s, where it is arcsin(s).  Left of the x where sampling matters, s is small and so is
       the angle.
    5. Along the line (log psi)'' >= -c / sigma^2; c = 1 under removal, c = 1 + theta max w (1 - w) / sigma^2 under
       addition.  So on an interval of length 2 A, log psi exceeds the larger of its end values by at most
       c A^2 / (2 sigma^2).
    6. By the same inequality the mass of a panel is at least psi(centre) 2 r exp(-c r^2 / (2 sigma^2)).  The
       normalising mass is at least that of the heaviest panel.
    7. The error is at most the number of panels times the largest bound of one panel, over the mass of step 6.  The
       first ellipse that meets the tolerance counts, the largest one first.

    References
    ----------
    Trefethen, "Approximation Theory and Approximation Practice", Theorem 19.3, for step 1.
    """
    r = 0.5 * (top - low) / panels
    log_mass, heaviest = -np.inf, 0
    for p in range(panels):
        mass = _log_mass(low + r * (2 * p + 1), r, sigma, q, sign, theta)
        if mass > log_mass:
            log_mass, heaviest = mass, p
    goal = math.log(tolerance)
    for e in range(ellipses.size):
        rho = ellipses[ellipses.size - 1 - e]
        along, off = 0.5 * r * (rho + 1.0 / rho), 0.5 * r * (rho - 1.0 / rho)
        if off >= 3.1 * sigma * sigma:
            continue
        rate = math.log(64.0 / 15.0 * r / (1.0 - 1.0 / rho**2)) - (2.0 * points - 2.0) * math.log(rho)
        rate += math.log(panels) - log_mass
        # most ellipses fail at the heaviest panel
        largest = _log_height(low + r * (2 * heaviest + 1), along, off, sigma, q, sign, theta, width)
        for p in range(panels):
            if largest + rate > goal:
                break
            largest = max(largest, _log_height(low + r * (2 * p + 1), along, off, sigma, q, sign, theta, width))
        if largest + rate <= goal:
            return math.exp(largest + rate)
    return 1.0


@jit("void(f8[::1], f8[::1], f8, f8[::1], f8[:, ::1], f8, i8, i8, f8[::1], f8, i8[::1], f8[::1])")
def choose_panels(sigma, q, sign, theta, ends, width, points, limit, ellipses, tolerance, panels, error):
    """Write the number of panels at which the error falls to the tolerance, and that error; limit + 1 if none does."""
    for k in range(sigma.size):
        n = 2
        error[k] = 1.0
        while n <= limit and q[k] < 1.0:
            error[k] = panel_error(
                sigma[k], q[k], sign, theta[k], ends[k, 0], ends[k, 1], width, points, n, ellipses, tolerance
            )
            if error[k] <= tolerance:
                break
            n = n * 7 // 5 + 1
        panels[k] = n if error[k] <= tolerance else limit + 1


@inline
def _sum(values):
    """Sum of an array, in which what each addition loses is added up as well: the round-off is two units."""
    total, lost = 0.0, 0.0
    for value in values:
        before = total
        total = before + value
        kept = total - before
        lost += (before - (total - kept)) + (value - kept)
    return total + lost


@inline
def _place(low, high, gauss, x, log_h):
    """Write the nodes on [low, high] and the logarithms of their weights: a uniform grid, or panels."""
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
def _outside(sigma, part):
    """Share of N(0, sigma^2) outside of the part, if the part begins at -inf; else 1, the trivial bound."""
    return 1.0 if part[0] > -np.inf else 0.5 * math.erfc(part[1] / sigma * SQRT_HALF)


@inline
def _tilted_nodes(sigma, q, sign, theta, part, ends, gauss, x, log_g, weight, carried):
    """Fill the nodes, log_g, the tilted probabilities and their round-off; return K(theta), the kept range and K's
    round-off.

    The unit of round-off is 2^-53.  Each term of a sum carries the error of its exponent,
    (x / sigma)^2 / 2 + |a log g|, and two units for the sum.  The error of t is three units of |t|.
    log g inherits the errors of t and of log q, each times w.
    """
    n = x.size
    _place(ends[0], ends[1], gauss, x, weight)
    outside = _outside(sigma, part)
    terms = np.empty(n)
    a = 1.0 + theta if sign > 0 else -theta
    log_scale = LOG_SQRT_2PI + math.log(sigma)
    log_q = abs(math.log(q))
    top = -np.inf
    for j in range(n):
        log_g[j] = log_g_at(x[j], sigma, q)
        exponent = log_normal(x[j], sigma)
        weight[j] += exponent - log_scale + a * log_g[j]
        of_g = 2.0 * abs(log_g[j])
        of_g += sampled_share(x[j], sigma, q) * (3.0 * abs(2.0 * x[j] - 1.0) / (2.0 * sigma * sigma) + log_q)
        carried[j] = abs(a) * of_g - 2.0 * exponent + 44.0
        top = max(top, weight[j])
    # K = log E[g^a].  If K is near 0, the sum is E[expm1(a log g)] less the mass outside.  The exact mass 1 never
    # enters it, so the absolute error shrinks with K.  If K is far from 0, the largest exponent is factored out.
    units = 0.0
    total = -1.0
    if top < 30.0 and outside < 0.5:
        for j in range(n):
            e = a * log_g[j]
            base = math.exp(weight[j] - e)
            terms[j] = base * math.expm1(e) if e < 1.0 else math.exp(weight[j]) - base
            units += abs(terms[j]) * carried[j]
        units += outside * (20.0 - 12.0 * log_normal(min(part[1], 40.0 * sigma), sigma))
        total = _sum(terms) - outside
    if total > -0.5:
        k = math.log1p(total)
        units /= 1.0 + total
    else:
        units = 0.0
        for j in range(n):
            terms[j] = math.exp(weight[j] - top)
            units += terms[j] * carried[j]
        total = _sum(terms)
        k = top + math.log(total)
        units = units / total + abs(k)
    first, last = n, -1
    for j in range(n):
        weight[j] = math.exp(weight[j] - k)
        if weight[j] > 1e-21:
            first = min(first, j)
            last = j
    return k, first, last, units


@jit(
    "void(f8[::1], f8[::1], f8, f8[::1], f8[:, ::1], f8[:, ::1], f8[:, ::1], i8[::1], f8[::1], f8[::1])",
    interpreted=64,
)
def log_moments(sigma, q, sign, theta, part, ends, gauss, nodes, k_out, units_out):
    """Write K(theta) = log E[exp(theta L)] and its round-off in units for every bucket.

    If nodes[k] is 0, the result is the bound of the unsampled Gaussian, K(theta) <= theta (theta + 1) / (2 sigma^2).
    The bound holds because sampling is a post-processing: with probability 1 - q, replace the output by noise.
    """
    for k in range(sigma.size):
        if q[k] == 1.0 or nodes[k] == 0:
            k_out[k] = theta[k] * (theta[k] + 1.0) / (2.0 * sigma[k] * sigma[k])
            units_out[k] = 8.0 * abs(k_out[k])
            continue
        work = np.empty((4, nodes[k]))
        k_out[k], _, _, units_out[k] = _tilted_nodes(
            sigma[k], q[k], sign, theta[k], part[k], ends[k], gauss, work[0], work[1], work[2], work[3]
        )


@inline
def _centred(sigma, q, sign, theta, part, ends, gauss, weight, d, moments):
    """Fill the tilted probabilities, which add up to 1, the centred losses and the moments of `weigh`.

    The nodes that are not negligible come first; returns their number.
    """
    n = d.size
    x, log_g, carried = np.empty(n), np.empty(n), np.empty(n)
    value, first, last, units = _tilted_nodes(sigma, q, sign, theta, part, ends, gauss, x, log_g, weight, carried)
    left_out = _sum(weight[:first]) + _sum(weight[last + 1 :])
    inner, outer = n, -1
    least = min(1e-14, 1e-11 / n)
    for j in range(first, last + 1):
        if weight[j] > least:
            inner = min(inner, j)
            outer = j
    kept = last + 1 - first
    for j in range(kept):
        weight[j] = weight[first + j]
        d[j] = sign * log_g[first + j]
    p, loss = weight[:kept], d[:kept]
    total = _sum(p)
    mean = _sum(p * loss) / total
    loss -= mean
    residual = _sum(p * loss) / total
    loss -= residual
    spread = 0.0
    weighted = 0.0
    for j in range(kept):
        share = p[j] * abs(loss[j])
        spread += share
        weighted += share * carried[first + j]
    p /= total
    moments[c.M_LOG_MOMENT] = value
    moments[c.M_MEAN] = mean + residual
    moments[c.M_UNITS] = units
    moments[c.M_SPREAD] = spread
    moments[c.M_WEIGHTED] = weighted
    moments[c.M_LEFT_OUT] = max(left_out, _TINY)
    moments[c.M_LOW] = x[max(inner - 1, 0)]
    moments[c.M_HIGH] = x[outer + 1] if outer + 1 < n else ends[1]
    return kept


@jit(
    "void(f8[::1], f8[::1], f8, f8[::1], f8[:, ::1], f8[:, ::1], f8[:, ::1], i8[::1], f8[:, ::1], f8[:, ::1],"
    "f8[:, ::1])",
    interpreted=2,
)
def weigh(sigma, q, sign, theta, part, ends, gauss, nodes, weight, d, moments):
    """Write the tilted probabilities of every bucket's nodes, which add up to 1, and their centred losses.

    The rates are below 1.  weight and d are (buckets, most nodes); both are 0 beyond a bucket's own nodes.
    moments[k] = K, mean, round-off of K in units, E_theta|d|, E_theta[|d| (error of a weight in units)], mass of the
    nodes left out, and the ends of an interval of x outside of which the tilted mass is at most 1e-11.
    """
    for k in range(sigma.size):
        n = nodes[k]
        kept = _centred(sigma[k], q[k], sign, theta[k], part[k], ends[k], gauss, weight[k, :n], d[k, :n], moments[k])
        weight[k, kept:] = 0.0
        d[k, kept:] = 0.0
