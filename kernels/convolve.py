"""Composition of few steps without a transform: pairs of atoms, added up in the cells of a grid of any spacing.

Legend
    a, b     two discrete losses: ascending losses la, lb with masses pa, pb under P;  an atom's Q mass is p e^-l
    knots    ascending ends of the cells of the sum;  cell k = [knots[k], knots[k + 1]]
    p, u     of a cell: sums of masses m, and of m (1 - exp(knots[k] - loss)), that is p less e^knot times the Q mass
    E        of a cell: how much the curve of the whole composition changes if the cell's losses are merged

No sum contains a subtraction, so every result has a small relative error, even a mass of 1e-100.
"""

import math

import numpy as np

from ._jit import inline, jit

BLOCK = 16  # consecutive losses of a with sums of their own, which keeps chains of additions short
_STEEP = 3.0
_BELOW = 1.0 - 2.0**-48
_SHORT = 0.03  # below, eight terms of the series of 1 - exp(-d) are exact to 1e-17


@inline
def _fall(d):
    """1 - exp(-d) for d >= 0."""
    if d < _SHORT:
        tail = 1.0 / 120.0 - d * (1.0 / 720.0 - d * (1.0 / 5040.0 - d / 40320.0))
        return d * (1.0 - d * (0.5 - d * (1.0 / 6.0 - d * (1.0 / 24.0 - d * tail))))
    return -math.expm1(-d)


@inline
def _fill_tails(loss, mass, curve, beyond):
    """Write the hockey-stick curve at the atoms, and e^loss times the Q mass from each atom on."""
    for r in range(loss.size):
        j = loss.size - 1 - r
        curve[j], beyond[j] = 0.0, mass[j]
        if r:
            step = loss[j + 1] - loss[j]
            curve[j] = curve[j + 1] + beyond[j + 1] * _fall(step)
            beyond[j] += beyond[j + 1] * math.exp(-step)


@jit("void(f8[::1], f8[::1], f8[::1], f8[::1], f8[::1], f8[::1], f8[::1])")
def compose(la, pa, lb, pb, knots, p, u):
    """Write p and u of the cells for the sum of two losses; every sum must lie between the first and the last knot.

    The first and the last cell are wide and hold many pairs: for these cells, sums over b are made once in advance.
    """
    n, last = lb.size, knots.size - 2
    before, before_fall = np.zeros(n + 1), np.zeros(n + 1)
    for j in range(n):
        before[j + 1] = before[j] + pb[j]
        before_fall[j + 1] = before_fall[j] + pb[j] * _fall(lb[j] - lb[0])
    after, curve, beyond = np.zeros(n + 1), np.zeros(n + 1), np.zeros(n + 1)
    for r in range(n):
        j = n - 1 - r
        after[j] = after[j + 1] + pb[j]
    _fill_tails(lb, pb, curve, beyond)
    p[:] = 0.0
    u[:] = 0.0
    some_p, some_u = np.zeros(p.size), np.zeros(p.size)
    start, stop = n, n
    cell = np.ones(n, dtype=np.int64)
    for i in range(la.size):
        if i % BLOCK == 0:
            p += some_p
            u += some_u
            some_p[:] = 0.0
            some_u[:] = 0.0
        m, x = pa[i], la[i]
        while start > 0 and x + lb[start - 1] > knots[1]:
            start -= 1
        while stop > 0 and x + lb[stop - 1] >= knots[last]:
            stop -= 1
        first = min(start, stop)
        if m == 0.0:
            continue
        shift = max(x + lb[0] - knots[0], 0.0)
        p[0] += m * before[first]
        u[0] += m * (_fall(shift) * before[first] + math.exp(-shift) * before_fall[first])
        if stop < n:
            p[last] += m * after[stop]
            u[last] += m * (curve[stop] + _fall(max(x + lb[stop] - knots[last], 0.0)) * beyond[stop])
        for j in range(first, stop):
            # between consecutive losses of a, a sum seldom moves by more than two cells
            s = x + lb[j]
            k = cell[j]
            k += s > knots[k + 1]
            k += s > knots[k + 1]
            while s > knots[k + 1]:
                k += 1
            cell[j] = k
            mass = m * pb[j]
            some_p[k] += mass
            some_u[k] += mass * _fall(s - knots[k])
    p += some_p
    u += some_u


