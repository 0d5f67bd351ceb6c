"""The mean of independent lognormal variables, from both sides in the convex order.

The likelihood ratio of a record that takes part in one of t Gaussian steps is R = (Y_1 + ... + Y_t) / t, with
Y = exp(s X - s^2 / 2), X standard normal and s = 1 / sigma.  E[f(R)] is convex in the law of each Y if f is convex, and
so is every hockey-stick divergence of a composition in the law of each R.  So:

1. The mass of a cell, shared between the two ends of the cell with its mean kept, gives a law above (`Side.UPPER`).
2. The mass of a cell, put at its mean, gives a law below (`Side.LOWER`).
3. The law of a sum of many terms is made by doubling: the sums of all pairs of atoms are brought back to cells by 1 or
   2.  The order is kept by each step.  Only positive numbers are added, so that a mass of 1e-100 has as many correct
   digits as one of 0.1, and nothing is cancelled.

The first cell begins at 0.  The last has no end: the law above keeps its mass at the left end, and its remaining mean
is mass of P at infinity.

Error: a computed law is that of atoms moved by the relative amount `moved` at most, with masses wrong by the relative
amount `slack` at most.  Both are counted with the sums.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from .. import deadline
from ..gauss_legendre import gauss_legendre
from ..threads import in_order

__all__ = [
    "BASE",
    "CELLS",
    "ROUGH",
    "Cells",
    "Ratio",
    "Side",
    "cells_of_step",
    "doubled",
    "mean_of_lognormals",
    "place_cells",
]

_T = TypeVar("_T")

_UNIT = 2.0**-53
_REACH = 14.0  # standard deviations: 1e-44 of P or Q lie beyond
_NEAR = 7.0  # most of the cells lie within so many
CELLS = 2500
"""Each sum has so many, for bounds of epsilon about 3e-4 apart."""

ROUGH = 150
"""Atoms of the sums by which grids are placed."""

_ENDS = 500  # smallest and largest pairs that are looked at one by one
_BITS = 40
"""A law is made for s rounded to so many bits: the edge between two buckets needs one law, for both of them."""

BASE = 2.0**-41
"""Relative error of the masses and means of one variable's cells, at x up to 34."""

_NODES, _WEIGHTS = gauss_legendre(8)


class Side(enum.Enum):
    """Which side of the true law a computed one lies on, in the convex order."""

    LOWER = -1
    UPPER = 1


@dataclass(frozen=True, eq=False)
class Ratio:
    """A discrete law of a sum of likelihood ratios.

    Attributes
    ----------
    terms : int
        Number of terms; the mean is this number, together with `infinite`.
    values, masses : ndarray, shape (atoms,)
        Ascending values of at least 0, and their masses under Q.
    infinite : float
        The part of the mean at infinity, rounded up: mass of P, times `terms`, where Q has none.
    moved, slack : float
        Relative errors of the values and of the masses.
    """

    terms: int
    values: NDArray
    masses: NDArray
    infinite: float
    moved: float
    slack: float

    @property
    def divergence(self) -> float:
        """The Kullback-Leibler divergence of P and Q, if none is infinite."""
        some = self.values > 0.0
        return float((self.masses * self.values)[some] @ np.log(self.values[some]))


def _settled(side: Side, knots: NDArray, mass: NDArray, moment: NDArray) -> tuple[NDArray, NDArray, float]:
    """Atoms of cells, whose `moment` is mass times the distance from the left end; and the mean that is at infinity."""
    if side is Side.LOWER:
        some = mass > 0.0
        distance = moment[some] / mass[some]
        # round-off must not carry a mean out of its cell
        right = np.append(knots[1:], np.inf)[some]
        return np.minimum(knots[some] + distance, right), mass[some], 0.0
    width = np.diff(knots)
    atoms = np.zeros(knots.size)
    over = np.minimum(moment[:-1] / width, mass[:-1])
    atoms[:-1] += mass[:-1] - over
    atoms[1:] += over
    atoms[-1] += mass[-1]
    return knots, atoms, float(moment[-1])


