"""The smallest mu whose Gaussian curve lies above a person's curve, point by point and from point to point.

Legend
    i, j         person; point, 0..p
    epsilon      (people, p + 1), ascending, at least 0
    log_delta    (people, p + 1): log of a bound of delta at these points
    R(t)         Mills ratio, (1 - Phi(t)) / phi(t)
    G(epsilon)   delta of the Gaussian: phi(t1) (R(t1) - R(t2)), t1 = epsilon / mu - mu / 2, t2 = t1 + mu
    tau          phi(t1) R(t2) = -dG / d epsilon: e^epsilon times the slope of G against e^epsilon
    shift        log of the factor by which all deltas of a person are multiplied, so that none underflows

delta is convex in e^epsilon and so lies below its chord.  G is convex too and lies above its tangents.  So a chord
below the tangents of G proves that delta lies below G.

**Error**

1. `_mills` and `_mills_slope` are accurate to `_ERROR`, relative.
2. G is returned as a lower and an upper bound, because R(t1) - R(t2) cancels.
3. If mu < `_SHORT`, the difference is mu times -R' at the middle.  This is a lower bound because -R' is convex.  It is
   within mu^2 / 10, relative, of an upper bound because -R''' is at most 2.1 times -R' there.
"""

import math

import numpy as np

from ._jit import inline, jit

_ERROR = 2.0**-48  # four times the largest error in comparisons with 60 digits
_STEP = 8  # nodes of the Taylor series of R per unit of t
_FAR = 40.0
_SHORT = 1e-4
_PIECES = 8  # pieces of a chord, if the tangents at its ends do not suffice
_STRIDES = (64, 8, 1)
_RAISES = 3  # steps in which mu is raised by up to a relative `loss` until G lies above the chords


def _series():
    """Taylor coefficients of R at the nodes, (-1)^n u^n / n! integrated against exp(-t u - u^2 / 2), u > 0."""
    v = np.linspace(-3.6, 3.9, 513)
    u = np.exp(v - np.exp(-v))
    weight = u * (1.0 + np.exp(-v)) * (v[1] - v[0])
    nodes = np.arange(int(_FAR) * _STEP + 1) / _STEP
    density = np.exp(-np.multiply.outer(nodes, u) - 0.5 * u * u) * weight
    columns = [(-1.0) ** n / math.factorial(n) * (density * u**n).sum(axis=1) for n in range(11)]
    return np.ascontiguousarray(np.stack(columns, axis=1))


_SERIES = _series()


@inline
def _mills(t):
    """R(t), t >= 0."""
    if t > _FAR:
        y = 1.0 / (t * t)
        return (1.0 - y * (1.0 - y * (3.0 - y * (15.0 - y * (105.0 - y * (945.0 - y * 10395.0)))))) / t
    k = int(t * _STEP + 0.5)
    h = t - k / _STEP
    value = _SERIES[k, 10]
    for n in range(10):
        value = value * h + _SERIES[k, 9 - n]
    return value


@inline
def _mills_slope(t):
    """-R'(t), t >= 0."""
    if t > _FAR:
        y = 1.0 / (t * t)
        return y * (1.0 - y * (3.0 - y * (15.0 - y * (105.0 - y * (945.0 - y * (10395.0 - y * 135135.0))))))
    k = int(t * _STEP + 0.5)
    h = t - k / _STEP
    value = 10.0 * _SERIES[k, 10]
    for n in range(9):
        value = value * h + (9 - n) * _SERIES[k, 9 - n]
    return -value


