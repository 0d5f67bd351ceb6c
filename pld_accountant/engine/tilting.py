"""The tilt of each person, and the period, band and helper tilts that go with it.

The choice is one matrix product, counts times log-moments, and a kernel person by person (`kernels.tilt`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..counting.counts import Counts
from ..kernels import _columns as c
from ..notions.rdp import log_c
from ..tables.table import WORK, TableMaker
from ..threads import by_blocks
from .question import DeltaAt, Question

__all__ = ["Limits", "Plan", "make_plan"]

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
        People who need more stay unsolved.
    least_expectation : float
        The least Q of a tilt: round-off, relative to Q, grows by its reciprocal.
    tilts : int
        Candidate tilts per octave.  Two are enough unless the tilted distribution has two modes.
    periods : int
        Candidate periods per octave, at most 4.  Fewer have fewer tables, of longer periods.
    least_log_delta : float
        If the Renyi bound proves log delta <= this value, the bounds are (0, Renyi bound).  The default is where
        double precision ends.
    work : float
        Limit of the cost of one table, see `tables.table.WORK`.
    useful : float
        If no band meets `error`, the widest one is worth its table if it leaves out less than this, relative to Q.
    """

    error: float = 1e-10
    frequencies: int = 4096
    least_expectation: float = 1e-4
    tilts: int = 2
    periods: int = 4
    least_log_delta: float = -746.0
    work: float = WORK
    useful: float = 0.03


@dataclass
class Plan:
    """The choices of tilt, period and band for every person.

    Attributes
    ----------
    tilt : ndarray of int, shape (people,)
        Index into `theta`; -1: no tilt serves.
    period, width, start, renyi : ndarray, shape (people,)
        Period, band, expected answer, and the Renyi bound of the answer.
    helper : ndarray, shape (people, 4)
        Named in `kernels._columns`.
    theta : ndarray, shape (tilts,)
    """

    tilt: NDArray
    period: NDArray
    width: NDArray
    helper: NDArray
    start: NDArray
    renyi: NDArray
    theta: NDArray


def _tilt_grid(counts: Counts, maker: TableMaker, question: Question, hint: NDArray, per_octave: int) -> NDArray:
    """The part of the grid of tilts that holds everybody's saddle points, with room for the helpers."""
    octaves = np.arange(*_OCTAVES, 2)
    theta = 2.0**octaves
    k, target = maker.log_moments(theta), question.targets(len(counts))

    def ends(block: slice) -> tuple[int, int]:
        moments = maker.composed(counts.times(k, block))
        best = np.argmin(question.integrand(moments, theta, target[block, None]), axis=1)
        lowest = best.min()
        if question.wants_epsilon and np.any(known := hint[block] > 0.0):
            at = DeltaAt(0.0).integrand(moments[known], theta, hint[block][known, None])
            lowest = min(lowest, np.argmin(at, axis=1).min())
        return int(octaves[lowest]), int(octaves[best.max()])

    found = by_blocks(ends, len(counts))
    lowest, highest = min(f[0] for f in found), max(f[1] for f in found)
    low, high = max(lowest - 5, _OCTAVES[0]), min(highest + 6, _OCTAVES[1])
    # helpers, which lie further out than candidates, need not be as close
    exponents = np.arange(low * per_octave, high * per_octave + 1)
    far = (exponents < (lowest - _BACK) * per_octave) | (exponents > (highest + 2) * per_octave)
    return 2.0 ** (exponents[~far | (exponents % max(per_octave // 2, 1) == 0)] / per_octave)


def make_plan(
    counts: Counts, maker: TableMaker, question: Question, hint: NDArray, limits: Limits, band: NDArray | None = None
) -> Plan:
    """Choose each person's tilt and what goes with it.

    hint (people,): the answer as far as it is known, NaN if it is not; band: see `plancherel.solve`.
    """
    from ..kernels import tilt

    people = len(counts)
    target = question.targets(people)
    theta = _tilt_grid(counts, maker, question, hint, limits.tilts)
    k = maker.log_moments(theta)
    plan = Plan(
        tilt=np.full(people, -1),
        period=np.zeros(people),
        width=np.zeros(people),
        helper=np.zeros((people, 4)),
        start=np.zeros(people),
        renyi=np.zeros(people),
        theta=theta,
    )
    constant, least = log_c(theta), np.zeros(people) if band is None else band

    def choose(block: slice) -> None:
        # raised by the round-off of the product
        moments = maker.composed(counts.times(k, block) * (1.0 + (maker.size + 8) * 2.0**-52))
        choice = np.full((len(moments), 3), -1)
        need = np.zeros((len(moments), 4))
        tilt.choose_tilts(
            moments,
            theta,
            constant,
            target[block],
            hint[block],
            question.wants_epsilon,
            least[block],
            limits.error,
            np.log(limits.least_expectation),
            _BACK * limits.tilts,
            choice,
            need,
        )
        person = np.arange(len(moments))
        plan.tilt[block] = choice[:, 0]
        plan.period[block], plan.width[block], plan.start[block], plan.renyi[block] = need.T
        helper = plan.helper[block]
        above, below = choice[:, 1], choice[:, 2]
        # an index of -1 stands for the largest tilt above, and below for the tilt 0, where K and log c are 0
        helper[:, c.TILT_ABOVE] = theta[above]
        helper[:, c.CHERNOFF_ABOVE] = moments[person, above] + constant[above]
        helper[:, c.TILT_BELOW] = np.where(below < 0, 0.0, theta[below])
        helper[:, c.CHERNOFF_BELOW] = np.where(below < 0, 0.0, moments[person, below] + constant[below])

    by_blocks(choose, people)
    return plan
