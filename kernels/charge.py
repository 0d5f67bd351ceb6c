"""Check, charge and book equal steps against integer budgets, in one call that books all people or nobody.

A budget is 2**62 units.  Every charge is a whole number of units, rounded up.  A person's sum is therefore exact for
any number of steps and never below the true sum.  Rounding costs at most one unit plus 2**-49 of the charge a step.
The last charge may exceed the units left by SLACK units (2**-40 of the budget, see `filters.integer_budget`).  A person
with at most DUST units left (2**-34 of the budget) has spent the whole budget.  Several equal steps in one call are
booked as in as many calls.

Legend
    n, m, g     people, orders, grid cells of the squared ratio norm / clip
    norms       (n,);  each counts as min(norm, clip) * inverse
    steps       number of equal steps to admit and book
    left        (n,) or (n, m) units, changed in place
    counts      (n,), written: the steps that were admitted and booked

Each kernel returns -1, or the index of the first bad norm; then nothing was changed.  Charges are rounded up.
"""

import math

import numpy as np

from ._jit import inline, jit

BUDGET = 1 << 62
SLACK = 1 << 22
DUST = 1 << 28

_NEVER = float(BUDGET + 2 * SLACK)  # more than every budget, with slack
_UP = 1.0 + 2.0**-50  # covers four roundings
_NORMS = "float64[::1]", "float32[::1]"


@inline
def _first_bad(norms):
    """Index of the first norm that is NaN, negative or infinite, or -1."""
    good = True
    for i in range(norms.size):  # no early exit: the loop is vectorised
        good &= (norms[i] >= 0) & (norms[i] < np.inf)
    if not good:
        for i in range(norms.size):
            if not (norms[i] >= 0 and norms[i] < np.inf):
                return i
    return -1


@inline
def _affordable(left, charge, steps, dust):
    """How many of some equal steps fit into the units left, of which `dust` count as none."""
    if left <= 0:
        return 0
    if charge == 0:
        return steps
    if steps == 1:
        return 1 if left - charge >= -SLACK else 0
    until_spent = max((left - dust + charge - 1) // charge, 1)
    return min(steps, (left + SLACK) // charge, until_spent)


@inline
def _units(value, norm):
    """A charge in whole units, rounded up."""
    return np.int64(min(value * _UP, _NEVER)) + np.int64(norm > 0)


@jit(*(f"int64({norms}, float64, float64, float64, int64, int64[::1], int64[::1])" for norms in _NORMS))
def admit_square(norms, clip, inverse, scale, steps, left, counts):
    """Admit and book charges of scale * (min(norm, clip) * inverse)**2 units for each of some steps."""
    bad = _first_bad(norms)
    if bad >= 0:
        return bad
    if steps == 1:
        for i in range(norms.size):  # no call of `_affordable`: the loop is vectorised, and takes a third of the time
            norm = np.float64(norms[i])
            ratio = min(norm, clip) * inverse
            rest = left[i] - _units(ratio * ratio * scale, norm)
            fits = left[i] > 0 and rest >= -SLACK
            counts[i] = fits
            if fits:
                left[i] = rest if rest > DUST else 0
        return -1
    for i in range(norms.size):
        norm = np.float64(norms[i])
        ratio = min(norm, clip) * inverse
        charge = _units(ratio * ratio * scale, norm)
        count = _affordable(left[i], charge, steps, DUST)
        counts[i] = count
        if count > 0:
            rest = left[i] - count * charge
            left[i] = rest if rest > DUST else 0
    return -1


@jit(*(f"int64({norms}, float64, float64, float64[:, ::1], int64, int64[:, ::1], int64[::1])" for norms in _NORMS))
def admit_table(norms, clip, inverse, tables, steps, left, counts):
    """Admit and book charges from tables on a uniform grid of the squared ratio norm / clip, for each of some steps.

    tables (g + 1, m) units, left (n, m).  Between two points of the grid the charge is the chord; beyond the last
    point, which only an infinite clip allows, it is the last chord extended.  A step is admitted if its charge fits at
    every order.
    """
    bad = _first_bad(norms)
    if bad >= 0:
        return bad
    cells, orders = tables.shape[0] - 1, tables.shape[1]
    charges = np.zeros(orders, np.int64)
    for i in range(norms.size):
        norm = np.float64(norms[i])
        place = 0.0
        if norm > 0:
            ratio = min(norm, clip) * inverse
            place = ratio * ratio * _UP * cells
            if clip < np.inf:
                place = min(place, np.float64(cells))
        cell = np.int64(place) if place < cells else cells - 1
        part = place - cell
        count = steps
        for a in range(orders):
            charges[a] = _units(tables[cell, a] + part * (tables[cell + 1, a] - tables[cell, a]), norm)
            count = min(count, _affordable(left[i, a], charges[a], steps, DUST))
        counts[i] = count
        if count > 0:
            for a in range(orders):
                rest = left[i, a] - count * charges[a]
                left[i, a] = rest if rest > DUST else 0
    return -1


@jit(
    *(
        f"int64({norms}, float64, float64, int64[::1], int64, int64, int64, int64, int64[::1], int64[::1])"
        for norms in _NORMS
    )
)
def admit_places(norms, clip, inverse, charges, octaves, parts, dust, steps, left, counts):
    """Admit and book charges by the place of the ratio norm / clip in binary octaves, for each of some steps.

    charges (octaves * parts + 1,) units, ascending.  The ratio is rounded up to the next of the norms 2**-octaves ...
    1, each octave of them divided into equal parts (`potential.norms`).  A person with at most `dust` units left has
    spent the whole budget.
    """
    bad = _first_bad(norms)
    if bad >= 0:
        return bad
    for i in range(norms.size):
        norm = np.float64(norms[i])
        charge = np.int64(0)
        if norm > 0:
            ratio = min(min(norm, clip) * inverse * _UP, 1.0)
            fraction, exponent = math.frexp(ratio)
            part = np.int64(np.ceil((2.0 * fraction - 1.0) * parts))
            charge = charges[max((exponent + octaves - 1) * parts + part, 0)]
        count = _affordable(left[i], charge, steps, dust)
        counts[i] = count
        if count > 0:
            rest = left[i] - count * charge
            left[i] = rest if rest > dust else 0
    return -1