@inline
def _gauss(epsilon, mu, shift):
    """Lower and upper G, lower and upper tau, phi(t1) = dG / d mu; all times exp(shift)."""
    t1 = epsilon / mu - 0.5 * mu
    t2 = epsilon / mu + 0.5 * mu
    if t1 < -_FAR:
        whole = math.exp(shift)
        return whole * (1.0 - 2.0**-50), whole, 0.0, whole * 2.0**-50, 0.0
    # round-off of t1, of the exponent and of exp
    loss = 2.0**-50 * (4.0 + t1 * t1 + (abs(t1) + 1.0) * mu + shift)
    if not loss < 0.5:
        return 0.0, np.inf, 0.0, np.inf, 0.0
    phi = 0.3989422804014327 * math.exp(shift - 0.5 * t1 * t1)
    r2 = _mills(t2)
    tau = phi * r2
    loss += _ERROR
    if mu < _SHORT:
        middle = phi * mu * _mills_slope(epsilon / mu)
        low, high = middle * (1.0 - loss), middle * (1.0 + loss + 0.1 * mu * mu)
    elif t1 < 0.0:
        whole = math.exp(shift)
        rest = phi * (_mills(-t1) + r2)
        error = (loss + 2.0**-50) * rest + (2.0**-50 * (1.0 + shift)) * whole
        low, high = whole - rest - error, whole - rest + error
    else:
        r1 = _mills(t1)
        error = loss * (r1 - r2) + _ERROR * (r1 + r2)
        low, high = phi * (r1 - r2 - error), phi * (r1 - r2 + error)
    return max(low, 0.0), high, tau * (1.0 - loss), tau * (1.0 + loss), phi


@inline
def _newton(epsilon, goal, mu, shift):
    """The mu at which G is `goal`, up to round-off, from a smaller mu.

    log G is concave in log mu, so no step overshoots.
    """
    for _ in range(200):
        low, high, _a, _b, phi = _gauss(epsilon, mu, shift)
        g = 0.5 * (low + high)
        if not (g > 0.0 and g < np.inf and phi > 0.0):
            step = math.log(2.0)
        else:
            step = min(math.log(goal / g) * g / (phi * mu), math.log(2.0))
        mu *= math.exp(step)
        if abs(step) < 1e-10 or not mu < 1e100:
            break
    return mu


@inline
def _raise(epsilon, goal, mu, shift):
    """A mu at which G is certainly at least `goal`, from a smaller mu; inf if the search fails."""
    mu = _newton(epsilon, goal, mu, shift)
    push = 1e-11
    for _ in range(40):
        if _gauss(epsilon, mu, shift)[0] >= goal:
            return mu
        mu *= 1.0 + push
        push *= 2.0
    return np.inf


@inline
def _chord(left, right, d_left, d_right, epsilon):
    """The chord from (left, d_left) to (right, d_right) at epsilon, rounded up."""
    if epsilon <= left:
        return d_left
    if epsilon >= right:
        return d_right
    share = math.expm1(epsilon - left) / math.expm1(right - left)
    # if the share is near 1, (1 - share) has lost digits: the last term covers them
    return ((1.0 - share) * d_left + share * d_right) * (1.0 + 2.0**-48) + 2.0**-49 * d_left


@inline
def _below_tangents(e0, g0, tau0, c0, e1, g1, tau1, c1):
    """Whether the line from (e0, c0) to (e1, c1) lies below the tangents at e0 and e1.

    g0, g1, tau1: lower bounds; tau0: an upper bound.  The place where the tangents meet is rounded, so both tangents
    must reach the line there.
    """
    if g0 < c0 or g1 < c1:
        return False
    rounding = 1.0 + 2.0**-48
    fall0 = tau0 * math.expm1(e1 - e0) * rounding
    fall1 = -tau1 * math.expm1(e0 - e1) / rounding
    # as a share of the line from e0 to e1
    meet = (g0 - g1 - fall1) / (fall0 - fall1) if fall0 > fall1 else 0.0
    meet = min(max(meet, 0.0), 1.0)
    line = ((1.0 - meet) * c0 + meet * c1) * rounding
    from0 = g0 - meet * fall0 - 2.0**-50 * g0
    from1 = g1 + (1.0 - meet) * fall1 - 2.0**-50 * g1
    return min(from0, from1) >= line


