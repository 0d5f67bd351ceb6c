"""The Plancherel inner product, person by person, and the bisection for epsilon on top of it.

Legend
    i            person;  f = frequency index 0..m, omega_f = f * spacing
    exponents    (people, 10 + 2 m or more): counts @ table.  Columns: K, mean, log envelope beyond the band, error of
                 phi at every frequency, round-off of K, -log1p(-mass at +infinity), offset of the lattice, error of phi
                 per unit of frequency, these two errors relative to phi; then Re log phi and Im log phi at f = 1..m,
                 centred at the mean.  Where steps are lotteries m + 2 more: what these add to the exponent at f = 0,
                 the logarithm of what they multiply |phi| by at most, and what they add at f = 1..m.  Of the part in
                 which some loss is large (see `large_losses`) these and, at f = 0..m each, Re R, Im R and the error of
                 R; last, R at most beyond the band
    weight       (m + 1,) complex: transform of the tilted hockey-stick weight at theta + i omega_f, over the period,
                 doubled for f > 0
    weights      sum_f |weight_f|, sum_f omega_f |weight_f|
    sizes        sum_f |a_f|, sum_f f |a_f|, a_f = weight_f exp(log phi_f); and what lotteries add to sum_f a_f
    half         (people, buckets): by how much the variance of each bucket's lotteries may be off; what that
                 does at each frequency is second (buckets, m + 1) times it (see `joining`)
    Q(epsilon)   E_theta[g(S - epsilon)], so that delta = exp(K - theta epsilon) Q
    setting      theta, spacing, period, remainder coefficient, lattice step (0: none), round-off of the matrix product
    helper       (people, 4): theta and K of the tilts that bound the aliasing from above and from below

Errors: `band` + `phi` + `sums` are absolute errors of Q, `alias` is what the period adds (only ever positive),
`kappa` an error of the exponent K - theta epsilon.
"""

import math

import numpy as np

from ._jit import inline, jit

_U = 2.0**-52
_HEAD = 10


@inline
def _inner_product(a_re, a_im, m, angle):
    """Real part of sum_f a_f exp(i f angle), and of sum_f f a_f exp(i f angle) the imaginary part (Horner)."""
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
    """out: `_inner_product`'s sum, without the other, at several angles.  The points are inside, so none waits for
    its own last product.  work (3, points)."""
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
def _added(exponent, most):
    """|exp(E) - 1| at most, |E| <= exponent and |exp(E)| <= exp(most)."""
    if exponent < 1e-3:
        return exponent * (1.0 + exponent)
    if min(exponent, most) > 700.0:
        return np.inf
    return min(math.expm1(min(exponent, 701.0)), 1.0 + math.exp(min(most, 701.0)))


@inline
def _amplitudes(row, weight_re, weight_im, m, a_re, a_im, sizes):
    """a_f = weight_f exp(log phi_f), and `sizes`."""
    a_re[0] = weight_re[0]
    a_im[0] = 0.0
    total = abs(weight_re[0])
    turning = 0.0
    extra = _HEAD + 2 * m
    lotteries = row.size > extra
    added = total * _added(row[extra], row[extra + 1]) if lotteries else 0.0
    for f in range(1, m + 1):
        size = math.exp(row[_HEAD - 1 + f])
        phase = row[_HEAD - 1 + m + f]
        c, s = size * math.cos(phase), size * math.sin(phase)
        a_re[f] = weight_re[f] * c - weight_im[f] * s
        a_im[f] = weight_re[f] * s + weight_im[f] * c
        size = abs(a_re[f]) + abs(a_im[f])
        total += size
        turning += f * size
        if lotteries and size > 0.0:
            added += size * _added(row[extra + 1 + f], row[extra + 1])
    sizes[0], sizes[1], sizes[2] = total, turning, added


