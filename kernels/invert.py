"""The Plancherel inner product of each person, and the root search for epsilon on top of it.

Legend
    i            person;  f = frequency index 0..m, omega_f = f * spacing
    row          exponents of one person, counts @ table; the columns are named in `_columns`
    setting      scalars of the table, named in `_columns`
    helper       (people, 4): two tilts that bound the aliasing, and K + log c there; named in `_columns`
    weight       (m + 1,) complex: transform of the tilted hockey-stick weight at theta + i omega_f, over the period,
                 doubled for f > 0
    weights      sum_f |weight_f|, sum_f omega_f |weight_f|
    a_f          weight_f phi_f; for large losses weight_f phi_f (exp(R_f) - 1), phi that of the small losses
    sizes        sum_f |a_f|, sum_f f |a_f|, and the error that interpolated steps add to sum_f a_f
    Q(epsilon)   E_theta[g(S - epsilon)], so that delta = exp(K - theta epsilon) Q

Errors: `band` + `phi` + `sums` are absolute errors of Q.  `band`, the error by the frequencies beyond the band, is the
table's band coefficient times the person's envelope.  `alias` is what the period adds to Q; it is never negative.
`kappa` is an error of the exponent K - theta epsilon.
"""

import math

import numpy as np

from . import _columns as c
from ._jit import inline, jit

_U = 2.0**-53  # unit round-off
_LANES = 16  # sums that Horner's rule fills at once: a few registers of a processor
_MANY = 128  # frequencies from which on this is faster
blocks = inline(c.blocks)


@inline
def _turn_and_add(b_re, b_im, c_re, c_im, re, im, a_re, a_im):
    """c = c z + b and b = b z + a in every lane, z = re + i im."""
    for l in range(_LANES):
        br, bi, cr, ci = b_re[l], b_im[l], c_re[l], c_im[l]
        c_re[l], c_im[l] = cr * re - ci * im + br, cr * im + ci * re + bi
        b_re[l], b_im[l] = br * re - bi * im + a_re[l], br * im + bi * re + a_im[l]