@inline
def _above_chord(left, right, d_left, d_right, mu, shift):
    """Whether G certainly lies above the chord: by the tangents at its ends, else by those at `_PIECES` pieces."""
    g0, _, _, tau0, _ = _gauss(left, mu, shift)
    if g0 < d_left:
        return False
    g1, _, tau1, _, _ = _gauss(right, mu, shift)
    if _below_tangents(left, g0, tau0, d_left, right, g1, tau1, d_right):
        return True
    # if G lies below the chord anywhere, it does so first in the middle
    width = (right - left) / _PIECES
    middle = left + _PIECES // 2 * width
    if g1 < d_right or _gauss(middle, mu, shift)[0] < _chord(left, right, d_left, d_right, middle):
        return False
    e0, c0 = left, d_left
    for k in range(_PIECES):
        e1 = left + (k + 1) * width if k < _PIECES - 1 else right
        c1 = _chord(left, right, d_left, d_right, e1)
        g1, _, tau1, above1, _ = _gauss(e1, mu, shift)
        if not _below_tangents(e0, g0, tau0, c0, e1, g1, tau1, c1):
            return False
        e0, g0, tau0, c0 = e1, g1, above1, c1
    return True


@inline
def _raise_chord(left, right, d_left, d_right, mu, part, shift):
    """A mu whose G certainly lies above the chord, by relative steps that double; inf if the search fails."""
    for _ in range(60):
        if _above_chord(left, right, d_left, d_right, mu, shift):
            return mu
        mu *= 1.0 + part
        part *= 2.0
    return np.inf


@inline
def _least_at_points(e, d, mu, ceiling, shift, tangents):
    """The smallest mu that dominates all points, from a smaller mu, or a mu above ceiling; and the last point that
    raised mu, or -1.

    tangents (points, 4), written: lower G, lower and upper tau, and the mu that they belong to.

    The points are visited from right to left because most curves need a larger mu at larger epsilon: then only the last
    point raises mu.  They are visited in coarse strides first: if a curve needs a larger mu at smaller epsilon, few
    points raise mu then too.
    """
    touch = -1
    for stride in _STRIDES:
        for r in range(0, e.size, stride):
            j = e.size - 1 - r
            if not mu <= ceiling:
                return mu, touch
            low, _, tau_low, tau_high, _ = _gauss(e[j], mu, shift)
            if low < d[j]:
                mu = _raise(e[j], d[j], mu, shift)
                touch = j
                if mu < np.inf:
                    low, _, tau_low, tau_high, _ = _gauss(e[j], mu, shift)
            tangents[j, 0], tangents[j, 1], tangents[j, 2], tangents[j, 3] = low, tau_low, tau_high, mu
    return mu, touch


@inline
def _doubtful(e, d, mu, shift, tangents, chords, number):
    """Keep the chords, ascending, that do not certainly lie below the tangents at their own ends; return their number.

    A chord that lies below G does so for every larger mu.
    """
    kept = 0
    for c in range(number):
        for j in range(chords[c], chords[c] + 2):
            if tangents[j, 3] != mu:
                tangents[j, 0], _, tangents[j, 1], tangents[j, 2], _ = _gauss(e[j], mu, shift)
                tangents[j, 3] = mu
        j = chords[c]
        left, right = tangents[j], tangents[j + 1]
        if not _below_tangents(e[j], left[0], left[2], d[j], e[j + 1], right[0], right[1], d[j + 1]):
            chords[kept] = j
            kept += 1
    return kept