@inline
def _large_amplitudes(row, weight_re, weight_im, m, c_re, c_im, sizes):
    """As `_amplitudes`, with a_f = weight_f exp(log phi_f) (exp(R_f) - 1) in the first m + 1 columns; then the same
    without the -1.  What is added has room for R's error."""
    lotteries = _HEAD + 2 * m
    large = lotteries + m + 2
    sizes[:] = 0.0
    for f in range(m + 1):
        modulus = math.exp(row[_HEAD - 1 + f]) if f > 0 else 1.0
        phase = row[_HEAD - 1 + m + f] if f > 0 else 0.0
        c, s = modulus * math.cos(phase), modulus * math.sin(phase)
        p_re = weight_re[f] * c - weight_im[f] * s
        p_im = weight_re[f] * s + weight_im[f] * c
        x, y, off = min(row[large + f], 700.0), row[large + m + 1 + f], row[large + 2 * (m + 1) + f]
        half = math.sin(0.5 * y)
        r_re = math.expm1(x) * math.cos(y) - 2.0 * half * half
        r_im = math.exp(x) * math.sin(y)
        c_re[f] = p_re * r_re - p_im * r_im
        c_im[f] = p_re * r_im + p_im * r_re
        c_re[m + 1 + f] = c_re[f] + p_re
        c_im[m + 1 + f] = c_im[f] + p_im
        size = abs(c_re[f]) + abs(c_im[f])
        sizes[0] += size
        sizes[1] += f * size
        more = _added(row[lotteries + (1 + f if f > 0 else 0)], row[lotteries + 1])
        whole = (abs(p_re) + abs(p_im)) * math.exp(x)
        sizes[2] += size * more + (1.0 + more) * whole * math.expm1(min(off, 709.0))


@inline
def _drawn(m, angle, lotteries):
    """What the variances of lotteries may do to Q: sum_k half_k |Re sum_f c_f exp(i f angle) second_kf|.

    lotteries: None, or one person's half; second_re, second_im (buckets, columns); c_re, c_im (columns); and work
    (2, columns).  The columns are the frequencies 0..m, once or twice.
    """
    if lotteries is None:
        return 0.0
    half, second_re, second_im, c_re, c_im, work = lotteries
    zr, zi = math.cos(angle), math.sin(angle)
    tr, ti = 1.0, 0.0
    for f in range(c_re.size):
        if f == m + 1:
            tr, ti = 1.0, 0.0
        work[0, f] = c_re[f] * tr - c_im[f] * ti
        work[1, f] = c_re[f] * ti + c_im[f] * tr
        tr, ti = tr * zr - ti * zi, tr * zi + ti * zr
    total = 0.0
    for k in range(half.size):
        if half[k] > 0.0:
            change = 0.0
            for f in range(c_re.size):
                change += work[0, f] * second_re[k, f] - work[1, f] * second_im[k, f]
            total += half[k] * abs(change)
    return total


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
        t, k_t = helper[2 * side], helper[2 * side + 1]
        distance = abs(t - theta) * period
        log_c = -math.log1p(t) - t * math.log1p(1.0 / t) if t > 0.0 else 0.0
        log_ratio = k_t - t * epsilon - (k - theta * epsilon) + log_c - distance
        if log_ratio > 300.0 or not distance > 0.0:
            return np.inf
        total += math.exp(log_ratio) / -math.expm1(-distance)
    return total


@inline
def _chord(a_re, a_im, m, setting, row, epsilon):
    """Q at epsilon.  On a lattice delta is linear in e^epsilon between lattice points: the chord, scaled to epsilon."""
    theta, spacing, step, mean = setting[0], setting[1], setting[4], row[1]
    if step == 0.0:
        return _inner_product(a_re, a_im, m, spacing * (mean - epsilon))[0]
    left = row[6] + math.floor((epsilon - row[6]) / step) * step
    right = left + step
    q_left = _inner_product(a_re, a_im, m, spacing * (mean - left))[0]
    q_right = _inner_product(a_re, a_im, m, spacing * (mean - right))[0]
    t = math.expm1(epsilon - left) / math.expm1(step)
    return (1.0 - t) * math.exp(theta * (epsilon - left)) * q_left + t * math.exp(theta * (epsilon - right)) * q_right