class Cells(NamedTuple):
    """Cells of one lognormal variable: their left ends, their masses, and `moment` as in `_settled`.

    `tail` is the part of the mean in the last cell.  Masses and means have relative errors of at most `BASE`.
    """

    knots: NDArray
    mass: NDArray
    moment: NDArray
    tail: float


def cells_of_step(s: float, cells: int) -> Cells:
    """Cells even in a variable that crowds them near the middle."""
    from scipy.special import ndtr

    x = _places(cells, s)
    y = np.exp(s * x - 0.5 * s * s)
    a, b = x[:-1, None], x[1:, None]
    at = 0.5 * (a + b) + 0.5 * (b - a) * _NODES
    density = np.exp(-0.5 * at * at) / math.sqrt(2.0 * math.pi) * _WEIGHTS * 0.5 * (b - a)
    inner = density.sum(axis=1)
    above = (density * np.expm1(s * (at - a))).sum(axis=1) * y[:-1]
    knots = np.concatenate([[0.0], y])
    mass = np.concatenate([[ndtr(x[0])], inner, [ndtr(-x[-1])]])
    tail = float(ndtr(s - x[-1]))
    moment = np.concatenate([[ndtr(x[0] - s)], above, [max(tail - y[-1] * mass[-1], 0.0)]])
    return Cells(knots, mass, moment, tail)


def _one(s: float, side: Side, cells: int) -> Ratio:
    """The law of one lognormal variable."""
    knots, mass, moment, tail = cells_of_step(s, cells)
    values, masses, _ = _settled(side, knots, mass, moment)
    return Ratio(1, values, masses, tail if side is Side.UPPER else 0.0, 2.0 * BASE, BASE)


