"""Binary trees in which a person takes part in several steps: their squared sensitivity."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .. import deadline, validate

__all__ = ["tree_squared_sensitivity"]

_NONE = np.iinfo(np.int64).min // 4
_MOST_WORK = 3e9  # sums of the search, a few seconds; beyond, the bound by levels is the answer
_CALL = 1000.0  # sums that take as long as a call of numpy


def tree_squared_sensitivity(steps: int, max_participations: int = 1, min_separation: int = 0) -> int:
    """The largest sum, over the nodes, of the squared number of a person's participations below the node.

    Parameters
    ----------
    steps : int
        Leaves.  They belong to complete binary trees, one for each bit of this number, the largest first.
    max_participations : int
        At most so many steps of a person, at least 1.
    min_separation : int
        At least so many steps between two participations.

    Returns
    -------
    int
        The squared sensitivity for contributions of norm 1.  Contributions that all point in one direction attain it.

    Raises
    ------
    ValueError
        For an argument out of range.

    Notes
    -----
    The best pattern of each complete tree is made of those of its halves, for each number of participations and of free
    steps at both ends.  Where this takes more than seconds (long separations, many participations), the answer is an
    upper bound: at each level, as few nodes as can be hold all participations.

    References
    ----------
    Choquette-Choo, McMahan, Rush and Thakurta (2023), "Multi-epoch matrix factorization mechanisms", for participation
    patterns.

    Examples
    --------
    >>> tree_squared_sensitivity(1600), tree_squared_sensitivity(24, 8, 2)
    (11, 88)
    """
    number = validate.count(steps, "steps", least=1)
    k = validate.count(max_participations, "max_participations", least=1)
    gap = min(validate.count(min_separation, "min_separation"), number)
    k = min(k, -(-number // (gap + 1)))
    if k == 1:
        return number.bit_length()
    if float(k) ** 2 * (gap + 1.0) * ((gap + 1.0) ** 2 + _CALL) * number.bit_length() > _MOST_WORK:
        return _by_levels(number, k, gap)
    tree, forest, done = np.full((2, gap + 1, gap + 1), _NONE), None, 0
    tree[0, : min(1, gap) + 1, : min(1, gap) + 1] = 0
    tree[1, 0, 0] = 1
    parts: list[tuple[int, NDArray]] = []
    for level in range(number.bit_length()):
        if number >> level & 1:
            parts.append((1 << level, tree))
        if number >> (level + 1):
            tree = _beside(1 << level, tree, 1 << level, tree, k, gap)
            tree += (np.arange(len(tree)) ** 2)[:, None, None]
    for size, part in reversed(parts):
        forest = part if forest is None else _beside(done, forest, size, part, k, gap)
        done += size
    assert forest is not None
    return int(forest[:, 0, 0].max())


def _beside(one: int, a: NDArray, two: int, b: NDArray, k: int, gap: int) -> NDArray:
    """Best sums of two neighbours of so many leaves; [n, l, r] if l and r leaves at least are free at the ends."""
    most = min(k, len(a) + len(b) - 2, -(-(one + two) // (gap + 1)))
    out = np.full((most + 1, gap + 1, gap + 1), _NONE)
    free = np.arange(gap + 1)
    out[0][np.ix_(free <= one + two, free <= one + two)] = 0
    for n in range(1, min(most, len(b) - 1) + 1):
        out[n] = np.maximum(out[n], b[n][np.maximum(free - one, 0)])
    for n in range(1, min(most, len(a) - 1) + 1):
        out[n] = np.maximum(out[n], a[n][:, np.maximum(free - two, 0)])
    for m in range(1, len(a)):
        for n in range(1, min(len(b) - 1, most - m) + 1):
            deadline.check()
            for left in free:
                np.maximum(out[m + n], a[m][:, left, None] + b[n][gap - left], out=out[m + n])
    return np.maximum(out, _NONE)


def _by_levels(steps: int, k: int, gap: int) -> int:
    """An upper bound: at each level as few nodes as possible hold all participations."""
    total = 0
    for level in range(steps.bit_length()):
        full = min(k, -(-(1 << level) // (gap + 1)))
        nodes, rest = divmod(k, full)
        here = min(nodes, steps >> level)
        total += here * full**2 + (rest**2 if here < steps >> level else 0)
    return total