@jit("void(f8[::1], f8[::1], f8[::1], f8[::1], b1, f8[::1], f8[::1], f8[::1])")
def add_values(a, pa, b, pb, twice, knots, mass, moment):
    """Write each cell's mass, and its mass times the distance from its left end, for the sum of two ascending values.

    Every sum must be at least the first knot; the last cell has no right end.  A cell's number is the sum of at most
    a.size + b.size terms in a row, so that its relative error is at most that many units.

    twice : a and b are the same law, of which each pair of different atoms is counted once, with twice its mass.
    """
    mass[:] = 0.0
    moment[:] = 0.0
    first, last = 0, knots.size - 1
    for i in range(a.size):
        x, w = a[i], pa[i]
        begin = 0
        if twice:
            begin, w = i + 1, 2.0 * w
            s = x + x
            while first < last and s >= knots[first + 1]:
                first += 1
            own = pa[i] * pa[i]
            mass[first] += own
            moment[first] += own * (s - knots[first])
        elif b.size:
            while first < last and x + b[0] >= knots[first + 1]:
                first += 1
        k = first
        m, d = 0.0, 0.0
        for j in range(begin, b.size):
            s = x + b[j]
            if k < last and s >= knots[k + 1]:
                mass[k] += w * m
                moment[k] += w * d
                m, d = 0.0, 0.0
                k += 1
                while k < last and s >= knots[k + 1]:
                    k += 1
            m += pb[j]
            d += pb[j] * (s - knots[k])
        mass[k] += w * m
        moment[k] += w * d


@jit("void(f8[::1], f8[:,::1], f8[::1], f8[:,::1], f8[:,::1], f8[::1], f8[:,::1])")
def add_participations(a, pa, b, pb, chance, knots, masses):
    """Write each cell's masses under 0 to k participations in two blocks of steps, a and b their ascending keys.

    With chance[i, j], i participations out of i + j fall into the first block.  Every sum of keys must be at least the
    first knot; the last cell has no right end.  A mass is the sum of at most a.size + b.size + k + 1 terms in a row.
    """
    masses[:] = 0.0
    some, weight = np.zeros(pb.shape[1]), np.zeros(chance.shape)
    first, last = 0, knots.size - 1
    for i in range(a.size):
        for m in range(some.size):
            for n in range(some.size - m):
                weight[m, n] = pa[i, m] * chance[m, n]
        while first < last and a[i] + b[0] >= knots[first + 1]:
            first += 1
        k, j = first, 0
        while j < b.size:
            some[:] = 0.0
            while j < b.size and (k == last or a[i] + b[j] < knots[k + 1]):
                for n in range(some.size):
                    some[n] += pb[j, n]
                j += 1
            for m in range(some.size):
                total = 0.0
                for n in range(m + 1):
                    total += weight[m - n, n] * some[n]
                masses[k, m] += total
            if j < b.size:
                while k < last and a[i] + b[j] >= knots[k + 1]:
                    k += 1


@jit("void(f8[::1], f8[::1], f8[::1], f8[::1])")
def spread_up(knots, p, u, mass):
    """Share each cell's masses under P and Q between its ends; mass has an element for every knot."""
    mass[:] = 0.0
    for k in range(p.size):
        right = min(u[k] / _fall(knots[k + 1] - knots[k]), p[k])
        mass[k + 1] += right
        mass[k] += p[k] - right