@inline
def _root(a_re, a_im, m, setting, k, mean, log_delta, start):
    """epsilon with K - theta epsilon + log Q = log delta, by Newton's method kept inside a bracket; NaN if lost."""
    theta, spacing = setting[0], setting[1]
    low, high = -np.inf, np.inf
    x = start
    reach = 0.25 * setting[2]
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
        if abs(y - x) <= 1e-7 / theta or abs(y - x) <= 4.0 * _U * abs(x):
            return y
        x = y
    return x


@inline
def _budget(row, sizes, m, setting, weights, drawn, epsilon):
    """The error budget at one epsilon: absolute error of Q without aliasing, and kappa.

    phi: the product of the steps' phi, each at most 1 and known to (c + d omega), differs from the product of the known
    ones by at most expm1 of the sum of the errors, and expm1(x) <= x exp(largest x); or by the known product times
    expm1 of the sum of the relative errors.  The smaller of both sums over the frequencies holds.  Lotteries multiply
    the product once more.  `drawn`, what their variances may do, comes on top.
    sums: the term f has been turned by f times an angle that is known to `gemm`, and multiplied f times (Horner).
    """
    theta, spacing, gemm = setting[0], setting[1], setting[5]
    band = setting[3] * math.exp(row[2])
    phi = (row[3] * weights[0] + row[7] * weights[1]) * math.exp(min(row[3] + row[7] * m * spacing, 700.0))
    most = math.exp(min(row[8] + row[9] * m * spacing, 700.0))
    phi = min(phi, (row[8] * sizes[0] + row[9] * spacing * sizes[1]) * most) + (sizes[2] + drawn) * most
    turn = gemm * spacing * (abs(row[1]) + abs(epsilon) + abs(row[6])) + 16.0 * _U
    sums = (turn * sizes[1] + 80.0 * _U * sizes[0]) * math.exp(min(turn * m, 700.0))
    if drawn > 0.0:
        # known to the same digits
        sums *= 2.0
    kappa = row[4] + gemm * (abs(row[0]) + theta * abs(epsilon)) + 32.0 * _U
    return 1.001 * (band + phi + sums) + 1e-300, kappa


@inline
def _epsilon_bounds(a_re, a_im, m, setting, row, sizes, helper, weights, lotteries, log_delta, start, out):
    """out = lower, estimate, upper, relative band error, relative alias; False if no root was found.

    The ends are first guessed from the slope and then verified with the budget at that very epsilon; a guess that
    does not verify is doubled.
    """
    theta, spacing = setting[0], setting[1]
    k, mean = row[0], row[1]
    x = _root(a_re, a_im, m, setting, k, mean, log_delta, start)
    q, dq = _inner_product(a_re, a_im, m, spacing * (mean - x))
    slope = theta - spacing * dq / q
    if not (q > 0.0 and slope > 0.0):
        return False
    drawn = _drawn(m, spacing * (mean - x), lotteries)
    error, kappa = _budget(row, sizes, m, setting, weights, drawn, x)
    alias = _alias(helper, theta, setting[2], k, x)
    out[3] = setting[3] * math.exp(row[2]) / q
    out[4] = alias / q
    if setting[4] > 0.0:
        q = _chord(a_re, a_im, m, setting, row, x)
        x += (k - theta * x + math.log(q) - log_delta) / slope if q > 0.0 else 0.0
    out[1] = x
    infinite = -math.expm1(-row[5])
    share = infinite * math.exp(-log_delta)
    if not share < 1.0:
        return False
    move = (math.log1p(error / q) + kappa - math.log1p(-share)) / slope * 1.0001 + 8.0 * _U * abs(x) + 1e-300
    out[2] = np.inf
    for _ in range(40):
        e = x + move
        drawn = _drawn(m, spacing * (mean - e), lotteries)
        error, kappa = _budget(row, sizes, m, setting, weights, drawn, e)
        value = _chord(a_re, a_im, m, setting, row, e) + error
        if value > 0.0 and k + kappa - theta * e + math.log(value) <= log_delta + math.log1p(-share):
            out[2] = e
            break
        move *= 2.0
    out[0] = -np.inf
    if error + alias < 0.9 * q:
        move = (kappa - math.log1p(-(error + alias) / q)) / slope * 1.0001 + 8.0 * _U * abs(x) + 1e-300
        for _ in range(40):
            e = x - move
            drawn = _drawn(m, spacing * (mean - e), lotteries)
            error, kappa = _budget(row, sizes, m, setting, weights, drawn, e)
            value = _chord(a_re, a_im, m, setting, row, e) - error - _alias(helper, theta, setting[2], k, e)
            if value > 0.0 and k - kappa - theta * e + math.log(value) >= log_delta:
                out[0] = e
                break
            move *= 2.0
    return True