@jit("void(f8[:, ::1], f8[:, ::1], f8[:, ::1], f8, f8, b1, f8[:, ::1], i8[:, ::1])")
def least_mu_up(epsilon, log_delta, floor, ceiling, loss, final, out, hull):
    """Write the smallest mu, at least floor, whose G lies above each person's chords, rounded up.

    log_delta : upper bounds.
    floor (people, 2) : lower bounds of the mu that the points need, and of the mu that their chords need.
    out (people, 3) : mu that dominates all points; mu that dominates all points and all chords outside of the hull; mu
        that dominates all chords.  The third is inf if the search failed, or if there is a hull and `final` is false.
    hull (people, 3) : first and last point of the chords that need more than a relative `loss` above the points' mu,
        (0, 0) for none; the point that needs the largest mu, -1 for none.

    If a point needs mu > ceiling, the search stops and returns this mu in all three columns.
    """
    people, points = epsilon.shape
    d = np.empty(points)
    tangents = np.empty((points, 4))
    chords = np.empty(points, dtype=np.int64)
    for i in range(people):
        e = epsilon[i]
        shift = min(-0.5 * log_delta[i, points - 1], 600.0)
        for j in range(points):
            d[j] = math.exp(log_delta[i, j] + shift) * (1.0 + 2.0**-50 * (4.0 + shift - log_delta[i, j]))
        # delta(0) is at most mu / sqrt(2 pi)
        mu = max(floor[i, 0], 2.5 * d[0] * math.exp(-shift))
        mu, touch = _least_at_points(e, d, mu, ceiling, shift, tangents)
        hull[i, 0], hull[i, 1], hull[i, 2] = 0, 0, touch
        out[i, 0], out[i, 1], out[i, 2] = mu, mu, mu
        if not mu <= ceiling or not mu < np.inf:
            continue
        most = mu * (1.0 + loss)
        mu = max(mu, floor[i, 1])
        for j in range(points - 1):
            chords[j] = j
        # two tangents to a short chord cost less than `loss`
        short = mu * math.sqrt(4.1 * loss)
        left = 0
        for c in range(_doubtful(e, d, mu, shift, tangents, chords, points - 1)):
            j = chords[c]
            if e[j + 1] - e[j] <= short or not _above_chord(e[j], e[j + 1], d[j], d[j + 1], mu, shift):
                chords[left] = j
                left += 1
        out[i, 1] = mu
        goal = mu
        for part in range(1, _RAISES + 1):
            if left == 0 or goal >= most:
                break
            goal = mu + (most - mu) * part / _RAISES
            before = left
            left = _doubtful(e, d, goal, shift, tangents, chords, left)
            if left < before:
                out[i, 1] = goal
        need = goal
        for c in range(left):
            j = chords[left - 1 - c]
            if _above_chord(e[j], e[j + 1], d[j], d[j + 1], goal, shift):
                out[i, 1] = goal
                continue
            if hull[i, 1] == 0:
                hull[i, 1] = j + 1
            hull[i, 0] = j
            need = _raise_chord(e[j], e[j + 1], d[j], d[j + 1], need, loss, shift) if final else np.inf
        out[i, 2] = need if hull[i, 1] > 0 else out[i, 1]


@jit("void(f8[:, ::1], f8[:, ::1], f8[::1])")
def least_mu_down(epsilon, log_delta, out):
    """Write the largest mu whose G certainly lies below some point, rounded down; 0 if there is none.

    log_delta: lower bounds; out (people,).
    """
    people, points = epsilon.shape
    for i in range(people):
        e = epsilon[i]
        shift = 0.0
        for j in range(points):
            if log_delta[i, j] > -np.inf:
                shift = min(max(shift, -0.5 * log_delta[i, j]), 600.0)
        best = 0.0
        for j in range(points):
            if not log_delta[i, j] > -np.inf:
                continue
            goal = math.exp(log_delta[i, j] + shift) * (1.0 - 2.0**-50 * (4.0 + shift - log_delta[i, j]))
            if not goal > 0.0 or (best > 0.0 and _gauss(e[j], best, shift)[1] >= goal):
                continue
            mu = _newton(e[j], goal, max(best, goal * math.exp(-shift)), shift)
            pull = 1e-11
            for _ in range(40):
                if mu <= best or _gauss(e[j], mu, shift)[1] < goal:
                    break
                mu *= 1.0 - pull
                pull *= 2.0
            if mu > best and _gauss(e[j], mu, shift)[1] < goal:
                best = mu
        out[i] = best