@jit("i8(f8[::1], f8[::1], f8[::1], f8, f8[::1], f8[::1])")
def merge_down(knots, p, u, error, loss, mass):
    """Merge each cell into one atom, with u lowered by the relative error of u / p; return the number of atoms."""
    n = 0
    for k in range(p.size):
        if p[k] > 0.0:
            share = min(u[k] / p[k] * (1.0 - error), _fall(knots[k + 1] - knots[k]))
            loss[n] = min(knots[k] - math.log1p(-share) * _BELOW, knots[k + 1])
            mass[n] = p[k]
            n += 1
    return n


@jit("void(f8[::1], f8[::1], f8[::1], f8[::1])")
def tails(loss, mass, curve, beyond):
    """See `_fill_tails`."""
    _fill_tails(loss, mass, curve, beyond)


@jit("f8(f8[::1], f8[::1], f8[::1], f8[::1], f8[::1], f8)")
def hockey_stick(la, pa, lb, curve, beyond, epsilon):
    """delta(epsilon) of the sum of two losses; curve and beyond from `tails` of the second."""
    total = 0.0
    j = lb.size
    for i in range(la.size):
        rest = epsilon - la[i]
        while j > 0 and lb[j - 1] > rest:
            j -= 1
        if j < lb.size:
            total += pa[i] * (curve[j] + beyond[j] * _fall(lb[j] - rest))
    return total


@inline
def _beside(at, below, above, s):
    """Masses below and above s, where the mass is spread evenly between the losses `at`."""
    n = at.size
    if s <= at[0]:
        return 0.0, above[0]
    if s >= at[n - 1]:
        return below[n - 1], 0.0
    k = np.searchsorted(at, s) - 1
    share = (s - at[k]) / (at[k + 1] - at[k])
    return below[k] + share * (below[k + 1] - below[k]), above[k] + share * (above[k + 1] - above[k])


@inline
def _between(at, below, above, low, high):
    """Mass between two losses, as a difference of tails on the side with less cancellation."""
    below_low, above_low = _beside(at, below, above, low)
    below_high, above_high = _beside(at, below, above, high)
    return max(above_low - above_high if above_low < below_high else below_high - below_low, 0.0)


@inline
def _harm(mass, rest_at, rest_below, rest_above, epsilon, low, high):
    """E of the cell: its mass, times the mass of the other steps' losses that add up to epsilon, times its width."""
    most = 0.0
    for e in epsilon:
        most = max(most, _between(rest_at, rest_below, rest_above, e - high, e - low))
    return mass * most * min(high - low, 1.0)


@jit("i8(f8[::1], f8[::1], f8[::1], f8[::1], f8[::1], f8[::1], f8[::1], f8, f8, f8, f8, f8[::1], f8[::1])")
def partition(at, below, above, rest_at, rest_below, rest_above, epsilon, low, high, most, least, ends, harm):
    """Halve cells, beginning with [low, high], until no E exceeds `most` and no cell is too steep; return their number.

    A cell with a mass above `least` is too steep if its mass exceeds `_STEEP` times the mass beyond it: its right end
    would be lifted by orders of magnitude, which E, a first-order estimate, does not show.

    ends, harm : written: the right ends of the cells, ascending, and their E.  If these arrays are too short, the
    result is 0.
    """
    stack = np.empty(200)
    stack[0] = high
    depth, n = 1, 0
    left = low
    while depth:
        right = stack[depth - 1]
        mass = _between(at, below, above, left, right)
        harmful = _harm(mass, rest_at, rest_below, rest_above, epsilon, left, right)
        beyond = _beside(at, below, above, right)[1]
        middle = 0.5 * (left + right)
        if (harmful > most or (mass > least and mass > _STEEP * beyond)) and left < middle < right and depth < 200:
            stack[depth] = middle
            depth += 1
            continue
        if n == ends.size:
            return 0
        ends[n], harm[n] = right, harmful
        n += 1
        depth -= 1
        left = right
    return n