@inline
def _delta_bounds(a_re, a_im, m, setting, row, sizes, helper, weights, lotteries, epsilon, out):
    """out = log of lower, estimate and upper delta, relative band error, relative alias."""
    theta = setting[0]
    q = _chord(a_re, a_im, m, setting, row, epsilon)
    drawn = _drawn(m, setting[1] * (row[1] - epsilon), lotteries)
    error, kappa = _budget(row, sizes, m, setting, weights, drawn, epsilon)
    alias = _alias(helper, theta, setting[2], row[0], epsilon)
    scale = row[0] - theta * epsilon
    if not q > 0.0:
        return False
    out[3] = setting[3] * math.exp(row[2]) / q
    out[4] = alias / q
    out[1] = scale + math.log(q)
    top = scale + kappa + math.log(q + error)
    out[2] = top
    if row[5] > 0.0:
        infinite = math.log(-math.expm1(-row[5]))
        out[2] = max(top, infinite) + math.log1p(math.exp(-abs(top - infinite)))
    out[0] = scale - kappa + math.log(q - error - alias) if q > error + alias else -np.inf
    return True


@inline
def _bounds(a_re, a_im, m, setting, row, sizes, helper, weights, lotteries, asked, out):
    """One person's five numbers; NaN where nothing came out.  asked: target, start, whether epsilon is wanted."""
    target, start, solve_epsilon = asked
    if solve_epsilon:
        found = _epsilon_bounds(a_re, a_im, m, setting, row, sizes, helper, weights, lotteries, target, start, out)
    else:
        found = _delta_bounds(a_re, a_im, m, setting, row, sizes, helper, weights, lotteries, target, out)
    if not found:
        out[:] = np.nan


@jit("void(f8[:, ::1], c16[::1], f8[::1], f8[:, ::1], f8[::1], b1, f8[::1], f8[:, ::1])")
def bound_people(exponents, weight, setting, helper, target, solve_epsilon, start, out):
    """out (people, 5): lower, estimate, upper (epsilon, or log delta), relative band error, relative alias.

    target[i] = log delta (solve_epsilon) or epsilon.  NaN in all five where nothing came out.
    """
    m = weight.size - 1
    weight_re = weight.real.copy()
    weight_im = weight.imag.copy()
    weights = _weights(weight, setting[1])
    a_re = np.empty(m + 1)
    a_im = np.empty(m + 1)
    sizes = np.empty(3)
    for i in range(exponents.shape[0]):
        row = exponents[i]
        _amplitudes(row, weight_re, weight_im, m, a_re, a_im, sizes)
        asked = target[i], start[i], solve_epsilon
        _bounds(a_re, a_im, m, setting, row, sizes, helper[i], weights, None, asked, out[i])