@inline
def _by_lanes(a_re, a_im, m, angle):
    """`_inner_product` of many frequencies; a_f is 0 for `_LANES` - 1 frequencies beyond m.

    With f = _LANES r + l, each l has its own polynomial in z = exp(i _LANES angle), with b its value and c its
    derivative.  No lane waits for another.
    """
    b_re, b_im, c_re, c_im = np.zeros((4, _LANES))
    re, im = math.cos(_LANES * angle), math.sin(_LANES * angle)
    for r in range(m // _LANES + 1):
        f = (m // _LANES - r) * _LANES
        _turn_and_add(b_re, b_im, c_re, c_im, re, im, a_re[f : f + _LANES], a_im[f : f + _LANES])
    zr, zi = math.cos(angle), math.sin(angle)
    br, bi, cr, ci = 0.0, 0.0, 0.0, 0.0
    for k in range(_LANES):
        l = _LANES - 1 - k
        # sum_r (_LANES r + l) a_f z^r
        dr = _LANES * (c_re[l] * re - c_im[l] * im) + l * b_re[l]
        di = _LANES * (c_re[l] * im + c_im[l] * re) + l * b_im[l]
        br, bi = br * zr - bi * zi + b_re[l], br * zi + bi * zr + b_im[l]
        cr, ci = cr * zr - ci * zi + dr, cr * zi + ci * zr + di
    return br, ci


@inline
def _inner_product(a_re, a_im, m, angle):
    """Real part of sum_f a_f exp(i f angle), and imaginary part of sum_f f a_f exp(i f angle), by Horner's rule."""
    if m >= _MANY:
        return _by_lanes(a_re, a_im, m, angle)
    zr, zi = math.cos(angle), math.sin(angle)
    br, bi = a_re[m], a_im[m]
    cr, ci = m * a_re[m], m * a_im[m]
    for r in range(m):
        f = m - 1 - r
        br, bi = br * zr - bi * zi + a_re[f], br * zi + bi * zr + a_im[f]
        cr, ci = cr * zr - ci * zi + f * a_re[f], cr * zi + ci * zr + f * a_im[f]
    return br, ci


@inline
def _inner_products(a_re, a_im, m, angle, work, out):
    """out = the first sum of `_inner_product` at several angles; work (3, points).

    The loop over the points is the inner one, so that consecutive operations are independent.
    """
    points = angle.size
    zr, zi, bi = work[0], work[1], work[2]
    for j in range(points):
        zr[j], zi[j] = math.cos(angle[j]), math.sin(angle[j])
        out[j], bi[j] = a_re[m], a_im[m]
    for r in range(m):
        f = m - 1 - r
        re, im = a_re[f], a_im[f]
        for j in range(points):
            x = out[j] * zr[j] - bi[j] * zi[j] + re
            bi[j] = out[j] * zi[j] + bi[j] * zr[j] + im
            out[j] = x


@inline
def _exp_error(exponent, growth):
    """An upper bound of |exp(E) - 1| if |E| <= exponent and |exp(E)| <= exp(growth)."""
    if exponent < 1e-3:
        return exponent * (1.0 + exponent)
    if min(exponent, growth) > 700.0:
        return np.inf
    return min(math.expm1(min(exponent, 701.0)), 1.0 + math.exp(min(growth, 701.0)))


@inline
def _amplitudes(row, weight_re, weight_im, m, large, a_re, a_im, sizes):
    """Fill a_f = weight_f exp(log phi_f), for large losses times exp(R_f) - 1, and `sizes`.

    With p the error of log phi and e that of R, exp(p) (exp(R + e) - 1) differs from exp(R) - 1 by at most
    |exp(p) - 1| |exp(R) - 1| + |exp(p)| |exp(R)| |exp(e) - 1|.
    """
    re, im, extra, r = blocks(m)
    interpolated = row.size > extra
    sizes[:] = 0.0
    for f in range(m + 1):
        modulus = math.exp(row[re - 1 + f]) if f > 0 else 1.0
        phase = row[im - 1 + f] if f > 0 else 0.0
        cosine, sine = modulus * math.cos(phase), modulus * math.sin(phase)
        p_re = weight_re[f] * cosine - weight_im[f] * sine
        p_im = weight_re[f] * sine + weight_im[f] * cosine
        a_re[f], a_im[f] = p_re, p_im
        if large:
            x, y = min(row[r + f], 700.0), row[r + m + 1 + f]
            half = math.sin(0.5 * y)
            r_re = math.expm1(x) * math.cos(y) - 2.0 * half * half
            r_im = math.exp(x) * math.sin(y)
            a_re[f] = p_re * r_re - p_im * r_im
            a_im[f] = p_re * r_im + p_im * r_re
        size = abs(a_re[f]) + abs(a_im[f])
        sizes[0] += size
        sizes[1] += f * size
        if interpolated:
            more = _exp_error(row[extra + (1 + f if f > 0 else 0)], row[extra + 1])
            added = size * more if size > 0.0 else 0.0
            if large:
                whole = (abs(p_re) + abs(p_im)) * math.exp(x)
                added += (1.0 + more) * whole * math.expm1(min(row[r + 2 * (m + 1) + f], 709.0))
            sizes[2] += added


@inline
def _weights(weight, spacing):
    sums = np.zeros(2)
    for f in range(weight.size):
        sums[0] += abs(weight[f])
        sums[1] += f * spacing * abs(weight[f])
    return sums


@inline
def _alias(helper, theta, period, k, epsilon):
    """Bound of the aliasing over exp(K - theta epsilon): Chernoff at two other tilts, geometric in the period."""
    total = 0.0
    for side in range(2):
        tilt = helper[c.TILT_ABOVE] if side == 0 else helper[c.TILT_BELOW]
        chernoff = helper[c.CHERNOFF_ABOVE] if side == 0 else helper[c.CHERNOFF_BELOW]
        distance = abs(tilt - theta) * period
        log_ratio = chernoff - tilt * epsilon - (k - theta * epsilon) - distance
        if log_ratio > 300.0 or not distance > 0.0:
            return np.inf
        total += math.exp(log_ratio) / -math.expm1(-distance)
    return total


@inline
def _q_at(a_re, a_im, m, setting, row, epsilon):
    """Q at epsilon.  On a grid delta is linear in e^epsilon between grid points: the chord, scaled to epsilon."""
    theta, spacing, step, mean = setting[c.THETA], setting[c.SPACING], setting[c.GRID_STEP], row[c.MEAN]
    if step == 0.0:
        return _inner_product(a_re, a_im, m, spacing * (mean - epsilon))[0]
    left = row[c.OFFSET] + math.floor((epsilon - row[c.OFFSET]) / step) * step
    right = left + step
    q_left = _inner_product(a_re, a_im, m, spacing * (mean - left))[0]
    q_right = _inner_product(a_re, a_im, m, spacing * (mean - right))[0]
    t = math.expm1(epsilon - left) / math.expm1(step)
    return (1.0 - t) * math.exp(theta * (epsilon - left)) * q_left + t * math.exp(theta * (epsilon - right)) * q_right


@inline
def _root(a_re, a_im, m, setting, k, mean, log_delta, start):
    """epsilon with K - theta epsilon + log Q = log delta, by Newton's method kept inside a bracket; NaN if lost."""
    theta, spacing = setting[c.THETA], setting[c.SPACING]
    low, high = -np.inf, np.inf
    x = start
    reach = 0.25 * setting[c.PERIOD]
    for _ in range(100):
        q, dq = _inner_product(a_re, a_im, m, spacing * (mean - x))
        if q > 0.0:
            value = k - theta * x + math.log(q) - log_delta
            slope = -theta + spacing * dq / q
        else:
            value, slope = -1.0, 0.0
        if value > 0.0:
            low = max(low, x)
        else:
            high = min(high, x)
        move = -value / slope if slope < 0.0 and q > 0.0 else (reach if value > 0.0 else -reach)
        y = x + min(max(move, -reach), reach)
        if not low < y < high:
            if low == -np.inf or high == np.inf:
                return x if abs(move) <= 1e-12 * (abs(x) + 1.0 / theta) else np.nan
            y = 0.5 * (low + high)
        # Newton's error after this step is of the order of its square; the ends are verified in any case.
        if abs(y - x) <= 1e-7 / theta or abs(y - x) <= 8.0 * _U * abs(x):
            return y
        x = y
    return x


@inline
def _error_budget(row, sizes, m, setting, weights, epsilon):
    """The error budget at one epsilon: absolute error of Q without aliasing, and kappa.

    phi: the product of the steps' phi, each at most 1 and known to (c + d omega), differs from the product of the known
    ones by at most expm1 of the sum of the errors, and expm1(x) <= x exp(largest x); or by the known product times
    expm1 of the sum of the relative errors.  Each bound holds for the sum over the frequencies; the smaller one counts.
    Interpolated steps multiply the product once more.
    sums: the term f has been turned by f times an angle that is known to `PRODUCT_ROUNDING`, and multiplied at most f
    times.
    """
    theta, spacing, rounding = setting[c.THETA], setting[c.SPACING], setting[c.PRODUCT_ROUNDING]
    band = setting[c.BAND_COEFFICIENT] * math.exp(row[c.ENVELOPE])
    width = m * spacing
    phi = row[c.ERROR] * weights[0] + row[c.ERROR_SLOPE] * weights[1]
    phi *= math.exp(min(row[c.ERROR] + row[c.ERROR_SLOPE] * width, 700.0))
    growth = math.exp(min(row[c.RELATIVE_ERROR] + row[c.RELATIVE_SLOPE] * width, 700.0))
    relative = (row[c.RELATIVE_ERROR] * sizes[0] + row[c.RELATIVE_SLOPE] * spacing * sizes[1]) * growth
    phi = min(phi, relative) + sizes[2] * growth
    turn = rounding * spacing * (abs(row[c.MEAN]) + abs(epsilon) + abs(row[c.OFFSET])) + 32.0 * _U
    sums = (turn * sizes[1] + 160.0 * _U * sizes[0]) * math.exp(min(turn * m, 700.0))
    kappa = row[c.LOG_MOMENT_ERROR] + rounding * (abs(row[c.LOG_MOMENT]) + theta * abs(epsilon)) + 64.0 * _U
    return 1.001 * (band + phi + sums) + 1e-300, kappa


@inline
def _epsilon_bounds(a_re, a_im, m, setting, row, sizes, helper, weights, log_delta, start, out):
    """Fill out for epsilon; False if no root was found.

    The ends are first guessed from the slope and then verified with the budget at that very epsilon.  A guess that
    does not verify is doubled.
    """
    theta, spacing = setting[c.THETA], setting[c.SPACING]
    k, mean = row[c.LOG_MOMENT], row[c.MEAN]
    x = _root(a_re, a_im, m, setting, k, mean, log_delta, start)
    q, dq = _inner_product(a_re, a_im, m, spacing * (mean - x))
    slope = theta - spacing * dq / q
    if not (q > 0.0 and slope > 0.0):
        return False
    error, kappa = _error_budget(row, sizes, m, setting, weights, x)
    alias = _alias(helper, theta, setting[c.PERIOD], k, x)
    out[c.BAND] = setting[c.BAND_COEFFICIENT] * math.exp(row[c.ENVELOPE]) / q
    out[c.ALIAS] = alias / q
    if setting[c.GRID_STEP] > 0.0:
        q = _q_at(a_re, a_im, m, setting, row, x)
        x += (k - theta * x + math.log(q) - log_delta) / slope if q > 0.0 else 0.0
    out[c.ESTIMATE] = x
    infinite = -math.expm1(-row[c.INFINITE])
    share = infinite * math.exp(-log_delta)
    if not share < 1.0:
        return False
    move = (math.log1p(error / q) + kappa - math.log1p(-share)) / slope * 1.0001 + 16.0 * _U * abs(x) + 1e-300
    out[c.UPPER] = np.inf
    for _ in range(40):
        e = x + move
        error, kappa = _error_budget(row, sizes, m, setting, weights, e)
        value = _q_at(a_re, a_im, m, setting, row, e) + error
        if value > 0.0 and k + kappa - theta * e + math.log(value) <= log_delta + math.log1p(-share):
            out[c.UPPER] = e
            break
        move *= 2.0
    out[c.LOWER] = -np.inf
    if error + alias < 0.9 * q:
        move = (kappa - math.log1p(-(error + alias) / q)) / slope * 1.0001 + 16.0 * _U * abs(x) + 1e-300
        for _ in range(40):
            e = x - move
            error, kappa = _error_budget(row, sizes, m, setting, weights, e)
            value = _q_at(a_re, a_im, m, setting, row, e) - error - _alias(helper, theta, setting[c.PERIOD], k, e)
            if value > 0.0 and k - kappa - theta * e + math.log(value) >= log_delta:
                out[c.LOWER] = e
                break
            move *= 2.0
    return True


@inline
def _with_infinite(log_delta, row):
    """log of delta plus the mass at +infinity."""
    if not row[c.INFINITE] > 0.0:
        return log_delta
    infinite = math.log(-math.expm1(-row[c.INFINITE]))
    return max(log_delta, infinite) + math.log1p(math.exp(-abs(log_delta - infinite)))


@inline
def _delta_bounds(a_re, a_im, m, setting, row, sizes, helper, weights, epsilon, out):
    """Fill out for log delta; False if Q is not positive."""
    theta = setting[c.THETA]
    q = _q_at(a_re, a_im, m, setting, row, epsilon)
    error, kappa = _error_budget(row, sizes, m, setting, weights, epsilon)
    alias = _alias(helper, theta, setting[c.PERIOD], row[c.LOG_MOMENT], epsilon)
    scale = row[c.LOG_MOMENT] - theta * epsilon
    if not q > 0.0:
        return False
    out[c.BAND] = setting[c.BAND_COEFFICIENT] * math.exp(row[c.ENVELOPE]) / q
    out[c.ALIAS] = alias / q
    out[c.ESTIMATE] = scale + math.log(q)
    out[c.UPPER] = _with_infinite(scale + kappa + math.log(q + error), row)
    out[c.LOWER] = scale - kappa + math.log(q - error - alias) if q > error + alias else -np.inf
    return True


@jit("void(f8[:, ::1], c16[::1], f8[::1], f8[:, ::1], f8[::1], b1, b1, f8[::1], f8[:, ::1])", interpreted=2)
def bound_people(exponents, weight, setting, helper, target, wants_epsilon, large, start, out):
    """Fill out (people, 5) with the columns LOWER .. ALIAS of `_columns`; NaN if the solve failed.

    target[i] = log delta (wants_epsilon) or epsilon; LOWER, ESTIMATE and UPPER are epsilon or log delta.  If there is
    one row of exponents, it serves everybody: several questions to one person.  large: the rows are of the part in
    which some step's loss is large; exponents is changed then.
    """
    m = weight.size - 1
    weight_re = weight.real.copy()
    weight_im = weight.imag.copy()
    weights = _weights(weight, setting[c.SPACING])
    a_re = np.zeros(m + _LANES)
    a_im = np.zeros(m + _LANES)
    sizes = np.empty(3)
    for i in range(out.shape[0]):
        row = exponents[min(i, exponents.shape[0] - 1)]
        if i < exponents.shape[0]:
            _amplitudes(row, weight_re, weight_im, m, large, a_re, a_im, sizes)
            if large:
                # beyond the band |exp(R) - 1| <= exp(|R|) - 1
                beyond = row[row.size - 1]
                row[c.ENVELOPE] += beyond if beyond > 600.0 else math.log(math.expm1(beyond) + 1e-300)
        if wants_epsilon:
            found = _epsilon_bounds(a_re, a_im, m, setting, row, sizes, helper[i], weights, target[i], start[i], out[i])
        else:
            found = _delta_bounds(a_re, a_im, m, setting, row, sizes, helper[i], weights, target[i], out[i])
        if not found:
            out[i] = np.nan


@jit("void(f8[:, ::1], c16[::1], f8[::1], f8[:, ::1], f8[:, ::1], f8[:, :, ::1])")
def bound_curves(exponents, weight, setting, helper, target, out):
    """out (people, points, 2): log of lower and upper delta at the ascending epsilons target (people, points), all of
    them at least 0.  The losses have no grid.

    The error budget grows with epsilon: the budget at the last point bounds the error at every point.
    """
    n, points = target.shape
    m = weight.size - 1
    theta, spacing = setting[c.THETA], setting[c.SPACING]
    weight_re = weight.real.copy()
    weight_im = weight.imag.copy()
    weights = _weights(weight, spacing)
    a_re = np.empty(m + 1)
    a_im = np.empty(m + 1)
    sizes = np.empty(3)
    work = np.empty((3, points))
    q = np.empty(points)
    for i in range(n):
        row = exponents[i]
        _amplitudes(row, weight_re, weight_im, m, False, a_re, a_im, sizes)
        _inner_products(a_re, a_im, m, spacing * (row[c.MEAN] - target[i]), work, q)
        error, kappa = _error_budget(row, sizes, m, setting, weights, target[i, points - 1])
        for j in range(points):
            epsilon = target[i, j]
            scale = row[c.LOG_MOMENT] - theta * epsilon
            out[i, j, 0] = -np.inf
            out[i, j, 1] = 0.0
            if not q[j] > 0.0:
                continue
            out[i, j, 1] = min(_with_infinite(scale + kappa + math.log(q[j] + error), row), 0.0)
            below = q[j] - error - _alias(helper[i], theta, setting[c.PERIOD], row[c.LOG_MOMENT], epsilon)
            if below > 0.0:
                out[i, j, 0] = scale - kappa + math.log(below)