def _places(cells: int, s: float) -> NDArray:
    """Ascending x from -reach to s + reach; three quarters of the cells lie within `_NEAR` of 0 or s."""
    near = np.linspace(-_NEAR, s + _NEAR, (3 * cells) // 4)
    far = np.linspace(_NEAR, _REACH, cells // 8 + 1)[1:]
    return np.concatenate([-far[::-1], near, s + far])


def _thinned(law: Ratio, atoms: int) -> tuple[NDArray, NDArray]:
    """About so many groups of neighbouring atoms, at their means; to place grids only."""
    step = max(law.values.size // atoms, 1)
    start = np.arange(0, law.values.size, step)
    mass = np.add.reduceat(law.masses, start)
    mean = np.add.reduceat(law.masses * law.values, start)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(mass > 0.0, mean / mass, law.values[start]), mass


def place_cells(at: NDArray, q: NDArray, p: NDArray, cells: int) -> NDArray:
    """Ends of cells for ascending places with masses under Q and P, from the left tail of Q to the right tail of P.

    A half is even in standard deviations, the mean of P's and Q's, and a quarter even in `at`, both in the near range.
    """
    from scipy.special import ndtri

    ends = min(_ENDS, at.size // 2)
    some = np.unique(np.concatenate([np.arange(ends), np.arange(0, at.size, 16), at.size - 1 - np.arange(ends)]))
    deviations = []
    for part in (q, p):
        low, high = np.cumsum(part), np.cumsum(part[::-1])[::-1]
        total = low[-1]
        low, high = (np.clip(tail[some] / total, 1e-280, 0.5) for tail in (low, high))
        deviations.append(np.where(low < 0.5, ndtri(low), -ndtri(high)))
    at, (z_q, z_p) = at[some], deviations
    z = np.maximum.accumulate(0.5 * (z_q + z_p))
    left, right = np.searchsorted(z_q, [-_REACH, -_NEAR]), np.searchsorted(z_p, [_NEAR, _REACH]) - 1
    (far_low, low), (high, far_high) = z[left], z[right]
    far = np.concatenate([np.linspace(far_low, low, cells // 8), np.linspace(high, far_high, cells // 8)])
    goal = np.concatenate([far, np.linspace(low, high, cells // 2)])
    rising = np.concatenate([[True], np.diff(z) > 0.0])
    places = np.interp(goal, z[rising], at[rising])
    return np.unique(np.concatenate([places, np.linspace(at[left[1]], at[right[0]], cells // 4)]))


def _grid(one: Ratio, two: Ratio, cells: int) -> NDArray:
    """Knots for the sum of two: 0, and places by its logarithm."""
    (a, p), (b, r) = _thinned(one, ROUGH), _thinned(two, ROUGH)
    sums = np.add.outer(a, b).ravel()
    order = np.argsort(sums)
    order = order[sums[order] > 0.0]
    sums, mass = sums[order], np.multiply.outer(p, r).ravel()[order]
    return np.concatenate([[0.0], np.unique(np.exp(place_cells(np.log(sums), mass, mass * sums, cells)))])


def _sum(one: Ratio, two: Ratio, side: Side, knots: NDArray) -> Ratio:
    """The law of the sum of two independent laws, on these cells."""
    from ..kernels.convolve import add_values

    mass, moment = np.empty(knots.size), np.empty(knots.size)
    add_values(one.values, one.masses, two.values, two.masses, one is two, knots, mass, moment)
    values, masses, infinite = _settled(side, knots, mass, moment)
    units = (one.values.size + two.values.size + 32) * _UNIT
    slack = one.slack + two.slack + units
    infinite = (infinite + one.infinite + two.infinite) * (1.0 + 1e-6) + 1e-290 * (side is Side.UPPER)
    # a conditional mean is a quotient of two sums, and a value is a sum of two
    moved = max(one.moved, two.moved) + 2.0 * units
    return Ratio(one.terms + two.terms, values, masses, infinite, moved, slack)


def doubled(one: _T, number: int, added: Callable[[_T, _T], _T]) -> _T:
    """So many of one thing, added up by doubling."""
    total, power = None, one
    while True:
        if number & 1:
            total = power if total is None else added(total, power)
        number >>= 1
        if not number:
            assert total is not None
            return total
        deadline.check()
        power = added(power, power)


@lru_cache(maxsize=256)  # of about 0.1 MB each: the buckets of a ledger
def _both(s: float, terms: int, cells: int) -> dict[Side, Ratio]:
    """The sum of so many lognormal variables from both sides, on the same cells, for every s next to this one."""
    # a larger s is larger in the convex order
    power = {side: _one(s * (1.0 + side.value * 2.0 ** (2 - _BITS)), side, cells) for side in Side}

    def added(one: dict[Side, Ratio], two: dict[Side, Ratio]) -> dict[Side, Ratio]:
        knots = _grid(one[Side.UPPER], two[Side.UPPER], cells)
        return dict(in_order(lambda side: _sum(one[side], two[side], side, knots), Side))

    return doubled(power, terms, added)


def mean_of_lognormals(s: float, terms: int, side: Side, cells: int = CELLS) -> Ratio:
    """The law of R = (Y_1 + ... + Y_terms) / terms from one side, Y = exp(s X - s^2 / 2).

    Parameters
    ----------
    s : float
        Above 0 and at most 20; the law holds for every s within 2^-40 of this one, relative.
    terms : int
        At least 1.
    side : Side
    cells : int
        About how many cells each sum has.

    Returns
    -------
    Ratio
        With `terms` 1.

    **Cost**: for both sides, about 5 cells^2 nanoseconds for each bit of `terms`, and twice as much for each other bit
    that is set; kept for the latest 256 arguments.
    """
    mantissa, exponent = math.frexp(s)
    found = _both(math.ldexp(round(math.ldexp(mantissa, _BITS)), exponent - _BITS), terms, cells)[side]
    infinite = found.infinite / terms * (1.0 + 1e-12)
    return Ratio(1, found.values / terms, found.masses, infinite, found.moved + 4.0 * _UNIT, found.slack)
