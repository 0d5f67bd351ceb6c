"""Check, charge and book one step against integer budgets, in one call that books all people or nobody.

A budget is 2**62 units.  Every charge is a whole number of units, rounded up.  A person's sum is therefore exact for
any number of steps and never below the true sum.  Rounding costs at most one unit plus 2**-49 of the charge a step.
The last charge may exceed the units left by SLACK units (2**-40 of the budget, see `filters.integer_budget`).  A person
with at most DUST units left (2**-34 of the budget) has spent the whole budget.

Legend: n = people, m = orders, g = grid cells of the squared ratio norm / clip.
"""

import numpy as np

from ._jit import inline, jit

BUDGET = 1 << 62
SLACK = 1 << 22
DUST = 1 << 28

_NEVER = float(BUDGET + 2 * SLACK)  # more than every budget, with slack
_UP = 1.0 + 2.0**-50  # covers four roundings


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


@jit(
    "int64(float64[::1], float64, float64, float64, int64[::1], boolean[::1])",
    "int64(float32[::1], float64, float64, float64, int64[::1], boolean[::1])",
)
def admit_square(norms, clip, inverse, scale, left, mask):
    """Admit and book charges of scale * (min(norm, clip) * inverse)**2 units.

    norms (n,), left (n,) units, changed in place; mask (n,), written.  Returns -1, or the index of the first bad norm;
    then nothing was changed.  Error: charges are rounded up.
    """
    bad = _first_bad(norms)
    if bad >= 0:
        return bad
    for i in range(norms.size):
        rest = left[i]
        norm = np.float64(norms[i])
        if norm > 0:
            ratio = min(norm, clip) * inverse
            rest -= np.int64(min(ratio * ratio * scale * _UP, _NEVER)) + 1
        admitted = left[i] > 0 and rest >= -SLACK
        mask[i] = admitted
        if admitted:
            left[i] = rest if rest > DUST else 0
    return -1


@jit(
    "int64(float64[::1], float64, float64, float64[:, ::1], int64[:, ::1], boolean[::1])",
    "int64(float32[::1], float64, float64, float64[:, ::1], int64[:, ::1], boolean[::1])",
)
def admit_table(norms, clip, inverse, tables, left, mask):
    """Admit and book charges from tables on a uniform grid of the squared ratio norm / clip.

    norms (n,), tables (g + 1, m) units, left (n, m) units, changed in place; mask (n,), written.  Between two points
    of the grid the charge is the chord; beyond the last point, which only an infinite clip allows, it is the last chord
    extended.  A person is admitted if the charge fits at every order.  Returns -1, or the index of the first bad norm;
    then nothing was changed.  Error: charges are rounded up.
    """
    bad = _first_bad(norms)
    if bad >= 0:
        return bad
    cells, orders = tables.shape[0] - 1, tables.shape[1]
    rest = np.zeros(orders, np.int64)
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
        one = np.int64(norm > 0)
        admitted = True
        for a in range(orders):
            units = (tables[cell, a] + part * (tables[cell + 1, a] - tables[cell, a])) * _UP
            rest[a] = left[i, a] - np.int64(min(units, _NEVER)) - one
            admitted &= (left[i, a] > 0) & (rest[a] >= -SLACK)
        mask[i] = admitted
        if admitted:
            for a in range(orders):
                left[i, a] = rest[a] if rest[a] > DUST else 0
    return -1
