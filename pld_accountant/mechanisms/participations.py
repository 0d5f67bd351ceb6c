"""Several participations: a lower bound for a record that enters a uniformly random set of k out of t Gaussian steps.

The outputs of the steps are reduced to a cell.  That is post-processing: no hockey-stick divergence of the cells'
masses exceeds that of the outputs.  The masses of a cell are known for each number of participations:

1. For one step they are those of N(0, 1) and of N(s, 1), s = 1 / sigma.
2. If j participations lie in two blocks of m and n steps, i of them fall into the first with the chance
   C(m, i) C(n, j - i) / C(m + n, j).  The mass of a pair of cells under j participations is the sum over i of this
   chance times the mass of the first under i times the mass of the second under j - i.  Pairs are reduced to cells.
3. Blocks are doubled until they hold all steps.  Then the masses under k participations and under none remain.

Every choice of cells gives a valid bound; a good one gives a close bound.  Each step has the key log(1 + z Y), where Y
is its likelihood ratio, and a cell is an interval of the sum T of the keys.  The likelihood ratio of all steps is
e_k(Y) / C(t, k).  The elementary symmetric polynomial e_k is the coefficient of z^k in exp(T), so T determines it
approximately if z is the saddle point, where the sum of z Y / (1 + z Y) is k.  We solve this for Y = 1 in steps without
the record, and Y two standard deviations above its median in steps with it.

Only positive numbers are added, so that all masses have small relative errors (`Ratio.slack`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .lognormal_sums import BASE, CELLS, ROUGH, Ratio, cells_of_step, doubled, place_cells

__all__ = ["MOST_PARTICIPATIONS", "several_participations"]

MOST_PARTICIPATIONS = 64
"""More would take seconds."""

_UNIT = 2.0**-53
_FEWER = 0.64  # times the cells of one participation, over the number of participations
_LEAST_CELLS = 200
_FLOOR = 1e-300  # far above what masses lose to underflow
_LEAST = 1e-285  # masses to which the floor adds less than 1e-14 of themselves
_DEVIATIONS = 2.0


@dataclass(frozen=True, eq=False)
class _Block:
    """Cells of some steps.

    Attributes
    ----------
    steps : int
    keys : ndarray, shape (cells,)
        Ascending.
    masses : ndarray, shape (cells, k + 1)
        Under each number of participations; 0 for those above `steps`.
    slack : float
        Relative error of the masses.
    """

    steps: int
    keys: NDArray
    masses: NDArray
    slack: float

    def thinned(self) -> tuple[NDArray, NDArray]:
        """Keys and masses of groups of neighbouring cells; to place cells only."""
        start = np.arange(0, self.keys.size, max(self.keys.size // ROUGH, 1))
        return self.keys[start], np.add.reduceat(self.masses, start, axis=0)


def _chances(one: int, two: int, k: int) -> NDArray:
    """chance[i, j] that of i + j participations i fall into the first block; shape (k + 1, k + 1), 0 above k."""
    chance = np.zeros((k + 1, k + 1))
    for i in range(min(k, one) + 1):
        for j in range(min(k - i, two) + 1):
            # a quotient of whole numbers is rounded once
            chance[i, j] = math.comb(one, i) * math.comb(two, j) / math.comb(one + two, i + j)
    return chance


def _step(s: float, k: int, z: float, cells: int) -> _Block:
    """The cells of one step."""
    knots, mass, moment, _ = cells_of_step(s, cells)
    masses = np.zeros((mass.size, k + 1))
    masses[:, 0], masses[:, 1] = mass, knots * mass + moment
    keys = np.log1p(z * knots)
    keys[:-1] = 0.5 * (keys[:-1] + keys[1:])
    return _Block(1, keys, masses, 2.0 * BASE)


def _added(one: _Block, two: _Block, k: int, cells: int) -> _Block:
    """The cells of two blocks."""
    from ..kernels.convolve import add_participations

    chance = _chances(one.steps, two.steps, k)
    (a, p), (b, r) = one.thinned(), two.thinned()
    sums = np.add.outer(a, b).ravel()
    order = np.argsort(sums)
    most = min(k, one.steps + two.steps)
    with_record = np.einsum(
        "i,ai,bi->ab", chance[range(most + 1), range(most, -1, -1)], p[:, : most + 1], r[:, most::-1]
    )
    without = np.multiply.outer(p[:, 0], r[:, 0])
    places = place_cells(sums[order], without.ravel()[order], with_record.ravel()[order], cells)
    knots = np.concatenate([[0.0], places[places > 0.0]])
    masses = np.empty((knots.size, k + 1))
    add_participations(one.keys, one.masses, two.keys, two.masses, chance, knots, masses)
    keys = np.append(0.5 * (knots[:-1] + knots[1:]), knots[-1])
    some = masses.any(axis=1)
    units = (one.keys.size + two.keys.size + k + 8) * _UNIT
    return _Block(one.steps + two.steps, keys[some], masses[some], one.slack + two.slack + units)


@lru_cache(maxsize=64)
def several_participations(s: float, batches: int, k: int, cells: int = CELLS) -> Ratio:
    """The likelihood ratio of k participations in so many steps, from below in all hockey-stick divergences.

    Parameters
    ----------
    s : float
        1 / noise multiplier, above 0 and at most 20; the law holds for every s within a rounding of this one.
    batches, k : int
        2 <= k < batches.
    cells : int
        As for `mean_of_lognormals`; more participations have fewer.

    **Cost**: 10 to 100 milliseconds for each bit of `batches`; kept for the latest 64 arguments.
    """
    cells = max(round(_FEWER * cells / k), _LEAST_CELLS)
    odds, y = k / (batches - k), math.exp(0.5 * s * s + _DEVIATIONS * s)
    z = 2.0 * odds / (1.0 + math.sqrt(1.0 + 4.0 * odds * y))  # z (1 + z y) = odds
    # a smaller s has smaller divergences
    step = _step(math.nextafter(s, 0.0), k, z, cells)
    total = doubled(step, batches, lambda one, two: _added(one, two, k, cells))
    some = (total.masses[:, 0] > _LEAST) | (total.masses[:, k] > _LEAST)
    without, with_record = total.masses[some, 0] + _FLOOR, total.masses[some, k] + _FLOOR
    slack = total.slack + 1e-14
    return Ratio(1, with_record / without, without, 0.0, 2.0 * slack, slack)
