"""Check, charge and book one step against integer budgets, in one call that books all people or nobody.

A budget is 2**62 units.  Every charge is a whole number of units, rounded up, so a person's sum is exact whatever
the number of steps, and never below the truth; rounding costs at most one unit and 2**-49 of the charge a step.
The last charge may exceed what is left by SLACK units (2**-40 of the budget, see `filter_base`); whoever has at most
DUST units left (2**-34) has spent the whole budget.

Legend: n = people, m = orders, g = grid cells of the squared norm.
"""

import numpy as np

from ._jit import inline, jit

BUDGET = 1 << 62
SLACK = 1 << 22
DUST = 1 << 28

_LIMIT = float(BUDGET + SLACK)
_UP = 1.0 + 2.0**-50


@inline
def _whole_up(units):
    """A positive number of units as an integer not below it; one that no budget can hold stays just such a one."""
    if not units < _LIMIT:
        return np.int64(BUDGET + 2 * SLACK)
    return np.int64(units) + np.int64(1)


@inline
def _first_bad(norms):
    """Index of the first norm that is NaN, negative or infinite, or -1."""
    good = True
    for i in range(norms.size):  # no early exit, so that the loop is vectorised
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
    """Admit and book where the charge is scale * (min(norm, clip) * inverse)**2 units.

    norms (n,), left (n,) units, changed in place; mask (n,), written.  Returns -1, or the index of the first bad
    norm, when nothing was changed.  Error: charges are rounded up.
    """
    bad = _first_bad(norms)
    if bad >= 0:
        return bad
    for i in range(norms.size):
        rest = left[i]
        norm = np.float64(norms[i])
        if norm > 0:
            ratio = min(norm, clip) * inverse
            rest -= _whole_up(ratio * ratio * scale * _UP)
        admitted = left[i] > 0 and rest >= -SLACK
        mask[i] = admitted
        if admitted:
            left[i] = rest if rest > DUST else 0
    return -1


@inline
def _charge_up(table, square):
    """The chord of one order's table at a squared ratio in [0, 1], in whole units rounded up."""
    cells = table.size - 1
    place = square * cells
    cell = min(np.int64(place), cells - 1)
    chord = table[cell] + (place - cell) * (table[cell + 1] - table[cell])
    return _whole_up(chord * _UP)


@jit(
    "int64(float64[::1], float64, float64, float64[:, ::1], int64[:, ::1], boolean[::1])",
    "int64(float32[::1], float64, float64, float64[:, ::1], int64[:, ::1], boolean[::1])",
)
def admit_table(norms, clip, inverse, tables, left, mask):
    """Admit and book where the charge is read from tables on a uniform grid of the squared ratio.

    norms (n,), tables (m, g + 1) units (g a power of two), left (n, m) units, changed in place; mask (n,), written.
    A person is admitted where every order holds.  Returns -1, or the index of the first bad norm, when nothing was
    changed.  Error: charges are rounded up; between the grid's points the chord is taken.
    """
    bad = _first_bad(norms)
    if bad >= 0:
        return bad
    orders = tables.shape[0]
    rest = np.zeros(orders, np.int64)
    for i in range(norms.size):
        norm = np.float64(norms[i])
        ratio = min(norm, clip) * inverse
        square = min(ratio * ratio * _UP, 1.0)
        admitted = True
        for a in range(orders):
            rest[a] = left[i, a]
            if norm > 0:
                rest[a] -= _charge_up(tables[a], square)
            admitted &= left[i, a] > 0 and rest[a] >= -SLACK
        mask[i] = admitted
        if admitted:
            for a in range(orders):
                left[i, a] = rest[a] if rest[a] > DUST else 0
    return -1
