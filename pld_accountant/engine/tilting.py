"""Everybody's log-moments, and the tilt, period, band and helper tilts that they call for.

Choosing is one matrix product, counts times log-moments, and a kernel person by person (`kernels.tilt`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..counting.interpolation import Counts
from ..tables.table import WORK, Maker
from ..threads import blocks, few, in_order

__all__ = ["Limits", "Plan", "make_plan", "renyi_bounds", "seen_by_columns"]

_OCTAVES = (-20, 36)  # tilts range over 2^-20 .. 2^36
_BACK = 4  # octaves below the saddle point where tilts are candidates


@dataclass(frozen=True)
class Limits:
    """How exact the result has to be and how much work one person may cost.

    Attributes
    ----------
    error : float
        Relative error of delta that the band and the period may each add.
    frequencies : int
        A person who needs more stays unsolved.
    least_expectation : float
        Tilts at which the inner product itself would be smaller than this are not used: round-off, relative to it,
        grows by the reciprocal.
    tilts : int
        Candidate tilts per octave.  Two are enough but where the tilted law is about to split in two.
    least_log_delta : float
        A delta that Renyi accounting proves to be smaller than exp of this is not looked at any closer: it is
        bounded by 0 and by what Renyi accounting says.  The default is where double precision ends.
    work : float
        What one table may cost, see `Maker.table`.
    """

    error: float = 1e-10
    frequencies: int = 4096
    least_expectation: float = 1e-4
    tilts: int = 2
    least_log_delta: float = -746.0
    work: float = WORK


@dataclass
class Plan:
    """What was chosen for every person."""

    tilt: NDArray
    period: NDArray
    width: NDArray
    helper: NDArray
    start: NDArray
    renyi: NDArray
    theta: NDArray


def _log_c(theta: NDArray) -> NDArray:
    return -np.log1p(theta) - theta * np.log1p(1.0 / theta)


def seen_by_columns(values: NDArray, rows: NDArray | None) -> NDArray:
    """A table's rows as the counts' columns see them; row -1 is a bucket that costs nothing."""
    if rows is None:
        return values
    return np.where(rows[:, None] >= 0, values[rows], 0.0)


def _tilt_grid(
    counts: Counts, maker: Maker, rows: NDArray | None, target: NDArray, solve_epsilon: bool, per_octave: int
) -> NDArray:
    """The part of the grid of tilts that holds everybody's saddle point, with room for the helpers."""
    octaves = np.arange(*_OCTAVES, 2)
    theta = 2.0**octaves
    k = seen_by_columns(maker.log_moments(theta), rows)
    log_c = _log_c(theta)

    def ends(block: slice) -> tuple[int, int]:
        moments = maker.composed(counts[block].astype(np.float64, copy=False) @ k)
        goal = target[block, None]
        cost = (moments - goal + log_c) / theta if solve_epsilon else moments - theta * goal + log_c
        best = np.argmin(cost, axis=1)
        return int(octaves[best.min()]), int(octaves[best.max()])

    found = [result for _, result in in_order(ends, blocks(len(counts)), alone=few(len(counts)))]
    lowest, highest = min(f[0] for f in found), max(f[1] for f in found)
    low, high = max(lowest - 5, _OCTAVES[0]), min(highest + 6, _OCTAVES[1])
    # helpers, which lie further out than candidates, need not be as close
    exponents = np.arange(low * per_octave, high * per_octave + 1)
    far = (exponents < (lowest - _BACK) * per_octave) | (exponents > (highest + 2) * per_octave)
    return 2.0 ** (exponents[~far | (exponents % max(per_octave // 2, 1) == 0)] / per_octave)


def make_plan(
    counts: Counts, maker: Maker, rows: NDArray | None, target: NDArray, hint: NDArray, solve_epsilon: bool,
    limits: Limits,
) -> Plan:  # fmt: skip
    """The tilt, and what goes with it, for each person's target; hint as for `plancherel.solve`."""
    from ..kernels import tilt

    people = len(counts)
    theta = _tilt_grid(counts, maker, rows, target, solve_epsilon, limits.tilts)
    k = seen_by_columns(maker.log_moments(theta), rows)
    plan = Plan(
        tilt=np.full(people, -1), period=np.zeros(people), width=np.zeros(people), helper=np.zeros((people, 4)),
        start=np.zeros(people), renyi=np.zeros(people), theta=theta,
    )  # fmt: skip
    log_c = _log_c(theta)

    def choose(block: slice) -> None:
        # raised by the round-off of the product
        sums = (counts[block].astype(np.float64, copy=False) @ k) * (1.0 + (maker.buckets + 8) * 2.0**-52)
        moments = maker.composed(sums)
        choice = np.full((len(moments), 3), -1)
        need = np.zeros((len(moments), 4))
        tilt.choose_tilts(
            moments, theta, log_c, target[block], hint[block], solve_epsilon, limits.error,
            np.log(limits.least_expectation), _BACK * limits.tilts, choice, need,
        )  # fmt: skip
        person = np.arange(len(moments))
        above, below = choice[:, 1], choice[:, 2]
        plan.tilt[block] = choice[:, 0]
        plan.period[block], plan.width[block] = need[:, 0], need[:, 1]
        plan.helper[block] = np.stack(
            [theta[above], moments[person, above], np.where(below < 0, 0.0, theta[below]),
             np.where(below < 0, 0.0, moments[person, below])], axis=1,
        )  # fmt: skip
        plan.start[block] = need[:, 2]
        plan.renyi[block] = need[:, 3]

    for _ in in_order(choose, blocks(people), alone=few(people)):
        pass
    return plan


def renyi_bounds(
    counts: Counts, maker: Maker, rows: NDArray | None, target: NDArray, solve_epsilon: bool
) -> NDArray:
    """Upper bounds of everybody's epsilon, or log delta, from the log-moments of a maker of whole laws alone."""
    plan = make_plan(counts, maker, rows, target, np.full(len(counts), np.nan), solve_epsilon, Limits())
    return plan.renyi