@jit(
    "void(f8[:, ::1], c16[::1], f8[::1], f8[:, ::1], f8[::1], b1, f8[::1], f8[:, ::1], c16[:, ::1], f8[:, ::1])"
)
def bound_drawn(exponents, weight, setting, helper, target, solve_epsilon, start, half, second, out):
    """As `bound_people`, where the variances of lotteries are in doubt."""
    m = weight.size - 1
    weight_re = weight.real.copy()
    weight_im = weight.imag.copy()
    weights = _weights(weight, setting[1])
    second_re = second.real.copy()
    second_im = second.imag.copy()
    a_re = np.empty(m + 1)
    a_im = np.empty(m + 1)
    sizes = np.empty(3)
    work = np.empty((2, m + 1))
    for i in range(exponents.shape[0]):
        row = exponents[i]
        _amplitudes(row, weight_re, weight_im, m, a_re, a_im, sizes)
        drawn = half[i], second_re, second_im, a_re, a_im, work
        asked = target[i], start[i], solve_epsilon
        _bounds(a_re, a_im, m, setting, row, sizes, helper[i], weights, drawn, asked, out[i])


@jit("void(f8[:, ::1], c16[::1], f8[::1], f8[:, ::1], f8[::1], f8[:, ::1], c16[:, ::1], f8[:, ::1])")
def bound_large(exponents, weight, setting, helper, target, half, second, out):
    """As `bound_drawn`, of log delta, for the part in which some step's loss is large.

    second (buckets, 2 (m + 1)): what the variances do to log phi, and what they do to R.
    """
    m = weight.size - 1
    weight_re = weight.real.copy()
    weight_im = weight.imag.copy()
    weights = _weights(weight, setting[1])
    second_re = second.real.copy()
    second_im = second.imag.copy()
    c_re = np.empty(2 * (m + 1))
    c_im = np.empty(2 * (m + 1))
    sizes = np.empty(3)
    work = np.empty((2, 2 * (m + 1)))
    for i in range(exponents.shape[0]):
        row = exponents[i]
        _large_amplitudes(row, weight_re, weight_im, m, c_re, c_im, sizes)
        rest = row[row.size - 1]
        row[2] += rest if rest > 600.0 else math.log(math.expm1(rest) + 1e-300)
        drawn = half[i], second_re, second_im, c_re, c_im, work
        a_re, a_im = c_re[: m + 1], c_im[: m + 1]
        _bounds(a_re, a_im, m, setting, row, sizes, helper[i], weights, drawn, (target[i], 0.0, False), out[i])


@jit("void(f8[:, ::1], c16[::1], f8[::1], f8[:, ::1], f8[:, ::1], b1, f8[:, :, ::1])")
def bound_curves(exponents, weight, setting, helper, target, lower, out):
    """out (people, points, 2): log of lower and upper delta at the ascending epsilons target (people, points), all of
    them at least 0.  Without `lower` the lower ends are -inf.

    The error budget grows with epsilon: that of the last point serves all.
    """
    n, points = target.shape
    m = weight.size - 1
    theta, spacing = setting[0], setting[1]
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
        _amplitudes(row, weight_re, weight_im, m, a_re, a_im, sizes)
        if setting[4] == 0.0:
            _inner_products(a_re, a_im, m, spacing * (row[1] - target[i]), work, q)
        else:
            for j in range(points):
                q[j] = _chord(a_re, a_im, m, setting, row, target[i, j])
        error, kappa = _budget(row, sizes, m, setting, weights, 0.0, target[i, points - 1])
        infinite = math.log(-math.expm1(-row[5])) if row[5] > 0.0 else -np.inf
        for j in range(points):
            epsilon = target[i, j]
            scale = row[0] - theta * epsilon
            out[i, j, 0] = -np.inf
            out[i, j, 1] = 0.0
            if not q[j] > 0.0:
                continue
            top = scale + kappa + math.log(q[j] + error)
            if row[5] > 0.0:
                top = max(top, infinite) + math.log1p(math.exp(-abs(top - infinite)))
            if top < 0.0:
                out[i, j, 1] = top
            if lower:
                below = q[j] - error - _alias(helper[i], theta, setting[2], row[0], epsilon)
                if below > 0.0:
                    out[i, j, 0] = scale - kappa + math.log(below)
